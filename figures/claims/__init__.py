"""The paper's claims as data, each with code that measures it from runs; no model is loaded.

`claims.toml` has the claims in words, with their thresholds. `claim` defines a claim, a finding
and a verdict; `evidence` finds the runs; `estimates` makes findings from rows. `heads`,
`information_flow` and `accuracy` read the rows that each claim is about: `figures.tables` computes
them. Each claim has its name there: a function, or a variable that a function makes from the name
of a statistic. `checking` checks all claims and shows them.

Rules are stated before verdicts are computed. Their thresholds are the
paper's own words where it has any; docs/claims.md says which are ours.
"""

from figures.claims.checking import CLAIMS as CLAIMS
from figures.claims.checking import check_claims as check_claims
from figures.claims.claim import Claim as Claim
from figures.claims.claim import Verdict as Verdict
from figures.claims.claim import verdict_table as verdict_table
