"""Rows of a table as lines."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting import COLOURS


def line(
    rows: DataFrame, name: str, colour: str, *, x: str = "k", scale: float = 100, **style: Any
) -> plotting.Line:
    """A line through the values of the rows, with their intervals or ranges as its band.

    Args:
        rows: the rows, with one value of `x` each.
        name: the line's name.
        x: the key along the line.
        scale: values are multiplied by it; 100 shows shares in percent.
        style: further fields of `plotting.Line`.
    """
    rows = rows.sort_values(x)
    low, high = (scale * rows[end].to_numpy() for end in ("low", "high"))
    band: dict[str, Any] = {} if rows.low.isna().all() else {"low": low, "high": high}
    y = scale * rows.value.to_numpy()
    return plotting.Line(rows[x].to_numpy(), y, name, colour, **band | style)


def dots(
    rows: DataFrame,
    names: Sequence[Any],
    label: str,
    colour: str,
    symbol: str,
    shift: float,
) -> plotting.Dots:
    """Marks in percent at the rows with their intervals, for the names in their index.

    Args:
        names: the names in the order of the panel; one without a row has no mark.
        label, colour, symbol, shift: as in `plotting.Dots`.
    """
    ends = 100 * rows[["value", "low", "high"]].reindex(names).to_numpy()
    return plotting.Dots(ends[:, 0], label, colour, ends[:, 1], ends[:, 2], symbol, shift)


def base_rate(share: float, ends: tuple[float, float]) -> plotting.Line:
    """A level line: the accuracy of always giving the most frequent answer."""
    level = np.full(2, 100 * share)
    style: dict[str, Any] = {"dash": "dot", "is_light": True}
    return plotting.Line(np.array(ends), level, "chance", COLOURS["control"], **style)
