"""What the pages on numbers and on emergence say is in the tables of these studies."""

import re
from pathlib import Path
from typing import Any

from figures.tables.table import from_csv, records, select

DOCS = Path(__file__).parents[2] / "docs"
STUDIES = DOCS / "studies"
PAGE = (DOCS / "numbers.md").read_text(encoding="utf-8")
EMERGENCE = (STUDIES / "emergence.md").read_text(encoding="utf-8")


def outcomes(model: str, prediction: str) -> Any:
    """The rows of a prediction on numbers in a model."""
    path = STUDIES / "predictions.csv"
    table = from_csv(path.read_text(encoding="utf-8"))
    return select(table, question="numbers", model=model, prediction=prediction)


def test_unseen_values_of_other_problems_are_those_of_the_tables() -> None:
    start = PAGE.index("| number | A's token, `reference` |")
    lines = PAGE[start:].split("\n\n")[0].splitlines()[2:]
    subjects = ("ones", "tens", "multiplication", "division")
    for line, subject in zip(lines, subjects, strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")][1:5]
        known = []
        for name in ("N1", "N2"):
            for model in ("reference", "reference-mistral"):
                rows = select(outcomes(model, name), subject=subject)
                one = records(rows)[0]  # of N2, layer 7
                known.append(f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]")
        assert cells == known


def test_the_verdicts_by_problems_are_those_of_the_tables() -> None:
    rows = outcomes("reference", "N1")
    verdicts = {subject: {*rows[rows.subject == subject].verdict} for subject in {*rows.subject}}
    assert verdicts.pop("division") == {"not decided"}
    assert {*map(frozenset, verdicts.values())} == {frozenset({"holds here"})}
    assert "| N1 | holds in sums" in PAGE and "| N2 | **fails**" in PAGE
    of_line = [outcomes(model, "N2") for model in ("reference", "reference-mistral")]
    assert all({*rows.verdict} == {"does not hold here"} for rows in of_line)
    largest = max(rows[rows.subject == "addition"].value.max() for rows in of_line)
    words = f"one-digit sums the line has at most {largest:.0%}"
    assert words in PAGE


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
    assert wrong_outcomes(EMERGENCE) == []
    assert wrong_outcomes(EMERGENCE.replace("| E1 | holds", "| E1 | open")) == ["E1"]


def test_the_page_names_the_last_snapshot() -> None:
    table: Any = from_csv((STUDIES / "emergence.csv").read_text(encoding="utf-8"))
    last = int(select(table, kind="overlap").step.max())
    assert f"step {last:,}" in EMERGENCE or last == 3000
