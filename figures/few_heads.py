"""The picture of README: four heads of a pretrained LLaMA that add, with their controls; and the
atlas: the same question in other models and tasks."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pandas import DataFrame, read_csv

from arith_lens import plotting
from arith_lens.operations import OPERATIONS
from arith_lens.plotting import COLOURS
from arith_lens.plotting.dots import LEVEL
from arith_lens.plotting.markup import environment
from arith_lens.plotting.style import FONT, palette
from arith_lens.plotting.widths import is_narrow
from figures.exhibit import Chart, chart_of
from figures.tables.table import records, select
from figures.views.lines import dots

STUDIES = Path(__file__).parents[1] / "docs" / "studies"
DRAWS = 40
"""Sets of other heads: 20 of any layers, 20 of the same ones."""
MEANS = "means at every token"
STRICTER = ("another prompt's outputs at END", "means over more prompts at END")
"""Lenses in which heads get less of the task from others' outputs."""
TITLE = ("Four of SmolLM2's 270 heads add alone", "if all others give averages over sums")
PROMPT = (*"2+5=7⏎", "A", "+", "B", "=", "␣")
SIZES = {"wide": (828, 410, 12, 450, 78, 260), "narrow": (372, 728, 10, 20, 396, 230)}
"""By shape: width, height, pixels between heads, where the shares are, and those of 100%."""
FILES = {"wide": "few_heads.svg", "narrow": "few_heads-narrow.svg"}
"""By shape, its file; the narrow one is for phones."""


def write_pictures(folder: Path) -> None:
    """Write the picture in its two shapes."""
    for shape, name in FILES.items():
        (folder / name).write_text(few_heads(shape), encoding="utf-8")


def few_heads(shape: str = "wide") -> str:
    """The picture as SVG, from the tables of the audit of SmolLM2's addition."""
    own = "model == 'smollm2-135m' and task == 'addition'"
    table = read_csv(STUDIES / "audits.csv").query(own).set_index(["lens", "question"])
    few, needed = ((MEANS, name) for name in ("Do few suffice?", "Are they needed?"))
    sum_, four = ((name, few[1]) for name in STRICTER)
    lines = {
        "these four; others averaged over sums, every token": (few, "own"),
        "these four; averaged over + − × ÷, last token": (four, "own"),
        "these four; as in another sum, last token": (sum_, "own"),
        "four others; averaged over sums, every token": (few, "other"),
        "without these four, every token": (needed, "own"),
        "without four others, every token": (needed, "other"),
    }
    heads = read_csv(STUDIES / "audit_heads.csv", dtype={"head": str}).query(own)
    width, height, spacing, x, y, length = SIZES[shape]
    own_heads = [_head(head, spacing) for head in heads.to_dict("records")]
    dots = [_place(f"{layer}.{head}", spacing) for layer in range(30) for head in range(9)]
    return (
        environment(Path(__file__).parent)
        .get_template("few_heads.svg.jinja")
        .render(
            title=[" ".join(TITLE)] if shape == "wide" else TITLE,
            width=width,
            height=height,
            font=FONT,
            inks=palette("svg"),
            with_dark=plotting.with_dark,
            tokens=[(26 * at, text, "a" * (text in "AB")) for at, text in enumerate(PROMPT)],
            dots=[dot for dot in dots if not any(map(partial(_covers, at=dot), own_heads))],
            heads=own_heads,
            rows=[_row(name, table.loc[at], kind, length) for name, (at, kind) in lines.items()],
            draws=DRAWS,
            n=table.loc[few].n,
            plot={"x": x, "y": y, "length": length},
            spacing=spacing,
        )
    )


def atlas() -> Chart:
    """The share of right answers of the heads that each audit kept alone, by model and task."""
    rows = DataFrame(read_csv(STUDIES / "audits.csv").query("question == 'Do few suffice?'"))
    return chart_of(
        rows,
        [],
        name="atlas",
        title="Do few heads suffice, in which model and task?",
        caption="Lines: 95% intervals over 10 to 22 problems. Fails: the interval ends below 90%. "
        "Holds: above all other sets (200 at END), and 90% right where heads were chosen; else "
        "undecided. Filled marks are counted. All others output their mean over the task, at END "
        "or at every token; stricter: the mean over more tasks, or the output on another prompt.",
        draw=_draw_atlas,
    )


LENSES = {
    "means at END": "END",
    MEANS: "every token",
    STRICTER[1]: "more tasks",
    STRICTER[0]: "another prompt",
}
"""What other heads output, by the names of the table, in the order of the panels."""
VERDICTS = {"holds, ≥ 90% right": "circle", "holds, < 90% right": "square-open",
            "undecided": "diamond-open", "fails": "circle-open"}  # fmt: skip
OTHERS = "best of 40 other sets"
TASKS = ("addition", "subtraction", "multiplication", "division", "capitals")
NAMES = {
    "smollm2-135m": "SmolLM2-135M",
    "qwen2.5-coder-0.5b-instruct-q4_k_m": "Qwen2.5-Coder-0.5B",
    "gemma-3-270m": "Gemma-3-270M",
    "reference": "reference",
    "reference-mistral": "reference-mistral",
}
"""The models of the atlas in their order, those that others trained first."""


def _draw_atlas(rows: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A panel for each lens; a row for each model's task, below the model's name."""
    heads = dict.fromkeys(((model, "") for model in NAMES), 0)
    heads |= {(one.model, one.task): len(one.heads.split()) for one in records(rows)}
    signs = {task: OPERATIONS[task].sign for task in TASKS[:-1] * is_narrow()}
    keys = [(model, task) for model in NAMES for task in ("", *TASKS) if (model, task) in heads]
    texts = [
        f"{signs.get(task, task)}, {heads[model, task]} heads" if task else NAMES[model]
        for model, task in keys
    ]
    panels = []
    for lens, name in LENSES.items():
        own = select(rows, lens=lens).set_index(["model", "task"])
        others = own.assign(value=own.control_high, low=np.nan, high=np.nan)
        shares = np.where(own.value < 0.9, "holds, < 90% right", "holds, ≥ 90% right")
        names = own.verdict.replace("open", "undecided").where(own.verdict != "holds", shares)
        series = [
            dots(DataFrame(own[names == verdict]), keys, verdict, COLOURS["verdict"], mark, 0.0)
            for verdict, mark in VERDICTS.items()
        ]
        series.append(dots(others, keys, OTHERS, COLOURS["control"], LEVEL, 0.0))
        title = f"{name}: {names.str.contains('≥').sum()}" + f" of {len(own)}" * (not is_narrow())
        bold = tuple(not task for _, task in keys)
        panels.append(plotting.DotPanel(title, tuple(texts), tuple(series), bold))
    axis = plotting.DotAxis((-4, 104), "right answers", "%", level=90.0)
    return plotting.dot_panels(panels, axis, across=len(panels), notes=notes)


def _row(name: str, row: Any, kind: str, length: int) -> dict[str, Any]:
    """A share with its interval, or the range of sets of other heads; one that all have is flat."""
    low, value, high = row.low, row.value, row.high
    text = f"{value:.0%} [{low * 100:.0f}, {high * 100:.0f}]"
    if kind == "other":
        low, high = row.control_low, row.control_high
        text = f"{low:.0%} to {high:.0%}" if low < high else f"{high:.0%} in all sets"
    ends = {"low": low * length, "value": value * length, "high": high * length, "kind": kind}
    ink = "other" if row.verdict == "fails" else kind
    return {"name": name, "ink": ink, "text": text, "flat": low == high, **ends}


def _place(head: str, spacing: int) -> tuple[int, int]:
    layer, index = map(int, head.split("."))
    return spacing * layer, 12 * (8 - index)


def _covers(head: dict[str, Any], at: tuple[int, int]) -> bool:
    """Whether a dot lies under a head's label."""
    reach = 7 * len(head["text"]) * (1 if head["anchor"] == "start" else -1)
    low, high = sorted((head["label"], head["label"] + reach))
    return at[1] == head["y"] and low - 4 < at[0] < high + 4


def _head(row: Any, spacing: int) -> dict[str, Any]:
    """A head; an operand that has most of its attention is where its line comes from."""
    shares = {"A": row["operand a"], "B": row["operand b"]}
    operand = max(shares, key=lambda name: shares[name])
    reads = shares[operand] > 0.5
    x, y = _place(row["head"], spacing)
    right = row["head"].startswith("23")
    return {
        "x": x,
        "y": y,
        "role": "a" * reads,
        "from": 26 * PROMPT.index(operand) + 12,
        "text": row["head"] + f": {shares[operand]:.0%} of its attention on {operand}" * reads,
        "anchor": "start" if right else "end",
        "label": x + 11 if right else x - 11,
    }
