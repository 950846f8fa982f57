"""The tables of likeliest next tokens: what comes instead of the answer, and without a calculation.

Both have the keys kind of prompt; prompt, one of each kind that is shown; answer, its right next
token ("" if it is not among the likeliest); rank from 1; token, its text with visible blanks.

`what comes instead` has also when ("before" or "after" the knockout, or "random heads", which are
knocked out several times), and the heads that are knocked out: head, k. `with the calculation` has
also side ("reference" or "counterfactual"). Both have base rates of the prompts
(`figures.tables.base_rates`).
"""

import random
from collections.abc import Iterator

import torch
from jaxtyping import Bool
from torch import Tensor

from arith_lens.components import Head
from arith_lens.effects import Effects
from arith_lens.next_tokens import NextTokens
from arith_lens.plotting import visible
from arith_lens.runs import Run
from experiments import results
from experiments.next_tokens import RANDOM
from figures.tables.base_rates import UNKNOWN, majority_rows, same_token_rows, share
from figures.tables.number import Number, over_draws
from figures.tables.table import QuestionTable, Row, interval_numbers, row, sample_rows

TIMES = ("before", "after")
RANDOM_HEADS = "random heads"
SIDES = ("reference", "counterfactual")
EFFECT, PROBABILITY = "effect on the answer's logit", "probability"
RIGHT, A_NUMBER = "likeliest token is right", "likeliest token is a number"
P_ANSWER, ANSWER_LIKELIEST = "p(C)", "C is the likeliest token"
PAIRS, PAIRS_DRAWN = "pairs", "pairs before the filter"


def instead_table(run: Run, /) -> QuestionTable:
    """The rows of a run of `what_comes_instead`. Raises RunError if it is damaged."""
    rows: list[Row] = []
    for kind in results.NEXT_TOKENS.labels(run, None, TIMES[0]):
        facts = results.NEXT_TOKENS.facts(run, kind, TIMES[0])
        if not rows:
            rows += _knocked_out(run, facts["heads"])
        sides = {when: results.NEXT_TOKENS.load(run, kind, when) for when in TIMES}
        answers = torch.tensor(facts["answers"])
        for when, tokens in sides.items():
            yes = _outcomes(tokens, answers)
            rows += (
                row(name, share(of, UNKNOWN), kind=kind, when=when) for name, of in yes.items()
            )
            rows += same_token_rows(tokens.ids[:, 0], answers, UNKNOWN, kind=kind, when=when)
        rows += [*_control_rows(run, kind, answers), *majority_rows(answers, UNKNOWN, kind=kind)]
        right = sides[TIMES[0]].ids[:, 0] == answers
        if right.any():
            shown = int(right.nonzero()[0])
            answer = visible(sides[TIMES[0]].pieces[shown][0])
            for when, tokens in sides.items():
                rows += _likeliest(tokens, shown, kind=kind, when=when, answer=answer)
    return QuestionTable.of("what comes instead", str(run.config["model"]), rows)


def _knocked_out(run: Run, heads: list[str]) -> Iterator[Row]:
    """The heads that are knocked out, with their effects over the four operations."""
    effects = results.POOLED_MAP.load(run).heads
    numbers = interval_numbers(effects, "relative")
    for k, name in enumerate(heads, 1):
        head = Head.parse(name)
        number = numbers[head.layer * effects.per_pair.shape[1] + head.index]
        yield row(EFFECT, number, head=name, k=k)


def _outcomes(tokens: NextTokens, answers: Tensor) -> dict[str, Bool[Tensor, " prompt"]]:
    """Whether the likeliest token is right, and whether it is a number."""
    numbers = [pieces[0].strip(" ▁Ġ").isdecimal() for pieces in tokens.pieces]
    return {RIGHT: tokens.ids[:, 0] == answers, A_NUMBER: torch.tensor(numbers)}


def _control_rows(run: Run, kind: str, answers: Tensor) -> Iterator[Row]:
    """The same shares without random heads: means over the draws; none if none was knocked out."""
    draws = [when for when in results.NEXT_TOKENS.labels(run, kind, None) if RANDOM in when]
    tokens = [results.NEXT_TOKENS.load(run, kind, when) for when in draws]
    for name in (RIGHT, A_NUMBER) if draws else ():
        shares = [float(_outcomes(one, answers)[name].double().mean()) for one in tokens]
        yield row(name, over_draws(shares, unit="share"), kind=kind, when=RANDOM_HEADS)


def _likeliest(tokens: NextTokens, prompt: int, **keys: str) -> Iterator[Row]:
    """The likeliest tokens of one prompt."""
    probabilities = tokens.probabilities[prompt].tolist()
    text = tokens.prompts[prompt]
    ranked = zip(tokens.pieces[prompt], probabilities, strict=True)
    for rank, (piece, probability) in enumerate(ranked, 1):
        token = visible(piece)
        yield row(PROBABILITY, Number(probability), **keys, prompt=text, rank=rank, token=token)


def calculation_table(run: Run, /) -> QuestionTable:
    """The rows of a run of `what_the_calculation_does`. Raises RunError if it is damaged."""
    rows: list[Row] = []
    for kind in results.LIKELIEST.labels(run, None, SIDES[0]):
        facts = results.ANSWER_PROBABILITY.facts(run, kind)
        rows += sample_rows(facts, kind=kind)
        filtered = facts["selection"]
        pairs = Number(filtered["n_kept"] if filtered else facts["pairs"], unit="count")
        rows.append(row(PAIRS, pairs, kind=kind))
        if filtered:
            rows.append(row(PAIRS_DRAWN, Number(filtered["n_drawn"], unit="count"), kind=kind))
        answers = torch.tensor(results.LIKELIEST.facts(run, kind, SIDES[0])["answers"])
        rows += majority_rows(answers, UNKNOWN, kind=kind)
        rows += [*answer_rows(kind, results.ANSWER_PROBABILITY.load(run, kind)), *_pair(run, kind)]
    return QuestionTable.of("with the calculation", str(run.config["model"]), rows)


def answer_rows(kind: str, outcomes: Effects) -> Iterator[Row]:
    """p(C) with and without the calculation, and how often C is likeliest, [side measure pair]."""
    numbers = iter(interval_numbers(outcomes, "share"))
    for side in SIDES:
        for measure in (P_ANSWER, ANSWER_LIKELIEST):
            yield row(measure, next(numbers), kind=kind, side=side)


def _pair(run: Run, kind: str) -> Iterator[Row]:
    """The pair of a kind that is shown. Its answer need not be among the likeliest tokens."""
    shown = shown_pair(run, kind)
    sides = {side: results.LIKELIEST.load(run, kind, side) for side in SIDES}
    right = results.LIKELIEST.facts(run, kind, SIDES[0])["answers"][shown]
    pieces = {
        token: visible(piece)
        for side in reversed(sides.values())
        for token, piece in zip(side.ids[shown].tolist(), side.pieces[shown], strict=True)
    }
    for name, tokens in sides.items():
        yield from _likeliest(tokens, shown, kind=kind, side=name, answer=pieces.get(right, ""))


def shown_pair(run: Run, kind: str) -> int:
    """The pair that is shown; only the run's seed and the kind's name decide it."""
    n_pairs = results.LIKELIEST.facts(run, kind, SIDES[0])["pairs"]
    return int(random.Random(f"{kind} {run.config['seed']}").random() * n_pairs)
