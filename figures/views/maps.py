"""Maps of heads with their MLPs, from rows of the table `effects`, and their small print."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.components import Head
from arith_lens.operations import OPERATIONS
from arith_lens.paper import PaperModel, paper_model
from figures.tables.effects import (
    EFFECT,
    HELD,
    KEY_EFFECT,
    OF_COMPUTED,
    RELATIVE,
)
from figures.tables.table import select

N_LABELS = 3
COLOUR_LIMIT = 40.0  # end of the colour scale of relative effects in every figure, in percent
COLOUR_TITLES = {
    "relative_logit": "Change of the right answer's logit",
    "logit": "Change of the right answer's logit",
    "logprob": "Change of log p of the right answer",
    "probability": "Change of p of the right answer",
    "digit_contrast": "Change of the answer's lead over the other digits",
    "share_of_total": "Share of the whole prompt's change",
    "share_of_total_contrast": "Share of the whole prompt's change",
    "share_of_total_probability": "Share of the whole prompt's change",
}
STRIPS: dict[int, dict[str, Any]] = {
    1: {"strip_names": ("MLP",)},
    2: {"strip_names": ("free", "held"), "strip_titles": ("MLP", "norm")},
}
"""The names of the strips: MLPs as in the paper, and with the final norm's scale held."""


@dataclass(frozen=True)
class EffectScale:
    """How the numbers of a run are shown: their scale, unit and limit."""

    scale: float
    unit: str
    paper: PaperModel | None
    colour_title: str

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "EffectScale":
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
    parts: Sequence[plotting.Panel | None],
    reading: EffectScale,
    notes: Sequence[str],
    **layout: Any,
) -> plotting.Figure:
    """Maps of heads with their MLPs.

    Args:
        reading: how their numbers are shown.
        notes: the small print.
        layout: further arguments of `plotting.panels`, some in place of those here.
    """
    known = [part for part in parts if part is not None]
    n_strips = max((part.strips.shape[1] for part in known), default=1)
    colours = plotting.ColourScale(reading.colour_title, reading.unit, reading.limit)
    shared = {"colours": colours, "axes": ("layer", "head"), "hover": hover(reading)} | layout
    shared |= {**STRIPS[n_strips], "hover": shared["hover"][: n_strips + 1]}
    return plotting.panels(
        [part and _widened(part, n_strips) for part in parts], notes=notes, **shared
    )


def _widened(part: plotting.Panel, n_strips: int) -> plotting.Panel:
    """The panel with empty strips for those that it lacks."""
    lacks = n_strips - part.strips.shape[1]
    room = ((0, 0), (0, lacks))
    return replace(
        part,
        strips=np.pad(part.strips, room, constant_values=np.nan),
        strip_hover=np.pad(part.strip_hover, (*room, (0, 0)), constant_values=np.nan),
        strip_texts=tuple((*row, *[""] * lacks) for row in part.strip_texts),
    )


def title(name: str) -> str:
    """An operation's name with its sign."""
    sign = f" ({OPERATIONS[name].sign})" if name in OPERATIONS else ""
    return plotting.plain(name.capitalize() + sign)


def panel(
    rows: DataFrame,
    reading: EffectScale,
    heading: str,
    *,
    dots: Collection[Head] = (),
    n_labels: int = N_LABELS,
) -> plotting.Panel:
    """One map. Key heads and MLPs are outlined; the strongest heads have names, opposing ones too.

    The outline is solid where the whole interval is beyond the threshold, and dashed where only
    the mean is.

    Args:
        rows: the rows of one map in the table `effects`.
        reading: how its numbers are shown.
        heading: its title, as of `title`.
        dots: the heads that have dots, as far as the map has them.
        n_labels: so many heads have names.
    """
    is_head = rows["index"].notna()
    of_heads, every_mlp = DataFrame(rows[is_head]), DataFrame(rows[~is_head])
    computed = [select(part, measure=OF_COMPUTED) for part in (of_heads, every_mlp)]
    of_heads, of_mlps = (select(part, measure=EFFECT) for part in (of_heads, every_mlp))
    means, low, high = (cells(of_heads, name) for name in ("value", "low", "high"))
    n_layers, n_heads = means.shape
    of_computed = np.full((n_layers, n_heads + 1), np.nan)
    if len(computed[0]):
        of_computed = np.hstack([cells(part, "value") for part in computed])
    strips = [_strip(of_mlps, of_computed[:, n_heads])]
    if len(held := select(every_mlp, measure=HELD)):
        strips.append(_strip(held, np.full(n_layers, np.nan)))
    of_strips = reading.scale * np.stack(strips, axis=1)
    named = cells(of_heads.assign(named=of_heads.role != ""), "named") > 0
    strip_mean, strip_low, strip_high = np.moveaxis(of_strips[..., :3] / reading.scale, -1, 0)
    large = reading.relative & (strip_mean < KEY_EFFECT)
    return plotting.Panel(
        title=heading,
        values=reading.scale * means,
        strips=of_strips[..., 0],
        hover=reading.scale * np.stack([means, low, high, of_computed[:, :n_heads]], axis=-1),
        strip_hover=of_strips,
        marks=tuple(outlines(means, named, n_labels, _is_certain(means, low, high))),
        strip_marks=tuple(
            outlines(strip_mean, large, 0, _is_certain(strip_mean, strip_low, strip_high))
        ),
        dots=tuple(
            (head.layer, head.index)
            for head in dots
            if head.layer < n_layers and head.index < n_heads
        ),
    )


def _is_certain(
    means: Float[np.ndarray, "layer cell"],
    low: Float[np.ndarray, "layer cell"],
    high: Float[np.ndarray, "layer cell"],
) -> Bool[np.ndarray, "layer cell"]:
    """Whether the whole interval is beyond the threshold of a key head."""
    return np.where(means < 0, high < KEY_EFFECT, low > -KEY_EFFECT)


def _strip(
    rows: DataFrame, computed: Float[np.ndarray, " layer"]
) -> Float[np.ndarray, "layer statistic=4"]:
    """The numbers of MLPs: mean, the ends of the interval, and the mean over computed pairs."""
    parts = [cells(rows, name)[:, 0] for name in ("value", "low", "high")]
    return np.stack([*parts, computed], axis=-1)


def cells(rows: DataFrame, column: str) -> Float[np.ndarray, "layer index"]:
    """A column of rows as an array by layer and index; MLPs have one column."""
    layers, indices = (rows[name].fillna(0).to_numpy(dtype=int) for name in ("layer", "index"))
    values = np.full((layers.max() + 1, indices.max() + 1), np.nan)
    values[layers, indices] = rows[column].to_numpy(dtype=float)
    return values


def outlines(
    means: Float[np.ndarray, "layer head"],
    chosen: Bool[np.ndarray, "layer head"],
    n_labels: int,
    certain: Bool[np.ndarray, "layer head"] | None = None,
) -> list[plotting.Mark]:
    """Outlines of the chosen heads, strongest first; dark where the mean is negative.

    Those that are not `certain` are dashed; None: all are.
    """
    cells = sorted(np.argwhere(chosen).tolist(), key=lambda cell: -abs(means[cell[0], cell[1]]))
    return [
        plotting.Mark(
            row=layer,
            column=head,
            text=f"{layer}.{head}" if rank < n_labels else "",
            strong=bool(means[layer, head] < 0),
            certain=certain is None or bool(certain[layer, head]),
        )
        for rank, (layer, head) in enumerate(cells)
    ]


def hover(reading: EffectScale) -> tuple[str, str, str]:
    """Hover templates of a head, an MLP and an MLP with held norm, with numbers of `panel`."""
    low, high, computed = (hover_number(f"customdata[{i}]", reading) for i in (1, 2, 3))
    between = f"<br>95%: {low} to {high}"
    held = f"<b>MLP %{{y}}</b>, norm held: {hover_number('z', reading)}{between}"
    return *templates(f"{between}<br>computed pairs: {computed}", reading), held


def templates(rest: str, reading: EffectScale) -> tuple[str, str]:
    """Hover templates of a head and an MLP: its name, its value, then `rest`."""
    value = hover_number("z", reading)
    return f"head <b>%{{y}}.%{{x}}</b>: {value}{rest}", f"<b>MLP %{{y}}</b>: {value}{rest}"


def hover_number(name: str, reading: EffectScale) -> str:
    """A number in a hover template."""
    return f"%{{{name}:+.{2 if reading.unit else 4}f}}{reading.unit}"
