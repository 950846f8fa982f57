"""The picture of README: four heads of a pretrained LLaMA that add, with their controls; and the
atlas: the same question in other models and tasks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pandas import DataFrame, concat, read_csv

from arith_lens import plotting
from arith_lens.plotting import COLOURS
from arith_lens.plotting.markup import environment
from arith_lens.plotting.style import FONT, palette
from figures.common import FIRST_MODEL
from figures.exhibit import Chart, chart_of
from figures.tables.table import keys_of, select
from figures.views.lines import dots

STUDIES = Path(__file__).parents[1] / "docs" / "studies"
SPACING, DRAWS = 12, 40
"""Pixels between heads; sets of other heads: 20 of any layers, 20 of the same ones."""
LENGTH = 260
"""Pixels from 0% to 100%."""
PROMPT = (*"2+5=7⏎", "A", "+", "B", "=", "␣")
SIZES = {"wide": (828, 366, 450, 84), "narrow": (420, 660, 20, 388)}
"""By shape: width, height, and where the shares are."""
FILES = {"wide": "few_heads.svg", "narrow": "few_heads-narrow.svg"}
"""By shape, its file; the narrow one is for phones."""


def write_pictures(folder: Path) -> None:
    """Write the picture in its two shapes."""
    for shape, name in FILES.items():
        (folder / name).write_text(few_heads(shape), encoding="utf-8")


def few_heads(shape: str = "wide") -> str:
    """The picture as SVG, from the tables of the audit of SmolLM2's addition."""
    table = read_csv(STUDIES / "audits.csv").query(
        "model == 'smollm2-135m' and task == 'addition' and lens == 'means at every token'"
    )
    rows = []
    for question, name in (("Do few suffice?", "{} alone"), ("Are they needed?", "without {}")):
        row: Any = table[table.question == question].iloc[0]
        rows.append(_row(name.format("these four"), row, "own"))
        rows.append(_row(name.format("four other heads"), row, "other"))
    heads = read_csv(STUDIES / "audit_heads.csv", dtype={"head": str}).query(
        "model == 'smollm2-135m' and task == 'addition'"
    )
    width, height, x, y = SIZES[shape]
    return (
        environment(Path(__file__).parent)
        .get_template("few_heads.svg.jinja")
        .render(
            title="Four of 270 heads add in a pretrained LLaMA",
            width=width,
            height=height,
            font=FONT,
            light=palette("svg"),
            dark=palette("svg", dark=True),
            tokens=[_token(number, text) for number, text in enumerate(PROMPT)],
            dots=[_place(f"{layer}.{head}") for layer in range(30) for head in range(9)],
            heads=[_head(head) for head in heads.to_dict("records")],
            rows=rows,
            draws=DRAWS,
            plot={"x": x, "y": y},
        )
    )


def atlas() -> Chart:
    """The heads that each audit kept alone, by model and task."""
    return chart_of(
        DataFrame(read_csv(STUDIES / "audits.csv").query("question == 'Do few suffice?'")),
        [],
        name="atlas",
        title="Do few heads answer alone?",
        caption="A row is a task, and how many heads are kept alone; they were chosen on other "
        "problems. Other heads give their means over problems of the task, at every token or at "
        "END. Lines: 95% intervals over 10 to 22 problems; grey: the best and the worst of 40 "
        "other sets.",
        draw=_draw_atlas,
    )


LENSES = {
    "means at every token": ("these heads alone", "circle", "verdict", 0.0),
    "means at END": ("at END alone", "circle-open", "verdict", 0.28),
    "others": ("as many other heads", "diamond", "control", -0.28),
}
"""The series of an audit's picture: name, mark, ink, and how far below its row it is."""


def _draw_atlas(rows: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A panel for each model, those that others trained first, and a row for each task."""
    rows["name"] = rows.task + ": " + rows.heads.str.split().str.len().astype(str)
    range_ = {"control_low": "low", "control_high": "high"}
    others = select(rows, lens="means at every token").drop(columns=["low", "high"])
    others = others.assign(lens="others", value=others.control_high).rename(columns=range_)
    panels = []
    models = sorted(reversed(keys_of(rows, "model")), key=lambda name: name.startswith(FIRST_MODEL))
    for model in models:
        own = concat([select(one, model=model) for one in (rows, others)])
        names = keys_of(own, "name")
        series = tuple(
            dots(select(own, lens=lens).set_index("name"), names, label, COLOURS[ink], mark, shift)
            for lens, (label, mark, ink, shift) in LENSES.items()
        )
        panels.append(plotting.DotPanel(plotting.plain(model), tuple(names), series))
    axis = plotting.DotAxis((-4, 104), title="right answers", unit="%")
    return plotting.dot_panels(panels, axis, across=2, row=26, notes=notes)


def _row(name: str, row: Any, kind: str) -> dict[str, Any]:
    if kind == "other":
        low, high = row.control_low, row.control_high
        text = f"{low:.0%} to {high:.0%}" if round(low, 2) < round(high, 2) else f"{high:.0%}"
        value = low
        high = max(high, low + 0.015)
    else:
        low, value, high = row.low, row.value, row.high
        text = f"{value:.0%} [{low * 100:.0f}, {high * 100:.0f}]"
    at = {"low": low * LENGTH, "value": value * LENGTH, "high": high * LENGTH}
    return {"name": name, "kind": kind, "text": text, **at}


def _token(number: int, text: str) -> dict[str, Any]:
    role = "a" if text in "AB" else ""
    return {"x": 27 * number, "text": text, "role": role}


def _place(head: str) -> tuple[int, int]:
    layer, index = map(int, head.split("."))
    return SPACING * layer, SPACING * (8 - index)


def _head(row: Any) -> dict[str, Any]:
    """A head; an operand that has most of its attention is where its line comes from."""
    shares = {"A": row["operand a"], "B": row["operand b"]}
    operand = max(shares, key=lambda name: shares[name])
    reads = shares[operand] > 0.5
    x, y = _place(row["head"])
    right = row["head"].startswith("23")
    return {
        "x": x,
        "y": y,
        "role": "a" * reads,
        "from": 27 * PROMPT.index(operand) + 12,
        "text": row["head"] + f": {shares[operand]:.0%} of its attention" * reads,
        "anchor": "start" if right else "end",
        "label": x + 11 if right else x - 11,
    }
