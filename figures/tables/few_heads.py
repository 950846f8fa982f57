"""The table `few_heads`: how few heads suffice after solved examples, and what the examples say.

Keys: case (an operation, with the size of its numbers or its examples); counterfactual (of which
the order of the heads and the means are made); metric; order ("effect", "random", "same layers");
k, the number of heads that are kept at END; component; part (of a prompt); change (of the
examples); and prediction, of, condition and verdict. Orders are chosen on one half of the problems,
and the numbers are of the other half. The base rate is the share of prompts with the most frequent
answer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float

from arith_lens.effects import Effects
from arith_lens.knockout import CircuitCurve, KnockoutCurve, KnockoutCurves
from arith_lens.pairs import Role
from arith_lens.runs import Run
from experiments import results
from experiments.how_few_suffice import (
    CASES,
    EFFECT,
    EXAMPLE_CHANGES,
    EXAMPLE_PARTS,
    MATCHED,
    OPERANDS,
    OPERATION,
    RANDOM,
    WORD,
)
from figures.tables.agreement import cell_means, resampled_cells
from figures.tables.map_statistics import top_overlap
from figures.tables.number import PROBLEMS, PROBLEMS_AND_SETS, Number, over_draws
from figures.tables.predictions import (
    ABOVE_0,
    ABOVE_HALF,
    AT_LEAST_8,
    AT_LEAST_HALF,
    LEAST_RIGHT,
    READ_ROLES,
    RIGHT,
    SEVEN,
    Condition,
    judged,
    outcome,
)
from figures.tables.table import QuestionTable, Row, n_problems, row
from figures.verdicts import Within

ACCURACY, FAITHFULNESS, SAME_DIGIT = "accuracy", "faithfulness", "share of the likeliest answer"
BASE_RATE, REACHED = "base rate", "orders that reach the order by effect"
ATTENTION, STILL, OVERLAP = "share of attention outside BOS", "still answered C", "in common"
SMALLEST, EFFECTS = "strongest effect of a head, as a share of the metric", "effect"
ORDERS = {RANDOM: "random", MATCHED: "same layers"}
"""The words for control orders, by how their names begin."""
BELOW_80: Condition = ("below 0.8", Within(below=0.8))
BELOW_30: Condition = ("below 0.3", Within(below=0.3))
AT_MOST_HALF: Condition = ("at most one half", Within(below=0.5, closed=True))
NOT_BELOW_10: Condition = ("at least -0.1", Within(above=-0.1, closed=True))
NONE: Condition = ("none", Within(below=0, closed=True))
TAKES_PART: Condition = ("at least 0.6", Within(above=LEAST_RIGHT, closed=True))
LEFT_OUT: Condition = ("below 0.6", Within(below=LEAST_RIGHT))
TIMES, OVER = "multiplication", "division"
PLUS, LARGER_TIMES, LARGER_OVER = [*CASES][2:]


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `how_few_suffice`. Raises RunError if it is damaged."""
    cases = [name for name in run.config["cases"] if _curve_is_in(run, name, OPERANDS)]
    rows: list[Row] = []
    for name in cases:
        rows += _case_rows(run, name)
        if results.EXAMPLE_ATTENTION.is_in(run, name):
            rows += attention_rows(run, name)
            rows += change_rows(run, name)
    rows += _verdicts(QuestionTable.of("few_heads", "", rows), run, cases)
    return QuestionTable.of("few_heads", str(run.config["model"]), rows)


def _curve_is_in(run: Run, name: str, lens: str) -> bool:
    return results.KEPT_ORDERS.is_in(run, name, lens)


def _curve(run: Run, name: str, lens: str) -> CircuitCurve:
    return results.CIRCUIT_CURVE.load(run, name, "heads", "end", "keep_only", lens)


def _case_rows(run: Run, name: str) -> Iterator[Row]:
    """How much is answered right, the base rate, and the curves under each lens."""
    facts = results.COUNTERFACTUAL_MAP.facts(run, name, OPERANDS)
    chosen = facts["selection"]
    assert chosen is not None
    yield row(RIGHT, Number(chosen["n_kept"] / chosen["n_drawn"]), case=name)
    curve = _curve(run, name, OPERANDS)
    whole = results.KEPT_ORDERS.load(run, name, OPERANDS)[EFFECT].at(0)
    n = n_problems(curve.effects())
    yield row("problems", Number(facts.get("problems") or 0, unit="count"), case=name, half="order")
    yield row("problems", Number(n, unit="count"), case=name, half="curves")
    yield row(BASE_RATE, Number(likeliest_share(whole.top[:, 0]), n=n), case=name)
    for lens in CASES[name].lenses:
        if _curve_is_in(run, name, lens):
            yield from _lens_rows(run, name, lens)


def likeliest_share(tokens: torch.Tensor) -> float:
    """The share of the most frequent token."""
    return float(tokens.unique(return_counts=True)[1].max()) / len(tokens)


def _lens_rows(run: Run, name: str, lens: str) -> Iterator[Row]:
    curve, orders = _curve(run, name, lens), results.KEPT_ORDERS.load(run, name, lens)
    keys = {"case": name, "counterfactual": lens, "metric": curve.metric}
    n = n_problems(curve.effects())
    effects = results.COUNTERFACTUAL_MAP.load(run, name, lens).heads
    for rank, head in enumerate(curve.order[: curve.sizes[-2]], start=1):
        value = Number(float(effects[head].mean()), unit="logit")
        yield row(EFFECTS, value, **keys, order="effect", k=rank, component=str(head))
    sampled = curve.to_dataframe()
    right = shares_right(orders[EFFECT], len(curve.order))
    ends = zip(sampled.faithfulness_low, sampled.faithfulness_high, strict=True)
    for k, value, (low, high) in zip(curve.sizes, curve.faithfulness(), ends, strict=True):
        faithfulness = Number(float(value), float(low), float(high), PROBLEMS_AND_SETS, n, "ratio")
        yield row(ACCURACY, right[k], **keys, order="effect", k=k)
        tokens = orders[EFFECT].at(len(curve.order) - k).top[:, 0]
        yield row(SAME_DIGIT, Number(likeliest_share(tokens)), **keys, order="effect", k=k)
        yield row(FAITHFULNESS, faithfulness, **keys, order="effect", k=k)
    for start, order in ORDERS.items():
        controls = [orders[label] for label in orders if label.startswith(start)]
        if controls:
            yield from control_rows(controls, right, **keys, order=order)


def shares_right(curve: KnockoutCurve, n_heads: int) -> dict[int, Number]:
    """The accuracy with the first k heads kept, by k, with Wilson's intervals over problems."""
    numbers = {}
    for out in curve.ks:
        outcomes = curve.at(out)
        low, high = outcomes.ci()
        n = len({*(outcomes.problem or ())})
        numbers[n_heads - out] = Number(outcomes.accuracy(), low, high, PROBLEMS, n)
    return numbers


def control_rows(
    controls: Sequence[KnockoutCurve], right: dict[int, Number], **keys: str
) -> Iterator[Row]:
    """Means over orders with their ranges, and the number of orders that reach that by effect."""
    n_heads = len(controls[0].order)
    for out in controls[0].ks[::-1]:
        k = n_heads - out
        if 0 < k < n_heads:
            sampled = [one.at(out).accuracy() for one in controls]
            yield row(ACCURACY, over_draws(sampled, unit="share", what="orders"), **keys, k=k)
            reached = sum(value >= right[k].value for value in sampled)
            yield row(REACHED, Number(reached, n=len(sampled), unit="count"), **keys, k=k)


def _mean_right(orders: KnockoutCurves, start: str, k: int) -> Effects:
    """Whether each prompt is answered right, as a mean over control orders."""
    controls = [orders[label] for label in orders if label.startswith(start)]
    out = len(controls[0].order) - k
    correct = torch.stack([one.at(out).correct.float() for one in controls]).mean(0)
    return Effects(correct, (), "right", **controls[0].units)


def attention_rows(run: Run, name: str) -> Iterator[Row]:
    """The shares of the strongest heads' attention outside BOS, together and each."""
    looks = results.EXAMPLE_ATTENTION.load(run, name)
    labels, n = looks.labels or {}, n_problems(looks)
    for part in labels["group"]:
        if part != str(Role.BOS):
            value, draws = attention_share(looks, [part])
            low, high = map(float, np.quantile(draws, [0.025, 0.975]))
            number = Number(value, low, high, PROBLEMS_AND_SETS, n)
            yield row(ATTENTION, number, case=name, part=part)
            for i, head in enumerate(labels["head"]):
                own = replace(looks, per_pair=looks.per_pair[i : i + 1])
                share = Number(attention_share(own, [part])[0])
                yield row(ATTENTION, share, case=name, part=part, component=head)


def attention_share(
    looks: Effects, parts: Sequence[str], *, among: Sequence[str] = ()
) -> tuple[float, Float[np.ndarray, " resample"]]:
    """The share of the attention that goes to some parts, and the share in each resample.

    Args:
        looks: weights [head group pair].
        parts: the parts.
        among: the parts that count; all but BOS if there are none.
    """
    groups = (looks.labels or {})["group"]
    counted = [one in among if among else one != str(Role.BOS) for one in groups]
    chosen = np.isin(groups, parts)

    def share(weights: np.ndarray) -> float:
        of_parts = weights.reshape(-1, len(groups)).sum(0)
        return float(of_parts[chosen].sum() / of_parts[counted].sum())

    return share(cell_means(looks)), np.array([share(draw) for draw in resampled_cells(looks).T])


def change_rows(run: Run, name: str) -> Iterator[Row]:
    """What each change of the examples alone does to the answers, and through single heads."""
    for change in EXAMPLE_CHANGES:
        keys = {"case": name, "change": change}
        outcomes = results.EXAMPLE_SWAP.load(run, name, change)
        low, high = outcomes.ci()
        n = len({*(outcomes.problem or ())})
        yield row(STILL, Number(outcomes.accuracy(), low, high, PROBLEMS, n), **keys)
        number, head = strongest_share(run, name, change)
        yield row(SMALLEST, number, **keys, component=head)
        value, draws = _overlap(run, name, change)
        low, high = map(float, np.quantile(draws, [0.025, 0.975]))
        yield row(OVERLAP, Number(value, low, high, PROBLEMS_AND_SETS, n), **keys)


def strongest_share(run: Run, name: str, change: str) -> tuple[Number, str]:
    """The most negative mean effect of a head, as a share of the whole model's metric; the head."""
    heads = results.EXAMPLE_MAP.load(run, name, change).heads
    curve = _curve(run, name, OPERANDS)
    whole = Effects(curve.value[-1:], ("model",), curve.metric, **curve.units)
    at = int(cell_means(heads).argmin())
    value = cell_means(heads)[at] / cell_means(whole)[0]
    draws = resampled_cells(heads)[at] / resampled_cells(whole)[0]
    low, high = map(float, np.quantile(draws, [0.025, 0.975]))
    number = Number(float(value), low, high, PROBLEMS_AND_SETS, n_problems(heads), "relative")
    return number, str(heads.top(1)[0])


def _overlap(run: Run, name: str, change: str) -> tuple[float, Float[np.ndarray, " resample"]]:
    """The share of the strongest heads under a change that are so under other operands."""
    maps = (
        results.EXAMPLE_MAP.load(run, name, change).heads,
        results.COUNTERFACTUAL_MAP.load(run, name, OPERANDS).heads,
    )
    return _in_common(*maps)


def _in_common(a: Effects, b: Effects) -> tuple[float, Float[np.ndarray, " resample"]]:
    draws = zip(resampled_cells(a).T, resampled_cells(b).T, strict=True)
    shares = np.array([top_overlap(*both, SEVEN) for both in draws])
    return top_overlap(cell_means(a), cell_means(b), SEVEN), shares


def _verdicts(rows: QuestionTable, run: Run, cases: Sequence[str]) -> Iterator[Row]:
    """The predictions of docs/gemma.md on these numbers, as far as they are measured."""

    def measured(prediction: str, name: str, measure: str, condition: Condition, **keys: object):
        """A row of the table as the outcome of a prediction."""
        if name in cases:
            lens = str(keys.get("counterfactual", ""))
            words = f"{measure}, {lens}" * bool(lens) or measure
            words += f", {keys['k']} heads" if "k" in keys else ""
            words += f", {keys['change']}" if "change" in keys else ""
            number = rows.number(measure, case=name, **keys)  # pyright: ignore
            if number.low is None:
                number = replace(number, low=number.value, high=number.value)
            yield judged(prediction, name, words, number, condition)

    by_effect = {"order": "effect", "counterfactual": OPERANDS}
    p10, p12 = "P10: few heads suffice in multiplication", "P12: few heads suffice in division"
    yield from measured(p10, TIMES, FAITHFULNESS, AT_LEAST_8, **by_effect, k=3)
    yield from measured(p10, TIMES, ACCURACY, AT_LEAST_8, **by_effect, k=5)
    if TIMES in cases and _curve_is_in(run, TIMES, WORD):
        p11, of_word = (
            "P11: the paper's counterfactual hides them",
            by_effect | {"counterfactual": WORD},
        )
        yield from measured(p11, TIMES, ACCURACY, BELOW_80, **of_word, k=5)
    yield from measured(p12, OVER, ACCURACY, AT_LEAST_8, **by_effect, k=7)
    yield from measured(p12, OVER, FAITHFULNESS, AT_LEAST_8, **by_effect, k=7)
    if OVER in cases:
        base = rows.number(BASE_RATE, case=OVER).value
        at_most = f"at most {base:.2f}, the base rate", Within(below=base, closed=True)
        yield from measured(p12, OVER, ACCURACY, at_most, **by_effect, k=0)
    for name in (TIMES, OVER):
        if name in cases:
            yield from _control_verdicts(rows, run, name)
    p14, p15 = "P14: larger numbers need more heads", "P15: addition after one example"
    yield from measured(p14, LARGER_TIMES, RIGHT, TAKES_PART)
    yield from measured(p14, LARGER_OVER, RIGHT, LEFT_OUT)
    yield from measured(p14, LARGER_TIMES, ACCURACY, BELOW_80, **by_effect, k=5)
    if TIMES in cases and LARGER_TIMES in cases:
        of = (TIMES, LARGER_TIMES)
        maps = [results.COUNTERFACTUAL_MAP.load(run, name, OPERANDS).heads for name in of]
        yield outcome(
            p14, ", ".join(of), f"strongest {SEVEN} {OVERLAP}", *_in_common(*maps), ABOVE_HALF
        )
    yield from measured(p15, PLUS, RIGHT, TAKES_PART)
    yield from measured(p15, PLUS, ACCURACY, BELOW_80, **by_effect, k=7)
    yield from measured(p15, PLUS, FAITHFULNESS, AT_LEAST_HALF, **by_effect, k=7)
    if results.EXAMPLE_ATTENTION.is_in(run, TIMES):
        yield from _attention_verdicts(results.EXAMPLE_ATTENTION.load(run, TIMES))
        p17 = "P17: the examples say which operation it is, through other heads"
        for change in EXAMPLE_CHANGES:
            yield from measured(p17, TIMES, STILL, AT_LEAST_HALF, change=change)
            number, head = strongest_share(run, TIMES, change)
            yield judged(p17, TIMES, f"{SMALLEST}, {head}, {change}", number, NOT_BELOW_10)
        yield from measured(p17, TIMES, OVERLAP, AT_MOST_HALF, change=OPERATION)


def _control_verdicts(rows: QuestionTable, run: Run, name: str) -> Iterator[Row]:
    """P13: no other heads suffice."""
    orders, says = results.KEPT_ORDERS.load(run, name, OPERANDS), "P13: no other heads suffice"
    for start, order in ORDERS.items():
        right = _mean_right(orders, start, 5)
        value, (draws,) = float(right.mean()), resampled_cells(right)
        words = f"{ACCURACY}, mean of {order} orders, 5 heads"
        yield outcome(says, name, words, value, draws, BELOW_30)
    reached = [*rows.select(REACHED, case=name, k=5)]
    number = sum(one.number.value for one in reached)
    n_orders = sum(one.number.n or 0 for one in reached)
    count = Number(number, number, number, "", n_orders, "count")
    yield judged(says, name, f"{REACHED}, 5 heads, of {n_orders}", count, NONE)


def _attention_verdicts(looks: Effects) -> Iterator[Row]:
    """P16: where the attention goes that is not on the problem's own A, B and operator."""
    says = "P16: the other attention goes to the examples' answers"
    parts = [f"examples' {part}" for part in EXAMPLE_PARTS]
    answers, operators = (attention_share(looks, [parts[i]]) for i in (2, 1))
    more = "attention to the examples' answers less that to their operators"
    yield outcome(says, TIMES, more, answers[0] - operators[0], answers[1] - operators[1], ABOVE_0)
    groups = (looks.labels or {})["group"]
    others = [one for one in groups if one not in (*READ_ROLES, str(Role.BOS))]
    share = attention_share(looks, parts, among=others)
    yield outcome(says, TIMES, "share of the examples in the other attention", *share, ABOVE_HALF)
