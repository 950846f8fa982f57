"""AttnLRP (Achtibat et al., 2024) in its form of gradient times input."""

from arith_lens.attribution.graph import Batch, Scores
from arith_lens.attribution.relp import relp
from arith_lens.attribution.rules import split_attention_products


def attn_lrp(batch: Batch) -> Scores:
    """RelP, and the uniform rule for the products of attention."""
    with split_attention_products(batch.model):
        return relp(batch)
