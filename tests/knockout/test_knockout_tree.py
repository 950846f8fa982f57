"""Knockouts over plain layers and a tree of prefixes: the numbers of the forwards with hooks."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from support.fixtures import random_tokens

import arith_lens as al
from arith_lens.components import every_head, mlp_out_name, z_name
from arith_lens.hooks import scale_heads
from arith_lens.knockout import Knockout, counterfactual_means
from arith_lens.knockout import engine as engines
from arith_lens.knockout.engine import KnockoutEngine, engine_of
from arith_lens.knockout.tree_walk import prefix_tree
from arith_lens.model import HookedModel, load_model, plain_layers
from arith_lens.model.families import FAMILIES
from arith_lens.pairs import PromptPairs

CLASSES = {
    "gemma": "Gemma", "gemma2": "Gemma2", "gemma3_text": "Gemma3Text", "gpt2": "GPT2",
    "qwen2": "Qwen2", "qwen3": "Qwen3",
}  # fmt: skip
MIXED = [
    al.Head(0, 1),
    al.Mlp(0),
    al.Head(1, 2),
    al.Head(1, 3),
    al.Mlp(1),
    al.Head(2, 0),
    al.Mlp(2),
]


@pytest.fixture(scope="module")
def family(tokenizer: Any, llama: HookedModel, mistral: HookedModel) -> Callable[[str], Any]:
    """A random model of three layers of an architecture, made once."""

    @cache
    def make(name: str) -> HookedModel:
        import transformers

        if name in ("llama", "mistral"):
            return llama if name == "llama" else mistral
        sizes = {
            "vocab_size": len(tokenizer), "hidden_size": 32, "num_hidden_layers": 3,
            "num_attention_heads": 4, "initializer_range": 0.15, "bos_token_id": 1,
            "eos_token_id": 2, "attn_implementation": "eager",
        }  # fmt: skip
        if name != "gpt2":
            sizes |= {"intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8}
            sizes |= {"pad_token_id": 0, "sliding_window": 6}
        if name == "gemma2":
            sizes |= {"query_pre_attn_scalar": 8, "attn_logit_softcapping": 5.0}
        config = getattr(transformers, f"{CLASSES[name]}Config")(**sizes)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            head = _HEAD[name == "gpt2"]
            hf_model = getattr(transformers, CLASSES[name].removesuffix("Text") + head)(config)
            for parameter, weight in hf_model.named_parameters():
                if weight.ndim == 1:  # norms and biases that would hide if they were forgotten
                    weight.data.uniform_(0.5, 1.5) if "bias" not in parameter else (
                        weight.data.normal_(0, 0.3)
                    )
        return load_model((hf_model.eval(), tokenizer))

    return make


_HEAD = ("ForCausalLM", "LMHeadModel")


def shared_prefixes(model: HookedModel, n: int = 6, width: int = 9) -> PromptPairs:
    """Two templates of different lengths, each begins with the same tokens; two prompts equal."""
    tokens, other = (random_tokens(model, n, width, seed=seed) for seed in (0, 1))
    mask = torch.ones_like(tokens, dtype=torch.bool)
    for row in range(n):
        start = 3 * (row % 2)
        mask[row, :start] = False
        for rows in (tokens, other):
            rows[row, start] = 1
            rows[row, start + 1 : start + 4] = 20 + row % 2
    tokens[n - 1] = tokens[(n - 1) % 2]
    names = tuple(f"addition/{row % 2}" for row in range(n))
    pairs = PromptPairs.from_tokens(tokens, other, torch.arange(n) + 40, mask)
    return replace(pairs, template=names)


def engine(model: HookedModel, pairs: PromptPairs, **settings: Any) -> KnockoutEngine:
    components = settings.pop("components", MIXED)
    return engine_of(model, pairs, components, Knockout(**settings))


def differences(fast: KnockoutEngine, components: list[Any] | None = None) -> float:
    """The largest difference of p(C) from forwards with hooks; whether C is likeliest is equal."""
    components = MIXED if components is None else components
    variants = [frozenset(components[:k]) for k in range(len(components) + 1)]
    assert fast.layers is not None
    actual = fast(variants, progress=False)
    expected = replace(fast, layers=None)(variants, progress=False)
    assert not torch.allclose(expected[1, 0], expected[1, -1], atol=1e-4), "the test can fail"
    assert torch.equal(actual[0], expected[0])
    assert torch.equal(actual[2], expected[2]), "the likeliest token"
    return float((actual[1] - expected[1]).abs().max())


@pytest.mark.parametrize("positions", ["all", "end"])
@pytest.mark.parametrize("name", [row.model_type for row in FAMILIES.values() if row.plain_layers])
def test_each_family_has_the_numbers_of_the_forwards_with_hooks(name, positions, family) -> None:
    """Unequal lengths with padding, shared prefixes; grouped queries, windows, caps, biases."""
    model = family(name)
    assert differences(engine(model, shared_prefixes(model), positions=positions)) < 1e-5


@pytest.mark.parametrize(
    "settings",
    [
        {"ablation": "zero"},
        {"ablation": "zero", "positions": "end"},
        {"ablation": "resample"},
        {"ablation": "resample", "positions": "end"},
        {"means": "all_tokens"},
    ],
)
def test_each_replacement_has_the_numbers_of_the_forwards_with_hooks(settings, mistral) -> None:
    pairs = shared_prefixes(mistral)
    assert differences(engine(mistral, pairs[: len(pairs) - 1], **settings)) < 1e-5


def test_layers_of_two_digits_and_a_batch_of_one(deep) -> None:
    components = [al.Head(0, 1), al.Head(10, 1), al.Mlp(11), al.Head(12, 0)]
    pairs = shared_prefixes(deep)[:1]
    one = engine(deep, pairs, components=components, means="all_tokens")
    assert differences(one, components) < 1e-5


@pytest.mark.parametrize("positions", ["all", "end"])
def test_bfloat16_is_the_same_up_to_its_rounding(positions, make_hf, tokenizer) -> None:
    half = load_model((make_hf("mistral"), tokenizer), dtype=torch.bfloat16)
    fast = engine(half, shared_prefixes(half), positions=positions)
    assert fast.layers is not None
    variants = [frozenset(MIXED)]
    actual = fast(variants, progress=False)[1]
    expected = replace(fast, layers=None)(variants, progress=False)[1]
    assert torch.allclose(actual, expected, atol=2e-2)


def test_states_and_pairs_at_a_time_do_not_matter(llama, monkeypatch) -> None:
    pairs = shared_prefixes(llama)
    variants = [frozenset(MIXED[:k]) for k in range(5)]
    expected = engine(llama, pairs)(variants, progress=False)[1]
    monkeypatch.setattr(engines, "SHARD", 2)
    monkeypatch.setattr(engines, "TOKENS_AT_ONCE", {"cpu": 1, "cuda": 1})
    actual = engine(llama, pairs)(variants, progress=False)[1]
    assert torch.allclose(actual, expected, atol=1e-6)


def test_active_hooks_are_respected(llama) -> None:
    pairs = shared_prefixes(llama)
    without = al.knock_out(llama, pairs, MIXED[:2], progress=False)
    with llama.hooks(scale_heads([al.Head(2, 1)], 0.0)):
        assert plain_layers(llama) is None
        hooked = al.knock_out(llama, pairs, MIXED[:2], progress=False)
    assert not torch.allclose(hooked.probability, without.probability, atol=1e-5)
    handle = llama.bridge.original_model.model.norm.register_forward_hook(lambda *_: None)
    assert plain_layers(llama) is None, "PyTorch's own hooks too"
    handle.remove()
    assert plain_layers(llama) is not None


def test_layers_that_compute_something_else_are_not_used(llama, monkeypatch) -> None:
    """As where a family's code changes: the hooks' numbers are the model's."""
    pairs = shared_prefixes(llama)
    expected = al.knock_out(llama, pairs, MIXED, progress=False)

    def swapped(model: HookedModel) -> Any:
        layers = plain_layers(model)
        assert layers is not None
        return (layers[1], layers[0], *layers[2:])

    monkeypatch.setattr(engines, "plain_layers", swapped)
    monkeypatch.setattr(engines, "CERTIFICATES", {})  # of the layers before they were swapped
    assert engine(llama, pairs).layers is None
    actual = al.knock_out(llama, pairs, MIXED, progress=False)
    assert torch.allclose(actual.probability, expected.probability, atol=1e-5)


def other_token(settings: dict[str, Any]) -> None:
    tokens = settings["pairs"].reference.clone()
    tokens[0, -2] += 1
    settings["pairs"] = replace(settings["pairs"], reference=tokens)


def weight_of(settings: dict[str, Any]) -> torch.Tensor:
    return settings["model"].bridge.original_model.model.layers[2].mlp.up_proj.weight.data


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a weight": lambda settings: weight_of(settings)[3, 5].add_(1e-6),
    "two rows of a weight": lambda settings: weight_of(settings).copy_(
        weight_of(settings)[[1, 0, *range(2, 48)]]
    ),
    "two columns of a weight": lambda settings: weight_of(settings).copy_(
        weight_of(settings)[:, [1, 0, *range(2, 32)]]
    ),
    "the epsilon of a norm": lambda settings: setattr(
        settings["model"].bridge.original_model.model.norm, "variance_epsilon", 1e-3
    ),
    "a buffer": lambda settings: settings[
        "model"
    ].bridge.original_model.model.rotary_emb.inv_freq.mul_(1.01),
    "precision": lambda settings: settings["model"].bridge.original_model.to(torch.bfloat16),
    "pairs": other_token,
    "positions": lambda settings: settings.update(positions="end"),
    "ablation": lambda settings: settings.update(ablation="zero"),
    "means": lambda settings: settings.update(means="all_tokens"),
    "components": lambda settings: settings.update(components=MIXED[:3]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_engine_is_compared_with_hooks_again_after_a_change(
    change: str, make_model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[Any] = []
    monkeypatch.setattr(engines, "CERTIFICATES", {})
    monkeypatch.setattr(engines, "fast_agrees", lambda *args: not compared.append(args))
    model = make_model("llama")
    settings: dict[str, Any] = {"model": model, "pairs": shared_prefixes(model)}
    for _ in range(2):
        assert engine(**settings).layers is not None
    assert len(compared) == 1, "computed once"
    CHANGES[change](settings)
    for _ in range(2):
        assert engine(**settings).layers is not None
    assert len(compared) == 2, "and once again after the change"


def test_vectors_of_the_user_belong_to_what_is_compared(llama, monkeypatch) -> None:
    monkeypatch.setattr(engines, "CERTIFICATES", {})
    pairs = shared_prefixes(llama)
    vectors = counterfactual_means(llama, pairs, MIXED)
    engine(llama, pairs, means=vectors)
    engine(llama, pairs, means=vectors)
    engine(llama, pairs, means={name: vector + 1 for name, vector in vectors.items()})
    assert [*engines.CERTIFICATES.values()] == [True, True]


def test_an_engine_that_did_not_agree_is_not_trusted_later(llama, monkeypatch) -> None:
    monkeypatch.setattr(engines, "CERTIFICATES", {})
    pairs, right = shared_prefixes(llama), engines.fast_agrees
    monkeypatch.setattr(engines, "fast_agrees", lambda *_: False)
    assert engine(llama, pairs).layers is None
    monkeypatch.setattr(engines, "fast_agrees", right)
    assert engine(llama, pairs).layers is None
    assert engine(llama, pairs[:4]).layers is not None


def test_a_models_subclass_and_other_families_are_run_with_hooks(make_hf, tokenizer) -> None:
    from transformers import LlamaForCausalLM

    class Capped(LlamaForCausalLM):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output: Any = super().forward(*args, **kwargs)
            output.logits = output.logits.tanh()
            return output

    hf_model = make_hf("llama")
    hf_model.__class__ = Capped
    hf_model.config.architectures = ["LlamaForCausalLM"]
    assert plain_layers(load_model((hf_model, tokenizer))) is None


def test_nothing_is_left_on_the_model(llama) -> None:
    tokens = random_tokens(llama, 2, 6)
    expected = llama(tokens)
    before = {name: [*vars(part)] for name, part in llama.bridge.named_modules()}
    layers = plain_layers(llama)
    assert layers is not None
    al.knock_out(llama, shared_prefixes(llama), MIXED, positions="end", progress=False)
    assert {name: [*vars(part)] for name, part in llama.bridge.named_modules()} == before
    assert torch.equal(llama(tokens), expected)
    weights = {id(weight) for weight in llama.bridge.parameters()}
    assert all(id(weight) in weights for one in layers for weight in one.layer.parameters())


def test_a_node_is_a_prefix_of_a_group() -> None:
    tokens = torch.tensor([[1, 5, 6, 7], [1, 5, 6, 8], [9, 1, 5, 6], [1, 5, 6, 7], [1, 5, 6, 7]])
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[2, 0] = False
    tree = prefix_tree(tokens, mask, torch.tensor([0, 0, 0, 0, 1]))
    paths: dict[int, tuple[Any, ...]] = {}
    for row, column in mask.nonzero().tolist():
        prefix = tuple(tokens[row, : column + 1][mask[row, : column + 1]].tolist())
        path = (row == 2, row == 4, prefix)
        assert paths.setdefault(int(tree.node[row, column]), path) == path
    assert len({*paths.values()}) == len(paths) == len(tree.pos) == 4 + 1 + 3 + 4
    assert torch.equal(tree.ends, tree.node[:, -1])
    for node, (prompt, column) in enumerate(zip(tree.prompt, tree.pos, strict=True)):
        assert int(tree.node[prompt, column]) == node
    assert sorted(n for one in tree.branches for n in range(12)[one.nodes]) == [*range(12)]


def test_shared_prefixes_are_computed_once_and_the_last_layer_for_end(llama) -> None:
    """Rows that enter the plain MLPs, counted."""
    pairs = shared_prefixes(llama, n=4)
    fast = engine(llama, pairs, components=every_head(3, 4)[:2])
    batch = fast.batch(torch.arange(4))
    assert batch.fast is not None and fast.layers is not None
    counted = [0] * 3
    for layer, plain in enumerate(fast.layers):
        plain.mlp.register_forward_pre_hook(
            lambda _, args, layer=layer: counted.__setitem__(
                layer, counted[layer] + args[0][..., 0].numel()
            )
        )
    fast([frozenset()], progress=False)
    n_nodes = len(batch.fast.tree.pos)
    assert counted == [n_nodes, n_nodes, 4]
    assert n_nodes < int(pairs.lengths.sum())


def test_means_stand_in_where_the_prompts_differ_alone(llama) -> None:
    """The values by hook name that a forward is given are those of its pairs."""
    pairs = shared_prefixes(llama)
    batch = engine(llama, pairs).batch(torch.tensor([1, 3]))
    values = batch.values([z_name(0), mlp_out_name(1)])
    assert values[z_name(0)].shape[:2] == batch.pairs.reference.shape
    assert values[mlp_out_name(1)].shape[-1] == 32
