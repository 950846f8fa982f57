"""Pictures of circuits: layers upwards, heads on the left, MLPs on END's stream, C on top."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from arith_lens.plotting.labels import XY, Box
from arith_lens.plotting.page import LINE, MOST_LINES, Sheet, plain
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
    plotly,
    signed,
    symmetric_limit,
)
from arith_lens.plotting.widths import is_narrow, page_height

DASHES = {"q": "dot", "k": "dash", "v": "solid", "mlp": "solid"}
THIN = 0.8
"""The width of the line of the smallest edge."""
HOVER_AT = (0.2, 0.35, 0.5, 0.65, 0.8)
"""Where on an edge its numbers are shown to a mouse, as shares of the way."""
EDGE = "edge"
"""The name of the shapes that are edges, and of the trace with their numbers."""
VEIL = "rgba(255,255,255,0.75)"
"""Behind texts that lines may cross."""
LEGEND = (
    "Lines: effect of sender → input of receiver → answer (width, colour: red helps, blue hinders)."
    " Solid: by v, or into an MLP; dashed: by k; dotted: by q. Colours of nodes: their own effect, "
    "of MLPs with the final norm's scale held. Dotted outline: its 95% interval holds 0."
)
"""How to read a picture."""
N_STEPS, ROOM_OF_SLIDER = 12, 90
"""Steps of the slider, and its height in pixels."""


@dataclass(frozen=True)
class CircuitPanel:
    """One circuit."""

    nodes: Any
    """A table with `node`, `layer`, `mean`, `low`, `high`, `held` (colours of MLPs), `n`."""
    edges: Any
    """A table with `sender`, `receiver`, `input`, `mean`, `low`, `high`, `n`."""
    title: str = ""


@dataclass(frozen=True)
class Look:
    """Pixels of a panel."""

    width: int
    row: int
    """The height of a layer."""
    first: int
    """Across, the first head."""
    stream: int
    """Across, END's stream."""
    half: int
    """Half of the width of an MLP's box."""
    step: int
    """The largest distance of two heads."""
    bulge: int
    """How far an edge between two MLPs stands out."""
    thick: Number
    """The width of the line of the largest edge."""
    size: Number
    """The size of texts."""
    has_numbers: bool
    """Whether effects stand beside their nodes."""
    head: int = 64
    foot: int = 52
    """The margins above and below."""

    def y(self, layer: int, n_layers: int) -> int:
        """Depth upwards: the embeddings below layer 0, C above the last layer."""
        return self.head + self.row * (n_layers - layer)


PAGE = Look(828, 50, 110, 700, 54, 118, 96, 10.0, 12, has_numbers=True)
"""A picture as wide as a page (6.9 in)."""
COLUMN = Look(396, 40, 54, 346, 30, 48, 52, 7.0, 11, has_numbers=False)
"""A panel as wide as a column (3.3 in)."""


def _look_of(n_panels: int, n_layers: int) -> tuple[Look, int]:
    """The pixels of a panel and how many stand side by side, so that paper is high enough."""
    narrow = is_narrow()
    look = PAGE if n_panels == 1 and not narrow else COLUMN
    across = 1 if narrow else min(n_panels, 2)
    n_rows = -(-n_panels // across)
    space = (page_height() - LINE * MOST_LINES) / n_rows - look.head - look.foot
    return replace(look, row=int(min(look.row, max(space / (n_layers + 1), 12)))), across


def draw_circuits(
    panels: Sequence[CircuitPanel], n_layers: int, *, relative: bool = True
) -> Figure:
    """Draw circuits side by side on one scale of widths and colours.

    One circuit is as wide as a page, and has numbers beside its nodes. Of several, each is as wide
    as a column of a paper, where they stand one below the other. A mouse shows the effect of each
    edge and node with its interval.

    Args:
        panels: the circuits.
        n_layers: the number of layers.
        relative: whether effects are shares, shown in percent.
    """
    look, across = _look_of(len(panels), n_layers)
    height = look.head + look.row * (n_layers + 1) + look.foot
    size = look.width * across, height * -(-len(panels) // across)
    sheet = Sheet(size, [Box(0, 0, *size)], [LEGEND])
    sheet.set_axes(0, {"range": [0, size[0]]}, {"range": [size[1], 0]})
    sheet.update_xaxes(visible=False, fixedrange=True)
    sheet.update_yaxes(visible=False, fixedrange=True)
    sizes = [abs(float(mean)) for panel in panels for mean in panel.edges["mean"]]
    nodes = np.concatenate([panel.nodes["mean"].to_numpy(float) for panel in panels])
    limits = max(sizes, default=1.0), symmetric_limit(nodes[np.isfinite(nodes)], 90)
    drawn = [
        _Drawing(
            sheet,
            look,
            n_layers,
            relative,
            limits,
            (index % across * look.width, index // across * height),
        )
        for index in range(len(panels))
    ]
    for drawing, panel in zip(drawn, panels, strict=True):
        drawing.draw(panel)
    points = [point for drawing in drawn for point in drawing.points]
    for name in (EDGE, "node"):
        nodes_of_kind = [point for point in points if point["kind"] == name]
        sheet.add_scatter(
            x=[point["at"][0] for point in nodes_of_kind],
            y=[point["at"][1] for point in nodes_of_kind],
            text=[point["text"] for point in nodes_of_kind],
            customdata=[point["size"] for point in nodes_of_kind],
            name=name,
            mode="markers",
            marker={"size": 14, "color": "rgba(0,0,0,0)"},
            hovertemplate="%{text}<extra></extra>",
        )
    return sheet.finished(left=12)


def with_slider(figure: Figure) -> Figure:
    """A copy of a picture of circuits with a slider for the least effect that is drawn."""
    edges = next(trace for trace in figure.data if trace.name == EDGE)
    layout = figure.layout.to_plotly_json()
    sizes = np.unique(np.array(edges.customdata, dtype=float))
    if len(sizes) < 2:
        return figure
    least = np.unique(np.quantile(sizes, np.linspace(0, 1, N_STEPS), method="lower"))
    steps = []
    for threshold in least:
        chosen = [i for i, size in enumerate(edges.customdata) if float(size) >= threshold]
        data = {name: [[edges[name][i] for i in chosen]] for name in ("x", "y", "text")}
        shapes = [one for one in layout["shapes"] if _size_of(one) >= threshold]
        steps.append(
            {
                "method": "update",
                "label": f"{threshold:.3g}",
                "args": [data, {"shapes": shapes}, [figure.data.index(edges)]],
            }
        )
    slider = {
        "steps": steps,
        "currentvalue": {"prefix": "least effect that is drawn: "},
        "x": 0.02,
        "len": 0.96,
        "y": 0,
        "yanchor": "top",
    }
    layout |= {"sliders": [slider], "margin": {"l": 0, "r": 0, "t": 0, "b": ROOM_OF_SLIDER}}
    layout["height"] += ROOM_OF_SLIDER
    return plotly().graph_objects.Figure({"data": figure.data, "layout": layout})


def _size_of(shape: Mapping[str, Any]) -> float:
    """The size of the edge that a shape is; infinite for other shapes."""
    kind, _, size = str(shape.get("name", "")).partition(" ")
    return float(size) if kind == EDGE else float("inf")


@dataclass(frozen=True)
class _Drawing:
    """One panel while it is drawn."""

    sheet: Sheet
    look: Look
    n_layers: int
    relative: bool
    limits: tuple[Number, Number]
    """The ends of the scales of edges and of nodes."""
    corner: XY
    """The panel's top left corner."""
    points: list[dict[str, Any]] = field(default_factory=list)
    """What a mouse shows, and where."""

    def draw(self, panel: CircuitPanel) -> None:
        places = self._places(panel.nodes)
        self._scaffold(panel.title)
        for row in panel.edges.sort_values("mean", key=abs).itertuples():
            self._edge(places, row)
        for row in panel.nodes.itertuples():
            self._node(places[str(row.node)], row)

    @property
    def left(self) -> Number:
        return self.corner[0]

    def _y(self, layer: int) -> Number:
        return self.corner[1] + self.look.y(layer, self.n_layers)

    def _number(self, value: Number) -> str:
        """An effect as text: in percent if it is a share."""
        return signed(round(100 * value, 1), "%") if self.relative else signed(round(value, 2))

    def _places(self, nodes: Any) -> Mapping[str, XY]:
        """The pixel of each node: heads spread over their layer, MLPs on END's stream."""
        look, places, heads = self.look, dict[str, XY](), dict[int, list[str]]()
        for row in nodes.itertuples():
            name, layer = str(row.node), int(row.layer)
            if layer < 0:
                places[name] = ((look.first + look.stream) / 2, self._y(-1) + 12)
            elif name.startswith("MLP"):
                places[name] = (look.stream, self._y(layer) - 10)
            else:
                heads.setdefault(layer, []).append(name)
        room = look.stream - look.half - 16 - look.first
        for number, (layer, names) in enumerate(sorted(heads.items())):
            step = min(look.step, room / max(len(names), 1))
            start = look.first + (step / 2 if number % 2 else 0)  # neighbours stand side by side
            for index, name in enumerate(sorted(names)):
                places[name] = (start + index * step, self._y(layer) + 8)
        return {name: (self.left + x, y) for name, (x, y) in places.items()}

    def _scaffold(self, title: str) -> None:
        look, left, stream = self.look, self.left, self.left + self.look.stream
        for layer in range(self.n_layers):
            y = self._y(layer) + 8
            self._shape("line", (left + 26, y), (left + look.width - 12, y), GRID, 1)
            self._text(str(layer), (left + 15, y), NOTE)
        self._text("layer", (left + 18, self._y(self.n_layers)), NOTE)
        top, bottom = self._y(self.n_layers) - 16, self._y(-1) + 12
        self._shape("line", (stream, top), (stream, bottom), PALE, 4)
        self._text("END", (stream, bottom + 9), NOTE)
        half = max(look.half, 30)
        self._box((stream - half, top - 18), (stream + half, top), BLUE, {"width": 0})
        self._text("answer C", (stream, top - 9), "white")
        if title:
            self._text(
                plain(title),
                (left + 12, self.corner[1] + 16),
                TEXT,
                anchor="left",
                size=look.size + 3,
            )

    def _edge(self, places: Mapping[str, XY], row: Any) -> None:
        """A curve from the sender up to the receiver."""
        (x0, y0), (x1, y1) = places[str(row.sender)], places[str(row.receiver)]
        middle = (y0 + y1) / 2
        controls = ((x0, middle), (x1, middle))
        if str(row.receiver).startswith("MLP"):  # arrive from the left
            controls = ((x0 + 0.7 * (x1 - x0), y0), (x0 + 0.5 * (x1 - x0), y1))
            if abs(x1 - x0) < 1:
                controls = ((x0 + self.look.bulge, y0), (x1 + self.look.bulge, y1))
        size = abs(float(row.mean))
        share = size / self.limits[0]
        colour = colour_at((0.35 + 0.65 * share) * (1 if row.mean > 0 else -1), 1.0)
        points = [(x0, y0), *controls, (x1, y1)]
        first, *others = [f"{x:.1f},{y:.1f}" for x, y in points]
        self.sheet.add_path(
            f"M {first} C {' '.join(others)}",
            0,
            line={
                "width": THIN + (self.look.thick - THIN) * share,
                "color": colour,
                "dash": DASHES[str(row.input)],
            },
            layer="below",
            name=f"{EDGE} {size:.6g}",
        )
        by = "" if row.input == "mlp" else f" by {row.input}"
        text = self._hover(f"{row.sender} → {row.receiver}{by}", row)
        for share_of_way in HOVER_AT:
            self._point(EDGE, _on_curve(points, share_of_way), text, size)

    def _node(self, at: XY, row: Any) -> None:
        (x, y), name, look = at, str(row.node), self.look
        if int(row.layer) < 0:
            self._box((x - 36, y - 9), (x + 36, y + 9), "white", {"color": FRAME, "width": 1})
            self._text(name, at, TEXT)
            return
        is_mlp = name.startswith("MLP")
        value = float(row.held) if is_mlp and np.isfinite(row.held) else float(row.mean)
        fill, certain = colour_at(value, self.limits[1]), row.low * row.high > 0
        outline = {"color": TEXT if certain else FRAME, "width": 1.2}
        outline["dash"] = "solid" if certain else "dot"
        self._point("node", at, self._hover(name, row), abs(float(row.mean)))
        size = self._number(float(row.mean))
        if is_mlp:
            self._box((x - look.half, y - 9), (x + look.half, y + 9), fill, outline)
            text = f"<b>{name}</b> {size}" if look.has_numbers else name
            self._text(text, at, ink_on(fill))
        elif look.has_numbers:
            self._box((x - 10, y - 10), (x + 10, y + 10), fill, outline, kind="circle")
            self._text(f"<b>{name}</b>", (x - 13, y - 6), TEXT, anchor="right", bgcolor=VEIL)
            self._text(size, (x - 13, y + 6), NOTE, anchor="right", bgcolor=VEIL)
        else:
            half = 4 + 3.5 * len(name)
            self._box((x - half, y - 8), (x + half, y + 8), fill, outline)
            self._text(name, at, ink_on(fill))

    def _hover(self, name: str, row: Any) -> str:
        low, high = self._number(float(row.low)), self._number(float(row.high))
        return f"<b>{name}</b> {self._number(float(row.mean))} [{low}, {high}], n = {int(row.n)}"

    def _point(self, kind: str, at: XY, text: str, size: float) -> None:
        self.points.append({"kind": kind, "at": at, "text": text, "size": f"{size:.6g}"})

    def _shape(self, kind: str, start: XY, stop: XY, colour: str, width: Number) -> None:
        line = {"color": colour, "width": width}
        self.sheet.add_shape(kind, start, stop, 0, line=line, layer="below")

    def _box(
        self, start: XY, stop: XY, fill: str, line: dict[str, Any], *, kind: str = "rect"
    ) -> None:
        self.sheet.add_shape(kind, start, stop, 0, fillcolor=fill, line=line)

    def _text(
        self,
        text: str,
        at: XY,
        ink: str,
        *,
        anchor: str = "center",
        size: Number | None = None,
        **more: Any,
    ) -> None:
        size = self.look.size if size is None else size
        self.sheet.write(text, at, size=size, ink=ink, anchor=(anchor, "middle"), **more)


def _on_curve(points: Sequence[XY], share: float) -> XY:
    """A point of a Bézier curve."""
    rest = 1 - share
    weights = (rest**3, 3 * rest**2 * share, 3 * rest * share**2, share**3)
    x, y = (sum(w * p[i] for w, p in zip(weights, points, strict=True)) for i in (0, 1))
    return x, y
