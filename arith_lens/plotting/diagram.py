"""Diagrams: boxes with texts, arrows between points, and a key of their colours."""

from collections.abc import Sequence
from dataclasses import dataclass

from arith_lens.plotting.page import (
    LEFT,
    LINE,
    Box,
    Page,
    add_notes,
    page_figure,
    plain,
    text_box,
    wrapped,
    write,
)
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

    start: tuple[Number, Number]
    stop: tuple[Number, Number]
    colour: str = NOTE
    width: Number = 1.4
    head: bool = True


@dataclass(frozen=True)
class Label:
    """A text at a pixel."""

    text: str
    """Plain text; line breaks are kept."""
    at: tuple[Number, Number]
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
    figure = page_figure(page)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.add_scatter(x=[None], y=[None], hoverinfo="skip")  # without a trace nothing is drawn
    for arrow in arrows:
        _add_arrow(figure, arrow, page)
    for node in nodes:
        _add_node(figure, node, page)
    for label in labels:
        _add_label(figure, label, page)
    _add_legend(figure, legend, (LEFT / 2, height - 10), page)
    add_notes(figure, page, left=LEFT / 2)
    return figure.finished()


def _add_arrow(figure: Figure, arrow: Arrow, page: Page) -> None:
    """A line as a shape; its head is that of an annotation without a text."""
    (x0, y0), (x1, y1) = page.paper(*arrow.start), page.paper(*arrow.stop)
    line = {"width": arrow.width, "color": arrow.colour}
    figure.add_shape(type="line", xref="paper", yref="paper", x0=x0, y0=y0, x1=x1, y1=y1, line=line)
    if arrow.head:
        figure.add_annotation(
            x=x1,
            y=y1,
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


def _add_node(figure: Figure, node: Node, page: Page) -> None:
    box = node.box
    (x0, y1), (x1, y0) = page.paper(box.left, box.top), page.paper(box.right, box.bottom)
    figure.add_shape(
        type="rect",
        xref="paper",
        yref="paper",
        x0=x0,
        y0=y0,
        x1=x1,
        y1=y1,
        fillcolor=node.fill,
        line={"width": 1, "color": FRAME},
    )
    ink = "white" if is_dark(node.fill) else TEXT
    _add_label(
        figure,
        Label(node.text, box.centre, node.size, ink, ("center", "middle"), node.bold),
        page,
    )


def _add_label(figure: Figure, label: Label, page: Page) -> None:
    if label.text:
        write(
            figure,
            plain(label.text).replace("\n", "<br>"),
            label.at,
            page,
            size=label.size,
            ink=label.ink,
            anchor=label.anchor,
            font={"weight": 600 if label.bold else 400},
        )


def _add_legend(
    figure: Figure, legend: Sequence[tuple[str, str]], at: tuple[Number, Number], page: Page
) -> None:
    left, bottom = at
    for name, colour in legend:
        _add_node(figure, Node(Box(left, bottom - 14, left + 14, bottom), fill=colour), page)
        label = Label(name, (left + 20, bottom), _KEY, NOTE)
        _add_label(figure, label, page)
        left += 38 + text_box(name, _KEY)[0]
