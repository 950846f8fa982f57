"""What the maps of heads and MLPs share: numbers, panels, hover texts and small print."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.effects import KEY, ComponentEffects, Effects, differs_from_zero
from arith_lens.operations import OPERATIONS
from arith_lens.paper import PaperModel, paper_model
from arith_lens.runs import Run
from experiments import results
from figures.common import sample_size

StoredMap: TypeAlias = results.Stored[ComponentEffects, results.PairFacts]
N_LABELS = 9
KEY_EFFECT = KEY["relative_logit"]
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
class Statistics:
    """Four statistics of each component."""

    values: Float[np.ndarray, "*component statistic=4"]
    """The mean, the ends of its 95% interval, and the mean over computed pairs (NaN if unknown)."""
    different: Bool[np.ndarray, "*component"]
    """Whether the mean differs from zero, without which no head is a key head."""

    @property
    def mean(self) -> Float[np.ndarray, "*component"]:
        return self.values[..., 0]

    @property
    def is_key(self) -> Bool[np.ndarray, "*component"]:
        """Which heads are key heads, as in `arith_lens.effects.key_heads`."""
        return self.different & (self.mean < KEY_EFFECT)

    @property
    def is_opposing(self) -> Bool[np.ndarray, "*component"]:
        """Which heads have an effect as large as a key head's that raises the answer's logit."""
        return self.different & (self.mean > -KEY_EFFECT)


@dataclass(frozen=True)
class Measured:
    """One operation's numbers."""

    name: str
    size: str
    heads: Statistics
    mlps: Statistics


@dataclass(frozen=True)
class Reading:
    """How the numbers of a run are shown: their scale, unit and limit."""

    scale: float
    unit: str
    paper: PaperModel | None
    colour_title: str

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Reading":
        relative = config["metric"] == "relative_logit"
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

    @property
    def limit(self) -> float | None:
        """The end of the colour scale; None: the data decide."""
        return COLOUR_LIMIT if self.relative else None


def measure(run: Run, name: str, *label: str, stored: StoredMap = results.MAP) -> Measured:
    """Means and intervals of one operation.

    Args:
        run, name: of which run and operation.
        label: what else the label of the result has.
        stored: where the map is in a run.
    """
    effects, computed = stored.load(run, name, *label), stored.computed(run, name, *label)
    size = sample_size(stored.facts(run, name, *label))
    heads, mlps = (statistics(part, computed) for part in (effects.heads, effects.mlps))
    return Measured(name, size, heads, mlps)


def statistics(effects: Effects, computed: Bool[torch.Tensor, " pair"] | None) -> Statistics:
    """Mean, interval, and mean over computed pairs of each component."""
    mean = effects.mean()
    of_computed = torch.full_like(mean, torch.nan)
    if computed is not None and computed.any():
        of_computed = effects.select(computed).mean()
    values = torch.stack([mean, *effects.ci(), of_computed], dim=-1)
    return Statistics(values.numpy(), differs_from_zero(effects).numpy())


def numbers(measured: Sequence[Measured]) -> DataFrame:
    """The figure as a table, one row per component and operation."""
    columns = ["mean", "ci_low", "ci_high", "mean_computed"]
    tables = []
    for part in measured:
        for statistics in (part.heads, part.mlps):
            indices = np.indices(statistics.mean.shape).reshape(statistics.mean.ndim, -1)
            table = DataFrame(statistics.values.reshape(-1, len(columns)), columns=columns)
            table.insert(0, "operation", part.name)
            table.insert(1, "component", "head" if len(indices) == 2 else "mlp")
            table.insert(2, "layer", indices[0])
            table.insert(3, "head", indices[1] if len(indices) == 2 else None)
            tables.append(table.astype({"head": "Int64"}))
    return concat(tables, ignore_index=True)


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
    part: Measured, reading: Reading, *, n_labels: int = N_LABELS, sized: bool = True
) -> plotting.Panel:
    """One operation's map. Key and opposing heads are outlined; the strongest have names.

    If `sized`, the title has the size of the sample.
    """
    paper_heads = () if reading.paper is None else reading.paper.reported(part.name)[1]
    n_layers, n_heads = part.heads.mean.shape
    return plotting.Panel(
        title=title(part.name, part.size if sized else ""),
        values=reading.scale * part.heads.mean,
        bar=reading.scale * part.mlps.mean,
        hover=reading.scale * part.heads.values,
        bar_hover=reading.scale * part.mlps.values,
        marks=tuple(marks(part.heads, n_labels)) if reading.relative else (),
        dots=tuple(
            (head.layer, head.index)
            for head in paper_heads
            if head.layer < n_layers and head.index < n_heads
        ),
    )


def marks(heads: Statistics, n_labels: int) -> list[plotting.Mark]:
    """Outlines of key and opposing heads, strongest first; the first `n_labels` have names."""
    return outlines(heads.mean, heads.is_key | heads.is_opposing, n_labels)


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


def key_head_count(measured: Sequence[Measured], reading: Reading) -> str:
    """How many heads are beyond the threshold in some operation, and in which layers."""
    if not reading.relative:
        return ""
    key = np.any([part.heads.is_key for part in measured], axis=0)
    layers = np.flatnonzero(key.any(axis=1))
    threshold = f"−{-KEY_EFFECT:.0%}"
    if not len(layers):
        return f"none of {key.size} heads is below {threshold} in any operation"
    where = f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]} to {layers[-1]}"
    return (
        f"{int(key.sum())} of {key.size} heads ({key.mean():.1%}) are below {threshold} in some "
        f"operation, in {where}"
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


def sizes_note(measured: Sequence[Measured]) -> str:
    """The samples of the operations."""
    return "; ".join(f"{part.name}: {part.size}" for part in measured if part.size) + "."


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
