"""Pictures of circuits: layers upwards, heads on the left, MLPs on END's stream, C on top."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from arith_lens.plotting.labels import XY, Box
from arith_lens.plotting.page import Sheet, plain
from arith_lens.plotting.style import (
    COLOURS,
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
BESIDE = {"q": -0.7, "k": 0.7}
"""How far lines by q and k stand beside those by v, as shares of the widest line."""
THIN = 0.8
"""The width of the line of the smallest edge."""
HOVER_AT = (0.2, 0.35, 0.5, 0.65, 0.8)
"""Where on an edge its numbers are shown to a mouse, as shares of the way."""
EDGE = "edge"
"""The name of the shapes that are edges, and of the trace with their numbers."""
VEIL = "rgba(255,255,255,0.75)"
"""Behind texts that lines may cross."""
LEGEND = (
    "A line is the effect of sender → input of receiver → answer. It begins above the tokens at "
    'which its sender writes; "any token" means that tokens were not told apart. Circles, or boxes '
    "with a number, are heads. Bars are MLPs, as wide as their effect at END with the final norm's "
    "scale held. White boxes write before END, where no effect of their own was measured. A dotted "
    "outline: its 95% interval holds 0."
)
"""How to read every picture."""
END, EMBEDDINGS = "END", "embeddings"
ANY_TOKEN = "any token"
"""The role of senders whose tokens were not told apart."""
OUTLINE = {"color": FRAME, "width": 1}
ROLE_NAMES = {
    "operand a": "A",
    "operator": "operator",
    "operand b": "B",
    "example tokens": "examples",
}
SHORT_ROLES = ROLE_NAMES | {"operator": "op", "example tokens": "ex.", ANY_TOKEN: "any"}
ROLE_INKS = {
    "operand a": COLOURS["operand"],
    "operand b": COLOURS["operand"],
    "operator": COLOURS["operator"],
    END: TEXT,
}
"""How columns are named and coloured."""
Spot: TypeAlias = tuple[str, str]
"""A node and the role of the tokens at which it writes."""
KEPT = 18
"""The pixels of a line that says what a graph keeps alone."""
N_STEPS, ROOM_OF_SLIDER = 12, 90
"""Steps of the slider, and its height in pixels."""


@dataclass(frozen=True)
class CircuitPanel:
    """One circuit."""

    nodes: Any
    """A table with `node`, `layer`, `mean`, `low`, `high`, `held` (width and colour of MLPs), `n`,
    for what writes or reads at END."""
    edges: Any
    """A table with `sender`, `receiver`, `input`, `mean`, `low`, `high`, `n`, and perhaps `role`,
    of the tokens at which the sender writes."""
    title: str = ""
    roles: Sequence[str] = ()
    """The roles of tokens before END, from left to right."""
    shares: Sequence[tuple[str, str, float, float, float]] = ()
    """What graphs keep alone, such as this one and random ones: name, text, share, and its ends."""

    def by_token(self) -> "CircuitPanel":
        """Where tokens were not told apart: queries and MLPs read END alone, keys and values any
        token. So what sends to these alone does not stand at END."""
        if "role" in self.edges:
            return self
        at_end = self.edges["input"].isin(("q", "mlp"))
        edges = self.edges.assign(role=at_end.map({True: END, False: ANY_TOKEN}))
        joined = {*edges["receiver"], *edges["sender"][at_end]} - {EMBEDDINGS}
        nodes = self.nodes[self.nodes["node"].isin(joined)]
        return replace(self, nodes=nodes, edges=edges, roles=(ANY_TOKEN,))


@dataclass(frozen=True)
class Look:
    """Pixels of a panel."""

    width: int
    row: int
    """The height of a layer."""
    first: int
    """Across, the first column."""
    column: int
    """From one role's column to the next."""
    gap: int
    """From the last role's column to the first head at END."""
    stream: int
    """Across, END's stream."""
    half: int
    """Half of the width of the widest MLP."""
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
    head: int = 92
    foot: int = 40
    """The margins above and below."""

    def y(self, layer: int, n_layers: int) -> int:
        """Depth upwards: the embeddings below layer 0, C above the last layer."""
        return self.head + self.row * (n_layers - layer)


PAGE = Look(828, 46, 76, 82, 122, 652, 48, 118, 104, 11.0, 12, has_numbers=True)
"""A picture as wide as a page (6.9 in)."""
COLUMN = Look(396, 40, 46, 40, 46, 318, 24, 46, 36, 7.0, 11, has_numbers=False)
"""A panel as wide as a column (3.3 in)."""


def _look_of(n_panels: int, n_layers: int, n_lines: int) -> tuple[Look, int]:
    """The pixels of a panel and how many stand side by side, so that paper is high enough."""
    narrow = is_narrow()
    look = PAGE if n_panels == 1 and not narrow else COLUMN
    look = replace(look, head=look.head + KEPT * n_lines)
    across = 1 if narrow else min(n_panels, 2)
    n_rows = -(-n_panels // across)
    space = page_height() / n_rows - look.head - look.foot
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
    panels = [panel.by_token() for panel in panels]
    look, across = _look_of(len(panels), n_layers, max(len(panel.shares) for panel in panels))
    height = look.head + look.row * (n_layers + 1) + look.foot
    size = look.width * across, height * -(-len(panels) // across)
    sheet = Sheet(size, [Box(0, 0, *size)])
    sheet.set_axes(0, {"range": [0, size[0]]}, {"range": [size[1], 0]})
    sheet.update_xaxes(visible=False, fixedrange=True)
    sheet.update_yaxes(visible=False, fixedrange=True)
    sizes = [abs(float(mean)) for panel in panels for mean in panel.edges["mean"]]
    nodes = np.concatenate([panel.nodes["mean"].to_numpy(float) for panel in panels])
    held = np.concatenate([panel.nodes["held"].to_numpy(float) for panel in panels])
    limits = (
        max(sizes, default=1.0),
        symmetric_limit(nodes[np.isfinite(nodes)], 90),
        float(np.nanmax(np.abs(held), initial=0.0)) or 1.0,
    )
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
    limits: tuple[Number, Number, Number]
    """The ends of the scales: of edges, of the colours of nodes, of the widths of MLPs."""
    corner: XY
    """The panel's top left corner."""
    points: list[dict[str, Any]] = field(default_factory=list)
    """What a mouse shows, and where."""
    crossed: list[XY] = field(default_factory=list)
    """Points of the lines."""

    def draw(self, panel: CircuitPanel) -> None:
        edges = panel.edges
        places = self._places(panel, edges)
        self._scaffold(panel)
        for row in edges.sort_values("mean", key=abs).itertuples():
            ends = places[str(row.sender), str(row.role)], places[str(row.receiver), END]
            self._edge(ends, row)
        for row in panel.nodes.itertuples():
            self._node(places[str(row.node), END], row)
        for (name, role), at in places.items():
            if role != END and name != EMBEDDINGS:
                self._writer(at, name)

    @property
    def left(self) -> Number:
        return self.corner[0]

    def _y(self, layer: int) -> Number:
        return self.corner[1] + self.look.y(layer, self.n_layers)

    def _column(self, roles: Sequence[str], role: str) -> Number:
        """Across, the tokens of a role."""
        if role == END:
            return self.left + self.look.stream
        return self.left + self.look.first + self.look.column * list(roles).index(role)

    def _number(self, value: Number) -> str:
        """An effect as text: in percent if it is a share."""
        return signed(round(100 * value, 1), "%") if self.relative else signed(round(value, 2))

    def _places(self, panel: CircuitPanel, edges: Any) -> Mapping[Spot, XY]:
        """The pixel of each node: at END heads spread over their layer, MLPs on the stream; else
        on the column of the tokens at which they write."""
        look, places, heads = self.look, dict[Spot, XY](), dict[int, list[str]]()
        aside = min(look.column / 2 - 3, 36) - 8
        senders = {(str(row.sender), str(row.role)) for row in edges.itertuples()}
        for name, role in sorted(senders):
            if name == EMBEDDINGS:  # beside what writes above them
                places[name, role] = (self._column(panel.roles, role) - aside, self._y(-1))
            elif role != END:
                shift = 0 if name.startswith("MLP") else 22
                x = self._column(panel.roles, role) + aside / 2
                places[name, role] = (x, self._y(_layer(name)) + 8 - shift)
        for row in panel.nodes.itertuples():
            name, layer = str(row.node), int(row.layer)
            if name.startswith("MLP"):
                places[name, END] = (self.left + look.stream, self._y(layer) - 10)
            else:
                heads.setdefault(layer, []).append(name)
        first = look.first + look.column * (len(panel.roles) - 1) + look.gap
        room = look.stream - look.half - 18 - first
        for number, (layer, names) in enumerate(sorted(heads.items())):
            step = min(look.step, room / max(len(names) - 0.5, 1))
            start = first + (step / 2 if number % 2 else 0)  # neighbours stand side by side
            widest = max(map(self._half, names)) * 2 + 2
            for index, name in enumerate(sorted(names)):
                lift = 18 * (index % 2) * (step < widest)  # or each second one above the others
                places[name, END] = (self.left + start + index * step, self._y(layer) + 8 - lift)
        return places

    def _scaffold(self, panel: CircuitPanel) -> None:
        look, left, stream = self.look, self.left, self.left + self.look.stream
        for layer in range(self.n_layers):
            y = self._y(layer) + 8
            self._shape("line", (left + 26, y), (left + look.width - 12, y), GRID, 1)
            self._text(str(layer), (left + 15, y), NOTE)
        self._text("layer", (left + 18, self._y(self.n_layers) + 6), NOTE)
        top, bottom = self._y(self.n_layers) + 10, self._y(-1)
        self._shape("line", (stream, top), (stream, bottom), PALE, 5)
        for role in (*panel.roles, END):
            x, half = self._column(panel.roles, role), min(look.column / 2 - 3, 36)
            if role != END:
                self._shape("line", (x, self._y(self.n_layers - 1) + 8), (x, bottom), PALE, 1.5)
            self._box((x - half, bottom - 10), (x + half, bottom + 10), "white", OUTLINE)
            text = (ROLE_NAMES if look.has_numbers else SHORT_ROLES).get(role, role)
            self._text(f"<b>{plain(text)}</b>", (x, bottom), ROLE_INKS.get(role, NOTE))
        half = max(look.half, 34)
        self._box((stream - half, top - 20), (stream + half, top), PALE, {"width": 0})
        self._text("<b>answer C</b>", (stream, top - 10), TEXT)
        if panel.title:
            at = (left + 12, self.corner[1] + 16)
            self._text(plain(panel.title), at, TEXT, anchor="left", size=look.size + 3)
        self._key(panel)
        for line, one in enumerate(panel.shares):
            self._keeps(line, *one)

    def _keeps(self, line: int, name: str, text: str, *numbers: float) -> None:
        """What a graph keeps alone: a dot with its ends, between nothing and all of it."""
        y = self.corner[1] + (64 if self.look.has_numbers else 82) + KEPT * line
        ink = COLOURS["control"] if line else TEXT
        start, length = self.left + 18 + 11 * self.look.size, 0.28 * self.look.stream
        at, *ends = (start + length * min(max(one, 0.0), 1.0) for one in numbers)
        self._text(plain(name), (self.left + 12, y), NOTE, anchor="left")
        self._shape("line", (start, y), (start + length, y), PALE, 1.5)
        self._shape("line", (ends[0], y), (ends[1], y), ink, 2)
        self._box((at - 4, y - 4), (at + 4, y + 4), ink, {"width": 0}, kind="circle")
        self._text(plain(text), (start + length + 8, y), TEXT, anchor="left")

    def _key(self, panel: CircuitPanel) -> None:
        """What the lines and colours mean that the panel has."""
        look, y = self.look, self.corner[1] + 42
        x, length = self.left + 12, 30 if self.look.has_numbers else 22
        inputs = {*panel.edges["input"]}
        names = {"v": "by values", "k": "by keys", "q": "by queries"}
        for name, text in ((name, text) for name, text in names.items() if name in inputs):
            line = {"color": TEXT, "width": 2.5, "dash": DASHES[name]}
            self.sheet.add_shape("line", (x, y), (x + length, y), 0, line=line)
            self._text(text, (x + length + 5, y), NOTE, anchor="left")
            x += length + 16 + 0.55 * look.size * len(text)
        if not look.has_numbers:
            x, y = self.left + 12, y + 20
        values = [*panel.edges["mean"], *panel.nodes["mean"]]
        signs = ((-1, "helps C"), (1, "hinders C"))
        for sign, text in ((s, text) for s, text in signs if any(s * one > 0 for one in values)):
            line = {"color": colour_at(0.9 * sign, 1.0), "width": look.thick}
            self.sheet.add_shape("line", (x, y), (x + length, y), 0, line=line)
            if sign < 0:
                unit = "" if self.relative or not look.has_numbers else " logits"
                text += f" (to {self._number(-self.limits[0])}{unit})"
            self._text(text, (x + length + 5, y), NOTE, anchor="left")
            x += length + 18 + 0.55 * look.size * len(text)

    def _edge(self, ends: tuple[XY, XY], row: Any) -> None:
        """A curve from the sender up to the receiver."""
        (x0, y0), (x1, y1) = ends
        if row.input in BESIDE:  # lines of one sender into several inputs stand side by side
            x0, x1 = (x + BESIDE[str(row.input)] * self.look.thick for x in (x0, x1))
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
        self.crossed.extend(_on_curve(points, step / 60) for step in range(61))
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
        where = f" at {ROLE_NAMES.get(row.role, row.role)}"
        where = "" if row.role in (END, ANY_TOKEN) else where
        text = self._hover(f"{row.sender}{where} → {row.receiver}{by}", row)
        for share_of_way in HOVER_AT:
            self._point(EDGE, _on_curve(points, share_of_way), text, size)

    def _node(self, at: XY, row: Any) -> None:
        """What writes or reads at END, with its own effect."""
        (x, y), name, look = at, str(row.node), self.look
        is_mlp = name.startswith("MLP")
        value = float(row.held) if is_mlp and np.isfinite(row.held) else float(row.mean)
        fill, certain = colour_at(value, self.limits[1]), row.low * row.high > 0
        outline = {"color": TEXT if certain else FRAME, "width": 1.2}
        outline["dash"] = "solid" if certain else "dot"
        self._point("node", at, self._hover(name, row), abs(float(row.mean)))
        size = self._number(value)
        if is_mlp:
            half = 6 + (look.half - 6) * min(abs(value) / self.limits[2], 1.0)
            self._box((x - half, y - 8), (x + half, y + 8), fill, outline)
            end = self.left + look.width - 6
            if look.has_numbers:
                self._text(f"<b>{name}</b> {size}", (end, y), TEXT, anchor="right", bgcolor=VEIL)
            else:
                self._text(_short(name), (end, y), TEXT, anchor="right", bgcolor=VEIL)
        elif look.has_numbers:
            self._box((x - 10, y - 10), (x + 10, y + 10), fill, outline, kind="circle")
            both = f'<b>{name}</b><br><span style="color:{NOTE}">{size}</span>'
            self._text(both, self._free_place(at), TEXT)
        else:
            half = self._half(name)
            self._box((x - half, y - 8), (x + half, y + 8), fill, outline)
            self._text(name, at, ink_on(fill))

    def _free_place(self, at: XY) -> XY:
        """Beside a head, the middle of a text of 40 × 30 pixels that the fewest lines cross."""
        (x, y), sides = at, ((-31, 0), (31, 0), (-31, -13), (31, 15), (19, -21), (-19, 25), (0, 26))
        spots = [(x + right, y + down) for right, down in sides]
        crossed = [
            sum(abs(one[0] - spot[0]) < 20 and abs(one[1] - spot[1]) < 15 for one in self.crossed)
            for spot in spots
        ]
        across, down = spots[crossed.index(min(crossed))]
        steps = [(right, below) for right in range(-18, 19, 4) for below in (-13, -6, 0, 6, 13)]
        self.crossed.extend((across + right, down + below) for right, below in steps)
        return across, down

    def _half(self, name: str) -> Number:
        """Half of the pixels of a head at END; a circle has its name beside it."""
        return 30 if self.look.has_numbers else 4 + 3.5 * len(name)

    def _writer(self, at: XY, name: str) -> None:
        """What writes at tokens before END, where its own effect was not measured."""
        short = name if self.look.has_numbers else _short(name)
        half = 4 + 3.3 * len(short)
        (x, y) = at
        self._box((x - half, y - 8), (x + half, y + 8), "white", OUTLINE)
        self._text(short, at, TEXT)

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


def _short(name: str) -> str:
    return name.replace("MLP ", "M")


def _layer(name: str) -> int:
    return int(name.removeprefix("MLP ").partition(".")[0])


def _on_curve(points: Sequence[XY], share: float) -> XY:
    """A point of a Bézier curve."""
    rest = 1 - share
    weights = (rest**3, 3 * rest**2 * share, 3 * rest * share**2, share**3)
    x, y = (sum(w * p[i] for w, p in zip(weights, points, strict=True)) for i in (0, 1))
    return x, y
