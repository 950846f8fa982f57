"""What MLPs read and write, and heads write, at END: cosines with W_U, logit lens, winners."""

from arith_lens.probes.curves import DIGIT_CLASSES as DIGIT_CLASSES
from arith_lens.probes.curves import Turning as Turning
from arith_lens.probes.curves import case_study as case_study
from arith_lens.probes.curves import chance as chance
from arith_lens.probes.curves import curve_of as curve_of
from arith_lens.probes.curves import digit_classes as digit_classes
from arith_lens.probes.curves import distinct as distinct
from arith_lens.probes.curves import turning_layers as turning_layers
from arith_lens.probes.curves import turning_points as turning_points
from arith_lens.probes.curves import winners as winners
from arith_lens.probes.reading import PROBE_ROLES as PROBE_ROLES
from arith_lens.probes.reading import digit_tokens as digit_tokens
from arith_lens.probes.reading import head_probe as head_probe
from arith_lens.probes.reading import logit_lens as logit_lens
from arith_lens.probes.reading import mlp_probe as mlp_probe
from arith_lens.probes.table import lens_table as lens_table
