"""From a head to the MLPs that carry its effect to the logits, by the sweep's machinery.

`rows` computes all of it in one pass over the layers, `hooks` the same in composable hooks,
`result` keeps it, and `mediate` asks for it.
"""

from arith_lens.mediation.mediate import mediation_flops as mediation_flops
from arith_lens.mediation.mediate import mediators as mediators
from arith_lens.mediation.result import Mediation as Mediation
