"""The table of two-digit knockouts in docs/knockout.md is a view of shipped rows."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "knockout.md").read_text("utf-8")
TABLE: Any = pd.read_csv(ROOT / "docs" / "studies" / "two_digits.csv", keep_default_na=False)
SETTINGS = {
    "last digit, means by template": "last digit",
    "first digit": "first digit",
    "first digit, one mean per head, over all tokens": "first digit, one mean",
}
"""The rows of the page's table, and the settings of their numbers."""
N_HEADS = 10


def right(setting: str, order: str) -> str:
    """Percent right without ten heads, by operation; of controls with the lowest draw."""
    table = TABLE[TABLE.setting == setting]
    heads = table[(table.components == "heads") & (table.order == order)]
    rows = heads[(heads.measure == "accuracy") & (heads.k.astype(str).isin(("10", "10.0")))]
    assert len(rows), "there are such heads"
    cells = []
    for value, low in zip(rows.value.astype(float), rows.low.astype(float), strict=True):
        lowest = f" ({100 * low:.0f})" if order != "effect" else ""
        cells.append(f"{100 * value:.0f}{lowest}")
    return ", ".join(cells)


def test_ten_heads_out_leave_what_the_most_frequent_answer_has() -> None:
    table: Any = pd.read_csv(ROOT / "figures" / "gallery" / "fig3.csv", low_memory=False)
    base = table[table.measure == "base rate: majority answer"].set_index("operation").value
    curves = table[(table.components == "heads") & (table.order == "effect")]
    curves = curves[curves.measure == "accuracy"].pivot(
        index="operation", columns="k", values="value"
    )
    ten, words = curves[10], " ".join(PAGE.split())
    assert f"{ten.min():.0%}"[:-1] + f" to {ten.max():.0%} right, no more than always" in words
    assert f"({100 * base.min():.0f} to {base.max():.0%})" in words
    assert (ten.sort_index() < base.sort_index() + 0.02).all() and (
        curves[5].sort_index() > base.sort_index()
    ).any()
    addition = curves.loc["addition"]
    assert addition[6] < base["addition"] < addition[5] and "six are enough" in words


@pytest.mark.parametrize("title", SETTINGS)
def test_a_row_of_two_digit_knockouts_is_that_of_its_table(title: str) -> None:
    cells = [right(SETTINGS[title], order) for order in ("effect", "random", "same layers")]
    assert f"| {title} | {' | '.join(cells)} |" in PAGE
