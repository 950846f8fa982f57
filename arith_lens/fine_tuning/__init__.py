"""Tune chosen heads and MLPs alone, exactly, and compare with full, LoRA and random tuning.

Paper, section 4.3, Algorithm 2. See `docs/fine_tuning.md`.
"""

from arith_lens.fine_tuning.methods import TuningSettings as TuningSettings
from arith_lens.fine_tuning.methods import prepare as prepare
from arith_lens.fine_tuning.pieces import n_elements as n_elements
from arith_lens.fine_tuning.pieces import pieces_of as pieces_of
from arith_lens.fine_tuning.results import RESULT_FILE as RESULT_FILE
from arith_lens.fine_tuning.results import Delta as Delta
from arith_lens.fine_tuning.results import TuningResult as TuningResult
from arith_lens.fine_tuning.results import combine as combine
from arith_lens.fine_tuning.results import effects_before_after as effects_before_after
from arith_lens.fine_tuning.results import load_delta as load_delta
from arith_lens.fine_tuning.tune import fine_tune as fine_tune
