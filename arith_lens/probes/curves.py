"""What probes show layer by layer: the digit that wins, and where a curve turns.

`winners` counts the layers' largest cosines by class: A, B, C, C±1 or another digit.
`turning_layers` finds start, inflection and end of a curve by formula, with a bootstrap interval.
The paper reports 13-18-28 for LLaMA2-7B's curves (Appendix C), but no formula. These are ours, for
the mean curve. Its rise is from the lowest value before its highest layer up to the highest value.
Its fall is from there to the lowest value after it.

| point | `rise_and_fall` (MLP_in and operands) | `rise` (what MLPs write of the answer) |
|---|---|---|
| start | the last layer before the top with at most 10% of the rise | the same |
| inflection | the highest layer | the first layer with 50% of the rise done |
| end | the first layer with 90% of the fall done | the first one with 90% of the rise done |

A curve whose top is its first layer has no start. With `rise_and_fall`, a curve has no end if its
top is its last layer, or if it does not fall. Missing points are None. A small fall is a fall too:
`depth` says how far the curve falls, and `height` how far it rises.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from arith_lens.effects import Effects
from arith_lens.options import check_choice
from arith_lens.pairs import PromptPairs
from arith_lens.probes.reading import DIGITS
from arith_lens.statistics import resampled_means

DIGIT_CLASSES = ("C", "A", "B", "C±1", "other")
"""A digit of several classes belongs to the first one: an operand that is the answer is C."""


def winners(probe: Effects, pairs: PromptPairs) -> Effects:
    """The class (A, B, C, C±1 or other) of the digit with the largest cosine: 1 for it, else 0.

    Args:
        probe: `mlp_probe(model, pairs, tokens="digits")` of these pairs.

    Returns:
        [layer class pair]. The mean is the share of each class in each layer.

    Raises:
        ValueError: the probe is of another kind, or the pairs have no operands.
    """
    if probe.axes != ("layer", "token") or probe.per_pair.shape[1:] != (len(DIGITS), len(pairs)):
        raise ValueError(
            f"expected the digits' cosines on {len(pairs)} pairs, found {probe!r}; make it with "
            "mlp_probe(model, pairs, tokens='digits')"
        )
    best = probe.per_pair.argmax(1)
    classes = digit_classes(pairs)[torch.arange(len(pairs)), best]
    return Effects(
        classes.float().transpose(1, 2),
        ("layer", "class"),
        f"winner of {probe.metric}",
        **pairs.units,
        labels={"class": DIGIT_CLASSES},
    )


def chance(pairs: PromptPairs) -> Effects:
    """`winners` by chance, if every digit won equally often: the share of digits of each class."""
    counts = digit_classes(pairs).float().mean(1)
    return Effects(
        counts.T,
        ("class",),
        "share of the ten digits",
        **pairs.units,
        labels={"class": DIGIT_CLASSES},
    )


def distinct(pairs: PromptPairs) -> Bool[Tensor, " pair"]:
    """Which pairs have different digits as A, B, C and C±1, so that no digit has two classes."""
    a, b, c = _numbers(pairs)
    return (a != b) & ((a - c).abs() > 1) & ((b - c).abs() > 1)


def digit_classes(pairs: PromptPairs) -> Bool[Tensor, "pair digit=10 class=5"]:
    """The class of each digit, for each pair."""
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
    """A, B, and the digit of the answer's token."""
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


def case_study(probe: Effects, pair: int) -> tuple[Float[Tensor, "layer digit"], Sequence[int]]:
    """One pair's cosines, and the digit that wins in each layer."""
    cosines = probe.per_pair[:, :, pair]
    return cosines, cosines.argmax(1).tolist()


TENTH = 0.1
ROUNDING = 1e-9


@dataclass(frozen=True)
class Turning:
    """The layers at which a curve turns, with intervals over resampled references.

    The intervals are of resampled mean curves. If two layers are almost equally high, noise decides
    which of them is the maximum; the interval does not correct that.
    """

    start: int | None
    inflection: int | None
    end: int | None
    intervals: tuple[tuple[float, float] | None, ...]
    """The interval of each point; None if no resample has it."""
    shares: tuple[float, ...]
    """The share of resamples in which each point exists."""
    height: float
    """The rise from the lowest value before the top to the top."""
    depth: float
    """The fall from the top to the lowest value after it."""

    @property
    def points(self) -> tuple[int | None, ...]:
        return self.start, self.inflection, self.end

    def __str__(self) -> str:
        return "-".join("none" if point is None else str(point) for point in self.points)


def turning_points(
    curve: Float[np.ndarray, " layer"], shape: str
) -> tuple[int | None, int | None, int | None]:
    """(start, inflection, end) of one curve, by the formulas above."""
    top = int(np.argmax(curve))
    if top == 0:
        return None, (0 if shape == "rise_and_fall" else None), _fallen(curve, 0, shape)
    low = float(curve[:top].min())
    done = (curve[: top + 1] - low) / (curve[top] - low)
    start = int(np.flatnonzero(done <= TENTH + ROUNDING)[-1])
    if shape == "rise_and_fall":
        return start, top, _fallen(curve, top, shape)
    later = np.arange(top + 1) > start
    return (
        start,
        int(np.flatnonzero((done >= 0.5 - ROUNDING) & later)[0]),
        int(np.flatnonzero((done >= 1 - TENTH - ROUNDING) & later)[0]),
    )


def _fallen(curve: Float[np.ndarray, " layer"], top: int, shape: str) -> int | None:
    """The first layer with 90% of the fall done; None if the curve does not fall."""
    behind = curve[top + 1 :]
    if shape != "rise_and_fall" or not len(behind) or behind.min() >= curve[top]:
        return None
    done = (curve[top] - behind) / (curve[top] - behind.min())
    return top + 1 + int(np.flatnonzero(done >= 1 - TENTH - ROUNDING)[0])


def turning_layers(
    curve: Effects, shape: str, *, level: float = 0.95, n_resamples: int = 1000, seed: int = 0
) -> Turning:
    """The layers at which a mean curve turns, with bootstrap intervals.

    Args:
        curve: values [layer pair]. References are drawn as in `Effects.ci`.
        shape: `rise_and_fall` or `rise`.
        n_resamples: the number of resamples.
        seed: the seed of the resamples.

    Raises:
        ValueError: the shape is not valid, or the effects have other axes than layers.
    """
    check_choice("shape", shape, ("rise_and_fall", "rise"))
    if curve.axes != ("layer",) or len(curve.per_pair) < 3:
        raise ValueError(
            f"expected one curve over three layers or more, found {curve!r}; take one token: "
            "curve_of(probe, 'A', 'B')"
        )
    mean = curve.mean().double().numpy()
    resampled = resampled_means(curve.sample(), slice(None), n_resamples, seed).numpy().T
    points = [turning_points(one, shape) for one in resampled if np.isfinite(one).all()]
    drawn = [[layers[i] for layers in points if layers[i] is not None] for i in range(3)]
    top = int(np.argmax(mean))
    return Turning(
        *turning_points(mean, shape),
        intervals=tuple(_interval(layers, level) for layers in drawn),
        shares=tuple(len(layers) / max(1, len(points)) for layers in drawn),
        height=float(mean[top] - mean[: top + 1].min()),
        depth=float(mean[top] - mean[top:].min()),
    )


def _interval(layers: list[int | None], level: float) -> tuple[float, float] | None:
    if not layers:
        return None
    ends = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(np.array(layers, dtype=int), ends, method="nearest")
    return float(low), float(high)


def curve_of(probe: Effects, *tokens: str, less: str | None = None) -> Effects:
    """The mean over some tokens of a probe as a curve over layers; that of `less` is subtracted.

    Raises:
        ValueError: the probe does not have a token.
    """
    names = (probe.labels or {}).get("token", ())
    unknown = [token for token in (*tokens, less) if token is not None and token not in names]
    if unknown or not tokens:
        raise ValueError(f"expected tokens among {', '.join(names)}, found {unknown or 'none'}")
    take: Callable[[str], int] = names.index
    values = probe.per_pair[:, [take(token) for token in tokens]].mean(1)
    if less is not None:
        values = values - probe.per_pair[:, take(less)]
    return Effects(values, ("layer",), probe.metric, **probe.units)
