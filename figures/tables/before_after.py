"""The table `before_after`: what tuning changed in the effects of heads and MLPs.

Keys: tuned, the name of a tuned model; side ("before", "after", or "change": after less before,
within each pair); component, layer, index and role, as in the table `effects`. A component without
a side is a tuned one.
"""

from collections.abc import Iterator

import numpy as np

from arith_lens.components import Head
from arith_lens.runs import Run
from experiments import results
from figures.tables.answers import PLACE
from figures.tables.effects import MapStatistics, Statistics, map_rows
from figures.tables.number import Number
from figures.tables.table import QuestionTable, Row, row, sample_rows

BEFORE, AFTER, CHANGE = "before", "after", "change"
STILL_RIGHT, LOGIT = "prompts still answered right", "mean logit of the answer"
CHANGED_HEADS, ALL_HEADS = "heads with a certain change", "heads"
TUNED_SHARE = "share of all change in the tuned heads"


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `what_tuning_changes`. Raises RunError if it is damaged."""
    names = results.TUNED_MAP.labels(run)
    rows = [one for name in names for one in _model_rows(run, name)]
    return QuestionTable.of("before_after", str(run.config["model"]), rows)


def _model_rows(run: Run, name: str) -> Iterator[Row]:
    """One tuned model, against the model as it was."""
    stored, metric = results.TUNED_MAP, run.config["metric"]
    both, facts = stored.load(run, name), stored.facts(run, name)
    yield from sample_rows(facts, tuned=name)
    yield row(STILL_RIGHT, Number(facts["still_right"]), tuned=name)
    for place, component in enumerate(facts["components"], 1):
        yield row(PLACE, Number(place, unit="count"), tuned=name, component=component)
    for side, effects in ((BEFORE, both.before), (AFTER, both.after)):
        logit = Number(float(effects.logit.mean()), unit="logit")
        yield row(LOGIT, logit, tuned=name, side=side)
        yield from map_rows(MapStatistics.of(effects, None), metric, tuned=name, side=side)
    change = MapStatistics(*(Statistics.of(part, None) for part in (both.heads, both.mlps)))
    for one in map_rows(change, metric, tuned=name, side=CHANGE):
        yield Row(one.measure, one.number, {**one.keys, "role": ""})
    yield from _change_counts(change.heads, name, facts["components"])


def _change_counts(heads: Statistics, name: str, components: list[str]) -> Iterator[Row]:
    """How many heads changed for certain, and how much of all change the tuned ones have."""
    low, high = heads.values[..., 1], heads.values[..., 2]
    n_changed = int(((low > 0) | (high < 0)).sum())
    yield row(CHANGED_HEADS, Number(n_changed, unit="count"), tuned=name)
    yield row(ALL_HEADS, Number(heads.mean.size, unit="count"), tuned=name)
    tuned = [Head.parse(one) for one in components if "." in one]
    if tuned:
        sizes = np.abs(heads.mean)
        share = sum(sizes[head.layer, head.index] for head in tuned) / sizes.sum()
        yield row(TUNED_SHARE, Number(float(share)), tuned=name)
