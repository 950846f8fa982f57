"""Figure 13: the operands in what MLPs read, in several models and operations.

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
            "mlp_in",
            name="fig13",
            title="Figure 13: the operands in what MLPs read, in several models",
            look="Whether A and B rise above the other digits and fall again in each model and "
            "operation, and in which layers. In the paper they do in all models.",
        )
    ]


main = command_for(exhibits)
