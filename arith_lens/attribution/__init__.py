"""Approximations of path effects by gradients and relevance; `effects.agreement` grades them.

`graph` has the forwards and backwards that all methods share, `rules` the backward rules, and
`attribute` the methods.
"""

from arith_lens.attribution.attribute import ATTRIBUTION_METHODS as ATTRIBUTION_METHODS
from arith_lens.attribution.attribute import attribute as attribute
from arith_lens.attribution.edge_scores import EDGE_METHODS as EDGE_METHODS
from arith_lens.attribution.edge_scores import attribute_edges as attribute_edges
from arith_lens.attribution.rules import UnsupportedRule as UnsupportedRule
