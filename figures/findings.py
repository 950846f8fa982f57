"""What a model's runs show, in a few sentences, each made from the rows of one exhibit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pandas import DataFrame

from arith_lens.interchanges.controls import SPAN
from figures.exhibit import Exhibit
from figures.tables import carry, effects, sufficiency
from figures.tables.attention import MEAN, PROBLEM_WEIGHT, RANDOM
from figures.tables.table import keys_of, records, select

MOST = 5
"""The most sentences."""
MOST_HEADS = 10
"""The knockout of a sentence takes this number of heads, or the next smaller one that was tried."""
COUNTERFACTUALS = {
    "word": "a word stands in place of the operator",
    "operator": "another operator stands in place of the operator",
    "operands": "other operands stand in place of the operands",
}
"""What a counterfactual prompt is, by its setting."""


@dataclass(frozen=True)
class Sentence:
    """One sentence about a model."""

    text: str
    exhibit: str
    """The name of the exhibit whose rows it is made from."""


def findings(exhibits: Sequence[Exhibit]) -> list[Sentence]:
    """At most `MOST` sentences, those that the exhibits have numbers for, in `SENTENCES`' order."""
    by_name = {exhibit.name: exhibit for exhibit in exhibits}
    texts = {
        name: make(by_name[name].numbers) for name, make in SENTENCES.items() if name in by_name
    }
    return [Sentence(text, name) for name, text in texts.items() if text][:MOST]


def lens_sentence(settings: Mapping[str, Any]) -> str:
    """The counterfactual and the metric of the effects, as a sentence."""
    kind = str(settings.get("counterfactual", "word"))
    counterfactual = COUNTERFACTUALS.get(kind, f"the counterfactual is {kind!r}")
    if settings.get("pairs"):
        counterfactual = "the counterfactuals are those of the file"
    metric = str(settings.get("metric", effects.RELATIVE))
    unit = "the change of the answer's logit" if metric == effects.RELATIVE else f"in {metric}"
    return (
        f"In these prompts {counterfactual}; an effect is {unit}. Another choice gives other heads."
    )


def _few_heads(rows: DataFrame) -> str:
    """How many heads are key heads in some operation."""
    count = _first(rows, measure=effects.KEY_HEADS, operation="")
    every = _first(rows, measure=effects.ALL_HEADS)
    if count is None or every is None:
        return ""
    if not count.value:
        return (
            f"None of the {every.value:.0f} heads is a key head. A key head, patched alone, lowers "
            "the answer's logit by more than 5% in the mean, and this differs from zero."
        )
    return (
        f"Of {every.value:.0f} heads {count.value:.0f} are key heads in some operation: each of "
        "them, patched alone, lowers the answer's logit by more than 5%."
    )


def _needed(rows: DataFrame) -> str:
    """The accuracy without the strongest heads, beside random ones."""
    heads = select(rows, measure="accuracy", components="heads", order="effect")
    sizes = [k for k in heads.k.unique() if 0 < k <= MOST_HEADS]
    if not sizes:
        return ""
    operation, k = keys_of(heads, "operation")[0], max(sizes)
    without = _first(heads, operation=operation, k=k)
    same = {"operation": operation, "components": "heads", "k": k, "measure": "accuracy"}
    control = _first(rows, order=RANDOM, **same)
    if without is None or control is None:
        return ""
    return (
        f"Without the {k:.0f} strongest heads {without.value:.0%} of the {operation} prompts are "
        f"answered right; without as many random heads it is {control.value:.0%}."
    )


def _sufficient(rows: DataFrame) -> str:
    """How many heads suffice at END."""
    keys = {"components": "heads", "positions": "END", "kind": "keep_only", "order": "effect"}
    enough = _first(rows, measure=sufficiency.ENOUGH, **keys)
    if enough is None or enough.value != enough.value:
        return ""
    return (
        f"In {enough.operation}, {enough.value:.0f} heads are enough for 90% right answers, if all "
        "others are replaced by their means at END."
    )


def _carry(rows: DataFrame) -> str:
    """The layer at which one direction is the carry, and the control beside it."""
    choice = select(rows, kind="interchange", variable=carry.ONES, test="choice", space=carry.MEAN)
    if choice.empty:
        return ""
    same = {"kind": "interchange", "variable": carry.ONES, "test": "layers"}
    layer = float(choice.loc[choice.value.idxmax(), "layer"])
    one = _first(rows, space=carry.MEAN, layer=layer, **same)
    control = _first(rows, space=SPAN, layer=layer, **same)
    if one is None or control is None:
        return ""
    return (
        f"One direction of layer {layer:.0f} holds the carry of the ones: exchanged alone it turns "
        f"{one.value:.0%} of the answers, a random direction {control.value:.0%}."
    )


def _roles(rows: DataFrame) -> str:
    """How much of its weight the operand heads give to the calculation."""
    keys = {"measure": PROBLEM_WEIGHT, "head": MEAN}
    own, control = _first(rows, kind="operand", **keys), _first(rows, kind=RANDOM, **keys)
    if own is None:
        return ""
    beside = "" if control is None else f"; random heads give {control.value:.0%}"
    return (
        f"Operand heads of {own.operation} give {own.value:.0%} of END's attention to A, B and "
        f"the operator{beside}."
    )


def _lens(rows: DataFrame) -> str:
    """How many of the strongest heads two counterfactuals share."""
    measure = "share of the 10 strongest heads in common"
    shares = select(rows, measure=measure, counterfactual="word", other="operands")
    if shares.empty:
        return ""
    low, high = 10 * shares.value.min(), 10 * shares.value.max()
    return (
        f"With other operands in place of a word, {low:.0f} to {high:.0f} of the ten strongest "
        "heads are the same, depending on the operation."
    )


def _tuning(rows: DataFrame) -> str:
    """What tuning the key heads alone gains."""
    rate = _first(rows, measure="chosen rate", method="precise", chosen_for="mathematics")
    if rate is None:
        return ""
    keys = {"measure": "change of accuracy", "method": "precise", "task": "all"}
    of_rate = {"n_heads": rate.n_heads, "n_mlps": rate.n_mlps, "rate": rate.value}
    gain = _first(rows, group="word problems", **keys, **of_rate)
    loss = _first(rows, group="generic tasks", **keys, **of_rate)
    if gain is None or loss is None:
        return ""
    return (
        f"Tuning {rate.n_heads:.0f} heads alone changes accuracy on word problems by "
        f"{100 * gain.value:+.0f} points, and on other tasks by {100 * loss.value:+.0f}."
    )


SENTENCES: Mapping[str, Callable[[DataFrame], str]] = {
    "fig2": _few_heads,
    "fig3": _needed,
    "sufficiency": _sufficient,
    "carry": _carry,
    "fig5": _roles,
    "counterfactuals": _lens,
    "table1": _tuning,
}
"""The exhibits, by their names, with what makes a sentence from their rows; "" if they lack it."""


def _first(rows: DataFrame, **keys: Any) -> Any:
    """The first row with these keys; None if a column or such a row is missing."""
    if not {*keys} <= {*rows.columns}:
        return None
    return next(iter(records(select(rows, **keys))), None)
