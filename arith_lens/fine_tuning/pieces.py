"""Which rows and columns of a model's matrices belong to chosen heads and MLPs.

Works on any Hugging Face model whose layers are `self_attn.{q,k,v,o}_proj` and `mlp` (the LLaMA,
Mistral, Qwen2 and Qwen3 families), also on the meta device, and refuses others by name.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from arith_lens.components import Component, Head, Mlp, check_components

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")


@dataclass(frozen=True, order=True)
class Piece:
    """A range of one parameter: rows (`dim` 0) or columns (`dim` 1), from `start` to `stop`."""

    parameter: str
    dim: int
    start: int
    stop: int

    def of(self, weight: Tensor) -> Tensor:
        """The view of `weight` that this is."""
        return weight.narrow(self.dim, self.start, self.stop - self.start)

    def overlaps(self, other: "Piece") -> bool:
        """Whether both hold an element in common."""
        return (
            self.parameter == other.parameter
            and self.start < other.stop
            and other.start < self.stop
        )


@dataclass(frozen=True)
class Shape:
    """How a model's attention is cut into heads."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int


def decoder_layers(hf_model: Any) -> Any:
    """The model's blocks, and the prefix of their parameters' names.

    Raises:
        ValueError: the blocks have other parts, such as the fused `c_attn` of GPT-2
    """
    for prefix, module in hf_model.named_modules():
        if prefix.split(".")[-1] == "layers" and isinstance(module, nn.ModuleList):
            attention = getattr(module[0], "self_attn", None)
            parts = [getattr(attention, name, None) for name in PROJECTIONS]
            if all(isinstance(part, nn.Linear) for part in parts):
                return module, prefix
    raise ValueError(
        "expected layers with self_attn.q_proj, k_proj, v_proj and o_proj, each a Linear, found "
        f"{type(hf_model).__name__} without them (fused projections, as in GPT-2's c_attn, have no "
        "such slices); take method='full', or a model of the LLaMA, Mistral or Qwen families"
    )


def shape_of(hf_model: Any) -> Shape:
    """Layers, heads and their size. Raises ValueError where W_Q is not n_heads x d_head rows."""
    layers, _ = decoder_layers(hf_model)
    attention = layers[0].self_attn
    n_heads = hf_model.config.num_attention_heads
    d_head = attention.o_proj.in_features // n_heads
    if attention.q_proj.out_features != n_heads * d_head:
        raise ValueError(
            f"expected W_Q of {n_heads} heads x {d_head} rows, found "
            f"{attention.q_proj.out_features} rows (a gated attention?); its heads cannot be cut"
        )
    return Shape(len(layers), n_heads, attention.k_proj.out_features // d_head, d_head)


def pieces_of(
    hf_model: Any, heads: Iterable[Head], mlps: Iterable[Mlp] = (), *, kv: str = "group"
) -> list[Piece]:
    """What precise fine-tuning trains: sorted, without overlap.

    Of each head its rows of W_Q, W_K and W_V and its columns of W_O. A bias of Q, K or V goes with
    its rows; one of O is of no head and stays, as do norms inside the attention, which heads share.
    Of each MLP every parameter.

    Args:
        kv: in grouped-query models a key-value head serves several heads. `"group"`: it is trained
            if any of them is chosen; `"skip"`: W_K and W_V stay.

    Raises:
        IndexError: a component that the model has not
        ValueError: `kv`, or a layer that cannot be cut
    """
    if kv not in ("group", "skip"):
        raise ValueError(f"expected kv 'group' or 'skip', found {kv!r}")
    shape = shape_of(hf_model)
    heads, mlps = sorted(set(heads)), sorted(set(mlps))
    check_components([*heads, *mlps], shape.n_layers, shape.n_heads)
    layers, prefix = decoder_layers(hf_model)
    found: set[Piece] = set()
    for head in heads:
        found |= set(_head_pieces(layers, prefix, head, shape, kv))
    for mlp in mlps:
        name = f"{prefix}.{mlp.layer}.mlp"
        for part, weight in layers[mlp.layer].mlp.named_parameters():
            found.add(Piece(f"{name}.{part}", 0, 0, weight.shape[0]))
    return sorted(found)


def _head_pieces(layers: Any, prefix: str, head: Head, shape: Shape, kv: str) -> list[Piece]:
    grouped = shape.n_kv_heads < shape.n_heads
    group = head.index * shape.n_kv_heads // shape.n_heads
    rows = {"q_proj": head.index}
    if kv == "group" or not grouped:
        rows |= {"k_proj": group, "v_proj": group}
    attention = layers[head.layer].self_attn
    name = f"{prefix}.{head.layer}.self_attn"
    pieces = [Piece(f"{name}.o_proj.weight", 1, *_range(head.index, shape))]
    for projection, index in rows.items():
        for part, _ in getattr(attention, projection).named_parameters():
            pieces.append(Piece(f"{name}.{projection}.{part}", 0, *_range(index, shape)))
    return pieces


def _range(index: int, shape: Shape) -> tuple[int, int]:
    return index * shape.d_head, (index + 1) * shape.d_head


def by_parameter(pieces: Iterable[Piece]) -> dict[str, list[Piece]]:
    """The pieces of each parameter, in order."""
    found: dict[str, list[Piece]] = defaultdict(list)
    for piece in sorted(pieces):
        found[piece.parameter].append(piece)
    return dict(found)


def n_elements(hf_model: Any, pieces: Iterable[Piece]) -> int:
    """How many numbers the pieces hold."""
    weights = dict(hf_model.named_parameters())
    return sum(piece.of(weights[piece.parameter]).numel() for piece in pieces)


def read_pieces(hf_model: Any, pieces: Iterable[Piece]) -> dict[Piece, Tensor]:
    """Copies of the pieces, on the CPU."""
    weights = dict(hf_model.named_parameters())
    return {
        piece: piece.of(weights[piece.parameter].detach()).cpu().clone().contiguous()
        for piece in pieces
    }


def write_pieces(hf_model: Any, values: dict[Piece, Tensor]) -> None:
    """Put values in place, bit for bit. Raises ValueError where one has no place."""
    weights = dict(hf_model.named_parameters())
    for piece, value in values.items():
        weight = weights.get(piece.parameter)
        fits = (
            weight is not None
            and piece.stop <= weight.shape[piece.dim]
            and piece.of(weight).shape == value.shape
            and weight.dtype == value.dtype
        )
        if not fits:
            raise ValueError(
                f"expected a place for {piece.parameter} {piece.start}:{piece.stop} "
                f"({value.dtype}) in {type(hf_model).__name__}, found none of that name, size and "
                "dtype; take the base that was tuned"
            )
    for piece, value in values.items():
        piece.of(weights[piece.parameter].data).copy_(value)


def scales_of(hf_model: Any, pieces: Sequence[Piece]) -> dict[str, float]:
    """H/h of each sliced parameter: how many of its rows or columns there are to each tuned one.

    Of Q and O it is heads over chosen heads, of K and V key-value heads over tuned ones; 1 for what
    is tuned whole.
    """
    weights = dict(hf_model.named_parameters())
    return {
        name: weights[name].shape[group[0].dim] / sum(p.stop - p.start for p in group)
        for name, group in by_parameter(pieces).items()
    }


def named(components: Iterable[Component]) -> str:
    """The components as a list to read, `12.22, 13.11`."""
    return ", ".join(map(str, components)) or "none"
