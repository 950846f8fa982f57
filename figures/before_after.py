"""What tuning changed: every head's and MLP's effect before it, after it, and the difference.

Reads a run of `experiments/what_tuning_changes.py` (the newest of the model, or `--run PATH`) and
draws it without loading a model: a row a tuned model, three maps on one scale.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
import tyro
from jaxtyping import Bool
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.components import Head
from arith_lens.effects import BeforeAfter, Effects
from arith_lens.runs import Run
from experiments import results
from figures import maps
from figures.command import command
from figures.common import NotComputed, Options, chosen_run
from figures.exhibit import Chart, show

N_LABELS = 6
CLEAR = 0.01
"""Changes of relative effects that are outlined: many smaller ones are just as certain."""


@dataclass(frozen=True)
class Tuned:
    """One tuned model against the model as it was."""

    name: str
    both: BeforeAfter
    facts: results.TunedFacts
    computed: Bool[torch.Tensor, "pair"] | None

    @property
    def heads(self) -> list[Head]:
        """Those that were tuned, as far as that is known."""
        return [Head.parse(one) for one in self.facts["components"] if "." in one]


def main(options: Annotated[Options, tyro.conf.arg(name="")]) -> None:
    """Draw, and print what was written."""
    show(exhibits, options, options.formats)


def exhibits(options: Options) -> list[Chart]:
    """The maps of a run. Raises RunError where there is none, or none of a tuned model."""
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
            vector=draw(run, models, vector=True),
        )
    ]


def read(run: Run, name: str) -> Tuned:
    """What a run holds of one tuned model."""
    stored = results.TUNED_MAP
    return Tuned(name, stored.load(run, name), stored.facts(run, name), stored.computed(run, name))


def draw(run: Run, models: list[Tuned], *, vector: bool = False) -> plotting.Figure:
    """A row a tuned model: before, after, difference."""
    reading = maps.Reading.of(run.config)
    parts = [panel for model in models for panel in row(model, reading)]
    return plotting.panels(
        parts,
        axes=("layer", "head"),
        bar_name="MLP",
        colour_title=reading.colour_title,
        hover=maps.hover(reading),
        notes=notes(run, models, reading),
        headings=[heading(model) for model in models],
        unit=reading.unit,
        across=3,
        span=300,
        vector=vector,
    )


def row(model: Tuned, reading: maps.Reading) -> list[plotting.Panel]:
    """The three maps; dots are on the tuned heads, outlines on clear changes."""
    both, plain_reading = model.both, replace(reading, paper=None)
    sides = {
        "before": (both.before.heads, both.before.mlps),
        "after": (both.after.heads, both.after.mlps),
        "after − before": (both.heads, both.mlps),
    }
    panels = []
    for title, parts in sides.items():
        heads, mlps = (maps.statistics(part, model.computed) for part in parts)
        panel = maps.panel(
            maps.Measured(title, None, heads, mlps), plain_reading, n_labels=N_LABELS
        )
        dots = tuple((head.layer, head.index) for head in model.heads)
        panels.append(replace(panel, dots=dots))
    outlined = changes(both.heads, CLEAR if reading.relative else 0.0)
    return [*panels[:2], replace(panels[2], marks=tuple(outlined))]


def changes(difference: Effects, least: float) -> list[plotting.Mark]:
    """Heads whose interval leaves out zero and whose mean change is beyond `least`, the largest
    first; dark where the effect fell (the head supports the answer more)."""
    means, certain = difference.mean().numpy(), is_certain(difference)
    cells = np.argwhere(certain & (np.abs(means) > least)).tolist()
    return [
        plotting.Mark(
            row=layer,
            column=head,
            text=f"{layer}.{head}" if rank < N_LABELS else "",
            strong=bool(means[layer, head] < 0),
        )
        for rank, (layer, head) in enumerate(
            sorted(cells, key=lambda cell: -abs(means[cell[0], cell[1]]))
        )
    ]


def is_certain(difference: Effects) -> Bool[np.ndarray, "layer head"]:
    """Where the 95% bootstrap interval of the mean change leaves out zero."""
    low, high = difference.ci().numpy()
    return (low > 0) | (high < 0)


def heading(model: Tuned) -> str:
    """The tuned model's name, and what of it was tuned."""
    tuned = ", ".join(model.facts["components"])
    return f"{model.name}: {tuned} tuned" if tuned else model.name


def notes(run: Run, models: list[Tuned], reading: maps.Reading) -> list[str]:
    """The small print: how to read the figure, and what is behind each row."""
    clear = f", beyond {CLEAR:.0%} of the logit" if reading.relative else ""
    return [
        maps.reading_note(reading),
        "Third column: the change within each pair; outlined where the 95% bootstrap interval of "
        f"its mean leaves out zero{clear}: dark where the component's effect fell (it supports "
        "the answer more), light where it rose. Dots: tuned heads.",
        *(f"{model.name}: {summary(model)}." for model in models),
        f"{maps.data_note(run.config)[:-1]}; the four operations together. Right: before tuning.",
    ]


def summary(model: Tuned) -> str:
    """One tuned model in words: what it still knows, its logits, how much changed where."""
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


def numbers(models: list[Tuned]) -> DataFrame:
    """The figure as a table: a row a tuned model and component."""
    tables = []
    for model in models:
        table = model.both.to_dataframe()
        table.insert(0, "tuned", model.name)
        tables.append(table)
    return concat(tables, ignore_index=True)


if __name__ == "__main__":
    command(main, "before_after", __doc__)
