"""The page that every figure stands on: panels at pixels, axes, titles, colours, small print."""

import html
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from arith_lens.plotting.labels import XY, Box
from arith_lens.plotting.style import (
    COLOURS,
    DIVERGING,
    FONT,
    FRAME,
    GRID,
    NOTE,
    TEXT,
    Figure,
    Number,
    colour_bar,
    plotly,
    step_texts,
    steps,
)
from arith_lens.plotting.widths import SMALLEST, is_narrow, is_printed, page_width

LEFT, TOP, LINE, HEADING = 44, 34, 15, 26
"""Pixels: left margin, top margin, height of a line of small print, of a heading above a row."""
HEADING_LETTER, HEADING_LINE = 6.8, 17
"""Pixels: a letter of a heading, and each of its lines after the first."""
BAR = 44
"""Pixels: the room for a colour bar below the panels."""
ABOVE_NOTES = 12
"""Pixels between the picture and its small print."""
ROOM_OF_TICKS = 200
"""Pixels of a colour bar with all its ticks."""
MOST_LINES = 3
"""Lines of small print, twice as many on a phone. The text beside the picture has the rest."""
TITLE, TITLE_LETTER = 13, 0.55
"""The size of a panel's title, and the width of its letters as a share of their size."""

_SENTENCE = re.compile(r"(?<=[.;]) (?=[A-Z0-9]|[a-z](?:, [a-z])*: )")
"""Where a sentence begins; one about panels begins with their letters."""
_TAG = re.compile("<[^>]*>")
_SMALL_PRINT = "note"  # the name of its annotations
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"})
_LETTER = 5.4  # pixels of a letter of small print
_AXIS: dict[str, Any] = {
    "showgrid": False,
    "zeroline": False,
    "showline": False,
    "ticks": "outside",
    "ticklen": 3,
    "tickcolor": FRAME,
    "tickfont": {"size": 10, "color": NOTE},
    "title": {"font": {"size": 12}, "standoff": 5},
}
"""What all axes share."""


class Sheet:
    """A figure on its page while it is drawn; what it lacks is the figure's.

    Shapes and annotations are added together, at the end. Plotly checks all earlier ones again when
    one is added.
    """

    def __init__(
        self, size: tuple[Number, Number], boxes: Sequence[Box], notes: Sequence[str] = ()
    ) -> None:
        """An empty page, with room for the small print at its foot.

        Args:
            size: the width and height in pixels, without the small print.
            boxes: the box of each panel, in pixels from the top left corner.
            notes: the small print (plain text), of which the first sentences are shown that fit
                into `MOST_LINES` lines.
        """
        self.notes = wrapped(notes, size[0])
        self.size = size[0], size[1] + _height_of(self.notes)
        self.boxes = boxes
        self._parts: dict[str, list[dict[str, Any]]] = {}
        self._titles: list[tuple[str, int, Number, Number]] = []
        self._figure = plotly().graph_objects.Figure()
        self._figure.update_layout(
            template="none",
            width=self.size[0],
            height=self.size[1],
            margin={"l": 0, "r": 0, "t": 0, "b": 0},
            font={"family": FONT, "size": 13, "color": TEXT},
            paper_bgcolor="white",
            plot_bgcolor="white",
            showlegend=False,
            hoverlabel={"bgcolor": "white", "font": {"family": FONT, "size": 13}},
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._figure, name)

    def paper(self, x: Number, y: Number) -> tuple[Number, Number]:
        """Pixels to plotly's fractions of the whole figure."""
        return x / self.size[0], 1 - y / self.size[1]

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
            (x0, y0), (x1, y1) = self.paper(*start), self.paper(*stop)
            style |= {"xref": "paper", "yref": "paper"}
            if kind == "rect":
                y0, y1 = y1, y0
        else:
            (x0, y0), (x1, y1) = start, stop
            style |= panel_refs(panel)
        shape = {"type": kind, "x0": x0, "x1": x1, "y0": y0, "y1": y1, **style}
        self._parts.setdefault("shapes", []).append(shape)

    def add_path(self, path: str, panel: int, **style: Any) -> None:
        """A path of SVG on the axes of a panel; `style` has plotly's further arguments."""
        shape = {"type": "path", "path": path, **panel_refs(panel), **style}
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
        x, y = self.paper(*at)
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

    def write_in_cells(
        self,
        panel: int,
        at: tuple[Any, Any],
        texts: Sequence[str],
        *,
        size: Number,
        inks: Sequence[str],
        **more: Any,
    ) -> None:
        """Texts (plotly's markup) in the middle of a panel's cells, with an ink for each.

        Args:
            panel: the panel's index.
            at: x and y of each text, on the panel's axes.
            texts, inks: the texts and their colours.
            more: plotly's further arguments.
        """
        self.add_scatter(
            x=at[0],
            y=at[1],
            text=texts,
            mode="text",
            textfont={"size": size, "color": inks},
            hoverinfo="skip",
            **more,
            **panel_axes(panel),
        )

    def set_axes(self, index: int, x: dict[str, Any], y: dict[str, Any]) -> None:
        """A panel's axes, with what all axes share."""
        box = self.boxes[index]
        left, top = self.paper(box.left, box.top)
        right, bottom = self.paper(box.right, box.bottom)
        across = {"domain": [max(left, 0.0), min(right, 1.0)], "anchor": f"y{index + 1}"}
        up = {"domain": [max(bottom, 0.0), min(top, 1.0)], "anchor": f"x{index + 1}"}
        x_axis, y_axis = axis_names(index)
        axes = {x_axis: {**_AXIS, **across, **x}, y_axis: {**_AXIS, **up, **y}}
        self._figure.update_layout(axes)

    def add_title(
        self, title: str, index: int, *, lift: Number = 8, left: Number | None = None
    ) -> None:
        """The panel's letter and title (plotly's markup), above its left corner or from `left` on.

        All titles of a figure have one size. Where one has no room, all letters are smaller.
        """
        start = self.boxes[index].left if left is None else left
        self._titles.append((title, index, lift, start))

    def _write_titles(self) -> None:
        """Write the titles when the room of each is known."""
        starts = {index: left for _, index, _, left in self._titles}
        rooms = []
        for _, index, _, left in self._titles:
            top = self.boxes[index].top
            beside = [x for i, x in starts.items() if self.boxes[i].top == top and x > left]
            rooms.append((min(beside, default=self.size[0]) - left - 6) / TITLE_LETTER)
        letters = [
            letter_of(i) + "  " if len(self.boxes) > 1 else "" for i in range(len(self._titles))
        ]
        titles = [letter + title for letter, (title, *_) in zip(letters, self._titles, strict=True)]

        fits = [room / max(_letters(text), 1) for room, text in zip(rooms, titles, strict=True)]
        points = round(min([TITLE, *(max(one, SMALLEST) for one in fits)]), 1)
        for text, (_, index, lift, left) in zip(titles, self._titles, strict=True):
            self.write(text, (left, self.boxes[index].top - lift), size=points)

    def add_headings(
        self, headings: Sequence[str], across: int, *, lift: Number = 8, left: Number = LEFT
    ) -> None:
        """A finding (plain text) above each row of panels, from `left` on; `lift` is that of their
        titles."""
        for row, heading in enumerate(headings):
            if heading:
                box = self.boxes[row * across]
                at = (min(box.left, left), box.top - lift - HEADING + 4)
                text = "<br>".join(map(plain, heading_lines(heading)))
                self.write(text, at, size=13, font={"weight": 600})

    def set_colours(
        self,
        end: Number,
        unit: str,
        title: str,
        *,
        rising: bool = False,
        beyond: bool = False,
    ) -> None:
        """One colour axis for all panels, with its bar below the panels.

        Args:
            end: the end of the colour scale.
            unit: printed after the numbers, such as `"%"`.
            title: the meaning of the colours, in one line (plotly's markup).
            rising: whether the colours begin at 0, and not at -end.
            beyond: whether rising numbers are above `end`, and have its colour.
        """
        words = TITLE_LETTER * 11 * _letters(title) + 10
        length = min(220, self.size[0] * 0.45, max(self.size[0] - 32 - words, 90))
        left, top = self.boxes[0].left, self.size[1] - _height_of(self.notes) - BAR + 8
        if left + words + length > self.size[0] - 24:
            left, words = 8, self.size[0] - 32 - length
        x, y = self.paper(left + words, top)
        bar = colour_bar(
            end,
            unit,
            orientation="h",
            lenmode="pixels",
            len=length,
            x=x,
            xanchor="left",
            xpad=0,
            y=y,
            yanchor="top",
            ypad=0,
            tickfont={"size": 10, "color": NOTE},
            tickangle=0,
            ticks="outside",
            ticklen=3,
            tickcolor=FRAME,
        )
        if length < ROOM_OF_TICKS:  # the ends and the middle
            for name in ("tickvals", "ticktext"):
                ticks = bar[name]
                bar[name] = [ticks[0], ticks[len(ticks) // 2], ticks[-1]]
        axis = {"cmin": -end, "cmax": end, "colorscale": DIVERGING, "colorbar": bar}
        if rising:
            at = [0.0, end / 2, float(end)]
            *texts, last = step_texts(at, unit)
            bar |= {"tickvals": at, "ticktext": [*texts, "≥ " * beyond + last]}
            axis |= {"cmin": 0, "colorscale": ["#ffffff", COLOURS["verdict"]]}
        self._figure.update_layout(barmode="overlay", coloraxis=axis)
        self.write(title, (left, top - 2), size=11, anchor=("left", "top"))

    def finished(self, *, left: Number | None = None) -> Figure:
        """The figure with all its parts, and with the page's small print (plain text) at its foot.

        Args:
            left: where the small print begins; None: at the first panel's left edge.
        """
        self._write_titles()
        left = self.boxes[0].left if left is None else left
        for line, note in enumerate(self.notes):
            above = 8 + LINE * (len(self.notes) - 1 - line)
            at = (left, self.size[1] - above)
            self.write(plain(note), at, size=10, ink=NOTE, name=_SMALL_PRINT)
        return self._figure.update_layout(self._parts)


def heading_lines(text: str) -> list[str]:
    """The lines of a heading above a row of panels."""
    return textwrap.wrap(text, int((page_width() - LEFT - 8) / HEADING_LETTER))


def heading_height(text: str) -> Number:
    """The pixels that a heading above a row of panels needs; an empty one needs none."""
    return HEADING + HEADING_LINE * (len(heading_lines(text)) - 1) if text else 0


def wrapped(notes: Sequence[str], width: Number) -> list[str]:
    """The lines of the small print: as many whole sentences as fit below a page of this width."""
    letters = max(int((width - LEFT - 12) / _LETTER), 40)
    most = MOST_LINES * (3 if is_narrow() and not is_printed() else 1)
    lines: list[str] = []
    for note in notes:
        sentences = _SENTENCE.split(note)
        texts = [" ".join(sentences[:n]) for n in range(len(sentences), 0, -1)]
        wraps = (textwrap.wrap(text, letters) or [""] for text in texts)
        lines += next((some for some in wraps if len(lines) + len(some) <= most), [])
    return lines


def _height_of(notes: Sequence[Any]) -> int:
    """The pixels of so many lines of small print, with the gap above them."""
    return LINE * len(notes) + ABOVE_NOTES * bool(notes)


def _letters(markup: str) -> int:
    """How many letters of plotly's markup are seen."""
    return len(html.unescape(_TAG.sub("", markup)))


def plain(text: str) -> str:
    """`text` as plotly shows it letter by letter: no tag, no entity, no formula.

    A model's name, a prompt or a token may hold `<s>`, `&amp;` or `$x$`. (`html.escape` is not
    enough, and its `&quot;` would be shown as it stands.)
    """
    return text.translate(_ENTITIES)


def visible(token: str) -> str:
    """A token with visible characters: ` 7` is `␣7`, a line break `↵`, an empty token `""`.

    Characters without a shape are written as in Python: `\\u200b`.
    """
    marked = token.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥")
    return _spelled(marked) or '""'


def _spelled(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def letter_of(index: int) -> str:
    """The letter of a panel: a, b, c…"""
    return f"<b>{'abcdefghijklmnopqrstuvwxyz'[index]}</b>"


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


def name_axis(names: Sequence[str], strong: Sequence[bool] = ()) -> dict[str, Any]:
    """A y axis with a name (plain text) for each row, the first one at the top.

    Args:
        strong: which of them are bold; empty: none.
    """
    bold = strong or [False] * len(names)
    return {
        "range": [len(names) - 0.5, -0.5],
        "tickvals": list(range(len(names))),
        "ticktext": [
            f"<b>{plain(name)}</b>" if b else plain(name)
            for name, b in zip(names, bold, strict=True)
        ],
        "tickfont": {"size": 11, "color": TEXT},
        "ticklabelstandoff": 4,
        "ticks": "",
    }


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


def without_notes(figure: Figure) -> Figure:
    """A copy without the small print, and without the room for it, for a page that says it in
    text of its own."""
    return with_notes(figure, ())


def with_title(figure: Figure, title: str) -> Figure:
    """A copy with a title (plain text) above it."""
    width, height = figure.layout.width, figure.layout.height
    lines = textwrap.wrap(title, int((width - 24) / 9))
    room = 21 * len(lines) + 10
    copy = plotly().graph_objects.Figure(figure)
    copy.add_annotation(
        **{"x": 6 / width, "xref": "paper", "xanchor": "left", "align": "left"},
        **{"y": 1 + room / height, "yref": "paper", "yanchor": "top", "borderpad": 6},
        text="<br>".join(f"<b>{plain(line)}</b>" for line in lines),
        showarrow=False,
        font={"size": 16, "color": TEXT},
    )
    return copy.update_layout(height=height + room, margin_t=room)


def with_notes(figure: Figure, notes: Sequence[str]) -> Figure:
    """A copy with other small print (plain text) and as much room as it needs."""
    # plain dicts: plotly's objects take long to change; its traces keep their arrays
    parts = {"data": figure.data, "layout": figure.layout.to_plotly_json()}
    layout = parts["layout"]
    annotations = layout.get("annotations", [])
    small_print = [note for note in annotations if note.get("name") == _SMALL_PRINT]
    others = [note for note in annotations if note.get("name") != _SMALL_PRINT]
    lines = wrapped(notes, layout["width"])
    height = layout["height"] + _height_of(lines) - _height_of(small_print)
    stretch = layout["height"] / height

    def moved(y: Number) -> float:  # as far from the top as before
        return 1 - (1 - y) * stretch

    axes = [part for name, part in layout.items() if name.startswith("yaxis")]
    placed = [part for part in (*others, *layout.get("shapes", [])) if part.get("yref") == "paper"]
    for part in [*placed, layout.get("coloraxis", {}).get("colorbar", {})]:
        part |= {key: moved(part[key]) for key in ("y", "y0", "y1") if key in part}
    for axis in axes:
        if "domain" in axis:  # else an axis of the whole page
            axis["domain"] = [max(moved(end), 0.0) for end in axis["domain"]]
    pattern = {
        **{"name": _SMALL_PRINT, "x": LEFT / layout["width"], "xref": "paper", "yref": "paper"},
        **{"xanchor": "left", "yanchor": "bottom", "align": "left", "borderpad": 0},
        **{"showarrow": False, "font": {"size": 10, "color": NOTE}},
        **(small_print[0] if small_print else {}),
    }
    new = [
        {**pattern, "text": plain(line), "y": (8 + LINE * (len(lines) - 1 - index)) / height}
        for index, line in enumerate(lines)
    ]
    layout |= {"annotations": [*others, *new], "height": height}
    return plotly().graph_objects.Figure(parts)
