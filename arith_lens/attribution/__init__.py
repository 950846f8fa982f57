"""Approximations of path effects by gradients and relevance; `effects.agreement` grades them.

`graph` has the forwards and backwards that all methods share, `rules` the backward rules, and
`attribute` the methods.
"""

from arith_lens.attribution.attribute import ATTRIBUTION_METHODS as ATTRIBUTION_METHODS
from arith_lens.attribution.attribute import attribute as attribute
from arith_lens.attribution.rules import UnsupportedRule as UnsupportedRule
