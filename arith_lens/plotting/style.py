"""Colours, inks, type and the colour scale's range, shared by every picture."""

from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

Figure: TypeAlias = Any
"""A plotly figure: plotly is imported only to draw, and its types do not know its own traces."""

Number: TypeAlias = int | float

DIVERGING = (
    "#8b0015", "#ab141d", "#c8302b", "#de5142", "#ef725e", "#fa947f", "#feb8a7", "#fedbd1",
    "#fcfcfc", "#cde8fb", "#a0d3f9", "#77bbf4", "#53a3ec", "#3689de", "#2270cb", "#1c58b0",
    "#194292",
)  # fmt: skip
"""Red (a drop) to blue, even in perceived lightness on both arms, safe for colour-blind eyes."""

TEXT, NOTE, FRAME, GRID = "#1f2430", "#6b7280", "#aab0bb", "#e7e9ee"
FONT = "'Open Sans', 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"

_STEPS = {1: 0.5, 1.5: 0.5, 2: 1, 3: 1, 4: 2, 5: 2.5, 6: 2, 8: 4, 10: 5}
"""Ends that a colour scale may have (times a power of ten), each with the step of its ticks."""


def symmetric_limit(values: Float[np.ndarray, "*shape"], percentile: Number = 99.0) -> float:
    """The end of a symmetric colour scale: a percentile of |values|, rounded up to a round number.

    One limit for all panels of a figure keeps their colours comparable; what lies beyond is drawn
    in the end's colour. NaN is left out; 1.0 when nothing is left or all is 0.
    """
    size = np.abs(values[np.isfinite(values)])
    reach = float(np.percentile(size, percentile)) if size.size else 0.0
    if reach == 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(reach))
    mantissa = min(m for m in _STEPS if m * power >= reach * (1 - 1e-9))
    return float(mantissa * power)


def ticks(limit: Number) -> list[float]:
    """Round numbers from -limit to limit, 0 among them, for the colour bar."""
    power = 10.0 ** np.floor(np.log10(limit) + 1e-9)
    mantissa = min(_STEPS, key=lambda m: abs(m * power - limit))
    step = _STEPS[mantissa] * power
    n_steps = round(limit / step)
    return [float(i * step) for i in range(-n_steps, n_steps + 1)]


def signed(value: Number, unit: str = "") -> str:
    """`+5%`, `−2.5%`, `0`: a true minus sign, no needless digits."""
    if value == 0:
        return "0"
    return f"{value:+.4g}{unit}".replace("-", "−")


def colour_scale() -> list[list[Any]]:
    """`DIVERGING` as plotly wants it."""
    last = len(DIVERGING) - 1
    return [[i / last, colour] for i, colour in enumerate(DIVERGING)]


def colour_at(value: Number, limit: Number) -> str:
    """The colour of `value` on a scale from -limit to limit, as `#rrggbb`; grey for NaN."""
    if not np.isfinite(value):
        return GRID
    position = (min(max(value / limit, -1.0), 1.0) + 1) / 2 * (len(DIVERGING) - 1)
    low = min(int(position), len(DIVERGING) - 2)
    share = position - low
    mixed = [
        round(a + (b - a) * share)
        for a, b in zip(_rgb(DIVERGING[low]), _rgb(DIVERGING[low + 1]), strict=True)
    ]
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def is_dark(colour: str) -> bool:
    """Whether white ink reads better than black on `colour` (`#rrggbb`)."""
    red, green, blue = _rgb(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
