"""RelP (Jafari et al., 2025): attribution patching with the backward rules of relevance."""

from arith_lens.attribution.atp import atp
from arith_lens.attribution.graph import Batch, Scores
from arith_lens.attribution.rules import act_over_input, halve_gated_products, hold_norm_scales


def relp(batch: Batch) -> Scores:
    """AtP with norm scales held, act(x) / x for act'(x), and gated products halved."""
    model = batch.model
    with hold_norm_scales(model), act_over_input(model), halve_gated_products(model):
        return atp(batch)
