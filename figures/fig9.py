"""Figure 9: the likeliest next tokens with the calculation, and without it.

Reads a run of `experiments/what_the_calculation_does.py` (the newest one of the model, or `--run
PATH`) and draws it without loading a model. For each kind of prompt, it shows one pair, which is
drawn at random by the run's seed.
"""

import random

from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.next_tokens import NextTokens
from arith_lens.operations import FOUR
from arith_lens.runs import Run
from experiments import results
from figures.common import Options, chosen_run
from figures.exhibit import Chart, command_for

KINDS = {
    **{name: name.capitalize() for name in FOUR},
    "two_digits": "Last digit of two-digit sums",
    "stories": "Stories of objects",
}
SIDES = ("reference", "counterfactual")


def exhibits(options: Options) -> list[Chart]:
    """One pair of each kind. Raises RunError if there is no run."""
    run = chosen_run(options, "what_the_calculation_does")
    return [
        Chart(
            name="fig9",
            title="Figure 9: the likeliest next tokens with the calculation, and without it",
            look=look(run),
            notes=notes(run),
            runs=(run,),
            numbers=numbers(run),
            figure=draw(run),
        )
    ]


def look(run: Run) -> str:
    """What to look for, and the probability of the answer on both sides of this run."""
    shares, stays = [], {}
    for kind, title in KINDS.items():
        (p, _), (p_without, right_without) = results.RIGHT.load(run, kind).mean().tolist()
        shares.append(f"{title} {p:.0%} → {p_without:.0%}")
        stays[right_without] = title
    most = max(stays)
    return (
        "Whether the right answer (blue) leads on the left and not on the right: path patching "
        "needs counterfactual prompts that differ in the calculation. Mean p(C) with the "
        f"calculation → without it: {'; '.join(shares)}. Without it C stays the likeliest token in "
        f"{min(stays):.0%} to {most:.0%} of the pairs (most: {stays[most]})."
    )


def draw(run: Run) -> plotting.Figure:
    """One row per kind: the reference on the left, its counterfactual on the right."""
    return plotting.next_token_panels(
        [_part(run, kind) for kind in KINDS],
        names=("with the calculation", "without it"),
        notes=notes(run),
    )


def notes(run: Run) -> list[str]:
    """How to read the figure, and what it was made from."""
    filter_note = (
        "(where any is answered right, of those) " if run.config["keep"] == "correct" else ""
    )
    return [
        f"Model: {run.config['model']}. Of each kind, one pair {filter_note}drawn at random (seed "
        f"{run.config['seed']}). Blue: the right answer of the calculation.",
        "Means over all pairs, wordings weighed equally: p(C) with the calculation → without it, "
        "and how often C is still the likeliest token without it.",
        *(_statistics(run, kind) for kind in KINDS),
    ]


def _part(run: Run, kind: str) -> plotting.NextTokens:
    before, after = read(run, kind)
    pair = example(run, kind)
    right = results.LIKELIEST.facts(run, kind, "reference")["answers"][pair]
    answer = next(
        (
            piece
            for tokens in (before, after)
            for i, piece in zip(tokens.ids[pair].tolist(), tokens.pieces[pair], strict=True)
            if i == right
        ),
        "",
    )
    return plotting.NextTokens(
        prompt=before.prompts[pair],
        before=_ranking(before, pair),
        after=_ranking(after, pair),
        answer=answer,
        prompt_after=after.prompts[pair],
    )


def example(run: Run, kind: str) -> int:
    """The pair that is shown; only the run's seed and the kind's name decide it."""
    n_pairs = results.LIKELIEST.facts(run, kind, "reference")["pairs"]
    return int(random.Random(f"{kind} {run.config['seed']}").random() * n_pairs)


def read(run: Run, kind: str) -> tuple[NextTokens, NextTokens]:
    """The next tokens after references and after counterfactuals."""
    before, after = (results.LIKELIEST.load(run, kind, side) for side in SIDES)
    return before, after


def _statistics(run: Run, kind: str) -> str:
    outcomes = results.RIGHT.load(run, kind)
    (p, _), (p_without, right_without) = outcomes.mean().tolist()
    facts = results.RIGHT.facts(run, kind)
    chosen = facts["selection"]
    n = (
        f"{chosen['n_kept']} of {chosen['n_drawn']} pairs"
        if chosen
        else f"{facts['pairs']} pairs, right or not"
    )
    return f"{KINDS[kind]} ({n}): {p:.1%} → {p_without:.1%}; C likeliest in {right_without:.1%}."


def numbers(run: Run) -> DataFrame:
    """The likeliest tokens of every prompt on both sides."""
    tables = []
    for kind in KINDS:
        for side, tokens in zip(SIDES, read(run, kind), strict=True):
            table = tokens.to_dataframe()
            table.insert(0, "kind", kind)
            table.insert(1, "side", side)
            tables.append(table)
    return concat(tables, ignore_index=True)


def _ranking(tokens: NextTokens, prompt: int) -> plotting.Ranking:
    return plotting.Ranking(tokens.pieces[prompt], tokens.probabilities[prompt].double().numpy())


main = command_for(exhibits)
