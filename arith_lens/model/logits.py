"""What a model does to its logits after the unembedding: a factor and a soft cap."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class LogitScale:
    """`cap * tanh(factor * logits / cap)`; without a cap, `factor * logits`."""

    factor: float = 1.0
    cap: float | None = None

    @classmethod
    def of(cls, cfg: Any) -> "LogitScale":
        """What a configuration says.

        The factor is Cohere's `logit_scale`, Falcon-H1's `lm_head_multiplier`, or 1 divided by
        Granite's `logits_scaling`. The cap is that of Gemma 2.
        """
        scale, multiplier, divisor = (
            getattr(cfg, name, None)
            for name in ("logit_scale", "lm_head_multiplier", "logits_scaling")
        )
        cap = getattr(cfg, "output_logits_soft_cap", None)
        return cls(
            factor=float(scale or 1) * float(multiplier or 1) / float(divisor or 1),
            cap=cap if cap and cap > 0 else None,  # -1 is none
        )

    def __call__(self, logits: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """The logits that the model returns, from those of the unembedding."""
        if self.factor != 1:
            logits = logits * self.factor
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)
