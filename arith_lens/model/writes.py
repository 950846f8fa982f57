"""What a part of an attention or an MLP adds to the residual stream.

A head's `z @ W_O`, or a neuron's activation times its row of `W_out`, is a part of what its module
puts out. Between this output and the stream some families have a norm (Gemma 2 and 3, OLMo 2,
GLM-4, EXAONE 4) or a factor (Granite). A norm is not linear: it divides by the length of the whole
output. So what one part adds is defined with this scale held at that of the run, as in direct logit
attribution. Then all parts and the biases add up to what the module adds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.components import Head, Mlp
from arith_lens.model.own_modules import in_float32, own_module


@dataclass(frozen=True)
class NormScale:
    """What a norm divides by: sqrt(mean(x^2) + eps), of x less its mean where it centres."""

    norm: Any
    """The model's own LayerNorm or RMSNorm."""
    of_rows: Callable[[Float[Tensor, "*row d_model"]], Float[Tensor, "*row d_model"]]
    """Its output, in float32."""

    def centres(self, rows: Float[Tensor, "*row d_model"]) -> bool:
        """Whether a constant that is added to a row changes nothing."""
        row = rows.flatten(0, -2)[:1].float()
        out, moved = self.of_rows(torch.cat([row, row + row.abs().mean()]))
        return bool((moved - out).abs().max() < 1e-3 * out.abs().max())

    @property
    def bias(self) -> Float[Tensor, " d_model"] | float:
        """What the norm adds after the division."""
        bias = getattr(self.norm, "bias", None)
        return bias.float() if isinstance(bias, Tensor) else 0.0

    def __call__(self, rows: Float[Tensor, "*row d_model"]) -> Float[Tensor, "*row 1"]:
        """The scale of each row."""
        rows = rows.float()
        if self.centres(rows):
            rows = rows - rows.mean(-1, keepdim=True)
        eps = getattr(self.norm, "variance_epsilon", None) or getattr(self.norm, "eps", None) or 0.0
        return (rows.square().mean(-1, keepdim=True) + eps).sqrt()

    def exchanged(
        self,
        out: Float[Tensor, "*row d_model"],
        rows: Float[Tensor, "*row d_model"],
        scale_of: Float[Tensor, "*other d_model"],
    ) -> Float[Tensor, "*row d_model"]:
        """The norm's output for `rows`, divided by the scale of other rows.

        Args:
            out: what it puts out for `rows`
        """
        ratio = (self(rows) / self(scale_of)).to(out.device)
        if isinstance(self.bias, float):  # none: nothing is copied more than once
            return out * ratio
        return (out - self.bias) * ratio + self.bias


@dataclass(frozen=True)
class PartWrites:
    """The linear map from parts of a module's output to what they add to the stream at END."""

    norm: NormScale | None
    """The norm after the module; None: there is none."""
    factor: float
    """What the layer multiplies its additions by."""
    output: Float[Tensor, "pair d_model"]
    """The module's whole output, before the norm, whose scale is held."""

    @classmethod
    def of(
        cls, block: Any, kind: type[Head] | type[Mlp], output: Float[Tensor, "pair d_model"]
    ) -> "PartWrites":
        """The map of a block's attention (`Head`) or MLP (`Mlp`), for its output in one run."""
        norm = getattr(block, "ln1_post" if kind is Head else "ln2_post", None)
        scale = None if norm is None else NormScale(own_module(norm), in_float32(norm))
        factor = float(getattr(block, "residual_contribution_scale", 1.0))
        return cls(scale, factor, output.float())

    def __call__(
        self, parts: Float[Tensor, "*part pair d_model"]
    ) -> Float[Tensor, "*part pair d_model"]:
        """What the parts add to the stream, without the norm's bias."""
        parts = parts.float()
        if self.norm is None:
            return self.factor * parts
        normed = self.norm.exchanged(self.norm.of_rows(parts), parts, self.output)
        return self.factor * (normed - self.norm.bias)

    @property
    def whole(self) -> Float[Tensor, "pair d_model"]:
        """What the module adds to the stream, with the norm's bias."""
        return self(self.output) + self.factor * (self.norm.bias if self.norm else 0.0)

    def pulled_back(self, gradient: Float[Tensor, "pair d_model"]) -> Float[Tensor, "pair d_model"]:
        """The gradient with respect to a part, from that with respect to the stream."""
        with torch.enable_grad():
            part = self.output.clone().requires_grad_()
            added = self(part)
            (pulled,) = torch.autograd.grad((added * gradient.to(added)).sum(), part)
        return pulled


def check_writes(
    by_parts: Float[Tensor, "*any pair d_model"],
    added: Float[Tensor, "*any pair d_model"],
    name: object,
    *,
    rounded: float = 0.0,
) -> None:
    """Compare what the parts of a module write with what it adds, or the changes of both.

    Args:
        by_parts: what the parts write together.
        added: what the module adds, in the model's dtype.
        name: the module, or the layer.
        rounded: the size of the values that were rounded, if `added` is a difference.

    Raises:
        ValueError: they differ.
    """
    dtype, added = added.dtype, added.to(by_parts.device).float()
    error, allowed = float((by_parts - added).norm()), 1e-3 * float(added.norm()) + 1e-6
    if dtype != torch.float32:
        allowed += 2 * torch.finfo(dtype).eps * max(rounded, float(added.norm()))
    if error > allowed:
        raise ValueError(
            f"expected parts that add up to what {name} adds to the stream, found a difference of "
            f"{error:.3g} (of {float(added.norm()):.3g}); use path_patch, which runs whole layers"
        )
