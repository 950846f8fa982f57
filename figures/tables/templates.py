"""The table `templates`: the effects of the strongest heads in each template.

Keys: operation; component, a head, strongest first; role ("key" for a key head); template, such as
"addition/2", or "all" for all of them together. At the end, whether the choice of a word without
meaning matters (`figures.tables.null_words`).
"""

from collections.abc import Iterator

import numpy as np

from arith_lens.effects import Effects, key_heads, template_agreement
from arith_lens.runs import Run
from experiments import results
from figures.tables.effects import KEY_ROLE, METRIC_UNITS, RELATIVE
from figures.tables.null_words import null_word_rows
from figures.tables.number import Number
from figures.tables.table import QuestionTable, Row, row

N_HEADS = 12
EFFECT, DEVIATION = "effect", "standard deviation over templates"
CORRELATION = "median rank correlation of two templates"
ALL = "all"


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `which_heads`.

    Raises:
        RunError: the run is damaged.
        NoTemplates: its pairs have no templates.
    """
    rows: list[Row] = []
    for operation in results.MAP.labels(run):
        rows += _operation_rows(operation, results.MAP.load(run, operation).heads)
    rows += null_word_rows(run)
    return QuestionTable.of("templates", str(run.config["model"]), rows)


def _operation_rows(operation: str, effects: Effects) -> Iterator[Row]:
    """The strongest heads by template, and how far templates agree over all heads."""
    unit = METRIC_UNITS[effects.metric]
    key = key_heads(effects) if effects.metric == RELATIVE else []
    parts = dict(sorted(effects.by_template().items(), key=lambda part: (len(part[0]), part[0])))
    means = {name: part.mean().numpy() for name, part in [*parts.items(), (ALL, effects)]}
    for head in effects.top(N_HEADS):
        at = (head.layer, head.index)  # pyright: ignore[reportAttributeAccessIssue]
        keys = {"operation": operation, "component": str(head)}
        keys["role"] = KEY_ROLE if head in key else ""
        for name, of_template in means.items():
            yield row(EFFECT, Number(float(of_template[at]), unit=unit), **keys, template=name)
        if len(parts) > 1:
            deviation = np.std([means[name][at] for name in parts], ddof=1)
            yield row(DEVIATION, Number(float(deviation), n=len(parts), unit=unit), **keys)
    correlations = template_agreement(effects).to_numpy()[np.triu_indices(len(parts), 1)]
    if len(correlations):
        median = Number(float(np.median(correlations)), n=len(correlations), unit="correlation")
        yield row(CORRELATION, median, operation=operation)
