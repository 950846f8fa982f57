"""A Linear of which some rows or columns are trained, at the cost of those rows or columns.

The slice is a leaf parameter of its own, a contiguous copy, and is written into the frozen matrix
before each forward. So:

- The forward is the model's own product with the merged matrix, bit for bit; nothing is added.
- The backward computes the input's gradient (where anything below wants it) and the slice's alone.
- Optimizer state, weight decay, gradient buckets of several processes and checkpoints see only the
  slice: no shared storage, which safetensors and `.to()` would tear.
- The slice may be float32 while the model is bfloat16, where a rate of 2e-5 would else be rounded
  away; what is written is the rounded one, and the same is merged.

Leaf views that share storage with the matrix would save that copy (the slice's size, once a step),
and lose the last two. For one layer's W_O the saved activations are the chosen heads' alone.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from arith_lens.fine_tuning.pieces import Piece, by_parameter


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
        whole = all(_is_whole(groups[parameter], weights[parameter]) for parameter in own)
        if whole and all(weights[parameter].dtype == dtype for parameter in own):
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
            if whole
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
