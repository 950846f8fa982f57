"""Path patching from every component to the logits: which does the answer depend on?

`sweep` computes all senders exactly in one pass, `engines` does so or runs the same experiment with
composable hooks, `certificate` is the proof that the sweep computes this model, `cost` what it will
take. Other methods that read or change END's row build on the names below; nothing else of this
package is for use outside.
"""

from arith_lens.methods import CertificateError as CertificateError
from arith_lens.path_patching.certificate import SWEEP_CLAIM as SWEEP_CLAIM
from arith_lens.path_patching.cost import Plan as Plan
from arith_lens.path_patching.cost import flops_of_rows as flops_of_rows
from arith_lens.path_patching.cost import forward_flops as forward_flops
from arith_lens.path_patching.cost import matrix_rate as matrix_rate
from arith_lens.path_patching.cost import plan as plan
from arith_lens.path_patching.cost import time_text as time_text
from arith_lens.path_patching.engines import Interventions as Interventions
from arith_lens.path_patching.engines import PatchSettings as PatchSettings
from arith_lens.path_patching.engines import Propagation as Propagation
from arith_lens.path_patching.engines import SweepEngine as SweepEngine
from arith_lens.path_patching.engines import fitting_engine as fitting_engine
from arith_lens.path_patching.engines import n_left_out as n_left_out
from arith_lens.path_patching.engines import patch_settings as patch_settings
from arith_lens.path_patching.fewer_evaluations import Race as Race
from arith_lens.path_patching.fewer_evaluations import Screening as Screening
from arith_lens.path_patching.fewer_evaluations import StoppingRule as StoppingRule
from arith_lens.path_patching.fewer_evaluations import balanced_order as balanced_order
from arith_lens.path_patching.fewer_evaluations import race as race
from arith_lens.path_patching.fewer_evaluations import round_sizes as round_sizes
from arith_lens.path_patching.layers import AdditiveLayer as AdditiveLayer
from arith_lens.path_patching.layers import Layer as Layer
from arith_lens.path_patching.layers import LayerInput as LayerInput
from arith_lens.path_patching.layers import Unembedding as Unembedding
from arith_lens.path_patching.layers import UnsupportedTrunk as UnsupportedTrunk
from arith_lens.path_patching.patch import component_effects as component_effects
from arith_lens.path_patching.patch import engine_for as engine_for
from arith_lens.path_patching.patch import operation_name as operation_name
from arith_lens.path_patching.patch import patching_details as patching_details
from arith_lens.path_patching.patch import path_patch as path_patch
from arith_lens.path_patching.patch import warn_of_left_out as warn_of_left_out
from arith_lens.path_patching.recording import PromptBatch as PromptBatch
from arith_lens.path_patching.recording import Recording as Recording
from arith_lens.path_patching.recording import exit_point as exit_point
from arith_lens.path_patching.recording import joined_runs as joined_runs
from arith_lens.path_patching.recording import matrix_elements as matrix_elements
from arith_lens.path_patching.recording import record_batch as record_batch
from arith_lens.path_patching.recording import record_pairs as record_pairs
from arith_lens.path_patching.sweep import Trunk as Trunk
from arith_lens.path_patching.sweep import advance_senders as advance_senders
from arith_lens.path_patching.sweep import direct_changes as direct_changes
from arith_lens.path_patching.sweep import head_changes as head_changes
from arith_lens.path_patching.sweep import rows_at_once as rows_at_once
from arith_lens.path_patching.sweep import rows_bytes as rows_bytes
from arith_lens.path_patching.sweep import sweep_rows as sweep_rows
from arith_lens.path_patching.sweep import trunk_of as trunk_of
