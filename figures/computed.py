"""The maps of problems whose answer cannot be copied, below those of all one-digit problems.

Reads a run of `experiments/do_copies_decide.py` and draws it without loading a model. The table
has the rank correlation of the heads' effects and the share of the ten strongest heads that both
sets of problems have in common, with 95% intervals over problems.
"""

from pandas import DataFrame

from arith_lens.runs import Run
from experiments import results
from experiments.do_copies_decide import SETS
from experiments.selection import LARGEST_OPERAND
from figures.common import Options, chosen_run, sample_size
from figures.counterfactuals import TOP, Rows, agreement_table, draw, loaded, notes
from figures.exhibit import Chart, command_for

ROWS = Rows(
    results.SET_MAP,
    dict(zip(SETS, ("all one-digit problems", "larger numbers, computed problems"), strict=True)),
)


def exhibits(options: Options) -> list[Chart]:
    """The maps of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "do_copies_decide")
    effects = loaded(run, ROWS, LARGEST_OPERAND)
    numbers = agreement_table(effects)
    return [
        Chart(
            name="computed",
            title="Problems whose answer cannot be copied, beside all one-digit problems",
            look=_look(numbers),
            notes=[*notes(run, ROWS, LARGEST_OPERAND), _sizes(run)],
            runs=(run,),
            numbers=numbers,
            figure=draw(run, effects, ROWS),
            vector=draw(run, effects, ROWS, vector=True),
        )
    ]


def _look(numbers: DataFrame) -> str:
    """What the run's own numbers say."""
    parts = [
        f"{row['operation']} {row['rank_correlation']:.2f} "
        f"({row[f'top_{TOP}_in_common']:.0%} of the {TOP} strongest in common)"
        for _, row in numbers.iterrows()
    ]
    return (
        "Whether the same heads are red in both rows. Trust the second for products and quotients: "
        "in all other figures heads that copy can look like heads that calculate. Rank "
        f"correlation of the heads' effects: {'; '.join(parts)}."
    )


def _sizes(run: Run) -> str:
    parts = [
        f"{operation}: {sample_size(results.SET_MAP.facts(run, operation, 'computed'))}"
        for operation in LARGEST_OPERAND
    ]
    return (
        "Computed problems that are answered right (the last digit is read, the digits before it "
        f"are in the prompt): {'; '.join(parts)}."
    )


main = command_for(exhibits)
