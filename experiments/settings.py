"""What experiments share: their settings, how they run, and their model, prompts and engine."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import torch

import arith_lens as al
from arith_lens.knockout import matched_order, random_order
from arith_lens.model import default_device, empty_model, files_state
from arith_lens.operations import FOUR
from arith_lens.pairs import choose_templates, keep_correct
from arith_lens.path_patching import fitting_engine as library_choice
from arith_lens.path_patching import matrix_rate, time_text
from arith_lens.progress import is_first, loading, working
from arith_lens.runs import Run, open_run, stored_run
from experiments.checks import check_settings
from experiments.command import continue_after_part, exit_on_user_error
from experiments.configs.shared import (
    RESULTS,
    OperandSettings,
    PooledSampleSettings,
    Problems,
    SampleSettings,
)
from experiments.finding import figure_command
from experiments.rehearsal import rehearse as run_in_small
from experiments.results import MAP, POOLED_MAP, Stored
from experiments.selection import LARGEST_OPERAND, OWN_PAIRS, some_of

BEFORE_FILTER = "; of all prompts: those that the model answers wrongly are left out later"
"""A note of dry runs: without weights, it is not known which prompts are answered right."""


def loaded_model(config: Any, *, weights: bool = True) -> al.HookedModel:
    """The model that a configuration names, in its dtype, on its device.

    Args:
        config: names the model, dtype and device.
        weights: False: load no weights, for a dry run.
    """
    dtype = None if config.dtype is None else getattr(torch, config.dtype)
    load = al.load_model if weights else empty_model
    with exit_on_user_error():
        return load(config.model, dtype=dtype, device=config.device)


def model_files(config: Any) -> str | None:
    """The state of the files of the model that a configuration names; None for a hub id."""
    return files_state(config.model)


Config = TypeVar("Config")
T = TypeVar("T")


@dataclass(frozen=True)
class Experiment(Generic[Config]):
    """One question: its settings, its computation, and its report."""

    name: str
    """The name of its command and of the folder of its runs."""
    config: type[Config]
    """A dataclass of the settings that decide the results."""
    compute: Callable[[Run, Any, Any], None]
    """Fill the run, with the loaded model; stored results are not computed again."""
    plan: Callable[[Any, Any], str]
    """The cost in words, from a model without weights."""
    report: Callable[[Run], None] = lambda run: None
    """Print the results of a finished run; nothing if its exhibit shows them all."""
    figure: str = ""
    """The exhibit that draws it."""
    inputs: Callable[[Any], Iterable[Path]] = lambda config: ()
    """Files that it reads."""
    shares: bool = False
    """Whether several processes share its work."""

    def __call__(
        self,
        config: Config,
        *,
        root: Path = RESULTS,
        dry_run: bool = False,
        rehearse: bool = False,
        again: bool = False,
    ) -> None:
        """Load the model, compute what is missing, save and print."""
        dry_run = dry_run or rehearse
        with exit_on_user_error():
            check_settings({"config": config, "root": root})
            files = None if dry_run else model_files(config)
            stored = None if again else self._stored(config, root, files)
        if stored is not None:
            self._show_stored(stored)
            return
        with loading(f"{self.name}: loading the model"):
            model = loaded_model(config, weights=not dry_run)
        if dry_run:
            print(self.plan(model, config))
            if rehearse:
                run_in_small(self, config, self.figure, model)
            return
        run = self.open(config, model, root, files=files, again=again)
        if run.complete and not again:
            self._show_stored(run)
        else:
            self.fill(run, model, config)

    def _stored(self, config: Any, root: Path, files: str | None) -> Run | None:
        """The complete run of these settings, found without loading the model."""
        return stored_run(
            self.name,
            config,
            files=files,
            device=config.device or default_device(),
            inputs=self.inputs(config),
            root=root,
        )

    def _show_stored(self, run: Run) -> None:
        """Print the results of a complete run, which becomes the newest one."""
        print(f"saved before in {run.path}, not computed again\n")
        with run:
            pass
        self._conclude(run)

    def fill(self, run: Run, model: Any, config: Any) -> None:
        """Compute what an opened run lacks, and print the report.

        If an error comes before the first result, the run's folder is removed, by the process that
        has it open.
        """
        with run:
            try:
                with working(f"{self.name}: computing"):
                    self.compute(run, model, config)
            except BaseException:
                if is_first() and not (run.names or run.unfinished()):
                    shutil.rmtree(run.path, ignore_errors=True)
                    with suppress(OSError):  # it has other runs
                        run.path.parent.rmdir()
                raise
        if run.finished:
            self._conclude(run)

    def _conclude(self, run: Run) -> None:
        """Print the results of a finished run, and its folder."""
        self.report(run)
        print(f"\nsaved in {run.path}")
        if self.figure:
            print(f"{figure_command(self.figure, run)} draws it")

    def open(self, config: Any, model: Any, root: Path, **options: Any) -> Run:
        """The run of these settings, new or stored; `options` are as of `open_run`."""
        with exit_on_user_error():
            inputs = self.inputs(config)
            return open_run(self.name, config, model=model, inputs=inputs, root=root, **options)


fitting_engine = partial(library_choice, explain=print)
"""`"sweep"` if it can compute this; else `"hooks"`, and print why."""


@exit_on_user_error()
def sampled_operation(
    model: al.HookedModel,
    operation: str,
    config: PooledSampleSettings,
    *,
    problems: Problems = "any",
    **options: Any,
) -> al.PromptPairs:
    """The pairs of an operation, after every set of examples if there are examples.

    Args:
        config: number, seed, templates and examples.
        problems: "any", or those whose answer cannot be copied. These decide the operands and the
            answer's token.
        options: other arguments of `sample_pairs`.
    """
    sets = range(config.exemplar_sets if config.shots else 1)
    if len(sets) > 1 and len(choose_templates(operation, config.templates)) > 1:
        raise ValueError(
            "expected several sets of examples with one template, found several templates; their "
            "combinations would count as independent wordings: take templates symbols, or one set"
        )
    examples: dict[str, Any] = {"shots": config.shots, "exemplars": config.exemplars}
    options = {"n": config.n, "seed": config.seed, "templates": config.templates} | options
    draw = _computed_pairs if problems == "computed" else al.sample_pairs
    parts = [draw(model, operation, exemplar_set=number, **examples, **options) for number in sets]
    return reduce(add, parts)


def _computed_pairs(
    model: al.HookedModel,
    operation: str,
    *,
    n: int | None,
    seed: int,
    keep: str = "correct",
    **options: Any,
) -> al.PromptPairs:
    """The pairs of problems whose answer cannot be copied from the prompt."""
    if operation in LARGEST_OPERAND:
        operands = range(1, LARGEST_OPERAND[operation] + 1)
        options |= {"operands": operands, "answer_token": "last"}
    pairs = al.sample_pairs(model, operation, n=None, seed=seed, keep="all", **options)
    assert pairs.computed is not None
    pairs = pairs.filter(pairs.computed)
    pairs = random_pairs(pairs, n, seed)
    return keep_correct(model, pairs) if keep == "correct" else pairs


def random_pairs(pairs: al.PromptPairs, n: int | None, seed: int) -> al.PromptPairs:
    """`n` pairs at random, in random order; None: all, in their order."""
    if n is None:
        return pairs
    generator = torch.Generator().manual_seed(seed)
    return pairs[torch.randperm(len(pairs), generator=generator)[:n]]


def operation_pairs(
    model: al.HookedModel, config: SampleSettings, *, keep: str = "correct"
) -> Iterator[tuple[str, al.PromptPairs]]:
    """Each operation's name and pairs."""
    numbers: dict[str, Any] = {"problems": config.problems}
    if isinstance(config, OperandSettings):
        numbers = config.numbers
    for operation in config.operations:
        yield operation, sampled_operation(model, operation, config, keep=keep, **numbers)


def file_pairs(
    model: al.HookedModel, path: Path, *, keep: str = "correct"
) -> Iterator[tuple[str, al.PromptPairs]]:
    """Each operation's name and pairs in a file of prompts; `OWN_PAIRS` if the file names none."""
    with exit_on_user_error():
        pairs = al.PromptPairs.from_file(path, model)
    operations = pairs.operation or (OWN_PAIRS,) * len(pairs)
    for operation in dict.fromkeys(operations):
        chosen = pairs.filter([name == operation for name in operations])
        if keep == "correct":
            with exit_on_user_error():
                chosen = keep_correct(model, chosen)
        yield operation, chosen


def pooled_samples(
    model: al.HookedModel, config: PooledSampleSettings, *, keep: str = "correct"
) -> dict[str, al.PromptPairs]:
    """The pairs of each of the paper's four operations, by name."""
    return {name: sampled_operation(model, name, config, keep=keep) for name in FOUR}


def pooled(pairs: dict[str, al.PromptPairs]) -> al.PromptPairs:
    """The pairs of all operations together. Each has nine templates, so each has equal weight."""
    return reduce(add, pairs.values())


def patch_and_store(
    run: Run,
    model: al.HookedModel,
    pairs: al.PromptPairs,
    stored: Stored[al.ComponentEffects],
    *parts: str,
    **settings: Any,
) -> al.ComponentEffects:
    """The effects of components on some pairs, stored under the parts of a result's name.

    `settings` are path patching's; the engine is the one that fits if they do not name one.
    """
    settings = _with_engine(model, settings)
    return al.path_patch(model, pairs, run=run, name=stored.name(*parts), **settings)


def _with_engine(model: al.HookedModel, settings: dict[str, Any]) -> dict[str, Any]:
    if "engine" in settings:
        return settings
    return settings | {"engine": fitting_engine(model, settings.get("paths", "via_mlps"))}


Labelled: TypeAlias = Iterable[tuple[str, al.PromptPairs]]
"""Sets of pairs, each with its name."""


def save_maps(run: Run, model: al.HookedModel, labelled: Labelled, **settings: Any) -> None:
    """Store the map of every head and MLP on each set of pairs; `settings` are path patching's."""
    settings = _with_engine(model, settings)
    for label, pairs in labelled:
        with continue_after_part():
            patch_and_store(run, model, pairs, MAP, label, **settings)


def plan_maps(model: al.HookedModel, labelled: Labelled, note: str = "", **settings: Any) -> str:
    """What path patching would cost on each set of pairs, one line per set, which `note` ends.

    The last line is the time of all on this machine.
    """
    settings, rate = _with_engine(model, settings), matrix_rate(model)
    lines, flops = [], 0
    for label, pairs in labelled:
        plan = al.plan(model, pairs, **settings)
        took = time_text(plan.flops, rate)
        lines.append(f"{label}: {plan}, {took}{note}{BEFORE_FILTER}")
        flops += plan.flops
    return "\n".join([*lines, f"path patching in all: {time_text(flops, rate)}"])


def operation_maps(
    run: Run, model: al.HookedModel, pairs: dict[str, al.PromptPairs]
) -> dict[str, al.ComponentEffects]:
    """The effects of every head and MLP on the pairs of each operation, by name.

    They are the maps of Figure 2. The first experiment that needs a map computes it.
    """
    engine = fitting_engine(model)
    return {
        name: patch_and_store(run, model, some, MAP, name, engine=engine)
        for name, some in pairs.items()
    }


def pooled_map(
    run: Run, pairs: dict[str, al.PromptPairs], maps: dict[str, al.ComponentEffects]
) -> al.ComponentEffects:
    """The maps of all operations together, saved as `effects`."""
    together = reduce(add, maps.values())
    POOLED_MAP.save(run, together, pairs=pooled(pairs))
    return together


def strongest_heads(effects: al.ComponentEffects, k: int) -> tuple[al.Head, ...]:
    """The k heads with the most negative mean effect."""
    return tuple(head for head in effects.heads.top(k) if isinstance(head, al.Head))


CONTROL_SETS = ("random-", "matched-")
"""How the names of control sets begin."""


def some_pairs(pairs: al.PromptPairs, limit: int, seed: int) -> al.PromptPairs:
    """`limit` random pairs in their order; all if there are no more, or if `limit` is 0."""
    return pairs[some_of([*range(len(pairs))], limit, seed)]


def control_sets(
    heads: Sequence[al.Head], model: al.HookedModel, config: Any
) -> dict[str, tuple[al.Head, ...]]:
    """As many heads as these, `config.controls` draws of each kind, by name.

    `random-0` is drawn from all heads. `matched-0` has heads of the same layers, drawn from all
    heads but these; a model where these are more than half of all heads has no such sets.
    """
    shape, sets = (model.n_layers, model.n_heads), {}
    for seed in range(config.seed, config.seed + config.controls):
        sets[f"random-{seed}"] = tuple(random_order(*shape, seed)[: len(heads)])
        if 2 * len(heads) <= shape[0] * shape[1]:
            sets[f"matched-{seed}"] = tuple(matched_order(heads, *shape, seed))
    return sets
