"""Does it matter which word without meaning replaces the operator? (The paper's footnote 4.)

The words of a run are split into two halves, alternately by the alphabet. Each half has its own
map. Beside it: halves of the pairs that are drawn at random, whatever their words. Keys: operation.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from arith_lens.effects import Effects
from arith_lens.pairs.text_files import read_jsonl
from arith_lens.runs import Run
from experiments import results
from figures.tables.number import Number, over_draws
from figures.tables.table import Row, row

K, N_DRAWS = 10, 20
IN_COMMON = f"of the {K} strongest heads, in common to two halves of the words without meaning"
OF_RANDOM_HALVES = f"of the {K} strongest heads, in common to two random halves of the pairs"
LARGEST_CHANGE = "largest difference of a head's effect between the halves of the words"


def null_word_rows(run: Run) -> Iterator[Row]:
    """How much the maps of two halves of the words agree; no row where pairs are not stored.

    Args:
        run: a run of `which_heads`.
    """
    for operation in results.MAP.labels(run):
        prompts = run.folder(results.MAP.name(operation)) / "result.pairs.jsonl"
        if prompts.exists():
            heads = results.MAP.load(run, operation).heads
            rows = read_jsonl(prompts, {}).values()
            texts = [(one["reference"], one["counterfactual"]) for one in rows]
            yield from half_rows(heads, half_of_words(texts), operation)


def half_of_words(texts: Sequence[tuple[str, str]]) -> Bool[Tensor, " pair"]:
    """Which pairs have every second one of the words that are new in the counterfactual prompts.

    Args:
        texts: reference and counterfactual of each pair.
    """
    words = [
        next((b for a, b in zip_longest(one.split(), other.split()) if a != b), "")
        for one, other in texts
    ]
    places = {word: place for place, word in enumerate(sorted({*words}, key=str))}
    return torch.tensor([places[word] % 2 == 0 for word in words])


def half_rows(heads: Effects, first: Bool[Tensor, " pair"], operation: str) -> Iterator[Row]:
    """The rows of one operation; none if all pairs have one word."""
    if first.all() or not first.any():
        return
    a, b = _means(heads, first)
    yield row(IN_COMMON, Number(_in_common(a, b), unit="count"), operation=operation)
    draw = np.random.default_rng(0)
    halves = (torch.tensor(draw.random(len(first)) < 0.5) for _ in range(N_DRAWS))
    in_common = [_in_common(*_means(heads, half)) for half in halves]
    yield row(OF_RANDOM_HALVES, over_draws(in_common, unit="count"), operation=operation)
    difference = Number(float(np.nanmax(np.abs(a - b))), unit="relative")
    yield row(LARGEST_CHANGE, difference, operation=operation)


def _means(
    heads: Effects, first: Bool[Tensor, " pair"]
) -> tuple[Float[np.ndarray, " head"], Float[np.ndarray, " head"]]:
    a, b = (heads.select(half).mean().flatten().numpy() for half in (first, ~first))
    return a, b


def _in_common(a: Float[np.ndarray, " head"], b: Float[np.ndarray, " head"]) -> float:
    return float(len({*np.argsort(a)[:K]} & {*np.argsort(b)[:K]}))
