"""Accuracy over thousands of answers, of the model before tuning and of the tuned ones.

Reads a run of `experiments/does_it_drift.py` and draws it without loading a model: HTML that opens
offline, PNG, SVG and PDF where Chrome or Chromium is found, and the numbers as CSV.
"""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.answers import Answers, trend
from arith_lens.runs import Run
from experiments import results
from figures.command import command
from figures.common import Options, chosen_run
from figures.exhibit import Chart, command_for

COLOURS = (plotting.RED, plotting.BLUE, plotting.TEAL, plotting.OCHRE, plotting.VIOLET)


def exhibits(options: Options) -> list[Chart]:
    """The lines of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "does_it_drift")
    answers = {name: results.DRIFT.load(run, name) for name in results.DRIFT.labels(run)}
    table = DataFrame(
        {"model": name, "first": start, "answers": len(chunk), "accuracy": chunk.accuracy}
        for name, model_answers in answers.items()
        for start, chunk in chunks(model_answers, run.config["chunk"])
    )
    return [
        Chart(
            name="drift",
            title="Does a tuned model's accuracy drift over thousands of answers?",
            look="Flat lines. A greedy model keeps nothing from one prompt to the next, so a drift "
            "would be a fault of the computation; nothing follows about other problems.",
            notes=notes(run, answers),
            runs=(run,),
            numbers=table,
            figure=draw(run, answers),
        )
    ]


def chunks(answers: Answers, size: int) -> list[tuple[int, Answers]]:
    """The answers in their order, `size` at a time, with the index of each chunk's first answer."""
    return [
        (start, answers.select([start <= i < start + size for i in range(len(answers))]))
        for start in range(0, len(answers), size)
    ]


def draw(run: Run, answers: Mapping[str, Answers]) -> plotting.Figure:
    """One chart with one line per model."""
    size = run.config["chunk"]
    return plotting.curve_panels(
        [
            plotting.CurvePanel(
                title="",
                lines=tuple(
                    _line(model_answers, size, *style)
                    for model_answers, style in zip(answers.values(), _styles(answers), strict=True)
                ),
                y_title="Word problems right",
            )
        ],
        x_title="Answers given so far",
        unit="%",
        notes=notes(run, answers),
        panel=(620, 300),
    )


def _styles(answers: Mapping[str, Answers]) -> list[tuple[str, str]]:
    """A name and a colour for each model."""
    tuned = [name for name in answers if name != "before"]
    of = {name: (name.replace("-", " "), COLOURS[i % len(COLOURS)]) for i, name in enumerate(tuned)}
    return [of.get(name, ("before tuning", plotting.GREY)) for name in answers]


def _line(answers: Answers, size: int, name: str, colour: str) -> plotting.Line:
    parts = chunks(answers, size)
    low, high = (np.array([100 * part.ci()[end] for _, part in parts]) for end in (0, 1))
    return plotting.Line(
        np.array([start + len(part) / 2 for start, part in parts]),
        np.array([100 * part.accuracy for _, part in parts]),
        name,
        colour,
        low=low,
        high=high,
    )


def notes(run: Run, answers: Mapping[str, Answers]) -> list[str]:
    """How to read the figure, and the trends."""
    trends = []
    for model_answers, (name, _) in zip(answers.values(), _styles(answers), strict=True):
        model_trend = trend(model_answers.correct)
        low, high = (100 * end for end in model_trend.ci())
        flat = "flat" if model_trend.flat else "NOT flat"
        trends.append(f"{name} {100 * model_trend.slope:+.1f} [{low:+.1f}, {high:+.1f}], {flat}")
    again = "; ".join(
        f"{run.facts(name)['same']} of {run.facts(name)['repeated']}" for name in answers
    )
    return [
        f"Model: {run.config['model']}. Unseen word problems in random order, chunks of "
        f"{run.config['chunk']}, one after another (bands: 95% interval of each).",
        f"Points a thousand answers [95% interval]: {'; '.join(trends)}.",
        f"The first chunk again at the end, answers the same to the letter: {again}.",
    ]


main = command_for(exhibits)

if __name__ == "__main__":
    command(main, "drift", __doc__)
