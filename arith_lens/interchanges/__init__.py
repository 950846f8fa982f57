"""Interchanges: which part of a model's state holds a variable of a calculation.

`causal` has hypotheses on a calculation, and what each expects under an interchange. `pairs` draws
problems that can tell. `sites` names places, `runs` records them and runs the rest of the model.
`spaces` fits subspaces, `controls` fits what could fail beside them. `interchange` puts these
together, and `result` is what it returns. `writers` finds who writes
a subspace and who reads it.
"""

from arith_lens.interchanges.causal import CausalModel as CausalModel
from arith_lens.interchanges.causal import causal_model as causal_model
from arith_lens.interchanges.interchange import interchange as interchange
from arith_lens.interchanges.pairs import InterchangePairs as InterchangePairs
from arith_lens.interchanges.pairs import TooFewPairs as TooFewPairs
from arith_lens.interchanges.pairs import interchange_pairs as interchange_pairs
from arith_lens.interchanges.result import Interchange as Interchange
from arith_lens.interchanges.runs import SiteRuns as SiteRuns
from arith_lens.interchanges.runs import site_runs as site_runs
from arith_lens.interchanges.sites import Site as Site
from arith_lens.interchanges.sites import check_sites as check_sites
from arith_lens.interchanges.spaces import FitData as FitData
from arith_lens.interchanges.spaces import mean_direction as mean_direction
from arith_lens.interchanges.spaces import principal_directions as principal_directions
from arith_lens.interchanges.spaces import swapped as swapped
from arith_lens.interchanges.writers import projections as projections
from arith_lens.interchanges.writers import readers as readers
from arith_lens.interchanges.writers import without_writers as without_writers
from arith_lens.interchanges.writers import writers as writers
