"""Effects: the statistics against formulas and resampling written out here."""

import json
import warnings
from base64 import b64decode
from dataclasses import replace
from inspect import unwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch.testing import assert_close

from arith_lens.attention import Patterns
from arith_lens.components import Head, Mlp
from arith_lens.effects import BeforeAfter, ComponentEffects, Effects, compare, contrast, key_heads


def head_effects(n_pairs: int = 12, seed: int = 0, **fields: object) -> Effects:
    values = torch.randn(2, 3, n_pairs, generator=torch.Generator().manual_seed(seed))
    return Effects(values, ("layer", "head"), "relative_logit", **fields)  # type: ignore[arg-type]


def test_without_templates_the_mean_and_its_error_are_the_usual_ones() -> None:
    effects = head_effects()
    assert_close(effects.mean(), effects.per_pair.mean(-1))
    assert_close(effects.stderr(), effects.per_pair.std(-1) / 12**0.5)


def test_templates_weigh_equally_however_many_pairs_they_have() -> None:
    effects = Effects(torch.tensor([[1.0, 1.0, 1.0, 5.0]]), ("layer",), "logit",
                      template=("a", "a", "a", "b"))  # fmt: skip
    assert_close(effects.mean(), torch.tensor([3.0]))
    assert effects.by_template()["b"].mean().item() == 5.0
    assert effects.by_template()["a"].n_pairs == 3


def test_pairs_left_out_count_nowhere() -> None:
    full = head_effects(n_pairs=6)
    values = torch.cat([full.per_pair, torch.full((2, 3, 2), float("nan"))], -1)
    holed = Effects(values, full.axes, full.metric)
    assert_close(holed.mean(), full.mean())
    assert_close(holed.stderr(), full.stderr())
    assert holed.to_dataframe()["n"].tolist() == [6] * 6


def test_copies_of_a_reference_are_no_further_evidence() -> None:
    """Each pair five times over, as draws of one reference: the same error, not one of sqrt(5)."""
    once = head_effects(n_pairs=8, cluster=torch.arange(8))
    often = Effects(once.per_pair.repeat(1, 1, 5), once.axes, once.metric,
                    cluster=torch.arange(8).repeat(5))  # fmt: skip
    assert_close(often.mean(), once.mean())
    assert_close(often.stderr(), once.stderr())
    assert_close(often.ci(seed=3), once.ci(seed=3))
    assert_close(often.sign_test(), once.sign_test())
    naive = Effects(often.per_pair, once.axes, once.metric)
    assert (naive.stderr() < 0.6 * once.stderr()).all(), "the test must be able to fail"


def test_the_error_of_templates_adds_up_within_them() -> None:
    values = torch.tensor([[1.0, 2.0, 4.0, 10.0, 14.0]])
    effects = Effects(values, ("layer",), "logit", template=("a", "a", "a", "b", "b"))
    a, b = np.array([1.0, 2.0, 4.0]), np.array([10.0, 14.0])
    expected = np.sqrt(a.var(ddof=1) / 3 + b.var(ddof=1) / 2) / 2
    assert_close(effects.stderr(), torch.tensor([expected], dtype=torch.float32))


def test_a_single_reference_has_no_error() -> None:
    one = head_effects(n_pairs=3, cluster=torch.zeros(3, dtype=torch.long))
    assert one.stderr().isnan().all()
    assert not one.mean().isnan().any()


def test_the_bootstrap_covers_the_truth_about_as_often_as_it_says() -> None:
    generator = torch.Generator().manual_seed(0)
    reference = torch.randn(400, 30, generator=generator)  # 400 components, 30 references each
    draws = reference.repeat_interleave(4, -1) + 0.1 * torch.randn(400, 120, generator=generator)
    cluster = torch.arange(30).repeat_interleave(4)
    effects = Effects(draws, ("layer",), "logit", cluster=cluster)
    low, high = effects.ci(0.9, n_resamples=500)
    covered = ((low < 0) & (high > 0)).float().mean()
    assert 0.83 < covered < 0.94
    again = effects.ci(0.9, n_resamples=500)
    assert torch.equal(torch.stack([low, high]), again), "the same seed, the same interval"


def test_the_sign_test_is_binomial_and_its_q_values_are_controlled() -> None:
    values = torch.ones(3, 10)
    values[1, :5] = -1
    values[2, :1] = -1
    effects = Effects(values, ("layer",), "logit")
    expected = torch.tensor([2 / 2**10, 1.0, 22 / 2**10])
    assert_close(effects.sign_test(), expected)
    assert_close(effects.q_values(), torch.tensor([6 / 2**10, 1.0, 33 / 2**10]))


def test_top_is_the_most_negative_first_and_never_what_was_not_computed() -> None:
    values = torch.tensor([[-1.0, 2.0], [float("nan"), -3.0]])[..., None].expand(2, 2, 4)
    effects = Effects(values, ("layer", "head"), "logit")
    assert effects.top(2) == [Head(1, 1), Head(0, 0)]
    assert effects.top(9) == [Head(1, 1), Head(0, 0), Head(0, 1)]
    assert Effects(-values[0], ("layer",), "logit").top(1) == [Mlp(1)]
    with pytest.raises(TypeError, match="axes"):
        Effects(values, ("head", "role"), "attention").top(1)


def test_key_heads_are_beyond_the_threshold_on_the_harmful_side_only() -> None:
    values = torch.tensor([[-0.04, 0.9], [-0.2, -0.06]])[..., None].expand(2, 2, 3)
    effects = Effects(values, ("layer", "head"), "relative_logit")
    assert key_heads(effects) == [Head(1, 0), Head(1, 1)]
    assert key_heads(effects, threshold=-0.1) == [Head(1, 0)]


def test_chance_makes_key_heads_as_seldom_as_it_says() -> None:
    """Means of noise are below the threshold in every draw; in 5% of draws at most one is key."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.rand(12, 8, 1, generator=generator)
    draws_with_key_heads = 0
    for _ in range(40):
        noise = torch.randn(12, 8, 36, generator=generator) * sizes
        effects = Effects(noise, ("layer", "head"), "relative_logit")
        assert (effects.mean() < -0.05).sum() > 5
        draws_with_key_heads += bool(key_heads(effects))
        noise[3, 4] -= 1.5
        assert key_heads(effects)[0] == Head(3, 4)
    assert draws_with_key_heads <= 4


def test_one_prompt_proves_no_key_head() -> None:
    values = torch.full((2, 2, 4), -0.3)
    cluster = torch.zeros(4, dtype=torch.long)
    one = Effects(values, ("layer", "head"), "relative_logit", cluster=cluster)
    with pytest.warns(UserWarning, match="effects of two problems or more, found those of 1"):
        assert key_heads(one) == []


@pytest.mark.parametrize("threshold", [5.0, 0.05, 0.0])
def test_a_threshold_that_is_not_negative_is_refused(threshold: float) -> None:
    values = torch.full((2, 2, 3), -0.2)
    with pytest.raises(ValueError, match=f"threshold below 0 .* found {threshold};"):
        key_heads(Effects(values, ("layer", "head"), "relative_logit"), threshold)


def test_a_negative_number_of_components_is_refused() -> None:
    with pytest.raises(ValueError, match="0 or more, found -1"):
        Effects(torch.zeros(2, 3), ("layer",), "logit").top(-1)


def test_the_t_test_is_students() -> None:
    """Against scipy's own test of the values, where every pair is a cluster."""
    from scipy.stats import false_discovery_control, ttest_1samp

    values = torch.randn(7, 12, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    _, p = ttest_1samp(values.numpy(), 0, axis=1)
    expected = false_discovery_control(p)
    found = Effects(values, ("layer",), "logit").t_q_values()
    assert_close(found, torch.as_tensor(expected), rtol=1e-4, atol=1e-6)


def test_the_threshold_of_relative_logits_is_not_applied_to_another_metric() -> None:
    values = torch.tensor([[-0.04, 0.9], [-0.2, -0.06]])[..., None].expand(2, 2, 3)
    effects = Effects(values, ("layer", "head"), "logprob")
    with pytest.raises(ValueError, match=r"'logprob', found none; .*-5% .*threshold="):
        key_heads(effects)
    assert key_heads(effects, threshold=-0.1) == [Head(1, 0)]


def test_select_takes_the_pairs_with_all_that_belongs_to_them() -> None:
    effects = head_effects(n_pairs=4, template=("a", "b", "a", "b"), cluster=torch.arange(4))
    chosen = effects.select(torch.tensor([False, True, False, True]))
    assert torch.equal(chosen.per_pair, effects.per_pair[..., [1, 3]])
    assert chosen.template == ("b", "b")
    assert chosen.cluster is not None and chosen.cluster.tolist() == [1, 3]


def test_the_table_has_a_row_a_component_and_names_labelled_places() -> None:
    effects = Effects(torch.rand(2, 3, 5), ("head", "role"), "attention",
                      labels={"head": ("0.1", "2.0"), "role": ("a", "b", "END")})  # fmt: skip
    table = effects.to_dataframe()
    assert table["head"].tolist() == ["0.1"] * 3 + ["2.0"] * 3
    assert table["role"].tolist() == ["a", "b", "END"] * 2
    assert np.allclose(table["mean"], effects.mean().flatten())
    assert table["mean"].between(table["ci_low"], table["ci_high"]).all()


def test_it_draws_itself_without_a_script() -> None:
    html = head_effects()._repr_html_()
    assert "data:image/svg+xml" in html and "<svg" not in html and "<script" not in html
    assert head_effects().heatmap().data[0].z.shape == (2, 3)
    assert "<img" in Effects(torch.rand(4, 5), ("layer",), "logit")._repr_html_()


def drawing(html: str) -> str:
    """The first SVG that an image of the page holds."""
    return b64decode(html.partition("svg+xml;base64,")[2].partition('"')[0]).decode()


def test_relative_effects_are_drawn_in_percent_and_the_strongest_are_told_apart() -> None:
    means = torch.zeros(12, 8)
    means[5, 5], means[3, 4], means[0, 0] = -0.122, -0.057, 0.02
    heads = Effects(means[..., None].expand(12, 8, 6), ("layer", "head"), "relative_logit")
    figure = heads.heatmap()
    (drawn,) = figure.data
    assert (drawn.zmin, drawn.zmax) == (-15, 15)
    np.testing.assert_allclose(drawn.z, 100 * means.numpy(), rtol=1e-5)
    assert drawn.hovertemplate.endswith("%<extra></extra>")
    svg = drawing(heads._repr_html_())
    assert "layer 5, head 5: -12.2%" in svg and svg.index(">−15%<") < svg.index(">+15%<")
    colours = [svg.partition(f"<title>layer {at}: ")[0][-9:-2] for at in ("5, head 5", "3, head 4")]
    assert colours[0] != colours[1] and all(colour.startswith("#") for colour in colours)
    plain = Effects(heads.per_pair, ("layer", "head"), "logit").heatmap(limit=0.06)
    assert plain.data[0].zmax == 0.06 and plain.data[0].z.min() == pytest.approx(-0.122)


def test_measures_of_unlike_units_are_drawn_apart() -> None:
    ranks = torch.stack([100 * torch.rand(4, 9), torch.rand(4, 9)], dim=1)
    effects = Effects(ranks, ("layer", "measure"), "lens", labels={"measure": ("rank", "p")})
    html = effects._repr_html_()
    assert html.count("<img") == 2 and "layer across, rank up" in drawing(html)
    looks = Effects(torch.rand(2, 2, 5), ("head", "role"), "attention",
                    labels={"head": ("0.1", "2.0"), "role": ("<s>", "END")})  # fmt: skip
    drawn = drawing(looks._repr_html_())
    assert ">0.1<" in drawn and ">&lt;s&gt;<" in drawn


def test_it_prints_in_a_line() -> None:
    effects = head_effects()
    assert repr(effects).startswith("Effects(") and "12 pairs, " in repr(effects)
    assert len(repr(effects)) < 100


def test_compare_ranks_the_same_components_side_by_side() -> None:
    a, b = head_effects(seed=1), head_effects(seed=2)
    table = compare(a, b)
    assert np.allclose(table["difference"], (b.mean() - a.mean()).flatten(), atol=1e-6)
    best = table.loc[table["rank_a"] == 0].iloc[0]
    assert Head(int(best["layer"]), int(best["index"])) == a.top(1)[0]
    with pytest.raises(ValueError, match="one metric"):
        compare(a, Effects(b.per_pair, b.axes, "logit"))
    with pytest.raises(ValueError, match="same components"):
        compare(a, Effects(b.per_pair[:1], b.axes, b.metric))


def model_effects(seed: int = 0) -> ComponentEffects:
    """Two layers of three heads, twelve pairs of four problems in three wordings."""
    units = {
        "template": tuple(f"addition/{i % 3}" for i in range(12)),
        "cluster": torch.arange(12),
        "problem": tuple(f"{i // 3} + 1" for i in range(12)),
    }
    heads = head_effects(seed=seed, held_norm=torch.zeros(2, 3, 12), **units)
    mlps = Effects(torch.randn(2, 12), ("layer",), "relative_logit", **units)
    return ComponentEffects(heads, mlps, torch.ones(12), 1, {"engine": "sweep", "shard_size": 32})


@pytest.mark.parametrize("name", ["1.2", "L1H2", (1, 2), Head(1, 2)])
def test_a_head_of_a_map_is_taken_by_its_name(name: str | tuple[int, int] | Head) -> None:
    effects = model_effects()
    for taken in (effects[name], effects.heads[name]):
        assert taken.axes == () and torch.equal(taken.per_pair, effects.heads.per_pair[1, 2])
        assert taken.problem == effects.heads.problem
        assert taken.held_norm is not None and taken.held_norm.shape == (12,)
        assert_close(taken.ci(seed=1), effects.heads.ci(seed=1)[:, 1, 2], atol=0.1, rtol=0.3)


def test_an_mlp_of_a_map_is_taken_by_its_name_and_roles_stay() -> None:
    effects = model_effects()
    for taken in (effects["MLP 1"], effects[Mlp(1)], effects.mlps[1], effects.mlps["mlp1"]):
        assert torch.equal(taken.per_pair, effects.mlps.per_pair[1])
    roles = {"head": ("0.1", "2.0"), "role": ("a", "b", "END")}
    looks = Effects(torch.rand(2, 3, 5), ("head", "role"), "attention", labels=roles)
    assert looks["2.0"].axes == ("role",) and looks["2.0"].labels == {"role": ("a", "b", "END")}
    assert torch.equal(looks["2.0"].per_pair, looks.per_pair[1])


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("2.0", IndexError, "expected a layer from 0 to 1, found 2.0; choose"),
        ("0.3", IndexError, "expected a head from 0 to 2, found 0.3"),
        ("MLP 2", IndexError, "expected a layer from 0 to 1, found MLP 2"),
        ("head 1", TypeError, "expected components such as .* found 'head 1'"),
    ],
)
def test_a_component_that_a_map_does_not_have_is_refused(
    name: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        model_effects()[name]


def test_heads_and_mlps_are_not_taken_from_one_another() -> None:
    effects = model_effects()
    with pytest.raises(TypeError, match=r"axes are \('layer', 'head'\), found MLP 1; .*\.mlps"):
        effects.heads["MLP 1"]
    with pytest.raises(TypeError, match="expected MLPs"):
        effects.mlps["1.2"]
    looks = Effects(torch.rand(1, 5), ("head",), "attention", labels={"head": ("0.1",)})
    with pytest.raises(KeyError, match=r"expected one of the heads 0\.1, found 1\.1"):
        looks["1.1"]


def test_effects_are_saved_in_one_file_and_read_back_bit_for_bit(tmp_path: Path) -> None:
    effects = model_effects()
    back = ComponentEffects.load(effects.save(tmp_path / "map.safetensors"))
    assert torch.equal(back.heads.per_pair, effects.heads.per_pair)
    assert torch.equal(back.mlps.per_pair, effects.mlps.per_pair)
    assert back.computation == effects.computation and back.n_left_out == 1
    assert back.heads.units["problem"] == effects.heads.problem
    heads = Effects.load(effects.heads.save(tmp_path / "heads.safetensors"))
    assert torch.equal(heads.ci(), effects.heads.ci())
    assert {path.name for path in tmp_path.iterdir()} == {"map.safetensors", "heads.safetensors"}
    # the file is what safetensors' own reader reads, with JSON beside it
    with safe_open(tmp_path / "heads.safetensors", "pt") as file:
        assert torch.equal(file.get_tensor("per_pair"), effects.heads.per_pair)
        assert json.loads(file.metadata()["arith_lens"])["metric"] == "relative_logit"


def test_a_file_of_something_else_is_refused_by_its_path(tmp_path: Path) -> None:
    path = model_effects().save(tmp_path / "map.safetensors")
    with pytest.raises(ValueError, match="'effects', found 'component_effects'"):
        Effects.load(path)
    (tmp_path / "other").write_bytes(b"\x80\x04K\x01.")  # a pickle
    with pytest.raises(ValueError, match="other: expected a safetensors file that arith_lens wrot"):
        ComponentEffects.load(tmp_path / "other")


def test_a_head_has_the_same_columns_in_every_table() -> None:
    effects = model_effects()
    labels = {"head": ("1.2", "0.1"), "role": ("a", "END")}
    looks = Effects(torch.rand(2, 2, 12), ("head", "role"), "attention", labels=labels)
    patterns = Patterns(("x",), ("1.2",), (("a", "b"),), (torch.eye(2)[None],))
    tables: list[Any] = [
        effects.heads.to_dataframe(),
        effects.to_dataframe(),
        BeforeAfter(effects, effects).to_dataframe(),
        compare(effects.heads, effects.heads),
        compare(effects, effects),
        contrast(effects.heads, torch.arange(12) < 6),
        looks.to_dataframe(),
        patterns.to_dataframe(),
    ]
    for table in tables:
        row = table[table["head"] == "1.2"].iloc[0]
        assert (row["layer"], row["index"]) == (1, 2)
    merged = tables[0].merge(tables[6], on=["head", "layer", "index"])
    assert len(merged) == 4 and merged["head"].tolist() == ["0.1", "0.1", "1.2", "1.2"]
    mlps = tables[1][tables[1]["head"].isna()]
    assert mlps["component"].tolist() == ["MLP 0", "MLP 1"] and mlps["layer"].tolist() == [0, 1]
    assert mlps["index"].isna().all()


def test_two_whole_maps_are_compared_with_one_ranking() -> None:
    a, b = model_effects(), model_effects(seed=5)
    table: Any = compare(a, b).set_index("component")
    means = torch.cat([a.heads.mean().flatten(), a.mlps.mean()])
    assert table["rank_a"].tolist() == means.argsort().argsort().tolist()
    difference = float((b.heads.mean() - a.heads.mean())[1, 2])
    assert table["difference"]["1.2"] == pytest.approx(difference, abs=1e-6)
    with pytest.raises(TypeError, match="found ComponentEffects and Effects; compare maps with"):
        compare(a, b.heads)


def test_component_effects_rank_heads_and_mlps_together() -> None:
    heads = Effects(torch.tensor([[[-2.0], [1.0]]]), ("layer", "head"), "logit")
    mlps = Effects(torch.tensor([[-3.0]]), ("layer",), "logit")
    both = ComponentEffects(heads, mlps, torch.ones(1))
    assert both.top(2) == [Mlp(0), Head(0, 0)]
    assert both._repr_html_().count("<img") == 2


def test_no_pair_at_all_gives_nan_and_no_crash() -> None:
    empty = Effects(torch.zeros(2, 0), ("layer",), "logit")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (empty.mean(), empty.stderr(), empty.ci(n_resamples=5), empty.sign_test()):
            assert value.isnan().all()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="axis"):
        Effects(torch.zeros(2, 3), ("layer", "head"), "logit")
    with pytest.raises(ValueError, match="template"):
        Effects(torch.zeros(2, 3), ("layer",), "logit", template=("a",))
    with pytest.raises(ValueError, match="level"):
        head_effects().ci(95.0)
    with pytest.raises(ValueError, match="template"):
        head_effects().by_template()


def test_what_was_left_out_everywhere_cannot_be_ranked() -> None:
    nothing = Effects(torch.full((2, 3, 4), float("nan")), ("layer", "head"), "interchange")
    with pytest.raises(ValueError, match="expected effects to rank, found NaN for every component"):
        nothing.top(3)
    assert nothing.top(0) == []
    one = nothing.per_pair.clone()
    one[1, 2, 3] = 0.5
    assert replace(nothing, per_pair=one).top(3) == [Head(1, 2)]
    for k in ("3", 2.5, True):
        with pytest.raises(TypeError, match="expected a whole number of components, found"):
            unwrap(Effects.top)(replace(nothing, per_pair=one), k)  # pyright: ignore
    assert unwrap(Effects.top)(replace(nothing, per_pair=one), np.int64(3)) == [Head(1, 2)]  # pyright: ignore
