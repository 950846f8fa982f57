"""Figure 16: the attention of operator heads on the word of each operation.

Reads a run of `experiments/where_do_they_look.py` (the model's newest, or `--run PATH`) and
draws it without loading a model.
"""

from arith_lens.attention import Patterns
from figures import patterns
from figures.common import Options
from figures.exhibit import Chart, command_for

SAYS = "Heads that are operator heads in one operation at least, on one sentence with each word."


def exhibits(options: Options) -> list[Chart]:
    """The patterns of a run. Raises RunError if there is no run."""
    return [
        patterns.chart(
            options,
            "words",
            name="fig16",
            title="Figure 16: operator heads on the word of each operation",
            look=look,
            says=SAYS,
        )
    ]


def look(shown: Patterns) -> str:
    """What to look for, and the word that each head of this run looks at most in each prompt."""
    parts = []
    for row, head in enumerate(shown.heads):
        words = [
            patterns.strongest_word(tokens, weights[row, -1].numpy())
            for tokens, weights in zip(shown.tokens, shown.weights, strict=True)
        ]
        parts.append(f"{head} {', '.join(words)}")
    return (
        "Whether one head looks at the operation in whichever words it comes. In the paper the "
        "same heads look at plus, minus, times and divided by. Here the words with the largest "
        f"weights are, in order of the prompts: {'; '.join(parts)}."
    )


main = command_for(exhibits)
