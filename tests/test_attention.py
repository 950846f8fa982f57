"""Attention from END equals Transformers' own attention weights, summed by role."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from oracles import make_pairs
from support.families import EVERY
from torch import Tensor
from torch.testing import assert_close

import arith_lens as al
from arith_lens import activations
from arith_lens.attention import (
    ATTENTION_ROLES,
    BLANK,
    Patterns,
    attention_by_role,
    attention_to,
    kinds_of,
    most_looked_at,
    patterns_of,
)
from arith_lens.effects import Effects
from arith_lens.model import forwards
from arith_lens.pairs import Role

SAMPLE_OPTIONS: dict[str, Any] = {"templates": ["addition/0", "addition/5"], "keep": "all", "n": 40}


@torch.no_grad()
def raw_row(hf: Any, tokens: Tensor, layer: int, head: int) -> Tensor:
    """END's attention over one unpadded prompt, as Transformers gives it."""
    out = hf(tokens[None], output_attentions=True, use_cache=False)
    return out.attentions[layer][0, head, -1].float()


@pytest.fixture(scope="module", params=["llama", "mistral", "deep", "bf16"])
def both(request: pytest.FixtureRequest, make_hf: Callable[..., Any], tokenizer: Any) -> Any:
    """A Transformers model and the same one loaded: grouped queries in a sliding window, layer
    >= 10, bfloat16."""
    options: dict[str, dict[str, Any]] = {
        "deep": {"num_hidden_layers": 13, "num_attention_heads": 2, "hidden_size": 16},
        "mistral": {"family": "mistral"},
    }
    chosen = options.get(request.param, {})
    dtype = torch.bfloat16 if request.param == "bf16" else torch.float32
    return make_hf(**chosen).to(dtype), al.load_model((make_hf(**chosen).to(dtype), tokenizer))


def test_weights_by_role_are_transformers_own(both: Any) -> None:
    hf, model = both
    pairs = al.sample_pairs(model, **SAMPLE_OPTIONS)
    assert len({*pairs.lengths.tolist()}) > 1, "padding on the left must matter"
    last = model.n_layers - 1
    heads = [al.Head(0, 1), al.Head(last, 0), al.Head(last, 1)]
    found = attention_by_role(model, pairs, heads)
    assert found.axes == ("head", "role") and found.labels is not None
    assert found.labels["role"] == ATTENTION_ROLES and found.labels["head"] == tuple(
        map(str, heads)
    )
    assert pairs.spans is not None
    atol = 2e-2 if model.dtype == torch.bfloat16 else 1e-5
    for pair in range(0, len(pairs), 7):
        mask = pairs.attention_mask[pair]
        shift = int((~mask).sum())
        for row, head in enumerate(heads):
            weights = raw_row(hf, pairs.reference[pair][mask], head.layer, head.index)
            expected, rest = {}, weights.clone()
            for role in (Role.BOS, Role.OPERAND_A, Role.OPERATOR, Role.OPERAND_B, Role.END):
                start, stop = (int(x) - shift for x in pairs.spans[role][pair])
                expected[role] = float(weights[start:stop].sum())
                rest[start:stop] = 0
            expected[Role.OTHER] = float(rest.sum())
            ordered = torch.tensor([expected[Role(name)] for name in ATTENTION_ROLES])
            assert_close(found.per_pair[row, :, pair], ordered, atol=atol, rtol=0)
            assert not torch.allclose(found.per_pair[row, :, pair], ordered.flip(0), atol=3e-2)
    assert_close(found.per_pair.sum(1), torch.ones(3, len(pairs)), atol=atol, rtol=0)


def test_the_blank_before_b_is_taken_out_of_the_other_words(
    llama: al.HookedModel, make_hf: Callable[..., Any]
) -> None:
    pairs, head = al.sample_pairs(llama, **SAMPLE_OPTIONS), al.Head(2, 1)
    roles = attention_by_role(llama, pairs, [head]).per_pair[0]
    split = attention_by_role(llama, pairs, [head], blank=True)
    assert split.labels is not None
    names = split.labels["role"]
    parts = dict(zip(names, split.per_pair[0], strict=True))
    assert names.index(BLANK) + 1 == names.index(Role.OPERAND_B)
    assert_close(parts[BLANK] + parts[Role.OTHER], roles[ATTENTION_ROLES.index(Role.OTHER)])
    for name in {*ATTENTION_ROLES} - {Role.OTHER}:
        assert torch.equal(parts[name], roles[ATTENTION_ROLES.index(name)])
    assert pairs.spans is not None
    hf, seen = make_hf(), 0
    for pair in range(0, len(pairs), 7):
        mask = pairs.attention_mask[pair]
        tokens = pairs.reference[pair][mask]
        before = int(pairs.spans[Role.OPERAND_B][pair][0]) - int((~mask).sum()) - 1
        piece = llama.tokenizer.convert_ids_to_tokens(int(tokens[before]))
        expected = float(raw_row(hf, tokens, 2, 1)[before]) if piece in ("▁", "Ġ") else 0.0
        assert float(parts[BLANK][pair]) == pytest.approx(expected, abs=1e-5)
        seen += expected > 0
    assert seen, "some prompts have a blank token there"


def test_nothing_is_seen_beyond_a_sliding_window(mistral: al.HookedModel) -> None:
    pairs = al.sample_pairs(mistral, **SAMPLE_OPTIONS)
    assert int(pairs.lengths.min()) > 6, "each prompt must be longer than the window"
    looks = attention_by_role(mistral, pairs, [al.Head(0, 0), al.Head(2, 3)]).per_pair
    roles = [Role(name) for name in ATTENTION_ROLES]
    assert not looks[:, roles.index(Role.BOS)].any()
    near = torch.arange(pairs.reference.shape[1]) >= pairs.reference.shape[1] - 6
    for row, role in enumerate(roles):
        seen = (pairs.role_mask(role) & near).any(1)
        assert torch.equal((looks[:, row] > 0).all(0), seen)


def test_the_oracle_would_see_padding_that_is_looked_at(
    llama: al.HookedModel, make_hf: Callable[..., Any]
) -> None:
    pairs, head = al.sample_pairs(llama, **SAMPLE_OPTIONS), al.Head(2, 1)
    row = int(pairs.lengths.argmin())
    mask = pairs.attention_mask[row]
    bos = float(raw_row(make_hf(), pairs.reference[row][mask], head.layer, head.index)[0])
    unmasked = replace(pairs, attention_mask=torch.ones_like(pairs.attention_mask))
    right, wrong = (
        float(
            attention_by_role(llama, some, [head]).per_pair[0, ATTENTION_ROLES.index(Role.BOS), row]
        )
        for some in (pairs, unmasked)
    )
    assert right == pytest.approx(bos, abs=1e-5) and abs(wrong - bos) > 1e-3


def test_one_pair_alone_looks_the_same(llama: al.HookedModel) -> None:
    pairs = al.sample_pairs(llama, **SAMPLE_OPTIONS)
    whole = attention_by_role(llama, pairs, [al.Head(1, 1)])
    one = attention_by_role(llama, pairs[5], [al.Head(1, 1)])
    assert_close(one.per_pair[..., 0], whole.per_pair[..., 5], atol=1e-6, rtol=0)


def test_only_ends_rows_are_kept(llama: al.HookedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, kept = al.sample_pairs(llama, **SAMPLE_OPTIONS), []

    def watched(*given: Any, into: dict[str, Tensor], name: str, **options: Any) -> Any:
        result = keep_activation(*given, into=into, name=name, **options)
        kept.append(tuple(into[name].shape))
        return result

    keep_activation = activations.keep_activation
    monkeypatch.setattr(forwards, "keep_activation", watched)
    attention_by_role(llama, pairs, [al.Head(0, 1), al.Head(2, 2)])
    assert kept and all(shape[2] == 1 for shape in kept)  # [batch head query key]


def test_kinds_of_tokens_may_be_ones_own(llama: al.HookedModel) -> None:
    pairs = al.sample_pairs(llama, **SAMPLE_OPTIONS)
    found = attention_to(
        llama,
        pairs,
        [al.Head(0, 0)],
        lambda some: {"first": some.role_mask(Role.BOS), "rest": ~some.role_mask(Role.BOS)},
        axis="kind",
    )
    roles = attention_by_role(llama, pairs, [al.Head(0, 0)])
    assert_close(found.per_pair[:, 0], roles.per_pair[:, 0])
    assert found.labels is not None and found.labels["kind"] == ("first", "rest")


def looks(*rows: dict[str, float]) -> Effects:
    """Heads that look so at every one of three pairs."""
    values = torch.tensor([[row.get(role, 0.0) for role in ATTENTION_ROLES] for row in rows])
    labels = {"head": tuple(f"{i}.0" for i in range(len(rows))), "role": ATTENTION_ROLES}
    return Effects(values[..., None].expand(-1, -1, 3), ("head", "role"), "x", labels=labels)


def test_heads_are_sorted_by_where_their_weight_goes() -> None:
    found = looks(
        {"BOS": 0.8, "operand a": 0.06, "operand b": 0.05, "other": 0.09},
        {"BOS": 0.1, "operator": 0.5, "operand a": 0.4},
        {"operand a": 0.3, "operator": 0.3, "other": 0.4},
        {"other": 1.0},
    )
    kinds = {"0.0": "operand", "1.0": "operator", "2.0": "other", "3.0": "other"}
    assert kinds_of(found) == kinds
    best = most_looked_at(found).mean()
    assert [ATTENTION_ROLES[int(row.argmax())] for row in best] == [
        "BOS",
        "operator",
        "other",
        "other",
    ]
    assert torch.equal(best.sum(1), torch.ones(4))
    with pytest.raises(ValueError, match="the result of attention_by_role"):
        kinds_of(Effects(torch.rand(2, 3, 4), ("layer", "head"), "x"))


def test_patterns_of_a_prompt_are_transformers_own(both: Any) -> None:
    hf, model = both
    prompts = ("3 + 5 = ", "Q: What is 3 plus 5? A: ")
    heads = [al.Head(0, 1), al.Head(2, 0)]
    found = patterns_of(model, prompts, heads)
    for prompt, weights, tokens in zip(prompts, found.weights, found.tokens, strict=True):
        ids = model.tokenizer(prompt, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            raw = hf(ids, output_attentions=True, use_cache=False).attentions
        expected = torch.stack([raw[head.layer][0, head.index] for head in heads]).float()
        assert_close(weights, expected, atol=2e-2 if hf.dtype == torch.bfloat16 else 1e-5, rtol=0)
        assert len(tokens) == weights.shape[-1] and tokens[0] == "<s>"
    back = Patterns.from_arrays(found.to_arrays())
    assert back.tokens == found.tokens and torch.equal(back.weights[1], found.weights[1])
    assert len(found.to_dataframe()) == 2 * sum(map(len, found.tokens))


def test_mistakes_are_named(llama: al.HookedModel) -> None:
    pairs = al.sample_pairs(llama, **SAMPLE_OPTIONS)
    with pytest.raises(ValueError, match="expected heads to look at, found none"):
        attention_by_role(llama, pairs, [])
    with pytest.raises(IndexError, match="9"):
        attention_by_role(llama, pairs, [al.Head(9, 0)])
    bare = al.PromptPairs.from_tokens(
        pairs.reference, pairs.counterfactual, pairs.answer, pairs.attention_mask
    )
    with pytest.raises(ValueError, match="expected pairs with the roles of their tokens"):
        attention_by_role(llama, bare, [al.Head(0, 0)])
    with pytest.raises(ValueError, match="prompts with text and heads, found 0 prompts"):
        patterns_of(llama, [], [al.Head(0, 0)])
    with pytest.raises(ValueError, match="and 0 heads"):
        patterns_of(llama, "3 + 5 = ", [])


def test_weights_of_own_groups_are_transformers_own(make_hf: Any, mistral: Any) -> None:
    """A mask, and positions from both ends, in prompts of unequal lengths."""
    pairs = make_pairs(mistral)
    third = torch.arange(9) == ((~pairs.attention_mask).sum(1) + 2)[:, None]
    heads = [al.Head(0, 1), al.Head(2, 3)]
    groups: dict[str, Any] = {"third": third, "ends": [0, -1, -2]}
    found = attention_by_role(mistral, pairs, heads, groups=groups)
    assert found.axes == ("head", "group") and found.labels is not None
    assert found.labels["group"] == ("third", "ends", "the rest")
    hf = make_hf("mistral")
    for pair, mask in enumerate(pairs.attention_mask):
        for number, head in enumerate(heads):
            row = raw_row(hf, pairs.reference[pair, mask], head.layer, head.index)
            ends = row[0] + row[-1] + row[-2]
            expected = torch.stack([row[2], ends, row.sum() - row[2] - ends])
            assert_close(found.per_pair[number, :, pair], expected, atol=1e-5, rtol=1e-4)


def test_groups_that_are_none_or_share_a_token_are_refused(llama: Any) -> None:
    pairs = make_pairs(llama)
    shared = {"last": [-1], "end": [-2, -1]}
    with pytest.raises(ValueError, match="found last and end at column 8 of pair 0"):
        attention_by_role(llama, pairs, ["0.1"], groups=shared)
    with pytest.raises(ValueError, match="as a mask of"):
        attention_by_role(llama, pairs, ["0.1"], groups={"all": torch.ones(2, 9).bool()})
    with pytest.raises(ValueError, match="none called 'the rest'"):
        attention_by_role(llama, pairs, ["0.1"], groups={"the rest": [0]})


@torch.no_grad()
def test_weights_sum_to_one_but_where_a_sink_takes_a_part(llama: Any, tokenizer: Any) -> None:
    """A sink is one more score of the softmax, on no token."""
    hf, plain = (EVERY["gpt-oss"].make(len(tokenizer)) for _ in range(2))
    sinks = al.load_model((hf, tokenizer))
    for model in (llama, sinks):
        pairs = al.sample_pairs(model, "addition", n=4, keep="all", templates=["addition/0"])
        sums = attention_by_role(model, pairs, ["0.1", "1.2"]).per_pair.sum(1)
        if model is llama:
            assert_close(sums, torch.ones(2, 4))
            continue
        query = torch.stack(
            [_sink_share(plain, pairs, layer, head) for layer, head in ((0, 1), (1, 2))]
        )
        assert_close(sums, 1 - query, atol=1e-5, rtol=1e-4)
        assert bool((sums < 0.999).all()), "a sink that takes nothing would not be seen"


def _sink_share(hf: Any, pairs: Any, layer: int, head: int) -> Tensor:
    """What the sink takes of a head's softmax at END, from queries and keys by hand."""
    from transformers.models.gpt_oss.modeling_gpt_oss import apply_rotary_pos_emb

    own, seen = hf.model.layers[layer].self_attn, {}
    handle = own.register_forward_pre_hook(
        lambda _, __, given: seen.update(given), with_kwargs=True
    )
    hf(pairs.reference, attention_mask=pairs.attention_mask.long())
    handle.remove()
    x, (cos, sin) = seen["hidden_states"], seen["position_embeddings"]
    q, k = (
        part(x).unflatten(-1, (-1, own.head_dim)).transpose(1, 2)
        for part in (own.q_proj, own.k_proj)
    )
    q, k = apply_rotary_pos_emb(q, k, cos, sin)
    k = k.repeat_interleave(own.num_key_value_groups, 1)
    scores = (q[:, head, -1:] @ k[:, head].mT)[:, 0] * own.scaling
    sink = own.sinks[head].expand(len(x), 1)
    return torch.cat([scores, sink], 1).softmax(-1)[:, -1]
