"""Colours, inks, type and the colour scale's range, shared by every picture; and plotly."""

from functools import cache
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

GREYS = {
    "page": ("#ffffff", "#15181e"),
    "text": ("#1f2430", "#e6e9ef"),
    "note": ("#6b7280", "#a3adbd"),
    "frame": ("#aab0bb", "#5b6475"),
    "grid": ("#e7e9ee", "#2b313c"),
    "pale": ("#cfd3dc", "#454d5c"),
    "light-text": ("#fdfffd", "#ffffff"),
    "dark-text": ("#010203", "#020304"),
    "light-dark-text": ("#fffdff", "#030201"),
    "dark-light-text": ("#030102", "#fefffe"),
}
"""Colours without a meaning of their own, on white and in the dark. The last four are texts on
fills, by what can be read there and in the dark."""
TEXT, NOTE, FRAME, GRID = (GREYS[one][0] for one in ("text", "note", "frame", "grid"))
INKS = {
    "helps": ("#b3152a", "#f0626b"),
    "hinders": ("#1f6fd0", "#4b93f7"),
    "operand": ("#b85a00", "#ffb057"),
    "operator": ("#0a5045", "#3fd6c0"),
    "answer": ("#4c1588", "#cfb0ff"),
    "verdict": ("#11151d", "#f2f4f8"),
    "control": ("#6b7684", "#798492"),
}
"""What each colour means, in every picture and page, on white and in the dark: an effect that helps
the answer, or hinders it; the operands A and B, the operator, the answer C; what is judged, and
what it is compared with. For normal and for red-green blind eyes, any two differ clearly."""
COLOURS = {meaning: light for meaning, (light, _) in INKS.items()}
PALE = GREYS["pale"][0]
"""Areas and lines without a meaning of their own."""
FONT = "'Open Sans', 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"

_STEPS = {1: 0.5, 1.5: 0.5, 2: 1, 3: 1, 4: 2, 5: 2.5, 6: 2, 8: 4, 10: 5}
"""Ends that a colour scale may have (times a power of ten), each with the step of its ticks."""


def symmetric_limit(values: Float[np.ndarray, "*shape"], percentile: Number = 99.0) -> float:
    """The end of a symmetric colour scale: a percentile of |values|, rounded up to a round number.

    With one limit for all panels of a figure, their colours are comparable. Values beyond it have
    the colour of the end. NaN is ignored. The limit is 1.0 if there are no values or all are 0.
    """
    size = np.abs(values[np.isfinite(values)])
    reach = float(np.percentile(size, percentile)) if size.size else 0.0
    if reach == 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(reach))
    mantissa = min(m for m in _STEPS if m * power >= reach * (1 - 1e-9))
    return float(mantissa * power)


def ticks(limit: Number) -> list[float]:
    """Round numbers from -limit to limit, with 0, for the colour bar."""
    power = 10.0 ** np.floor(np.log10(limit) + 1e-9)
    mantissa = min(_STEPS, key=lambda m: abs(m * power - limit))
    step = _STEPS[mantissa] * power
    n_steps = round(limit / step)
    return [float(i * step) for i in range(-n_steps, n_steps + 1)]


def signed(value: Number, unit: str = "") -> str:
    """A number with its sign, such as `+5%`, `−2.5%`, `0`: a true minus sign, no extra digits."""
    if value == 0:
        return "0"
    return f"{value:+.4g}{unit}".replace("-", "−")


def tick_positions(n: int, most: int = 9) -> list[int]:
    """Evenly spaced indices from 0, always with the last one.

    An index that is closer to the last one than about half of the smallest spacing, for which
    `most` labels have space, is left out, because the two labels would overlap.
    """
    step = next(s for s in (1, 2, 4, 5, 8, 10, 16, 20, 32, 64, n) if n / s <= most)
    regular = [i for i in range(0, n, step) if n - 1 - i >= max(step / 2, n / (2 * most - 2))]
    return sorted({*regular, n - 1})


def colour_bar(limit: Number, unit: str, **style: Any) -> dict[str, Any]:
    """A bar for colours from -limit to limit; `style` has plotly's further arguments.

    The labels of its ends show that values beyond have the same colour.
    """
    at = ticks(limit)
    first, *middle, last = (signed(value, unit) for value in at)
    texts = [f"≤ {first}", *middle, f"≥ {last}"]
    return {"thickness": 12, "outlinewidth": 0, "tickvals": at, "ticktext": texts, **style}


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


def tint(colour: str, share: Number, page: str = "#ffffff") -> str:
    """A colour from that of the page (0) to `colour` (1 and above), all as `#rrggbb`."""
    share = min(max(share, 0.0), 1.0)
    parts = zip(_rgb(page), _rgb(colour), strict=True)
    return "#{:02x}{:02x}{:02x}".format(*(round(a + (b - a) * share) for a, b in parts))


@cache
def in_the_dark(colour: str) -> str:
    """What stands in the dark for a colour of the light scheme; one that has no meaning stays.

    Example:
        >>> in_the_dark(COLOURS["operand"]), in_the_dark("#ffffff"), in_the_dark("#00ff00")
        ('#ffb057', '#15181e', '#00ff00')
    """
    light, dark = _schemes()
    distances = np.abs(light - _rgb(colour)).max(axis=1)
    return dark[distances.argmin()] if distances.min() <= 2 else colour


@cache
def _schemes() -> tuple[Float[np.ndarray, "colour rgb"], list[str]]:
    """All colours of the light scheme, and those of the dark one; named ones before mixed ones."""
    pairs, page = [*GREYS.values(), *INKS.values()], GREYS["page"][1]
    for share in np.linspace(0, 1, 251).tolist():
        pairs += [(tint(light, share), tint(dark, share, page)) for light, dark in INKS.values()]
        for sign, end in ((-1, "helps"), (1, "hinders")):
            pairs.append((colour_at(sign * share, 1), tint(INKS[end][1], share**0.55, page)))
    return np.array([_rgb(light) for light, _ in pairs], float), [dark for _, dark in pairs]


ROOTED = [
    ((1 + float(np.sign(at) * abs(at) ** 1.5)) / 2, colour)
    for at, colour in zip(np.linspace(-1, 1, len(DIVERGING)), DIVERGING, strict=True)
]
"""The diverging colours by a power of values, so that small values have colour, too."""


def rooted_colour_at(value: Number, limit: Number) -> str:
    """As `colour_at`, of `ROOTED`."""
    ends = [2 * at - 1 for at, _ in ROOTED]
    return colour_at(float(np.interp(value / limit, ends, np.linspace(-1, 1, len(ends)))), 1)


def is_dark(colour: str) -> bool:
    """Whether white text is easier to read than dark text on `colour` (`#rrggbb`)."""
    channels = np.array(_rgb(colour)) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722]) < 0.179


def ink_on(colour: str) -> str:
    """The colour of a text that is easy to read on `colour` (`#rrggbb`), there and in the dark."""
    light, dark = ("light" if is_dark(one) else "dark" for one in (colour, in_the_dark(colour)))
    return GREYS[f"{light}-text" if light == dark else f"{light}-{dark}-text"][0]


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def translucent(colour: str, alpha: Number) -> str:
    """A transparent version of the colour `#rrggbb`."""
    red, green, blue = _rgb(colour)
    return f"rgba({red},{green},{blue},{alpha})"


def palette(selector: str, *, dark: bool = False) -> str:
    """The colours as variables of a style sheet, by their meaning."""
    colours = (f"--{meaning}: {shades[dark]};" for meaning, shades in (GREYS | INKS).items())
    return f"{selector} {{ {' '.join(colours)} }}"


def steps(low: Number, high: Number, most: int = 6) -> list[float]:
    """Evenly spaced round numbers within [low, high], about `most` at most."""
    if not high > low:
        raise ValueError(f"expected an axis from a lower to a higher end, found {low} to {high}")
    rough = (high - low) / (most - 1)
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    return [round(float(i * step), 12) for i in np.arange(first, last + 1)]


def step_texts(values: list[float], unit: str) -> list[str]:
    """Labels of an axis with equal numbers of digits; only the top one has the unit."""
    digits = max((len(f"{value:.10g}".partition(".")[2]) for value in values), default=0)
    texts = [f"{value:.{digits}f}".replace("-", "−") if value else "0" for value in values]
    return [*texts[:-1], *(text + unit for text in texts[-1:])]


def plotly() -> Any:
    """The module plotly, which draws the figures.

    Raises:
        ModuleNotFoundError: plotly is not installed. It is an extra, which the methods do not need.
    """
    try:
        import plotly.graph_objects
        import plotly.offline
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "expected plotly, which draws figures, found none installed; install the extra: "
            "pip install 'arith-lens[drawing]'"
        ) from error
    return plotly
