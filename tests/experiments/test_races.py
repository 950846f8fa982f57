"""Races of the exam against all evaluations, on planted effects and on real ones."""

from typing import Any

import pytest
import torch

import arith_lens as al
from arith_lens.effects import HEAD_AXES, MLP_AXES
from experiments.exam import races

LINE = -0.05


def planted(*, tail: float = 0.0) -> al.ComponentEffects:
    """Two layers of four heads on 180 pairs; head 0.0 is a key head; `tail` adds rare effects."""
    rng = torch.Generator().manual_seed(0)
    values = 0.01 * torch.randn(10, 180, generator=rng)
    values[0] -= 0.2
    values[1, :3] -= tail
    common: Any = {"metric": "relative_logit", "paths": "via_mlps"}
    heads = al.Effects(values[:8].reshape(2, 4, 180), HEAD_AXES, **common)
    return al.ComponentEffects(heads, al.Effects(values[8:], MLP_AXES, **common), torch.ones(180))


def test_a_clear_map_needs_few_evaluations() -> None:
    share, same, hold = races(planted(), LINE, 20).mean().tolist()
    assert same == 1.0 and hold == 1.0
    assert share == pytest.approx(16 / 180)


def test_rare_effects_are_what_a_race_misses() -> None:
    """Three of 180 pairs make head 0.1 a key head: most races never see them."""
    exact = planted(tail=12.0)
    assert float(exact.heads.mean()[0, 1]) < -0.15
    _, _, hold = races(exact, LINE, 20).mean().tolist()
    assert hold < 0.5


def test_intervals_of_races_hold_on_the_effects_of_a_shipped_model() -> None:
    """Real effects as the population: the full computation knows the mean over all pairs."""
    model = al.load_model("reference")
    pairs = al.sample_pairs(model, "addition", n=144)
    exact = al.path_patch(model, pairs, progress=False)
    share, same, hold = races(exact, LINE, 20).mean().tolist()
    assert same == 1.0 and hold >= 0.95
    assert share < 0.2
