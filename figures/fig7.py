"""Figure 7: the attention of operand heads on formats that they were not found with.

Reads a run of `experiments/where_do_they_look.py` (the model's newest, or `--run PATH`) and
draws it without loading a model.
"""

from arith_lens.attention import Patterns
from figures import patterns
from figures.common import Options
from figures.exhibit import Chart, command_for

SAYS = "Operand heads of one operation at least, on formats that they were not found with."


def exhibits(options: Options) -> list[Chart]:
    """The patterns of a run. Raises RunError if there is no run."""
    return [
        patterns.chart(
            options,
            "formats",
            name="fig7",
            title="Figure 7: operand heads on formats that they were not found with",
            look=look,
            says=SAYS,
        )
    ]


def look(shown: Patterns) -> str:
    """What to look for, and how much each head of this run gives to digits."""
    shares = patterns.weight_on_digits(shown)
    text = ", ".join(f"{head} {share:.0%}" for head, share in shares.items())
    return (
        "Whether the heads found in single-digit calculations still look at the numbers of word "
        "problems, time spans and decimals. In the paper they do. Here digits have this share of "
        f"their attention, on average over the prompts: {text}."
    )


main = command_for(exhibits)
