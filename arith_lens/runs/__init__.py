"""Runs and results on disk, with everything needed to trust or repeat them.

A run is a folder `results/<experiment>/<key>/` with `run.json`: configuration, provenance, and the
results that it refers to. A result is in `results/store/<identity>/`: its arrays
(`result.safetensors`, axes in the header), its table (`result.csv`) and, where the pairs have text,
its prompts (`result.pairs.jsonl`). The identity is a hash of everything that decides the numbers,
so that two experiments which need the same result compute it once. Files appear whole or not at
all; one process at a time may write a run (see docs/runs.md).

Reading a run imports no model library, so that figures are redrawn in seconds.
"""

from arith_lens.runs.files import RunError as RunError
from arith_lens.runs.files import plain_value as plain_value
from arith_lens.runs.files import write as write
from arith_lens.runs.folders import find_runs as find_runs
from arith_lens.runs.folders import load_run as load_run
from arith_lens.runs.folders import open_run as open_run
from arith_lens.runs.folders import run_table as run_table
from arith_lens.runs.folders import stored_run as stored_run
from arith_lens.runs.manifest import describe_model as describe_model
from arith_lens.runs.manifest import describe_pairs as describe_pairs
from arith_lens.runs.manifest import installed as installed
from arith_lens.runs.manifest import method_identity as method_identity
from arith_lens.runs.processes import PART_VARIABLE as PART_VARIABLE
from arith_lens.runs.processes import claim_rank_zero as claim_rank_zero
from arith_lens.runs.run import Run as Run
from arith_lens.runs.shards import PartDone as PartDone
from arith_lens.runs.shards import Shards as Shards
from arith_lens.runs.slot import ResultSlot as ResultSlot
