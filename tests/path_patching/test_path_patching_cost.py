"""The plan against what torch counts and allocates when the same is computed."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest
import torch
from oracles import make_pairs
from support.families import EVERY
from torch.profiler import ProfilerActivity, profile
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from arith_lens.components import Head, Mlp
from arith_lens.model import load_model
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import UnsupportedTrunk, path_patch, plan
from arith_lens.path_patching.cost import packed_bytes

SENDERS = [Head(0, 1), Head(2, 0), Mlp(1)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"senders": [Head(2, 0)]},
        {"paths": "direct"},
        {"paths": "direct", "metric": "logit", "senders": SENDERS},
        {"metric": "probability"},
        {"metric": "logit_difference", "senders": SENDERS},
        {"engine": "hooks", "paths": "total", "senders": SENDERS},
        {"engine": "hooks", "metric": "logprob", "senders": SENDERS},
        {"batch_size": 2},
    ],
    ids=str,
)
def test_the_plan_counts_as_torch_does(model: Any, options: dict[str, Any]) -> None:
    pairs = make_pairs(model)  # of unequal lengths: two pairs at a time have narrower shards
    if options.get("metric") == "logit_difference":
        options = options | {"foil": (pairs.answer + 1) % model.cfg.d_vocab}
    cost = plan(model, pairs, **options)
    with FlopCounterMode(display=False) as counted:
        path_patch(model, pairs, certify=False, **options)
    assert cost.flops == counted.get_total_flops()
    assert cost.n_pairs == 5 and cost.n_senders == len(options.get("senders", range(15)))


@pytest.mark.parametrize("senders", [None, SENDERS])
def test_patching_end_with_all_reacting_computes_end_alone_from_the_senders_layer(
    llama: Any, senders: Any
) -> None:
    """Of prompts of one length; whole forwards would cost several times as much."""
    pairs = make_pairs(llama, (8,) * 5)
    hooks: dict[str, Any] = {"paths": "total", "engine": "hooks"}
    cost = plan(llama, pairs, senders=senders, metric="logit", **hooks)
    with FlopCounterMode(display=False) as counted:
        effects = path_patch(llama, pairs, senders=senders, metric="logit", **hooks)
    assert cost.flops == counted.get_total_flops()
    forward = cost.recording_flops / 2
    assert cost.patching_flops < (0.5 if senders is None else 1) * forward * (1 + cost.n_senders)
    names = ["blocks.2.attn.hook_z", "blocks.1.hook_mlp_out"]
    _, other = llama.run_with_cache(pairs.counterfactual, names_filter=names)

    def logit(name: str = "", head: int | None = None) -> torch.Tensor:
        def put(activation: torch.Tensor, hook: Any = None) -> torch.Tensor:
            changed = activation.clone()
            part = slice(None) if head is None else head
            changed[:, -1, part] = other[name][:, -1, part]
            return changed

        hooks = [(name, put)] if name else []
        return llama.run_with_hooks(pairs.reference, fwd_hooks=hooks)[range(5), -1, pairs.answer]

    for component, changed in {
        "2.0": logit(names[0], 0) - logit(),
        "MLP 1": logit(names[1]) - logit(),
    }.items():
        assert_close(effects[component].per_pair, changed, atol=2e-5, rtol=1e-4)
        assert changed.abs().max() > 1e-3


def test_more_of_anything_costs_more(llama: Any) -> None:
    pairs = make_pairs(llama)
    whole = plan(llama, pairs)
    assert plan(llama, pairs[:2]).flops < whole.flops
    assert plan(llama, pairs, senders=SENDERS).flops < whole.flops
    assert plan(llama, pairs, paths="direct").flops < whole.flops
    assert plan(llama, pairs, paths="total", engine="hooks").flops > whole.flops
    assert plan(llama, pairs, batch_size=1).peak_bytes < whole.peak_bytes
    assert plan(llama, pairs, metric="logprob").patching_flops > whole.patching_flops


def peak_of(compute: Callable[[], Any]) -> int:
    """The most bytes that torch's allocator held at once, above those held before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        compute()
    found: Any = profiler.profiler.kineto_results.events()  # type: ignore[union-attr]
    memory = [event for event in found if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(memory, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


SHAPES: dict[str, tuple[dict[str, int], tuple[int, int], dict[str, Any]]] = {
    # name: (model, (pairs, tokens a prompt), options)
    "in the MLP": (
        {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4}, (64, 16), {}
    ),
    "in the attention": (
        {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8}, (16, 90), {}
    ),
    "in the sweep": (
        {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 32,
         "num_hidden_layers": 6}, (64, 5), {}
    ),
    "one pair of a wide model": (
        {"hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8,
         "num_hidden_layers": 2}, (1, 6), {}
    ),
    "one pair of a large vocabulary": (
        {"hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8,
         "num_hidden_layers": 2, "vocab_size": 8000}, (1, 6), {}
    ),
    "direct, in a wide model": (
        {"hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8,
         "num_hidden_layers": 2}, (2, 6), {"paths": "direct"}
    ),
    "few pairs with many heads": (
        {"hidden_size": 256, "intermediate_size": 688, "num_attention_heads": 16,
         "num_hidden_layers": 6}, (3, 6), {}
    ),
    "in the vocabulary": (
        {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8}, (64, 8),
        {"metric": "logprob"},
    ),
    "by hooks": (
        {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 4}, (24, 24),
        {"engine": "hooks", "paths": "total", "senders": SENDERS},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def model_of_shape(make_model: Callable[..., Any]) -> Callable[[str, str], Any]:
    """A model of a family and a shape; the last one is kept for its other dtype."""
    return lru_cache(maxsize=1)(lambda family, shape: make_model(family, **SHAPES[shape][0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_plan_is_never_below_the_peak_and_close_above_it(
    model_of_shape: Callable[[str, str], Any], family: str, shape: str, dtype: torch.dtype
) -> None:
    _, (n_pairs, length), more = SHAPES[shape]
    model = model_of_shape(family, shape)
    model.bridge.original_model.to(dtype)
    tokens = torch.randint(3, model.cfg.d_vocab, (2, n_pairs, length))
    pairs = PromptPairs.from_tokens(tokens[0], tokens[1], tokens[0, :, 0])
    options: dict[str, Any] = {"metric": "logit", **more}
    foreseen = plan(model, pairs, **options).peak_bytes
    path_patch(model, pairs[:1], certify=False, **options)  # what is made once is not of the peak
    measured = peak_of(lambda: path_patch(model, pairs, **options))
    # a processor that does not multiply bfloat16 itself packs no weights
    above = 0 if dtype == torch.float32 else packed_bytes(model)
    assert measured <= foreseen < (1.2 if measured < 5e6 else 1.1) * measured + above


def test_the_time_follows_from_that_of_a_first_shard(llama: Any) -> None:
    pairs = make_pairs(llama, (8,) * 6)
    whole, first = plan(llama, pairs), plan(llama, pairs[:2])
    assert whole.seconds(first, 5.0) == pytest.approx(15.0)
    assert whole.seconds(whole, 5.0) == 5.0


def test_it_prints_in_a_line(llama: Any) -> None:
    pairs = make_pairs(llama)
    assert str(plan(llama, pairs)).startswith("5 pairs, 15 senders: ")
    assert "to sweep" in str(plan(llama, pairs)) and "bytes" in str(plan(llama, pairs))
    total = plan(llama, pairs, paths="total", engine="hooks")
    assert "once for each sender" in str(total)


def test_what_cannot_be_computed_cannot_be_planned(llama: Any, tokenizer: Any) -> None:
    pairs = make_pairs(llama)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"paths": "total"}, "engine='hooks'"),
        ({"engine": "fast"}, "engine among sweep, hooks"),
        ({"batch_size": 0}, "batch_size"),
        ({"metric": "logit_difference"}, "foil"),
    ]
    for options, message in refused:
        with pytest.raises(ValueError, match=message):
            plan(llama, pairs, **options)
    bloom = load_model((EVERY["BLOOM"].make(len(tokenizer)), tokenizer))
    with pytest.raises(UnsupportedTrunk, match="residual"):
        plan(bloom, make_pairs(bloom))
