"""Races stop early with the answer of the full computation, and screening says what it misses."""

import inspect
import math
from collections.abc import Sequence
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import arith_lens as al
from arith_lens.components import Component
from arith_lens.path_patching import fewer_evaluations
from arith_lens.path_patching.fewer_evaluations import (
    N_CHECKS,
    Screening,
    StoppingRule,
    balanced_order,
    race,
    round_sizes,
)
from arith_lens.path_patching.race_intervals import STAKES, betting_interval

QUIET: dict[str, Any] = {"metric": "logit", "progress": False}
REPEATS = 40


@pytest.fixture(scope="module")
def built() -> tuple[al.HookedModel, al.PromptPairs, Any]:
    return tuple(al.built_model("deep"))


@pytest.fixture(scope="module")
def exact(built: tuple[al.HookedModel, al.PromptPairs, Any]) -> al.ComponentEffects:
    return al.path_patch(*built[:2], **QUIET)


def planted(n_pairs: int, seed: int, *, skewed: bool) -> tuple[Tensor, Tensor]:
    """Effects of 30 components, of which 5 are clearly below -0.05; and the templates of pairs."""
    rng = torch.Generator().manual_seed(seed)
    noise = torch.randn(30, n_pairs, generator=rng)
    if skewed:
        noise = 1 - torch.empty(30, n_pairs).exponential_(generator=rng)
    means = torch.tensor([-0.15] * 5 + [0.0] * 25)[:, None]
    strata = torch.arange(n_pairs) % 9
    return means + 0.03 * noise + 0.01 * (strata - 4) / 4, strata


def lookup(values: Tensor) -> fewer_evaluations.EffectMeasure:
    def measure(components: Sequence[int], pairs: Tensor, _: int) -> Tensor:
        return values[torch.tensor(components)[:, None], pairs]

    return measure


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("goal", [StoppingRule(line=-0.05), StoppingRule(k=5)])
def test_races_end_as_the_full_computation_and_all_intervals_hold(
    goal: StoppingRule, skewed: bool
) -> None:
    right = covered = 0
    shares = []
    for seed in range(REPEATS):
        values, strata = planted(270, seed, skewed=skewed)
        outcome = race(lookup(values), len(values), strata, goal, seed=seed)
        truth = torch.stack([values[:, strata == s].mean(1) for s in range(9)]).mean(0)
        low, high = outcome.interval
        covered += bool(((low <= truth + 1e-6) & (truth <= high + 1e-6)).all())
        chosen = outcome.values.nanmean(1).argsort()[:5]
        right += {*chosen.tolist()} == {*range(5)}
        shares.append(outcome.evaluations / values.numel())
    assert right == REPEATS
    assert covered >= 0.95 * REPEATS
    assert sum(shares) / REPEATS < 0.2


def test_intervals_at_a_low_level_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fewer_evaluations, "RACE_LEVEL", 0.2)
    covered = 0
    for seed in range(REPEATS):
        values, strata = planted(270, seed, skewed=False)
        outcome = race(lookup(values), len(values), strata, StoppingRule(line=-0.05), seed=seed)
        low, high = outcome.interval
        covered += bool(((low <= values.mean(1)) & (values.mean(1) <= high)).all())
    assert covered < 0.9 * REPEATS


def test_an_interval_is_students_for_a_sample_without_replacement() -> None:
    from scipy import stats

    values, strata = planted(160, 0, skewed=False)
    strata = torch.zeros_like(strata)
    outcome = race(lookup(values), len(values), strata, StoppingRule(line=10.0))
    assert outcome.rounds == (16,)
    seen = values[0][balanced_order(strata, 0)[:16]].double()
    tail = (1 - fewer_evaluations.RACE_LEVEL) / (2 * 30 * (len(round_sizes(160, 1)) - 1))
    width = stats.t.isf(tail, 15) * float(seen.std()) * ((1 - 16 / 160) / 16) ** 0.5
    expected = torch.tensor([float(seen.mean()) - width, float(seen.mean()) + width])
    assert_close(outcome.interval[:, 0], expected.double())


def population(kind: str, seed: int, n_components: int = 10, n_pairs: int = 180) -> Tensor:
    """Effects within +-2, by component and pair."""
    rng = torch.Generator().manual_seed(seed)
    noise = torch.randn(n_components, n_pairs, generator=rng)
    if kind == "normal":
        return 0.03 * noise
    if kind == "log-normal":
        return (0.01 * (math.exp(2) - (2 * noise).exp())).clamp(
            min=-2
        )  # of mean 0, but for the cut
    is_strong = torch.rand(n_components, n_pairs, generator=rng) < 0.03
    return torch.where(is_strong, torch.tensor(-2.0), 0.01 * noise)


def coverage(kind: str, bound: float | None, repeats: int) -> tuple[float, float]:
    """In which share of races all intervals hold, and the share of evaluations."""
    covered, spent = 0, 0.0
    for seed in range(repeats):
        values = population(kind, seed)
        strata = torch.arange(180) % 9
        goal = StoppingRule(line=-0.05, bound=bound)
        outcome = race(lookup(values), len(values), strata, goal, seed=seed)
        low, high = outcome.interval
        truth = values.double().mean(1)  # all templates are equally large
        covered += bool(((low <= truth + 1e-6) & (truth <= high + 1e-6)).all())
        spent += outcome.evaluations / values.numel()
    return covered / repeats, spent / repeats


@pytest.mark.parametrize(
    ("kind", "bound", "most"),
    [("normal", 0.2, 0.4), ("log-normal", 2.0, 1.0), ("rare strong", 2.0, 1.0)],
)
def test_with_a_bound_all_intervals_hold_whatever_the_effects(
    kind: str, bound: float, most: float
) -> None:
    share, spent = coverage(kind, bound, 40)
    assert share >= 0.95
    assert spent < most


def test_without_a_bound_intervals_hold_for_normal_effects_and_not_for_rare_ones() -> None:
    assert coverage("normal", None, 40)[0] >= 0.95
    assert coverage("log-normal", None, 40)[0] < 0.5
    assert coverage("rare strong", None, 40)[0] < 0.1


def test_only_a_bound_is_recorded_as_a_guarantee() -> None:
    values, strata = planted(90, 0, skewed=False)
    names = [f"{i}" for i in range(30)]
    largest = float(values.abs().max())
    for bound, is_guaranteed in ((None, False), (largest, True), (largest / 2, False)):
        outcome = race(lookup(values), 30, strata, StoppingRule(line=-0.05, bound=bound))
        notes = outcome.notes(names)
        assert notes["guaranteed"] == is_guaranteed and notes["bound"] == bound
        assert ("not for rare strong ones" in str(notes["valid_for"])) == (bound is None)
        seen = ~outcome.values.isnan()
        assert torch.equal(outcome.values[seen], values[seen])
        beyond = [i for i in range(30) if bound and bool((values[i][seen[i]].abs() > bound).any())]
        assert notes["beyond_bound"] == [names[i] for i in beyond]
        assert (outcome.n_pairs[beyond] == 90).all()


@pytest.mark.parametrize("sizes", [(60, 60), (90, 30)])
def test_the_end_of_an_interval_is_where_the_capital_reaches_its_limit(
    sizes: tuple[int, int],
) -> None:
    """The capital is played pair by pair in plain Python, for means beside either end."""
    strata = torch.tensor([0] * sizes[0] + [1] * sizes[1])
    values = 0.1 * torch.randn(1, 120, generator=torch.Generator().manual_seed(2)).clamp(-3, 3)
    seen = torch.randperm(120, generator=torch.Generator().manual_seed(3))[:60]
    tail, bound = 0.01, 0.4
    low, high = betting_interval(values, seen, strata, tail, bound)[:, 0].tolist()
    weights = [120 / (2 * sizes[s]) for s in strata.tolist()]
    largest = bound * max(weights)

    def highest_capital(mean: float, sign: int) -> float:
        total, capitals, highest = 0.0, dict.fromkeys(STAKES, 1.0), 0.0
        for number, pair in enumerate(seen.tolist()):
            value = sign * weights[pair] * float(values[0, pair])
            expected = (120 * sign * mean - total) / (120 - number)
            for stake in STAKES:
                capitals[stake] *= 1 + stake * (value - expected) / (expected + largest)
            highest = max(highest, sum(capitals.values()) / len(STAKES))
            total += value
        return highest

    step = 1e-4 * largest
    assert highest_capital(low - step, 1) > 1 / tail > highest_capital(low + step, 1)
    assert highest_capital(high + step, -1) > 1 / tail > highest_capital(high - step, -1)
    assert low < float(torch.stack([values[0, strata == s].mean() for s in (0, 1)]).mean()) < high


def test_a_bounded_race_shares_its_five_percent_among_the_components_and_both_ends() -> None:
    values, strata = planted(90, 0, skewed=False)
    rule = StoppingRule(line=10.0, bound=0.5)  # all are settled after the first round
    for seed in (0, 5):
        outcome = race(lookup(values), 30, strata, rule, seed=seed)
        order = torch.randperm(90, generator=torch.Generator().manual_seed(seed))
        seen = order[: outcome.rounds[0]]
        expected, alone = (
            betting_interval(values, seen, strata, 0.05 / (2 * n), 0.5) for n in (30, 1)
        )
        assert torch.equal(outcome.interval, expected)
        assert bool((alone[1] - alone[0] < expected[1] - expected[0] - 1e-3).all())


def test_a_bound_of_a_path_patching_that_does_not_hold_warns(
    built: tuple[al.HookedModel, al.PromptPairs, Any], exact: al.ComponentEffects
) -> None:
    model, pairs, _ = built
    largest = max(float(part.per_pair.abs().max()) for part in (exact.heads, exact.mlps))
    raced = al.path_patch(model, pairs, until=-0.5, bound=1.01 * largest, **QUIET)
    assert raced.computation["race"]["guaranteed"] is True
    with pytest.warns(UserWarning, match=r"no effect larger than bound=0\.5, found larger ones"):
        wrong = al.path_patch(model, pairs, until=-0.5, bound=0.5, **QUIET)
    assert wrong.computation["race"]["guaranteed"] is False
    assert len(wrong.computation["race"]["beyond_bound"]) > 0


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"bound": 1.0}, "together with until=, found bound=1.0 alone"),
        ({"bound": 0.0, "until": -0.5}, "as a positive number"),
        ({"bound": float("nan"), "until": "top3"}, "as a positive number"),
    ],
)
def test_bounds_that_are_none(
    built: tuple[al.HookedModel, al.PromptPairs, Any], settings: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        al.path_patch(*built[:2], **settings, **QUIET)


def test_a_race_with_a_bound_and_one_without_do_not_share_a_stored_result(
    built: tuple[al.HookedModel, al.PromptPairs, Any], tmp_path: Path
) -> None:
    model, pairs, _ = built
    with al.open_run("race", {}, model=model, root=tmp_path) as run:
        plain = al.path_patch(model, pairs, until=-0.5, run=run, name="plain", **QUIET)
        bounded = al.path_patch(model, pairs, until=-0.5, bound=9.0, run=run, name="b", **QUIET)
    assert plain.computation["race"]["bound"] is None
    assert bounded.computation["race"]["bound"] == 9.0


def test_what_is_never_clear_is_computed_on_all_pairs() -> None:
    values, strata = planted(90, 1, skewed=False)
    values[3] = 1e-3 * torch.randn(90, generator=torch.Generator().manual_seed(0)) - 0.05
    outcome = race(lookup(values), len(values), strata, StoppingRule(line=-0.05))
    assert outcome.n_pairs[3] == 90
    assert torch.equal(outcome.values[3], values[3])
    width = outcome.interval[1, 3] - outcome.interval[0, 3]
    assert float(width) == 0.0
    assert outcome.n_pairs.min() < 90


def test_pairs_without_a_ratio_do_not_count() -> None:
    values, strata = planted(270, 2, skewed=False)
    values[:, ::3] = float("nan")
    values[7] = float("nan")
    outcome = race(lookup(values), len(values), strata, StoppingRule(line=-0.05))
    assert outcome.n_pairs[7] == 270
    assert {*outcome.values.nanmean(1).nan_to_num().argsort()[:5].tolist()} == {*range(5)}


def test_beginnings_of_the_order_have_every_template_in_its_share() -> None:
    strata = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
    order = balanced_order(strata, 3)
    assert sorted(order.tolist()) == list(range(100))
    counts = torch.bincount(strata[order[:50]], minlength=3)
    assert ((counts - torch.tensor([30, 15, 5])).abs() <= 1).all()
    assert not torch.equal(order, balanced_order(strata, 4))


@pytest.mark.parametrize(
    ("n", "strata", "sizes"),
    [(10, 1, [10]), (40, 1, [16, 32, 40]), (72, 9, [18, 36, 72]), (1, 1, [1])],
)
def test_rounds_double(n: int, strata: int, sizes: list[int]) -> None:
    assert round_sizes(n, strata) == sizes


@pytest.mark.parametrize("engine", ["sweep", "hooks"])
def test_path_patch_until_the_line(
    built: tuple[al.HookedModel, al.PromptPairs, Any], exact: al.ComponentEffects, engine: str
) -> None:
    model, pairs, _ = built
    raced = al.path_patch(model, pairs, until=-0.5, engine=engine, **QUIET)
    notes = raced.computation["race"]
    assert notes["of"] == len(pairs) * 27
    assert notes["evaluations"] < notes["of"] / 3
    for name in ("heads", "mlps"):
        ours, full = getattr(raced, name), getattr(exact, name)
        known = ~ours.per_pair.isnan()
        assert int(known.sum()) < ours.per_pair.numel()
        assert_close(ours.per_pair[known], full.per_pair[known], atol=2e-5, rtol=1e-5)
        assert torch.equal(ours.mean() < -0.5, full.mean() < -0.5)
        if engine == "sweep":
            assert torch.equal(ours.held_norm.isnan(), ours.per_pair.isnan())
    assert raced.n_left_out == 0
    assert ("certificate" in raced.computation) == (engine == "sweep")


def test_a_killed_race_continues_with_the_same_bits(
    built: tuple[al.HookedModel, al.PromptPairs, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from arith_lens.methods import shards

    model, pairs, _ = built
    settings: dict[str, Any] = {"until": "top3", "batch_size": 8, **QUIET}
    whole = al.path_patch(model, pairs, **settings)
    calls, plain = [], shards.compute_shard

    def failing(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return plain(*arguments)

    monkeypatch.setattr(shards, "compute_shard", failing)
    with (
        pytest.raises(KeyboardInterrupt),
        al.open_run("race", {}, model=model, root=tmp_path) as run,
    ):
        al.path_patch(model, pairs, run=run, **settings)
    with al.open_run("race", {}, model=model, root=tmp_path) as run:
        again = al.path_patch(model, pairs, run=run, **settings)
    n_shards = sum(-(-n // 8) for n in _new(whole.computation["race"]["rounds"]))
    assert len(calls) == n_shards + 1
    assert torch.equal(again.heads.per_pair.nan_to_num(), whole.heads.per_pair.nan_to_num())
    assert again.computation["race"] == whole.computation["race"]


def _new(rounds: list[int]) -> list[int]:
    return [after - before for before, after in zip([0, *rounds], rounds, strict=False)]


@pytest.mark.parametrize(
    ("until", "metric", "match"),
    [
        ("top0", "logit", "top10"),
        ("best", "logit", "top10"),
        ("threshold", "logit", "as a number"),
    ],
)
def test_goals_that_are_none(
    built: tuple[al.HookedModel, al.PromptPairs, Any], until: str, metric: str, match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        al.path_patch(*built[:2], until=until, metric=metric, progress=False)


def test_the_thresholds_goal_is_that_of_key_heads() -> None:
    assert StoppingRule.of("threshold", "relative_logit") == StoppingRule(line=-0.05)
    assert StoppingRule.of(-0.1, "logit") == StoppingRule(line=-0.1)
    assert StoppingRule.of("top10", "logit") == StoppingRule(k=10)


def test_a_component_is_settled_when_its_whole_interval_is_on_one_side() -> None:
    """A mean on the line is not beyond it."""
    low = torch.tensor([-0.2, -0.1, -0.05, -0.06], dtype=torch.float64)
    high = torch.tensor([-0.11, -0.05, 0.0, -0.04], dtype=torch.float64)
    settled = StoppingRule(line=-0.05).settled(torch.stack([low, high]))
    assert settled.tolist() == [True, False, True, False]
    for k, expected in ((1, [True] * 4), (2, [True, False, False, False])):
        settled = StoppingRule(k=k).settled(torch.stack([low, high]))
        assert settled.tolist() == expected, k


def test_screening_computes_the_kept_and_some_others(
    built: tuple[al.HookedModel, al.PromptPairs, Any], exact: al.ComponentEffects
) -> None:
    model, pairs, truth = built
    screen = al.attribute(model, pairs[:16], method="ig_activations", **QUIET)
    result = al.path_patch(model, pairs, screen=screen, keep=6, **QUIET)
    notes = result.computation["screen"]
    assert len(notes["kept"]) == 6
    assert len(notes["checked"]) == N_CHECKS
    assert notes["others"] == 27 - 6
    circuit = {str(one) for one in (*truth.heads, *truth.mlps)}
    assert circuit <= {*notes["kept"], *notes["checked"]}
    known = ~result.heads.per_pair.isnan()
    assert_close(result.heads.per_pair[known], exact.heads.per_pair[known])
    assert int((~result.heads.mean().isnan()).sum() + (~result.mlps.mean().isnan()).sum()) == 26
    strongest = notes["strongest_checked_effect"]
    names = {str(head): float(exact.heads.mean()[head.layer, head.index])
             for head in exact.heads.top(24) if isinstance(head, al.Head)}  # fmt: skip
    names |= {str(al.Mlp(layer)): float(v) for layer, v in enumerate(exact.mlps.mean())}
    assert abs(strongest) == pytest.approx(max(abs(names[one]) for one in notes["checked"]))


def test_screening_and_racing_together(built: tuple[al.HookedModel, al.PromptPairs, Any]) -> None:
    model, pairs, _ = built
    screen = al.attribute(model, pairs[:16], **QUIET)
    both = al.path_patch(model, pairs, screen=screen, keep=4, until=-0.5, **QUIET)
    assert both.computation["race"]["of"] == 24 * len(pairs)
    assert both.computation["screen"]["others"] == 23


def test_screening_keeps_the_largest_of_either_sign_and_checks_others_at_random() -> None:
    """48 heads; the sizes of approximate effects fall from head to head, with changing signs."""
    sizes = torch.linspace(1, 0.01, 48) * torch.tensor([1.0, -1.0]).repeat(24)
    common: dict[str, Any] = {"metric": "logit"}
    rough = al.ComponentEffects(
        al.Effects(sizes.reshape(6, 8, 1), ("layer", "head"), **common),
        al.Effects(torch.zeros(6, 1), ("layer",), **common),
        torch.ones(1),
    )
    heads: list[Component] = [al.Head(i // 8, i % 8) for i in range(48)]
    times = dict.fromkeys(heads[8:], 0)
    for seed in range(200):
        screening = Screening.of(rough, heads, 8, seed=seed)
        assert list(screening.strongest) == heads[:8]
        assert len({*screening.checked}) == N_CHECKS and screening.n_others == 40
        for one in screening.checked:
            times[one] += 1
    assert min(times.values()) > 70 and max(times.values()) < 130, "each in half of the draws"
    assert Screening.of(rough, heads, 8) == Screening.of(rough, heads, 8, seed=0)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 2), (12, 3), (9, 9), (7, 0)])
def test_the_bound_holds_by_enumeration(n: int, m: int) -> None:
    """Over all choices of m of n, those that miss more than the bound are at most 5%."""
    components: tuple[Component, ...] = tuple(al.Head(0, i) for i in range(n))
    bound = Screening((), components[:m], n).n_stronger
    missed = [min(chosen, default=n) for chosen in combinations(range(n), m)]  # by rank
    assert sum(count > bound for count in missed) <= 0.05 * comb(n, m)
    if bound > 0:  # and one less would not hold
        assert sum(count > bound - 1 for count in missed) > 0.05 * comb(n, m)


def test_screens_that_cannot_be_used(
    built: tuple[al.HookedModel, al.PromptPairs, Any], exact: al.ComponentEffects
) -> None:
    model, pairs, _ = built
    unchecked: Any = inspect.unwrap(vars(Screening)["of"].__func__)  # as outside of tests
    with pytest.raises(TypeError, match=r"screen=attribute\("):
        unchecked(Screening, "relp", [al.Head(0, 0)], 1)
    with pytest.raises(ValueError, match="keep=0"):
        al.path_patch(model, pairs, screen=exact, keep=0, **QUIET)
    small = al.built_model("table")
    other = al.attribute(small.model, small.pairs[:4], **QUIET)
    with pytest.raises(ValueError, match=r"effects of all 27 senders, found none of 1\.0"):
        al.path_patch(model, pairs, screen=other, **QUIET)
