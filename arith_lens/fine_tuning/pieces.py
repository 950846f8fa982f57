"""The parts of a model's matrices that belong to chosen components, and their training.

`layout_of` says where the layers keep their heads and MLPs. `pieces_of` names the rows and columns
of each component. `slice_model` makes them separate parameters, and `merge_slices` undoes it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from arith_lens.components import Head, Mlp, check_components
from arith_lens.model import ATTENTION_NAMES, FAMILIES, family_of
from arith_lens.model.families import MLP_NAMES, OUTPUT_NAMES, QKV_NAMES
from arith_lens.options import check_choice


@dataclass(frozen=True, eq=False)
class Layout:
    """A model's layers, and where their heads and MLPs are."""

    model: str
    """The name of the model's class."""
    layers: nn.ModuleList
    prefix: str
    """The path of the layers, with which their parameters' names begin."""
    attention: str
    """The path of the attention in a layer."""
    projections: tuple[str, ...]
    """The names of W_Q, W_K and W_V, or of the one matrix that has all of them."""
    output: str
    """The name of W_O."""
    order: str | None
    """The order of the rows of a fused matrix, as in `FusedQkv`; None for three matrices."""
    n_heads: int
    n_kv_heads: int
    d_head: int

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    def rows(self, head: int) -> dict[str, tuple[str, int]]:
        """By "q", "k" and "v": the matrix and the first of the `d_head` rows of this head."""
        size = self.n_heads // self.n_kv_heads
        group = head // size
        rows = {"q": head, "k": group, "v": group}
        if self.order is None:
            names = dict(zip("qkv", self.projections, strict=True))
            return {kind: (names[kind], row * self.d_head) for kind, row in rows.items()}
        if self.order == "by kind":
            rows |= {"k": self.n_heads + group, "v": self.n_heads + self.n_kv_heads + group}
        else:
            after = (group + 1) * (size + 2)
            rows = {"q": head + 2 * group, "k": after - 2, "v": after - 1}
        return {kind: (self.projections[0], row * self.d_head) for kind, row in rows.items()}

    def mlp(self, layer: int) -> tuple[str, Any]:
        """The path of a layer's MLP in the layer, and the MLP.

        Raises:
            ValueError: the MLP is not one module.
        """
        for name in MLP_NAMES:
            if (module := getattr(self.layers[layer], name, None)) is not None:
                return name, module
        raise ValueError(
            f"expected an MLP that is a module of its own, found none in {self.model}; tune its "
            "heads alone, or take method='full'"
        )


def layout_of(hf_model: Any) -> Layout:
    """The model's layout.

    Raises:
        ValueError: the heads are not rows of Linear matrices in an order that is known here, or
            differ in size.
    """
    config = hf_model.config.get_text_config()
    family = family_of(config)
    fused = family.fused_qkv
    projections = QKV_NAMES if fused is None else (fused.name,)
    candidates = [
        (prefix, module)
        for prefix, module in hf_model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == config.num_hidden_layers
    ]
    for (prefix, layers), path, output in product(candidates, ATTENTION_NAMES, OUTPUT_NAMES):
        names = (*projections, output)
        parts = [[_part(layer, f"{path}.{name}") for name in names] for layer in layers]
        if all(isinstance(part, nn.Linear) for of_layer in parts for part in of_layer):
            sizes = _sizes(hf_model, config.num_attention_heads, parts)
            order = None if fused is None else fused.order
            return Layout(
                type(hf_model).__name__, layers, prefix, path, projections, output, order, *sizes
            )
    known = ", ".join(row.model_type for row in FAMILIES.values() if row.fused_qkv)
    reason = family.refusals.get("fine_tuning")
    raise ValueError(
        "expected layers whose attention has q_proj, k_proj, v_proj and an output, each a Linear, "
        f"or one matrix of a known order ({known}), found {type(hf_model).__name__} "
        f"with {_linear_parts(candidates)}{f' ({reason})' if reason else ''}; take method='full', "
        "or another family"
    )


def _part(module: Any, path: str) -> Any:
    """The part at a path; None if there is none."""
    return reduce(lambda part, name: getattr(part, name, None), path.split("."), module)


def _sizes(hf_model: Any, n_heads: int, parts: Sequence[Sequence[Any]]) -> tuple[int, int, int]:
    """The numbers of heads and of key-value heads, and the size of a head."""
    sizes = {
        (of_layer[-1].in_features, *(part.out_features for part in of_layer[:-1]))
        for of_layer in parts
    }
    width, *n_rows = sizes.pop()
    d_head = width // n_heads
    if len(n_rows) == 1:
        n_kv_heads = (n_rows[0] // d_head - n_heads) // 2
        sizes_match = n_rows[0] == (n_heads + 2 * n_kv_heads) * d_head
    else:
        n_kv_heads = n_rows[1] // d_head
        sizes_match = n_rows == [n_heads * d_head, n_kv_heads * d_head, n_kv_heads * d_head]
    if sizes or not sizes_match or n_kv_heads < 1 or n_heads % n_kv_heads:
        raise ValueError(
            f"expected {n_heads} heads of one size in each layer of {type(hf_model).__name__}, "
            f"found projections of {', '.join(map(str, n_rows))} rows and an output of {width} "
            f"columns{' in one layer, and others in another' if sizes else ''} (a gated "
            "attention?); its heads cannot be cut"
        )
    return n_heads, n_kv_heads, d_head


def _linear_parts(candidates: Sequence[tuple[str, nn.ModuleList]]) -> str:
    """The matrices of the first layer's attention, in words."""
    for _, layers in candidates:
        for path in ATTENTION_NAMES:
            attention = _part(layers[0], path)
            names = [
                name
                for name, part in getattr(attention, "named_modules", list)()
                if getattr(getattr(part, "weight", None), "ndim", 0) == 2
            ]
            if names:
                return f"{path} of {', '.join(names)}"
    return "layers without such an attention"


@dataclass(frozen=True, order=True)
class Piece:
    """A range of one parameter: rows (`dim` 0) or columns (`dim` 1), from `start` to `stop`."""

    parameter: str
    dim: int
    start: int
    stop: int

    def of(self, weight: Tensor) -> Tensor:
        """This range of a weight, as a view."""
        return weight.narrow(self.dim, self.start, self.stop - self.start)

    def overlaps(self, other: "Piece") -> bool:
        """Whether both ranges share an element."""
        return (
            self.parameter == other.parameter
            and self.start < other.stop
            and other.start < self.stop
        )


def pieces_of(
    hf_model: Any, heads: Iterable[Head], mlps: Iterable[Mlp] = (), *, kv: str = "group"
) -> list[Piece]:
    """The pieces that precise fine-tuning trains, sorted and without overlap.

    For each head these are its rows of W_Q, W_K and W_V, with their biases, and its columns of W_O.
    The bias of O and the norms inside the attention belong to all heads, so they are not trained.
    For each MLP all parameters are trained.

    Args:
        heads, mlps: the components to train.
        kv: in grouped-query models, one key-value head serves several heads. `"group"`: it is
            trained if any of them is chosen; `"skip"`: W_K and W_V are not trained.

    Raises:
        IndexError: the model does not have a component.
        ValueError: `kv` is not valid, or a layer cannot be cut into heads or has no MLP of its own.
    """
    check_choice("kv", kv, ("group", "skip"))
    layout = layout_of(hf_model)
    heads, mlps = sorted(set(heads)), sorted(set(mlps))
    check_components([*heads, *mlps], layout.n_layers, layout.n_heads)
    pieces: set[Piece] = set()
    for head in heads:
        pieces |= set(_head_pieces(layout, head, kv))
    for mlp in mlps:
        name, module = layout.mlp(mlp.layer)
        for part, weight in module.named_parameters():
            parameter = f"{layout.prefix}.{mlp.layer}.{name}.{part}"
            pieces.add(Piece(parameter, 0, 0, weight.shape[0]))
    return sorted(pieces)


def _head_pieces(layout: Layout, head: Head, kv: str) -> list[Piece]:
    grouped = layout.n_kv_heads < layout.n_heads
    attention = layout.layers[head.layer].get_submodule(layout.attention)
    name = f"{layout.prefix}.{head.layer}.{layout.attention}"
    size, start = layout.d_head, head.index * layout.d_head
    pieces = [Piece(f"{name}.{layout.output}.weight", 1, start, start + size)]
    for kind, (projection, start) in layout.rows(head.index).items():
        if kind != "q" and grouped and kv == "skip":
            continue
        for part, _ in getattr(attention, projection).named_parameters():
            pieces.append(Piece(f"{name}.{projection}.{part}", 0, start, start + size))
    return pieces


def by_parameter(pieces: Iterable[Piece]) -> dict[str, list[Piece]]:
    """The pieces of each parameter, in order."""
    by_name: dict[str, list[Piece]] = defaultdict(list)
    for piece in sorted(pieces):
        by_name[piece.parameter].append(piece)
    return dict(by_name)


def n_elements(hf_model: Any, pieces: Iterable[Piece]) -> int:
    """The number of elements of all pieces."""
    weights = dict(hf_model.named_parameters())
    return sum(piece.of(weights[piece.parameter]).numel() for piece in pieces)


def read_pieces(hf_model: Any, pieces: Iterable[Piece]) -> dict[Piece, Tensor]:
    """Copies of the pieces, on the CPU."""
    weights = dict(hf_model.named_parameters())
    return {
        piece: piece.of(weights[piece.parameter].detach()).cpu().clone().contiguous()
        for piece in pieces
    }


def write_pieces(hf_model: Any, values: Mapping[Piece, Tensor]) -> None:
    """Write values into the model, bit for bit. Raises ValueError if a piece does not fit."""
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
    """The factor H/h of each sliced parameter: its rows or columns, divided by the tuned ones.

    For Q and O it is the number of heads divided by that of tuned heads, for K and V the same with
    key-value heads. A matrix that has Q, K and V has one factor. It is 1 for parameters that are
    tuned as a whole.
    """
    weights = dict(hf_model.named_parameters())
    return {
        name: weights[name].shape[group[0].dim] / sum(p.stop - p.start for p in group)
        for name, group in by_parameter(pieces).items()
    }


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
        inputs = x if dim == 0 else x.index_select(-1, index)
        ctx.save_for_backward(inputs, weight, index)
        ctx.dim, ctx.scale, ctx.dtype = dim, scale, part.dtype
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs, weight, index = ctx.saved_tensors
        below = grad @ weight if ctx.needs_input_grad[0] else None
        of_rows = grad.index_select(-1, index) if ctx.dim == 0 else grad
        of_rows = of_rows.reshape(-1, of_rows.shape[-1])
        part = (of_rows.T @ inputs.reshape(-1, inputs.shape[-1])).to(ctx.dtype) * ctx.scale
        bias = of_rows.sum(0).to(ctx.dtype) * ctx.scale if ctx.needs_input_grad[4] else None
        return below, None, None, part, bias, None, None, None


class SlicedLinear(nn.Module):
    """Replaces a Linear during the training. Its weight keeps its name.

    Attributes:
        weight: the frozen matrix, which contains the slice, Float[out, in].
        weight_slice: the trained parameter, Float[tuned, in] or Float[out, tuned].
        bias_slice: the same of the bias of a tuned Q, K or V, Float[tuned].
        scale: the factor of the slice's gradient.
    """

    index: Tensor

    def __init__(
        self, linear: nn.Linear, pieces: list[Piece], *, tune_bias: bool, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.kind = type(linear)
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
        """Write the slice into the matrix, rounded to its dtype."""
        # .data: backward needs the matrix, and equal values are written again
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
    """A Linear that is trained as a whole in a finer dtype than the model's, without a copy."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.kind, self.model_dtype = type(linear), linear.weight.dtype
        self.weight = nn.Parameter(linear.weight.detach().to(dtype))
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().to(dtype))

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        bias = None if self.bias is None else self.bias.to(self.model_dtype)
        return functional.linear(x, self.weight.to(self.model_dtype), bias)


def _write(weight: Tensor, dim: int, index: Int[Tensor, " tuned"], part: Tensor) -> None:
    weight.index_copy_(dim, index, part.detach().to(weight.dtype))


def slice_model(hf_model: Any, pieces: list[Piece], *, dtype: torch.dtype) -> list[str]:
    """Freeze the model in place, and make the pieces separate parameters.

    Args:
        dtype: the dtype of the slices: float32, also if the model is bfloat16.

    Returns:
        The names of the modules that were replaced.
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
    """Undo `slice_model`, and keep the trained values: the model is a plain one again."""
    for name in replaced:
        module: Any = hf_model.get_submodule(name)
        if isinstance(module, SlicedLinear):
            module.write()
        dtype = module.weight.dtype if isinstance(module, SlicedLinear) else module.model_dtype
        d_out, d_in = module.weight.shape
        linear = module.kind(d_in, d_out, bias=module.bias is not None, device="meta")
        linear.weight = nn.Parameter(module.weight.detach().to(dtype))
        if module.bias is not None:
            linear.bias = nn.Parameter(module.bias.detach().to(dtype))
        _replace(hf_model, name, linear)
    hf_model.requires_grad_(True)


def _replace(hf_model: Any, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    module.train(hf_model.training)
    setattr(hf_model.get_submodule(parent), child, module)
