"""The paper's claims as data, each with code that measures it from runs; no model is loaded.

`claim` says what a claim, a number and a verdict are, `settings` which
runs may be shown together, `evidence` finds them, `estimate` draws
intervals, `checking` puts it together; the other files have the claims, a group each. Rules are
stated before verdicts are computed, with thresholds that are the paper's own words where it has any
(docs/claims.md says which are ours).
"""

from arith_lens.claims.checking import CLAIMS as CLAIMS
from arith_lens.claims.checking import check_claims as check_claims
from arith_lens.claims.claim import Claim as Claim
from arith_lens.claims.claim import Number as Number
from arith_lens.claims.claim import Verdict as Verdict
from arith_lens.claims.claim import verdict_table as verdict_table
from arith_lens.claims.settings import Settings as Settings
from arith_lens.claims.settings import described as described
from arith_lens.claims.settings import suffix as suffix
from arith_lens.claims.settings import weights_of as weights_of
