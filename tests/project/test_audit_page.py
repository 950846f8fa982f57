"""The table of docs/audit.md is that of its file."""

import csv
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def missing_lines(page: str) -> list[str]:
    """The rows of the file that the page does not have as they are."""
    with (DOCS / "audit_calibration.csv").open(encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    assert len(rows) >= 10
    lines = [
        f"| {row['question']} | {row['verdict']} | {row['kind']} | {row['right']} of {row['of']} |"
        for row in rows
    ]
    return [line for line in lines if line not in page.splitlines()]


def test_the_rates_of_right_verdicts_are_those_of_the_file() -> None:
    page = (DOCS / "audit.md").read_text("utf-8")
    assert missing_lines(page) == []
    assert len(missing_lines(page.replace("17 of 17", "16 of 17"))) == 2
