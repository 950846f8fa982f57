"""GIM (gradient interaction modifications, 2025)."""

from arith_lens.attribution.atp import atp
from arith_lens.attribution.graph import Batch, Scores
from arith_lens.attribution.rules import (
    halve_gated_products,
    hold_norm_scales,
    soften_softmax,
    split_attention_products,
)

TEMPERATURE = 2.0
"""Of the softmax in the backward; the published value."""


def gim(batch: Batch) -> Scores:
    """AtP with norm scales held, a softened softmax, and all products' gradients split."""
    model = batch.model
    with (
        hold_norm_scales(model),
        soften_softmax(model, TEMPERATURE),
        split_attention_products(model),
        halve_gated_products(model),
    ):
        return atp(batch)
