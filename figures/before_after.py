"""What tuning changed: every head's and MLP's effect before it, after it, and the difference.

Reads a run of `experiments what_tuning_changes` (the newest of the model, or `--run PATH`) and
draws it without loading a model: one row of three maps per tuned model, on one scale.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.components import Head
from arith_lens.effects import BeforeAfter, Effects
from arith_lens.runs import Run
from experiments import results
from figures import maps
from figures.common import NotComputed, Options, chosen_run
from figures.exhibit import Chart

N_LABELS = 6
CLEAR = 0.01
"""Only larger changes of relative effects are outlined: many smaller ones are certain too."""


@dataclass(frozen=True)
class TunedComparison:
    """One tuned model against the model as it was."""

    name: str
    both: BeforeAfter
    facts: results.TunedFacts
    computed: Bool[torch.Tensor, " pair"] | None

    @property
    def heads(self) -> list[Head]:
        """The tuned heads, as far as they are known."""
        return [Head.parse(name) for name in self.facts["components"] if "." in name]


def exhibits(options: Options) -> list[Chart]:
    """The maps of a run. Raises RunError if there is no run, or if it has no tuned model."""
    run = chosen_run(options, "what_tuning_changes")
    models = [read(run, name) for name in results.TUNED_MAP.labels(run)]
    if not models:
        raise NotComputed(
            f"expected effects after tuning, found that {run.path} holds no tuned model",
            f"python -m experiments what_tuning_changes --model {run.config['model']}",
        )
    return [
        Chart(
            name="before_after",
            title=f"What tuning changed: effects before and after, {run.config['model']}",
            look="Whether the clear changes stand at the tuned heads, which have dots, or "
            "elsewhere: then parts that were not touched do other work now.",
            notes=notes(run, models, maps.Reading.of(run.config)),
            runs=(run,),
            numbers=numbers(models),
            figure=draw(run, models),
        )
    ]


def read(run: Run, name: str) -> TunedComparison:
    """The results of one tuned model in a run."""
    stored = results.TUNED_MAP
    return TunedComparison(
        name, stored.load(run, name), stored.facts(run, name), stored.computed(run, name)
    )


def draw(run: Run, models: list[TunedComparison]) -> plotting.Figure:
    """One row per tuned model: before, after, difference."""
    reading = maps.Reading.of(run.config)
    return maps.draw(
        [panel for model in models for panel in row(model, reading)],
        reading,
        notes(run, models, reading),
        headings=[heading(model) for model in models],
        across=3,
        span=232,
    )


def row(model: TunedComparison, reading: maps.Reading) -> list[plotting.Panel]:
    """The three maps. Dots mark the tuned heads, outlines the clear changes."""
    both, plain_reading = model.both, replace(reading, paper=None)
    sides = {
        "before": (both.before.heads, both.before.mlps),
        "after": (both.after.heads, both.after.mlps),
        "after − before": (both.heads, both.mlps),
    }
    panels = []
    for title, parts in sides.items():
        heads, mlps = (maps.statistics(part, model.computed) for part in parts)
        panel = maps.panel(maps.Measured(title, "", heads, mlps), plain_reading, n_labels=N_LABELS)
        dots = tuple((head.layer, head.index) for head in model.heads)
        panels.append(replace(panel, dots=dots))
    outlined = changes(both.heads, CLEAR if reading.relative else 0.0)
    return [*panels[:2], replace(panels[2], marks=tuple(outlined))]


def changes(difference: Effects, least: float) -> list[plotting.Mark]:
    """Heads with a mean change beyond `least` and an interval without zero, the largest first.

    An outline is dark where the effect fell, so that the head supports the answer more.
    """
    means, certain = difference.mean().numpy(), is_certain(difference)
    return maps.outlines(means, certain & (np.abs(means) > least), N_LABELS)


def is_certain(difference: Effects) -> Bool[np.ndarray, "layer head"]:
    """Where the 95% bootstrap interval of the mean change does not contain zero."""
    low, high = difference.ci().numpy()
    return (low > 0) | (high < 0)


def heading(model: TunedComparison) -> str:
    """The tuned model's name and its tuned components."""
    tuned = ", ".join(model.facts["components"])
    return f"{model.name}: {tuned} tuned" if tuned else model.name


def notes(run: Run, models: list[TunedComparison], reading: maps.Reading) -> list[str]:
    """The small print: how to read the figure, and the data of each row."""
    clear = f", beyond {CLEAR:.0%} of the logit" if reading.relative else ""
    return [
        maps.map_note(reading),
        "Third column: the change within each pair; outlined where the 95% bootstrap interval of "
        f"its mean leaves out zero{clear}: dark where the component's effect fell (it supports "
        "the answer more), light where it rose. Dots: tuned heads.",
        *(f"{model.name}: {summary(model)}." for model in models),
        f"{maps.data_note(run.config)[:-1]}; the four operations together. Right: before tuning.",
    ]


def summary(model: TunedComparison) -> str:
    """One tuned model in words: its right answers, its logits, how much changed and where."""
    both = model.both
    before, after = (float(side.logit.mean()) for side in (both.before, both.after))
    means, certain = both.heads.mean().abs(), torch.as_tensor(is_certain(both.heads))
    total = f"{int(certain.sum())} of {certain.numel()} heads changed"
    if model.heads:
        tuned_share = sum(means[head.layer, head.index] for head in model.heads) / means.sum()
        total += f", the tuned ones by {float(tuned_share):.0%} of all change"
    return (
        f"{model.facts['still_right']:.1%} of prompts still answered right, mean logit of the "
        f"answer {before:.1f} before and {after:.1f} after; {total}"
    )


def numbers(models: list[TunedComparison]) -> DataFrame:
    """The figure as a table, one row per tuned model and component."""
    tables = []
    for model in models:
        table = model.both.to_dataframe()
        table.insert(0, "tuned", model.name)
        tables.append(table)
    return concat(tables, ignore_index=True)
