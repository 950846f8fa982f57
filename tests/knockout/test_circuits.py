"""Keeping chosen components alone, and the curves over how many are kept or out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_knockout import DEEP, agrees, make_pairs, oracle
from torch.testing import assert_close

import arith_lens as al
from arith_lens.components import every_head, every_mlp
from arith_lens.knockout import (
    CircuitCurve,
    circuit_curve,
    engine,
    grow_greedily,
    halves,
    keep_only,
    knock_out,
)
from arith_lens.knockout.circuits import N_RESAMPLES

KEPT_COMPONENTS = [al.Head(0, 1), al.Head(2, 3), al.Mlp(1)]


@pytest.mark.parametrize("ablation", ["mean", "zero"])
@pytest.mark.parametrize("positions", ["all", "end"])
@pytest.mark.parametrize("among", ["heads", "mlps", "all"])
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_what_is_not_kept_is_replaced(
    request: pytest.FixtureRequest,
    make_hf: Any,
    family: str,
    among: str,
    positions: str,
    ablation: str,
) -> None:
    """Raw Transformers, with everything else replaced by hand."""
    model = request.getfixturevalue(family)
    pairs = make_pairs(model, n=4)
    heads, mlps = every_head(model.n_layers, model.n_heads), every_mlp(model.n_layers)
    everything: list[Any] = [*heads * (among != "mlps"), *mlps * (among != "heads")]
    kept = [one for one in KEPT_COMPONENTS if one in everything]
    settings: dict[str, Any] = {"ablation": ablation, "positions": positions}
    found = keep_only(model, pairs, kept, among=among, **settings)
    others = [one for one in everything if one not in kept]
    assert {*found.components} == {*others}
    expected = oracle(make_hf(family), pairs, others, d_head=8, **settings)
    assert agrees(found, expected, pairs.answer)
    more = oracle(make_hf(family), pairs, others[1:], d_head=8, **settings)
    assert not agrees(found, more, pairs.answer), "the test must be able to fail"


@pytest.mark.parametrize("positions", ["all", "end"])
def test_each_set_is_kept_as_if_it_were_the_only_one(
    llama: Any, make_hf: Any, positions: str
) -> None:
    """Raw Transformers, with everything else replaced by zero."""
    pairs = make_pairs(llama, n=4)
    everything: list[Any] = [*every_head(3, 4), *every_mlp(3)]
    sets = {"some": KEPT_COMPONENTS, "none": [], "all": everything}
    settings: dict[str, Any] = {"ablation": "zero", "positions": positions}
    found = al.keep_each(llama, pairs, sets, metric="logit", progress=False, **settings)
    assert (found.labels or {})["measure"] == ("correct", "answers_other", "logit")
    for index, kept in enumerate(sets.values()):
        others = [one for one in everything if one not in kept]
        logits = oracle(make_hf("llama"), pairs, others, d_head=8, **settings)
        right = logits.argmax(-1) == pairs.answer
        assert torch.equal(found.per_pair[0, index].bool(), right)
        expected = logits.gather(1, pairs.answer[:, None])[:, 0]
        assert_close(found.per_pair[2, index], expected, atol=1e-5, rtol=1e-4)
    assert (found.per_pair[2, 0] - found.per_pair[2, 1]).abs().max() > 1e-3, "the sets differ"
    assert bool(found.per_pair[1].isnan().all()), "these counterfactuals have no answer"
    with pytest.raises(ValueError, match="expected sets of components"):
        al.keep_each(llama, pairs, {})


def test_keeping_everything_changes_nothing_and_keeping_nothing_is_the_same_for_all(
    llama: Any,
) -> None:
    pairs = make_pairs(llama, n=4)
    heads = every_head(llama.n_layers, llama.n_heads)
    whole = keep_only(llama, pairs, heads)
    assert_close(whole.probability, knock_out(llama, pairs, []).probability)
    curve = circuit_curve(llama, pairs, heads)
    assert curve.sizes[0] == 0 and curve.sizes[-1] == len(heads)
    assert curve.faithfulness()[0] == 0 and curve.faithfulness()[-1] == 1


@pytest.mark.parametrize("kind", ["keep_only", "knock_out"])
def test_a_curve_is_one_knockout_after_another(model: Any, kind: Any) -> None:
    pairs = make_pairs(model, n=6)
    order = [*reversed(every_head(model.n_layers, model.n_heads))]
    curve = circuit_curve(model, pairs, order, kind=kind, fractions=(0.1, 0.5))
    assert curve.sizes == (0, 1, 6, 12)
    ask = keep_only if kind == "keep_only" else knock_out
    for row, size in enumerate(curve.sizes):
        alone = ask(model, pairs, order[:size])
        assert_close(curve.value[row].double(), alone.probability.double(), atol=1e-5, rtol=1e-4)
        assert torch.equal(curve.correct[row], alone.correct)
    means = curve.value.unflatten(1, (3, 2)).mean(1).mean(1).double().numpy()  # two templates
    none, whole = (means[0], means[-1]) if kind == "keep_only" else (means[-1], means[0])
    f = (means - none) / (whole - none)
    assert np.allclose(curve.faithfulness(), f)
    share = np.array([0, 1, 6, 12]) / 12
    by_hand = sum((share[i + 1] - share[i]) * (f[i] + f[i + 1]) / 2 for i in range(3))
    assert curve.cpr == pytest.approx(by_hand)
    gap = np.abs(1 - f)
    by_hand = sum((share[i + 1] - share[i]) * (gap[i] + gap[i + 1]) / 2 for i in range(3))
    assert curve.cmd == pytest.approx(by_hand)


MIB = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
"""The shares of components at which the published evaluator reads a curve."""


@pytest.mark.parametrize("positions", ["all", "end"])
def test_cpr_and_cmd_are_those_of_mibs_formula_on_raw_transformers(
    llama: Any, make_hf: Any, positions: str
) -> None:
    """The benchmark keeps int(share * n) components, the others give their counterfactual output;
    it starts at its smallest share, and its abscissas are the shares."""
    pairs = make_pairs(llama, n=4)
    order: list[Any] = [*every_mlp(3), *reversed(every_head(3, 4))]
    sizes = [int(share * len(order)) for share in MIB]
    settings: dict[str, Any] = {"ablation": "counterfactual", "positions": positions}

    def metric(kept: int) -> float:
        logits = oracle(make_hf("llama"), pairs, order[kept:], d_head=8, **settings)
        return float(logits.gather(1, pairs.answer[:, None]).double().mean())

    by_size = {kept: metric(kept) for kept in {*sizes}}
    f = [(by_size[kept] - by_size[0]) / (by_size[15] - by_size[0]) for kept in sizes]
    curve = circuit_curve(
        llama,
        pairs,
        order,
        among="all",
        metric="logit",
        fractions=[k / 15 for k in sizes],
        **settings,
    )
    assert curve.sizes == (0, 1, 3, 7, 15)
    ours = dict(zip(curve.sizes, curve.faithfulness(), strict=True))
    assert [ours[kept] for kept in sizes] == pytest.approx(f, abs=1e-4)
    assert max(map(abs, f)) > 1e-2, "the curve moves"
    for measured, heights in ((curve.cpr, f), (curve.cmd, [abs(1 - one) for one in f])):
        area = np.trapezoid(heights, np.array(sizes) / 15)
        assert measured == pytest.approx(area, abs=1e-4)
        largest = max(map(abs, heights))
        assert measured == pytest.approx(np.trapezoid(heights, MIB), abs=2 * largest / 15)


@pytest.mark.parametrize("metric", ["logit", "logprob", "digit_contrast"])
def test_the_metric_is_that_of_path_patching(make_model: Any, metric: str) -> None:
    """Beyond layer 10: the whole model against raw logits."""
    model = make_model("llama", **DEEP)
    pairs = make_pairs(model, n=4)
    candidates = [3, 4, 9] if metric == "digit_contrast" else None
    assert not {3, 4, 9} & {*pairs.answer.tolist()}
    order = every_head(model.n_layers, model.n_heads)
    curve = circuit_curve(model, pairs, order, metric=metric, candidates=candidates)
    with torch.no_grad():
        logits = model(pairs.reference, attention_mask=pairs.attention_mask)[:, -1].float()
    rows = torch.arange(4)
    expected = {
        "logit": logits[rows, pairs.answer],
        "logprob": logits.log_softmax(-1)[rows, pairs.answer],
        "digit_contrast": logits[rows, pairs.answer] - logits[:, [3, 4, 9]].mean(-1),
    }[metric]
    assert_close(curve.value[-1], expected, atol=1e-4, rtol=1e-4)


def planted(f: list[float]) -> CircuitCurve:
    """A curve whose faithfulness is this, on twelve problems with a little noise."""
    noise = 0.01 * torch.randn(len(f), 12, generator=torch.Generator().manual_seed(0))
    value = torch.tensor(f)[:, None] + noise
    return CircuitCurve(
        value=value, correct=value > 0.5, sizes=(0, 1, 2, 4), order=tuple(every_head(2, 2)),
        kind="keep_only", metric="logit", ablation="mean", positions="all", means="template",
        problem=tuple(f"{i}" for i in range(12)), cluster=torch.arange(12),
    )  # fmt: skip


def test_a_better_order_has_a_larger_cpr_and_a_smaller_cmd_with_intervals() -> None:
    good, bad = planted([0, 0.9, 1, 1]), planted([0, 0.1, 0.2, 1])
    assert good.cpr > bad.cpr and good.cmd < bad.cmd
    assert good.cpr == pytest.approx(0.25 * (0.45 + 0.95) + 0.5, abs=0.02)
    intervals = good.intervals()
    for name in ("cpr", "cmd"):
        low, high = intervals[name]
        assert low < getattr(good, name) < high < low + 0.1
    table = good.to_dataframe()
    assert table["size"].tolist() == [0, 1, 2, 4] and table["share"].tolist() == [0, 0.25, 0.5, 1]
    assert (
        table["faithfulness"].between(table["faithfulness_low"], table["faithfulness_high"]).all()
    )
    assert len(good._draws(0)) == N_RESAMPLES
    assert "CPR" in repr(good)


def test_the_intervals_of_a_curve_are_at_95_percent() -> None:
    curve = planted([0, 0.5, 0.8, 1])
    for name, (low, high) in curve.intervals(seed=3).items():
        draws = curve._areas(curve._draws(3))[name]
        assert [(draws < low).mean(), (draws > high).mean()] == pytest.approx([0.025] * 2, abs=2e-3)
    table, f = curve.to_dataframe(), curve._draws(0)
    for row in (1, 2):  # the ends are 0 and 1 in every draw
        below = (f[:, row] < table["faithfulness_low"][row]).mean()
        above = (f[:, row] > table["faithfulness_high"][row]).mean()
        assert [below, above] == pytest.approx([0.025] * 2, abs=2e-3)


def test_growing_takes_what_helps_most_at_each_step(llama: Any) -> None:
    pairs = make_pairs(llama, n=6)
    candidates = every_head(llama.n_layers, llama.n_heads)[2:7]
    order = grow_greedily(llama, pairs, candidates, n=2)
    for step in range(2):
        tried = {
            one: keep_only(llama, pairs, [*order[:step], one]).mean_probability()
            for one in candidates
            if one not in order[:step]
        }
        assert max(tried, key=lambda one: tried[one]) == order[step]
    with pytest.raises(ValueError, match="expected n from 1 to the 5"):
        grow_greedily(llama, pairs, candidates, n=6)


def test_halves_have_no_problem_in_common(llama: Any) -> None:
    pairs = al.sample_pairs(llama, "addition", n=None, keep="all")
    first, second = halves(pairs)
    assert not {*first.problem} & {*second.problem}
    assert len(first) + len(second) == len(pairs)
    assert abs(len({*first.problem}) - len({*second.problem})) <= 1
    assert halves(pairs)[0].problem == first.problem != halves(pairs, seed=1)[0].problem


def test_a_stored_curve_is_read_again_and_others_are_not_taken_for_it(
    llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, order = make_pairs(llama, n=4), every_head(llama.n_layers, llama.n_heads)
    with al.open_run("circuits", {}, model=llama, root=tmp_path) as run:
        first = circuit_curve(llama, pairs, order, run=run)
        monkeypatch.setattr(engine, "run_variants", None)  # nothing can be computed any more
        again = circuit_curve(llama, pairs, order, run=run)
        assert torch.equal(again.value, first.value) and again.order == first.order
        assert again.cpr == first.cpr and again.problem == first.problem
        changes: list[dict[str, Any]] = [{"kind": "knock_out"}, {"metric": "logit"},
                   {"fractions": (0.3,)}, {"positions": "end"}]  # fmt: skip
        for changed in changes:
            with pytest.raises(TypeError):
                circuit_curve(llama, pairs, order, run=run, **changed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "keep"}, "expected kind among keep_only, knock_out"),
        ({"among": "layers"}, "parts .among=. among heads, mlps"),
        ({"among": "all"}, "append the others"),
        ({"fractions": (0.5, 2)}, "expected fractions from 0 to 1"),
        ({"metric": "relative_logit"}, "faithfulness is a share already"),
        ({"metric": "logit_difference"}, "foil"),
        ({"candidates": [4, 5]}, "leave candidates out"),
    ],
)
def test_what_cannot_be_is_refused(llama: Any, options: dict[str, Any], message: str) -> None:
    pairs = make_pairs(llama, n=4)
    with pytest.raises(ValueError, match=message):
        circuit_curve(llama, pairs, every_head(llama.n_layers, llama.n_heads), **options)


def test_a_component_that_is_not_among_those_replaced_cannot_be_kept(llama: Any) -> None:
    with pytest.raises(ValueError, match="choose among='all'"):
        keep_only(llama, make_pairs(llama, n=4), [al.Mlp(1)])
