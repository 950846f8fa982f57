"""Which rows and columns of the matrices belong to chosen components, and how these are trained."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

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


class _SlicedProduct(torch.autograd.Function):
    """`functional.linear` with the gradient of some rows (dim 0) or columns (dim 1) of W."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        part: Tensor,
        bias_part: Tensor | None,
        index: Tensor,
        dim: int,
        scale: float,
    ) -> Tensor:
        kept = x if dim == 0 else x.index_select(-1, index)
        ctx.save_for_backward(kept, weight, index)
        ctx.dim, ctx.scale, ctx.dtype = dim, scale, part.dtype
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        kept, weight, index = ctx.saved_tensors
        below = grad @ weight if ctx.needs_input_grad[0] else None
        of_rows = grad.index_select(-1, index) if ctx.dim == 0 else grad
        of_rows = of_rows.reshape(-1, of_rows.shape[-1])
        part = (of_rows.T @ kept.reshape(-1, kept.shape[-1])).to(ctx.dtype) * ctx.scale
        bias = of_rows.sum(0).to(ctx.dtype) * ctx.scale if ctx.needs_input_grad[4] else None
        return below, None, None, part, bias, None, None, None


class SlicedLinear(nn.Module):
    """Stands in for a Linear while it is trained; its weight keeps its name.

    Attributes:
        weight: the frozen matrix with the slice in it, Float[out, in]
        weight_slice: the leaf, Float[tuned, in] or Float[out, tuned]
        bias_slice: of a tuned Q, K or V that has a bias, Float[tuned]
        scale: what the slice's gradient is multiplied with
    """

    index: Tensor

    def __init__(
        self, linear: nn.Linear, pieces: list[Piece], *, tune_bias: bool, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.dim = pieces[0].dim
        self.scale = 1.0
        rows = [torch.arange(piece.start, piece.stop) for piece in pieces]
        index = torch.cat(rows).to(linear.weight.device)
        self.register_buffer("index", index, persistent=False)
        part = linear.weight.detach().index_select(self.dim, index)
        self.weight_slice = nn.Parameter(part.to(dtype).clone())
        self.bias_slice = None
        if tune_bias:
            self.bias_slice = nn.Parameter(linear.bias.detach()[index].to(dtype).clone())

    def write(self) -> None:
        """Put the slice into the matrix, rounded to its dtype."""
        # .data: backward keeps the matrix, and what is written again is what it already holds
        _write(self.weight.data, self.dim, self.index, self.weight_slice)
        if self.bias_slice is not None:
            _write(self.bias.data, 0, self.index, self.bias_slice)

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        self.write()
        weight, bias = self.weight, self.bias
        device = x.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            x, weight = x.to(dtype), weight.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        return _SlicedProduct.apply(  # pyright: ignore[reportReturnType]
            x, weight, bias, self.weight_slice, self.bias_slice, self.index, self.dim, self.scale
        )


class WholeLinear(nn.Module):
    """A Linear trained whole in a finer dtype than the model's, without a second copy of it."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.model_dtype = linear.weight.dtype
        self.weight = nn.Parameter(linear.weight.detach().to(dtype))
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().to(dtype))

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        bias = None if self.bias is None else self.bias.to(self.model_dtype)
        return functional.linear(x, self.weight.to(self.model_dtype), bias)


def _write(weight: Tensor, dim: int, index: Int[Tensor, "tuned"], part: Tensor) -> None:
    weight.index_copy_(dim, index, part.detach().to(weight.dtype))


def slice_model(hf_model: Any, pieces: list[Piece], *, dtype: torch.dtype) -> list[str]:
    """Freeze the model and make the pieces parameters of their own, in place.

    Args:
        dtype: of the slices: float32, also where the model is bfloat16

    Returns:
        the names of the modules that stand in for others
    """
    hf_model.requires_grad_(False)
    groups = by_parameter(pieces)
    weights = dict(hf_model.named_parameters())
    replaced = []
    for name in dict.fromkeys(parameter.rpartition(".")[0] for parameter in groups):
        module = hf_model.get_submodule(name)
        own = [parameter for parameter in groups if parameter.rpartition(".")[0] == name]
        is_whole = all(_is_whole(groups[parameter], weights[parameter]) for parameter in own)
        if is_whole and all(weights[parameter].dtype == dtype for parameter in own):
            for parameter in own:
                weights[parameter].requires_grad_(True)
            continue
        if not isinstance(module, nn.Linear):
            raise ValueError(
                f"expected {name} in {dtype} or a Linear, found {type(module).__name__} in "
                f"{weights[own[0]].dtype}; load the model in float32 (bf16=False), or leave its "
                "MLP out"
            )
        group = groups[f"{name}.weight"]
        new = (
            WholeLinear(module, dtype)
            if is_whole
            else SlicedLinear(module, group, tune_bias=f"{name}.bias" in groups, dtype=dtype)
        )
        _replace(hf_model, name, new)
        replaced.append(name)
    return replaced


def _is_whole(pieces: list[Piece], weight: Tensor) -> bool:
    return pieces[0].dim == 0 and pieces[0].stop - pieces[0].start == weight.shape[0]


def merge_slices(hf_model: Any, replaced: list[str]) -> None:
    """Undo `slice_model`, the trained values in place: the model is a plain one again."""
    for name in replaced:
        module: Any = hf_model.get_submodule(name)
        if isinstance(module, SlicedLinear):
            module.write()
        dtype = module.weight.dtype if isinstance(module, SlicedLinear) else module.model_dtype
        d_out, d_in = module.weight.shape
        linear = nn.Linear(d_in, d_out, bias=module.bias is not None, device="meta")
        linear.weight = nn.Parameter(module.weight.detach().to(dtype))
        if module.bias is not None:
            linear.bias = nn.Parameter(module.bias.detach().to(dtype))
        _replace(hf_model, name, linear)
    hf_model.requires_grad_(True)


def _replace(hf_model: Any, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    module.train(hf_model.training)
    setattr(hf_model.get_submodule(parent), child, module)
