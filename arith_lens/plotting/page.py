"""The page that every figure stands on: boxes in pixels, titles, small print, room for texts."""

import html
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.style import (
    FONT,
    FRAME,
    GRID,
    NOTE,
    TEXT,
    Figure,
    Number,
    colour_scale,
    plotly,
    step_texts,
    steps,
    tick_texts,
    ticks,
)

XY: TypeAlias = tuple[Number, Number]
"""Across and down in pixels, or a place on a panel's axes."""


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels, y downwards."""

    left: Number
    top: Number
    right: Number
    bottom: Number

    def overlap(self, other: "Box") -> Number:
        """The shared area, 0 when the two only touch."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(width, 0.0) * max(height, 0.0)

    def within(self, other: "Box") -> bool:
        """Whether no part lies outside `other`."""
        return self.overlap(other) >= (self.right - self.left) * (self.bottom - self.top) - 1e-6

    @property
    def centre(self) -> tuple[Number, Number]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


def text_box(text: str, size: Number) -> tuple[Number, Number]:
    """Width and height in pixels that `text` needs at a font size, a little generously."""
    return 0.6 * size * len(text) + 4, size + 4


def place_labels(
    cells: Sequence[tuple[int, int]],
    texts: Sequence[str],
    weight: Float[np.ndarray, "row column"],
    *,
    cell: tuple[Number, Number],
    size: Number,
    avoid: Iterable[tuple[int, int]] = (),
    filled: Iterable[tuple[int, int]] = (),
) -> list[Box]:
    """A box for each text beside its cell (row, column), the first ones choosing first.

    Where the text fits into its cell, that is its place. Otherwise it goes right, left, diagonally,
    below or above: not over a labelled cell, one of `avoid`, an earlier label or the frame if that
    can be helped, and over as little of `weight` (say |effect|) as possible.

    Args:
        weight: what it costs to hide each cell; its shape is the map's.
        cell: width and height of a cell in pixels.
        filled: cells with a number of their own; a text fits only if both do, one above the other.
    """
    n_rows, n_columns = weight.shape
    filled = {*filled}
    frame = Box(0, 0, n_columns * cell[0], n_rows * cell[1])
    marked = [cell_box(*position, cell) for position in {*cells, *avoid}]
    placed: list[Box] = []
    for position, text in zip(cells, texts, strict=True):
        own = cell_box(*position, cell)
        width, height = text_box(text, size)
        if width <= cell[0] and height * (1 + (position in filled)) <= cell[1]:
            placed.append(own)
            continue
        others = [box for box in marked if box != own]
        placed.append(
            min(
                around(own, width, height),
                key=lambda box: (
                    conflict(box, [*others, *placed], frame),
                    _hidden(box, weight, cell),
                ),
            )
        )
    return placed


def square(x: Number, y: Number, half: Number) -> Box:
    """The square around a pixel."""
    return Box(x - half, y - half, x + half, y + half)


def cell_box(row: int, column: int, cell: tuple[Number, Number]) -> Box:
    """The pixels of one cell."""
    width, height = cell
    return Box(column * width, row * height, (column + 1) * width, (row + 1) * height)


def around(own: Box, width: Number, height: Number) -> list[Box]:
    """Candidate places, best first (`min` keeps the first of equals)."""
    x, y = own.centre
    gap = 3.0
    right, left = own.right + gap, own.left - gap - width
    below, above = own.bottom + 1, own.top - 1 - height
    corners = [
        (right, y - height / 2),
        (left, y - height / 2),
        (right - gap, above + gap),
        (right - gap, below - gap),
        (left + gap, above + gap),
        (left + gap, below - gap),
        (x - width / 2, below),
        (x - width / 2, above),
    ]
    return [Box(a, b, a + width, b + height) for a, b in corners]


def conflict(box: Box, taken: Iterable[Box], frame: Box) -> Number:
    """Pixels of `box` over what is taken; all of them count where it leaves the frame."""
    overlap = sum(box.overlap(other) for other in taken)
    if not box.within(frame):
        overlap += (box.right - box.left) * (box.bottom - box.top)
    return overlap


def freest(spots: Sequence[Box], taken: Sequence[Box], frame: Box) -> Box:
    """The place with the least `conflict`; the first of equals."""

    def sides(boxes: Sequence[Box]) -> Float[np.ndarray, "side=4 box"]:
        ends = [(box.left, box.top, box.right, box.bottom) for box in boxes]
        return np.array(ends, float).reshape(-1, 4).T

    def shared(
        a: Float[np.ndarray, "side box 1"], b: Float[np.ndarray, "side spot"]
    ) -> Float[np.ndarray, "box spot"]:
        width = np.minimum(a[2], b[2]) - np.maximum(a[0], b[0])
        height = np.minimum(a[3], b[3]) - np.maximum(a[1], b[1])
        return np.maximum(width, 0.0) * np.maximum(height, 0.0)

    places = sides(spots)
    size = (places[2] - places[0]) * (places[3] - places[1])
    covered = shared(sides(taken)[..., None], places).sum(0)
    outside = shared(sides([frame])[..., None], places)[0] < size - 1e-6
    return spots[int((covered + outside * size).argmin())]


def _hidden(box: Box, weight: Float[np.ndarray, "row column"], cell: tuple[Number, Number]) -> int:
    """Weight under the box, in tenths of the largest: less does not count."""
    rows = range(max(int(box.top // cell[1]), 0), min(int(box.bottom // cell[1]) + 1, len(weight)))
    columns = range(
        max(int(box.left // cell[0]), 0), min(int(box.right // cell[0]) + 1, weight.shape[1])
    )
    area = cell[0] * cell[1]
    covered = (
        box.overlap(cell_box(row, column, cell)) / area * float(weight[row, column])
        for row in rows
        for column in columns
        if np.isfinite(weight[row, column])
    )
    return round(10 * sum(covered) / (float(np.nanmax(weight)) or 1.0))


def spread(
    wanted: Sequence[Number], gap: Number, low: Number, high: Number
) -> Float[np.ndarray, " label"]:
    """Heights near the wanted ones, at least `gap` apart and between `low` and `high`.

    The order of the wanted heights is kept, and neighbours that clash move by equal amounts. Where
    there is no room for all, they overflow below `high`.
    """
    order = np.argsort(np.asarray(wanted, float), kind="stable")
    groups: list[tuple[Number, int]] = []  # of touching labels: the first one's height, how many
    for height in (float(wanted[index]) for index in order):
        groups.append((_held(height, 1, gap, low, high), 1))
        while len(groups) > 1 and groups[-2][0] + groups[-2][1] * gap > groups[-1][0]:
            (first, many), (second, more) = groups[-2:]
            both = many + more
            mean = (many * first + more * (second - many * gap)) / both
            groups[-2:] = [(_held(mean, both, gap, low, high), both)]
    result = np.empty(len(order))
    result[order] = [first + i * gap for first, many in groups for i in range(many)]
    return result


def _held(first: Number, many: int, gap: Number, low: Number, high: Number) -> Number:
    """The first height of a group, moved so that the group stays between the ends."""
    return max(min(first, high - (many - 1) * gap), low)


LEFT, TOP, LINE, HEADING = 62, 40, 17, 26
"""Pixels: left margin, top margin, height of a line of small print, of a heading above a row."""
RIGHT = 118
"""Pixels: the room for a colour bar right of the panels."""

_SMALL_PRINT = "note"  # the name of its annotations
_TITLE_LETTER = 6.6  # pixels of a letter of a title
_LETTER = 6.0  # pixels of a letter of small print, a little generously


@dataclass(frozen=True)
class Page:
    """The size of a figure and the box of each panel, in pixels from the top left corner, and the
    lines of small print for which its foot has room."""

    size: tuple[Number, Number]
    boxes: tuple[Box, ...]
    notes: tuple[str, ...] = ()

    def paper(self, x: Number, y: Number) -> tuple[Number, Number]:
        """Pixels to plotly's fractions of the whole figure."""
        return x / self.size[0], 1 - y / self.size[1]

    def domains(self, index: int) -> tuple[list[Number], list[Number]]:
        """A panel's x and y domain."""
        box = self.boxes[index]
        x0, y1 = self.paper(box.left, box.top)
        x1, y0 = self.paper(box.right, box.bottom)
        return [max(x0, 0.0), min(x1, 1.0)], [max(y0, 0.0), min(y1, 1.0)]


def plain(text: str) -> str:
    """`text` as plotly shows it letter by letter: no tag, no entity, no formula.

    A model's name, a prompt or a token may hold `<s>`, `&amp;` or `$x$`. (`html.escape` is not
    enough, and its `&quot;` would be shown as it stands.)
    """
    for letter, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("$", "&#36;")):
        text = text.replace(letter, entity)
    return text


class Sheet:
    """A figure on its page while it is drawn; what it lacks is the figure's.

    Shapes and annotations are added together, at the end. Plotly checks all earlier ones again when
    one is added.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self._parts: dict[str, list[dict[str, Any]]] = {}
        self._figure = plotly().graph_objects.Figure()
        self._figure.update_layout(
            template="none",
            width=page.size[0],
            height=page.size[1],
            margin={"l": 0, "r": 0, "t": 0, "b": 0},
            font={"family": FONT, "size": 13, "color": TEXT},
            paper_bgcolor="white",
            plot_bgcolor="white",
            showlegend=False,
            hoverlabel={"bgcolor": "white", "font": {"family": FONT, "size": 13}},
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._figure, name)

    def add_annotation(self, **annotation: Any) -> None:
        """Plotly's `add_annotation`."""
        self._parts.setdefault("annotations", []).append(annotation)

    def add_shape(
        self, kind: str, start: XY, stop: XY, panel: int | None = None, **style: Any
    ) -> None:
        """A line or a rectangle between two corners.

        Args:
            kind: plotly's type, "line" or "rect".
            start, stop: the corners, in pixels of the page or on the axes of a panel.
            panel: the panel's index; None: the page.
            style: plotly's further arguments.
        """
        if panel is None:
            (x0, y0), (x1, y1) = self.page.paper(*start), self.page.paper(*stop)
            style |= {"xref": "paper", "yref": "paper"}
            if kind == "rect":
                y0, y1 = y1, y0
        else:
            (x0, y0), (x1, y1) = start, stop
            style |= panel_refs(panel)
        shape = {"type": kind, "x0": x0, "x1": x1, "y0": y0, "y1": y1, **style}
        self._parts.setdefault("shapes", []).append(shape)

    def write(
        self,
        text: str,
        at: XY,
        *,
        size: Number = 12,
        ink: str = TEXT,
        anchor: tuple[str, str] = ("left", "bottom"),
        **more: Any,
    ) -> None:
        """Text (plotly's markup) that stands with its `anchor` at a pixel of the page."""
        x, y = self.page.paper(*at)
        self.add_annotation(
            text=text,
            x=x,
            y=y,
            xref="paper",
            yref="paper",
            xanchor=anchor[0],
            yanchor=anchor[1],
            align=anchor[0],
            showarrow=False,
            borderpad=0,
            font={"size": size, "color": ink, **more.pop("font", {})},
            **more,
        )

    def set_axes(self, index: int, x: dict[str, Any], y: dict[str, Any]) -> None:
        """A panel's axes, with what all axes share."""
        names, domains = axis_names(index), self.page.domains(index)
        anchors = (f"y{index + 1}", f"x{index + 1}")
        for name, domain, anchor, own in zip(names, domains, anchors, (x, y), strict=True):
            style = {**_AXIS, "domain": domain, "anchor": anchor, **own}
            self._figure.update_layout({name: style})

    def add_title(self, title: str, index: int, *, lift: Number = 8) -> None:
        """The panel's letter and title (plotly's markup), above its left corner."""
        box = self.page.boxes[index]
        letter = f"{letter_of(index)}  " if len(self.page.boxes) > 1 else ""
        self.write(letter + title, (box.left, box.top - lift), size=14)

    def add_headings(self, headings: Sequence[str], across: int, *, lift: Number = 8) -> None:
        """A line of plain text above each row of panels; `lift` is that of their titles."""
        for row, heading in enumerate(headings):
            if heading:
                box = self.page.boxes[row * across]
                at = (box.left, box.top - lift - HEADING)
                self.write(plain(heading), at, size=15, font={"weight": 600})

    def add_colour_title(self, title: str) -> None:
        """The meaning of the colours, above the colour bar."""
        self.write(title, (self.page.size[0] - RIGHT + 22, self.page.boxes[0].top + 30))

    def set_colours(self, end: Number, unit: str) -> None:
        """One colour axis for all panels, with its bar right of the first row."""
        first = self.page.boxes[0]
        x, y = self.page.paper(self.page.size[0] - RIGHT + 22, first.top + 40)
        colour_bar = {
            "lenmode": "pixels",
            "len": max(min(first.bottom - first.top - 40, 330), 60),
            "thickness": 12,
            "outlinewidth": 0,
            "x": x,
            "xanchor": "left",
            "xpad": 0,
            "y": y,
            "yanchor": "top",
            "ypad": 0,
            "tickvals": ticks(end),
            "ticktext": tick_texts(end, unit),
            "tickfont": {"size": 11, "color": NOTE},
            "ticks": "outside",
            "ticklen": 3,
            "tickcolor": FRAME,
        }
        axis = {"cmin": -end, "cmax": end, "colorscale": colour_scale(), "colorbar": colour_bar}
        self._figure.update_layout(barmode="overlay", coloraxis=axis)

    def finished(self, *, left: Number | None = None) -> Figure:
        """The figure with all its parts, and with the page's small print (plain text) at its foot.

        Args:
            left: where the small print begins; None: at the first panel's left edge.
        """
        left = self.page.boxes[0].left if left is None else left
        for line, note in enumerate(self.page.notes):
            above = 12 + LINE * (len(self.page.notes) - 1 - line)
            at = (left, self.page.size[1] - above)
            self.write(plain(note), at, size=11, ink=NOTE, name=_SMALL_PRINT)
        return self._figure.update_layout(self._parts)


_AXIS: dict[str, Any] = {
    "showgrid": False,
    "zeroline": False,
    "showline": False,
    "ticks": "outside",
    "ticklen": 3,
    "tickcolor": FRAME,
    "tickfont": {"size": 11, "color": NOTE},
    "title": {"font": {"size": 13}, "standoff": 6},
}
"""What all axes share."""


def value_axis(ends: tuple[Number, Number], unit: str) -> dict[str, Any]:
    """A y axis with round numbers and grid lines."""
    low, high = ends
    at = steps(low, high)
    return {
        "range": [low, high + (high - low) / 200],  # or the top grid line is not drawn
        "tickvals": at,
        "ticktext": step_texts(at, plain(unit)),
        "ticks": "",
        "showgrid": True,
        "gridcolor": GRID,
        "zerolinecolor": FRAME,
    }


def reach(arrays: Iterable[np.ndarray | None]) -> tuple[float, float]:
    """From the lowest to the highest number, and 0, with a margin."""
    drawn = [array for array in arrays if array is not None]
    values = np.concatenate([*drawn, np.zeros(1)])
    values = values[np.isfinite(values)]
    low, high = float(values.min()), float(values.max())
    margin = 0.05 * (high - low or 1.0)
    return low - margin if low < 0 else 0.0, high + margin if high > 0 else 0.0


def axis_names(index: int) -> tuple[str, str]:
    """A panel's axes in the layout: `xaxis`, `yaxis` for the first, `xaxis2`, …"""
    suffix = "" if index == 0 else str(index + 1)
    return f"xaxis{suffix}", f"yaxis{suffix}"


def panel_refs(index: int) -> dict[str, str]:
    """The axes of a panel, for a shape or an annotation."""
    return {"xref": f"x{index + 1}", "yref": f"y{index + 1}"}


def panel_axes(index: int) -> dict[str, str]:
    """The axes of a panel, for a trace."""
    return {"xaxis": f"x{index + 1}", "yaxis": f"y{index + 1}"}


def bear_colours(figure: Figure) -> None:
    """Add an empty trace, which brings the colour bar if cells have their colours by name."""
    unseen = {"color": [0], "coloraxis": "coloraxis"}
    figure.add_scatter(x=[None], y=[None], mode="markers", marker=unseen, hoverinfo="skip")


def letter_of(index: int) -> str:
    """The letter of a panel: a, b, c…"""
    return f"<b>{'abcdefghijklmnopqrstuvwxyz'[index]}</b>"


def title_width(title: str) -> int:
    """About the pixels of a title with its letter and a gap after it."""
    return round(_TITLE_LETTER * len(f"a  {html.unescape(re.sub('<[^>]*>', '', title))}  "))


def wrapped(notes: Sequence[str], width: Number) -> tuple[str, ...]:
    """Small print in lines that fit between a page's left margin and its right edge."""
    letters = max(int((width - LEFT - 12) / _LETTER), 40)
    return tuple(line for note in notes for line in textwrap.wrap(note, letters) or [""])


def without_notes(figure: Figure) -> Figure:
    """A copy without the small print, and without the room for it, for a page that says it in
    text of its own."""
    parts = figure.to_dict()  # plain dicts: plotly's objects take long to change
    layout = parts["layout"]
    annotations = layout.get("annotations", [])
    notes = [note for note in annotations if note.get("name") != _SMALL_PRINT]
    height = layout["height"] - LINE * (len(annotations) - len(notes))
    stretch = layout["height"] / height

    def moved(y: Number) -> float:  # as far from the top as before
        return 1 - (1 - y) * stretch

    axes = [part for name, part in layout.items() if name.startswith("yaxis")]
    placed = [part for part in (*notes, *layout.get("shapes", [])) if part.get("yref") == "paper"]
    for part in [*placed, layout.get("coloraxis", {}).get("colorbar", {})]:
        part |= {key: moved(part[key]) for key in ("y", "y0", "y1") if key in part}
    for axis in axes:
        if "domain" in axis:  # else an axis of the whole page
            axis["domain"] = [max(moved(end), 0.0) for end in axis["domain"]]
    layout |= {"annotations": notes, "height": height}
    return plotly().graph_objects.Figure(parts)
