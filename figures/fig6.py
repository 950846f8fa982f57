"""Figure 6: the operands in what MLPs read, the answer in what they write, and one prompt in full.

Reads a run of `experiments/what_do_mlps_add.py` (the newest one of the model, or `--run PATH`) and
draws it without loading a model: HTML that opens offline, PNG, SVG and PDF where Chrome or Chromium
is found, and the numbers as CSV.
"""

from dataclasses import dataclass

import numpy as np
from pandas import concat

from arith_lens import plotting
from arith_lens.probes import case_study
from arith_lens.runs import Run, RunError
from experiments import results
from figures import common, probes
from figures.exhibit import Chart, command_for

DIGITS = tuple(str(digit) for digit in range(10))


@dataclass(frozen=True)
class Options(common.Options):
    """Which run to draw, and where to."""

    operation: str | None = None
    """Which of the run's operations; the first, addition, if not given."""


def exhibits(options: Options) -> list[Chart]:
    """One operation. Raises RunError if there is no run, or if it lacks the operation."""
    run = common.chosen_run(options, probes.EXPERIMENT)
    operation = options.operation or run.config["operations"][0]
    if operation not in run.config["operations"]:
        raise RunError(
            f"expected one of {', '.join(run.config['operations'])}, found {operation!r}"
        )
    tables = {read: probes.numbers([run], read) for read in probes.READS}
    return [
        Chart(
            name="fig6" if options.operation is None else f"fig6-{operation}",
            title=f"Figure 6: what MLPs read and what they write, {operation}",
            look="In the paper the numbers A and B rise in what MLPs read and fall again (a), then "
            "the answer C rises in what they write (b); the layers where the one falls and the "
            "other rises agree. In a single prompt (c) operands come first, the answer last, its "
            "neighbours in between.",
            notes=notes(run, operation),
            runs=(run,),
            numbers=concat(tables, names=["read"]).reset_index("read"),
            figure=draw(run, operation),
        )
    ]


def draw(run: Run, operation: str) -> plotting.Figure:
    """What MLPs read, what they write, and the case study."""
    case = results.DIGITS.facts(run, operation)["case"]
    text = plotting.plain(case["text"].strip())
    empty = plotting.Line(np.zeros(1), np.zeros(1), "", "white")
    titles = ("MLP input", "MLP output − input", f"“{text}”: output − input")
    figure = plotting.curve_panels(
        [
            probes.panel(run, operation, "mlp_in", title=titles[0]),
            probes.panel(run, operation, "write", title=titles[1], first=False),
            plotting.CurvePanel(titles[2], (empty,), y_range=(0, 1)),
        ],
        x_title="Layer",
        notes=notes(run, operation),
        across=2,
        panel=(290, 250),
    )
    cosines, best = case_study(results.DIGITS.load(run, operation), case["pair"])
    plotting.add_grid(
        figure,
        2,
        plotting.Grid(
            cosines.numpy(),
            rows=tuple(map(str, range(len(cosines)))),
            columns=DIGITS,
            winners=tuple(best),
            framed=case["c"],
            axes=("Layer", "Number token"),
            colour_title="cosine (red supports the digit)",
        ),
    )
    return figure


def notes(run: Run, operation: str) -> list[str]:
    """How to read the figure, and what it was made from."""
    case = results.DIGITS.facts(run, operation)["case"]
    normed = " after the final norm" if run.config["final_norm"] else ""
    return [
        f"Model: {run.config['model']}, {operation}. {probes.prompts_note([run], [operation])}",
        f"Cosines at END with columns of W_U{normed}. Others: a, digits that are neither A, B nor "
        "C; b, digits that are not C.",
        "Turning layers are of the curves as they are, the common rise of all digits in them. "
        f"a. {probes.TURNING_NOTE['mlp_in']} b. {probes.TURNING_NOTE['write']}",
        f"Turning layers with 95% intervals: a {probes.turning_text(run, operation, 'mlp_in')}; b "
        f"{probes.turning_text(run, operation, 'write')}.",
        f"c. Printed: the digit that each layer writes most. Red: along the digit's column, so the "
        "write supports it, as in Figure 2; blue: against it. "
        f"A = {case['a']}, B = {case['b']}; framed: the answer, {case['c']}.",
    ]


main = command_for(exhibits)
