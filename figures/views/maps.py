"""Maps of heads with their MLPs, from rows of the table `effects`, and their small print."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.components import Head
from arith_lens.operations import OPERATIONS
from arith_lens.paper import PaperModel, paper_model
from figures.tables.effects import (
    ALL_HEADS,
    EFFECT,
    FIRST_LAYER,
    KEY_EFFECT,
    KEY_HEADS,
    KEY_SHARE,
    LAST_LAYER,
    OF_COMPUTED,
    RELATIVE,
)
from figures.tables.table import records, select

N_LABELS = 9
COLOUR_LIMIT = 15.0  # end of the colour scale of relative effects in every figure, in percent
PATHS_NOTES = {
    "via_mlps": "paths: via MLPs, every other head frozen (Appendix B)",
    "direct": "paths: direct, every other component frozen (Algorithm 1)",
    "total": "paths: total, nothing frozen (activation patching)",
}
COLOUR_TITLES = {
    "relative_logit": "Δ logit of<br>right answer",
    "logit": "Δ logit of<br>right answer",
    "logprob": "Δ log p of<br>right answer",
    "probability": "Δ p of right<br>answer",
    "digit_contrast": "Δ logit of right<br>answer − others",
    "share_of_total": "share of the<br>whole prompt's Δ",
    "share_of_total_contrast": "share of the<br>whole prompt's Δ",
    "share_of_total_probability": "share of the<br>whole prompt's Δ",
}


@dataclass(frozen=True)
class Reading:
    """How the numbers of a run are shown: their scale, unit and limit."""

    scale: float
    unit: str
    paper: PaperModel | None
    colour_title: str

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Reading":
        relative = config["metric"] == RELATIVE
        return cls(
            scale=100.0 if relative else 1.0,
            unit="%" if relative else "",
            paper=paper_model(config["model"]),
            colour_title=COLOUR_TITLES[config["metric"]],
        )

    @property
    def relative(self) -> bool:
        """Whether the effects are relative, so that key heads are defined."""
        return self.unit == "%"

    def paper_heads(self, operation: str) -> tuple[Head, ...]:
        """The key heads that the paper names for an operation of this model."""
        return () if self.paper is None else self.paper.reported(operation)[1]

    @property
    def limit(self) -> float | None:
        """The end of the colour scale; None: the data decide."""
        return COLOUR_LIMIT if self.relative else None


def draw(
    parts: Sequence[plotting.Panel | None], reading: Reading, notes: Sequence[str], **layout: Any
) -> plotting.Figure:
    """Maps of heads with their MLPs.

    Args:
        parts: the maps.
        reading: how their numbers are shown.
        notes: the small print.
        layout: further arguments of `plotting.panels`, some in place of those here.
    """
    shared = {"limit": reading.limit, "unit": reading.unit, "hover": hover(reading)}
    shared |= {"axes": ("layer", "head"), "bar_name": "MLP", "colour_title": reading.colour_title}
    return plotting.panels(parts, notes=notes, **shared | layout)


def title(name: str, size: str) -> str:
    """An operation's name with its sign, and the size of its sample (see `sample_size`)."""
    small = f" ({OPERATIONS[name].sign})" if name in OPERATIONS else ""
    small += f"&nbsp; {size}" * bool(size)
    grey = f'<span style="color:{plotting.NOTE}">{small}</span>'
    return plotting.plain(name.capitalize()) + grey


def panel(
    rows: DataFrame,
    reading: Reading,
    heading: str,
    *,
    dots: Collection[Head] = (),
    n_labels: int = N_LABELS,
) -> plotting.Panel:
    """One map. Key and opposing heads are outlined; the strongest have names.

    Args:
        rows: the rows of one map in the table `effects`.
        reading: how its numbers are shown.
        heading: its title, as of `title`.
        dots: the heads that have dots, as far as the map has them.
        n_labels: so many heads have names.
    """
    is_head = rows["index"].notna()
    of_heads, of_mlps = DataFrame(rows[is_head]), DataFrame(rows[~is_head])
    computed = [select(part, measure=OF_COMPUTED) for part in (of_heads, of_mlps)]
    of_heads, of_mlps = (select(part, measure=EFFECT) for part in (of_heads, of_mlps))
    means, low, high = (cells(of_heads, name) for name in ("value", "low", "high"))
    n_layers, n_heads = means.shape
    of_computed = np.full((n_layers, n_heads + 1), np.nan)
    if len(computed[0]):
        of_computed = np.hstack([cells(part, "value") for part in computed])
    mlps = [cells(of_mlps, name)[:, 0] for name in ("value", "low", "high")]
    named = cells(of_heads.assign(named=of_heads.role != ""), "named") > 0
    return plotting.Panel(
        title=heading,
        values=reading.scale * means,
        bar=reading.scale * mlps[0],
        hover=reading.scale * np.stack([means, low, high, of_computed[:, :n_heads]], axis=-1),
        bar_hover=reading.scale * np.stack([*mlps, of_computed[:, n_heads]], axis=-1),
        marks=tuple(outlines(means, named, n_labels)),
        dots=tuple(
            (head.layer, head.index)
            for head in dots
            if head.layer < n_layers and head.index < n_heads
        ),
    )


def cells(rows: DataFrame, column: str) -> Float[np.ndarray, "layer index"]:
    """A column of rows as an array by layer and index; MLPs have one column."""
    layers, indices = (rows[name].fillna(0).to_numpy(dtype=int) for name in ("layer", "index"))
    values = np.full((layers.max() + 1, indices.max() + 1), np.nan)
    values[layers, indices] = rows[column].to_numpy(dtype=float)
    return values


def outlines(
    means: Float[np.ndarray, "layer head"], chosen: Bool[np.ndarray, "layer head"], n_labels: int
) -> list[plotting.Mark]:
    """Outlines of the chosen heads, strongest first; dark where the mean is negative."""
    cells = sorted(np.argwhere(chosen).tolist(), key=lambda cell: -abs(means[cell[0], cell[1]]))
    return [
        plotting.Mark(
            row=layer,
            column=head,
            text=f"{layer}.{head}" if rank < n_labels else "",
            strong=bool(means[layer, head] < 0),
        )
        for rank, (layer, head) in enumerate(cells)
    ]


def key_head_count(rows: DataFrame) -> str:
    """How many heads are beyond the threshold in some operation, and in which layers."""
    counts = {one.measure: one.value for one in records(select(rows, operation=""))}
    if not counts:
        return ""
    n_key, n_heads, threshold = counts[KEY_HEADS], counts[ALL_HEADS], f"−{-KEY_EFFECT:.0%}"
    if not n_key:
        return f"none of {n_heads:.0f} heads is below {threshold} in any operation"
    first, last = counts[FIRST_LAYER], counts[LAST_LAYER]
    where = f"layer {first:.0f}" if first == last else f"layers {first:.0f} to {last:.0f}"
    return (
        f"{n_key:.0f} of {n_heads:.0f} heads ({counts[KEY_SHARE]:.1%}) are below {threshold} in "
        f"some operation, in {where}"
    )


def reading_note(reading: Reading) -> str:
    """How to read the map."""
    if not reading.relative:
        return "Red: patching lowers the value."
    return (
        "Outlined dark: key heads (layer.head), mean effect below −5%; light: opposing heads, "
        "above +5%. Red: patching lowers the logit (late MLPs: perhaps by the final norm alone)."
    )


def map_note(reading: Reading) -> str:
    """How to read a map that prints effects beyond its colour scale."""
    printed = f" Printed: effects beyond ±{COLOUR_LIMIT:g}%." if reading.relative else ""
    return reading_note(reading) + printed


def data_note(config: Mapping[str, Any]) -> str:
    """The data of a run."""
    selection = "answered right" if config.get("keep", "correct") == "correct" else "all"
    data = f"distinct reference prompts{_settings_note(config)}, {selection}, seed {config['seed']}"
    if config.get("pairs"):
        data = f"own ({Path(config['pairs']).name}), {selection}"
    return f"Model: {config['model']}. Prompts: {data}; {PATHS_NOTES[config['paths']]}."


def _settings_note(config: Mapping[str, Any]) -> str:
    """The settings of the prompts that are not the default."""
    defaults = {
        "templates": ["operation"],
        "operands": [1, 9],
        "answer_token": "whole",
        "counterfactual": "word",
    }
    note = ""
    for key, value in defaults.items():
        setting = config.get(key, value)
        if setting != value:
            text = setting if isinstance(setting, str) else " ".join(map(str, setting))
            note += f", {key.replace('_', ' ')} {text}"
    if shots := config.get("shots"):
        sets = config["exemplar_sets"]
        note += f", after {shots} solved examples ({sets} set{'s' * (sets > 1)})"
    return note


def paper_notes(paper: PaperModel | None, operations: Sequence[str]) -> list[str]:
    """Which heads the paper names for the operations, one line per source."""
    if paper is None:
        return []
    return [
        f"Dots: key heads that the paper names for {paper.name} ({source}): "
        f"{', '.join(map(str, heads))}."
        for source, heads in dict.fromkeys(map(paper.reported, operations))
        if heads
    ]


def hover(reading: Reading) -> tuple[str, str]:
    """Hover templates of a head and an MLP, with the statistics of `panel`."""
    low, high, computed = (hover_number(f"customdata[{i}]", reading) for i in (1, 2, 3))
    return templates(f"<br>95%: {low} to {high}<br>computed pairs: {computed}", reading)


def templates(rest: str, reading: Reading) -> tuple[str, str]:
    """Hover templates of a head and an MLP: its name, its value, then `rest`."""
    value = hover_number("z", reading)
    return f"head <b>%{{y}}.%{{x}}</b>: {value}{rest}", f"<b>MLP %{{y}}</b>: {value}{rest}"


def hover_number(name: str, reading: Reading) -> str:
    """A number in a hover template."""
    return f"%{{{name}:+.{2 if reading.unit else 4}f}}{reading.unit}"
