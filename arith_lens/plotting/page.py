"""The page that every figure of panels stands on: pixels, titles, small print."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from arith_lens.plotting.labels import Box
from arith_lens.plotting.style import FONT, FRAME, NOTE, TEXT, Figure, Number

LEFT, TOP, LINE = 62, 40, 17
"""Pixels: left margin, top margin, height of a line of small print."""

_SMALL_PRINT = "note"  # the name of its annotations
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


def set_page(figure: Figure, page: Page) -> None:
    """Size, type and paper."""
    figure.update_layout(
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


def axis_style() -> dict[str, Any]:
    """What all axes share."""
    return {
        "showgrid": False,
        "zeroline": False,
        "showline": False,
        "ticks": "outside",
        "ticklen": 3,
        "tickcolor": FRAME,
        "tickfont": {"size": 11, "color": NOTE},
        "title": {"font": {"size": 13}, "standoff": 6},
    }


def axis_names(index: int) -> tuple[str, str]:
    """A panel's axes in the layout: `xaxis`, `yaxis` for the first, `xaxis2`, …"""
    suffix = "" if index == 0 else str(index + 1)
    return f"xaxis{suffix}", f"yaxis{suffix}"


def add_title(figure: Figure, title: str, index: int, page: Page, *, lift: Number = 8) -> None:
    """The panel's letter and title (plotly's markup), above its left corner."""
    box = page.boxes[index]
    letter = f"<b>{'abcdefghijklmnopqrstuvwxyz'[index]}</b>  " if len(page.boxes) > 1 else ""
    write(figure, letter + title, (box.left, box.top - lift), page, size=14)


def wrapped(notes: Sequence[str], width: Number) -> tuple[str, ...]:
    """Small print in lines that fit between a page's left margin and its right edge."""
    letters = max(int((width - LEFT - 12) / _LETTER), 40)
    return tuple(line for note in notes for line in textwrap.wrap(note, letters) or [""])


def add_notes(figure: Figure, page: Page, *, left: Number | None = None) -> None:
    """The page's small print (plain text) at its foot, from the first panel's left edge on."""
    left = page.boxes[0].left if left is None else left
    for line, note in enumerate(page.notes):
        above = 12 + LINE * (len(page.notes) - 1 - line)
        at = (left, page.size[1] - above)
        write(figure, plain(note), at, page, size=11, ink=NOTE, name=_SMALL_PRINT)


def without_notes(figure: Figure) -> Figure:
    """A copy without the small print, and without the room for it, for a page that says it in
    text of its own."""
    from arith_lens.plotting.library import go

    apart: Figure = go.Figure(figure)
    layout = apart.layout
    kept = [note for note in layout.annotations if note.name != _SMALL_PRINT]
    height = layout.height - LINE * (len(layout.annotations) - len(kept))
    stretch = layout.height / height

    def moved(y: Number) -> float:  # as far from the top as before
        return 1 - (1 - y) * stretch

    for note in kept:
        if note.yref == "paper":
            note.y = moved(note.y)
    for shape in layout.shapes:
        if shape.yref == "paper":
            shape.y0, shape.y1 = moved(shape.y0), moved(shape.y1)
    for axis in apart.select_yaxes():
        if axis.domain is not None:  # None: an axis of the whole page
            axis.domain = [max(moved(end), 0.0) for end in axis.domain]
    if layout.coloraxis.colorbar.y is not None:
        layout.coloraxis.colorbar.y = moved(layout.coloraxis.colorbar.y)
    layout.annotations = kept
    layout.height = height
    return apart


def write(
    figure: Figure,
    text: str,
    at: tuple[Number, Number],
    page: Page,
    *,
    size: Number = 12,
    ink: str = TEXT,
    anchor: tuple[str, str] = ("left", "bottom"),
    **more: Any,
) -> None:
    """Text (plotly's markup) that stands with its `anchor` at a pixel of the page."""
    x, y = page.paper(*at)
    figure.add_annotation(
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
