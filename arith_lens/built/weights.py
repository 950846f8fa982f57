"""Weights for a circuit: a Hugging Face model that computes what the circuit's equations say.

A norm divides the stream by its length, and every matrix that reads a norm's output multiplies by
the length that the stream has in the circuit. Rotary pair 0 turns by one radian per token, so that
a query turned by -d finds distance d. The other pairs do not turn, and compare contents.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.built.circuit import EPS, N_TOKENS, Circuit, circuit_embedding

D_HEAD = N_TOKENS
HALF_HEAD = D_HEAD // 2
"""Entry 0 and entry HALF_HEAD of a query are rotary pair 0."""
CONTENT = HALF_HEAD - 1
"""An entry of a query that does not turn."""
ROPE_THETA = 1e30
"""With this base, pair 0 turns by one radian per token, and no other pair by 0.001."""
BOS = 14

FAMILIES = {"llama": "Llama", "qwen3": "Qwen3", "gemma2": "Gemma2", "gemma3": "Gemma3"}
"""By model type, the name of the classes in Transformers."""
SANDWICH = ("gemma2", "gemma3")
"""The families with a norm after attention and MLP, and with GELU."""
QUERY_KEY_NORM = ("qwen3", "gemma3")


def hf_model(
    circuit: Circuit,
    *,
    family: str,
    n_heads: int,
    n_kv_heads: int,
    rotation: int | None,
    norm_weights: int | None,
) -> Any:
    """The Transformers model of a circuit, in float32.

    Args:
        circuit: the equations.
        family: a key of FAMILIES.
        n_heads: the number of heads in each layer.
        n_kv_heads: the number of heads with keys and values of their own.
        rotation: the seed of a random rotation of the residual stream; None: no rotation.
        norm_weights: the seed of random weights of the norms that read the stream; None: all 1.

    Raises:
        ValueError: heads of one group would need different keys or values.
    """
    model = _empty(circuit, family, n_heads, n_kv_heads)
    d_model = model.config.hidden_size
    generator = torch.Generator().manual_seed(norm_weights or 0)
    basis = _basis(circuit.n_channels, d_model, rotation)
    to_weight = -1.0 if family in SANDWICH else 0.0  # Gemma multiplies by one plus the weight
    lengths = iter(circuit.lengths())
    branches = iter(circuit.branch_lengths())

    def reader(norm: Any) -> Float[Tensor, "channel d_model"]:
        """The matrix that reads channels from the output of a norm, whose weights it sets."""
        weight = torch.ones(d_model, dtype=torch.float64)
        if norm_weights is not None:
            weight = 0.5 + torch.rand(d_model, dtype=torch.float64, generator=generator)
        norm.weight.copy_(weight + to_weight)
        return (next(lengths) / d_model) ** 0.5 * basis / weight

    def after(norm: Any) -> None:
        """The weights of a norm after attention or MLP: it keeps the length of the circuit."""
        norm.weight.fill_((next(branches) / d_model) ** 0.5 + to_weight)

    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        scale = d_model**0.5 if family in SANDWICH else 1.0  # Gemma multiplies the embedding
        model.model.embed_tokens.weight.copy_(circuit_embedding(circuit) @ basis / scale)
        for number, layer in enumerate(model.model.layers):
            read = reader(layer.input_layernorm)
            _set_attention(layer.self_attn, circuit, number, read, basis, to_weight)
            if circuit.sandwich:
                after(layer.post_attention_layernorm)
            before = "pre_feedforward_layernorm" if circuit.sandwich else "post_attention_layernorm"
            read, mlp = reader(getattr(layer, before)), circuit.mlps[number]
            n = len(mlp.gate)
            layer.mlp.gate_proj.weight[:n] = (mlp.gate @ read).float()
            layer.mlp.up_proj.weight[:n] = (mlp.up @ read).float()
            layer.mlp.down_proj.weight[:, :n] = (mlp.down @ basis).T.float()
            if circuit.sandwich:
                after(layer.post_feedforward_layernorm)
        model.lm_head.weight.copy_(circuit.readout @ reader(model.model.norm))
    return model


def _set_attention(
    attention: Any,
    circuit: Circuit,
    layer: int,
    read: Float[Tensor, "channel d_model"],
    basis: Float[Tensor, "channel d_model"],
    to_weight: float,
) -> None:
    """Set the matrices of one layer's attention. `to_weight` makes a factor a norm's weight."""
    n_heads = attention.q_proj.out_features // D_HEAD
    shared = n_heads * D_HEAD // attention.k_proj.out_features
    factor = circuit.beta * D_HEAD**0.5  # attention divides scores by the root of D_HEAD
    if circuit.query_key_norm:  # queries and keys come with length 4, whatever they were
        attention.q_norm.weight.fill_(factor / D_HEAD + to_weight)
        attention.k_norm.weight.fill_(1.0 + to_weight)
        factor = 1.0
    used: dict[int, Any] = {}
    for head in circuit.heads_of(layer):
        group, slot = head.head.index // shared, circuit.slots
        needs = (head.reads, head.key, head.matches)
        if used.setdefault(group, needs) != needs:
            raise ValueError(
                f"expected the heads that share a key and a value to read the same, found that "
                f"{head.head} reads something else than others of its group; choose more "
                "n_kv_heads"
            )
        rows = slice(head.head.index * D_HEAD, (head.head.index + 1) * D_HEAD)
        query = torch.zeros(D_HEAD, circuit.n_channels, dtype=torch.float64)
        key, value = torch.zeros_like(query), torch.zeros_like(query)
        if head.matches:
            query[CONTENT, slot[head.query].start] = 1.0
            key[CONTENT, [slot[head.key].start + v for v in head.matches]] = 1.0
        else:
            for v, distance in head.offsets.items():
                turn = torch.tensor([distance], dtype=torch.float64)
                query[0, slot[head.query].start + v] = turn.cos()[0]
                query[HALF_HEAD, slot[head.query].start + v] = -turn.sin()[0]
            key[0, slot[head.key].start] = 1.0
        value[:, slot[head.reads]] = torch.eye(N_TOKENS, dtype=torch.float64)
        groups = slice(group * D_HEAD, (group + 1) * D_HEAD)
        attention.q_proj.weight[rows] = (factor * query @ read).float()
        attention.k_proj.weight[groups] = (key @ read).float()
        attention.v_proj.weight[groups] = (value @ read).float()
        written = head.table @ basis[slot[head.writes]]
        attention.o_proj.weight[:, rows] = written.T.float()


def _basis(n_channels: int, d_model: int, rotation: int | None) -> Float[Tensor, "channel d_model"]:
    """The direction of each channel in the residual stream: orthonormal rows."""
    if rotation is None:
        return torch.eye(n_channels, d_model, dtype=torch.float64)
    generator = torch.Generator().manual_seed(rotation)
    square = torch.randn(d_model, d_model, dtype=torch.float64, generator=generator)
    return torch.linalg.qr(square)[0][:n_channels]


def _empty(circuit: Circuit, family: str, n_heads: int, n_kv_heads: int) -> Any:
    """A model of the right shape, in evaluation mode."""
    import transformers

    size = max(128, -(-circuit.n_channels // 64) * 64)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": ROPE_THETA}
    settings: dict[str, Any] = {
        "vocab_size": N_TOKENS,
        "hidden_size": size,
        "intermediate_size": max(1, *(len(mlp.gate) for mlp in circuit.mlps)),
        "num_hidden_layers": len(circuit.mlps),
        "num_attention_heads": n_heads,
        "num_key_value_heads": n_kv_heads,
        "head_dim": D_HEAD,
        "max_position_embeddings": 64,
        "rms_norm_eps": EPS,
        "rope_parameters": rope,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": None,
        "pad_token_id": None,
        "attn_implementation": "eager",
    }
    if family in SANDWICH:
        settings |= {
            "query_pre_attn_scalar": D_HEAD,
            "hidden_activation": "gelu_pytorch_tanh",
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
        }
    if family == "gemma3":
        kinds = ("sliding_attention", "full_attention")
        settings["rope_parameters"] = {kind: dict(rope) for kind in kinds}
    text = "Text" if family == "gemma3" else ""
    config = getattr(transformers, f"{FAMILIES[family]}{text}Config")(**settings)
    return getattr(transformers, f"{FAMILIES[family]}ForCausalLM")(config).eval()
