"""Agreement: do other counterfactuals, problems and methods give the same effects of heads?"""

from functools import partial

from pandas import DataFrame

from arith_lens import plotting
from figures.common import chosen_run
from figures.exhibit import Chart, chart_of
from figures.options import Options
from figures.tables import agreement as numbers
from figures.tables.agreement import CORRELATION, IN_COMMON, N_STRONGEST
from figures.tables.effects import EFFECT
from figures.tables.table import keys_of, select
from figures.views import marks
from figures.views.marks import FROM_DATA, LEVEL, DotChart, Marks

N_SHOWN = 4
"""How many of the strongest heads of each set of problems have a row."""


def _effects_of_heads(rows: DataFrame) -> DataFrame:
    """The effects of heads, without those of MLPs."""
    effects = select(rows, measure=EFFECT, other="")
    return DataFrame(effects[effects["index"].notna()])


def _chance(rows: DataFrame) -> float:
    """The share of as many random heads that two sets have in common."""
    return N_STRONGEST / len(keys_of(_effects_of_heads(rows), "component"))


def _strongest(rows: DataFrame) -> dict[str, str]:
    """The heads that are among the strongest of one set of problems, the strongest first."""
    effects = _effects_of_heads(rows).sort_values("value")
    shown = effects.groupby("problems").head(N_SHOWN)
    return {name: name for name in keys_of(shown, "component")}


PAIRS = (
    Marks(
        {"counterfactual": "word", "other": "operator"},
        "a word (3 void 5) and another operator (3 minus 5)",
        style="answer",
    ),
    Marks(
        {"counterfactual": "word", "other": "operands"},
        "a word and other numbers (4 plus 2)",
        "circle-open",
    ),
    Marks(
        {"counterfactual": "operator", "other": "operands"},
        "another operator and other numbers",
        "diamond-open",
    ),
)
COUNTERFACTUALS = [
    DotChart(
        {"measure": measure},
        (*PAIRS, Marks({}, "by chance", LEVEL, "control", level)),
        title=title,
        names="operation",
        scale=1,
    )
    for measure, title, level in (
        (CORRELATION, "Rank correlation of all heads, n = {n}", lambda _: 0.0),
        (IN_COMMON, f"Share in common of {N_STRONGEST} strongest heads, n = {{n}}", _chance),
    )
]
COMPUTED = [
    DotChart(
        {"measure": EFFECT, "other": ""},
        (
            Marks({"problems": "one-digit"}, "one-digit problems"),
            Marks(
                {"problems": "computed"},
                "larger problems, whose answer is not in the prompt",
                "circle-open",
                "answer",
            ),
        ),
        title="{operation}, n = {n}",
        names="component",
        titles=_strongest,
        columns="operation",
        linked=True,
    )
]


def counterfactuals(options: Options) -> list[Chart]:
    """How far the heads of three kinds of counterfactual agree, two and two.

    Reads a run of `experiments which_counterfactual` and draws it without loading a model: the rank
    correlation of the heads' effects and the share of the ten strongest heads that two kinds have
    in common, with 95% intervals over problems. The table has the maps, too.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "which_counterfactual")
    chart = chart_of(
        partial(numbers.counterfactuals, run),
        [run],
        name="counterfactuals",
        title="Do the heads depend on the counterfactual?",
        caption="An effect is the change of the answer when one head gets its output from a prompt "
        "with a word, another operator or other numbers. A mark compares two of these in one "
        "operation. Lines: 95% intervals over problems; that of a share can end at the share.",
        draw=partial(
            marks.draw, charts=COUNTERFACTUALS, axis=plotting.DotAxis((-0.28, 1.04)), row=36
        ),
    )
    return [chart]


def computed(options: Options) -> list[Chart]:
    """The strongest heads where no answer can be copied, and in all one-digit problems.

    Reads a run of `experiments do_copies_decide` and draws it without loading a model. The table
    has the maps, the rank correlation of the heads' effects and the share of the ten strongest
    heads that both sets of problems have in common, with 95% intervals over problems.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "do_copies_decide")
    axis = plotting.DotAxis(FROM_DATA, "effect", "%", every_line=True)
    chart = chart_of(
        partial(numbers.problem_sets, run),
        [run],
        name="computed",
        title="Do the same heads matter where no answer can be copied?",
        caption=f"Rows: the {N_SHOWN} strongest heads (layer.head) of each set of problems. A "
        "mark is the change of the answer when one head gets its output from the counterfactual. "
        "n: problems answered right. Lines: 95% intervals over problems.",
        draw=partial(marks.draw, charts=COMPUTED, axis=axis, row=18),
    )
    return [chart]
