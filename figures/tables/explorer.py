"""The table `explorer`: the map of every head and MLP, and what is right without sets of them.

Keys: prompts, the set of them; paths and metric of an effect, component with its layer and index,
key_head ("yes" or "no"); of an edge: receiver, input, sender, role of the token where it writes,
whether the interval excludes_0, and how many were measured; of a knockout: kind ("knock_out" or
"keep_only"), members, or n_heads and n_mlps of random sets, one per sample.

The page shows more when a part is clicked: where it looks, what it reads and writes. Other
questions have tables of these (`attention`, `circuit`, `probes`); the page reads them,
and the texts of single prompts, from the stored result.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pandas import DataFrame

from arith_lens.runs import Run
from experiments import results
from figures.tables.effects import METRIC_UNITS
from figures.tables.number import PROBLEMS, Number, Unit
from figures.tables.table import QuestionTable, Row, row, select

ENDS = ("ci_low", "ci_high")
"""The page's columns with the ends of an interval."""


@dataclass(frozen=True)
class PageTable:
    """A table of the page that is made from rows: its columns, in order."""

    keys: Mapping[str, str]
    """What a number is of: the column, and the key of rows that has it."""
    measures: Mapping[str, str]
    """The numbers: the column, and the measure of rows. The first one has the interval."""
    has_interval: bool = True


PAGE_TABLES: Mapping[str, PageTable] = {
    "effects": PageTable(
        {name: name for name in ("paths", "metric", "component", "layer")}
        | {"head": "index", "key": "key_head"},
        {"mean": "effect"},
    ),
    "held": PageTable(
        {name: name for name in ("paths", "metric", "component")},
        {"mean": "effect with the norm's scale held"},
    ),
    "edges": PageTable(
        {name: name for name in ("receiver", "input", "sender", "role", "metric", "measured")}
        | {"certain": "excludes_0"},
        {"mean": "effect of an edge"},
    ),
    "sets": PageTable(
        {"kind": "kind", "members": "members"}, {"accuracy": "accuracy", "probability": "p(C)"}
    ),
    "controls": PageTable(
        {"kind": "kind", "draw": "sample", "n_heads": "n_heads", "n_mlps": "n_mlps"},
        {"accuracy": "accuracy of a random set", "probability": "p(C) of a random set"},
        has_interval=False,
    ),
}
INTEGERS = ("layer", "head", "draw", "n_heads", "n_mlps", "n_pairs", "measured")
"""The page's columns of whole numbers."""
YES_NO = {True: "yes", False: "no"}
BOOLEAN = {"key": "key_head", "certain": "excludes_0"}
"""The page's columns that are true or false, and the keys of rows with "yes" or "no"."""


def set_names(run: Run) -> list[str]:
    """The sets of prompts of a run, those with other operands first: they have every table."""
    return sorted(results.EXPLORATION.labels(run), key=lambda name: "-" not in name)


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `what_does_each_part_do`. Raises RunError if it is damaged."""
    rows: list[Row] = []
    for prompts in set_names(run):
        tables = results.EXPLORATION.load(run, prompts).tables
        for name in PAGE_TABLES:
            if name in tables:
                rows += table_rows(name, tables[name], prompts)
    return QuestionTable.of("explorer", str(run.config["model"]), rows)


def table_rows(name: str, frame: DataFrame, prompts: str) -> Iterator[Row]:
    """The rows of one table of the page.

    Args:
        name: one of `PAGE_TABLES`.
        frame: the stored table.
    """
    page_table = PAGE_TABLES[name]
    for one in frame.to_dict("records"):
        keys = {key: one[column] for column, key in page_table.keys.items()}
        keys |= {key: YES_NO[bool(keys[key])] for key in BOOLEAN.values() if key in keys}
        unit: Unit = METRIC_UNITS[one["metric"]] if "metric" in one else "share"
        for i, (column, measure) in enumerate(page_table.measures.items()):
            number = Number(float(one[column]), n=one.get("n_pairs"), unit=unit)
            if page_table.has_interval and not i:
                low, high = (float(one[end]) for end in ENDS)
                number = replace(number, low=low, high=high, spread=PROBLEMS)
            yield row(measure, number, prompts=prompts, **keys)


def page_table(rows: DataFrame, name: str, prompts: str) -> DataFrame:
    """A table of the page, from the rows as their CSV file has them.

    Args:
        rows: of `table`, read back.
        name: one of `PAGE_TABLES`.
    """
    of = PAGE_TABLES[name]
    by_measure = [
        select(rows, prompts=prompts, measure=measure).reset_index(drop=True)
        for measure in of.measures.values()
    ]
    first = by_measure[0]
    columns = {column: first[key] for column, key in of.keys.items()}
    for column, numbers in zip(of.measures, by_measure, strict=True):
        columns[column] = numbers.value
        if of.has_interval and numbers is first:
            columns |= {"ci_low": first.low, "ci_high": first.high}
    for column in BOOLEAN.keys() & columns.keys():
        columns[column] = columns.pop(column) == YES_NO[True]
    if name == "sets":
        columns["n_pairs"] = first.n
    whole = {column: columns[column].astype(int) for column in INTEGERS if column in columns}
    return DataFrame(columns | whole)
