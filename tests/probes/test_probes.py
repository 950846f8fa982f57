"""Probes of MLPs equal a direct computation from raw Transformers activations."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import arith_lens as al
from arith_lens.pairs import Role
from arith_lens.probes import PROBE_ROLES, digit_tokens

SAMPLE_OPTIONS: dict[str, Any] = {"templates": ["addition/0", "addition/5"], "keep": "all", "n": 24}


@torch.no_grad()
def raw_states(hf: Any, pairs: al.PromptPairs, read: str) -> Tensor:
    """[layer pair d_model] at END, by torch's hooks on the layers' modules, prompt by prompt."""
    found: list[list[Tensor]] = [[] for _ in hf.model.layers]

    def record_state(layer: int, value: Any) -> None:
        value = value[0] if isinstance(value, tuple) else value
        found[layer].append(value[0, -1].float())

    with ExitStack() as stack:
        for index, layer in enumerate(hf.model.layers):
            if read == "mlp_in":
                norm = layer.post_attention_layernorm
                hook = norm.register_forward_pre_hook(
                    lambda m, args, i=index: record_state(i, args[0])
                )
            else:
                module = layer.mlp if read == "write" else layer
                hook = module.register_forward_hook(
                    lambda m, args, out, i=index: record_state(i, out)
                )
            stack.callback(hook.remove)
        for tokens, mask in zip(pairs.reference, pairs.attention_mask, strict=True):
            hf(tokens[mask][None], use_cache=False)
    return torch.stack([torch.stack(states) for states in found])


def raw_cosines(hf: Any, pairs: al.PromptPairs, read: str, tokens: Tensor) -> Tensor:
    """[layer token pair], a state at a time."""
    states, w_u = raw_states(hf, pairs, read), hf.lm_head.weight.float()
    values = torch.empty(len(states), tokens.shape[1], len(pairs))
    for layer, rows in enumerate(states):
        for pair, x in enumerate(rows):
            u = w_u[tokens[pair]]
            values[layer, :, pair] = (u @ x) / (x.norm() * u.norm(dim=-1))
    return values


def digits_of(model: Any) -> Tensor:
    """The ids of 0 to 9 in a tokenizer that splits digits."""
    return torch.tensor(model.tokenizer.convert_tokens_to_ids([str(digit) for digit in range(10)]))


FLOAT32 = ["llama", "mistral", "deep"]
EVERY = pytest.mark.parametrize("both", [*FLOAT32, "bf16"], indirect=True)


@pytest.fixture(scope="module", params=FLOAT32)
def both(request: pytest.FixtureRequest, make_hf: Callable[..., Any], tokenizer: Any) -> Any:
    """A Transformers model and the same one loaded: grouped queries, layer >= 10, bfloat16."""
    options: dict[str, dict[str, Any]] = {
        "deep": {"num_hidden_layers": 13, "num_attention_heads": 2, "hidden_size": 16},
        "mistral": {"family": "mistral"},
    }
    chosen = options.get(request.param, {})
    dtype = torch.bfloat16 if request.param == "bf16" else torch.float32
    return make_hf(**chosen).to(dtype), al.load_model((make_hf(**chosen).to(dtype), tokenizer))


@EVERY
@pytest.mark.parametrize("read", ["mlp_in", "write", "mlp_out"])
def test_cosines_are_those_of_raw_activations(both: Any, read: Any) -> None:
    hf, model = both
    pairs = al.sample_pairs(model, **SAMPLE_OPTIONS)
    assert len({*pairs.lengths.tolist()}) > 1, "padding on the left must matter"
    digits = digits_of(model).expand(len(pairs), -1)
    atol = 2e-2 if model.dtype == torch.bfloat16 else 1e-5  # other batches round otherwise
    found = al.mlp_probe(model, pairs, read=read, tokens="digits")
    expected = raw_cosines(hf, pairs, read, digits)
    assert_close(found.per_pair, expected, atol=atol, rtol=0)
    assert not torch.allclose(found.per_pair, expected.flip(1), atol=0.1), "it must be able to fail"
    assert found.axes == ("layer", "token") and found.labels == {"token": (*map(str, range(10)),)}


@pytest.mark.parametrize("read", ["mlp_in", "write"])
def test_operands_answer_and_other_digits(both: Any, read: Any) -> None:
    hf, model = both
    pairs = al.sample_pairs(model, **SAMPLE_OPTIONS)
    digits = digits_of(model)
    cosines = raw_cosines(hf, pairs, read, digits.expand(len(pairs), -1))
    found = al.mlp_probe(model, pairs, read=read).per_pair
    assert pairs.operands is not None
    for pair, (a, b) in enumerate(pairs.operands.tolist()):
        c = a + b
        others = [d for d in range(10) if d != c]
        strict = [d for d in range(10) if d not in (a, b, c)]
        expected = [cosines[:, [one], pair].mean(1) for one in (a, b, c)]
        expected += [cosines[:, some, pair].mean(1) for some in (others, strict)]
        assert_close(found[:, :, pair], torch.stack(expected, dim=1), atol=1e-5, rtol=0)


def test_an_operand_of_another_token_is_still_no_other_digit(make_hf: Any, tokenizer: Any) -> None:
    """As where a tokenizer writes " 3" in the prompt and "3" after END."""
    hf, model = make_hf(), al.load_model((make_hf(), tokenizer))
    pairs = al.sample_pairs(model, **SAMPLE_OPTIONS)
    assert pairs.spans is not None and pairs.operands is not None
    reference, elsewhere = pairs.reference.clone(), int(digits_of(model).max()) + 1
    rows = torch.arange(len(pairs))
    reference[rows, pairs.spans[Role.OPERAND_A][:, 0]] = elsewhere
    assert not bool((digits_of(model) == elsewhere).any())
    spaced = replace(pairs, reference=reference)
    cosines = raw_cosines(hf, spaced, "mlp_in", digits_of(model).expand(len(pairs), -1))
    found = al.mlp_probe(model, spaced).per_pair
    for pair, (a, b) in enumerate(pairs.operands.tolist()):
        others = [d for d in range(10) if d not in (a, b, a + b)]
        assert_close(found[:, 4, pair], cosines[:, others, pair].mean(1), atol=1e-5, rtol=0)


def test_one_pair_alone_has_the_same_cosines(llama: al.HookedModel) -> None:
    pairs = al.sample_pairs(llama, **SAMPLE_OPTIONS)
    whole, one = al.mlp_probe(llama, pairs), al.mlp_probe(llama, pairs[3])
    assert_close(one.per_pair[..., 0], whole.per_pair[..., 3], atol=1e-6, rtol=0)


def test_the_final_norms_weight_counts_where_asked(
    make_hf: Callable[..., Any], tokenizer: Any
) -> None:
    hf = make_hf()
    model = al.load_model((make_hf(), tokenizer))
    pairs = al.sample_pairs(model, **SAMPLE_OPTIONS)
    tokens = digits_of(model)
    states = raw_states(hf, pairs, "write") * hf.model.norm.weight
    u = hf.lm_head.weight[tokens]
    expected = torch.cosine_similarity(states[:, None], u[None, :, None], dim=-1)
    found = al.mlp_probe(model, pairs, read="write", final_norm=True, tokens="digits")
    assert_close(found.per_pair, expected, atol=1e-5, rtol=0)
    plain = al.mlp_probe(model, pairs, read="write", tokens="digits")
    assert not torch.allclose(found.per_pair, plain.per_pair, atol=1e-2)


@EVERY
def test_the_logit_lens_is_transformers_own_logits_after_the_last_layer(both: Any) -> None:
    hf, model = both
    pairs = al.sample_pairs(model, **SAMPLE_OPTIONS)
    found = al.logit_lens(model, pairs).per_pair
    loose = model.dtype == torch.bfloat16
    for pair, (tokens, mask) in enumerate(zip(pairs.reference, pairs.attention_mask, strict=True)):
        with torch.no_grad():
            logits = hf(tokens[mask][None]).logits[0, -1].float()
        c = int(pairs.answer[pair])
        rank = 1 + int((logits > logits[c]).sum())
        assert_close(found[-1, 1, pair], logits.softmax(-1)[c], rtol=0.2 if loose else 1e-4, atol=0)
        assert abs(int(found[-1, 0, pair]) - rank) <= (8 if loose else 0)


def test_a_logit_lens_runs_each_layer_once(both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, model = both
    pairs = al.sample_pairs(model, **SAMPLE_OPTIONS)
    layer, calls = model.blocks[1].original_component, []
    forward = type(layer).forward

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.extend([1] if self is layer else [])
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(type(layer), "forward", counted)
    al.logit_lens(model, pairs)
    assert len(calls) == 1


@pytest.mark.parametrize("read", ["mlp_in", "write", "mlp_out"])
def test_the_logit_lens_of_every_layer(both: Any, read: Any) -> None:
    hf, model = both
    pairs = al.sample_pairs(model, **SAMPLE_OPTIONS)
    with torch.no_grad():
        logits = hf.lm_head(hf.model.norm(raw_states(hf, pairs, read)))
    index = pairs.answer.expand(len(logits), -1)[..., None]
    expected = logits.softmax(-1).gather(-1, index)[..., 0]
    found = al.logit_lens(model, pairs, read=read)
    assert_close(found.per_pair[:, 1], expected, rtol=1e-3, atol=1e-7)
    rank = (logits >= logits.gather(-1, index)).sum(-1)
    assert float((found.per_pair[:, 0] == rank).float().mean()) > 0.999
    assert found.labels == {"measure": ("rank", "probability")}


@pytest.mark.parametrize("read", ["write", "mlp_out"])
def test_logits_of_digits_are_those_of_the_lens(both: Any, read: Any) -> None:
    hf, model = both
    pairs = al.sample_pairs(model, **SAMPLE_OPTIONS)
    with torch.no_grad():
        logits = hf.lm_head(hf.model.norm(raw_states(hf, pairs, read)))
    expected = logits[..., digits_of(model)].transpose(1, 2)
    found = al.mlp_probe(model, pairs, read=read, tokens="digits", unit="logit")
    assert_close(found.per_pair, expected, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(found.per_pair, expected.flip(1), atol=1e-2), (
        "it must be able to fail"
    )
    assert found.metric == f"logit of {read}"


def test_a_tie_counts_against_the_answer(llama: al.HookedModel) -> None:
    from arith_lens.probes.reading import _rank_and_probability

    rank, probability = _rank_and_probability(torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([0]))
    assert rank.tolist() == [2.0] and 0.4 < float(probability) < 0.43


def test_digits_are_those_that_follow_the_prompt(llama: al.HookedModel) -> None:
    pairs = al.sample_pairs(llama, **SAMPLE_OPTIONS)
    assert torch.equal(digit_tokens(llama, pairs), digits_of(llama).expand(len(pairs), -1))


def test_what_a_probe_cannot_read_is_refused(llama: al.HookedModel) -> None:
    pairs = al.sample_pairs(llama, **SAMPLE_OPTIONS)
    bare = al.PromptPairs.from_tokens(
        pairs.reference, pairs.counterfactual, pairs.answer, pairs.attention_mask
    )
    with pytest.raises(ValueError, match="pairs with text, found bare tokens"):
        al.mlp_probe(llama, bare)
    wide = al.sample_pairs(
        llama, "addition", n=4, keep="all", operands=range(11, 20), answer_token="first",
        templates=["addition/0"],
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"operands of one token, found \[2, 2\] tokens"):
        al.mlp_probe(llama, wide)
    assert al.mlp_probe(llama, wide, tokens="digits").per_pair.shape == (3, 10, 4)
    with pytest.raises(ValueError, match="mlp_in, write, mlp_out, found 'mlp'"):
        al.mlp_probe(llama, pairs, read="mlp")
    with pytest.raises(ValueError, match="among roles, digits, found 'words'"):
        al.mlp_probe(llama, pairs, tokens="words")
    with pytest.raises(ValueError, match="among cosine, logit, found 'probability'"):
        al.mlp_probe(llama, pairs, unit="probability")


def test_roles_name_what_they_are(llama: al.HookedModel) -> None:
    probe = al.mlp_probe(llama, al.sample_pairs(llama, **SAMPLE_OPTIONS))
    assert probe.labels == {"token": PROBE_ROLES}
    assert {*probe.to_dataframe()["token"]} == {*PROBE_ROLES}
