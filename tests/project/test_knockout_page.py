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


@pytest.mark.parametrize("title", SETTINGS)
def test_a_row_of_two_digit_knockouts_is_that_of_its_table(title: str) -> None:
    cells = [right(SETTINGS[title], order) for order in ("effect", "random", "same layers")]
    assert f"| {title} | {' | '.join(cells)} |" in PAGE
