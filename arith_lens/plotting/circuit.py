"""The picture of a circuit: layers upwards, heads on the left, MLPs on END's stream, C on top."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from arith_lens.plotting.labels import XY, Box
from arith_lens.plotting.page import Sheet, plain
from arith_lens.plotting.style import (
    BLUE,
    FRAME,
    GRID,
    NOTE,
    PALE,
    TEXT,
    Figure,
    Number,
    colour_at,
    ink_on,
    signed,
    symmetric_limit,
)

WIDTH, ROW, FOOT, HEAD = 662, 42, 76, 64
"""Pixels: a page's width in print (6.9 in), the height of a layer, the margins below and above."""
STREAM, FIRST = 560, 90
"""Pixels across: END's stream, the first head."""
THIN, THICK = 0.8, 9.0
"""The width of a line, from the smallest to the largest edge."""
DASHES = {"q": "dot", "k": "dash", "v": "solid", "mlp": "solid"}
SIZE = 10
"""The size of all texts but the title: 7.5 pt at 6.9 in."""


def draw_circuit(nodes: Any, edges: Any, n_layers: int, *, title: str = "") -> Figure:
    """Draw nodes and edges with the columns of `CircuitGraph`.

    Args:
        nodes: a table with `node`, `layer`, `mean`, `low`, `high`, `held` (colours of MLPs).
        edges: a table with `sender`, `receiver`, `input`, `mean`, `low`, `high`.
        n_layers: the number of layers.
        title: a heading.
    """
    height = HEAD + ROW * (n_layers + 1) + FOOT
    notes = [
        "Lines: effect of sender → input of receiver → answer (width, colour: red helps). Solid: "
        "by v or into an MLP; dashed: by k; dotted: by q. Circles: heads. Boxes: MLPs, coloured "
        "by their effect with the final norm's scale held."
    ]
    sheet = Sheet((WIDTH, height), [Box(0, 0, WIDTH, height)], notes)
    sheet.update_xaxes(visible=False)
    sheet.update_yaxes(visible=False)
    sheet.add_scatter(x=[None], y=[None], hoverinfo="skip")  # without a trace nothing is drawn
    places = _places(nodes, n_layers)
    _scaffold(sheet, n_layers, title)
    widest = float(edges["mean"].abs().max()) if len(edges) else 1.0
    for row in edges.sort_values("mean", key=abs).itertuples():
        _edge(sheet, places, row, widest)
    sizes = nodes["mean"].to_numpy(float)
    limit = symmetric_limit(sizes[np.isfinite(sizes)], 90)
    for row in nodes.itertuples():
        _node(sheet, places[str(row.node)], row, limit)
    return sheet.finished(left=12)


def _y(layer: int, n_layers: int) -> Number:
    """Depth upwards: the embeddings below layer 0, C above the last layer."""
    return HEAD + ROW * (n_layers - layer)


def _places(nodes: Any, n_layers: int) -> Mapping[str, XY]:
    """The pixel of each node: heads spread over their layer, MLPs on END's stream."""
    places: dict[str, XY] = {"C": (STREAM, _y(n_layers, n_layers) - 26)}
    heads: dict[int, list[str]] = {}
    for row in nodes.itertuples():
        name, layer = str(row.node), int(row.layer)
        if layer < 0:
            places[name] = ((FIRST + STREAM) / 2 - 40, _y(-1, n_layers) + 12)
        elif name.startswith("MLP"):
            places[name] = (STREAM, _y(layer, n_layers) - 10)
        else:
            heads.setdefault(layer, []).append(name)
    for number, (layer, names) in enumerate(sorted(heads.items())):
        step = min(96.0, (STREAM - 90 - FIRST) / max(len(names), 1))
        start = FIRST + (step / 2 if number % 2 else 0)  # neighbours in depth stand side by side
        for index, name in enumerate(sorted(names)):
            places[name] = (start + index * step, _y(layer, n_layers) + 8)
    return places


def _scaffold(sheet: Sheet, n_layers: int, title: str) -> None:
    for layer in range(n_layers):
        y = _y(layer, n_layers) + 8
        sheet.add_shape(
            "line", (36, y), (WIDTH - 20, y), line={"color": GRID, "width": 1}, layer="below"
        )
        _text(sheet, str(layer), (22, y), NOTE)
    _text(sheet, "layer", (22, _y(n_layers, n_layers) - 4), NOTE)
    top, bottom = _y(n_layers, n_layers) - 16, _y(-1, n_layers) + 12
    sheet.add_shape(
        "line", (STREAM, top), (STREAM, bottom), line={"color": PALE, "width": 4}, layer="below"
    )
    _text(sheet, "END", (STREAM, bottom + 10), NOTE)
    box = (STREAM - 42, top - 20), (STREAM + 42, top)
    sheet.add_shape("rect", *box, fillcolor=BLUE, line={"width": 0})
    _text(sheet, "logit of C", (STREAM, top - 10), "white", bold=True)
    if title:
        _text(sheet, title, (12, 16), TEXT, anchor="left", size=14)


def _edge(sheet: Sheet, places: Mapping[str, XY], row: Any, widest: Number) -> None:
    """A curve from the sender up to the receiver."""
    (x0, y0), (x1, y1) = places[str(row.sender)], places[str(row.receiver)]
    middle = (y0 + y1) / 2
    into_mlp = str(row.receiver).startswith("MLP")
    if into_mlp:  # arrive from the left
        control = (x0 + 0.7 * (x1 - x0), y0, x0 + 0.5 * (x1 - x0), y1)
        if abs(x1 - x0) < 1:
            control = (x0 + 90, y0, x1 + 90, y1)
    else:
        control = (x0, middle, x1, middle)
    size = abs(float(row.mean)) / widest
    colour = colour_at((0.35 + 0.65 * size) * (1 if row.mean > 0 else -1), 1.0)
    line = {"width": THIN + (THICK - THIN) * size, "color": colour, "dash": DASHES[str(row.input)]}
    controls = (control[:2], control[2:])
    sheet.add_curve((x0, y0), controls, (x1, y1), line=line, layer="below")


def _node(sheet: Sheet, at: XY, row: Any, limit: Number) -> None:
    x, y = at
    name = str(row.node)
    if int(row.layer) < 0:
        sheet.add_shape(
            "rect", (x - 46, y - 10), (x + 46, y + 10), fillcolor="white",
            line={"color": FRAME, "width": 1},
        )  # fmt: skip
        _text(sheet, name, (x, y), TEXT)
        return
    is_mlp = name.startswith("MLP")
    value = float(row.held) if is_mlp and np.isfinite(row.held) else float(row.mean)
    fill, certain = colour_at(value, limit), row.low * row.high > 0
    line = {
        "color": TEXT if certain else FRAME,
        "width": 1.4,
        "dash": "solid" if certain else "dot",
    }
    size = signed(round(100 * value, 1), "%")
    if is_mlp:
        sheet.add_shape("rect", (x - 42, y - 9), (x + 42, y + 9), fillcolor=fill, line=line)
        _text(sheet, f"<b>{name}</b> {size}", (x, y), ink_on(fill), markup=True)
        return
    sheet.add_shape("circle", (x - 10, y + 10), (x + 10, y - 10), fillcolor=fill, line=line)
    _text(sheet, f"<b>{name}</b>", (x - 13, y - 6), TEXT, anchor="right", markup=True)
    _text(sheet, size, (x - 13, y + 6), NOTE, anchor="right")


def _text(
    sheet: Sheet,
    text: str,
    at: XY,
    ink: str,
    *,
    anchor: str = "center",
    size: int = SIZE,
    bold: bool = False,
    markup: bool = False,
) -> None:
    x, y = sheet.paper(*at)
    sheet.add_annotation(
        x=x, y=y, xref="paper", yref="paper", showarrow=False, xanchor=anchor, yanchor="middle",
        text=text if markup else plain(text),
        font={"size": size, "color": ink, "weight": 600 if bold else 400},
    )  # fmt: skip
