"""The lines of a circuit: which edges share one, where it meets boxes, and its curve."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from arith_lens.plotting.labels import XY, Box
from arith_lens.plotting.style import Number

END, EMBEDDINGS = "END", "embeddings"
Spot: TypeAlias = tuple[str, str]
"""What writes or reads, and the role of the tokens at which it does."""
Side: TypeAlias = tuple[int, int]
"""The direction in which a line leaves a box: across, down."""
UP, DOWN, LEFT, RIGHT = (0, -1), (0, 1), (-1, 0), (1, 0)
APART, EDGE_OF_BOX = 13, 5
"""The most pixels between two lines at a box, and those from them to its corners."""
NEAR = 10
"""A line to an MLP leaves its box to the right, if the MLP is not so many pixels above."""
FIRST_ARC, NEXT_ARC, ROOM_OF_LABEL = 30, 13, 18
"""How far lines between MLPs stand out: the shortest, from one to the next, beside a label."""


@dataclass(frozen=True)
class Path:
    """One line: an edge, or the embeddings' edge and that of the MLP which is read with them."""

    rows: tuple[Any, ...]
    """Its edges, the largest first."""
    start: Spot
    stop: Spot

    @property
    def size(self) -> float:
        """The effect of the largest edge, without its sign."""
        return abs(float(self.rows[0].mean))

    @property
    def is_arc(self) -> bool:
        """Whether it stays on END's stream, from an MLP or the embeddings to an MLP."""
        name, role = self.start
        is_head = name != EMBEDDINGS and not name.startswith("MLP")
        return role == END and not is_head and self.stop[0].startswith("MLP")


def joined_senders(edges: Any) -> dict[str, str]:
    """The first MLP at the tokens of each role, where some input reads it and the embeddings.

    It reacts to the embeddings, so the two effects overlap and are drawn as one.
    """
    partners: dict[str, str] = {}
    for role, own in edges[edges["role"] != END].groupby("role"):
        inputs = {
            sender: {*zip(of.receiver, of.input, of["mean"] > 0, strict=True)}
            for sender, of in own.groupby("sender")
        }
        mlps = sorted((one for one in inputs if "MLP" in one), key=lambda one: int(one[4:]))
        if mlps and inputs[mlps[0]] & inputs.get(EMBEDDINGS, set()):
            partners[str(role)] = mlps[0]
    return partners


def paths_of(edges: Any) -> list[Path]:
    """The lines of all edges, the smallest first."""
    partners, groups = joined_senders(edges), defaultdict[tuple[Any, ...], list[Any]](list)
    for row in edges.itertuples():
        role = str(row.role)
        sender = partners.get(role, EMBEDDINGS) if row.sender == EMBEDDINGS else str(row.sender)
        groups[sender, role, str(row.receiver), row.input, row.mean > 0].append(row)
    every = [
        Path(tuple(sorted(rows, key=lambda row: -abs(row.mean))), key[:2], (key[2], END))
        for key, rows in groups.items()
    ]
    return sorted(every, key=lambda path: path.size)


def curves(
    paths: Sequence[Path], boxes: Mapping[Spot, Box], wide: Mapping[int, Number], room: Number
) -> list[list[XY]]:
    """The Bézier curve of each line. Lines at one side of a box stand side by side.

    Args:
        boxes: the pixels of what writes and reads.
        wide: the pixels of a label beside a line between MLPs, by the line's index.
        room: the pixels right of MLPs.
    """
    sides = [_sides(path, boxes) for path in paths]
    ports, bulges = _ports(paths, boxes, sides), _bulges(paths, boxes, wide, room)
    every = []
    for index, path in enumerate(paths):
        (x0, y0), (x1, y1) = start, stop = ports[index, 0], ports[index, 1]
        reach = abs(x1 - x0) / 2, 0.42 * abs(y1 - y0)
        controls = []
        for (x, y), (right, down) in zip((start, stop), sides[index], strict=True):
            if path.is_arc:
                controls.append((x + bulges[index] / 0.75, y))
            else:
                controls.append((x + right * max(reach[0], 20), y + down * max(reach[1], 14)))
        every.append([start, *controls, stop])
    return every


def _bulges(
    paths: Sequence[Path], boxes: Mapping[Spot, Box], wide: Mapping[int, Number], room: Number
) -> dict[int, Number]:
    """How far each line between MLPs stands out: longer ones around shorter ones."""
    arcs = [index for index, path in enumerate(paths) if path.is_arc]
    spans = {i: boxes[paths[i].start].top - boxes[paths[i].stop].top for i in arcs}
    bulges, out = dict[int, Number](), FIRST_ARC
    for index in sorted(arcs, key=lambda i: spans[i]):
        bulges[index] = out
        out += NEXT_ARC + (wide[index] + ROOM_OF_LABEL if index in wide else 0)
    shrink = min(1.0, room / max([1.0, *bulges.values()]))
    return {index: bulge * shrink for index, bulge in bulges.items()}


def _sides(path: Path, boxes: Mapping[Spot, Box]) -> tuple[Side, Side]:
    """The directions in which a line leaves its boxes. Heads are entered from below, MLPs from the
    left, or from the right where another MLP writes."""
    (name, role), to_mlp = path.start, path.stop[0].startswith("MLP")
    if path.is_arc:
        return RIGHT, RIGHT
    if role == END and name.startswith("MLP"):
        return LEFT, DOWN
    if to_mlp and boxes[path.start].top - boxes[path.stop].bottom < NEAR:
        return RIGHT, LEFT
    return UP, LEFT if to_mlp else DOWN


def _ports(
    paths: Sequence[Path], boxes: Mapping[Spot, Box], sides: Sequence[tuple[Side, Side]]
) -> dict[tuple[int, int], XY]:
    """Where each line leaves (0) and enters (1) its boxes, in the order of where it goes."""
    at_side = defaultdict[tuple[Spot, Side], list[tuple[Any, tuple[int, int]]]](list)
    for index, path in enumerate(paths):
        spots = path.start, path.stop
        for end, side in enumerate(sides[index]):
            x, y = boxes[spots[1 - end]].centre
            letter = str(path.rows[0].input)
            order = (x, y, letter == "k") if side in (UP, DOWN) else (y, letter)
            if side == RIGHT and path.is_arc:  # those that leave stand above those that enter
                order = (end, -y)
            at_side[spots[end], side].append((order, (index, end)))
    ports = {}
    for (spot, side), lines in at_side.items():
        box, number = boxes[spot], len(lines)
        extent = box.right - box.left if side in (UP, DOWN) else box.bottom - box.top
        step = min(APART, (extent - 2 * EDGE_OF_BOX) / max(number - 1, 1))
        for place, (_, key) in enumerate(sorted(lines)):
            shift = step * (place - (number - 1) / 2)
            (x, y), (right, down) = box.centre, side
            ports[key] = (
                (x + shift, box.bottom if down > 0 else box.top)
                if side in (UP, DOWN)
                else (box.right if right > 0 else box.left, y + shift)
            )
    return ports


def on_curve(points: Sequence[XY], share: float) -> XY:
    """A point of a Bézier curve."""
    rest = 1 - share
    weights = (rest**3, 3 * rest**2 * share, 3 * rest * share**2, share**3)
    x, y = (sum(w * p[i] for w, p in zip(weights, points, strict=True)) for i in (0, 1))
    return x, y
