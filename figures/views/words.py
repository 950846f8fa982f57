"""Rows of a table in words."""

from collections.abc import Sequence
from typing import Any

from pandas import DataFrame

from arith_lens.plotting.widths import is_narrow
from figures.common import sample_size
from figures.tables.answers import PLACE
from figures.tables.table import records, select

DISPLAY_NAMES = {
    "exact": "exact effects",
    "atp": "AtP",
    "atp_star": "AtP*",
    "atp_held_norms": "AtP, norms held",
    "clean_corrupted": "clean and corrupted gradients",
    "eap_ig": "EAP-IG",
    "ig_activations": "integrated activations",
    "relp": "RelP",
    "attn_lrp": "AttnLRP",
    "gim": "GIM",
}
"""What a reader sees in place of a method's identifier."""


PATHS_TITLES = {"via_mlps": "other heads frozen", "total": "all paths"}
"""What a reader sees in place of kinds of paths."""


def display_name(identifier: str) -> str:
    """The name that a reader sees; the identifier itself if it has none."""
    return DISPLAY_NAMES.get(identifier, identifier)


def size_text(table: DataFrame, **keys: str) -> str:
    """The size of the sample with these keys: `324 references of 36 problems`, or ""."""
    sizes = select(table, measure=("references", "problems"), **keys)
    facts = {one.measure: int(one.value) for one in records(sizes)}
    return sample_size({"distinct": facts.get("references"), "problems": facts.get("problems")})


def interval_text(one: Any, digits: int = 1) -> str:
    """`+1.2 [+0.3, +2.1]`: a row in points, with its interval to so many digits."""
    low, high = (round(100 * end, digits) + 0.0 for end in (one.low, one.high))  # no -0
    return f"{100 * one.value:+.1f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def range_text(one: Any) -> str:
    """`+1.2 (+0.3 to +2.1)`: a row in points, with its range."""
    return f"{100 * one.value:+.1f} ({100 * one.low:+.1f} to {100 * one.high:+.1f})"


def share_text(one: Any) -> str:
    """`12.3% [10%, 15%]`: a share with its interval."""
    return f"{one.value:.1%} [{one.low:.0%}, {one.high:.0%}]"


def percent_text(one: Any) -> str:
    """`12% [10, 15]`: a share with its interval; nothing of a row that is None."""
    if one is None:
        return ""
    parts = (f"{100 * part:z.0f}".replace("-", "−") for part in (one.value, one.low, one.high))
    return "{}% [{}, {}]".format(*parts)


def components_text(rows: DataFrame) -> str:
    """The names of listed components, in their order."""
    return ", ".join(select(rows, measure=PLACE).sort_values("value").component)


def of_width(models: list[str], notes: Sequence[str]) -> tuple[list[str], list[str]]:
    """The models that a page has room for, and the notes: a narrow one has the first model, and
    names the others."""
    if not is_narrow() or len(models) < 2:
        return models, [*notes]
    return models[:1], [f"On a wide page: {', '.join(models[1:])}, too.", *notes]
