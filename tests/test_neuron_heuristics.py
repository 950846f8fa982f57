"""Maps of neurons and tests of rules, on built models whose neurons are known."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

import arith_lens as al
from arith_lens.model import HookedModel
from arith_lens.neurons import NeuronMaps, untrained_model
from arith_lens.neurons.matching import _Cells, grid_of

PERMUTATIONS = 20


def sums() -> al.PromptPairs:
    """All additions of digits whose sum is a digit, in the tokens of the built models."""
    cells = [(a, b) for a in range(10) for b in range(10 - a)]
    tokens = torch.tensor([[14, a, 10, b, 13] for a, b in cells])
    pairs = al.PromptPairs.from_tokens(tokens, tokens, torch.tensor([a + b for a, b in cells]))
    problems = tuple(f"{a} + {b}" for a, b in cells)
    return replace(pairs, problem=problems, operation=("addition",) * len(cells))


@cache
def matches(name: str, mlp: int = 0) -> tuple[NeuronMaps, al.HeuristicMatches, torch.Tensor]:
    """The maps of a built model, their matches, and which neurons are not constant."""
    maps = al.neuron_maps(al.built_model(name).model, sums(), range(10), [mlp])
    found = al.match_heuristics(maps, permutations=PERMUTATIONS)
    return maps, found, maps.flat().std(1) > 1e-3


def test_thermometer_has_ranges_of_the_result() -> None:
    _, found, used = matches("thermometer")
    row = found.families.index("range of C")
    assert bool((found.auc[row][used] > 0.999).all())
    assert bool(found.implements()[row][used].all())
    assert not found.implements()[found.families.index("remainder of A")].any()
    frame = found.to_dataframe()
    chosen = frame[frame["implements"] & (frame["family"] == "range of C")]
    assert len(chosen) == int(used.sum()) == 38
    assert all("C from" in rule for rule in chosen["rule"])


@pytest.mark.parametrize("name", ["table", "rotated"])
def test_a_table_is_memory_and_follows_no_rule(name: str) -> None:
    """Each neuron knows one problem, which no rule about other values can say."""
    _, found, used = matches(name)
    row = found.families.index("both operands")
    assert bool((found.auc[row][used] > 0.999).all())
    assert not found.held_out[row], "single problems cannot be held out"
    assert not bool(found.implements().any())


def test_a_clock_has_a_neuron_pair_of_the_parity_of_the_sum() -> None:
    """The other neurons multiply waves of A and B, and follow no rule about one number."""
    maps, found, used = matches("clock", 1)
    parity = torch.tensor([(a + b) % 2 for a in range(10) for b in range(10 - a)]).bool()
    flat = maps.flat()[used]
    by_parity = (flat[:, ~parity].min(1).values > flat[:, parity].max(1).values) | (
        flat[:, parity].min(1).values > flat[:, ~parity].max(1).values
    )
    assert int(by_parity.sum()) == 2
    row = found.families.index("remainder of C")
    assert bool((found.auc[row][used][by_parity] > 0.999).all())
    assert float((found.auc[row][used] > 0.999).float().mean()) < 0.2
    assert not found.implements()[found.families.index("range of C")].any()


def test_noise_and_neurons_of_random_digits_follow_no_rule() -> None:
    """A neuron that reads a random number for each digit fits permuted digits as well."""
    generator = torch.Generator().manual_seed(0)
    operands = tuple(range(10, 100))
    a, b = torch.meshgrid(torch.tensor(operands), torch.tensor(operands), indexing="ij")
    noise = torch.randn(1, 40, 90, 90, generator=generator)
    by_digit = torch.randn(40, 10, generator=generator)
    value = by_digit[:, a % 10]
    shared = {
        "mlps": (al.Mlp(0),),
        "operands": operands,
        "results": a + b,
        "operation": "addition",
        "read": "activation",
    }
    families = {k: v for k, v in al.HEURISTICS.items() if "digit" in k or "remainder" in k}
    for values in (noise, value[None]):
        maps = NeuronMaps(values, **shared)
        found = al.match_heuristics(maps, families, permutations=10)
        assert float(found.implements().float().mean()) <= 0.02
    even = torch.where((a + b) % 2 == 0, 1.0, 0.0) + 0.1 * noise
    found = al.match_heuristics(NeuronMaps(even, **shared), families, permutations=10)
    assert bool(found.implements()[[*families].index("remainder of C")].all()), "a rule is seen"


@torch.no_grad()
def test_maps_are_what_plain_transformers_computes(shared_models: object) -> None:
    """An activation is the input of down_proj; its effect is C's contrast without its write."""
    model = al.load_model("reference")
    operands = [12, 35, 47]
    maps = {
        read: al.neuron_maps(model, "addition", operands, [10], read=read)
        for read in ("activation", "effect")
    }
    pairs = al.sample_pairs(
        model,
        "addition",
        operands=operands,
        templates=["addition/0"],
        keep="all",
        answer_token="first",
    )
    row = pairs.problem.index("35 + 47")  # pyright: ignore
    hf, seen = model.bridge.original_model, {}
    layer = hf.model.layers[10].mlp.down_proj
    handles = [
        layer.register_forward_pre_hook(lambda _, x: seen.update(post=x[0][:, -1])),
        hf.model.norm.register_forward_pre_hook(lambda _, x: seen.update(end=x[0][:, -1])),
    ]
    mask = pairs.attention_mask[row : row + 1].long()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    hf(pairs.reference[row : row + 1], attention_mask=mask, position_ids=positions)
    for handle in handles:
        handle.remove()
    assert torch.allclose(maps["activation"].values[0, :, 1, 2], seen["post"][0], atol=1e-5)
    tokens = [model.tokenizer.convert_tokens_to_ids(str(digit)) for digit in range(10)]
    answer = int(pairs.answer[row])
    if answer not in tokens:
        from arith_lens.pairs import candidate_tokens

        tokens = [*candidate_tokens(model, [answer])]
    scale = seen["end"][0].square().mean().add(hf.config.rms_norm_eps).sqrt()
    others = [token for token in tokens if token != answer]
    direction = hf.lm_head.weight[answer] - hf.lm_head.weight[others].mean(0)
    expected = -seen["post"][0] * ((direction * hf.model.norm.weight / scale) @ layer.weight)
    assert torch.allclose(maps["effect"].values[0, :, 1, 2], expected, atol=1e-4)
    assert expected.abs().max() > 1e-2


def test_values_that_choose_a_rule_do_not_score_it() -> None:
    """The halves by hand. Problems with one value of each half count nowhere."""
    operands = tuple(range(10, 30))
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(1, 6, 20, 20, generator=generator)
    sums = torch.tensor(operands)[:, None] + torch.tensor(operands)
    maps = NeuronMaps(values, (al.Mlp(0),), operands, sums, "addition", "activation")
    generator = torch.Generator().manual_seed(7)
    held = [torch.randperm(20, generator=generator)[:8] + 10 for _ in range(2)]
    grid = grid_of(maps)
    of_a, of_b = (torch.isin(n, half) for n, half in zip((grid.a, grid.b), held, strict=True))
    cells = _Cells.of(maps, 0.4, torch.Generator().manual_seed(7))
    assert torch.equal(cells.score, of_a & of_b)
    families = {name: al.HEURISTICS[name] for name in ("digit of A", "range of C")}
    options: dict[str, Any] = {"hold_out": 0.4, "permutations": 0, "seed": 7}

    def auc(changed: torch.Tensor) -> torch.Tensor:
        noise = torch.where(changed.reshape(20, 20), torch.randn(1, 6, 20, 20), values)
        other = replace(maps, values=noise)
        return al.match_heuristics(other, families, **options).auc

    own = auc(torch.zeros(400, dtype=torch.bool))
    assert torch.equal(auc(of_a ^ of_b), own)
    turned = replace(maps, values=-values)
    found = al.match_heuristics(turned, families, **options)
    assert torch.allclose(found.auc, own), "a neuron may be silent where a rule holds"
    assert not torch.equal(auc(of_a & of_b), own) and not torch.equal(auc(~(of_a | of_b)), own)


def test_a_rule_that_untrained_neurons_follow_as_well_is_no_rule() -> None:
    """The same neurons as their own null: none is above the 99% point of all."""
    maps, found, used = matches("thermometer")
    row = found.families.index("range of C")
    others = replace(found, auc=torch.rand_like(found.auc))
    again = al.match_heuristics(maps, null=[found, others], permutations=PERMUTATIONS)
    pooled = torch.cat([found.auc, others.auc], dim=1)
    assert torch.allclose(again.untrained, pooled.quantile(0.99, dim=1))
    assert torch.equal(again.auc, found.auc) and torch.equal(again.p, found.p)
    assert bool(found.implements()[row][used].all()) and not again.implements()[row].any()
    weak = replace(found, untrained=torch.full_like(found.untrained, 0.5))
    assert torch.equal(weak.implements(), found.implements())
    assert not replace(found, level=1e-6).implements().any(), "none is as sure as that"


def test_a_map_of_strange_numbers_is_refused() -> None:
    model = al.built_model("table").model
    with pytest.raises(ValueError, match="operands that stand in a problem, found 11"):
        al.neuron_maps(model, sums(), [1, 2, 11])
    with pytest.raises(IndexError, match="expected a layer from 0 to 0"):
        al.neuron_maps(model, sums(), range(10), [3])
    with pytest.raises(ValueError, match="expected read among"):
        al.neuron_maps(model, sums(), range(10), read="weights")
    with pytest.raises(ValueError, match="expected each problem once"):
        al.neuron_maps(model, sums() + sums(), range(10))
    maps, _, _ = matches("table")
    with pytest.raises(KeyError, match="expected a neuron of MLP 0"):
        maps["MLP 3.1"]
    with pytest.raises(ValueError, match="hold_out between 0 and 1"):
        al.match_heuristics(maps, hold_out=1.0)
    with pytest.raises(ValueError, match="permutations of 0, or 2"):
        al.match_heuristics(maps, permutations=1)
    with pytest.raises(ValueError, match="families of rules, found none"):
        al.match_heuristics(maps, {})
    alone = al.match_heuristics(maps, permutations=0)
    with pytest.raises(ValueError, match="expected permutations, found none"):
        alone.implements()
    assert type(alone).from_arrays(alone.to_arrays()).rules == alone.rules


def test_an_untrained_model_has_other_weights_and_the_same_shape(llama: HookedModel) -> None:
    fresh, again = untrained_model(llama, 1), untrained_model(llama, 1)
    own, other, same = (
        next(v for k, v in one.bridge.original_model.named_parameters() if "down_proj" in k)
        for one in (llama, fresh, again)
    )
    assert not torch.equal(own, other)
    assert torch.equal(other, same)
    third = untrained_model(llama, 2).bridge.original_model.state_dict()
    name = next(name for name in third if "down_proj" in name)
    assert not torch.equal(third[name], other), "another seed gives other weights"
