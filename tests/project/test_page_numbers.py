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
OTHER_TESTS = ("edges.md", "gemma.md", "predictions.md")
"""Pages whose own tests hold their outcomes; they also quote numbers of predictions."""
PAGES = [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if path.name not in OTHER_TESTS and INTERVAL.search(path.read_text("utf-8"))
]


@cache
def rows() -> frozenset[tuple[float, float, float]]:
    """The value and the ends of every row of every shipped table."""
    ends: list[Any] = []
    folders = (ROOT / "figures" / "gallery", ROOT / "docs" / "studies")
    for path in (path for folder in folders for path in folder.rglob("*.csv")):
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


def test_the_layers_from_which_mlps_read_more_of_the_answer_than_of_operands_are_the_tables() -> (
    None
):
    table: Any = pd.read_csv(ROOT / "figures" / "gallery" / "fig13.csv", low_memory=False)
    read = table[(table.site == "mlp_in") & (table.measure == "cosine") & table.less.notna()]
    first: dict[str, set[int]] = {}
    apart = set()
    for (model, _), rows in read.groupby(["model", "operation"]):
        answer, operands = (
            rows[rows.token == token].sort_values("layer") for token in ("C", "A and B")
        )
        first.setdefault(str(model), set()).add(_last_false(answer, operands, "value", "value") + 1)
        apart.add(_last_false(answer, operands, "low", "high") + 1)
    assert (min(first["reference"]), max(first["reference"]), max(apart)) == (1, 8, 9)
    assert first["reference-mistral"] == {5, 6}
    text = (ROOT / "docs" / "probes.md").read_text("utf-8").replace("\n", " ")
    assert "From layer 5 or 6 of `reference-mistral` and layer 1 to 8 of `reference` on" in text
    assert "from layer 8 on, their input has more of C" in text
    assert "apart from layer 9 on in all eight cases" in text


def _last_false(above: Any, below: Any, of_above: str, of_below: str) -> int:
    """The last layer in which the first curve is not above the second; -1 if there is none."""
    not_above = above[of_above].to_numpy() <= below[of_below].to_numpy()
    return max((layer for layer, one in enumerate(not_above) if one), default=-1)
