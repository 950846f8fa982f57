"""Figure 1: the three steps of the method, from finding heads to tuning them.

Drawn without a run and without a model.
"""

from dataclasses import dataclass

from pandas import DataFrame

from arith_lens import plotting
from figures.common import DrawingOptions
from figures.exhibit import Chart

WIDTH, HEIGHT, TOP = 830, 330, 44
COLUMN, GAP, LEFT = 236, 30, 31
CELL, ROWS, COLUMNS = 15, 6, 8


@dataclass(frozen=True)
class Step:
    """One step: what is done, what it answers, and its commands."""

    name: str
    question: str
    does: str
    commands: str
    colours: dict[tuple[int, int], str]
    """The coloured heads of the small picture, by layer from the top and head."""


EXAMPLE_HEADS = ((2, 5), (3, 1), (3, 4))
STEPS = (
    Step(
        "1  Find",
        "Which heads and MLPs\ndoes the answer need?",
        "Path patching: give one component the\noutput that it has in a prompt without\n"
        "the calculation, and read the logit of the\nright answer again.",
        "make fig2",
        {EXAMPLE_HEADS[0]: plotting.RED},
    ),
    Step(
        "2  Check and explain",
        "Does the model fail without them?\nWhat do they read and write?",
        "Knock the strongest ones out, and others\nas a control. Read where heads look from\n"
        "END, and which numbers MLPs write.",
        "make fig3 sufficiency fig5 fig6",
        dict.fromkeys(EXAMPLE_HEADS, plotting.DARK),
    ),
    Step(
        "3  Tune",
        "Does it help to train them alone?",
        "Train these heads and freeze everything\nelse. Compare with full tuning, LoRA and\n"
        "random heads: what is gained in\nmathematics, what is lost elsewhere?",
        "make table1 frontier",
        dict.fromkeys(EXAMPLE_HEADS, plotting.BLUE),
    ),
)


def exhibits(options: DrawingOptions) -> list[Chart]:
    """The drawing."""
    return [
        Chart(
            name="fig1",
            title="Figure 1: the three steps of the method",
            look="The steps of the paper, each with the question that it answers and its commands.",
            notes=NOTES,
            runs=(),
            numbers=numbers(),
            figure=draw(),
        )
    ]


NOTES = (
    "Small maps: the heads of a model, layers down. Red: the component that is patched. Dark: "
    "heads that are knocked out. Blue: heads that are trained. The places are an example.",
)


def numbers() -> DataFrame:
    """The steps as a table."""
    return DataFrame(
        [
            {
                "step": step.name[3:],
                "question": step.question.replace("\n", " "),
                "method": step.does.replace("\n", " "),
                "commands": step.commands,
            }
            for step in STEPS
        ]
    )


def draw() -> plotting.Figure:
    """Three columns with arrows between them."""
    nodes: list[plotting.Node] = []
    labels: list[plotting.Label] = []
    arrows: list[plotting.Arrow] = []
    for index, step in enumerate(STEPS):
        left = LEFT + index * (COLUMN + GAP)
        frame = plotting.Box(left, TOP, left + COLUMN, HEIGHT - 12)
        nodes += [plotting.Node(frame), *_small_map(step, left + 58, TOP + 14)]
        labels += [
            plotting.Label(step.name, (left, TOP - 10), 16, bold=True),
            plotting.Label(
                step.question, (left + 12, TOP + 116), 12, anchor=("left", "top"), bold=True
            ),
            plotting.Label(
                step.does, (left + 12, TOP + 156), 11, plotting.NOTE, anchor=("left", "top")
            ),
            plotting.Label(step.commands, (left + 12, HEIGHT - 24), 11, plotting.RUST),
        ]
        if index:
            y = (TOP + HEIGHT) / 2
            arrows.append(plotting.Arrow((left - GAP + 2, y), (left - 2, y), plotting.DARK, 2))
    return plotting.diagram((WIDTH, HEIGHT), nodes, arrows=arrows, labels=labels, notes=NOTES)


def _small_map(step: Step, left: float, top: float) -> list[plotting.Node]:
    """The heads of a small model as squares."""
    return [
        plotting.Node(
            plotting.Box(
                left + CELL * head,
                top + CELL * layer,
                left + CELL * (head + 1),
                top + CELL * (layer + 1),
            ),
            fill=step.colours.get((layer, head), "#ffffff"),
        )
        for layer in range(ROWS)
        for head in range(COLUMNS)
    ]
