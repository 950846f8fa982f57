"""One panel of a picture of circuits, at the pixels of a page or of a column."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from arith_lens.plotting.circuit_paths import (
    EMBEDDINGS,
    END,
    Path,
    Spot,
    curves,
    joined_senders,
    on_curve,
    paths_of,
)
from arith_lens.plotting.labels import XY, Box, square, text_box
from arith_lens.plotting.page import Sheet, plain
from arith_lens.plotting.style import (
    COLOURS,
    FRAME,
    GRID,
    NOTE,
    PALE,
    TEXT,
    Number,
    colour_at,
    ink_on,
    signed,
)
from arith_lens.plotting.widths import SMALLEST, is_narrow, page_height

DASHES = {"q": "dot", "k": "dash", "v": "solid", "mlp": "solid"}
INPUT_NAMES = {"v": "read by values", "k": "by keys", "q": "by queries"}
THIN = 0.8
"""The width of the line of the smallest edge."""
LABELLED = 3
"""So many lines have their effects beside them."""
ALONG = (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74)
"""Where on a line its effect may stand, and what a mouse shows, as shares of the way."""
EDGE = "edge"
"""The name of the shapes that are edges, and of the trace with their numbers."""
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


@dataclass(frozen=True)
class CircuitPanel:
    """One circuit."""

    nodes: Any
    """A table with `node`, `layer`, `mean`, `low`, `high`, `n`, for what writes or reads at END."""
    edges: Any
    """A table with `sender`, `receiver`, `input`, `mean`, `low`, `high`, `n`, and perhaps `role`,
    of the tokens at which the sender writes."""
    title: str = ""
    """The finding (plain text); line breaks are kept."""
    subtitle: str = ""
    roles: Sequence[str] = ()
    """The roles of tokens before END, from left to right."""
    shares: Sequence[tuple[str, str, float, float, float]] = ()
    """What is left where a graph is kept alone, and below it with random graphs, perhaps of several
    measures: name, text, share, and its ends."""
    measure: str = "C"
    """What the key says that is lost or gained."""

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
    """From one role's column to the next, where there is room."""
    token: int
    """Half of the width of a token's box."""
    gap: int
    """From the last role's column to heads at END, and from these to MLPs."""
    stream: int
    """Across, END's stream."""
    half: int
    """Half of the width of an MLP."""
    lift: int
    """How far MLPs stand above the heads of their layer."""
    step: int
    """The largest distance of two heads."""
    thick: Number
    """The width of the line of the largest edge."""
    size: Number
    """The size of texts."""
    title: Number
    """The size of the title."""
    has_numbers: bool
    """Whether effects stand in nodes."""
    head: int = 0
    foot: int = 24
    """The margins above and below."""

    def y(self, layer: int, n_layers: int) -> int:
        """Depth upwards: the embeddings below layer 0, C above the last layer."""
        return self.head + self.row * (n_layers - layer)

    def lines(self, text: str, size: Number) -> list[str]:
        """The lines of a text above the drawing."""
        letters = int((self.width - 20) / (0.5 * size))
        return [line for part in text.splitlines() for line in textwrap.wrap(part, letters)]

    @property
    def is_wide(self) -> bool:
        """Whether names stand in full, and effects beside the largest edges."""
        return self.width == PAGE.width

    @property
    def line(self) -> Number:
        """The height of a line of the key."""
        return self.size + 7


PAGE = Look(828, 32, 86, 78, 36, 50, 622, 58, 12, 84, 9.0, 13, 16, has_numbers=True)
"""A picture as wide as a page (6.9 in)."""
COLUMN = Look(396, 36, 58, 38, 17, 22, 328, 18, 12, 46, 6.0, 11, 11.5, has_numbers=False)
"""A panel as wide as a column (3.3 in)."""


def look_of(panels: Sequence[CircuitPanel], n_layers: int) -> tuple[Look, int]:
    """The pixels of a panel and how many stand side by side, so that paper is high enough."""
    narrow = is_narrow()
    look = COLUMN
    if len(panels) == 1:
        look = replace(COLUMN, has_numbers=True, gap=18) if narrow else PAGE
    look = replace(look, head=max(_height_of_head(panel, look) for panel in panels))
    across = 1 if narrow else min(len(panels), 2)
    space = page_height() / -(-len(panels) // across) - look.head - look.foot
    return replace(look, row=int(min(look.row, max(space / (n_layers + 1), 12)))), across


def _height_of_head(panel: CircuitPanel, look: Look) -> int:
    """The pixels above the answer's box."""
    lines = len(look.lines(panel.title, look.title)) * (look.title + 5)
    lines += len(look.lines(panel.subtitle, look.size)) * look.line
    lines += 16 if panel.shares else 8
    rows = [len(panel.shares), len(_key_of(panel.edges))]
    return int(lines + look.line * (max(rows) if look.is_wide else sum(rows)) + 26)


def _key_of(edges: Any) -> list[str]:
    """The lines of the key that a panel needs: effects that help, that hinder, and the inputs."""
    helps = ["helps"] * bool((edges["mean"] < 0).any())
    hinders = ["hinders"] * bool((edges["mean"] > 0).any())
    return [*helps, *hinders, *["inputs"] * bool({*edges["input"]} & {*INPUT_NAMES})]


@dataclass(frozen=True)
class Drawing:
    """One panel while it is drawn."""

    sheet: Sheet
    look: Look
    n_layers: int
    relative: bool
    limits: tuple[Number, Number]
    """The ends of the scales: of edges, and of the colours of nodes."""
    corner: XY
    """The panel's top left corner."""
    points: list[dict[str, Any]] = field(default_factory=list)
    """What a mouse shows, and where."""

    def draw(self, panel: CircuitPanel) -> None:
        look, paths = self.look, paths_of(panel.edges)
        joined = {(mlp, role) for role, mlp in joined_senders(panel.edges).items()}
        boxes = self._boxes(panel, paths, joined)
        self._scaffold(panel)
        first = max(len(paths) - LABELLED, 0) if look.has_numbers else len(paths)
        texts = {i: self._number(paths[i].rows[0].mean) for i in range(first, len(paths))}
        wide = {i: text_box(text, look.size)[0] for i, text in texts.items()}
        lines = curves(paths, boxes, wide, look.width - look.stream - look.half - 12)
        for path, line in zip(paths, lines, strict=True):
            self._path(path, line)
        for row in panel.nodes.itertuples():
            self._node(boxes[str(row.node), END], row)
        for spot, box in boxes.items():
            if END not in spot and EMBEDDINGS not in spot:
                self._box(box, "white", OUTLINE)
                self._text(self._sender(spot, joined), box.centre, TEXT)
        taken = [*boxes.values()]
        for index, text in texts.items():
            taken += self._label(text, index, paths, lines, taken)

    @property
    def left(self) -> Number:
        return self.corner[0]

    def _y(self, layer: int) -> Number:
        return self.corner[1] + self.look.y(layer, self.n_layers)

    def _column(self, roles: Sequence[str], role: str) -> Number:
        """Across, the tokens of a role."""
        if role == END:
            return self.left + self.look.stream
        step = min(self.look.column, 0.45 * self.look.stream / max(len(roles), 1))
        return self.left + self.look.first + step * list(roles).index(role)

    def _number(self, value: Number) -> str:
        """An effect as text: in percent if it is a share."""
        if self.relative:
            return signed(round(100 * value, 1), "%")
        return signed(round(value, 2)) if self.look.is_wide else f"{value:+.1f}".replace("-", "−")

    def _name(self, name: str) -> str:
        return name if self.look.is_wide else name.replace("MLP ", "M")

    def _sender(self, spot: Spot, joined: set[Spot]) -> str:
        """What stands in the box of what writes before END."""
        with_embeddings = "embedding<br>" if self.look.is_wide else "emb.<br>"
        return with_embeddings * (spot in joined) + self._name(spot[0])

    def _boxes(
        self, panel: CircuitPanel, paths: Sequence[Path], joined: set[Spot]
    ) -> dict[Spot, Box]:
        """The pixels of each node: MLPs on END's stream, heads left of it, the deeper ones further
        left; what writes before END, and the tokens, on the column of these tokens."""
        look, boxes, heads = self.look, dict[Spot, Box](), dict[str, int]()
        for name, role in sorted({path.start for path in paths}):
            x, lift = self._column(panel.roles, role), look.lift if "MLP" in name else -5
            if name == EMBEDDINGS:
                boxes[name, role] = _around((x, self._y(-1)), look.token, 11)
            elif role != END:
                lines = self._sender((name, role), joined).split("<br>")
                half = max(map(len, lines)) * 0.3 * look.size + 4
                high = len(lines) * (look.size / 2 + 2) + 1
                boxes[name, role] = _around((x, self._y(_layer(name)) - lift), half, high)
        for row in panel.nodes.itertuples():
            name, layer = str(row.node), int(row.layer)
            if name.startswith("MLP"):
                at = self.left + look.stream, self._y(layer) - look.lift
                high = look.size / 2 + 4 if look.is_wide or not look.has_numbers else look.size + 5
                boxes[name, END] = _around(at, look.half, high)
            else:
                heads[name] = layer
        read = {path.stop[0] for path in paths}
        order = sorted(heads, key=lambda name: (-heads[name], name not in read, name))
        last = self._column(panel.roles, panel.roles[-1]) if panel.roles else self.left
        start, stop = last + look.gap, self.left + look.stream - look.half - look.gap
        step = min(look.step, (stop - start) / max(len(order), 1))
        for place, name in enumerate(order):
            half, high = self._half_of_head(name, step)
            beside = sum(heads[one] == heads[name] for one in order[:place])
            raised = 2 * high * (beside % 2) * (step < 2 * half + 2)
            x = (start + stop) / 2 + step * (place - (len(order) - 1) / 2)
            boxes[name, END] = _around((x, self._y(heads[name]) - raised), half, high)
        return boxes

    def _half_of_head(self, name: str, step: Number) -> tuple[Number, Number]:
        """Half of the width and height of a head at END, with its number where there is room."""
        half = 0.31 * self.look.size * 5 + 6 if self.look.is_wide else 1.24 * self.look.size + 1
        if self.look.has_numbers and step >= 2 * half + 2:
            return half, self.look.size + 4.5
        return 4 + 0.32 * self.look.size * len(name), 8

    def _scaffold(self, panel: CircuitPanel) -> None:
        look, left, stream = self.look, self.left, self.left + self.look.stream
        for layer in range(self.n_layers):
            y = self._y(layer)
            self._line((left + 34, y), (left + look.width - 8, y), GRID, 1)
            self._text(str(layer), (left + 30, y), NOTE, anchor="right")
        middle = (self._y(0) + self._y(self.n_layers - 1)) / 2
        self._text("Layer", (left + 9, middle), NOTE, textangle=-90)
        top, foot = self._y(self.n_layers) - 8, self._y(-1)
        self._line((stream, top), (stream, foot), PALE, 5)
        for role in (*panel.roles, END):
            x = self._column(panel.roles, role)
            if role != END:
                self._line((x, self._y(self.n_layers - 1)), (x, foot), PALE, 1.5)
            self._box(_around((x, foot), look.token, 11), "white", OUTLINE)
            text = (ROLE_NAMES if look.is_wide else SHORT_ROLES).get(role, role)
            self._text(f"<b>{plain(text)}</b>", (x, foot), ROLE_INKS.get(role, NOTE))
        self._box(_around((stream, top), max(look.half, 34), 11), PALE, {"width": 0})
        self._text("<b>answer C</b>", (stream, top), TEXT)
        y = self.corner[1] + 6
        for text in look.lines(panel.title, look.title):
            at, y = (left + 12, y + look.title / 2 + 2), y + look.title + 5
            self._text(f"<b>{plain(text)}</b>", at, TEXT, anchor="left", size=look.title)
        for text in look.lines(panel.subtitle, look.size):
            at, y = (left + 12, y + look.size / 2 + 2), y + look.line
            self._text(plain(text), at, NOTE, anchor="left")
        y += 20 if panel.shares else 12
        for line, one in enumerate(panel.shares):
            self._keeps(y + line * look.line, line, *one)
        beside = look.is_wide and bool(panel.shares)
        y += 0 if beside else look.line * len(panel.shares)
        self._key(panel, (left + (0.57 * look.width if beside else 12), y))

    def _keeps(self, y: Number, line: int, name: str, text: str, *numbers: float) -> None:
        """What a graph keeps alone: a dot with its ends, between nothing and all of it; the first
        one is bold, every second one is a control."""
        look, ink = self.look, COLOURS["control"] if line % 2 else TEXT
        name, text = (plain(one) if line else f"<b>{plain(one)}</b>" for one in (name, text))
        size = look.size if line else look.title
        start, length = self.left + 16 + 11.2 * look.size, 0.17 * look.width
        at, *ends = (start + length * min(max(one, 0.0), 1.0) for one in numbers)
        inset = 12 + 12 * (line % 2)
        self._text(name, (self.left + inset, y), NOTE if line else TEXT, anchor="left")
        for end, mark in enumerate(("0", "100%") if line == 0 else ()):
            self._text(mark, (start + length * end, y - 14), NOTE, size=SMALLEST)
        self._line((start, y), (start + length, y), PALE, 1.5)
        self._line((ends[0], y), (ends[1], y), ink, 2)
        self._box(square(at, y, 4), ink, {"width": 0}, kind="circle")
        self._text(text, (start + length + 8, y), TEXT, anchor="left", size=size)

    def _key(self, panel: CircuitPanel, at: XY) -> None:
        """What the lines mean that the panel has."""
        look, limit, unit = self.look, self.limits[0], "%" if self.relative else ""
        broad = _round_below(limit * (100 if self.relative else 1))
        parts: dict[str, list[tuple[float, str, str]]] = {"helps": [], "hinders": [], "inputs": []}
        for sign, name, word in ((-1, "helps", "lost"), (1, "hinders", "gained")):
            words = f"{unit or ' logits'} of {panel.measure} {word} without the path"
            parts[name] = [(sign, f"{broad:g}", "v"), (sign / 4, f"{broad / 4:g}{words}", "v")]
        used = {*panel.edges["input"]}
        parts["inputs"] = [(0, text, name) for name, text in INPUT_NAMES.items() if name in used]
        share = broad / (limit * (100 if self.relative else 1))
        for line, name in enumerate(_key_of(panel.edges)):
            x, y = at[0], at[1] + line * look.line
            for size, text, kind in parts[name]:
                style = {"color": TEXT, "width": 2.5, "dash": DASHES[kind]}
                style = self._stroke(size * share, kind) if size else style
                self.sheet.add_shape("line", (x, y), (x + 24, y), 0, line=style)
                self._text(text, (x + 29, y), NOTE, anchor="left")
                x += 42 + 0.55 * look.size * len(text)

    def _stroke(self, share: Number, kind: str) -> dict[str, Any]:
        """The line of an effect, as a share of the largest, through one input."""
        size = abs(share)
        colour = colour_at((0.35 + 0.65 * size) * (1 if share > 0 else -1), 1.0)
        width = THIN + (self.look.thick - THIN) * size
        return {"width": width, "color": colour, "dash": DASHES[kind]}

    def _path(self, path: Path, points: Sequence[XY]) -> None:
        """A curve from the sender to the receiver."""
        row, size = path.rows[0], path.size
        first, *others = [f"{x:.1f},{y:.1f}" for x, y in points]
        self.sheet.add_path(
            f"M {first} C {' '.join(others)}",
            0,
            line=self._stroke(float(row.mean) / self.limits[0], str(row.input)),
            layer="below",
            name=f"{EDGE} {size:.6g}",
        )
        texts = []
        for row in path.rows:
            by = "" if row.input == "mlp" else f" by {row.input}"
            where = f" at {ROLE_NAMES.get(row.role, row.role)}"
            where = "" if row.role in (END, ANY_TOKEN) else where
            texts.append(self._hover(f"{row.sender}{where} → {row.receiver}{by}", row))
        for share_of_way in ALONG[:5]:
            self._point(EDGE, on_curve(points, share_of_way), "<br>".join(texts), size)

    def _label(
        self,
        text: str,
        index: int,
        paths: Sequence[Path],
        lines: Sequence[Sequence[XY]],
        taken: Sequence[Box],
    ) -> list[Box]:
        """Write the effect of a line, on it where it covers least, or right of a line between MLPs.

        Returns:
            Its box, for labels to come.
        """
        size = text_box(text, self.look.size)
        if paths[index].is_arc:
            x, y = on_curve(lines[index], 0.5)
            at = x + self.look.thick / 2 + 2, y
            self._text(f"<b>{text}</b>", at, TEXT, anchor="left", bgcolor="white")
            return []
        others = [line for place, line in enumerate(lines) if place != index]
        every = [*taken, *(square(*on_curve(one, i / 40), 3) for one in others for i in range(41))]
        spots = [on_curve(lines[index], share) for share in ALONG]
        places = [_around(spot, size[0] / 2, size[1] / 2) for spot in spots]
        best = int(np.argmin([sum(place.overlap(box) for box in every) for place in places]))
        self._text(f"<b>{text}</b>", spots[best], TEXT, bgcolor="white")
        return [places[best]]

    def _node(self, box: Box, row: Any) -> None:
        """What writes or reads at END, with its own effect."""
        name, look = str(row.node), self.look
        value = float(row.mean)
        fill, certain = colour_at(value, self.limits[1]), row.low * row.high > 0
        outline = {"color": TEXT if certain else FRAME, "width": 1.2}
        outline["dash"] = "solid" if certain else "dot"
        self._point("node", box.centre, self._hover(name, row), abs(float(row.mean)))
        self._box(box, fill, outline)
        gap = " " if name.startswith("MLP") and look.is_wide else "<br>"
        roomy = look.has_numbers and (gap == " " or box.bottom - box.top > 20)
        text = self._name(name)
        text = f"<b>{text}</b>{gap}{self._number(value)}" if roomy else text
        self._text(text, box.centre, ink_on(fill))

    def _hover(self, name: str, row: Any) -> str:
        low, high = self._number(float(row.low)), self._number(float(row.high))
        return f"<b>{name}</b> {self._number(float(row.mean))} [{low}, {high}], n = {int(row.n)}"

    def _point(self, kind: str, at: XY, text: str, size: float) -> None:
        self.points.append({"kind": kind, "at": at, "text": text, "size": f"{size:.6g}"})

    def _line(self, start: XY, stop: XY, colour: str, width: Number) -> None:
        line = {"color": colour, "width": width}
        self.sheet.add_shape("line", start, stop, 0, line=line, layer="below")

    def _box(self, box: Box, fill: str, line: dict[str, Any], *, kind: str = "rect") -> None:
        ends = (box.left, box.top), (box.right, box.bottom)
        self.sheet.add_shape(kind, *ends, 0, fillcolor=fill, line=line)

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


def _around(centre: XY, half: Number, high: Number) -> Box:
    """A box by half of its width and height."""
    (x, y) = centre
    return Box(x - half, y - high, x + half, y + high)


def _layer(name: str) -> int:
    return int(name.removeprefix("MLP ").partition(".")[0])


def _round_below(limit: Number) -> float:
    """The largest of 1, 2 and 5 with powers of ten that is not above a limit."""
    power = 10.0 ** np.floor(np.log10(limit))
    return max(float(m * power) for m in (1, 2, 5) if m * power <= limit * (1 + 1e-9))
