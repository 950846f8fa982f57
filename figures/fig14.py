"""Figure 14: the answer in what MLPs write, in several models and operations.

Reads the newest run of `experiments/what_do_mlps_add.py` of each model (or `--runs PATH PATH`) and
draws them without loading a model, on relative depth if the models' depths differ.
"""

from figures import common, probes
from figures.exhibit import Chart, command_for


def exhibits(options: common.ModelOptions) -> list[Chart]:
    """The curves of several models. Raises RunError if a run is missing."""
    return [
        probes.models_chart(
            options,
            "write",
            name="fig14",
            title="Figure 14: the answer in what MLPs write, in several models",
            look="Whether the answer C rises in each model and operation where the operands fall "
            "(Figure 13), and other numbers fall. In the paper they do in all models.",
        )
    ]


main = command_for(exhibits)
