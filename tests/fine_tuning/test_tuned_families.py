"""Precise tuning of many families. What belongs to a head is read from plain autograd: no names."""

import copy
import re
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import torch
from support.families import EVERY, LATENT, UNFAITHFUL, Family
from support.quick_tuning import QUICK
from torch import Tensor, nn
from torch.nn import functional
from torch.testing import assert_close

from arith_lens.components import Head, Mlp
from arith_lens.fine_tuning import fine_tune
from arith_lens.fine_tuning.pieces import by_parameter, merge_slices, pieces_of, slice_model
from arith_lens.model import families
from arith_lens.model.families import FusedQkv

FAMILIES = EVERY | UNFAITHFUL
REFUSED = [name for name, family in FAMILIES.items() if "fine_tuning" in family.row.refusals]
NO_MLP = ("OPT", "XGLM", "OPT, projected")
TUNED = [name for name in FAMILIES if name not in REFUSED]
HEADS = [Head(0, 1), Head(1, 2), Head(1, 3)]
IDS = torch.randint(3, 200, (3, 9), generator=torch.Generator().manual_seed(1))

Masks = dict[str, Tensor]


def part(module: Any, path: str) -> Any:
    return reduce(getattr, path.split("."), module)


def owned(hf_model: Any, family: Family, heads: list[Head]) -> Masks:
    """Which weights of a layer's attention move a head's z, by autograd; and its columns of W_O.

    Norms over the queries of all heads would let each weight move every head, so they are left out.
    """
    found: Masks = {}
    for head in heads:
        model = copy.deepcopy(hf_model)
        reads_z = part(part(model, family.places.blocks)[head.layer], family.places.reads_z)
        z: list[Tensor] = []
        reads_z.register_forward_pre_hook(lambda _, args, z=z: z.append(args[0]))
        name = next(name for name, module in model.named_modules() if module is reads_z)
        attention = name.rpartition(".")[0]
        for norm in ("q_norm", "k_norm"):
            if hasattr(part(model, attention), norm):
                setattr(part(model, attention), norm, nn.Identity())
        model(IDS, use_cache=False)
        n_heads = model.config.num_attention_heads
        of_heads = z[0].unflatten(-1, (n_heads, -1))
        generator = torch.Generator().manual_seed(0)
        (torch.randn(of_heads.shape, generator=generator) * of_heads)[
            ..., head.index, :
        ].sum().backward()
        for path, weight in model.named_parameters():
            if path.startswith(attention) and weight.ndim == 2 and weight.grad is not None:
                rows = (weight.grad != 0).any(1)
                for kind in ("weight", "bias"):
                    name_of = f"{path.rpartition('.')[0]}.{kind}"
                    if (tensor := dict(model.named_parameters()).get(name_of)) is not None:
                        mask = rows.reshape(-1, *[1] * (tensor.ndim - 1)).expand_as(tensor)
                        found[name_of] = found.get(name_of, torch.zeros_like(mask)) | mask
        columns = torch.zeros(n_heads, reads_z.in_features // n_heads, dtype=torch.bool)
        columns[head.index] = True
        mask = columns.flatten().expand_as(reads_z.weight)
        found[f"{name}.weight"] = found.get(f"{name}.weight", torch.zeros_like(mask)) | mask
    return {name: mask for name, mask in found.items() if mask.any()}


def loss_of(hf_model: Any) -> Tensor:
    return hf_model(input_ids=IDS, labels=IDS, use_cache=False).loss


@pytest.mark.parametrize("name", TUNED)
def test_slices_and_gradients_are_those_of_the_heads(name: str) -> None:
    family = FAMILIES[name]
    plain = family.make(200)
    sliced = copy.deepcopy(plain)
    pieces = pieces_of(sliced, HEADS)
    expected = owned(plain, family, HEADS)
    groups = by_parameter(pieces)
    assert groups.keys() == expected.keys()
    replaced = slice_model(sliced, pieces, dtype=torch.float32)
    loss_of(sliced).backward()
    loss_of(plain).backward()
    weights, leaves = dict(plain.named_parameters()), dict(sliced.named_parameters())
    strongest = max(float(weights[path].grad.abs().max()) for path in groups)
    for path, group in groups.items():
        gradient = torch.zeros_like(weights[path])
        sizes = [piece.stop - piece.start for piece in group]
        found: Any = leaves[f"{path}_slice"].grad
        for piece, values in zip(group, found.split(sizes, group[0].dim), strict=True):
            piece.of(gradient).copy_(values)
        full: Any = weights[path].grad
        assert_close(gradient, full * expected[path], rtol=1e-3, atol=1e-6 * strongest)
        elsewhere = (full * ~expected[path]).abs().max()
        assert full.ndim == 1 or elsewhere > 1e-3 * strongest, "the test must be able to fail"
    merge_slices(sliced, replaced)
    assert all(type(a) is type(b) for a, b in zip(plain.modules(), sliced.modules(), strict=True))
    if name in NO_MLP:
        with pytest.raises(ValueError, match=f"module of its own, found none in {family.prefix}"):
            pieces_of(plain, [], [Mlp(1)])
    else:
        reads_mlp = part(part(plain, family.places.blocks)[1], family.places.mlp)
        whole = {id(weight) for weight in reads_mlp.parameters()}
        assert whole <= {id(weights[piece.parameter]) for piece in pieces_of(plain, [], [Mlp(1)])}


@pytest.mark.parametrize("name", ["Gemma 2", "OLMo 2", "Pythia", "Falcon", "GPT-J", "Phi-3"])
def test_a_tuning_is_one_that_is_masked_by_hand(name: str, tokenizer: Any, tmp_path: Path) -> None:
    """One step of AdamW over all weights of plain Transformers, of which the heads' are kept."""
    family = FAMILIES[name]
    hf_model = family.make(len(tokenizer))
    rows = [{"prompt": f"Q: What is {a} plus 1? A: ", "answer": str(a + 1)} for a in range(8)]
    options: dict[str, Any] = QUICK | {"warmup": 0, "rescale": None, "learning_rate": 1e-3}
    result = fine_tune((hf_model, tokenizer), rows, heads=HEADS, output=tmp_path, **options)
    after = dict(result.model((hf_model, tokenizer))[0].named_parameters())
    masks = owned(hf_model, family, HEADS)
    weights = dict(hf_model.named_parameters())
    before = {path: weight.detach().clone() for path, weight in weights.items()}
    total = torch.zeros(())
    for row in rows:
        n_prompt = len(tokenizer(row["prompt"])["input_ids"])
        ids = torch.tensor([tokenizer(row["prompt"] + row["answer"])["input_ids"] + [2]])
        logits = hf_model(ids, use_cache=False).logits[0, n_prompt - 1 : -1]
        total = total + functional.cross_entropy(logits, ids[0, n_prompt:], reduction="sum")
    (total / (2 * len(rows))).backward()
    for path, mask in masks.items():
        weights[path].grad *= mask  # pyright: ignore[reportOperatorIssue]
    nn.utils.clip_grad_norm_([weights[path] for path in masks], 1.0)
    groups = [
        {"params": [weights[path] for path in masks if (weights[path].ndim > 1) is is_matrix]}
        | {"weight_decay": 0.1 * is_matrix}  # the Trainer does not decay biases
        for is_matrix in (True, False)
    ]
    torch.optim.AdamW(groups, lr=1e-3).step()
    for path, weight in before.items():
        mask = masks.get(path, torch.zeros_like(weight, dtype=torch.bool))
        found, expected = after[path].detach(), weights[path].detach()
        assert torch.equal(found[~mask], weight[~mask]), "no other weight changes"
        gradient = weights[path].grad
        if mask.any() and gradient is not None:  # AdamW takes a whole step for a gradient of noise
            mask = mask & (gradient.abs() > 1e-4 * gradient.abs().max())
            assert_close(found[mask], expected[mask], rtol=0, atol=2e-5)
            assert (found[mask] - weight[mask]).abs().min() > 1e-4, "each of them changes"


def test_adapters_are_at_the_matrices_of_the_family(tokenizer: Any, tmp_path: Path) -> None:
    source = FAMILIES["Pythia"].make(len(tokenizer)), tokenizer
    rows = [{"prompt": f"Q: What is {a} plus 1? A: ", "answer": str(a + 1)} for a in range(8)]
    options: dict[str, Any] = QUICK | {"method": "lora", "warmup": 0}
    result = fine_tune(source, rows, heads=HEADS, output=tmp_path, **options)
    before, after = (dict(m.named_parameters()) for m in (source[0], result.model(source)[0]))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    parts = ("query_key_value", "dense")
    layers = range(2)
    assert changed == {f"gpt_neox.layers.{n}.attention.{p}.weight" for n in layers for p in parts}


def test_the_rows_of_a_head_depend_on_the_order_of_the_matrix(monkeypatch: Any) -> None:
    """Phi-3's order for Pythia's matrix takes rows of other heads: the oracle sees it."""
    family = FAMILIES["Pythia"]
    hf_model = family.make(200)
    other = replace(family.row, fused_qkv=FusedQkv("query_key_value", "by kind"))
    monkeypatch.setitem(families.FAMILIES, other.model_type, other)
    name = "gpt_neox.layers.1.attention.query_key_value.weight"
    mask = owned(hf_model, family, HEADS)[name]
    rows = [range(p.start, p.stop) for p in by_parameter(pieces_of(hf_model, HEADS))[name]]
    assert {row for some in rows for row in some} != set(mask.any(1).nonzero()[:, 0].tolist())


def test_a_key_value_head_of_a_fused_matrix_can_be_left_out() -> None:
    hf_model = FAMILIES["Phi-3"].make(200)  # 4 heads and 2 key-value heads of 8
    name = "model.layers.1.self_attn.qkv_proj.weight"
    pieces = by_parameter(pieces_of(hf_model, [Head(1, 3)], kv="skip"))[name]
    assert [(piece.start, piece.stop) for piece in pieces] == [(24, 32)]
    pieces = by_parameter(pieces_of(hf_model, [Head(1, 3)]))[name]
    assert [piece.start for piece in pieces] == [24, 40, 56]


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_family_is_named_with_its_matrices(name: str) -> None:
    hf_model = FAMILIES[name].make(200)
    reason = FAMILIES[name].row.refusals["fine_tuning"]
    matrix = {"CodeGen": "qkv_proj"}.get(name, "c_attn")
    found = rf"found {type(hf_model).__name__} with .*{matrix}.* \({reason}\)"
    with pytest.raises(ValueError, match=found):
        pieces_of(hf_model, HEADS)


def test_latent_attention_is_refused() -> None:
    with pytest.raises(ValueError, match=r"found DeepseekV3ForCausalLM with .*kv_b_proj"):
        pieces_of(LATENT.make(200), HEADS)


def test_heads_of_unequal_size_are_refused() -> None:
    hf_model = FAMILIES["Qwen2"].make(200)
    hf_model.model.layers[1].self_attn.q_proj = nn.Linear(32, 64)
    with pytest.raises(ValueError, match=r"Qwen2ForCausalLM.*in one layer, and others in another"):
        pieces_of(hf_model, HEADS)


def test_the_documented_table_is_the_tested_list() -> None:
    page = (Path(__file__).parents[2] / "docs" / "fine_tuning.md").read_text(encoding="utf-8")
    fused = [name for name in TUNED if FAMILIES[name].row.fused_qkv]
    for title, names in {"one matrix of a known order": fused, "refused": REFUSED}.items():
        (row,) = re.findall(rf"^\| {title} \| (.+) \|$", page, re.MULTILINE)
        documented = {family.split(" (")[0] for family in row.split(", ")}
        assert documented == {name.split(", ")[0] for name in names}
