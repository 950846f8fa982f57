"""Figure 2: what every head and MLP does to the logit of the right answer, by operation.

Reads a run of `experiments/which_heads.py` (the newest one of the model, or `--run PATH`) and draws
it without loading a model: HTML that opens offline, PNG, SVG and PDF where Chrome or Chromium is
found, and the numbers as CSV. `figures/fig12.py` draws several models on one scale,
`figures/fig15.py` prints every number in its cell.
"""

from collections.abc import Sequence

from arith_lens import plotting
from arith_lens.runs import Run
from experiments import results
from figures import maps
from figures.common import Options, chosen_run
from figures.exhibit import Chart


def exhibits(options: Options) -> list[Chart]:
    """The maps of all operations of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "which_heads")
    measured = [maps.measure(run, name) for name in results.MAP.labels(run)]
    return [
        Chart(
            name="fig2",
            title="Figure 2: what every head and MLP does to the logit of the right answer",
            look=look(run, measured),
            notes=notes(run),
            runs=(run,),
            numbers=maps.numbers(measured),
            figure=draw(run, measured),
        )
    ]


def look(run: Run, measured: Sequence[maps.Measured]) -> str:
    """What to look for, and how many heads of this run are key heads."""
    count = maps.key_head_count(measured, maps.Reading.of(run.config))
    return (
        "Red cells: heads and MLPs whose loss lowers the logit of the answer. In the paper key "
        "heads are in the middle layers, under 5% of all, and the same ones serve several "
        "operations; MLPs matter only after the first of them." + f" Here {count}." * bool(count)
    )


def draw(run: Run, measured: Sequence[maps.Measured]) -> plotting.Figure:
    """One panel per operation, two in a row."""
    reading = maps.Reading.of(run.config)
    return maps.draw([maps.panel(part, reading) for part in measured], reading, notes(run))


def notes(run: Run) -> list[str]:
    """The small print: how to read the figure, what it was made from, what the paper found."""
    reading = maps.Reading.of(run.config)
    return [
        maps.map_note(reading),
        maps.data_note(run.config),
        *maps.paper_notes(reading.paper, results.MAP.labels(run)),
    ]
