"""Every table that ships, and every table of made runs, has the schema and numbers that can be."""

from pathlib import Path

import pytest
from support.table_schema import faults

from figures.tables.number import Number
from figures.tables.table import QuestionTable, from_csv, read_back, row

GALLERY = Path(__file__).parents[2] / "figures" / "gallery"
FILES = sorted(path.relative_to(GALLERY).as_posix() for path in GALLERY.rglob("*.csv"))


@pytest.mark.parametrize("name", FILES)
def test_each_table_of_the_gallery_is_valid(name: str) -> None:
    table = from_csv((GALLERY / name).read_text(encoding="utf-8"))
    assert [*faults(table)] == [] and len(table) > 0


GOOD = {"value": 0.5, "low": 0.4, "high": 0.6, "spread": "95% over problems", "unit": "share"}


def table_of(*changes: dict, **keys):
    """A table of one row per change of `GOOD`, as its file has it."""
    rows = [row("accuracy", Number(**GOOD), **keys, k=k) for k in range(len(changes))]
    frame = read_back(QuestionTable.of("made", "a model", rows))
    for k, change in enumerate(changes):
        for name, value in change.items():
            frame.loc[k, name] = value
    return frame


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"value": 0.7}, "a value outside its ends"),
        ({"value": 1.1, "high": 1.2}, "impossible value"),
        ({"low": -0.1}, "impossible low"),
        ({"low": float("nan")}, "one end"),
        ({"spread": ""}, "ends without a spread"),
        ({"spread": "95% over cats"}, "an unknown spread"),
        ({"spread": "95% of 10000 draws"}, "an unknown spread"),
        ({"unit": "percent"}, "an unknown unit"),
        ({"k": 0}, "the same keys"),
        ({"model": "a\nmodel"}, "a line break in model"),
        ({"value": float("inf"), "unit": "logit"}, "infinite value"),
        ({"n": 2.5}, "no number of units"),
    ],
)
def test_each_fault_would_be_seen(change: dict, fault: str) -> None:
    assert [*faults(table_of({}, {}))] == []
    assert any(text.startswith(fault) for text in faults(table_of({}, change)))


def test_a_table_without_its_columns_is_at_fault() -> None:
    (text,) = faults(table_of({}).drop(columns="unit"))
    assert text.startswith("columns")
