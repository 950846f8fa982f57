"""Which number each layer writes most: A, B, C, a neighbour of C, or another (section 6).

The paper's case study, over many pairs: is C there at once, or do operands come first, then
neighbours of C, then C?
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from arith_lens.effects import Effects
from arith_lens.pairs import PromptPairs
from arith_lens.probes.reading import DIGITS

CLASSES = ("C", "A", "B", "C±1", "other")
"""A digit that is several of them counts as the first: an operand that is the answer is C."""


def winners(probe: Effects, pairs: PromptPairs) -> Effects:
    """Where the digit with the largest cosine is A, B, C, C±1 or another: 1 there, else 0.

    Args:
        probe: `mlp_probe(model, pairs, tokens="digits")` of these pairs

    Returns:
        axes ("layer", "class"); its mean is the share of each class in each layer

    Raises:
        ValueError: a probe of something else, or pairs without operands
    """
    if probe.axes != ("layer", "token") or probe.per_pair.shape[1:] != (len(DIGITS), len(pairs)):
        raise ValueError(
            f"expected the digits' cosines on {len(pairs)} pairs, found {probe!r}; make it with "
            "mlp_probe(model, pairs, tokens='digits')"
        )
    best = probe.per_pair.argmax(1)
    found = digit_classes(pairs)[torch.arange(len(pairs)), best]
    return _shares(found, pairs, f"winner of {probe.metric}")


def chance(pairs: PromptPairs) -> Effects:
    """The same where each digit wins as often: how many of the ten are of each class."""
    counts = digit_classes(pairs).float().mean(1)
    return Effects(
        counts.T,
        ("class",),
        "share of the ten digits",
        template=pairs.template,
        cluster=pairs.cluster,
        labels={"class": CLASSES},
    )


def distinct(pairs: PromptPairs) -> Bool[Tensor, "pair"]:
    """Pairs in which A, B, C and C±1 are different digits, so that each class is one thing."""
    a, b, c = _numbers(pairs)
    return (a != b) & ((a - c).abs() > 1) & ((b - c).abs() > 1)


def digit_classes(pairs: PromptPairs) -> Bool[Tensor, "pair digit=10 class=5"]:
    """Of which class each digit is, for each pair."""
    a, b, c = (number[:, None] for number in _numbers(pairs))
    digit = torch.tensor(DIGITS)
    masks = [digit == c, digit == a, digit == b, (digit - c).abs() == 1]
    taken = torch.zeros_like(masks[0])
    classes = []
    for mask in masks:
        classes.append(mask & ~taken)
        taken = taken | mask
    return torch.stack([*classes, ~taken], dim=-1)


def _numbers(pairs: PromptPairs) -> tuple[Tensor, Tensor, Tensor]:
    """A, B, and the digit that the answer's token says."""
    if pairs.operands is None or pairs.answer_text is None:
        raise ValueError(
            "expected pairs that know their operands and answers, found none; make them with "
            "sample_pairs"
        )
    answers = [text.strip() for text in pairs.answer_text]
    if not all(len(text) == 1 and text.isdigit() for text in answers):
        raise ValueError(
            "expected answers of one digit, found "
            f"{next(text for text in answers if len(text) != 1 or not text.isdigit())!r}; take "
            "operands from 1 to 9"
        )
    a, b = pairs.operands.unbind(1)
    return a, b, torch.tensor([int(text) for text in answers])


def _shares(found: Bool[Tensor, "layer pair class"], pairs: PromptPairs, metric: str) -> Effects:
    return Effects(
        found.float().transpose(1, 2),
        ("layer", "class"),
        metric,
        template=pairs.template,
        cluster=pairs.cluster,
        labels={"class": CLASSES},
    )


def case_study(probe: Effects, pair: int) -> tuple[Float[Tensor, "layer digit"], Sequence[int]]:
    """One pair's cosines, and the digit that wins in each layer."""
    cosines = probe.per_pair[:, :, pair]
    return cosines, cosines.argmax(1).tolist()
