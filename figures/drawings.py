"""Figures 1 and 11: how the method works, drawn without a run and without a model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import fill

from pandas import DataFrame

from arith_lens import plotting
from arith_lens.operations import OPERATIONS
from arith_lens.plotting import COLOURS
from arith_lens.plotting.widths import is_narrow, page_width
from arith_lens.templates import TEMPLATES
from figures.common import DrawingOptions
from figures.exhibit import Chart, drawing_of
from figures.tables.table import keys_of, records, select

LEFT = 23


@dataclass(frozen=True)
class Step:
    """One step of the method: what is done, what it answers, and its commands."""

    name: str
    question: str
    method: str
    commands: str
    heads: str
    """The coloured heads of the small picture, by layer and index."""
    state: str
    """What happens to these heads."""


STEPS = (
    Step(
        name="Find",
        question="Which heads and MLPs does the answer need?",
        method="Path patching: give one component the output that it has in a prompt without the "
        "calculation, and read the logit of the right answer again.",
        commands="make fig2",
        heads="2.5",
        state="patched",
    ),
    Step(
        name="Check and explain",
        question="Does the model fail without them? What do they read and write?",
        method="Knock the strongest ones out, and others as a control. Read where heads look from "
        "END, and which numbers MLPs write.",
        commands="make fig3 sufficiency fig5 fig6",
        heads="2.5 3.1 3.4",
        state="knocked out",
    ),
    Step(
        name="Tune",
        question="Does it help to train them alone?",
        method="Train these heads and freeze everything else. Compare with full tuning, LoRA and "
        "random heads: what is gained in mathematics, what is lost elsewhere?",
        commands="make table1 frontier",
        heads="2.5 3.1 3.4",
        state="trained",
    ),
)
STEP_COLOURS = {
    "patched": plotting.RED,
    "knocked out": COLOURS["chosen"],
    "trained": plotting.GREY,
}
"""Of the heads in the small pictures."""
QUESTION_LETTERS, METHOD_LETTERS = 33, 41
"""The longest lines of a question and of a method."""
STEPS_HEIGHT, STEPS_TOP, STEP_WIDTH, STEP_GAP = 318, 40, 246, 22
SQUARE, SQUARES_DOWN, SQUARES_ACROSS = 15, 6, 8
"""The heads of the small pictures."""
STEPS_NOTES = (
    "Small maps: the heads of a model, layer 0 at the bottom. Red: the component that is patched. "
    "Dark: heads that are knocked out. Grey: heads that are trained. The places are an example.",
)


def fig1(options: DrawingOptions) -> list[Chart]:
    """Figure 1: the three steps of the method, from finding heads to tuning them.

    Drawn without a run and without a model.
    """
    return [
        drawing_of(
            DataFrame(map(asdict, STEPS)),
            name="fig1",
            title="How does the method work?",
            caption="Three steps lead from a picture to a test: find the heads, check them, tune "
            "them. A column is a step with its question and commands; the small maps are examples.",
            notes=STEPS_NOTES,
            draw=_draw_steps,
        )
    ]


def _draw_steps(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """Three columns with arrows between them; in a column of a paper, three rows."""
    nodes: list[plotting.Node] = []
    labels: list[plotting.Label] = []
    arrows: list[plotting.Arrow] = []
    narrow, inner = is_narrow(), STEPS_HEIGHT - STEPS_TOP - 12
    left_edge = 74 if narrow else LEFT
    for index, step in enumerate(records(table)):
        left = left_edge + (0 if narrow else index * (STEP_WIDTH + STEP_GAP))
        top = STEPS_TOP + (index * (inner + 44) if narrow else 0)
        frame = plotting.Box(left, top, left + STEP_WIDTH, top + inner)
        fills = dict.fromkeys(step.heads.split(), STEP_COLOURS[step.state])
        nodes += [plotting.Node(frame), *_small_map(fills, left + 63, top + 14)]
        question, method = fill(step.question, QUESTION_LETTERS), fill(step.method, METHOD_LETTERS)
        corner = ("left", "top")
        labels += [
            plotting.Label(f"{index + 1}  {step.name}", (left, top - 8), 15, bold=True),
            plotting.Label(question, (left + 12, top + 114), 12, anchor=corner, bold=True),
            plotting.Label(method, (left + 12, top + 152), 11, plotting.NOTE, corner),
            plotting.Label(step.commands, (left + 12, top + inner - 8), 11, COLOURS["chosen"]),
        ]
        if index and narrow:
            x = left + STEP_WIDTH - 24
            arrows.append(plotting.Arrow((x, top - 42), (x, top - 4), COLOURS["chosen"], 2))
        elif index:
            y = top + inner / 2
            start, stop = (left - STEP_GAP + 2, y), (left - 2, y)
            arrows.append(plotting.Arrow(start, stop, COLOURS["chosen"], 2))
    size = (page_width(), STEPS_TOP + 3 * (inner + 44) - 20 if narrow else STEPS_HEIGHT)
    return plotting.diagram(size, nodes, arrows=arrows, labels=labels, notes=notes)


def _small_map(fills: Mapping[str, str], left: float, top: float) -> list[plotting.Node]:
    """The heads of a small model as squares, layer 0 below; `fills`: colours by layer and index."""
    return [
        plotting.Node(
            plotting.Box(x, y, x + SQUARE, y + SQUARE),
            fill=fills.get(f"{SQUARES_DOWN - 1 - layer}.{head}", "#ffffff"),
        )
        for layer in range(SQUARES_DOWN)
        for head in range(SQUARES_ACROSS)
        for x, y in [(left + SQUARE * head, top + SQUARE * layer)]
    ]


A, B, NULL_WORD = 3, 5, "none"
TEMPLATE = TEMPLATES["addition"][1]
N_LAYERS, N_HEADS, SENDER = 3, 4, (1, 1)
"""The small model of Figure 11, and the layer and index of the patched head."""
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

    def states(self) -> dict[str, str]:
        """What happens to each component, by its name."""
        states = {}
        for layer in range(N_LAYERS):
            for head in range(N_HEADS):
                later = self.heads if layer > SENDER[0] else UNCHANGED
                states[f"{layer}.{head}"] = PATCHED if (layer, head) == SENDER else later
            states[f"MLP {layer}"] = self.mlps if layer >= SENDER[0] else UNCHANGED
        return {**states, "final norm": RECOMPUTED}


PATHS_COLUMNS = (
    PathsSetting("direct", "Algorithm 1", HELD, HELD),
    PathsSetting("via_mlps", "the default: Appendix B", HELD, RECOMPUTED),
    PathsSetting("total", "activation patching", RECOMPUTED, RECOMPUTED),
)
CELL, ROW = 34, 24  # pixels of a head's box
LAYER, COLUMN = 70, 246  # pixels: a layer's height, the width of a setting
HEIGHT, NARROWER = 84 + N_LAYERS * LAYER, 66
"""The height of a setting on a page, and how much lower it is in a column of a paper."""
TOP, NARROW_TOP = 190, 212
"""Where the first setting begins, on a page and in a column of a paper."""
PATHS_NOTES = (
    "A column is the stream at END, in a model with three layers of four heads; earlier positions "
    f"keep their values of X_r. The effect of head {SENDER[0]}.{SENDER[1]} is the change of the "
    "logit of C: negative if the head helps.",
)


def fig11(options: DrawingOptions) -> list[Chart]:
    """Figure 11: what path patching changes, what it holds, and what it computes again.

    Drawn without a run and without a model, for the prompt `3 plus 5 equals to `.
    """
    return [
        drawing_of(
            DataFrame([*_prompt_rows(), *_state_rows()]).fillna(""),
            name="fig11",
            title="What is patched, held and computed again?",
            caption="What may react to a patched head depends on `paths=`: nothing, the MLPs, or "
            "all later parts. One head gets the output that it has in the counterfactual prompt; a "
            "colour says what happens to each other part.",
            notes=PATHS_NOTES,
            draw=_draw_paths,
        )
    ]


def _prompt_rows() -> Iterator[dict[str, str]]:
    """The two prompts, and what the answer of each is."""
    answer = f"C = {OPERATIONS['addition'].value(A, B)}"
    prompts = {
        "X_r, the reference": (None, answer),
        "X_c, the counterfactual": (NULL_WORD, "no calculation"),
    }
    for name, (word, answer) in prompts.items():
        text = " ".join([*TEMPLATE.render(A, B, word)[0].split(), "␣"])
        yield {"prompt": name, "text": text, "answer": answer}


def _state_rows() -> Iterator[dict[str, str]]:
    """What happens to each component in each setting."""
    for setting in PATHS_COLUMNS:
        for component, state in setting.states().items():
            yield {
                "paths": setting.paths,
                "name": setting.name,
                "component": component,
                "state": state,
            }


Parts = tuple[list[plotting.Node], list[plotting.Arrow], list[plotting.Label]]


def _draw_paths(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """The two prompts above, and one column per setting, side by side or one below the other."""
    nodes, arrows, labels = _prompts(DataFrame(table[table.prompt != ""]))
    narrow = is_narrow()
    settings = keys_of(table, "paths")
    for index, paths in enumerate(settings):
        corner = (LEFT + index * (COLUMN + 24), TOP)
        if narrow:
            corner = (74, NARROW_TOP + index * (HEIGHT + 20 - NARROWER))
        column = _column(select(table, paths=paths), corner)
        nodes += column[0]
        arrows += column[1]
        labels += column[2]
    bottom = NARROW_TOP + len(settings) * (HEIGHT + 20 - NARROWER) if narrow else TOP + HEIGHT
    legend = [(STATE_MEANINGS[name], colour) for name, colour in STATE_COLOURS.items()]
    return plotting.diagram(
        (page_width(), bottom + (66 if narrow else 50)),
        nodes,
        arrows=arrows,
        labels=labels,
        legend=legend,
        notes=notes,
    )


def _prompts(rows: DataFrame) -> Parts:
    """Both prompts, token by token. The word that differs has a colour, and END has a name."""
    nodes: list[plotting.Node] = []
    labels: list[plotting.Label] = []
    prompts = records(rows)
    words = [one.text.split() for one in prompts]
    narrow = is_narrow()
    first, step, height = (14, 46, 62) if narrow else (LEFT + 180, 64, 46)
    top_of_first = 48 if narrow else 32
    for row, prompt in enumerate(prompts):
        top = top_of_first + height * row
        name_at = (first, top - 8) if narrow else (LEFT, top + 19)
        labels.append(plotting.Label(prompt.prompt, name_at, 12, bold=True))
        for index, word in enumerate(words[row]):
            left = first + step * index
            differs = word != words[1 - row][index]
            fill = STATE_COLOURS[PATCHED] if differs and row else "#ffffff"
            box = plotting.Box(left, top, left + step - 6, top + ROW)
            nodes.append(plotting.Node(box, word, fill, 12, bold=differs))
        at = (first + step * len(words[row]) + 4, top + 19)
        labels.append(plotting.Label(f"→ {prompt.answer}", at, 10 if narrow else 12))
    end = first + step * (len(words[0]) - 1) + step / 2 - 3
    red = STATE_COLOURS[PATCHED]
    goes = f"the output of head {SENDER[0]}.{SENDER[1]} at END goes into each run of X_r below"
    last, below = top_of_first + height + ROW, NARROW_TOP - 30 if narrow else TOP - 40
    place, corner = (end - 8, below - 2), ("right", "bottom")
    labels += [
        plotting.Label("END", (end, top_of_first - 4), 11, plotting.NOTE, ("center", "bottom")),
        plotting.Label(goes.replace(" goes", "\ngoes") if narrow else goes, place, 10, red, corner),
    ]
    return nodes, [plotting.Arrow((end, last), (end, below), red)], labels


def _column(rows: DataFrame, corner: tuple[float, float]) -> Parts:
    """The stream at END, from the embedding at the bottom to the logit of C at the top."""
    left, top = corner
    narrow = is_narrow()
    layer_height = LAYER - NARROWER / N_LAYERS if narrow else LAYER
    bottom = top + 84 + N_LAYERS * layer_height
    height, above = (18, 15) if narrow else (ROW, 20)  # of heads, and from them to the MLP
    fills = {one.component: STATE_COLOURS[one.state] for one in records(rows)}
    (paths,), (name_of_paths,) = keys_of(rows, "paths"), keys_of(rows, "name")
    blue = STATE_COLOURS[RECOMPUTED]
    stream, patched_at = left + COLUMN - 20, bottom - 30 - layer_height * SENDER[0] - height / 2
    labels = [
        plotting.Label(f'paths="{paths}"', (left, top - 16), 13, bold=True),
        plotting.Label(name_of_paths, (left, top - 2), 10, plotting.NOTE),
        plotting.Label("END", (stream, bottom + 2), 10, plotting.NOTE, ("center", "top")),
    ]
    arrows = [
        plotting.Arrow((stream, bottom), (stream, patched_at), plotting.PALE, 3, head=False),
        plotting.Arrow((stream, patched_at), (stream, top + 34), blue, 3),
    ]
    answer = plotting.Box(left + 62, top + 10, left + COLUMN, top + 34)
    nodes = [plotting.Node(answer, "final norm, logit of C", blue)]
    for layer in range(N_LAYERS):
        row = bottom - 30 - layer_height * layer
        for head in range(N_HEADS):
            at, name = left + (CELL + 4) * head, f"{layer}.{head}"
            nodes.append(
                plotting.Node(plotting.Box(at, row - height, at + CELL, row), name, fills[name])
            )
        heads_end, middle = left + (CELL + 4) * N_HEADS - 4, row - height - above
        mlp = plotting.Box(left + 38, middle - 9, left + 38 + 2 * CELL + 4, middle + 9)
        nodes.append(plotting.Node(mlp, f"MLP {layer}", fills[f"MLP {layer}"]))
        arrows += [
            plotting.Arrow((heads_end, row - height / 2), (stream - 3, row - ROW / 2)),
            plotting.Arrow((mlp.right, middle), (stream - 3, middle)),
        ]
    return nodes, arrows, labels
