"""How sets settle: against sets counted out here, and effects whose order is known."""

from typing import Any

import numpy as np
import pytest
import torch

from arith_lens.effects import Effects, stability_of, template_agreement


def measured(effects: Effects, **options: Any) -> Any:
    """The table, as what pandas does not type."""
    return stability_of(effects, **options)


def made(noise: float, n: int = 60, n_components: int = 20, draws: int = 2) -> Effects:
    """Component i acts by -i/100, around it the noise; every reference has several draws."""
    generator = torch.Generator().manual_seed(0)
    strength = -0.01 * torch.arange(n_components)[:, None]
    own = strength + noise * torch.randn(n_components, n, generator=generator)
    template = tuple(f"{i % 3}" for i in range(n) for _ in range(draws))
    cluster = torch.arange(n).repeat_interleave(draws)
    return Effects(own.repeat_interleave(draws, -1), ("layer",), "relative_logit",
                   template=template, cluster=cluster)  # fmt: skip


def test_without_noise_every_sample_agrees_with_every_other() -> None:
    table = measured(made(0.0), n_draws=20)
    assert (table["mean"] == 1).all() and (table["low"] == 1).all()
    assert set(table["set"]) == {"top 5", "key"} and set(table["with"]) == {"rest", "another"}
    assert table["n"].max() == 30, "half of all"


def test_agreement_grows_with_the_number_of_references_and_stays_below_one() -> None:
    table = measured(made(0.1), sizes=[3, 10, 30], n_draws=200)
    top = table[(table["set"] == "top 5") & (table["with"] == "rest")].set_index("n")["mean"]
    assert top.is_monotonic_increasing and top[3] < 0.6 < top[30] < 1
    other = table[(table["set"] == "top 5") & (table["with"] == "another")].set_index("n")["mean"]
    assert (other.loc[:10] < top.loc[:10]).all(), "more problems agree better than few"
    assert other[30] == top[30], "half of the problems: the rest is the other sample"


def test_noise_alone_agrees_as_chance_does() -> None:
    effects = made(0.0)
    noise = torch.randn(20, 120, generator=torch.Generator().manual_seed(1))
    table = measured(Effects(noise, effects.axes, effects.metric), sizes=[4, 60], k=5)
    another = table[table["set"] == "top 5"]["mean"]
    draw = np.random.default_rng(0)
    chance = np.mean([
        len(both) / (10 - len(both))
        for both in (
            set(draw.permutation(20)[:5]) & set(draw.permutation(20)[:5]) for _ in range(4000)
        )
    ])  # fmt: skip
    assert another.mean() == pytest.approx(chance, abs=0.05)


def test_the_strongest_are_the_most_negative_and_not_the_largest() -> None:
    """Three components act by -0.1 to -0.3 without noise; ten others oppose by 1 and more."""
    noise = torch.rand(10, 60, generator=torch.Generator().manual_seed(2))
    values = torch.cat([torch.tensor([[-0.3], [-0.2], [-0.1]]).expand(3, 60), 1 + noise])
    table = measured(Effects(values, ("layer",), "logit"), k=3, n_draws=20)
    assert (table["mean"] == 1).all() and (table["low"] == 1).all()


def test_a_draw_takes_whole_references_and_weighs_templates_equally() -> None:
    """One reference of two, all draws of it: the top component is that reference's own."""
    values = torch.tensor([[-9.0, -9.0, 0.0], [0.0, 0.0, -1.0]])
    effects = Effects(values, ("layer",), "logit", cluster=torch.tensor([0, 0, 1]))
    table = measured(effects, k=1, sizes=[1], n_draws=400)
    assert (table["mean"] == 0).all(), "the other reference has another top component"
    assert set(table["set"]) == {"top 1"}, "the key set's threshold is of another metric"
    assert "key" in set(measured(effects, k=1, threshold=-1.0)["set"])


def test_the_same_seed_gives_the_same_numbers() -> None:
    effects = made(0.1)
    first, again, other = (measured(effects, seed=seed, n_draws=20) for seed in (1, 1, 2))
    assert first.equals(again) and not first.equals(other)


def test_what_cannot_be_drawn_is_refused() -> None:
    effects = made(0.1)
    with pytest.raises(ValueError, match="from 1 to 30"):
        measured(effects, sizes=[61])
    with pytest.raises(ValueError, match="from 1 to 20 components"):
        measured(effects, k=21)
    with pytest.raises(ValueError, match="found 1; sample more"):
        measured(effects.select(torch.arange(2)))


def test_templates_that_rank_alike_correlate_and_reversed_ones_do_not() -> None:
    same = template_agreement(made(0.0))
    assert list(same.columns) == ["0", "1", "2"] and np.allclose(same, 1)
    effects = made(0.0)
    assert effects.template is not None
    turned = torch.tensor([name == "2" for name in effects.template])
    reversed_ = torch.where(turned, -effects.per_pair, effects.per_pair)
    mixed = template_agreement(
        Effects(reversed_, effects.axes, effects.metric, template=effects.template)
    )
    assert mixed.loc["0", "1"] == pytest.approx(1) and mixed.loc["0", "2"] == pytest.approx(-1)
    with pytest.raises(ValueError, match="template"):
        template_agreement(Effects(torch.zeros(2, 3), ("layer",), "logit"))
