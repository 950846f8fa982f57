"""Claims about what MLPs read and write, layer by layer (section 5.2, Figures 6, 13 and 14)."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from arith_lens.effects import Effects
from arith_lens.operations import FOUR
from arith_lens.probes import CLASSES, curve_of, turning_points
from arith_lens.runs import Run
from experiments import results
from experiments.selection import LARGEST_OPERAND
from figures.claims.claim import Claim, Measurement, Unit, Within
from figures.claims.effect_maps import NAN
from figures.claims.estimate import estimate, per_operation, required
from figures.claims.evidence import Evidence, NotMeasured

EXPERIMENT = "what_do_mlps_add"
TWO = Within(below=2)
C, A, B, NEAR = (CLASSES.index(name) for name in ("C", "A", "B", "C±1"))


OTHERS = {"mlp_in": "others without A, B, C", "write": "others without C"}
"""The digits whose curve is subtracted, because the curves of all digits rise together."""


def _probe(run: Run, operation: str, site: str) -> Effects:
    """The cosines; in multiplications and divisions those of problems whose C is neither A nor B.

    Raises:
        NotMeasured: there is no such problem.
    """
    probe = results.PROBE.load(run, operation, site)
    if operation not in LARGEST_OPERAND:
        return probe
    computed = results.PROBE.computed(run, operation, site)
    if computed is None or not computed.any():
        raise NotMeasured(f"{operation}: no problem is known to have a C that is neither A nor B")
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


def _each(
    curve: Callable[[Run, str], Effects],
    statistic: Callable[[np.ndarray], float],
    rule: Within,
    unit: Unit = "%",
) -> Callable[[Evidence], Measurement]:
    def measure(evidence: Evidence) -> Measurement:
        run = evidence.run(EXPERIMENT)
        numbers = {
            name: estimate(name, statistic, curve(run, name), rule=rule, unit=unit) for name in FOUR
        }
        return per_operation(numbers, missing="a curve that rises")

    return measure


def _rise_and_fall(evidence: Evidence) -> Measurement:
    run = evidence.run(EXPERIMENT)
    rule = Within(above=0.1)
    numbers = {n: estimate(n, smaller_turn, _operands(run, n), rule=rule) for n in FOUR}
    more_numbers = (
        estimate(f"{name} less other digits", smaller_turn, _operands(run, name, less=True))
        for name in FOUR
    )
    measurement = per_operation(numbers, missing="a curve")
    return Measurement(
        (*measurement.numbers, *(number for number in more_numbers if number)), measurement.note
    )


def _agree(evidence: Evidence) -> Measurement:
    run = evidence.run(EXPERIMENT)
    distances, layer_texts = {}, {False: [], True: []}
    for name in FOUR:
        for less, texts in layer_texts.items():
            curves = _operands(run, name, less=less), _written(run, name, less=less)
            means = [curve.mean().double().numpy() for curve in curves]
            operand_layer = turning_points(means[0], "rise_and_fall")[1]
            answer_layer = turning_points(means[1], "rise")[1]
            texts.append(f"{name} {operand_layer} and {answer_layer}")
            if not less:
                distances[name] = estimate(
                    name, inflections_apart, *curves, unit="layers", rule=TWO, together=True
                )
    measurement = per_operation(distances, missing="an inflection of both curves")
    plain, less = (", ".join(texts) for texts in layer_texts.values())
    note = f"They turn at layers: {plain}; less other digits: {less}. {measurement.note}"
    return Measurement(measurement.numbers, note.strip())


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


def neighbours_between(shares: np.ndarray, by_chance: float) -> float:
    """The mean share of C±1, less chance, in the layers between the operands' and C's."""
    end = for_good(shares)
    start = 1 + int((shares[:, A] + shares[:, B])[:end].argmax()) if end else 0
    between = shares[start:end, NEAR]
    return float(between.mean()) - by_chance if len(between) else NAN


def answer_after(shares: np.ndarray) -> float:
    """Layers from the best one of operands and neighbours to the layer where C wins for good.

    Of the operands' and the neighbours' best layers, the later one counts. The number is negative
    if C never wins for good.
    """
    end = for_good(shares)
    best = max(int((shares[:, A] + shares[:, B]).argmax()), int(shares[:, NEAR].argmax()))
    return float(end - best) if end < len(shares) else -float(len(shares))


def _winners(evidence: Evidence) -> tuple[Effects, Effects, str]:
    """Which digit wins in sums whose A, B, C and C±1 all differ, and how often by chance."""
    run = evidence.run(EXPERIMENT)
    apart = torch.tensor(results.WINNERS.facts(run, "addition")["distinct_classes"])
    if not bool(apart.any()):
        raise NotMeasured("no sum has different A, B, C and C±1, so none tells them apart")
    won, chance = (
        stored.load(run, "addition").select(apart) for stored in (results.WINNERS, results.CHANCE)
    )
    layer = for_good(won.mean().double().numpy())
    start = f"from layer {layer} on" if layer < len(won.per_pair) else "never"
    note = f"Of {int(apart.sum())} sums whose A, B, C and C±1 differ. C wins for good {start}."
    return won, chance, note


def _first(evidence: Evidence) -> Measurement:
    won, chance, note = _winners(evidence)
    number = estimate("A or B written most", operands_before, won, rule=Within(above=0.5))
    by_chance = float(chance.mean()[[A, B]].sum())
    return Measurement((required(number, "no layer"),), f"By chance {by_chance:.0%}. {note}")


def _between(evidence: Evidence) -> Measurement:
    won, chance, note = _winners(evidence)
    if operands_before(won.mean().double().numpy()) <= 0.5:
        raise NotMeasured(
            "A or B are written most in no more than half of the sums in any layer before C: "
            "nothing stands between"
        )
    by_chance = float(chance.mean()[NEAR])
    statistic = partial(neighbours_between, by_chance=by_chance)
    number = estimate(
        "C±1 written most, less chance", statistic, won, rule=Within(above=0), unit="points"
    )
    return Measurement((required(number, "no layer is between the operands' and C's"),), note)


def _last(evidence: Evidence) -> Measurement:
    won, _, note = _winners(evidence)
    title = "layers from the others' best one to C's"
    number = estimate(title, answer_after, won, rule=Within(above=0), unit="layers")
    return Measurement((required(number, "no layer"),), note)


CLAIMS = (
    Claim(
        key="operands_absent_early",
        group="probes",
        statement="Early MLPs do not read the operands yet.",
        section="5.2, Figure 6a",
        paper="cosines close to 0 in layers 0 to 12 of 32",
        rule="In each operation, the mean cosine of MLP_in with A and B over the first 12/32 of "
        "the layers is less than a tenth of its highest value (the tenth is ours).",
        experiments=(EXPERIMENT,),
        measure=_each(_operands, share_early, Within(below=0.1)),
    ),
    Claim(
        key="operands_rise_and_fall",
        group="probes",
        statement="What MLPs read turns towards the operands, and then away from them.",
        section="5.2, C, Figures 6a and 13",
        paper="a sharp increase in layers 12 to 17 of 32, then a gradual decrease",
        rule="In each operation the cosine of MLP_in with A and B rises, and falls again, by more "
        "than a tenth of its range (the tenth is ours; what all digits have in common is "
        "not taken off, as in the paper).",
        experiments=(EXPERIMENT,),
        measure=_rise_and_fall,
    ),
    Claim(
        key="answer_rises",
        group="probes",
        statement="What later MLPs write turns towards the answer.",
        section="5.2, C, Figures 6b and 14",
        paper="a noticeable increase from layer 17 of 32 on",
        rule="In each operation, the cosine of what MLPs write with C is higher in the last layer "
        "than at 17/32 of the depth.",
        experiments=(EXPERIMENT,),
        measure=_each(_written, change_late, Within(above=0), "ratio"),
    ),
    Claim(
        key="others_fall",
        group="probes",
        statement="What later MLPs write turns away from other numbers.",
        section="5.2, Figures 6b and 14",
        paper="a decrease from layer 17 of 32 on",
        rule="In each operation, the cosine of what MLPs write with digits other than C is lower "
        "in the last layer than at 17/32 of the depth.",
        experiments=(EXPERIMENT,),
        measure=_each(
            partial(_written, token="others without C"), change_late, Within(below=0), "ratio"
        ),
    ),
    Claim(
        key="turning_layers_agree",
        group="probes",
        statement="Operands are read, and the answer is written, with their turns at the same "
        "layers.",
        section="C, Figures 13 and 14",
        paper="nearly identical: 13-18-28 in both for LLaMA2-7B",
        rule="In each operation, the highest layer of the operands' curve and the layer with half "
        "of the answer's rise are less than two layers apart (docs/probes.md has the formulas; "
        "the two layers are ours).",
        experiments=(EXPERIMENT,),
        measure=_agree,
    ),
    Claim(
        key="operands_first",
        group="probes",
        statement="Before they write the answer, MLPs write the operands.",
        section="5.2, Figure 6c",
        paper="in 4 + 3 = 7 the numbers 3 and 4 are at the top in layers 17 and 19 of 32",
        rule="In some layer before C wins for good, A or B is the digit written most in more than "
        "half of the sums (the half is ours).",
        experiments=(EXPERIMENT,),
        measure=_first,
    ),
    Claim(
        key="neighbours_between",
        group="probes",
        statement="Between the operands and the answer, neighbours of the answer come up.",
        section="5.2, Figure 6c",
        paper="6 and 8 at the top in layer 23 of 32, in one prompt",
        rule="In the layers between the operands' best one and where C wins for good, C±1 is the "
        "digit written most in more sums than by chance, mean over these layers.",
        experiments=(EXPERIMENT,),
        measure=_between,
    ),
    Claim(
        key="answer_last",
        group="probes",
        statement="The answer comes last, and stays.",
        section="5.2, Figure 6c",
        paper="7 stays at the top behind layer 23 of 32, while 6 and 8 decline",
        rule="C is the digit written most, for good, in more than half of the sums from a layer on "
        "that is behind those where operands and neighbours are at their most.",
        experiments=(EXPERIMENT,),
        measure=_last,
    ),
)
