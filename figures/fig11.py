"""Figure 11: what path patching changes, what it holds, and what it computes again.

Drawn without a run and without a model, for the prompt `3 plus 5 equals to `.
"""

from dataclasses import dataclass

from pandas import DataFrame

from arith_lens import plotting
from arith_lens.operations import OPERATIONS
from arith_lens.templates import TEMPLATES
from figures.common import DrawingOptions
from figures.exhibit import Chart

A, B, NULL_WORD = 3, 5, "none"
TEMPLATE = TEMPLATES["addition"][1]
N_LAYERS, N_HEADS, SENDER = 3, 4, (1, 1)
"""The small model of the drawing, and the layer and index of the patched head."""
PATCHED, HELD, RECOMPUTED = "patched", "held", "recomputed"
UNCHANGED = "unchanged"
STATE_COLOURS = {
    PATCHED: plotting.RED,
    HELD: "#9aa1ad",
    RECOMPUTED: plotting.BLUE,
    UNCHANGED: "#ffffff",
}
STATE_MEANINGS = {
    PATCHED: "patched: output of X_c",
    HELD: "held: output of X_r",
    RECOMPUTED: "recomputed: reacts",
    UNCHANGED: "unchanged: not after it",
}


@dataclass(frozen=True)
class PathsSetting:
    """One value of `paths=`: what later heads and MLPs do."""

    paths: str
    name: str
    heads: str
    mlps: str


PATHS_COLUMNS = (
    PathsSetting("direct", "Algorithm 1", HELD, HELD),
    PathsSetting("via_mlps", "the default: Appendix B", HELD, RECOMPUTED),
    PathsSetting("total", "activation patching", RECOMPUTED, RECOMPUTED),
)
WIDTH, PANEL, LEFT = 830, 240, 31
CELL, ROW = 34, 26  # pixels of a head's box
TOP, LAYER = 196, 78  # the panels' top, and a layer's height
BOTTOM = TOP + 84 + N_LAYERS * LAYER


def exhibits(options: DrawingOptions) -> list[Chart]:
    """The drawing."""
    return [
        Chart(
            name="fig11",
            title="Figure 11: what is patched, what is held, and what is recomputed",
            look="One head gets the output that it has in the counterfactual prompt. What else may "
            "react depends on `paths=`: nothing, the MLPs, or every later component.",
            notes=NOTES,
            runs=(),
            numbers=numbers(),
            figure=draw(),
        )
    ]


NOTES = (
    "The three columns show the stream at END in a model with three layers of four heads. All "
    "earlier positions keep their values of X_r, because only END is patched.",
    f"The effect of head {SENDER[0]}.{SENDER[1]} is the change of the logit of C. It is negative "
    "if the head helps the answer.",
)


def state(setting: PathsSetting, layer: int, head: int | None) -> str:
    """What happens to a head, or to an MLP (None)."""
    if (layer, head) == SENDER:
        return PATCHED
    if layer < SENDER[0] or (head is not None and layer == SENDER[0]):
        return UNCHANGED
    return setting.mlps if head is None else setting.heads


def numbers() -> DataFrame:
    """The state of every component, one row per setting and component."""
    rows = []
    for setting in PATHS_COLUMNS:
        for layer in range(N_LAYERS):
            for head in (*range(N_HEADS), None):
                component = f"MLP {layer}" if head is None else f"{layer}.{head}"
                rows.append(
                    {
                        "paths": setting.paths,
                        "component": component,
                        "state": state(setting, layer, head),
                    }
                )
        rows.append({"paths": setting.paths, "component": "final norm", "state": RECOMPUTED})
    return DataFrame(rows)


def draw() -> plotting.Figure:
    """The two prompts above, and one column per setting."""
    nodes, arrows, labels = _prompts()
    for index, setting in enumerate(PATHS_COLUMNS):
        left = LEFT + index * (PANEL + 24)
        column = _column(setting, left)
        nodes += column[0]
        arrows += column[1]
        labels += column[2]
    return plotting.diagram(
        (WIDTH, BOTTOM + 56),
        nodes,
        arrows=arrows,
        labels=labels,
        legend=[(STATE_MEANINGS[name], colour) for name, colour in STATE_COLOURS.items()],
        notes=NOTES,
    )


Parts = tuple[list[plotting.Node], list[plotting.Arrow], list[plotting.Label]]


def _prompts() -> Parts:
    """Both prompts, token by token. The word that differs has a colour, and END has a name."""
    nodes: list[plotting.Node] = []
    labels: list[plotting.Label] = []
    words = [[*TEMPLATE.render(A, B, word)[0].split(), "␣"] for word in (None, NULL_WORD)]
    rows = (
        ("X_r, the reference", f"C = {OPERATIONS['addition'].value(A, B)}"),
        ("X_c, the counterfactual", "no calculation"),
    )
    first, step = LEFT + 190, 66
    for row, (name, says) in enumerate(rows):
        top = 34 + 48 * row
        labels.append(plotting.Label(name, (LEFT, top + 19), 13, bold=True))
        for index, word in enumerate(words[row]):
            left = first + step * index
            differs = word != words[1 - row][index]
            fill = STATE_COLOURS[PATCHED] if differs and row else "#ffffff"
            box = plotting.Box(left, top, left + step - 6, top + ROW)
            nodes.append(plotting.Node(box, word, fill, 13, bold=differs))
        at = (first + step * len(words[row]) + 8, top + 19)
        labels.append(plotting.Label(f"→  {says}", at, 13))
    end = first + step * (len(words[0]) - 1) + step / 2 - 3
    labels.append(plotting.Label("END", (end, 30), 11, plotting.NOTE, ("center", "bottom")))
    start = (end, 34 + 48 + ROW)
    stop = (end, TOP - 40)
    labels.append(
        plotting.Label(
            f"the output of head {SENDER[0]}.{SENDER[1]} at END goes into each run of X_r below",
            (end - 8, TOP - 46),
            11,
            STATE_COLOURS[PATCHED],
            ("right", "bottom"),
        )
    )
    return nodes, [plotting.Arrow(start, stop, STATE_COLOURS[PATCHED])], labels


def _column(setting: PathsSetting, left: float) -> Parts:
    """The stream at END, from the embedding at the bottom to the logit of C at the top."""
    nodes: list[plotting.Node] = []
    arrows: list[plotting.Arrow] = []
    stream = left + PANEL - 20
    labels = [
        plotting.Label(f'paths="{setting.paths}"', (left, TOP - 18), 14, bold=True),
        plotting.Label(setting.name, (left, TOP - 2), 11, plotting.NOTE),
    ]
    patched_at = BOTTOM - 30 - LAYER * SENDER[0] - ROW / 2
    arrows.append(
        plotting.Arrow((stream, BOTTOM), (stream, patched_at), plotting.PALE, 3, head=False)
    )
    arrows.append(
        plotting.Arrow((stream, patched_at), (stream, TOP + 34), STATE_COLOURS[RECOMPUTED], 3)
    )
    labels.append(plotting.Label("END", (stream, BOTTOM + 2), 11, plotting.NOTE, ("center", "top")))
    top = plotting.Box(left + 62, TOP + 10, left + PANEL, TOP + 34)
    nodes.append(plotting.Node(top, "final norm, logit of C", STATE_COLOURS[RECOMPUTED]))
    for layer in range(N_LAYERS):
        row = BOTTOM - 30 - LAYER * layer
        for head in range(N_HEADS):
            at = left + (CELL + 4) * head
            box = plotting.Box(at, row - ROW, at + CELL, row)
            fill = STATE_COLOURS[state(setting, layer, head)]
            nodes.append(plotting.Node(box, f"{layer}.{head}", fill))
        heads_end = left + (CELL + 4) * N_HEADS - 4
        arrows.append(plotting.Arrow((heads_end, row - ROW / 2), (stream - 3, row - ROW / 2)))
        mlp = plotting.Box(left + 38, row - ROW - 36, left + 38 + 2 * CELL + 4, row - ROW - 12)
        nodes.append(plotting.Node(mlp, f"MLP {layer}", STATE_COLOURS[state(setting, layer, None)]))
        middle = row - ROW - 24
        arrows.append(plotting.Arrow((mlp.right, middle), (stream - 3, middle)))
    return nodes, arrows, labels
