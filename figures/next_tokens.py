"""Figures 4 and 9: the likeliest next tokens of prompts, before and after a change.

They read runs of one model (by their settings, or `--run PATH`) and are drawn without loading a
model.
"""

import random
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool
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
Right: TypeAlias = dict[str, list[Bool[torch.Tensor, " prompt"]]]
"""Whether the likeliest token is the answer, before and after, by kind of prompt."""


def fig4(options: Options) -> list[Chart]:
    """Figure 4: the likeliest next tokens before and after the key heads are knocked out.

    Reads a run of `experiments what_comes_instead` (by its settings, or `--run PATH`) and draws it
    without loading a model. For each kind, it shows the first prompt that is answered right with
    every head in place. The small print has the share of right answers.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "what_comes_instead")
    stored = results.NEXT_TOKENS
    tokens: TokenLists = {
        kind: [stored.load(run, kind, when) for when in TIMES] for kind in EXERCISE_TITLES
    }
    right: Right = {}
    for kind, sides in tokens.items():
        answers = torch.tensor(stored.facts(run, kind, TIMES[0])["answers"])
        right[kind] = [side.ids[:, 0] == answers for side in sides]
    heads = stored.facts(run, "word_problem", TIMES[0])["heads"]
    notes = _knockout_notes(run, heads, right)
    panels = []
    for kind, (before, _) in right.items():
        if before.any():
            prompt = int(before.nonzero()[0])
            panels.append(_panel(tokens[kind], prompt, tokens[kind][0].pieces[prompt][0]))
    return [
        Chart(
            name="fig4",
            title="Figure 4: the likeliest next tokens before and after the knockout",
            look=_knockout_look(tokens, right),
            notes=notes,
            runs=(run,),
            numbers=_numbers(tokens, "when", TIMES),
            figure=plotting.next_token_panels(
                panels,
                names=("all heads in place", f"{len(heads)} heads knocked out"),
                notes=notes,
            ),
        )
    ]


def fig9(options: Options) -> list[Chart]:
    """Figure 9: the likeliest next tokens with the calculation, and without it.

    Reads a run of `experiments what_the_calculation_does` (by its settings, or `--run PATH`) and
    draws it without loading a model. For each kind of prompt, it shows one pair, which is drawn at
    random by the run's seed.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "what_the_calculation_does")
    tokens: TokenLists = {
        kind: [results.LIKELIEST.load(run, kind, side) for side in SIDES] for kind in PAIR_TITLES
    }
    notes = _calculation_notes(run)
    return [
        Chart(
            name="fig9",
            title="Figure 9: the likeliest next tokens with the calculation, and without it",
            look=calculation_look(run),
            notes=notes,
            runs=(run,),
            numbers=_numbers(tokens, "side", SIDES),
            figure=plotting.next_token_panels(
                [_pair(run, kind, tokens[kind]) for kind in PAIR_TITLES],
                names=("with the calculation", "without it"),
                notes=notes,
            ),
        )
    ]


def _numbers(tokens: TokenLists, column: str, names: tuple[str, str]) -> DataFrame:
    """The likeliest tokens of every prompt; `column` says whether before or after the change."""
    tables: dict[Any, DataFrame] = {
        (kind, name): side.to_dataframe()
        for kind, sides in tokens.items()
        for name, side in zip(names, sides, strict=True)
    }
    return concat(tables, names=["kind", column]).reset_index(["kind", column])


def _panel(
    sides: list[NextTokens], prompt: int, answer: str, *, prompt_after: str | None = None
) -> plotting.NextTokenPanel:
    """The likeliest tokens of one prompt, before and after the change."""
    before, after = (
        plotting.Ranking(side.pieces[prompt], side.probabilities[prompt].double().numpy())
        for side in sides
    )
    return plotting.NextTokenPanel(
        sides[0].prompts[prompt], before, after, answer, prompt_after=prompt_after
    )


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
    pair = example(run, kind)
    right = results.LIKELIEST.facts(run, kind, "reference")["answers"][pair]
    pieces = {
        token: piece
        for side in reversed(sides)
        for token, piece in zip(side.ids[pair].tolist(), side.pieces[pair], strict=True)
    }
    return _panel(sides, pair, pieces.get(right, ""), prompt_after=sides[1].prompts[pair])


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
