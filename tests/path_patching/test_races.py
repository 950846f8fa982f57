"""Races against all evaluations, on planted effects and on real ones."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

import arith_lens as al
from arith_lens.effects import HEAD_AXES, MLP_AXES
from arith_lens.path_patching import StoppingRule, race
from arith_lens.statistics import strata_of

LINE = -0.05
RACE_MEASURES = ("evaluations", "same components", "all intervals hold")


def races(exact: al.ComponentEffects, line: float, repeats: int, seed: int = 0) -> al.Effects:
    """Races on effects that are known, each with an order of the pairs of its own.

    Args:
        exact: the effects of all components on all pairs.
        line: races tell which components are beyond it.
        repeats: how many races.
        seed: of the first race; the next ones have the next seeds.

    Returns:
        `RACE_MEASURES` of each race: the share of the evaluations that it needed, and whether it
        ended with the components of the full computation, and with intervals that all hold.
    """
    goal = StoppingRule.of(line, exact.heads.metric, None)
    values, expected = _rows(exact), {*al.key_heads(exact, goal.line)}
    means = torch.cat([exact.heads.mean().flatten(), exact.mlps.mean()]).double()
    strata = strata_of(exact.heads.template, exact.heads.n_pairs)
    rows = []

    def look_up(
        some: Sequence[int], pairs: Int[Tensor, " chosen"], _: int
    ) -> Float[Tensor, "some chosen"]:
        return values[torch.tensor(some)[:, None], pairs]

    for number in range(seed, seed + repeats):
        outcome = race(look_up, len(values), strata, goal, seed=number)
        low, high = outcome.interval
        holds = (low <= means + 1e-6) & (means <= high + 1e-6)
        same = {*al.key_heads(_filled(exact, outcome.values.to(values)), goal.line)} == expected
        rows.append([outcome.evaluations / values.numel(), float(same), float(holds.all())])
    return al.Effects(
        torch.tensor(rows).T, ("measure",), "of races", labels={"measure": RACE_MEASURES}
    )


def _rows(effects: al.ComponentEffects) -> Float[Tensor, "component pair"]:
    return torch.cat([effects.heads.per_pair.flatten(0, 1), effects.mlps.per_pair])


def _filled(exact: al.ComponentEffects, values: Tensor) -> al.ComponentEffects:
    """The effects that a race computed, the others NaN."""
    n_heads = exact.heads.per_pair[..., 0].numel()
    heads = values[:n_heads].reshape(exact.heads.per_pair.shape)
    return replace(
        exact,
        heads=replace(exact.heads, per_pair=heads, held_norm=None),
        mlps=replace(exact.mlps, per_pair=values[n_heads:], held_norm=None),
    )


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
