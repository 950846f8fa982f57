"""Turning layers and winners, on curves and numbers whose truth is known."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from arith_lens.effects import Effects
from arith_lens.pairs import PromptPairs
from arith_lens.probes import (
    chance,
    curve_of,
    curves,
    digit_classes,
    distinct,
    turning_layers,
    turning_points,
    winners,
)


def piecewise(n_layers: int, *corners: tuple[int, float]) -> np.ndarray:
    layers, values = zip(*corners, strict=True)
    return np.interp(np.arange(n_layers), layers, values)


def noisy(curve: np.ndarray, noise: float, n_pairs: int = 60) -> Effects:
    generator = torch.Generator().manual_seed(0)
    spread = noise * torch.randn(len(curve), n_pairs, generator=generator)
    return Effects(torch.as_tensor(curve)[:, None].float() + spread, ("layer",), "cosine")


OPERANDS = piecewise(32, (0, 0), (13, 0), (18, 0.16), (28, 0.06), (31, 0.05))
ANSWER = piecewise(32, (0, 0), (18, 0), (28, 0.2), (31, 0.2))


def test_the_points_of_curves_like_the_papers() -> None:
    """Each lies where a tenth, half and nine tenths of a straight rise or fall are done."""
    assert turning_points(OPERANDS, "rise_and_fall") == (13, 18, 28)
    assert turning_points(ANSWER, "rise") == (19, 23, 27)


@pytest.mark.parametrize(
    ("curve", "shape", "expected"),
    [
        (np.linspace(1, 0, 10), "rise_and_fall", (None, 0, 9)),  # it only falls
        (np.linspace(0, 1, 10), "rise_and_fall", (0, 9, None)),  # it has not fallen
        (np.linspace(1, 0, 10), "rise", (None, None, None)),  # it never rises
        (np.array([0, 0, 0, 1.0, 1.0]), "rise", (2, 3, 3)),  # all in one step
        (np.array([0, 0, 1.0, 0, 0]), "rise_and_fall", (1, 2, 3)),
        (np.array([0.5, 0, 1.0, 0.9]), "rise_and_fall", (1, 2, 3)),  # from the lowest before
        (np.array([0, 1.0, 1.0, 1.0]), "rise_and_fall", (0, 1, None)),  # it stays up
        (np.full(4, 0.3), "rise_and_fall", (None, 0, None)),  # it is flat
        (np.full(4, 0.3), "rise", (None, None, None)),
    ],
)
def test_points_that_are_not_there_are_not_made_up(
    curve: np.ndarray, shape: str, expected: tuple[int | None, ...]
) -> None:
    assert turning_points(curve, shape) == expected


def test_intervals_hold_the_truth_and_grow_with_the_noise() -> None:
    widths = []
    for noise in (0.01, 0.06):
        turning = turning_layers(noisy(OPERANDS, noise), "rise_and_fall", n_resamples=200)
        interval = turning.intervals[1]
        assert interval is not None and interval[0] <= 18 <= interval[1]
        widths.append(interval[1] - interval[0])
        assert turning.shares[1] == 1.0 and abs(turning.height - 0.16) < 0.1
        assert abs(turning.depth - 0.11) < 0.1
    assert widths[0] <= widths[1] and widths[1] > 0
    assert str(turning_layers(noisy(OPERANDS, 0.0), "rise_and_fall")) == "13-18-28"
    assert str(turning_layers(noisy(OPERANDS[:19], 0.0), "rise_and_fall")) == "13-18-none"


def test_a_curve_is_asked_for_as_one() -> None:
    three = Effects(torch.rand(5, 2, 8), ("layer", "token"), "x", labels={"token": ("A", "B")})
    one = curve_of(three, "A", "B")
    assert torch.allclose(one.per_pair, three.per_pair.mean(1)) and one.axes == ("layer",)
    less = curve_of(three, "A", less="B").per_pair
    assert torch.allclose(less, three.per_pair[:, 0] - three.per_pair[:, 1])
    with pytest.raises(ValueError, match="expected tokens among A, B, found"):
        curve_of(three, "C")
    with pytest.raises(ValueError, match="one curve over three layers"):
        turning_layers(three, "rise")
    with pytest.raises(ValueError, match="rise_and_fall, rise, found 'fall'"):
        turning_layers(one, "fall")


def problems(*numbers: tuple[int, int, int]) -> PromptPairs:
    """Pairs that know A, B and C, and nothing else."""
    tokens = torch.arange(3 * len(numbers)).reshape(-1, 3)
    bare = PromptPairs.from_tokens(tokens, tokens + 1, tokens[:, 0])
    operands = torch.tensor([[a, b] for a, b, _ in numbers])
    return replace(bare, operands=operands, answer_text=tuple(f"{c}" for _, _, c in numbers))


def test_each_digit_is_of_one_class() -> None:
    pairs = problems((4, 3, 7), (2, 2, 4), (1, 7, 8), (3, 3, 9), (9, 9, 0))
    classes = digit_classes(pairs)
    assert bool((classes.sum(-1) == 1).all())
    written = ["".join("CAB±."[int(i)] for i in row) for row in classes.int().argmax(-1)]
    assert written == ["...BA.±C±.", "..A±C±....", ".A.....BC±", "...A....±C", "C±.......A"]
    assert distinct(pairs).tolist() == [True, False, False, False, False]
    shares = chance(problems((4, 3, 7))).mean()
    assert torch.allclose(shares, torch.tensor([0.1, 0.1, 0.1, 0.2, 0.5]))


def test_winners_are_the_digits_with_the_largest_cosine() -> None:
    pairs = problems((4, 3, 7), (2, 5, 7))
    best = [[4, 5], [3, 0], [6, 8], [7, 7]]  # a layer a row: A and B, B and other, C±1 twice, C
    cosines = torch.full((4, 10, 2), -0.1)
    for layer, row in enumerate(best):
        for pair, digit in enumerate(row):
            cosines[layer, digit, pair] = 0.3
    probe = Effects(cosines, ("layer", "token"), "cosine")
    found = winners(probe, pairs)
    assert found.labels == {"class": ("C", "A", "B", "C±1", "other")}
    expected = [[0, 0.5, 0.5, 0, 0], [0, 0, 0.5, 0, 0.5], [0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]
    assert found.mean().tolist() == expected
    with pytest.raises(ValueError, match="digits' cosines on 2 pairs"):
        winners(curve_of(Effects(torch.rand(4, 1, 2), ("layer", "token"), "x",
                                 labels={"token": ("A",)}), "A"), pairs)  # fmt: skip
    with pytest.raises(ValueError, match="answers of one digit, found '12'"):
        winners(probe, problems((4, 3, 7), (9, 3, 12)))


@pytest.mark.parametrize(("level", "ends"), [(0.95, (25, 975)), (0.5, (250, 750))])
def test_the_interval_of_a_turning_layer_is_at_its_level(level: float, ends: Any) -> None:
    """Resamples that turn at each of the layers 0 to 1000 once."""
    assert curves._interval([*range(1001)], level) == ends
