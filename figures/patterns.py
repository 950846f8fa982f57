"""What Figures 7 and 16 share: the attention from END of some heads, on a few prompts."""

from collections.abc import Sequence

from arith_lens import plotting
from arith_lens.attention import Patterns
from arith_lens.runs import Run
from experiments import results
from figures.common import Options, chosen_run
from figures.exhibit import Chart

EXPERIMENT = "where_do_they_look"


def chart(options: Options, result: str, *, name: str, title: str, look: str, says: str) -> Chart:
    """The chart of some patterns, with interactive views.

    Args:
        options: which run to show.
        result: which patterns of the run.
        name, title, look: of the chart.
        says: what the figure shows, for its small print.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, EXPERIMENT)
    patterns = results.PATTERNS.load(run, result)
    small_print = [says, *notes(run)]
    return Chart(
        name=name,
        title=title,
        look=look,
        notes=small_print,
        runs=(run,),
        numbers=patterns.to_dataframe(),
        figure=draw(patterns, small_print),
        views=tuple(patterns.view(index) for index in range(len(patterns.prompts))),
        views_name=f"{name}-patterns",
    )


def draw(patterns: Patterns, small_print: Sequence[str]) -> plotting.Figure:
    """One panel per prompt, one row per head, one column per token."""
    return plotting.matrix_panels(
        [
            plotting.Matrix(
                title=plotting.plain(f"“{prompt.strip()}”"),
                rows=patterns.heads,
                groups=(
                    plotting.Columns(
                        "", tuple(map(plotting.visible, tokens)), 100 * weights[:, -1].numpy()
                    ),
                ),
            )
            for prompt, tokens, weights in zip(
                patterns.prompts, patterns.tokens, patterns.weights, strict=True
            )
        ],
        colour_title="Attention",
        unit="%",
        limit=100,
        upright=True,
        rising=True,
        notes=small_print,
    )


def notes(run: Run) -> list[str]:
    """The data of the figure."""
    return [
        f"Model: {run.config['model']}. Heads by the strength of their effect on the answer's "
        f"logit in single-digit calculations, seed {run.config['seed']}. Blue: the weight that END "
        "(the last token) gives to each token; a row sums to 100%."
    ]
