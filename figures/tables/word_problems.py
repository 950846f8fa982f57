"""The table `word_problems`: strong heads of generated prompts and of word problems.

Keys: prompts ("generated prompts" or "word problems"); knocked_out, a set of heads (those of
`SETS`, and the controls "random" and "same layers"); component, a head of the set, or one that is
described; token, the kind of token that it looks at from END.
"""

from collections.abc import Iterable, Iterator

from arith_lens.knockout import drop
from arith_lens.runs import Run
from experiments import results
from figures.tables.answers import (
    AFTER,
    BEFORE,
    CONTROLS,
    RELATIVE_CHANGE,
    change_rows,
    control_rows,
    loss_row,
    place_rows,
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

PROMPTS = {"generated": "generated prompts", "word_problems": "word problems"}
"""The kinds of prompts, by their names in results."""
SETS = {
    "generated": "strongest on generated prompts",
    "word_problems": "strongest on word problems",
    "overlap": "in both",
    "generated_only": "on generated prompts only",
    "word_problems_only": "on word problems only",
}
"""The sets of heads, by their names in results."""
EFFECT, ATTENTION = "effect", "attention from END"


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `do_word_problems_use_them`. Raises RunError if it is damaged."""
    facts = {
        "generated": results.POOLED_MAP.facts(run),
        "word_problems": results.MAP.facts(run, "word_problems"),
    }
    rows: list[Row] = []
    for data, prompts in PROMPTS.items():
        rows += sample_rows(facts[data], prompts=prompts)
    for label, title in SETS.items():
        heads = results.OUTCOMES.facts(run, label, "generated")["heads"]
        rows += place_rows(heads, knocked_out=title)
    for data in PROMPTS:
        rows += [*_set_rows(run, data), *_head_rows(run, data)]
    return QuestionTable.of("word_problems", str(run.config["model"]), rows)


def _set_rows(run: Run, data: str) -> Iterator[Row]:
    """What the knockout of each set of heads costs on one kind of prompts."""
    before, keys = results.OUTCOMES.load(run, "none", data), {"prompts": PROMPTS[data]}
    n = n_problems(before.effects())
    yield row(BEFORE, Number(before.accuracy(), n=before.n_pairs), **keys)
    for label, title in SETS.items():
        change = drop(before, results.OUTCOMES.load(run, label, data)).accuracy
        of_set = {**keys, "knocked_out": title}
        yield row(AFTER, Number(change.after, n=before.n_pairs), **of_set)
        yield from change_rows(change, n, **of_set)
    for kind, draws in results.control_outcomes(run, data).items():
        losses = [drop(before, after).accuracy.relative for after in draws]
        number = over_draws(losses, unit="relative")
        yield row(RELATIVE_CHANGE, number, **keys, knocked_out=CONTROLS[kind])


def _head_rows(run: Run, data: str) -> Iterator[Row]:
    """The effects of the described heads, and where they look from END."""
    stored = results.POOLED_MAP.load(run) if data == "generated" else None
    effects = (stored or results.MAP.load(run, data)).heads
    looks, n_heads = results.CLASS_ATTENTION.load(run, data), effects.mean().shape[1]
    numbers, weights = interval_numbers(effects, "relative"), interval_numbers(looks, "share")
    labels = looks.labels or {}
    for index, name in enumerate(labels["head"]):
        layer, head = map(int, name.split("."))
        keys = {"prompts": PROMPTS[data], "component": name}
        yield row(EFFECT, numbers[layer * n_heads + head], **keys)
        for place, token in enumerate(labels["class"]):
            weight = weights[index * len(labels["class"]) + place]
            yield row(ATTENTION, weight, **keys, token=token)


def loss_rows(run: Run, heads: str, prompts: Iterable[str]) -> Iterator[Row]:
    """What the knockout of a set of heads costs, and that of control heads, on kinds of prompts.

    The key k says how many heads are out. Intervals of control heads are over draws and problems.

    Args:
        run: a run of `do_word_problems_use_them`.
        heads: a set, by its name in results.
        prompts: the kinds of prompts, by their names in results.
    """
    for data in prompts:
        k = len(results.OUTCOMES.facts(run, heads, data)["heads"])
        before, after = (results.OUTCOMES.load(run, label, data) for label in ("none", heads))
        keys = {"prompts": PROMPTS[data]}
        yield loss_row(before, after, **keys, knocked_out=SETS[heads], k=k)
        draws = results.control_outcomes(run, data)
        yield from control_rows(before, draws, **keys, k=run.config["heads"])
