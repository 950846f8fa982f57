"""Knockout against raw Transformers: the oracle touches `o_proj` and `mlp`, and no library code."""

from contextlib import ExitStack
from dataclasses import replace
from inspect import unwrap
from typing import Any

import pytest
import torch
from scipy import stats
from support.fixtures import random_tokens
from torch.testing import assert_close

from arith_lens.attention import attention_to
from arith_lens.components import Head, Mlp, every_head, mlp_out_name, z_name
from arith_lens.edges.composition import composition
from arith_lens.knockout import (
    KnockoutCurve,
    Outcomes,
    counterfactual_means,
    drop,
    keep_only,
    knock_out,
    knockout_curve,
    knockout_curves,
    knockout_hooks,
)
from arith_lens.knockout.knock_out import knock_out as function
from arith_lens.model import load_model
from arith_lens.pairs import PromptPairs, Role, sample_pairs
from arith_lens.path_patching import path_patch
from arith_lens.path_patching.engines import patch_settings

MIXED = [Head(0, 1), Head(1, 2), Head(1, 3), Mlp(1), Head(2, 0)]
DEEP = {
    "num_hidden_layers": 13, "num_attention_heads": 2, "hidden_size": 16,
    "intermediate_size": 24, "initializer_range": 0.2,
}  # fmt: skip


def make_pairs(model, n=6, width=9, templates=2, seed=0):
    """Two templates of different lengths, padded on the left with an arbitrary token."""
    tokens = random_tokens(model, n, width, seed=seed)
    other = random_tokens(model, n, width, seed=seed + 1)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    names = tuple(f"addition/{row % templates}" for row in range(n))
    for row in range(n):
        start = 3 * (row % templates)
        mask[row, :start] = False
        for rows in (tokens, other):
            rows[row, :start] = 7
            rows[row, start] = 1
    pairs = PromptPairs.from_tokens(tokens, other, torch.arange(n) + 40, mask)
    with torch.no_grad():  # answers that the model gives, so that knockout has something to lose
        answer = model(pairs.reference, attention_mask=mask)[:, -1].argmax(-1)
    return replace(pairs, template=names, answer=answer)


def raw_run(hf_model, tokens, mask, edits=()):
    """One row's END logits; edits: (layer, "z" | "mlp", columns, function of [pos columns])."""
    with ExitStack() as stack:
        for layer, kind, columns, change in edits:
            block = hf_model.model.layers[layer]
            if kind == "z":

                def before(module, inputs, columns=columns, change=change):
                    value = inputs[0].clone()
                    value[0, :, columns] = change(value[0, :, columns])
                    return (value,)

                handle = block.self_attn.o_proj.register_forward_pre_hook(before)
            else:

                def after(module, inputs, output, change=change):
                    return change(output[0].clone())[None]

                handle = block.mlp.register_forward_hook(after)
            stack.callback(handle.remove)
        return hf_model(tokens[None], attention_mask=mask[None].long()).logits[0, -1]


def raw_values(hf_model, tokens, mask, component, d_head):
    """What the component puts out in a plain run, [pos d]."""
    kept = []

    def record_output(value):
        kept.append(value.clone())
        return value

    raw_run(hf_model, tokens, mask, [edit(component, record_output, d_head)])
    return kept[0]


def edit(component, change, d_head):
    if isinstance(component, Mlp):
        return component.layer, "mlp", None, change
    start = component.index * d_head
    return component.layer, "z", slice(start, start + d_head), change


@torch.no_grad()
def oracle(hf_model, pairs, components, *, ablation, positions, d_head, means="template"):
    """Logits at END, row by row; means in plain loops over rows of the template."""
    rows = []
    n = len(pairs)
    runs = {
        component: [
            raw_values(
                hf_model, pairs.counterfactual[i], pairs.attention_mask[i], component, d_head
            )
            for i in range(n)
        ]
        for component in components
    }
    for i in range(n):
        mask = pairs.attention_mask[i]
        first = int(mask.int().argmax())
        touched = [p for p in range(len(mask)) if p > first]  # BOS is the first token
        if positions == "end":
            touched = [len(mask) - 1]
        edits = []
        for component in components:
            if ablation == "zero":
                value = torch.zeros_like(runs[component][0])
            elif ablation == "counterfactual":
                value = runs[component][i]
            elif means == "template":
                same = [j for j in range(n) if pairs.template[j] == pairs.template[i]]
                value = torch.stack([runs[component][j] for j in same]).mean(0)
            else:
                value = torch.stack([
                    torch.stack([
                        runs[component][j][q]
                        for j in range(n)
                        for q in range(len(mask))
                        if q > int(pairs.attention_mask[j].int().argmax())
                        and (means == "all_tokens" or role(pairs, j, q) == role(pairs, i, p))
                    ]).mean(0)
                    if p in touched else runs[component][i][p]
                    for p in range(len(mask))
                ])  # fmt: skip

            def change(found, value=value, touched=touched):
                found[touched] = value[touched]
                return found

            edits.append(edit(component, change, d_head))
        rows.append(raw_run(hf_model, pairs.reference[i], mask, edits))
    return torch.stack(rows)


def role(pairs, i, p):
    """END, the role whose columns hold p, or None."""
    if p == pairs.reference.shape[1] - 1:
        return Role.END
    spans = pairs.spans or {}
    return next((one for one, ends in spans.items() if ends[i, 0] <= p < ends[i, 1]), None)


def agrees(outcomes, logits, answer, atol=1e-5):
    p = logits.float().softmax(-1)[torch.arange(len(answer)), answer]
    close = torch.allclose(outcomes.probability, p, atol=atol, rtol=1e-4)
    return close and torch.equal(outcomes.correct, logits.argmax(-1) == answer)


@pytest.mark.parametrize("positions", ["all", "end"])
@pytest.mark.parametrize("means", ["template", "role", "all_tokens", "zero"])
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_knockout_is_what_raw_transformers_gives(family, means, positions, make_hf, request):
    """Padded rows of unequal lengths; Mistral: grouped queries, a window shorter than the text."""
    model = request.getfixturevalue(family)
    pairs = make_pairs(model)
    ablation = "zero" if means == "zero" else "mean"
    settings = {"ablation": ablation, "positions": positions}
    given = None if means == "zero" else means
    outcomes = knock_out(model, pairs, MIXED, means=given, **settings)
    expected = oracle(make_hf(family), pairs, MIXED, d_head=8, means=means, **settings)
    assert agrees(outcomes, expected, pairs.answer)
    assert outcomes.means == means
    plain = knock_out(model, pairs, [])
    assert plain.correct.all()
    assert not agrees(plain, expected, pairs.answer), "the test must be able to fail"
    other = oracle(make_hf(family), pairs, MIXED[1:], d_head=8, means=means, **settings)
    assert not agrees(outcomes, other, pairs.answer), "each component must matter"


@pytest.mark.parametrize("positions", ["all", "end"])
@pytest.mark.parametrize("known", ["END", "roles"])
def test_pairs_of_ones_own_get_the_mean_of_where_it_is_put(known, positions, model, make_hf):
    """No templates, unequal lengths: END's mean at END, a role's at the role, else the others'."""
    pairs = replace(make_pairs(model), template=None)
    if known == "roles":
        lengths = [[3, 4], [5, 7], [4, 5], [6, 7], [3, 6], [7, 8]]
        pairs = replace(pairs, spans={Role.OPERAND_A: torch.tensor(lengths)})
    outcomes = knock_out(model, pairs, MIXED, positions=positions)
    assert outcomes.means == "role" and f"means {outcomes.means}" in repr(outcomes)
    hf = make_hf("mistral" if model.n_kv_heads == 2 else "llama")
    settings = {"ablation": "mean", "positions": positions, "d_head": 8}
    expected = oracle(hf, pairs, MIXED, means="role", **settings)
    assert agrees(outcomes, expected, pairs.answer)
    pooled = oracle(hf, pairs, MIXED, means="all_tokens", **settings)
    assert not agrees(outcomes, pooled, pairs.answer), "means over all tokens are other means"
    if known == "roles" and positions == "all":
        unknown = oracle(hf, replace(pairs, spans=None), MIXED, means="role", **settings)
        assert not agrees(outcomes, unknown, pairs.answer), "the role's own mean matters"


def test_vectors_are_put_where_they_are_means_of(model):
    pairs = replace(make_pairs(model), template=None)
    of_end = counterfactual_means(model, pairs, MIXED, positions="end")
    own = knock_out(model, pairs, MIXED, positions="end")
    given = knock_out(model, pairs, MIXED, positions="end", means=of_end)
    assert_close(given.probability, own.probability)
    of_all = counterfactual_means(model, pairs, MIXED)
    other = knock_out(model, pairs, MIXED, positions="end", means=dict(of_all))
    assert not torch.allclose(other.probability, own.probability, atol=1e-5)
    for means, positions in ((of_all, "end"), (of_end, "all")):
        with pytest.raises(ValueError, match=f"put, found means over '{means.positions}'"):
            knock_out(model, pairs, MIXED, positions=positions, means=means)
        with pytest.raises(ValueError, match=f"put, found means over '{means.positions}'"):
            knockout_hooks(model, MIXED, means, positions=positions)
    with pytest.raises(ValueError, match="positions among all, end, found 'END'"):
        counterfactual_means(model, pairs, MIXED, positions="END")


def test_five_heads_of_the_reference_model_answer_at_end_with_the_means_of_end():
    """Other operands: the heads that carry the answer are enough, whoever made the pairs."""
    model = load_model("reference")
    pairs = sample_pairs(model, "addition", counterfactual="operands", n=24)
    order = path_patch(model, pairs, metric="digit_contrast", progress=False).heads.top(5)
    own = replace(pairs, template=None, spans=None)
    at_end: dict[str, Any] = {"positions": "end", "progress": False}
    assert keep_only(model, pairs, order, **at_end).accuracy() > 0.9
    assert keep_only(model, own, order, **at_end).accuracy() > 0.9
    pooled = keep_only(model, own, order, means="all_tokens", **at_end)
    assert pooled.means == "all_tokens" and pooled.accuracy() < 0.3


def test_layers_of_two_digits_and_a_batch_of_one(deep, make_hf):
    pairs = make_pairs(deep, n=1, templates=1, seed=4)
    components = [Head(10, 1), Mlp(11), Head(12, 0)]
    outcomes = knock_out(deep, pairs, components, means="all_tokens")
    settings = {"ablation": "mean", "positions": "all", "d_head": 8, "means": "all_tokens"}
    expected = oracle(make_hf("llama", **DEEP), pairs, components, **settings)
    assert agrees(outcomes, expected, pairs.answer)
    wrong = oracle(make_hf("llama", **DEEP), pairs, [Head(1, 1), Mlp(11)], **settings)
    assert not agrees(outcomes, wrong, pairs.answer), "layer 10 is not layer 1"


def test_bfloat16_is_raw_transformers_in_bfloat16(make_hf, tokenizer):
    half = load_model((make_hf("mistral"), tokenizer), dtype=torch.bfloat16)
    pairs = make_pairs(half)
    outcomes = knock_out(half, pairs, MIXED, ablation="zero")
    expected = oracle(
        make_hf("mistral").bfloat16(), pairs, MIXED, ablation="zero", positions="all", d_head=8
    )
    p = expected.float().softmax(-1)[torch.arange(6), pairs.answer]
    assert torch.allclose(outcomes.probability, p, atol=2e-2)
    assert not torch.allclose(knock_out(half, pairs, []).probability, p, atol=2e-2)


@torch.no_grad()
def test_resampling_takes_another_aligned_prompts_run(model, make_hf):
    """With two prompts a template the donor is the other one: nothing is left to chance."""
    pairs = make_pairs(model, n=4)
    outcomes = knock_out(model, pairs, MIXED, ablation="resample")
    hf_model = make_hf("mistral" if model.n_kv_heads == 2 else "llama")
    donor = [2, 3, 0, 1]
    rows = []
    for i in range(4):
        mask = pairs.attention_mask[i]
        tokens = [p for p in range(len(mask)) if p > int(mask.int().argmax())]
        edits = []
        for component in MIXED:
            value = raw_values(hf_model, pairs.counterfactual[donor[i]], mask, component, 8)

            def change(found, value=value, tokens=tokens):
                found[tokens] = value[tokens]
                return found

            edits.append(edit(component, change, 8))
        rows.append(raw_run(hf_model, pairs.reference[i], mask, edits))
    assert agrees(outcomes, torch.stack(rows), pairs.answer)
    own = knock_out(model, pairs, MIXED, means="template")
    assert not agrees(own, torch.stack(rows), pairs.answer), "the test must be able to fail"


def test_a_resample_is_drawn_by_its_seed_from_other_references(llama):
    pairs = make_pairs(llama, n=12)
    first = knock_out(llama, pairs, MIXED, ablation="resample", seed=1)
    again = knock_out(llama, pairs, MIXED, ablation="resample", seed=1)
    other = knock_out(llama, pairs, MIXED, ablation="resample", seed=2)
    assert torch.equal(first.probability, again.probability)
    assert not torch.equal(first.probability, other.probability)
    with pytest.raises(ValueError, match=r"another prompt aligned with pair 0, found none"):
        knock_out(llama, pairs[:2], MIXED, ablation="resample")


@torch.no_grad()
def test_a_resample_is_never_of_the_same_reference(llama, make_hf):
    """Pairs 0 and 1 share their reference. So the donor of both is pair 2, whatever the seed."""
    pairs = make_pairs(llama, n=3, templates=1)
    pairs.reference[1] = pairs.reference[0]
    plain = PromptPairs.from_tokens(
        pairs.reference, pairs.counterfactual, pairs.answer, pairs.attention_mask
    )
    assert plain.cluster[0] == plain.cluster[1] != plain.cluster[2]
    pairs, hf_model, rows = replace(plain, template=pairs.template), make_hf("llama"), {}
    for i, donor in ((0, 1), (0, 2), (1, 2)):
        edits, mask = [], pairs.attention_mask[i]
        for component in MIXED:
            value = raw_values(hf_model, pairs.counterfactual[donor], mask, component, 8)

            def change(found, value=value):
                found[1:] = value[1:]
                return found

            edits.append(edit(component, change, 8))
        logits = raw_run(hf_model, pairs.reference[i], mask, edits)
        rows[i, donor] = float(logits.float().softmax(-1)[pairs.answer[i]])
    assert rows[0, 1] != pytest.approx(rows[0, 2], rel=1e-3), "another donor would be seen"
    for seed in range(6):
        found = knock_out(llama, pairs, MIXED, ablation="resample", seed=seed).probability
        assert found[:2].tolist() == pytest.approx([rows[0, 2], rows[1, 2]], rel=1e-4)


@torch.no_grad()
def test_identity_a_component_given_its_own_value_changes_nothing(model):
    """One prompt a template, and X_c = X_r: the mean is the prompt's own run."""
    pairs = make_pairs(model, n=2)
    pairs = replace(pairs, counterfactual=pairs.reference)
    with pytest.warns(UserWarning, match="expected two prompts or more in all groups"):
        outcomes = knock_out(model, pairs, [*every_head(3, 4), Mlp(0), Mlp(2)])
    plain = knock_out(model, pairs, [])
    assert torch.allclose(outcomes.probability, plain.probability, atol=1e-6)
    assert not torch.allclose(
        knock_out(model, pairs, [Head(0, 1)], ablation="zero").probability, plain.probability
    )


def test_totality_without_anything_only_the_embedding_of_end_is_left(model):
    """All heads and MLPs zero at END: the logits are the embedding's own."""
    pairs = make_pairs(model)
    everything = [*every_head(3, 4), *(Mlp(layer) for layer in range(3))]
    outcomes = knock_out(model, pairs, everything, ablation="zero", positions="end")
    with torch.no_grad():
        embedded = model.bridge.original_model.get_input_embeddings()(pairs.reference[:, -1:])
        logits = model.unembed(model.ln_final(embedded))[:, 0]
    assert agrees(outcomes, logits, pairs.answer)


def test_locality_padding_and_other_templates_do_not_matter(model):
    """What stands under the mask, and pairs of other templates, leave a pair's outcome alone."""
    pairs = make_pairs(model)
    outcomes = knock_out(model, pairs, MIXED)
    refilled = pairs.reference.masked_fill(~pairs.attention_mask, 23)
    assert torch.equal(
        knock_out(model, replace(pairs, reference=refilled), MIXED).probability,
        outcomes.probability,
    )
    alone = knock_out(model, pairs[0::2], MIXED)
    assert torch.allclose(alone.probability, outcomes.probability[0::2], atol=1e-5)
    vector = knock_out(model, pairs[0::2], MIXED, means="all_tokens")
    assert not torch.allclose(vector.probability, outcomes.probability[0::2], atol=1e-5)


def test_purity_the_model_and_the_pairs_are_as_before(model):
    pairs = make_pairs(model)
    before, copy = model(pairs.reference, attention_mask=pairs.attention_mask), pairs.reference + 0
    knock_out(model, pairs, MIXED)
    assert torch.equal(model(pairs.reference, attention_mask=pairs.attention_mask), before)
    assert torch.equal(pairs.reference, copy)
    assert not any("forward" in block.__dict__ for block in model.blocks)


def test_null_a_head_that_writes_nothing_costs_nothing(make_hf, tokenizer):
    hf_model = make_hf("llama")
    with torch.no_grad():
        hf_model.model.layers[1].self_attn.o_proj.weight[:, 16:24] = 0
    model = load_model((hf_model, tokenizer))
    pairs = make_pairs(model)
    plain, null = knock_out(model, pairs, []), knock_out(model, pairs, [Head(1, 2)])
    assert torch.allclose(null.probability, plain.probability, atol=1e-6)
    assert not torch.allclose(
        knock_out(model, pairs, [Head(1, 1)]).probability, plain.probability, atol=1e-6
    )


def test_aligned_means_keep_apart_what_stands_at_other_columns(llama):
    """Same template and length, operands elsewhere: not one group."""
    from arith_lens.knockout.means import aligned_groups

    pairs = make_pairs(llama, n=4, templates=1)
    spans = {role: torch.tensor([[2, 3]] * 4) for role in Role if role is not Role.OTHER}
    spans[Role.OPERAND_B] = torch.tensor([[4, 5], [4, 5], [5, 6], [5, 6]])
    assert aligned_groups(pairs).tolist() == [0, 0, 0, 0]
    assert aligned_groups(replace(pairs, spans=spans)).tolist() == [0, 0, 1, 1]


def test_means_of_other_pairs_are_used_as_given(model, make_hf):
    pairs, others = make_pairs(model), make_pairs(model, seed=8)
    means = counterfactual_means(model, others, MIXED)
    assert means[z_name(1)].shape == (4, 8) and means[mlp_out_name(1)].shape == (32,)
    outcomes = knock_out(model, pairs, MIXED, means=means)
    assert outcomes.means == "given"
    own = counterfactual_means(model, pairs)
    same = knock_out(model, pairs, MIXED, means=own)
    vector = knock_out(model, pairs, MIXED, means="all_tokens")
    assert torch.allclose(same.probability, vector.probability, atol=1e-6)
    assert not torch.allclose(outcomes.probability, vector.probability, atol=1e-6)


def test_a_curve_is_a_knockout_for_each_k(model):
    pairs = make_pairs(model)
    curve = knockout_curve(model, pairs, MIXED, ks=[1, 3, 5])
    assert curve.ks == (0, 1, 3, 5)
    for row, k in enumerate(curve.ks):
        alone = knock_out(model, pairs, MIXED[:k])
        assert torch.allclose(curve.probability[row], alone.probability, atol=1e-5)
        assert torch.equal(curve.at(k).correct, alone.correct)
        assert curve.at(k).components == alone.components
    assert not torch.allclose(curve.probability[0], curve.probability[1], atol=1e-5)


def test_several_orders_at_once_are_each_ones_curve(mistral):
    pairs = make_pairs(mistral)
    orders = {"effect": MIXED, "other": [Head(2, 1), Head(0, 3), Mlp(2)]}
    curves = knockout_curves(mistral, pairs, orders, ks=range(4))
    for name, order in orders.items():
        alone = knockout_curve(mistral, pairs, order, ks=range(4))
        assert torch.allclose(curves[name].probability, alone.probability, atol=1e-5)


def test_shards_and_what_runs_at_once_do_not_matter(model, monkeypatch):
    pairs = make_pairs(model, n=8)
    expected = knockout_curve(model, pairs, MIXED, ks=range(6))
    monkeypatch.setattr("arith_lens.knockout.engine.SHARD", 3)
    monkeypatch.setattr("arith_lens.knockout.engine.TOKENS_AT_ONCE", {"cpu": 1, "cuda": 1})
    actual = knockout_curve(model, pairs, MIXED, ks=range(6))
    assert torch.allclose(actual.probability, expected.probability, atol=1e-5)
    assert torch.equal(actual.top[..., 0], expected.top[..., 0])


def test_layers_below_the_lowest_are_computed_once(deep):
    """Counted at the raw MLPs: one plain state below layer 10, then one more a head."""
    pairs = make_pairs(deep, n=2, templates=1)
    order = [Head(12, 0), Head(11, 1), Head(10, 1)]
    rows = [0] * 13

    def count(layer, n):
        rows[layer] += n

    handles = [
        block.mlp.register_forward_pre_hook(
            lambda module, inputs, layer=layer: count(layer, len(inputs[0]))
        )
        for layer, block in enumerate(deep.bridge.original_model.model.layers)
    ]
    curve = knockout_curve(deep, pairs, order, ks=range(4), ablation="zero")
    for handle in handles:
        handle.remove()
    assert rows == [2] * 10 + [4, 6, 8]  # pairs x states
    assert curve.n_forwards == pytest.approx((10 + 2 + 3 + 4) / 13)


def test_an_accuracy_of_all_or_none_is_not_certain(llama):
    """Six references, all right or all wrong: Wilson's interval, with Student's t for 5."""
    outcomes = replace(knock_out(llama, make_pairs(llama), []), template=None)
    square = stats.t.ppf(0.975, 5) ** 2
    end = 1 / (1 + square / 6)
    for right, expected in ((True, (end, 1.0)), (False, (0.0, 1 - end))):
        some = replace(outcomes, correct=torch.full((6,), right))
        assert some.ci() == pytest.approx(expected, abs=1e-5)
        assert some.ci(0.5)[right] == expected[right] and some.ci(0.5) != some.ci()


def test_outcomes_weigh_templates_equally_and_err_by_reference(llama):
    pairs = make_pairs(llama)
    outcomes = knock_out(llama, pairs, [])
    uneven = replace(
        outcomes,
        correct=torch.tensor([True, False, True, False, True, True]),
        template=("a", "b", "a", "b", "a", "a"),
    )
    assert uneven.accuracy() == pytest.approx(0.5)
    low, high = replace(outcomes, correct=torch.tensor([True, False] * 3), template=None).ci()
    assert 0 <= low < 0.5 < high <= 1


def test_a_drop_is_absolute_and_relative_and_paired(llama):
    pairs = make_pairs(llama, n=20, templates=1)
    before, after = knock_out(llama, pairs, []), knock_out(llama, pairs, MIXED)
    before = replace(before, correct=torch.tensor([True] * 16 + [False] * 4))
    after = replace(after, correct=torch.tensor([True] * 4 + [False] * 16))
    change = drop(before, after).accuracy
    assert change.absolute == pytest.approx(-0.6)
    assert change.relative == pytest.approx(-0.75)
    assert change.absolute_ci[0] < -0.6 < change.absolute_ci[1]
    assert change.relative_ci[0] < -0.75 < change.relative_ci[1]
    same = drop(after, after).accuracy
    few = 1 / (1 + 20 / stats.t.ppf(0.975, 19) ** 2)
    ends = pytest.approx((-few, few), rel=0.02)
    assert same.absolute_ci == ends, "paired: none of 20 problems changed"
    assert "points" in str(change) and "relative" in str(change)
    with pytest.raises(ValueError, match="of the same pairs"):
        drop(before, after.select(slice(0, 5)))


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_the_interval_of_a_drop_is_at_its_level(llama, level):
    """Twenty references: as wide as Student's interval of the paired differences."""
    before = knock_out(llama, make_pairs(llama, n=20, templates=1), [])
    first, second = torch.rand(2, 20, generator=torch.Generator().manual_seed(0))
    before, after = (replace(before, probability=p) for p in (first, second))
    low, high = drop(before, after, level=level).probability.absolute_ci
    error = float((second - first).std()) / 20**0.5
    expected = 2 * stats.t.ppf((1 + level) / 2, 19) * error
    assert high - low == pytest.approx(expected, rel=0.1)


def test_outcomes_and_curves_come_back_from_their_arrays(mistral):
    pairs = make_pairs(mistral)
    outcomes = knock_out(mistral, pairs, MIXED)
    again = Outcomes.from_arrays(outcomes.to_arrays())
    curve = knockout_curve(mistral, pairs, MIXED, ks=[2])
    back = KnockoutCurve.from_arrays(curve.to_arrays())
    for first, second in ((outcomes, again), (curve, back)):
        assert torch.equal(first.correct, second.correct)
        assert torch.equal(first.probability, second.probability)
        assert torch.equal(first.top, second.top)
        assert first.template == second.template
        assert first.cluster is not None and second.cluster is not None
        assert torch.equal(first.cluster, second.cluster)
    assert again.components == outcomes.components
    assert (back.ks, back.order, back.means) == (curve.ks, curve.order, curve.means)
    with pytest.raises(ValueError, match="knockout_curve"):
        KnockoutCurve.from_arrays(outcomes.to_arrays())
    assert len(outcomes.to_dataframe()) == 6 and len(curve.to_dataframe()) == 2
    assert "ablation mean" in repr(outcomes) and "<img" in curve._repr_html_()


@pytest.mark.parametrize(
    "change, error, match",
    [
        ({"components": iter(["0.1.2"])}, TypeError, r"Head\(12, 22\).* found '0.1.2'"),
        ({"components": iter([(0, 1, 2)])}, TypeError, r"Head\(12, 22\).* found \(0, 1, 2\)"),
        ({"components": [Head(3, 0)]}, IndexError, "layer from 0 to 2"),
        ({"components": [Head(0, 4)]}, IndexError, "head from 0 to 3"),
        ({"components": [Head(0, 1), Head(0, 1)]}, ValueError, "0.1 several times"),
        ({"ablation": "median"}, ValueError, "found 'median'"),
        ({"positions": "some"}, ValueError, "found 'some'"),
        ({"means": {}}, KeyError, "counterfactual_means"),
        ({"means": {z_name(0): torch.zeros(1, 9, 4, 8)}}, ValueError, "one vector per component"),
        (
            {"means": "vector"},
            ValueError,
            "among template, role, all_tokens, found",
        ),
        ({"means": "all_tokens", "ablation": "zero"}, ValueError, "ablation='mean' alone"),
    ],
)
def test_a_users_mistake_is_told(change, error, match, llama):
    pairs = make_pairs(llama)
    options = {"components": [Head(0, 1)]} | change
    components = options.pop("components")
    with pytest.raises(error, match=match):
        function(llama, pairs, components, **options)


def test_a_k_beyond_the_order_is_told(llama):
    pairs = make_pairs(llama)
    with pytest.raises(ValueError, match="up to the 5 components of order, found 6"):
        knockout_curve(llama, pairs, MIXED, ks=[6])
    with pytest.raises(ValueError, match="count components from 0"):
        knockout_curve(llama, pairs, MIXED, ks=[-1])


def test_without_ks_every_number_of_components_is_knocked_out(llama: Any) -> None:
    pairs = make_pairs(llama)
    curve = knockout_curve(llama, pairs, ["1.2", "0.0", "MLP 1"], progress=False)
    assert curve.ks == (0, 1, 2, 3)
    last = knock_out(llama, pairs, ["1.2", "0.0", "MLP 1"], progress=False)
    assert_close(curve.probability[-1], last.probability)


def test_a_knockout_says_how_many_were_right_before(model: Any) -> None:
    """Pairs that nobody filtered: half of the answers are wrong without any knockout."""
    right = make_pairs(model)
    pairs = replace(right, answer=torch.where(torch.arange(6) < 3, right.answer, 5))
    logits = model(pairs.reference, attention_mask=pairs.attention_mask)[:, -1]
    expected = logits.argmax(-1) == pairs.answer
    assert expected.sum() == 3
    out = knock_out(model, pairs, MIXED, progress=False)
    assert out.before == pytest.approx(0.5) and "50.0% before" in repr(out)
    assert "50.0% before" in out._repr_html_()
    assert out.correct_before is not None and torch.equal(out.correct_before, expected)
    assert out.select(torch.tensor([0, 1])).before == 1
    assert Outcomes.from_arrays(out.to_arrays()).before == out.before
    assert knock_out(model, pairs, [], progress=False).before == pytest.approx(0.5)
    kept = keep_only(model, pairs, MIXED[:2], progress=False)
    assert kept.before == pytest.approx(0.5)
    assert knockout_curve(model, pairs, MIXED, ks=[2], progress=False).at(2).before == 0.5
    assert knock_out(model, right, MIXED, progress=False).before == 1, "other pairs, other number"
    assert "nan" not in repr(replace(out, correct_before=None))


def test_one_pair_has_no_interval_in_words(llama: Any) -> None:
    one = knock_out(llama, make_pairs(llama)[:1], ["1.2"], means="all_tokens", progress=False)
    assert "(one problem, no interval; " in repr(one) and "nan" not in repr(one)
    assert "nan" not in one._repr_html_()
    assert "nan" not in str(drop(one, one))


def test_a_model_and_pairs_in_the_wrong_order_are_named(llama: Any) -> None:
    pairs = make_pairs(llama)  # as users call them, without the types that tests check
    calls: list[Any] = [
        lambda m, p: unwrap(knock_out)(m, p, "1.2"),
        lambda m, p: unwrap(knockout_curve)(m, p, ["1.2"]),
        lambda m, p: unwrap(patch_settings)(
            m, None, paths="direct", metric="logit", foil=None, pairs=p
        ),
        lambda m, p: unwrap(attention_to)(m, p, ["1.2"], lambda _: {}, axis="role"),
        lambda m, p: unwrap(composition)(m, p, ["1.2"]),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="found PromptPairs, then HookedModel; exchange"):
            call(pairs, llama)
        with pytest.raises(TypeError, match="its pairs, found HookedModel, then list; give a"):
            call(llama, ["3 + 5 = "])
