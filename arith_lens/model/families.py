"""What is known of each architecture: one row per `model_type` of Transformers.

Most of what a method needs is read from a model's configuration and modules: parallel blocks,
factors, experts, where a norm stands. A family that needs nothing else works without a row. A row
has what no model shows: which faster ways to compute were tested on the family, how a matrix is
ordered, what a file leaves out, and why a method refuses it. No other module names two families.
`*_NAMES` are what Transformers' families call the parts of a layer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

ATTENTION_NAMES = ("self_attn", "attn.attention", "attn", "attention", "self_attention")
"""The path of the attention in a layer."""
QKV_NAMES = ("q_proj", "k_proj", "v_proj")
"""W_Q, W_K and W_V in the attention, where they are three matrices."""
OUTPUT_NAMES = ("o_proj", "out_proj", "dense")
"""W_O in the attention."""
MLP_NAMES = ("mlp", "ffn", "block_sparse_moe")
"""The MLP in a layer."""
ACTIVATION_NAMES = ("act_fn", "act", "activation_fn")
"""The activation function in an MLP, where it is a module."""

Method: TypeAlias = Literal["edges", "fine_tuning", "sweep"]
"""Edges into heads; fine-tuning of single heads; the sweep of path patching."""


@dataclass(frozen=True)
class FusedQkv:
    """One matrix that has W_Q, W_K and W_V."""

    name: str
    """What the attention calls it."""
    order: Literal["by kind", "by group"]
    """The order of its rows. "by kind": the queries of all heads, then all keys, then all values.
    "by group": for each key-value head the queries that share it, its key, its value."""


@dataclass(frozen=True)
class BuiltForm:
    """How a family whose layers have LLaMA's parts differs from LLaMA; `built_model` reads it."""

    name: str
    """What `built_model` calls the family."""
    example: str = ""
    """The built model that shows what is different; "" for LLaMA itself."""
    norm_after: bool = False
    """Whether a norm also follows attention and MLP."""
    query_key_norm: bool = False
    """Whether queries and keys pass a norm."""
    scaled: bool = False
    """Whether norms multiply by one plus their weight, and embeddings by sqrt(d_model)."""
    activation: str = "silu"
    """Transformers' name of the activation function."""


@dataclass(frozen=True)
class Family:
    """What is known of one architecture. The defaults are those of a family without a row."""

    model_type: str
    """Transformers' name of the family."""
    plain_layers: bool = False
    """Whether its layers without the bridge were tested against forwards with hooks."""
    kv_cache: bool = False
    """Whether prompts that continue stored keys and values were tested against whole prompts."""
    fused_qkv: FusedQkv | None = None
    """Its matrix of all projections; None: it has three matrices, or its heads cannot be tuned."""
    sentencepiece: bool = False
    """Whether a folder with SentencePiece's `tokenizer.model` alone needs LLaMA's tokenizer."""
    angles_by_kind: bool = False
    """Whether layers with and without a window have rotary angles of their own."""
    n_layers_27b: int | None = None
    """The number of layers by which llama.cpp knows Gemma 2 27B and Gemma 3 27B, whose scores have
    another scale."""
    built: BuiltForm | None = None
    """None: `built_model` builds no model of this family."""
    refusals: Mapping[Method, str] = field(default_factory=dict)
    """Why a method refuses the family. That it does, the method sees in the modules."""


_OWN_ATTENTION = "its attention is code of its own, without Transformers' attention interface"
_CONV1D = "its matrices are Conv1D, not Linear"

FAMILIES = {
    row.model_type: row
    for row in (
        Family("bloom", fused_qkv=FusedQkv("query_key_value", "by group")),
        Family(
            "codegen",
            refusals={
                "edges": _OWN_ATTENTION,
                "fine_tuning": "the rows of its matrix are in four groups, keys after values",
            },
        ),
        Family(
            "falcon",
            fused_qkv=FusedQkv("query_key_value", "by group"),
            refusals={"edges": _OWN_ATTENTION},
        ),
        Family("gemma", plain_layers=True, kv_cache=True),
        Family(
            "gemma2",
            plain_layers=True,
            kv_cache=True,
            n_layers_27b=46,
            built=BuiltForm(
                "gemma2", "sandwich", norm_after=True, scaled=True, activation="gelu_pytorch_tanh"
            ),
        ),
        Family(
            "gemma3_text",
            plain_layers=True,
            kv_cache=True,
            angles_by_kind=True,
            n_layers_27b=62,
            built=BuiltForm(
                "gemma3",
                "all_norms",
                norm_after=True,
                query_key_norm=True,
                scaled=True,
                activation="gelu_pytorch_tanh",
            ),
        ),
        Family("gpt2", plain_layers=True, kv_cache=True, refusals={"fine_tuning": _CONV1D}),
        Family(
            "gpt_bigcode",
            refusals={
                "fine_tuning": "the order of its rows depends on multi_query, and was not tested"
            },
        ),
        Family("gpt_oss", refusals={"edges": "its softmax has one more score, which no token has"}),
        Family("gpt_neo", refusals={"edges": _OWN_ATTENTION}),
        Family("gpt_neox", fused_qkv=FusedQkv("query_key_value", "by group")),
        Family("gptj", refusals={"edges": _OWN_ATTENTION}),
        Family(
            "llama", plain_layers=True, kv_cache=True, sentencepiece=True, built=BuiltForm("llama")
        ),
        Family(
            "llama4_text",
            refusals={"sweep": "experts that return the tokens of all prompts in one row"},
        ),
        Family("mistral", plain_layers=True, kv_cache=True, sentencepiece=True),
        Family("mixtral", sentencepiece=True),
        Family("mpt", fused_qkv=FusedQkv("Wqkv", "by kind")),
        Family("openai-gpt", refusals={"fine_tuning": _CONV1D}),
        Family("phi3", fused_qkv=FusedQkv("qkv_proj", "by kind")),
        Family("qwen2", plain_layers=True, kv_cache=True),
        Family(
            "qwen3",
            plain_layers=True,
            kv_cache=True,
            built=BuiltForm("qwen3", "query_key_norms", query_key_norm=True),
        ),
    )
}
"""The rows by `model_type`."""


def family_of(config: Any) -> Family:
    """The row of a Transformers configuration; one without facts for a family that has no row."""
    model_type = str(getattr(config, "model_type", ""))
    return FAMILIES.get(model_type, Family(model_type))
