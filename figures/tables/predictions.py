"""The table `predictions`: each prediction for a pretrained model, with its measured outcome.

Each prediction has a condition on a number (docs/gemma.md). Keys: prediction, of (the operation,
two of them, or the kind of task), condition in words, verdict. The measure is the quantity.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations, product
from operator import add
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float

from arith_lens.effects import ComponentEffects, Effects
from arith_lens.knockout import CircuitCurve
from arith_lens.pairs import Role
from arith_lens.probes import curve_of
from arith_lens.runs import Run
from experiments import results
from experiments.are_they_specific import COMPUTED_SET, LATE_SET, STRONGEST_SET
from experiments.does_tuning_help import generic_to_report, is_mathematics
from figures.tables.agreement import N_STRONGEST, cell_means, resampled_cells
from figures.tables.answers import change_number, gain
from figures.tables.layer_statistics import change_late, inflections_apart
from figures.tables.map_statistics import mean_by_loss, top_overlap
from figures.tables.number import PROBLEMS_AND_SETS, Number
from figures.tables.table import Row, row
from figures.tables.tuning import rows_at_chosen_rates
from figures.verdicts import Finding, Within, judge_by_interval

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
RIGHT, TAKES_PART, LEFT_OUT = "answered right", "takes part", "does not take part"
SENTENCES = "95% over sentences"
READ_ROLES = (str(Role.OPERAND_A), str(Role.OPERAND_B), str(Role.OPERATOR))

Condition: TypeAlias = tuple[str, Within]
"""A condition on a number: in words, and the bounds of the number."""
ABOVE_HALF: Condition = ("above one half", Within(above=0.5))
BELOW_5: Condition = ("below 0.05", Within(below=0.05))
AT_LEAST_8: Condition = ("at least 0.8", Within(above=0.8, closed=True))
AT_LEAST_HALF: Condition = ("at least one half", Within(above=0.5, closed=True))
ABOVE_6: Condition = ("above 0.6", Within(above=0.6))
ABOVE_0: Condition = ("above 0", Within(above=0))
AT_MOST_2: Condition = ("at most 2", Within(above=0, below=2, closed=True))
BETWEEN_QUARTERS: Condition = ("between -0.25 and 0.25", Within(-0.25, 0.25, closed=True))
NOT_MUCH_WORSE: Condition = ("at least -0.031", Within(above=-0.031, closed=True))
UNCHANGED: Condition = ("between -0.02 and 0.02", Within(-0.02, 0.02, closed=True))


def accuracy_of(run: Run, operation: str) -> float:
    """The share of the drawn prompts that the model answers right; 1 if none was filtered."""
    selection = results.COUNTERFACTUAL_MAP.facts(run, operation, PRIMARY)["selection"]
    return 1.0 if selection is None else selection["n_kept"] / selection["n_drawn"]


def passes(run: Run, operation: str) -> bool:
    """Whether an operation takes part: enough prompts are right, and enough problems are left."""
    facts = results.COUNTERFACTUAL_MAP.facts(run, operation, PRIMARY)
    enough = (facts.get("problems") or 0) >= LEAST_PROBLEMS
    return enough and accuracy_of(run, operation) >= LEAST_RIGHT


def right_rows(run: Run) -> Iterator[Row]:
    """The share of the prompts of each operation that is answered right; whether it takes part."""
    for operation in run.config["operations"]:
        right = Number(accuracy_of(run, operation), unit="share")
        verdict = TAKES_PART if passes(run, operation) else LEFT_OUT
        yield row(RIGHT, right, prediction="", of=operation, condition="", verdict=verdict)


def few_heads(run: Run, operations: Sequence[str]) -> Iterator[Row]:
    """P1: how faithful the model is with the strongest heads kept at END.

    The curves are read at the sizes next to 5% of the heads, below and above.
    """
    for operation in operations:
        curve = results.CIRCUIT_CURVE.load(run, operation, "heads", "end", "keep_only", "effect")
        most = FEW_HEADS * len(curve.order)
        below = max(i for i, size in enumerate(curve.sizes) if size <= most)
        sampled = resampled_cells(curve.effects())[len(curve.sizes) :]
        for at in (below, below + 1):
            yield outcome(
                "P1: few heads suffice",
                operation,
                f"faithfulness with {curve.sizes[at]} of {len(curve.order)} heads",
                float(curve.faithfulness()[at]),
                (sampled[at] - sampled[0]) / (sampled[-1] - sampled[0]),
                AT_LEAST_8,
            )


def shared(maps: Mapping[str, Mapping[str, ComponentEffects]]) -> Iterator[Row]:
    """P2: the share of the strongest heads that two operations have in common."""
    for kind in (PRIMARY, "operator"):
        sampled = {name: resampled_cells(kinds[kind].heads) for name, kinds in maps.items()}
        means = {name: cell_means(kinds[kind].heads) for name, kinds in maps.items()}
        for (a, b), top in product(combinations(maps, 2), (SEVEN, N_STRONGEST)):
            both = zip(sampled[a].T, sampled[b].T, strict=True)
            yield outcome(
                "P2: operations share heads",
                f"{a}, {b}",
                f"strongest {top} in common, {kind} changed",
                top_overlap(means[a], means[b], top),
                np.array([top_overlap(*draws, top) for draws in both]),
                ABOVE_HALF,
            )


def middle_layers(maps: Mapping[str, Mapping[str, ComponentEffects]]) -> Iterator[Row]:
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
            ("effect-weighted mean layer", layers, (middle, Within(first, last, closed=True))),
            (share, early, ("below 0.05", Within(0, 0.05, closed=True))),
        ):
            yield outcome(
                "P3: the heads stand in middle layers",
                operation,
                quantity,
                mean_by_loss(cell_means(heads), weights),
                np.array([mean_by_loss(draw, weights) for draw in resampled_cells(heads).T]),
                condition,
            )


def readers(run: Run, operations: Sequence[str]) -> Iterator[Row]:
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

            yield outcome(
                "P4: the strongest heads read operands and operator",
                operation,
                f"share of the attention outside BOS, strongest {top}",
                share(cell_means(looks)),
                np.array([share(draw) for draw in resampled_cells(looks).T]),
                AT_LEAST_HALF,
            )


def late_mlps(run: Run, operations: Sequence[str]) -> Iterator[Row]:
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


def norm_parts(maps: Mapping[str, Mapping[str, ComponentEffects]]) -> Iterator[Row]:
    """P5, second half: the part of the late MLPs' effects through the final norm's scale."""
    for operation, kinds in maps.items():
        effects = kinds[PRIMARY]
        layers = [head.layer for head in effects.heads.top(N_STRONGEST)]
        for late in sorted({max(layers[:top]) for top in (SEVEN, N_STRONGEST)}):
            by_scale = effects.mlps.by_norm_scale()
            whole, part = (resampled_cells(some)[late:].sum(0) for some in (effects.mlps, by_scale))
            value = float(by_scale.mean()[late:].sum())
            yield outcome(
                "P5: MLPs after the heads calculate (the norm's part)",
                operation,
                f"part through the norm's scale, MLPs from layer {late}",
                value / float(effects.mlps.mean()[late:].sum()),
                part / whole,
                BETWEEN_QUARTERS,
            )


def specific(run: Run, operations: Sequence[str]) -> Iterator[Row]:
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
        yield outcome(
            says,
            operation,
            f"accuracy lost without as many others, mean of {len(controls)} sets",
            float(cell_means(losses).mean()),
            resampled_cells(losses).mean(0),
            BELOW_5,
        )
        if results.DIVERGENCE.is_in(run, operation):
            divergence = results.DIVERGENCE.load(run, operation)
            yield outcome(
                says,
                operation,
                f"divergence on {divergence.n_pairs} plain sentences, nats per token",
                float(cell_means(divergence)[0]),
                resampled_cells(divergence)[0],
                BELOW_5,
                SENTENCES,
            )


def _losses(prediction: str, operation: str, of: str, curve: CircuitCurve) -> Iterator[Row]:
    """The shares of the accuracy and of the metric that a knockout takes away."""
    effects = curve.effects()
    shape = effects.per_pair.shape[:2]
    means = cell_means(effects).reshape(shape)
    sampled = resampled_cells(effects).reshape(*shape, -1)
    names = ("accuracy", curve.metric)
    for name, (before, after, *_), (many_before, many_after, *_) in zip(
        names, means, sampled, strict=True
    ):
        yield outcome(
            prediction,
            operation,
            f"share of {name} lost, {of}",
            1 - after / before,
            1 - many_after / many_before,
            ABOVE_6,
        )


def written_outcomes(run: Run, operations: Sequence[str]) -> Iterator[Row]:
    """P7: the rise of C's logit, and how far apart reading and writing turn."""
    says = "P7: MLPs write the answer"
    for operation in operations:
        if results.PROBE.is_in(run, operation, "logit"):
            logits = results.PROBE.load(run, operation, "logit")
            contrast = curve_of(logits, "C", less="others without C")
            yield outcome(
                says,
                operation,
                "rise of C's logit less the other digits', from 17/32 of the depth to the end",
                change_late(cell_means(contrast)),
                np.array([change_late(draw) for draw in resampled_cells(contrast).T]),
                ABOVE_0,
            )
        reads = curve_of(results.PROBE.load(run, operation, "mlp_in"), "A", "B")
        writes = curve_of(results.PROBE.load(run, operation, "write"), "C")
        both = zip(resampled_cells(reads).T, resampled_cells(writes).T, strict=True)
        apart = [inflections_apart(read, write) for read, write in both]
        yield outcome(
            says,
            operation,
            "layers between the turns of reading A, B and of writing C",
            inflections_apart(cell_means(reads), cell_means(writes)),
            np.array(apart),
            AT_MOST_2,
        )


def word_problem_outcomes(run: Run, looks: Run, operations: Sequence[str]) -> Iterator[Row]:
    """P8: the share of the strongest heads that generated prompts and word problems share."""
    if not results.MAP.is_in(run, "word_problems"):
        return
    generated = reduce(add, (results.MAP.load(looks, name) for name in operations)).heads
    of_stories = results.MAP.load(run, "word_problems").heads
    both = zip(resampled_cells(generated).T, resampled_cells(of_stories).T, strict=True)
    yield outcome(
        "P8: word problems use the same heads",
        ", ".join(operations),
        f"strongest {SEVEN} in common",
        top_overlap(cell_means(generated), cell_means(of_stories), SEVEN),
        np.array([top_overlap(one, other, SEVEN) for one, other in both]),
        ABOVE_HALF,
    )


def tuning_outcomes(run: Run) -> Iterator[Row]:
    """P9: what tuning the strongest heads gains, beside full tuning and random heads.

    Every row of Table 1 counts at the rate that was chosen on word problems.
    """
    if not results.CHOSEN_RATES.is_in(run, "1"):
        return
    before = results.UNTUNED_ANSWERS.load(run)
    trained = {row.key[0]: row.answers for row in rows_at_chosen_rates(run, 1)}
    precise = trained["precise"]
    for base_name, base, questions, condition in (
        ("full tuning", trained["full"], is_mathematics, NOT_MUCH_WORSE),
        (
            *("random heads", trained["random"], is_mathematics),
            ABOVE_0,
        ),
        ("untuned model", before, generic_to_report, UNCHANGED),
    ):
        tasks = "word problems" if questions is is_mathematics else "other tasks"
        change = gain(base, precise, questions)
        if change is None:
            continue
        seeds = f"{len(change.per_seed)} seed{'s' * (len(change.per_seed) > 1)}"
        yield judged(
            "P9: precise tuning works",
            tasks,
            f"accuracy, tuned heads less {base_name}, {change.n_questions} questions, {seeds}",
            replace(change_number(change), unit="ratio"),
            condition,
        )


def outcome(
    prediction: str,
    of: str,
    quantity: str,
    value: float,
    draws: Float[np.ndarray, " resample"],
    condition: Condition,
    spread: str = PROBLEMS_AND_SETS,
) -> Row:
    """A row with the number, its interval from the resamples, and its verdict.

    Args:
        prediction: its number and what it says.
        of: the operation, or two of them, or the kind of task.
        quantity: what was measured.
        value: the number.
        draws: the number in each resample; NaN where it has none.
        condition: what the prediction says of the number.
        spread: what its interval is over.
    """
    draws = draws[~np.isnan(draws)]  # of a curve that does not turn
    low, high = map(float, np.quantile(draws, [0.025, 0.975])) if len(draws) else (None, None)
    number = Number(value, low, high, spread if len(draws) else "", unit="ratio")
    return judged(prediction, of, quantity, number, condition)


def judged(prediction: str, of: str, quantity: str, number: Number, condition: Condition) -> Row:
    """A row with the number and its verdict. A number without a spread is exact: it has no ends."""
    words, bounds = condition
    verdict = judge_by_interval(Finding(quantity, number, bounds))
    keys = {"prediction": prediction, "of": of, "condition": words, "verdict": verdict}
    in_table = number if number.spread else replace(number, low=None, high=None)
    return row(quantity, in_table, **keys)
