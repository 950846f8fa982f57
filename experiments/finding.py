"""Which finished run is shown or continued: one function finds it by its settings.

Exhibits, claims, reports, and experiments that use an earlier run call `find_run`. Of runs with
equal settings the newest is taken. Runs with different settings are never chosen by their age.
"""

import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from arith_lens.operations import FOUR
from arith_lens.runs import Run, RunError, find_runs, plain_value
from experiments.catalogue import experiments
from experiments.configs.shared import RESULTS

PAPER_SETTINGS: Mapping[str, Any] = {
    "paths": "via_mlps",
    "metric": "relative_logit",
    "counterfactual": "word",
    "templates": ["operation"],
    "shots": 0,
    "exemplars": "same",
    "exemplar_sets": 1,
    "problems": "any",
    "operands": [1, 9],
    "answer_token": "whole",
    "ablation": "mean",
    "final_norm": False,
    "n": None,
    "pairs": None,
    "keep": "correct",
    "operations": [*FOUR],
}
"""They apply to every experiment whose configuration has such a field."""
MACHINE_SETTINGS = ("device", "engine")
"""Settings that change results by rounding only."""
PATHS = ("pairs", "data_dir")
"""Settings that are a path."""
LONGEST_ENDING = 150
"""The most letters that models and operations add to the name of a file."""


class NotComputed(RunError):
    """A run is missing; `command` computes it."""

    def __init__(self, reason: str, command: str) -> None:
        super().__init__(f"{reason}. Make one: {command}")
        self.reason = reason
        self.command = command


@dataclass(frozen=True)
class RunSettings:
    """The settings that a run must have."""

    values: Mapping[str, Any]
    """By name. Those that an experiment does not have are ignored."""
    weights: str | None = None
    """The digest of the checkpoint's weights; None: of any."""

    @classmethod
    def of_paper(cls, **changes: Any) -> "RunSettings":
        """The paper's settings, except `changes`; other settings of an experiment are free."""
        return cls({**PAPER_SETTINGS, **plain_value(changes)})

    @classmethod
    def of_config(cls, config: Any, *, changed_only: bool = False) -> "RunSettings":
        """The settings of an experiment's configuration; all, or those that are not the default."""
        values = {k: v for k, v in plain_value(vars(config)).items() if k != "model"}
        if changed_only:
            usual = plain_value(vars(type(config)()))
            values = {name: value for name, value in values.items() if value != usual[name]}
        return cls(values)

    def changed(self, **changes: Any) -> "RunSettings":
        """The same settings, except `changes`."""
        return replace(self, values={**self.values, **plain_value(changes)})

    def differences(self, run: Run) -> dict[str, Any]:
        """The settings of a run that differ from these, by name."""
        defaults, other = default_settings(run), {}
        unfilled = _field_defaults(run.experiment)
        for name, value in self.values.items():
            if name not in defaults and name not in run.config:
                continue
            if name in defaults and _is_another_setting(value, unfilled[name]):
                continue
            if name in defaults and (value is None or value == unfilled[name]):
                value = defaults[name]  # None leaves the choice to the experiment
            actual = run.config.get(name, defaults.get(name, value))
            if not _is_same(name, value, actual):
                other[name] = actual
        if len({self.weights, weights_of(run)} - {None}) > 1:
            other["other weights"] = "than the runs before it"
        return other


def find_run(
    experiment: str,
    model: str,
    settings: RunSettings,
    roots: Sequence[Path],
    *,
    result: str = "",
) -> Run:
    """The finished run with these settings, from the first folder that has one.

    Settings that are not named are free. If the runs differ in them, the run with the experiment's
    defaults is taken. The newest one is taken only of runs that differ in nothing but versions,
    weights, the content of files, and what changes results by rounding.

    Args:
        experiment: the experiment's name.
        model: the model's name in the experiments.
        settings: the settings that the run must have.
        roots: folders of runs.
        result: a result that the run must have.

    Raises:
        NotComputed: there is no such run; the error has the command that makes one.
        RunError: there are several with different settings, and none has the defaults.
    """
    others: dict[Path, str] = {}
    for root in roots:
        fitting = []
        for run in find_runs(experiment, model=model, root=root):
            differences = settings_text(settings.differences(run))
            if not differences and result and result not in run.names:
                differences = f"no {result}"
            if differences:
                others[run.path] = differences
            else:
                fitting.append(run)
        if fitting:
            return _only_question(fitting)
    seen = "".join(f"; {path} has {text}" for path, text in others.items())
    command = experiment_command(experiment, model, settings.values, roots[0])
    raise NotComputed(
        f"expected a finished run of {model} under {roots[0] / experiment}"
        f"{' with these settings' * bool(others)}, found none{seen}",
        command,
    )


def _only_question(runs: Sequence[Run]) -> Run:
    """The newest of runs with the same settings. Raises RunError if settings differ."""
    by_question: dict[str, Run] = {}
    for run in runs:
        by_question.setdefault(_question(run), run)
    usual = [run for run in by_question.values() if not unusual_settings(run)]
    if len(by_question) == 1 or len(usual) == 1:
        chosen = (usual or runs)[0]
        _print_other_inputs(chosen, runs)
        return chosen
    lines = [
        f"  {run.path}: {options_text(run.experiment, unusual_settings(run)) or 'the defaults'}, "
        f"computed in {_dtype(run) or 'an unknown dtype'}"
        for run in by_question.values()
    ]
    raise RunError(
        f"expected one run of {runs[0].experiment} of {runs[0].config.get('model')} with these "
        f"settings, found {len(lines)} with different ones. Name more of the options of one of "
        "them, or its folder with --run:\n" + "\n".join(lines)
    )


def _print_other_inputs(chosen: Run, runs: Sequence[Run]) -> None:
    """Say which run is taken, if another one with its settings has other weights or other files."""

    def inputs(run: Run) -> tuple[Any, ...]:
        return weights_of(run), run.manifest["provenance"].get("inputs") or []

    same = [run for run in runs if _question(run) == _question(chosen)]
    if others := [str(run.path) for run in same if inputs(run) != inputs(chosen)]:
        print(
            f"{chosen.path} is used, the newest run with these settings; of other weights or other "
            f"input files: {', '.join(others)}",
            file=sys.stderr,
        )


def _question(run: Run) -> str:
    """What a run computes, as text that is equal for equal settings."""
    config = {**default_settings(run), **run.config}
    known = default_settings(run) or config
    decisive = {k: v for k, v in config.items() if k in known and k not in MACHINE_SETTINGS}
    if "operations" in decisive:
        decisive["operations"] = sorted(decisive["operations"])
    return json.dumps([decisive, _dtype(run)], sort_keys=True)


def _is_another_setting(value: Any, default: Any) -> bool:
    """Whether a setting has only its name in common: shots of prompts, and shots by benchmark; the
    kind of problems, and their number."""
    if value is None or default is None:
        return False
    return any(isinstance(value, kind) != isinstance(default, kind) for kind in (Mapping, str))


def _dtype(run: Run) -> str | None:
    return (run.manifest["provenance"].get("model") or {}).get("dtype")


def _is_same(name: str, value: Any, actual: Any) -> bool:
    if name in MACHINE_SETTINGS or name == "dtype":
        return value is None or value == "auto" or value == actual
    if name in PATHS and value and actual:
        return Path(value).resolve() == Path(actual).resolve()
    if name == "operations":
        more_are_fine = {*value} == {*FOUR}
        return {*value} == {*actual} or (more_are_fine and {*value} < {*actual})
    return value == actual


def config_class(experiment: str) -> type | None:
    """The class of an experiment's settings; None for a name that is no experiment's."""
    command = experiments().get(experiment)
    return command and command.settings


@cache
def _field_defaults(experiment: str) -> Mapping[str, Any]:
    config: Any = config_class(experiment)
    return {} if config is None else RunSettings.of_config(config()).values


def default_settings(run: Run) -> dict[str, Any]:
    """The default settings of a run's experiment, for the run's data and number of layers."""
    defaults = dict(_field_defaults(run.experiment))
    fill: Any = getattr(config_class(run.experiment), "filled", None)
    if fill is not None:
        provenance = run.manifest["provenance"].get("model") or {}
        defaults |= plain_value(fill(run.config, provenance.get("n_layers")))
    return defaults


def unusual_settings(run: Run) -> dict[str, Any]:
    """The settings of a run that are not its experiment's defaults, by name."""
    defaults = default_settings(run) or PAPER_SETTINGS
    config = run.config
    return {
        name: config[name]
        for name, value in defaults.items()
        if name in config and name not in MACHINE_SETTINGS and config[name] != value
    }


def weights_of(run: Run) -> str | None:
    """The digest of the model's weights; None if the run does not have it."""
    return (run.manifest["provenance"].get("model") or {}).get("weights_sha256")


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings in words: `n 9, operations addition division`."""
    return ", ".join(
        f"{name} {' '.join(map(str, _listed(value)))}" for name, value in settings.items()
    )


def name_ending(models: Iterable[str], settings: Mapping[str, Any]) -> str:
    """The ending of the names of files: models, operations, own prompts: `-reference-addition`.

    Args:
        models: the models' names in the experiments; of a path, the last part is taken.
        settings: those that are not the defaults. Others than these two stand in the page.
    """
    pairs = settings.get("pairs")
    names = [*models, *(settings.get("operations") or ()), *([Path(pairs).stem] if pairs else [])]
    names = [re.sub(r"[^\w.-]", "_", Path(name).name) for name in names]
    return "".join(f"-{name}" for name in names if name)[:LONGEST_ENDING]


def _listed(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return [part for pair in value.items() for part in pair]
    return value if isinstance(value, list | tuple) else [value]


def options_text(experiment: str, settings: Mapping[str, Any]) -> str:
    """The options of a command line for settings that are not an experiment's defaults."""
    return " ".join(_options(experiment, settings))


def not_default(experiment: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that an experiment has and that are not its defaults, by name."""
    defaults = _field_defaults(experiment)
    return {
        name: value
        for name, value in plain_value(settings).items()
        if name in defaults
        and value != defaults[name]
        and not _is_another_setting(value, defaults[name])
    }


def _options(experiment: str, settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in not_default(experiment, settings).items():
        if value is None:
            continue
        option = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{option}" if value else f"--no-{option}"
        else:
            yield " ".join([f"--{option}", *(shlex.quote(str(part)) for part in _listed(value))])


def figure_command(figure: str, run: Run) -> str:
    """The command that draws a run."""
    return f"python -m figures {figure} --run {shlex.quote(str(run.path))}"


def experiment_command(
    experiment: str, model: str, settings: Mapping[str, Any], root: Path = RESULTS
) -> str:
    """The command that computes a run."""
    parts = [f"python -m experiments {experiment}"]
    if "model" in getattr(config_class(experiment), "__dataclass_fields__", ("model",)):
        parts.append(f"--model {shlex.quote(model)}")
    parts += _options(experiment, settings)
    if root != RESULTS:
        parts.append(f"--root {shlex.quote(str(root))}")
    return " ".join(parts)
