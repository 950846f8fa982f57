"""A model's norms as plain functions of float32 rows."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def in_float32(norm: Any) -> Callable[[Tensor], Tensor]:
    """`norm` without the bridge's hook points, and with float32 weights whatever the model's.

    Its result is on the device of its weights, wherever the rows come from.
    """
    plain = getattr(norm, "original_component", None) or norm

    def wide(rows: Tensor) -> Tensor:
        weights = dict(plain.named_parameters())  # asked for anew: they may be offloaded between
        rows = rows.to(next((weight.device for weight in weights.values()), None))
        if all(weight.dtype == torch.float32 for weight in weights.values()):
            return plain(rows)
        weights = {name: weight.float() for name, weight in weights.items()}
        return torch.func.functional_call(plain, weights, (rows,))

    return wide
