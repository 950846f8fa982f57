"""The outcomes of the predictions on emergence are those of the shipped table."""

import re
from pathlib import Path
from typing import Any

from figures.tables.table import from_csv, records, select

STUDIES = Path(__file__).parents[2] / "docs" / "studies"
PAGE = (STUDIES / "emergence.md").read_text(encoding="utf-8")
WORDS = {"holds here": "holds", "does not hold here": "**fails**", "not decided": "open"}


def wrong_outcomes(page: str) -> list[str]:
    """The predictions whose verdict, value or interval on the page is not that of the table."""
    path = STUDIES / "emergence.csv"
    table: Any = from_csv(path.read_text(encoding="utf-8"))
    wrong = []
    for one in records(select(table, kind="prediction")):
        (line,) = re.findall(
            rf"^\| {one.prediction} \| ((?:holds|open|\*\*fails).*) \|$", page, re.M
        )
        digits = 0 if one.prediction == "E2" else 2
        value, low, high = (f"{part:.{digits}f}" for part in (one.value, one.low, one.high))
        if not line.startswith(WORDS[one.verdict]) or f"{value} [{low}, {high}]" not in line:
            wrong.append(one.prediction)
    return wrong


def test_each_outcome_on_the_page_is_that_of_the_table() -> None:
    assert wrong_outcomes(PAGE) == []
    assert wrong_outcomes(PAGE.replace("| E1 | holds", "| E1 | open")) == ["E1"]


def test_the_page_names_the_last_snapshot() -> None:
    table: Any = from_csv((STUDIES / "emergence.csv").read_text(encoding="utf-8"))
    last = int(select(table, kind="overlap").step.max())
    assert f"step {last:,}" in PAGE or last == 3000
