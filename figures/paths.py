"""Paths: how heads change the answer, directly, through MLPs and through later heads."""

from functools import partial

from pandas import DataFrame

from figures.common import chosen_run
from figures.exhibit import Table, text_table_of
from figures.options import TableOptions
from figures.tables import paths as path_numbers
from figures.tables.table import records, select, value
from figures.views.maps import EffectScale


def paths(options: TableOptions) -> list[Table]:
    """The strongest heads' effects on three kinds of paths, as a table with intervals and shares.

    Reads a run of `experiments which_paths`, or raises RunError. The total effect is the sum of
    what goes directly to the logits, what MLPs add (via MLPs less direct), and what later heads
    add (total less via MLPs). These are differences within each pair, and so are their intervals.
    """
    run = chosen_run(options, "which_paths")
    return [
        text_table_of(
            partial(path_numbers.table, run),
            [run],
            name="paths",
            title=f"On which paths do the strongest heads act? {run.config['model']}",
            caption="Direct: what a head writes to the answer itself; MLPs and later heads add the "
            "rest. In brackets: 95% bootstrap intervals over problems and wordings. Shares are of "
            "the total effect, and may exceed 100% where parts have opposite signs.",
            cells=partial(_path_cells, relative=EffectScale.of(run.config).relative),
        )
    ]


def _path_cells(table: DataFrame, relative: bool) -> DataFrame:
    """One line per head and operation: each part with its interval, and shares."""
    number, lines = "{:+.1%}" if relative else "{:+.3g}", []
    for (operation, head), rows in table.groupby(["operation", "component"], sort=False):  # pyright: ignore
        line = {"operation": operation, "head": head}
        for one in records(select(rows, measure=path_numbers.EFFECT)):
            ends = ", ".join(map(number.format, (one.low, one.high)))
            line[one.part] = f"{number.format(one.value)} ({ends})"
        for part in ("direct", "MLPs add", "heads add"):
            line[f"share {part}"] = f"{value(rows, measure=path_numbers.SHARE, part=part):.0%}"
        lines.append(line)
    return DataFrame(lines)
