"""Statistics of what MLPs read and write, layer by layer (Figures 6, 13 and 14).

Keys: operation; less, "other digits" if their curve is subtracted. The numbers of sums in which
digits are told apart have the operation addition.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import torch

from arith_lens.effects import Effects
from arith_lens.operations import FOUR
from arith_lens.probes import DIGIT_CLASSES, curve_of, turning_points
from arith_lens.runs import Run, RunError
from experiments import results
from experiments.selection import LARGEST_OPERAND
from figures.tables.number import Number, Unit
from figures.tables.probes import OTHERS
from figures.tables.resampled import NAN, resampled_number, statistic_rows
from figures.tables.table import Row, row

C, A, B, C_NEIGHBOUR = (DIGIT_CLASSES.index(name) for name in ("C", "A", "B", "C±1"))
LESS = "other digits"
SHARE_EARLY = "mean cosine with A and B in the first layers, of its highest value"
ANSWER_CHANGE, OTHERS_CHANGE = "rise of the cosine with C", "rise of the cosine with other digits"
SMALLER_TURN, TURNS_APART = "smaller turn, of the curve's range", "layers between the turns"
READ_TURN, WRITE_TURN = "layer where the operands' curve turns", "layer where the answer's turns"
APART, FROM_LAYER = "sums whose A, B, C and C±1 differ", "layer from which C wins for good"
OPERANDS_FIRST, ANSWER_AFTER = "A or B written most before C", "layers from the others' best to C's"
BETWEEN, BY_CHANCE = "C±1 written most, less chance", "A or B by chance"


def without_computed(run: Run) -> list[str]:
    """The operations whose answers can be copied in every problem of a run, as far as is known."""
    return [name for name in LARGEST_OPERAND if not _has_computed(run, name)]


def _has_computed(run: Run, operation: str) -> bool:
    computed = results.PROBE.computed(run, operation, "mlp_in")
    return computed is not None and bool(computed.any())


def _probe(run: Run, operation: str, site: str) -> Effects:
    """The cosines; in multiplications and divisions those of problems whose C is neither A nor B.

    Raises:
        RunError: there is no such problem.
    """
    probe = results.PROBE.load(run, operation, site)
    if operation not in LARGEST_OPERAND:
        return probe
    computed = results.PROBE.computed(run, operation, site)
    if computed is None or not computed.any():
        raise RunError(
            f"expected problems of {operation} whose C is neither A nor B in {run.path}, found "
            "none; compute it with more problems"
        )
    return probe.select(computed)


def _operands(run: Run, operation: str, *, less: bool = False) -> Effects:
    probe = _probe(run, operation, "mlp_in")
    return curve_of(probe, "A", "B", less=OTHERS["mlp_in"] if less else None)


def _written(run: Run, operation: str, token: str = "C", *, less: bool = False) -> Effects:
    probe = _probe(run, operation, "write")
    return curve_of(probe, token, less=OTHERS["write"] if less else None)


def smaller_turn(curve: np.ndarray) -> float:
    """The rise to the highest layer or the fall after it, whichever is smaller.

    It is a share of the curve's range.
    """
    top, spread = int(curve.argmax()), np.ptp(curve)
    turns = curve[top] - curve[: top + 1].min(), curve[top] - curve[top:].min()
    return float(min(turns) / spread) if spread else 0.0


def share_early(curve: np.ndarray, until: float = 12 / 32) -> float:
    """The mean absolute value in the first layers, as a share of the highest value."""
    early = np.arange(len(curve)) < until * len(curve)
    return float(np.abs(curve[early]).mean() / curve.max()) if curve.max() > 0 else NAN


def change_late(curve: np.ndarray, since: float = 17 / 32) -> float:
    """The change from a share of the depth to the last layer."""
    return float(curve[-1] - curve[int(since * len(curve))])


def inflections_apart(operands: np.ndarray, answer: np.ndarray) -> float:
    """Layers between the top of the operands' curve and half of the answer's rise."""
    first = turning_points(operands, "rise_and_fall")[1]
    second = turning_points(answer, "rise")[1]
    return NAN if first is None or second is None else float(abs(first - second))


STATISTICS: Mapping[
    str, tuple[Callable[[Run, str], Effects], Callable[[np.ndarray], float], Unit]
] = {
    SHARE_EARLY: (_operands, share_early, "relative"),
    ANSWER_CHANGE: (_written, change_late, "ratio"),
    OTHERS_CHANGE: (partial(_written, token=OTHERS["write"]), change_late, "ratio"),
    SMALLER_TURN: (_operands, smaller_turn, "share"),
}
"""The statistics of one curve: the curve, the function and its unit."""


def curve_rows(measure: str, run: Run) -> Iterator[Row]:
    """One of `STATISTICS` of each operation of a run of `what_do_mlps_add`."""
    curve, statistic, unit = STATISTICS[measure]
    curves = {name: (curve(run, name),) for name in FOUR}
    return statistic_rows(measure, statistic, curves, unit=unit)


def smaller_turns_less_others(run: Run) -> Iterator[Row]:
    """The smaller turn of the operands' curve less that of other digits."""
    for name in FOUR:
        number = resampled_number(smaller_turn, _operands(run, name, less=True))
        if number is not None:
            yield row(SMALLER_TURN, number, operation=name, less=LESS)


def turn_rows(run: Run) -> Iterator[Row]:
    """The layers where both curves turn, with and without other digits, and how far apart."""
    for name in FOUR:
        for less in ("", LESS):
            curves = [curve(run, name, less=bool(less)) for curve in (_operands, _written)]
            means = [curve.mean().double().numpy() for curve in curves]
            keys = {"operation": name, "less": less}
            for measure, mean, shape in (
                (READ_TURN, means[0], "rise_and_fall"),
                (WRITE_TURN, means[1], "rise"),
            ):
                layer = turning_points(mean, shape)[1]
                if layer is not None:
                    yield row(measure, Number(layer, unit="layers"), **keys)
            if not less:
                number = resampled_number(inflections_apart, *curves, unit="layers", together=True)
                if number is not None:
                    yield row(TURNS_APART, number, **keys)


def for_good(shares: np.ndarray) -> int:
    """The first layer from which on C is written most in more than half of the pairs.

    This holds in all later layers too. If there is no such layer, it is the number of layers.
    """
    wins = shares[:, C] > 0.5
    return int(len(wins) - np.cumprod(wins[::-1]).sum())


def operands_before(shares: np.ndarray) -> float:
    """The largest share of A or B in a layer before C wins for good."""
    before = (shares[:, A] + shares[:, B])[: for_good(shares)]
    return float(before.max()) if len(before) else 0.0


def share_between(shares: np.ndarray, by_chance: float) -> float:
    """The mean share of C±1, less chance, in the layers between the operands' and C's."""
    end = for_good(shares)
    start = 1 + int((shares[:, A] + shares[:, B])[:end].argmax()) if end else 0
    between = shares[start:end, C_NEIGHBOUR]
    return float(between.mean()) - by_chance if len(between) else NAN


def answer_after(shares: np.ndarray) -> float:
    """Layers from the best one of operands and neighbours to the layer where C wins for good.

    Of the operands' and the neighbours' best layers, the later one counts. The number is negative
    if C never wins for good.
    """
    end = for_good(shares)
    best = max(int((shares[:, A] + shares[:, B]).argmax()), int(shares[:, C_NEIGHBOUR].argmax()))
    return float(end - best) if end < len(shares) else -float(len(shares))


def _winners(run: Run) -> tuple[Effects, Effects]:
    """Which digit wins in the sums whose A, B, C and C±1 differ, and how often by chance."""
    apart = torch.tensor(results.WINNERS.facts(run, "addition")["distinct_classes"])
    won, chance = (
        stored.load(run, "addition").select(apart) for stored in (results.WINNERS, results.CHANCE)
    )
    return won, chance


def sum_rows(run: Run) -> Iterator[Row]:
    """How many sums tell A, B, C and C±1 apart, and the layer from which C wins for good.

    There is no such layer where the key layer is missing.
    """
    apart = sum(map(bool, results.WINNERS.facts(run, "addition")["distinct_classes"]))
    yield row(APART, Number(apart, unit="count"), operation="addition")
    if apart:
        won, chance = _winners(run)
        layer = for_good(won.mean().double().numpy())
        if layer < len(won.per_pair):
            yield row(FROM_LAYER, Number(layer, unit="layers"), operation="addition")
        by_chance = float(chance.mean()[[A, B]].sum())
        yield row(BY_CHANCE, Number(by_chance), operation="addition")


def winner_rows(measure: str, run: Run) -> Iterator[Row]:
    """`OPERANDS_FIRST`, `BETWEEN` or `ANSWER_AFTER`, of sums that tell digits apart."""
    won, chance = _winners(run)
    by_chance = float(chance.mean()[C_NEIGHBOUR])
    statistics: Mapping[str, tuple[Callable[[np.ndarray], float], Unit]] = {
        OPERANDS_FIRST: (operands_before, "share"),
        BETWEEN: (partial(share_between, by_chance=by_chance), "points"),
        ANSWER_AFTER: (answer_after, "layers"),
    }
    statistic, unit = statistics[measure]
    return statistic_rows(measure, statistic, {"addition": (won,)}, unit=unit)
