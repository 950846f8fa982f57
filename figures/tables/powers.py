"""The table `powers`: the key heads of exponentiation, and what knocking them out costs.

Keys: wording; component, a key head; of_four ("yes" if it is key for one of the four operations
too); knocked_out ("key heads", and the controls "random" and "same layers").
"""

from collections.abc import Iterator
from typing import Any

from arith_lens.effects import key_heads
from arith_lens.knockout import drop
from arith_lens.operations import FOUR
from arith_lens.runs import Run
from arith_lens.templates import TEMPLATES
from experiments import results
from figures.tables.answers import (
    AFTER,
    BEFORE,
    CONTROLS,
    HEADS,
    RELATIVE_CHANGE,
    change_rows,
    control_rows,
    loss_row,
)
from figures.tables.number import Number, over_draws
from figures.tables.table import (
    QuestionTable,
    Row,
    interval_numbers,
    n_problems,
    row,
    sample_rows,
)

WORDINGS = {
    template.name.replace("/", "-"): template.text.replace("{op}", template.word)
    for template in TEMPLATES["exponentiation"]
}
"""The wordings, by their names in results."""
KEY_HEADS, EFFECT, PAIRS = "key heads", "effect", "pairs"


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `do_powers_use_them`. Raises RunError if it is damaged."""
    of_four = {head for name in FOUR for head in key_heads(results.MAP.load(run, name))}
    rows = [one for name in WORDINGS for one in _wording_rows(run, name, of_four)]
    return QuestionTable.of("powers", str(run.config["model"]), rows)


def _wording_rows(run: Run, name: str, of_four: set[Any]) -> Iterator[Row]:
    """One wording; `of_four` are the heads that are key for any of the four operations."""
    effects, curves = results.MAP.load(run, name), results.KNOCKOUT_CURVES.load(run, name)
    key, facts = key_heads(effects), results.KNOCKOUT_CURVES.facts(run, name)
    keys, effect = {"wording": WORDINGS[name]}, curves["effect"]
    yield from sample_rows(facts, **keys)
    yield row(PAIRS, Number(facts["pairs"], unit="count"), **keys)
    yield row(HEADS, Number(len(key), unit="count"), **keys, knocked_out=KEY_HEADS)
    numbers, n_heads = interval_numbers(effects.heads, "relative"), effects.heads.mean().shape[1]
    for head in key:
        is_shared = "yes" if head in of_four else "no"
        number = numbers[head.layer * n_heads + head.index]
        yield row(EFFECT, number, **keys, component=str(head), of_four=is_shared)
    change, of_key = effect.drop(len(key)).accuracy, {**keys, "knocked_out": KEY_HEADS}
    yield row(BEFORE, Number(change.before, n=effect.n_pairs), **keys)
    yield row(AFTER, Number(change.after, n=effect.n_pairs), **of_key)
    yield from change_rows(change, n_problems(effect.effects()), **of_key)
    for kind, draws in results.controls_at(curves, len(key)).items():
        losses = [drop(effect.at(0), after).accuracy.relative for after in draws]
        number = over_draws(losses, unit="relative")
        yield row(RELATIVE_CHANGE, number, **keys, knocked_out=CONTROLS[kind])


def loss_rows(run: Run) -> Iterator[Row]:
    """What the knockout of a wording's key heads costs, and that of as many control heads.

    The wording has its name in results, and the key k says how many heads are out. A wording
    without key heads has no row. Intervals of control heads are over draws and problems.
    """
    for name in results.KNOCKOUT_CURVES.labels(run):
        curves = results.KNOCKOUT_CURVES.load(run, name)
        effect = curves["effect"]
        if k := effect.ks[-1]:
            before, keys = effect.at(0), {"wording": name, "k": k}
            yield loss_row(before, effect.at(k), **keys, knocked_out=KEY_HEADS)
            yield from control_rows(before, results.controls_at(curves, k), **keys)
