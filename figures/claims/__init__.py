"""The paper's claims as data, each with code that measures it from runs; no model is loaded.

`claim` says what a claim, a number and a verdict are, `settings` which
runs may be shown together, `evidence` finds them, `estimate` draws
intervals, `checking` puts it together; the other files have the claims, a group each. Rules are
stated before verdicts are computed, with thresholds that are the paper's own words where it has any
(docs/claims.md says which are ours).
"""

from figures.claims.checking import CLAIMS as CLAIMS
from figures.claims.checking import check_claims as check_claims
from figures.claims.claim import Claim as Claim
from figures.claims.claim import Number as Number
from figures.claims.claim import Verdict as Verdict
from figures.claims.claim import verdict_table as verdict_table
