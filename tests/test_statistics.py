"""Intervals and tests against synthetic effects whose truth is known."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch.testing import assert_close

from arith_lens import statistics
from arith_lens.effects import ComponentEffects, Effects, contrast
from arith_lens.statistics import (
    Sample,
    Units,
    bootstrap_interval,
    clustered_stderr,
    false_discovery_control,
    joined_units,
    permutation_p_value,
    resampled_means,
)

UNEQUAL = (5, 8, 12, 30, 60)
"""References of each template."""


def synthetic(
    noise: str, references: tuple[int, ...], n_components: int = 1000, seed: int = 0
) -> tuple[Effects, float]:
    """Components that are repetitions of one study, and the true mean over templates.

    Templates differ in mean and spread. Each reference has 1, 3 or 6 pairs that share its effect.
    """
    draw = np.random.default_rng(seed)
    columns, template, cluster = [], [], []
    for stratum, count in enumerate(references):
        for index in range(count):
            n_pairs = (1, 3, 6)[index % 3]
            if noise == "normal":
                shared = draw.standard_normal((n_components, 1))
            else:
                shared = draw.standard_t(3, (n_components, 1))  # a variance, but no fourth moment
            own = 0.3 * draw.standard_normal((n_components, n_pairs))
            columns.append(3.0 * stratum + (1 + stratum) * shared + own)
            template += [f"template {stratum}"] * n_pairs
            cluster += [len(columns)] * n_pairs
    values = torch.tensor(np.concatenate(columns, 1), dtype=torch.float32)
    effects = Effects(values, ("layer",), "logit", template=tuple(template),
                      cluster=torch.tensor(cluster))  # fmt: skip
    return effects, 3.0 * float(np.mean(range(len(references))))


def coverage(effects: Effects, truth: float) -> float:
    """The share of components whose 95% interval holds the truth."""
    low, high = effects.ci()
    return float(((low <= truth) & (truth <= high)).float().mean())


@pytest.mark.parametrize(
    ("noise", "references", "band"),
    [
        ("normal", (36,) * 9, (0.93, 0.97)),
        ("heavy tails", (36,) * 9, (0.93, 0.97)),
        ("normal", UNEQUAL, (0.91, 0.97)),
        ("heavy tails", UNEQUAL, (0.90, 0.97)),
        ("normal", (4,) * 9, (0.90, 0.97)),
    ],
)
def test_the_95_percent_interval_covers_the_truth_about_that_often(
    noise: str, references: tuple[int, ...], band: tuple[float, float]
) -> None:
    effects, truth = synthetic(noise, references)
    assert band[0] < coverage(effects, truth) < band[1]
    naive = replace(effects, cluster=None)
    assert coverage(naive, truth) < 0.75, "pairs of one reference are not independent"
    assert coverage(effects, truth + 1e3) == 0, "the test must be able to fail"


def test_an_interval_that_forgets_the_templates_misses_their_mean() -> None:
    effects, truth = synthetic("normal", UNEQUAL)
    assert coverage(replace(effects, template=None), truth) < 0.1


@pytest.mark.parametrize("references", [(2,) * 9, UNEQUAL, (30,), (1,) * 9, (1, 1, 20)])
def test_the_bootstrap_spreads_as_the_standard_error_says(references: tuple[int, ...]) -> None:
    """One pair a reference, so that both are exact up to the number of resamples."""
    values = torch.randn(50, sum(references), generator=torch.Generator().manual_seed(1)).double()
    names = [f"{s}" for s, count in enumerate(references) for _ in range(count)]
    effects = Effects(values.float(), ("layer",), "logit", template=tuple(names))
    strata = torch.tensor([int(name) for name in names])
    sample = Sample(values, strata, torch.arange(len(names)), strata)
    means = resampled_means(sample, slice(None), 4000, seed=0)
    freedom = sum(count - 1 for count in references) + max(0, references.count(1) - 1)
    assert_close(clustered_stderr(sample)[1], torch.full((50,), float(freedom)).double())
    widened = stats.t.ppf(0.975, freedom) / stats.norm.ppf(0.975)
    assert_close(means.std(-1).float() / widened, effects.stderr(), rtol=0.06, atol=0)


def crossed(
    share: float, wordings: float, n_problems: int = 36, n_components: int = 1500, seed: int = 0
) -> Effects:
    """Nine wordings of each problem; every component is a repetition of one study, of mean 0.

    Args:
        share: of the variance of an effect that lies between problems
        wordings: variance between wordings, in units of what the mean of a wording has as noise
    """
    draw = np.random.default_rng(seed)
    between = np.sqrt(share) * draw.standard_normal((n_components, n_problems, 1))
    noise = np.sqrt(1 - share) * draw.standard_normal((n_components, n_problems, 9))
    size = np.sqrt(wordings * (1 - share) / n_problems)
    values = between + noise + size * draw.standard_normal((n_components, 1, 9))
    return Effects(
        torch.tensor(values.reshape(n_components, -1), dtype=torch.float32),
        ("layer",),
        "logit",
        template=tuple(f"addition/{i % 9}" for i in range(9 * n_problems)),
        cluster=torch.arange(9 * n_problems),
        problem=tuple(f"problem {i // 9}" for i in range(9 * n_problems)),
    )


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("wordings", [0.0, 1.0, 10.0])
def test_intervals_over_problems_cover_at_any_share_of_variance_between_them(
    share: float, wordings: float
) -> None:
    effects = crossed(share, wordings)
    assert 0.925 < coverage(effects, 0.0) < 0.975
    if share == 0.9:
        low, high = effects.ci(over="prompt")
        assert ((low <= 0) & (high >= 0)).float().mean() < 0.7, "prompts are not independent"
    if wordings == 10 and share == 0:
        low, high = effects.ci(over="prompt")
        assert ((low <= 0) & (high >= 0)).float().mean() < 0.7, "nor are other wordings the same"


def test_the_error_over_problems_is_that_of_an_analysis_of_variance() -> None:
    """Balanced: mean squares of problems and wordings, less what both count of the noise."""
    effects = crossed(0.5, 3.0, n_problems=12, n_components=40)
    values = effects.per_pair.double().numpy().reshape(-1, 12, 9)
    problems, wordings = values.mean(2), values.mean(1)
    mean = values.mean((1, 2))[:, None]
    noise = values - problems[:, :, None] - wordings[:, None] + mean[:, :, None]
    mean_noise = (noise**2).sum((1, 2)) / (11 * 8)
    of_problems = 9 * ((problems - mean) ** 2).sum(1) / 11
    of_wordings = 12 * ((wordings - mean) ** 2).sum(1) / 8
    expected = of_problems + np.maximum(of_wordings - mean_noise, 0)
    assert_close(effects.stderr().double().numpy(), np.sqrt(expected / 108), rtol=1e-5, atol=0)
    draws = resampled_means(effects.sample(), slice(None), 4000, seed=0)
    assert (draws.std(-1) > effects.stderr()).float().mean() > 0.9, "widened as Student's t"
    assert_close(draws.std(-1).float(), effects.stderr(), rtol=0.25, atol=0)


def test_pairs_left_out_and_unequal_wordings_keep_the_coverage() -> None:
    effects = crossed(0.5, 1.0)
    is_present = torch.rand(effects.n_pairs, generator=torch.Generator().manual_seed(0)) < 0.7
    holed = effects.per_pair.masked_fill(~is_present, float("nan"))
    assert 0.92 < coverage(replace(effects, per_pair=holed), 0.0) < 0.975
    assert 0.92 < coverage(effects.select(is_present), 0.0) < 0.975


def test_wordings_that_share_no_problem_are_fixed() -> None:
    """Problems of their own in each wording: wordings then count as kinds of problem."""
    effects = synthetic("normal", UNEQUAL)[0]
    assert effects.cluster is not None
    own = replace(effects, problem=tuple(f"{i:04d}" for i in effects.cluster.tolist()))
    assert torch.equal(own.ci(), effects.ci(over="prompt"))
    assert_close(own.stderr(), effects.stderr(over="prompt"))


def test_operations_are_fixed_however_much_they_differ() -> None:
    """The wordings of two operations: each operation has its own part of the error."""
    one, two = crossed(0.5, 1.0, seed=1), crossed(0.5, 1.0, seed=2)
    other = replace(
        two,
        per_pair=two.per_pair + 50,
        template=tuple(name.replace("addition", "division") for name in two.template or ()),
        problem=tuple(f"other {name}" for name in two.problem or ()),
    )
    expected = (one.stderr().square() + two.stderr().square()).sqrt() / 2
    assert_close((one + other).stderr(), expected)


def test_what_counts_as_one_observation_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="over='problem' or over='prompt', found 'pair'"):
        crossed(0.5, 1.0, n_components=2).ci(over="pair")


def test_drawing_as_many_references_as_there_are_would_spread_too_little() -> None:
    """What the library's own draw avoids, written out for two references a template."""
    draw = np.random.default_rng(0)
    values = draw.standard_normal((9, 2))
    plain = np.mean([v[draw.integers(0, 2, (4000, 2))].mean(1) for v in values], axis=0)
    expected = np.sqrt((values.var(1, ddof=1) / 2).sum()) / 9
    assert plain.std() / expected == pytest.approx(0.5**0.5, rel=0.05)


def test_one_reference_in_all_has_no_interval() -> None:
    effects = Effects(torch.rand(3, 4), ("layer",), "logit", cluster=torch.zeros(4).long())
    assert effects.ci().isnan().all() and effects.stderr().isnan().all()


def test_pairs_left_out_do_not_move_the_interval() -> None:
    effects, _ = synthetic("normal", (6, 9), n_components=20)
    holes = torch.full((20, 3), float("nan"))
    assert effects.template is not None and effects.cluster is not None
    holed = replace(
        effects,
        per_pair=torch.cat([effects.per_pair, holes], -1),
        template=(*effects.template, *("template 1",) * 3),
        cluster=torch.cat([effects.cluster, torch.tensor([900, 901, 901])]),
    )
    assert_close(holed.ci(), effects.ci())


def test_the_parts_that_fit_in_memory_do_not_change_the_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    effects, _ = synthetic("normal", (6, 9), n_components=20)
    whole = effects.ci()
    monkeypatch.setattr(statistics, "MEANS_AT_ONCE", 7000)  # seven components at a time
    assert torch.equal(effects.ci(), whole)


def test_a_thousand_heads_have_more_resamples_than_a_quantile_of_all_takes() -> None:
    values = torch.randn(32, 32, 90, generator=torch.Generator().manual_seed(0))
    template = tuple(f"{i % 9}" for i in range(90))
    effects = Effects(values, ("layer", "head"), "logit", template=template)
    low, high = effects.ci(n_resamples=17_000)  # 17.4 million means: torch's quantile refuses them
    assert ((high - low) / effects.stderr() - 3.92).abs().mean() < 0.2


def two_kinds(seed: int, n_layers: int = 40, n_real: int = 100, n: int = 30) -> ComponentEffects:
    """25 heads a layer and MLPs; the first heads act. Three pairs a reference, alike within it."""
    draw = np.random.default_rng(seed)
    shared = draw.standard_t(3, (26 * n_layers, n, 1))
    shared[:n_real] -= 1.5
    values = (shared + 0.1 * draw.standard_normal((26 * n_layers, n, 3))).reshape(-1, 3 * n)
    every = torch.tensor(values, dtype=torch.float32)
    cluster = torch.arange(n).repeat_interleave(3)
    heads = every[:-n_layers].reshape(n_layers, 25, 3 * n)
    return ComponentEffects(
        Effects(heads, ("layer", "head"), "logit", cluster=cluster),
        Effects(every[-n_layers:], ("layer",), "logit", cluster=cluster),
        torch.ones(3 * n),
    )


def false_share(found: torch.Tensor) -> float:
    return float(found[100:].sum()) / max(int(found.sum()), 1)


def test_false_discoveries_stay_at_the_stated_level_among_many_nulls() -> None:
    controlled, uncorrected, unclustered, power = [], [], [], []
    for seed in range(10):
        effects = two_kinds(seed)
        q_heads, q_mlps = effects.q_values()
        assert q_heads.shape == effects.heads.mean().shape and q_mlps.shape == (40,)
        found = torch.cat([q_heads.flatten(), q_mlps]) < 0.05
        controlled.append(false_share(found))
        power.append(float(found[:100].float().mean()))
        p = [part.sign_test().flatten() for part in (effects.heads, effects.mlps)]
        uncorrected.append(false_share(torch.cat(p) < 0.05))
        naive = ComponentEffects(
            replace(effects.heads, cluster=None), replace(effects.mlps, cluster=None), effects.logit
        )
        q = torch.cat([part.flatten() for part in naive.q_values()])
        unclustered.append(false_share(q < 0.05))
    assert np.mean(controlled) < 0.05 and np.mean(power) > 0.8
    assert np.mean(uncorrected) > 0.2, "a test a component at 5% finds mostly noise"
    assert np.mean(unclustered) > 0.2, "so does one that takes pairs for independent"


def test_q_values_of_heads_and_mlps_are_adjusted_together() -> None:
    effects = two_kinds(0, n_layers=4, n_real=10)
    p = torch.cat([effects.heads.sign_test().flatten(), effects.mlps.sign_test()])
    expected = torch.as_tensor(stats.false_discovery_control(p.double().numpy())).float()
    heads, mlps = effects.q_values()
    assert_close(torch.cat([heads.flatten(), mlps]), expected)
    assert not torch.allclose(heads, effects.heads.q_values()), "the test must be able to fail"


def test_what_was_not_tested_does_not_weigh_in_the_correction() -> None:
    p = torch.tensor([[0.01, float("nan")], [0.04, 0.5]])
    q = false_discovery_control(p)
    assert q[0, 1].isnan()
    assert_close(q[~q.isnan()], torch.tensor([0.03, 0.06, 0.5]))
    assert false_discovery_control(torch.full((2,), float("nan"))).isnan().all()


def share_holding(table: Any, truth: float) -> float:
    return float((table["ci_low"].le(truth) & table["ci_high"].ge(truth)).mean())


def test_the_interval_of_a_difference_covers_it_about_as_often_as_it_says() -> None:
    effects, _ = synthetic("heavy tails", (40, 50, 60))
    assert effects.cluster is not None
    chosen = effects.cluster % 3 == 0
    shifted = effects.per_pair + 0.7 * chosen
    table = contrast(replace(effects, per_pair=shifted), chosen)
    assert 0.92 < share_holding(table, 0.7) < 0.97
    assert np.allclose(table["difference"], table["mean_in"] - table["mean_out"])
    naive = contrast(replace(effects, per_pair=shifted, cluster=None), chosen)
    assert share_holding(naive, 0.7) < 0.8


def test_what_wordings_do_to_both_sides_cancels_in_a_contrast() -> None:
    """Wordings differ by far more than problems, and alike on both sides of the contrast."""
    effects = crossed(0.5, 400.0, n_components=300)
    second = torch.arange(effects.n_pairs) >= effects.n_pairs // 2  # half of the problems
    table: Any = contrast(effects, second)
    assert 0.9 < share_holding(table, 0.0) < 0.99
    width = float((table["ci_high"] - table["ci_low"]).median())
    low, high = effects.ci()
    assert width < 0.5 * float((high - low).median())


def test_the_two_sides_of_a_difference_are_drawn_apart_at_its_level() -> None:
    """Two sets of problems with the same numbers: one draw for both would never differ."""
    values = torch.randn(1, 40, generator=torch.Generator().manual_seed(0)).double()
    one = torch.zeros(40).long()
    sample = Sample(values, one, torch.arange(40), one)
    options: dict[str, Any] = {"less": sample, "n_resamples": 4000}
    for level in (0.95, 0.5):
        low, high = bootstrap_interval(sample, level=level, seed=0, **options)[:, 0].tolist()
        quantile = stats.norm.ppf((1 + level) / 2) * stats.t.ppf(0.975, 39) / 1.96
        width = quantile * 2**0.5 * stats.sem(values[0].numpy())
        assert (low, high) == pytest.approx((-width, width), rel=0.1)
    ends = [bootstrap_interval(sample, level=0.95, seed=seed, **options) for seed in (0, 1, 0)]
    assert torch.equal(ends[0], ends[2]) and not torch.equal(ends[0], ends[1])


def test_a_contrast_needs_two_sides_and_references_that_are_on_one() -> None:
    effects, _ = synthetic("normal", (6, 9), n_components=2)
    with pytest.raises(ValueError, match="0 of"):
        contrast(effects, torch.zeros(effects.n_pairs, dtype=torch.bool))
    with pytest.raises(ValueError, match="on both"):
        contrast(effects, torch.arange(effects.n_pairs) % 2 == 0)


def test_a_problem_in_two_blocks_is_a_cluster_in_each() -> None:
    units = Units(template=("a/0", "a/0", "b/0", "b/0"), cluster=None, problem=("x", "y", "x", "y"))
    sample = Sample.of(torch.zeros(1, 4), units, "problem")
    assert sample.clusters.tolist() == [0, 1, 2, 3] and sample.blocks.tolist() == [0, 0, 1, 1]


def test_reference_prompts_of_two_sets_are_different_ones_and_problems_are_the_same() -> None:
    one = Units(template=("a/0",) * 3, cluster=torch.tensor([0, 0, 2]), problem=("x", "x", "y"))
    two = Units(template=("a/1",) * 2, cluster=torch.tensor([0, 1]), problem=("x", "z"))
    both = joined_units(one, two)
    assert both["cluster"] is not None and len(both["cluster"].unique()) == 4
    assert both["cluster"].tolist()[:3] == [0, 0, 2]
    assert both["problem"] == ("x", "x", "y", "x", "z")
    assert both["template"] == ("a/0", "a/0", "a/0", "a/1", "a/1")


def test_a_draw_that_differs_by_rounding_alone_reaches_the_number() -> None:
    null = torch.tensor([[0.3, 0.0], [0.1 + 0.2, 0.9], [0.3 - 1e-6, 0.9]], dtype=torch.float64)
    own = torch.tensor([0.1 + 0.2, 1.0], dtype=torch.float64)
    assert float(null[0, 0]) < float(own[0])
    assert permutation_p_value(null, own).tolist() == [0.75, 0.25]
