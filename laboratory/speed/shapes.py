"""Random LLaMAs of some shapes, and random prompts."""

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from arith_lens import HookedModel, PromptPairs, load_model
from arith_lens.components import Component, every_component


@dataclass(frozen=True)
class Shape:
    """A LLaMA, and how many prompt pairs (or rows of a training step) of how many tokens."""

    n_layers: int
    d_model: int
    n_heads: int
    d_mlp: int
    d_vocab: int
    n_pairs: int
    n_tokens: int
    n_kv_heads: int | None = None
    """Fewer where queries are grouped; then it is a Mistral."""

    def __str__(self) -> str:
        grouped = "" if self.n_kv_heads is None else f" ({self.n_kv_heads} of keys and values)"
        return (
            f"{self.n_layers} layers, d_model {self.d_model}, {self.n_heads} heads{grouped}, "
            f"d_mlp {self.d_mlp}, vocabulary {self.d_vocab:,}; {self.n_pairs} times "
            f"{self.n_tokens} tokens"
        )


SHAPES = {
    "tiny": Shape(12, 128, 8, 352, 640, n_pairs=32, n_tokens=16),
    "middle": Shape(8, 512, 16, 1376, 32_000, n_pairs=8, n_tokens=16),
    "wide": Shape(2, 4096, 32, 11_008, 32_000, n_pairs=2, n_tokens=12),
    "llama-7b": Shape(32, 4096, 32, 11_008, 32_000, n_pairs=8, n_tokens=16),
    "llama-13b": Shape(40, 5120, 40, 13_824, 32_000, n_pairs=8, n_tokens=16),
    "mistral-7b": Shape(32, 4096, 32, 14_336, 32_000, n_pairs=8, n_tokens=16, n_kv_heads=8),
}
"""The shipped reference model; a model that a CPU patches in seconds; two layers of LLaMA2-7B, at
its full width; all of its 32; LLaMA2-13B and Mistral-7B."""


@dataclass(frozen=True)
class Setting:
    """One random model, as Transformers has it and as this package loads it, and its prompts."""

    shape: Shape
    raw: Any
    model: HookedModel
    """Shares its weights with `raw`, and nothing else: a bridge changes what it wraps."""
    pairs: PromptPairs
    reference: Int[Tensor, "pair pos"]
    counterfactual: Int[Tensor, "pair pos"]
    answer: Int[Tensor, " pair"]

    @property
    def device(self) -> torch.device:
        return self.reference.device

    def first_pair(self) -> "Setting":
        """The same model with one pair."""
        return replace(
            self,
            pairs=self.pairs[:1],
            reference=self.reference[:1],
            counterfactual=self.counterfactual[:1],
            answer=self.answer[:1],
        )

    @property
    def senders(self) -> list[Component]:
        """Every head, then every MLP."""
        return every_component(self.shape.n_layers, self.shape.n_heads)


def setting_of(
    shape: Shape, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
) -> Setting:
    """A random model and random prompts on a device; on "meta", their shapes alone."""
    raw = random_llama(shape, device, dtype)
    pairs = random_token_pairs(shape)
    model = load_model((twin(raw), any_tokenizer()))
    tokens = (pairs.reference, pairs.counterfactual, pairs.answer)
    return Setting(shape, raw, model, pairs, *(value.to(device) for value in tokens))


def random_llama(shape: Shape, device: str | torch.device, dtype: torch.dtype) -> Any:
    """A Transformers LLaMA (Mistral, where queries are grouped) with random weights."""
    from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig

    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": shape.d_vocab,
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_mlp,
        "num_hidden_layers": shape.n_layers,
        "num_attention_heads": shape.n_heads,
    }
    config = LlamaConfig(**sizes)
    if shape.n_kv_heads is not None:
        config = MistralConfig(**sizes, num_key_value_heads=shape.n_kv_heads)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def weights_bytes(size: str, dtype: str) -> int:
    """What the weights of a shape take in a dtype."""
    weights = random_llama(SHAPES[size], "meta", getattr(torch, dtype)).parameters()
    return sum(weight.nbytes for weight in weights)


def twin(model: Any) -> Any:
    """A copy that shares the weights."""
    return copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})


def any_tokenizer() -> Any:
    """Prompts are random tokens, but a model needs a tokenizer."""
    from transformers import LlamaTokenizer

    return LlamaTokenizer(vocab={"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3}, merges=[])


def random_token_pairs(shape: Shape) -> PromptPairs:
    """References, and counterfactuals with about a quarter of the tokens exchanged."""
    generator = torch.Generator().manual_seed(1)
    size = (shape.n_pairs, shape.n_tokens)
    reference, other = torch.randint(4, shape.d_vocab, (2, *size), generator=generator)
    replaced = torch.rand(size, generator=generator) < 0.25
    replaced[:, shape.n_tokens // 2] = True  # else a short pair may have none
    answer = torch.randint(4, shape.d_vocab, size[:1], generator=generator)
    return PromptPairs.from_tokens(reference, torch.where(replaced, other, reference), answer)
