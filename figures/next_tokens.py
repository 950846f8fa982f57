"""Figures 4 and 9: the likeliest next tokens of prompts, before and after a change.

They read runs of one model (the newest, or `--run PATH`) and are drawn without loading a model.
"""

import random
from typing import TypeAlias

import torch
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.next_tokens import NextTokens
from arith_lens.operations import FOUR
from arith_lens.runs import Run
from experiments import results
from figures.common import Options, chosen_run
from figures.exhibit import Chart

EXERCISE_TITLES = {
    "word_problem": "Word problems",
    "integers": "Three-digit sums",
    "time_span": "Time spans",
    "decimals": "Decimals",
}
"""The kinds of prompts of Figure 4, with their titles."""
TIMES = ("before", "after")
PAIR_TITLES = {
    **{name: name.capitalize() for name in FOUR},
    "two_digits": "Last digit of two-digit sums",
    "stories": "Stories of objects",
}
"""The kinds of pairs of Figure 9, with their titles."""
SIDES = ("reference", "counterfactual")
TokenLists: TypeAlias = dict[str, list[NextTokens]]
"""The next tokens before and after the change, by kind of prompt."""
Right: TypeAlias = dict[str, list[torch.Tensor]]
"""Whether the likeliest token is the answer, [prompt], before and after, by kind of prompt."""


def fig4(options: Options) -> list[Chart]:
    """Figure 4: the likeliest next tokens before and after the key heads are knocked out.

    Reads a run of `experiments what_comes_instead` (the newest one of the model, or `--run
    PATH`) and draws it without loading a model. For each kind, it shows the first prompt that is
    answered right with every head in place. The small print has the share of right answers.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "what_comes_instead")
    tokens: TokenLists = {
        kind: [results.NEXT_TOKENS.load(run, kind, when) for when in TIMES]
        for kind in EXERCISE_TITLES
    }
    answers = {
        kind: torch.tensor(results.NEXT_TOKENS.facts(run, kind, TIMES[0])["answers"])
        for kind in EXERCISE_TITLES
    }
    right: Right = {
        kind: [side.ids[:, 0] == answers[kind] for side in tokens[kind]] for kind in EXERCISE_TITLES
    }
    heads = results.NEXT_TOKENS.facts(run, "word_problem", TIMES[0])["heads"]
    small_print = _knockout_notes(run, heads, right)
    parts = [
        _part(tokens[kind], int(before.nonzero()[0]))
        for kind, (before, _) in right.items()
        if before.any()
    ]
    return [
        Chart(
            name="fig4",
            title="Figure 4: the likeliest next tokens before and after the knockout",
            look=_knockout_look(tokens, right),
            notes=small_print,
            runs=(run,),
            numbers=_numbers(tokens, "when", TIMES),
            figure=plotting.next_token_panels(
                parts,
                names=("all heads in place", f"{len(heads)} heads knocked out"),
                notes=small_print,
            ),
        )
    ]


def fig9(options: Options) -> list[Chart]:
    """Figure 9: the likeliest next tokens with the calculation, and without it.

    Reads a run of `experiments what_the_calculation_does` (the newest one of the model, or
    `--run PATH`) and draws it without loading a model. For each kind of prompt, it shows one pair,
    which is drawn at random by the run's seed.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "what_the_calculation_does")
    tokens: TokenLists = {
        kind: [results.LIKELIEST.load(run, kind, side) for side in SIDES] for kind in PAIR_TITLES
    }
    small_print = _calculation_notes(run)
    return [
        Chart(
            name="fig9",
            title="Figure 9: the likeliest next tokens with the calculation, and without it",
            look=calculation_look(run),
            notes=small_print,
            runs=(run,),
            numbers=_numbers(tokens, "side", SIDES),
            figure=plotting.next_token_panels(
                [_pair(run, kind, tokens[kind]) for kind in PAIR_TITLES],
                names=("with the calculation", "without it"),
                notes=small_print,
            ),
        )
    ]


def _numbers(tokens: TokenLists, column: str, names: tuple[str, str]) -> DataFrame:
    """The likeliest tokens of every prompt; `column` says whether before or after the change."""
    tables = []
    for kind, sides in tokens.items():
        for name, side in zip(names, sides, strict=True):
            table = side.to_dataframe()
            table.insert(0, "kind", kind)
            table.insert(1, column, name)
            tables.append(table)
    return concat(tables, ignore_index=True)


def _part(sides: list[NextTokens], prompt: int) -> plotting.NextTokenPanel:
    """One prompt, whose likeliest token before the change is the right answer."""
    before, after = sides
    return plotting.NextTokenPanel(
        prompt=before.prompts[prompt],
        before=_ranking(before, prompt),
        after=_ranking(after, prompt),
        answer=before.pieces[prompt][0],
    )


def _ranking(tokens: NextTokens, prompt: int) -> plotting.Ranking:
    return plotting.Ranking(tokens.pieces[prompt], tokens.probabilities[prompt].double().numpy())


def _knockout_look(tokens: TokenLists, right: Right) -> str:
    """What to look for, and how often this run's model says a number at all."""
    parts = []
    for kind, title in EXERCISE_TITLES.items():
        numbers = [pieces[0].strip(" ▁Ġ").isdecimal() for pieces in tokens[kind][1].pieces]
        share = f"{sum(numbers) / len(numbers):.0%} a number"
        parts.append(f"{title} {share}, {_share(right[kind][1])} the right one")
    return (
        "What the model says in place of the answer (blue). In the paper it still says a number, "
        "but a wrong one: what is lost is the calculation, not the format. Here the likeliest "
        f"token after the knockout is: {'; '.join(parts)}."
    )


def _knockout_notes(run: Run, heads: list[str], right: Right) -> list[str]:
    """How to read Figure 4, what it was made from, and how often the answer is right."""
    shares = [
        f"{EXERCISE_TITLES[kind]}: {_share(before)} right before, {_share(after)} after"
        for kind, (before, after) in right.items()
    ]
    return [
        f"Model: {run.config['model']}. Knocked out: "
        f"{', '.join(heads)}, the strongest by mean effect "
        "over the four operations, each replaced by its mean over counterfactuals.",
        "Of each kind, the first prompt drawn that is answered right with all heads in place. "
        "Blue: the right token.",
        f"First token of the answer, {run.config['prompts']} prompts a kind. "
        f"{'; '.join(shares[:2])};",
        f"{'; '.join(shares[2:])}.",
    ]


def _share(right: torch.Tensor) -> str:
    return f"{right.float().mean():.0%}"


def calculation_look(run: Run) -> str:
    """What to look for, and the probability of the answer on both sides of this run."""
    shares, stays = [], {}
    for kind, title in PAIR_TITLES.items():
        (p, _), (p_without, right_without) = (
            results.ANSWER_PROBABILITY.load(run, kind).mean().tolist()
        )
        shares.append(f"{title} {p:.0%} → {p_without:.0%}")
        stays[right_without] = title
    most = max(stays)
    return (
        "Whether the right answer (blue) leads on the left and not on the right: path patching "
        "needs counterfactual prompts that differ in the calculation. Mean p(C) with the "
        f"calculation → without it: {'; '.join(shares)}. Without it C stays the likeliest token in "
        f"{min(stays):.0%} to {most:.0%} of the pairs (most: {stays[most]})."
    )


def _calculation_notes(run: Run) -> list[str]:
    """How to read Figure 9, and what it was made from."""
    filter_note = (
        "(where any is answered right, of those) " if run.config["keep"] == "correct" else ""
    )
    return [
        f"Model: {run.config['model']}. Of each kind, one pair {filter_note}drawn at random (seed "
        f"{run.config['seed']}). Blue: the right answer of the calculation.",
        "Means over all pairs, wordings weighed equally: p(C) with the calculation → without it, "
        "and how often C is still the likeliest token without it.",
        *(_statistics(run, kind) for kind in PAIR_TITLES),
    ]


def _pair(run: Run, kind: str, sides: list[NextTokens]) -> plotting.NextTokenPanel:
    """The pair of a kind that is shown. Its answer need not be among the likeliest tokens."""
    before, after = sides
    pair = example(run, kind)
    right = results.LIKELIEST.facts(run, kind, "reference")["answers"][pair]
    pieces = {
        token: piece
        for side in (after, before)
        for token, piece in zip(side.ids[pair].tolist(), side.pieces[pair], strict=True)
    }
    return plotting.NextTokenPanel(
        prompt=before.prompts[pair],
        before=_ranking(before, pair),
        after=_ranking(after, pair),
        answer=pieces.get(right, ""),
        prompt_after=after.prompts[pair],
    )


def example(run: Run, kind: str) -> int:
    """The pair that is shown; only the run's seed and the kind's name decide it."""
    n_pairs = results.LIKELIEST.facts(run, kind, "reference")["pairs"]
    return int(random.Random(f"{kind} {run.config['seed']}").random() * n_pairs)


def _statistics(run: Run, kind: str) -> str:
    outcomes = results.ANSWER_PROBABILITY.load(run, kind)
    (p, _), (p_without, right_without) = outcomes.mean().tolist()
    facts = results.ANSWER_PROBABILITY.facts(run, kind)
    chosen = facts["selection"]
    n = (
        f"{chosen['n_kept']} of {chosen['n_drawn']} pairs"
        if chosen
        else f"{facts['pairs']} pairs, right or not"
    )
    return (
        f"{PAIR_TITLES[kind]} ({n}): {p:.1%} → {p_without:.1%}; C likeliest in {right_without:.1%}."
    )
