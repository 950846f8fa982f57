"""Figure 2: what every head and MLP does to the logit of the right answer, an operation a panel.

Reads a run of `experiments/which_heads.py` (the newest one of the model, or `--run PATH`) and draws
it without loading a model: HTML that opens offline, PNG, SVG and PDF where Chrome or Chromium is
found, and the numbers as CSV. Several models on one scale: `figures/fig12.py`; every number in its
cell: `figures/fig15.py`.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from arith_lens import plotting
from arith_lens.runs import Run, RunError
from figures import maps
from figures.common import Options, chosen_run, stem_of, write


def main(options: Annotated[Options, tyro.conf.arg(name="")]) -> None:
    """Draw, and print what was written."""
    try:
        run = chosen_run(options, "which_heads")
        measured = [maps.measure(run, name) for name in run.names]
    except RunError as error:
        sys.exit(str(error))
    screen, print_ = (draw(run, measured, vector=vector) for vector in (False, True))
    stem = stem_of(options, run, "fig2")
    write(stem, maps.numbers(measured), screen, options.formats, vector=print_)


def draw(run: Run, measured: Sequence[maps.Measured], *, vector: bool = False) -> plotting.Figure:
    """The figure, two panels a row; `vector` for SVG and PDF."""
    reading = maps.Reading.of(run.config)
    return plotting.panels(
        [maps.panel(part, reading) for part in measured],
        limit=reading.limit,
        axes=("layer", "head"),
        bar_name="MLP",
        colour_title=reading.colour_title,
        hover=maps.hover(reading),
        notes=notes(run),
        unit=reading.unit,
        across=2,
        vector=vector,
    )


def notes(run: Run) -> list[str]:
    """The small print: how to read the figure, what it was made from, what the paper found."""
    reading = maps.Reading.of(run.config)
    return [
        maps.reading_note(reading),
        maps.data_note(run.config),
        *maps.paper_notes(reading.paper, run.names),
    ]


if __name__ == "__main__":
    tyro.cli(main, prog="python -m figures.fig2", description=__doc__)
