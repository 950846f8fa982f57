"""The predictions for a pretrained model, each with its measured outcome.

Reads runs of several experiments of one model (`REQUIRED`, `OPTIONAL`), and prints a table. Each
prediction has a condition on a number (docs/gemma.md). It holds if the number's whole 95% interval
over problems meets the condition, and does not hold if none of it does.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import combinations, product
from operator import add
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
import tyro
from jaxtyping import Float
from pandas import DataFrame

from arith_lens.effects import ComponentEffects, Effects
from arith_lens.knockout import CircuitCurve
from arith_lens.operations import OPERATIONS
from arith_lens.pairs import Role
from arith_lens.probes import curve_of
from arith_lens.runs import Run, RunError, load_run
from experiments import results
from experiments.are_they_specific import COMPUTED_SET, LATE_SET, STRONGEST_SET
from experiments.does_tuning_help import generic_to_report, is_mathematics
from experiments.finding import RESULTS, RunSettings
from experiments.other_prompts import MIN_PAIRS, counts
from figures.agreement import (
    COUNTERFACTUAL_ROWS,
    N_STRONGEST,
    cell_means,
    loaded,
    resampled_cells,
)
from figures.claims.accuracy import gain
from figures.claims.heads import mean_by_loss, top_overlap
from figures.claims.information_flow import change_late, inflections_apart
from figures.common import FREE, run_with
from figures.exhibit import Table
from figures.tuning import rows_at_chosen_rates

REQUIRED = ("which_counterfactual", "do_they_suffice", "where_do_they_look")
OPTIONAL = ("are_they_specific", "what_do_mlps_add", "does_tuning_help")
"""Without a run of these, the outcomes that need it are left out, and the table says so."""
WORD_PROBLEMS = ("do_word_problems_use_them", "which_word_problems")
"""Experiments with word problems: the closed world's, and published ones. The first is used that
has a run."""
SEVEN = 7
"""The strongest heads of the predictions; P2, P4 and P5 are also measured with ten."""
PRIMARY = "operands"
"""The counterfactual on which the predictions rest."""
EARLY, MIDDLE = 1 / 3, (1 / 3, 2 / 3)
"""Shares of the layers: those before the middle, and the middle."""
FEW_HEADS = 0.05
"""A share of the heads that is few."""
LEAST_RIGHT, LEAST_PROBLEMS = 0.6, 20
"""What an operation needs to take part."""
READ_ROLES = (str(Role.OPERAND_A), str(Role.OPERAND_B), str(Role.OPERATOR))


Condition: TypeAlias = tuple[str, tuple[float, float]]
"""A condition on a number: in words, and the range in which the number must lie."""
ABOVE_HALF: Condition = ("above one half", (np.nextafter(0.5, 1), 1.0))
BELOW_5: Condition = ("below 0.05", (-np.inf, np.nextafter(0.05, 0)))


@dataclass(frozen=True)
class Outcome:
    """A number that a prediction is about, with its interval."""

    prediction: str
    """Its number and what it says."""
    of: str
    """The operation, or two of them, or the kind of task."""
    quantity: str
    value: float
    low: float
    high: float
    condition: str
    """The condition in words."""
    verdict: str
    """Of `verdict`, on the interval and the condition."""


@dataclass(frozen=True)
class PredictionOptions:
    """Which runs to show, and where the files go."""

    model: str = "reference"
    """Show the runs of this model."""
    run: tuple[Path, ...] = ()
    """Show these run folders, each for its experiment; the others are looked for beside them."""
    out: Path | None = None
    """Where the files go; figures/<model> if not given."""
    root: Path = RESULTS
    """The folder of all runs."""
    settings: tyro.conf.Suppress[RunSettings] = FREE
    """The settings of the runs that are not named."""

    def chosen(self, experiment: str) -> Run:
        """The run of an experiment. Raises RunError as `chosen_run`."""
        named = [load_run(path) for path in self.run]
        for run in named:
            if run.experiment == experiment:
                return run
        model = str(named[0].config["model"]) if named else self.model
        root = named[0].path.parents[1] if named else self.root
        return run_with(self.settings, experiment, model, root)


def exhibits(options: PredictionOptions) -> list[Table]:
    """The outcomes of a model's runs. Raises RunError if a run of `REQUIRED` is missing."""
    maps_run, kept_run, looks_run = map(options.chosen, REQUIRED)
    accuracy = {name: accuracy_of(maps_run, name) for name in maps_run.config["operations"]}
    passing = [name for name in accuracy if passes(maps_run, name)]
    maps = loaded(maps_run, COUNTERFACTUAL_ROWS, passing)

    def operations_of(run: Run) -> list[str]:
        return [name for name in passing if name in run.config["operations"]]

    others = {name: _run_or_reason(options, name) for name in OPTIONAL}
    knockouts, probes, trainings = others.values()
    stories = [_run_or_reason(options, name) for name in WORD_PROBLEMS]
    with_stories = next((run for run in stories if isinstance(run, Run)), None)
    outcomes = [
        *few_heads(kept_run, operations_of(kept_run)),
        *shared(maps),
        *middle_layers(maps),
        *readers(looks_run, operations_of(looks_run)),
        *(late_mlps(knockouts, operations_of(knockouts)) if isinstance(knockouts, Run) else ()),
        *norm_parts(maps),
        *(specific(knockouts, operations_of(knockouts)) if isinstance(knockouts, Run) else ()),
        *(written_outcomes(probes, operations_of(probes)) if isinstance(probes, Run) else ()),
        *(word_problem_outcomes(with_stories, looks_run, passing) if with_stories else ()),
        *(tuning_outcomes(trainings) if isinstance(trainings, Run) and has_rows(trainings) else ()),
    ]
    missing = [f"Not measured: {run}" for run in others.values() if not isinstance(run, Run)]
    missing += [skipped(with_stories)] if with_stories else [f"Not measured: {stories[-1]}"]
    return [
        Table(
            name="predictions",
            title=f"Predictions and outcomes, {maps_run.config['model']}",
            look="The predictions of the study of Gemma 3 270M, with its thresholds, on this model."
            " They were written for that study; much was already known of the shipped models.",
            notes=[*notes(maps_run, accuracy, passing), *filter(None, missing)],
            runs=(
                *(maps_run, kept_run, looks_run),
                *(run for run in (*others.values(), with_stories) if isinstance(run, Run)),
            ),
            numbers=DataFrame(map(asdict, outcomes)),
            cells=DataFrame(map(cells, outcomes)),
        )
    ]


def _run_or_reason(options: PredictionOptions, experiment: str) -> Run | str:
    """The run of an experiment; without one, the reason and the command that makes it."""
    try:
        return options.chosen(experiment)
    except RunError as error:
        return str(error)


def accuracy_of(run: Run, operation: str) -> float:
    """The share of the drawn prompts that the model answers right; 1 if none was filtered."""
    selection = results.COUNTERFACTUAL_MAP.facts(run, operation, PRIMARY)["selection"]
    return 1.0 if selection is None else selection["n_kept"] / selection["n_drawn"]


def passes(run: Run, operation: str) -> bool:
    """Whether an operation takes part: enough prompts are right, and enough problems are left."""
    facts = results.COUNTERFACTUAL_MAP.facts(run, operation, PRIMARY)
    enough = (facts.get("problems") or 0) >= LEAST_PROBLEMS
    return enough and accuracy_of(run, operation) >= LEAST_RIGHT


def few_heads(run: Run, operations: Sequence[str]) -> Iterator[Outcome]:
    """P1: how faithful the model is with the strongest heads kept at END.

    The curves are read at the sizes next to 5% of the heads, below and above.
    """
    for operation in operations:
        curve = results.CIRCUIT_CURVE.load(run, operation, "heads", "end", "keep_only", "effect")
        most = FEW_HEADS * len(curve.order)
        below = max(i for i, size in enumerate(curve.sizes) if size <= most)
        drawn = resampled_cells(curve.effects())[len(curve.sizes) :]
        for at in (below, below + 1):
            yield _outcome(
                "P1: few heads suffice",
                operation,
                f"faithfulness with {curve.sizes[at]} of {len(curve.order)} heads",
                float(curve.faithfulness()[at]),
                (drawn[at] - drawn[0]) / (drawn[-1] - drawn[0]),
                ("at least 0.8", (0.8, np.inf)),
            )


def shared(maps: Mapping[str, Mapping[str, ComponentEffects]]) -> Iterator[Outcome]:
    """P2: the share of the strongest heads that two operations have in common."""
    for kind in (PRIMARY, "operator"):
        drawn = {name: resampled_cells(kinds[kind].heads) for name, kinds in maps.items()}
        means = {name: cell_means(kinds[kind].heads) for name, kinds in maps.items()}
        for (a, b), top in product(combinations(maps, 2), (SEVEN, N_STRONGEST)):
            both = zip(drawn[a].T, drawn[b].T, strict=True)
            yield _outcome(
                "P2: operations share heads",
                f"{a}, {b}",
                f"strongest {top} in common, {kind} changed",
                top_overlap(means[a], means[b], top),
                np.array([top_overlap(*draws, top) for draws in both]),
                ABOVE_HALF,
            )


def middle_layers(maps: Mapping[str, Mapping[str, ComponentEffects]]) -> Iterator[Outcome]:
    """P3: where the negative effects of the heads are."""
    for operation, kinds in maps.items():
        heads = kinds[PRIMARY].heads
        n_layers, n_heads = heads.per_pair.shape[:2]
        layers = np.repeat(np.arange(n_layers), n_heads)
        first, last = (share * n_layers for share in MIDDLE)
        middle = f"between {first:.0f} and {last:.0f} of {n_layers}"
        early = (layers < EARLY * n_layers).astype(float)
        share = f"share of the effect below layer {EARLY * n_layers:.0f}"
        for quantity, weights, condition in (
            ("effect-weighted mean layer", layers, (middle, (first, last))),
            (share, early, ("below 0.05", (0.0, 0.05))),
        ):
            yield _outcome(
                "P3: the heads stand in middle layers",
                operation,
                quantity,
                mean_by_loss(cell_means(heads), weights),
                np.array([mean_by_loss(draw, weights) for draw in resampled_cells(heads).T]),
                condition,
            )


def readers(run: Run, operations: Sequence[str]) -> Iterator[Outcome]:
    """P4: the share of the strongest heads' attention that goes to the problem's A, B, operator."""
    for operation in operations:
        looks = results.ROLE_ATTENTION.load(run, operation)
        labels = looks.labels or {}
        read = np.isin(labels["role"], READ_ROLES)
        free = np.array([role != str(Role.BOS) for role in labels["role"]])
        for top in sorted({SEVEN, len(labels["head"])}):

            def share(
                weights: np.ndarray,
                top: int = top,
                read: np.ndarray = read,
                free: np.ndarray = free,
            ) -> float:
                of_roles = weights.reshape(-1, len(read))[:top]
                return float(of_roles[:, read].sum() / of_roles[:, free].sum())

            yield _outcome(
                "P4: the strongest heads read operands and operator",
                operation,
                f"share of the attention outside BOS, strongest {top}",
                share(cell_means(looks)),
                np.array([share(draw) for draw in resampled_cells(looks).T]),
                ("at least one half", (0.5, 1.0)),
            )


def late_mlps(run: Run, operations: Sequence[str]) -> Iterator[Outcome]:
    """P5, first half: what is lost without the MLPs after the last of the strongest heads."""
    for operation, (label, problems) in product(
        operations,
        ((COMPUTED_SET, "computed problems of larger numbers"), (LATE_SET, "problems of one half")),
    ):
        name = operation, "mlps", "all", "knock_out", label
        if results.CIRCUIT_CURVE.is_in(run, *name):
            curve = results.CIRCUIT_CURVE.load(run, *name)
            first = curve.order[0].layer
            n_problems = len(set(curve.problem or ()))
            of = f"{n_problems} {problems}, without MLPs from layer {first}"
            yield from _losses("P5: MLPs after the heads calculate", operation, of, curve)


def norm_parts(maps: Mapping[str, Mapping[str, ComponentEffects]]) -> Iterator[Outcome]:
    """P5, second half: the part of the late MLPs' effects through the final norm's scale."""
    for operation, kinds in maps.items():
        effects = kinds[PRIMARY]
        layers = [head.layer for head in effects.heads.top(N_STRONGEST)]
        for late in sorted({max(layers[:top]) for top in (SEVEN, N_STRONGEST)}):
            by_scale = effects.mlps.by_norm_scale()
            whole, part = (resampled_cells(some)[late:].sum(0) for some in (effects.mlps, by_scale))
            value = float(by_scale.mean()[late:].sum())
            yield _outcome(
                "P5: MLPs after the heads calculate (the norm's part)",
                operation,
                f"part through the norm's scale, MLPs from layer {late}",
                value / float(effects.mlps.mean()[late:].sum()),
                part / whole,
                ("between -0.25 and 0.25", (-0.25, 0.25)),
            )


def specific(run: Run, operations: Sequence[str]) -> Iterator[Outcome]:
    """P6: what is lost without the strongest heads, and without others of the same layers."""
    says = "P6: the heads are needed, and specific"
    for operation in operations:
        curve = results.CIRCUIT_CURVE.load(
            run, operation, "heads", "all", "knock_out", STRONGEST_SET
        )
        yield from _losses(says, operation, f"without {curve.sizes[1]} heads", curve)
        controls = [*results.CONTROL_CURVES.load(run, operation).values()]
        lost = torch.stack([one.correct[0].float() - one.correct[-1].float() for one in controls])
        losses = Effects(lost, ("set",), "loss", **controls[0].units)
        yield _outcome(
            says,
            operation,
            f"accuracy lost without as many others, mean of {len(controls)} sets",
            float(cell_means(losses).mean()),
            resampled_cells(losses).mean(0),
            BELOW_5,
        )
        if results.DIVERGENCE.is_in(run, operation):
            divergence = results.DIVERGENCE.load(run, operation)
            yield _outcome(
                says,
                operation,
                f"divergence on {divergence.n_pairs} plain sentences, nats per token",
                float(cell_means(divergence)[0]),
                resampled_cells(divergence)[0],
                BELOW_5,
            )


def _losses(prediction: str, operation: str, of: str, curve: CircuitCurve) -> Iterator[Outcome]:
    """The shares of the accuracy and of the metric that a knockout takes away."""
    effects = curve.effects()
    shape = effects.per_pair.shape[:2]
    means = cell_means(effects).reshape(shape)
    drawn = resampled_cells(effects).reshape(*shape, -1)
    names = ("accuracy", curve.metric)
    for name, (before, after, *_), (many_before, many_after, *_) in zip(
        names, means, drawn, strict=True
    ):
        yield _outcome(
            prediction,
            operation,
            f"share of {name} lost, {of}",
            1 - after / before,
            1 - many_after / many_before,
            ("above 0.6", (np.nextafter(0.6, 1), np.inf)),
        )


def written_outcomes(run: Run, operations: Sequence[str]) -> Iterator[Outcome]:
    """P7: the rise of C's logit, and how far apart reading and writing turn."""
    says = "P7: MLPs write the answer"
    for operation in operations:
        if results.PROBE.is_in(run, operation, "logit"):
            logits = results.PROBE.load(run, operation, "logit")
            contrast = curve_of(logits, "C", less="others without C")
            yield _outcome(
                says,
                operation,
                "rise of C's logit less the other digits', from 17/32 of the depth to the end",
                change_late(cell_means(contrast)),
                np.array([change_late(draw) for draw in resampled_cells(contrast).T]),
                ("above 0", (np.nextafter(0, 1), np.inf)),
            )
        reads = curve_of(results.PROBE.load(run, operation, "mlp_in"), "A", "B")
        writes = curve_of(results.PROBE.load(run, operation, "write"), "C")
        both = zip(resampled_cells(reads).T, resampled_cells(writes).T, strict=True)
        apart = [inflections_apart(read, write) for read, write in both]
        yield _outcome(
            says,
            operation,
            "layers between the turns of reading A, B and of writing C",
            inflections_apart(cell_means(reads), cell_means(writes)),
            np.array(apart),
            ("at most 2", (0, 2)),
        )


def word_problem_outcomes(run: Run, looks: Run, operations: Sequence[str]) -> Iterator[Outcome]:
    """P8: the share of the strongest heads that generated prompts and word problems share."""
    if not results.MAP.is_in(run, "word_problems"):
        return
    generated = reduce(add, (results.MAP.load(looks, name) for name in operations)).heads
    of_stories = results.MAP.load(run, "word_problems").heads
    both = zip(resampled_cells(generated).T, resampled_cells(of_stories).T, strict=True)
    yield _outcome(
        "P8: word problems use the same heads",
        ", ".join(operations),
        f"strongest {SEVEN} in common",
        top_overlap(cell_means(generated), cell_means(of_stories), SEVEN),
        np.array([top_overlap(one, other, SEVEN) for one, other in both]),
        ABOVE_HALF,
    )


def has_rows(run: Run) -> bool:
    """Whether a run has Table 1."""
    return results.CHOSEN_RATES.is_in(run, "1")


def tuning_outcomes(run: Run) -> Iterator[Outcome]:
    """P9: what tuning the strongest heads gains, beside full tuning and random heads.

    Every row of Table 1 counts at the rate that was chosen on word problems.
    """
    before = results.UNTUNED_ANSWERS.load(run)
    trained = {row.key[0]: row.answers for row in rows_at_chosen_rates(run, 1)}
    precise = trained["precise"]
    for base_name, base, questions, condition in (
        ("full tuning", trained["full"], is_mathematics, ("at least -0.031", (-0.031, np.inf))),
        (
            *("random heads", trained["random"], is_mathematics),
            ("above 0", (np.nextafter(0, 1), np.inf)),
        ),
        ("untuned model", before, generic_to_report, ("between -0.02 and 0.02", (-0.02, 0.02))),
    ):
        tasks = "word problems" if questions is is_mathematics else "other tasks"
        change = gain(base, precise, questions)
        seeds = f"{len(change.per_seed)} seed{'s' * (len(change.per_seed) > 1)}"
        yield _judged(
            "P9: precise tuning works",
            tasks,
            f"accuracy, tuned heads less {base_name}, {change.n_questions} questions, {seeds}",
            change.mean,
            *change.ci(),
            condition,
        )


def skipped(run: Run) -> str:
    """Why there is no outcome for word problems; "" if there is one."""
    if results.MAP.is_in(run, "word_problems"):
        return ""
    numbers = {name: counts(run, name) for name in run.config["datasets"]}
    parts = [
        f"{name} {n} pairs, {right} right, {usable} of these not after the counterfactual"
        for name, (n, right, usable) in numbers.items()
    ]
    return f"P8 is skipped, since it needs {MIN_PAIRS} pairs: {'; '.join(parts)}."


def _outcome(
    prediction: str,
    of: str,
    quantity: str,
    value: float,
    draws: Float[np.ndarray, " resample"],
    condition: Condition,
) -> Outcome:
    draws = draws[~np.isnan(draws)]  # of a curve that does not turn
    low, high = map(float, np.quantile(draws, [0.025, 0.975])) if len(draws) else (np.nan, np.nan)
    return _judged(prediction, of, quantity, value, low, high, condition)


def _judged(
    prediction: str,
    of: str,
    quantity: str,
    value: float,
    low: float,
    high: float,
    condition: Condition,
) -> Outcome:
    words, bounds = condition
    return Outcome(prediction, of, quantity, value, low, high, words, verdict(low, high, *bounds))


def verdict(low: float, high: float, least: float, most: float) -> str:
    """Holds if the whole interval lies in a range, does not hold if none of it does."""
    if least <= low and high <= most:
        return "holds"
    return "does not hold" if high < least or low > most else "not decided"


def cells(outcome: Outcome) -> dict[str, str]:
    """A row for a reader."""
    of = [OPERATIONS[name].sign if name in OPERATIONS else name for name in outcome.of.split(", ")]
    estimate, low, high = map(_value_text, (outcome.value, outcome.low, outcome.high))
    return {
        "prediction": outcome.prediction,
        "of": " ".join(of),
        "quantity": outcome.quantity,
        "measured": f"{estimate} [{low}, {high}]",
        "holds if": outcome.condition,
        "verdict": outcome.verdict,
    }


def _value_text(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # no -0.00


def notes(run: Run, accuracy: Mapping[str, float], passing: Sequence[str]) -> list[str]:
    """How the numbers were made, and which operations take part."""
    config = run.config
    examples = f"{config.get('shots', 0)} examples, {config.get('exemplar_sets', 1)} sets"
    right = ", ".join(
        f"{name} {share:.0%}" + ("" if name in passing else " (does not take part)")
        for name, share in accuracy.items()
    )
    return [
        f"Model: {config['model']}; {examples}; {config['metric']}. P2, P3 and P5 rest on the "
        "counterfactual with other operands (P2 also on another operator), P1 and P4 on the "
        "paper's, with a symbol without meaning.",
        f"Answered right: {right}. An operation takes part with {LEAST_RIGHT:.0%} and "
        f"{LEAST_PROBLEMS} problems.",
        "Brackets: 95% intervals over problems and sets of examples.",
    ]
