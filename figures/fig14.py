"""Figure 14: the answer in what MLPs write, in several models and operations.

Reads the newest run of `experiments/what_do_mlps_add.py` of each model (or `--runs PATH PATH`) and
draws them without loading a model, on relative depth where the models have several.
"""

import sys
from typing import Annotated

import tyro

from arith_lens.runs import RunError
from figures import common, probes

READ = "write"


def main(options: Annotated[common.ModelOptions, tyro.conf.arg(name="")]) -> None:
    """Draw, and print what was written."""
    try:
        runs = common.chosen_runs(options, probes.EXPERIMENT)
        figure = probes.draw_models(runs, READ)
    except RunError as error:
        sys.exit(str(error))
    numbers = probes.numbers(runs, READ)
    common.write(options.out / "fig14", numbers, figure, options.formats)


if __name__ == "__main__":
    tyro.cli(main, prog="python -m figures.fig14", description=__doc__)
