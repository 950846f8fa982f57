"""Diagrams: boxes with texts, arrows between points, and a key of their colours."""

from collections.abc import Sequence
from dataclasses import dataclass

from arith_lens.plotting.page import LEFT, LINE, XY, Box, Page, Sheet, plain, text_box, wrapped
from arith_lens.plotting.style import FRAME, NOTE, TEXT, Figure, Number, is_dark

_KEY = 12  # font size


@dataclass(frozen=True)
class Node:
    """A box with a text in its middle."""

    box: Box
    """In pixels of the page."""
    text: str = ""
    """Plain text; line breaks are kept."""
    fill: str = "#ffffff"
    """`#rrggbb`. The text is white on dark colours."""
    size: Number = 11
    """The font size."""
    bold: bool = False


@dataclass(frozen=True)
class Arrow:
    """A straight line from one pixel to another, with a head at its end."""

    start: XY
    stop: XY
    colour: str = NOTE
    width: Number = 1.4
    head: bool = True


@dataclass(frozen=True)
class Label:
    """A text at a pixel."""

    text: str
    """Plain text; line breaks are kept."""
    at: XY
    size: Number = 12
    ink: str = TEXT
    anchor: tuple[str, str] = ("left", "bottom")
    bold: bool = False


def diagram(
    size: tuple[Number, Number],
    nodes: Sequence[Node],
    *,
    arrows: Sequence[Arrow] = (),
    labels: Sequence[Label] = (),
    legend: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] = (),
) -> Figure:
    """A drawing on a page of its own. Arrows are below boxes.

    Args:
        size: the width and height of the page in pixels, without the small print.
        nodes, arrows, labels: what is drawn, at pixels from the top left corner.
        legend: names of the boxes' colours, with the colours; in the last line of the page.
        notes: lines below the page (plain text).
    """
    width, height = size
    lines = wrapped(notes, width)
    page = Page((width, height + LINE * len(lines) + 8), (Box(0, 0, width, height),), lines)
    sheet = Sheet(page)
    sheet.update_xaxes(visible=False)
    sheet.update_yaxes(visible=False)
    sheet.add_scatter(x=[None], y=[None], hoverinfo="skip")  # without a trace nothing is drawn
    for arrow in arrows:
        _add_arrow(sheet, arrow)
    for node in nodes:
        _add_node(sheet, node)
    for label in labels:
        _add_label(sheet, label)
    _add_legend(sheet, legend, (LEFT / 2, height - 10))
    return sheet.finished(left=LEFT / 2)


def _add_arrow(sheet: Sheet, arrow: Arrow) -> None:
    """A line as a shape; its head is that of an annotation without a text."""
    line = {"width": arrow.width, "color": arrow.colour}
    sheet.add_shape("line", arrow.start, arrow.stop, line=line)
    if arrow.head:
        x, y = sheet.page.paper(*arrow.stop)
        sheet.add_annotation(
            x=x,
            y=y,
            xref="paper",
            yref="paper",
            ax=arrow.start[0] - arrow.stop[0],
            ay=arrow.start[1] - arrow.stop[1],
            axref="pixel",
            ayref="pixel",
            text="",
            arrowhead=2,
            arrowsize=1,
            arrowwidth=arrow.width,
            arrowcolor=arrow.colour,
        )


def _add_node(sheet: Sheet, node: Node) -> None:
    box, line = node.box, {"width": 1, "color": FRAME}
    corners = (box.left, box.top), (box.right, box.bottom)
    sheet.add_shape("rect", *corners, fillcolor=node.fill, line=line)
    ink = "white" if is_dark(node.fill) else TEXT
    label = Label(node.text, box.centre, node.size, ink, ("center", "middle"), node.bold)
    _add_label(sheet, label)


def _add_label(sheet: Sheet, label: Label) -> None:
    if label.text:
        text, font = plain(label.text).replace("\n", "<br>"), {"weight": 600 if label.bold else 400}
        sheet.write(text, label.at, size=label.size, ink=label.ink, anchor=label.anchor, font=font)


def _add_legend(sheet: Sheet, legend: Sequence[tuple[str, str]], at: XY) -> None:
    left, bottom = at
    for name, colour in legend:
        _add_node(sheet, Node(Box(left, bottom - 14, left + 14, bottom), fill=colour))
        _add_label(sheet, Label(name, (left + 20, bottom), _KEY, NOTE))
        left += 38 + text_box(name, _KEY)[0]
