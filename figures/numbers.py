"""Is a number a line, a wave or a table? Swaps with controls, and values that were not fitted.

Reads a run of `experiments numbers`.
"""

from functools import partial
from typing import Any, cast

from pandas import DataFrame

from arith_lens.numbers import CONTROLS, OWN, UNSEEN, UNSEEN_LABELS, WHOLE
from experiments.numbers import END
from figures.common import chosen_run
from figures.exhibit import Table, text_table_of
from figures.options import TableOptions
from figures.tables import numbers
from figures.tables.table import records, select
from figures.views.words import percent_text

COLUMNS = {
    UNSEEN: "unseen values",
    UNSEEN_LABELS: "labels permuted",
    OWN: "swap",
    WHOLE: "whole vector",
    CONTROLS["pca"]: "PCA",
    CONTROLS["labels"]: "swap, labels permuted",
    CONTROLS["span"]: "random in the span",
}


def exhibits(options: TableOptions) -> list[Table]:
    """Swaps and unseen values of each shape, with their controls.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "numbers")
    table = text_table_of(
        partial(numbers.table, run),
        [run],
        name="numbers",
        title="Is a number a line, a wave or a table?",
        caption="The share of answers that follow another value, put in by a shape that is fitted "
        "to the residual stream, or by a control. Unseen: the shape was fitted without the value "
        "that it writes. In brackets: 95% intervals over problems that were not fitted.",
        cells=_cells,
    )
    return [table]


def _cells(table: DataFrame) -> DataFrame:
    """One line for each model, subject, value, place, layer and shape; unseen values first."""
    keys = ["model", "subject", "variable", "place", "layer", "shape"]
    lines = []
    for parts, spaces in select(table, kind="swap").groupby(keys, sort=False):
        model, subject, variable, place, layer, shape = cast("tuple[Any, ...]", parts)
        named = {one.space: percent_text(one) for one in records(spaces)}
        at = f"{variable} at {'END' if place == END else 'its token'}"
        start = {"model": model, "problems": subject, "number": at, "layer": f"{layer:.0f}"}
        cells = {name: named.get(space, "") for space, name in COLUMNS.items()}
        lines.append(start | {"shape": shape} | cells)
    return DataFrame(lines)
