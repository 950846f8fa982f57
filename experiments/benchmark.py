"""How fast is the sweep? The same path patching in several ways, on one random LLaMA, in one run.

Rivals: a forward a component in raw Transformers (what public notebooks do), this package's own
hook engine, and a strong baseline that carries END's residual stream alone, one sender at a time.
All compute every head and every MLP for every pair; the largest difference from the first is shown.

The floor is what a perfect sweep would take here: its operations at the rate this machine
multiplies float32 matrices, and two plain forwards without the vocabulary matrix.

Ratios are of processor time, which other work on the machine disturbs less than the clock.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
import tyro
from torch import Tensor

from arith_lens import PromptPairs, load_model, path_patch
from arith_lens.components import attn_out_name, mlp_out_name, resid_pre_name, z_name
from arith_lens.model import HookedModel, record
from arith_lens.path_patching import plan

WARM, QUICK = 1, 9
SWEEP, CERTIFIED = "sweep", "sweep, with its certificate"
FORWARDS, PRODUCTS = "two forwards", "matrix products"
SIZE, N_PRODUCTS = 1024, 12


@dataclass(frozen=True)
class Config:
    """A random LLaMA and random prompts; nothing is downloaded."""

    n_layers: int = 8
    d_model: int = 512
    n_heads: int = 16
    d_mlp: int = 1376
    d_vocab: int = 32_000
    n_pairs: int = 8
    n_tokens: int = 16
    threads: int = 0
    """0 leaves torch's choice."""
    repeats: int = QUICK
    """Of the quick methods; the median counts. A forward a component, and the hooks, run once."""


@dataclass(frozen=True)
class Timing:
    """Seconds by the clock and of the processor, and the effects, [sender pair], heads first."""

    seconds: float
    cpu: float
    effects: Tensor


def main(config: Config) -> None:
    """Time every method and print the table."""
    if config.threads:
        torch.set_num_threads(config.threads)
    raw, pairs = random_llama(config), random_pairs(config)
    model = load_model((copy.deepcopy(raw), any_tokenizer()))  # a bridge changes what it wraps
    slow = {
        "a forward a component, raw Transformers": lambda: forward_a_component(raw, pairs),
        "hook engine": lambda: by_hooks(model, pairs),
    }
    quick = {
        "END alone, a sender at a time": lambda: end_only(model, pairs),
        CERTIFIED: lambda: by_sweep(model, pairs, certify=True),
        SWEEP: lambda: by_sweep(model, pairs, certify=False),
    }
    square = torch.rand(3, SIZE, SIZE)
    floor = {FORWARDS: lambda: two_forwards(raw, pairs), PRODUCTS: lambda: products(*square)}
    timings = timed(slow, 1) | timed(quick | floor, config.repeats, WARM)
    print_table({name: timings[name] for name in slow | quick})
    print_floor(timings, plan(model, pairs).patching_flops)


def random_llama(config: Config) -> Any:
    """A Transformers LLaMA with random weights, in float32 on the CPU."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    settings = LlamaConfig(
        vocab_size=config.d_vocab,
        hidden_size=config.d_model,
        intermediate_size=config.d_mlp,
        num_hidden_layers=config.n_layers,
        num_attention_heads=config.n_heads,
    )
    return LlamaForCausalLM(settings).eval()


def any_tokenizer() -> Any:
    """Prompts are random tokens, but a model wants a tokenizer."""
    from transformers import LlamaTokenizer

    return LlamaTokenizer(vocab={"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3}, merges=[])


def random_pairs(config: Config) -> PromptPairs:
    """References, and counterfactuals with a quarter of the tokens exchanged."""
    shape = (2, config.n_pairs, config.n_tokens)
    reference, other = torch.randint(4, config.d_vocab, shape)
    replaced = torch.rand(config.n_pairs, config.n_tokens) < 0.25
    answer = torch.randint(4, config.d_vocab, (config.n_pairs,))
    return PromptPairs.from_tokens(reference, torch.where(replaced, other, reference), answer)


def timed(
    methods: dict[str, Callable[[], Tensor]], repeats: int, warm: int = 0
) -> dict[str, Timing]:
    """Medians of `repeats` rounds, after `warm` that do not count.

    Each round runs every method once: what else the machine does then weighs on all alike.
    """
    clock: dict[str, list[float]] = {name: [] for name in methods}
    processor: dict[str, list[float]] = {name: [] for name in methods}
    effects: dict[str, Tensor] = {}
    for _ in range(warm + repeats):
        for name, run in methods.items():
            start, busy = time.perf_counter(), time.process_time()
            effects[name] = run()
            clock[name].append(time.perf_counter() - start)
            processor[name].append(time.process_time() - busy)
    return {
        name: Timing(median(clock[name][warm:]), median(processor[name][warm:]), effects[name])
        for name in methods
    }


@torch.no_grad()
def forward_a_component(hf: Any, pairs: PromptPairs) -> Tensor:
    """A patched forward for each head and MLP, every other head held, by hooks of torch's own."""
    n_heads = hf.config.num_attention_heads
    d_head = hf.config.hidden_size // n_heads
    layers, rows = hf.model.layers, torch.arange(len(pairs))
    z, _, logits = recorded(hf, pairs.reference)
    other_z, other_mlp, _ = recorded(hf, pairs.counterfactual)
    origin = logits[rows, -1, pairs.answer]

    def run(values: list[Tensor], layer: int | None = None) -> Tensor:
        hooks = [
            place.self_attn.o_proj.register_forward_pre_hook(lambda _, __, value=value: (value,))
            for place, value in zip(layers, values, strict=True)
        ]
        if layer is not None:
            end = other_mlp[layer][:, -1:]
            hooks.append(
                layers[layer].mlp.register_forward_hook(
                    lambda _, __, out: torch.cat([out[:, :-1], end], 1)
                )
            )
        patched = hf(pairs.reference, use_cache=False).logits[rows, -1, pairs.answer]
        for hook in hooks:
            hook.remove()
        return patched - origin

    effects = []
    for layer in range(len(layers)):
        for head in range(n_heads):
            value, part = z[layer].clone(), slice(head * d_head, (head + 1) * d_head)
            value[:, -1, part] = other_z[layer][:, -1, part]
            effects.append(run([*z[:layer], value, *z[layer + 1 :]]))
    return torch.stack(effects + [run(z, layer) for layer in range(len(layers))])


def recorded(hf: Any, tokens: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """What enters each output projection, what leaves each MLP, and the logits."""
    z: list[Tensor] = []
    mlp: list[Tensor] = []
    hooks = [
        hook
        for layer in hf.model.layers
        for hook in (
            layer.self_attn.o_proj.register_forward_pre_hook(
                lambda _, given: z.append(given[0].clone())
            ),
            layer.mlp.register_forward_hook(lambda _, __, out: mlp.append(out)),
        )
    ]
    logits = hf(tokens, use_cache=False).logits
    for hook in hooks:
        hook.remove()
    return z, mlp, logits


@torch.no_grad()
def end_only(model: HookedModel, pairs: PromptPairs) -> Tensor:
    """The strong baseline: exact too, END alone, but one sender after the other."""
    layers = range(model.n_layers)
    names = [resid_pre_name(0)]
    names += [name(layer) for layer in layers for name in (z_name, attn_out_name, mlp_out_name)]
    kept, other = (
        {name: value[:, -1] for name, value in record(model, tokens, names, positions=-1).items()}
        for tokens in (pairs.reference, pairs.counterfactual)
    )
    streams = []  # after the attention of each layer
    stream = kept[resid_pre_name(0)]
    for layer in layers:
        streams.append(stream + kept[attn_out_name(layer)])
        stream = streams[-1] + kept[mlp_out_name(layer)]
    columns = model.W_U[:, pairs.answer]

    def finish(row: Tensor, start: int) -> Tensor:
        for layer in range(start, model.n_layers):
            row = row + kept[attn_out_name(layer)]
            row = row + model.blocks[layer].mlp(model.blocks[layer].ln2(row[None]))[0]
        return torch.einsum("pd,dp->p", model.ln_final(row[None])[0], columns)

    origin = finish(kept[resid_pre_name(0)], 0)
    effects = []
    for layer in layers:
        change = other[z_name(layer)] - kept[z_name(layer)]
        for head in range(model.n_heads):
            row = streams[layer] + change[:, head] @ model.blocks[layer].attn.W_O[head]
            row = row + model.blocks[layer].mlp(model.blocks[layer].ln2(row[None]))[0]
            effects.append(finish(row, layer + 1) - origin)
    for layer in layers:
        effects.append(finish(streams[layer] + other[mlp_out_name(layer)], layer + 1) - origin)
    return torch.stack(effects)


def by_hooks(model: HookedModel, pairs: PromptPairs) -> Tensor:
    """This package's general engine."""
    return stacked(path_patch(model, pairs, metric="logit", engine="hooks"))


def by_sweep(model: HookedModel, pairs: PromptPairs, *, certify: bool) -> Tensor:
    """This package's sweep, recording included."""
    return stacked(path_patch(model, pairs, metric="logit", certify=certify))


def stacked(result: Any) -> Tensor:
    """Effects of heads, then of MLPs."""
    return torch.cat([result.heads.per_pair.flatten(0, 1), result.mlps.per_pair])


def print_table(timings: dict[str, Timing]) -> None:
    """Seconds, how many times faster than the first, and the largest difference from it."""
    first = next(iter(timings.values()))
    print(f"{'method':42}{'seconds':>9}{'cpu':>9}{'ratio':>8}{'largest difference':>21}")
    for name, timing in timings.items():
        difference = float((timing.effects - first.effects).abs().max())
        spent = f"{timing.seconds:9.3f}{timing.cpu:9.3f}{first.cpu / timing.cpu:7.1f}x"
        print(f"{name:42}{spent}{difference:21.1e}")
    print(
        f"largest effect {float(first.effects.abs().max()):.2e}, {torch.get_num_threads()} threads"
    )


@torch.no_grad()
def two_forwards(hf: Any, pairs: PromptPairs) -> Tensor:
    """References and counterfactuals as one batch, without the vocabulary matrix."""
    both = torch.cat([pairs.reference, pairs.counterfactual])
    return hf.model(both, use_cache=False).last_hidden_state


def products(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """Square float32 matrix products for about as long as the sweep takes."""
    for _ in range(N_PRODUCTS):
        torch.mm(a, b, out=out)
    return out


def print_floor(timings: dict[str, Timing], flops: int) -> None:
    """What share of the best possible the sweep reaches."""
    rate = N_PRODUCTS * 2 * SIZE**3 / timings[PRODUCTS].cpu
    recording = timings[FORWARDS].cpu
    floor = flops / rate + recording
    print(f"float32 matrix products {rate / 1e9:.0f} GFLOP/s; two forwards {recording:.3f} s")
    for name in (SWEEP, CERTIFIED):
        print(f"floor {floor:.3f} s; {name}: {floor / timings[name].cpu:.0%} of it")


if __name__ == "__main__":
    main(tyro.cli(Config))
