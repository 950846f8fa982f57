"""What does tuning change? Effects of every head and MLP before it and after, on the same prompts.

Path patching over the four operations, of the model before tuning and of each tuned one: do the
tuned heads matter more, does the calculation move to other heads? The prompts are those that the
model answers right before tuning; the run also has the share that is still right. By default the
tuned models are the precise ones of Table 1, from the newest run of experiments/does_tuning_help.
Other models can be delta files, outputs of `fine_tune`, or checkpoints. Saves a run under
results/what_tuning_changes/, which `figures/before_after.py` draws.
"""

from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, Literal

import arith_lens as al
from arith_lens.effects import BeforeAfter
from arith_lens.fine_tuning import Delta, TuningResult, load_delta
from arith_lens.fine_tuning.results import DELTA_FILE, RESULT_FILE
from arith_lens.pairs.correctness import answer
from arith_lens.runs import Run
from experiments.command import exit_on_user_error
from experiments.does_tuning_help.models import precise_models, tuning_run
from experiments.results import PATH_EFFECTS, TUNED_MAP, UNTUNED_MAP
from experiments.settings import (
    BEFORE_FILTER,
    Experiment,
    Metric,
    PooledSampleSettings,
    pooled,
    pooled_samples,
)


@dataclass(frozen=True)
class TunedSource:
    """A tuned model: a delta file, an output of `fine_tune`, or a checkpoint."""

    name: str
    path: Path

    def __post_init__(self) -> None:
        if not self.path.exists():
            raise FileNotFoundError(
                "expected a delta file, an output of fine_tune, or a checkpoint's folder, found "
                f"nothing at {self.path}"
            )

    @property
    def files(self) -> list[Path]:
        """The files of the weights; they identify the run."""
        return sorted(self.path.rglob("*.safetensors")) if self.path.is_dir() else [self.path]

    def tuning_output(self) -> TuningResult | Delta | None:
        """The tuned components and their changes; None for a checkpoint.

        Raises:
            ValueError: a file of another kind
        """
        if self.path.is_dir():
            return TuningResult.load(self.path) if (self.path / RESULT_FILE).is_file() else None
        return load_delta(self.path)

    def components(self) -> list[str]:
        """The heads and MLPs that were tuned; empty for LoRA and full tuning."""
        output = self.tuning_output()
        if output is None or (isinstance(output, TuningResult) and output.untouched is None):
            return []
        return [*map(str, output.heads), *map(str, output.mlps)]

    def load(self, base: str, device: str | None) -> al.HookedModel:
        """The model, ready to be patched."""
        output = self.tuning_output()
        return al.load_model(output.model(base) if output else str(self.path), device=device)


@dataclass(frozen=True)
class Config(PooledSampleSettings):
    """What does tuning change? Effects of every head and MLP before it and after."""

    tuned: tuple[Path, ...] = ()
    """Delta files, outputs of fine_tune, or checkpoints; by default those of Table 1."""
    paths: Literal["via_mlps", "direct"] = "via_mlps"
    """What may react to a change: only MLPs (Appendix B), or nothing (Algorithm 1)."""
    metric: Metric = "relative_logit"
    """What is read from the logits."""


@dataclass(frozen=True)
class Comparison:
    """The settings, and the models that are compared with the model as it was."""

    settings: Config
    tuned: tuple[TunedSource, ...]


def compute(run: Run, model: al.HookedModel, question: Comparison) -> None:
    """The effects before tuning, then the effects of each tuned model."""
    config = question.settings
    pairs = pooled_samples(model, config)
    before = _map(run, model, "before", pairs, config)
    UNTUNED_MAP.save(run, before, pairs=pooled(pairs))
    for tuned in question.tuned:
        save_comparison(tuned, before, pairs, config, run)


def _plan(model: al.HookedModel, question: Comparison) -> str:
    config = question.settings
    pairs = pooled(pooled_samples(model, config, keep="all"))
    names = ", ".join(tuned.name for tuned in question.tuned)
    cost = al.plan(model, pairs, **_settings(config))
    return f"as it was, and {names}: each {cost}{BEFORE_FILTER}"


def tuned_models(config: Config, root: Path) -> tuple[TunedSource, ...]:
    """The models that are compared with the model before tuning.

    Raises:
        OSError, ValueError, RunError: a model is missing or cannot be read
    """
    if not config.tuned:
        models = precise_models(tuning_run(config.model, root))
        return tuple(TunedSource(model.name, Path(model.result.output)) for model in models)
    models = tuple(TunedSource(_name(path), path) for path in config.tuned)
    names = [tuned.name for tuned in models]
    if len({*names, "before"}) <= len(names):
        raise ValueError(
            "expected tuned models whose files' or folders' names tell them apart, none of them "
            f"'before', found {', '.join(names)}; rename some"
        )
    for tuned in models:
        tuned.tuning_output()
    return models


def _name(path: Path) -> str:
    """A path as the name of a result; for a file `delta.safetensors`, its folder's name."""
    absolute = path.absolute()
    name = (
        absolute.parent.name
        if absolute.name == DELTA_FILE
        else absolute.name.removesuffix(".safetensors")
    )
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name).strip("-")


def save_comparison(
    tuned: TunedSource,
    before: al.ComponentEffects,
    pairs: dict[str, al.PromptPairs],
    config: Config,
    run: Run,
) -> None:
    """Patch one tuned model, and save both sides and how often it still answers right."""
    with exit_on_user_error():
        model = tuned.load(config.model, config.device)
    run.admit(model)
    both = BeforeAfter(before, _map(run, model, tuned.name, pairs, config))
    together = pooled(pairs)
    right, _ = answer(model, together, "reference", batch_size=128)
    TUNED_MAP.save(
        run,
        both,
        tuned.name,
        pairs=together,
        still_right=float(right.double().mean()),
        components=tuned.components(),
    )


def _map(
    run: Run, model: Any, label: str, pairs: dict[str, al.PromptPairs], config: Config
) -> al.ComponentEffects:
    """A model's effects on the pairs of all operations."""
    maps = [
        al.path_patch(
            model, some, run=run, name=PATH_EFFECTS.name(name, label), **_settings(config)
        )
        for name, some in pairs.items()
    ]
    return reduce(add, maps)


def _settings(config: Config) -> dict[str, Any]:
    """The settings of path patching."""
    return {"paths": config.paths, "metric": config.metric}


def report(run: Run) -> None:
    """Print how often each tuned model still answers right."""
    for name in TUNED_MAP.labels(run):
        facts = TUNED_MAP.facts(run, name)
        print(f"{name}: still answers {facts['still_right']:.1%} of {facts['pairs']} right")


main = Experiment(
    "what_tuning_changes",
    Config,
    compute,
    _plan,
    report,
    figure="before_after",
    question=lambda config, root: Comparison(config, tuned_models(config, root)),
    identity=lambda question: question.settings,
    inputs=lambda question: [path for tuned in question.tuned for path in tuned.files],
)
