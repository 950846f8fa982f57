"""Each number with an interval on a page is a row of a shipped table."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
NUMBER = r"[-+−]?\d+(?:\.\d+)?"
INTERVAL = re.compile(rf"({NUMBER})(?:%| points)? \[({NUMBER}), ({NUMBER})\]")
OTHER_TESTS = ("edges.md", "gemma.md", "how_it_calculates.md", "predictions.md")
"""Pages whose own tests hold their outcomes; they also quote numbers of predictions."""
PAGES = [
    path
    for path in sorted((ROOT / "docs").glob("*.md"))
    if path.name not in OTHER_TESTS and INTERVAL.search(path.read_text("utf-8"))
]


@cache
def rows() -> frozenset[tuple[float, float, float]]:
    """The value and the ends of every row of every shipped table."""
    ends: list[Any] = []
    for path in (ROOT / "figures" / "gallery").rglob("*.csv"):
        table = pd.read_csv(path, low_memory=False)
        if {"value", "low", "high"} <= {*table.columns}:
            numbers = table[["value", "low", "high"]].apply(pd.to_numeric, errors="coerce")
            ends += [tuple(map(float, row)) for row in numbers.dropna().to_numpy()]
    return frozenset(ends)


@cache
def printed(digits: tuple[int, int, int]) -> frozenset[tuple[float, float, float]]:
    """The rows as a page prints them: as they are, in percent, or of ten heads; also with the sign
    turned."""
    known = set()
    for value, low, high in rows():
        for one in ((value, low, high), (-value, -high, -low)):
            for factor in (1, 10, 100):
                texts = (f"{factor * x:.{d}f}" for x, d in zip(one, digits, strict=True))
                known.add(tuple(0.0 + float(text) for text in texts))
    return frozenset(known)


def untied(text: str) -> list[str]:
    """The numbers with an interval that no table has."""
    missing = []
    for match in INTERVAL.finditer(text):
        texts = match.groups()
        digits = tuple(len(one.partition(".")[2]) for one in texts)
        numbers = tuple(0.0 + float(one.replace("−", "-")) for one in texts)
        if numbers not in printed(digits):
            missing.append(match.group(0))
    return missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_interval_of_a_page_is_a_row_of_a_table(page: Path) -> None:
    assert untied(page.read_text("utf-8")) == []


def test_an_interval_that_no_table_has_is_found() -> None:
    value, low, high = max(rows())
    assert untied(f"{value:.3f} [{low:.3f}, {high:.3f}]") == []
    assert untied("−0.9 [−2.5, +0.7] and 12.345 [9.876, 98.765]") == [
        "−0.9 [−2.5, +0.7]",
        "12.345 [9.876, 98.765]",
    ]
