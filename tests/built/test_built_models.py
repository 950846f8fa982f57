"""Built models: the exact methods meet their closed forms, and the closed forms those by hand."""

import functools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles import Raw, components, effect
from torch import Tensor

import arith_lens as al
from arith_lens.built import BUILT_NAMES, BuiltModel, Truth
from arith_lens.components import Head, Mlp

PATHS = ("via_mlps", "direct", "total")
TOLERANCE = 1e-6
"""Of the largest logit of the reference prompts."""


@functools.cache
def built(name: str) -> BuiltModel:
    return al.built_model(name, n=8)


def exact(made: BuiltModel, paths: str) -> al.ComponentEffects:
    """By the sweep, for all components; by hooks, for the circuit and the first distractor."""
    options: dict[str, Any] = {"engine": "sweep"}
    if paths == "total":
        senders = [*made.truth.heads, *made.truth.mlps, Head(0, 3)]
        options = {"engine": "hooks", "senders": senders}
    return al.path_patch(
        made.model, made.pairs, paths=paths, metric="logit", progress=False, **options
    )


def error(result: al.ComponentEffects, truth: Truth, paths: str) -> float:
    """The largest error of an effect, as a share of the largest logit."""
    expected = truth.effects(paths=paths, metric="logit")
    pairs = [(result.heads, expected.heads), (result.mlps, expected.mlps)]
    errors = torch.cat([(a.per_pair - b.per_pair).flatten() for a, b in pairs])
    return float(errors.nan_to_num().abs().max()) / float(truth.logits().abs().max())


@pytest.mark.parametrize("name", BUILT_NAMES)
def test_path_patching_meets_the_closed_form(name: str) -> None:
    _, pairs, truth = made = built(name)
    assert bool((truth.logits().argmax(-1) == pairs.answer).all())
    later_heads = name == "padded" or truth.n_layers > 1  # else total is via MLPs
    for paths in PATHS if later_heads else PATHS[:2]:
        assert error(exact(made, paths), truth, paths) < TOLERANCE, paths


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("table", {"n_layers": 2}),
        ("thermometer", {"n_layers": 2}),
        ("clock", {"frequencies": (1, 2)}),
        ("clock", {"frequencies": (1,), "rotation": 1}),
        ("clock", {"frequencies": (1, 5)}),
        ("carry", {"rotation": 0}),
    ],
)
def test_variants_meet_the_closed_form_and_answer_right(name: str, variant: dict[str, Any]) -> None:
    _, pairs, truth = made = al.built_model(name, n=8, counterfactual="operands", **variant)
    assert bool((truth.logits().argmax(-1) == pairs.answer).all())
    rounding = 3 if name == "carry" else 1  # three layers of float32, rotated
    for paths in PATHS[:2]:
        assert error(exact(made, paths), truth, paths) < rounding * TOLERANCE, paths


def test_variants_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="expected different frequencies from 1 to 5"):
        al.built_model("clock", frequencies=(2, 3))
    with pytest.raises(ValueError, match="expected 1 layer or more"):
        al.built_model("table", n_layers=0)


@pytest.mark.parametrize("name", ["carry", "carry_plane"])
def test_two_digit_sums_are_right_in_all_problems(name: str) -> None:
    model, pairs, _ = built(name)
    numbers = torch.arange(10, 100)
    a, b = torch.cartesian_prod(numbers, numbers).T
    bos, plus, equals = (pairs.reference[0, at].expand(len(a)) for at in (0, 3, 6))
    tokens = torch.stack([bos, a // 10, a % 10, plus, b // 10, b % 10, equals], dim=1)
    first = torch.where(a + b > 99, 1, (a + b) // 10)
    assert len(a) == 8100 and torch.equal(model(tokens)[:, -1].argmax(-1), first)
    assert not torch.equal(first, torch.where(a + b > 99, 1, a // 10 + b // 10))  # no carry


@pytest.mark.parametrize("name", ["redundant", "value_composition", "padded", "all_norms"])
def test_joint_knockouts_meet_the_closed_form(name: str) -> None:
    model, pairs, truth = built(name)
    circuit = sorted(truth.heads)
    for chosen in (circuit[:1], circuit, [*circuit, *truth.mlps]):
        for ablation in ("mean", "zero"):
            out = al.knock_out(model, pairs, chosen, ablation=ablation, progress=False)
            expected = truth.probability(truth.knocked_out(chosen, ablation=ablation))
            assert torch.allclose(out.probability.double(), expected, atol=5e-6), (chosen, ablation)
    kept = al.keep_only(model, pairs, [*truth.heads], progress=False)
    expected = truth.probability(truth.kept_only([*truth.heads]))
    assert torch.allclose(kept.probability.double(), expected, atol=5e-6)


@pytest.mark.parametrize("name", ["deep", "clock", "key_composition"])
def test_mediators_meet_the_closed_form(name: str) -> None:
    model, pairs, truth = built(name)
    heads = [one.head for one in truth.circuit.heads]
    mediation = al.mediators(model, pairs, heads, metric="logit", progress=False)
    layers = {*range(truth.n_layers)}
    scale = float(truth.logits().abs().max())
    for row, head in enumerate(heads):
        for layer in layers:
            for part, free in (
                (mediation.all_but_one_mlp, layers - {layer}),
                (mediation.only_one_mlp, {layer}),
            ):
                expected = truth.effect(head, metric="logit", mlps=free)
                assert (part.per_pair[row, layer] - expected).abs().max() < TOLERANCE * scale


def test_torch_hooks_on_the_plain_model_agree_on_several_heads_at_once() -> None:
    model, pairs, truth = built("redundant")
    raw = Raw(model.bridge.original_model, pairs)
    both = [Head(0, 0), Head(0, 6)]
    z = raw.z[0][0].clone()
    for head in both:
        part = slice(16 * head.index, 16 * head.index + 16)
        z[:, -1, part] = raw.z[1][0][:, -1, part]
    handle = raw.layers[0].self_attn.o_proj.register_forward_pre_hook(lambda _, x: (z, *x[1:]))
    assert torch.allclose(raw.run(pairs.reference, [handle]).double(), truth.patched(both))


def test_an_error_of_the_truth_or_of_a_weight_is_noticed() -> None:
    model, _, truth = made = al.built_model("table", n=8)
    far = replace(truth.circuit.heads[1], offsets={0: 3})
    wrong = replace(truth.circuit, heads=(truth.circuit.heads[0], far, *truth.circuit.heads[2:]))
    result = exact(made, "via_mlps")
    assert error(result, truth, "via_mlps") < TOLERANCE
    assert error(result, replace(truth, circuit=wrong), "via_mlps") > 0.1
    weight = model.bridge.original_model.model.layers[0].mlp.original_component.down_proj.weight
    with torch.no_grad():
        weight.mul_(1.001)
    assert error(exact(made, "via_mlps"), truth, "via_mlps") > 100 * TOLERANCE


def test_the_table_by_hand() -> None:
    """END has length sqrt(8) without the answer's mark and 3 with it; logits are 8 + 4 and 4."""
    truth = built("table").truth
    without = 4 * math.sqrt(9 / 8)
    effects = truth.effects()
    whole = torch.full((len(truth.pairs),), (without - 12) / 12)
    for sender in components(built("table").model):
        takes_all = sender in (Head(0, 1), Mlp(0))
        expected = whole if takes_all else torch.zeros(len(whole))
        assert torch.allclose(effect(effects, sender).float(), expected, atol=1e-6), str(sender)
    shares = truth.effects(metric="share_of_total")
    assert torch.allclose(shares.mlps.per_pair, torch.ones(1, len(whole)).double())


def test_a_soft_table_by_hand() -> None:
    """Attention, neurons and norm in plain numbers: beta = G = 8."""
    _, pairs, truth = built("soft")

    def look(row: list[int], distance: float) -> dict[int, float]:
        weights = [math.exp(8 * math.cos(4 - j - distance)) for j in range(5)]
        shares = [w / sum(weights) for w in weights]
        return {t: sum(s for s, u in zip(shares, row, strict=True) if u == t) for t in {*row}}

    def logit(slots: list[dict[int, float]], answer: int) -> float:
        squares = 2.0 + sum(v * v for slot in slots for v in slot.values())
        marks = [0.0] * 10
        for a in range(10):
            for b in range(10):
                for operator, c in ((10, a + b), (11, a - b)):
                    if 0 <= c <= 9:
                        wanted = zip(slots[:3], (a, operator, b), strict=True)
                        count = sum(slot.get(entry, 0.0) for slot, entry in wanted)
                        ratio = math.sqrt(8 / squares)
                        gate = 8 * ratio * (count - 2.5)
                        marks[c] += gate / (1 + math.exp(-gate)) * ratio / 4
        ratio = math.sqrt(9 / (squares + sum(mark * mark for mark in marks)))
        return ratio * (8 * marks[answer] + 4)

    distances = (3, 2, 1, 4, 1, 2)
    rows = zip(pairs.reference.tolist(), pairs.counterfactual.tolist(), strict=True)
    for i, (row, other) in enumerate(rows):
        answer = int(pairs.answer[i])
        slots = [look(row, distance) for distance in distances]
        assert math.isclose(logit(slots, answer), truth.logits()[i, answer], rel_tol=1e-9)
        slots[1] = look(other, 2)  # the distractor keeps the operator of the reference prompt
        expected = truth.patched(Head(0, 1))[i, answer]
        assert math.isclose(logit(slots, answer), float(expected), rel_tol=1e-9)


def largest(values: Tensor) -> float:
    return float(values.abs().max())


def test_either_of_two_redundant_heads_suffices() -> None:
    _, _, truth = built("redundant")
    heads = [Head(0, 0), Head(0, 6)]
    assert {*heads} <= truth.heads
    assert max(largest(truth.effect(head)) for head in heads) < 1e-9
    assert torch.allclose(truth.effect(heads, metric="share_of_total"), torch.ones(8).double())


def test_cancelling_heads_have_effects_of_opposite_signs_and_none_together() -> None:
    _, _, truth = built("cancelling")
    lift, lower = (truth.effect(head, metric="logit") for head in ("0.6", "0.7"))
    assert float(lift.max()) < -0.5 and float(lower.min()) > 0.1
    assert largest(truth.effect(["0.6", "0.7"], metric="logit")) < 1e-9


def test_an_inhibiting_head_helps_when_it_is_patched() -> None:
    _, _, truth = built("inhibiting")
    assert float(truth.effect("1.0").min()) > 0.1
    alone, total = (truth.effect("MLP 0", paths=paths) for paths in ("via_mlps", "total"))
    assert bool((alone < total).all())  # the head takes less away if there is less to take


def test_heads_that_act_through_queries_act_in_total_alone() -> None:
    _, _, truth = built("query_composition")
    assert max(largest(truth.effect("0.1", paths=paths)) for paths in PATHS[:2]) < 1e-9
    assert float(truth.effect("0.1", paths="total").max()) < -0.5


@pytest.mark.parametrize(
    ("name", "sender", "ablation"),
    [("key_composition", "0.0", "zero"), ("value_composition", "MLP 0", "mean")],
)
def test_components_that_act_at_other_positions_show_in_knockouts_alone(
    name: str, sender: str, ablation: str
) -> None:
    _, _, truth = built(name)
    patched = [largest(truth.effect(sender, paths=paths)) for paths in PATHS]
    assert max(patched) < 1e-9
    assert float(truth.probability(truth.logits()).min()) > 0.9
    without = truth.knocked_out([sender], ablation=ablation)
    assert float(truth.probability(without).mean()) < 0.6


def test_a_mean_can_stand_in_for_a_head_whose_output_is_alike_in_all_prompts() -> None:
    """The token before B is an operator, in the means too: the later head still looks there."""
    _, _, truth = built("key_composition")
    assert float(truth.probability(truth.knocked_out(["0.0"])).min()) > 0.9


def test_three_adders_have_one_behaviour() -> None:
    logits = [built(name).truth.logits() for name in ("table", "thermometer", "clock")]
    top = [rows[:, :10] / rows[:, :10].amax(1, keepdim=True) for rows in logits]
    assert torch.allclose(top[0], top[1]) and torch.allclose(top[0], top[2], atol=1e-9)
    widths = {len(built(name).truth.circuit.mlps[-1].gate) for name in ("table", "thermometer")}
    assert widths == {110, 80}


@pytest.mark.parametrize("name", ["table", "grouped", "query_key_norms", "sandwich", "all_norms"])
def test_a_saved_folder_loads_as_the_same_model(name: str, tmp_path: Path) -> None:
    model, pairs, _ = made = built(name)
    loaded = al.load_model(made.save(tmp_path / name))
    options = {"attention_mask": pairs.attention_mask}
    assert torch.equal(
        model(pairs.reference, **options)[:, -1], loaded(pairs.reference, **options)[:, -1]
    )
    assert loaded.tokenizer("3 + 5 =").input_ids == [14, 3, 10, 5, 13]


def test_prompts_and_edges_say_what_they_are() -> None:
    _, pairs, truth = built("padded")
    assert {*pairs.lengths.tolist()} == {5, 6, 7}
    assert pairs.problem[
        0
    ] == f"{pairs.operands[0, 0]} {'+-'[int(pairs.reference[0, -3]) - 10]} " + (
        f"{pairs.operands[0, 1]}"
    )
    assert {*map(str, truth.edges)} == {"0.1 -> MLP 0", "MLP 0 -> logits"}
    operands = al.built_model("deep", n=8, counterfactual="operands", n_layers=4).truth
    assert {str(one) for one in operands.heads} == {"0.0", "0.2"}
    assert "MLP 3 -> logits" in {*map(str, operands.edges)}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tabel", {}, "expected a built model among table"),
        ("table", {"family": "gpt2"}, "expected a family among gemma2, gemma3, llama, qwen3"),
        ("table", {"counterfactual": "b"}, "expected a counterfactual among operator"),
        ("table", {"fillers": (3,)}, "expected 0 to 2 fillers"),
        ("carry", {"fillers": (1,)}, "expected 0 to 0 fillers"),
        ("deep", {"n_layers": 2}, "expected 3 layers or more"),
        ("key_composition", {"n_kv_heads": 1}, "choose more n_kv_heads"),
    ],
)
def test_what_cannot_be_built_is_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        al.built_model(name, **options)
