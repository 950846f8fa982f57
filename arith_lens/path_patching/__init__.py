"""Path patching from every component to the logits: which does the answer depend on?

`sweep` computes all senders exactly in one pass, `engines` does so or runs the same experiment with
composable hooks, `certificate` is the proof that the sweep computes this model, `cost` what it will
take.
"""

from arith_lens.path_patching.certificate import CertificateError as CertificateError
from arith_lens.path_patching.cost import Plan as Plan
from arith_lens.path_patching.cost import plan as plan
from arith_lens.path_patching.engines import fitting_engine as fitting_engine
from arith_lens.path_patching.layers import UnsupportedTrunk as UnsupportedTrunk
from arith_lens.path_patching.patch import path_patch as path_patch
