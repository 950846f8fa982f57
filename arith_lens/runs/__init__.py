"""Runs: what an experiment computed, on disk, with everything needed to trust or repeat it.

A run is a folder `results/<experiment>/<key>/`: `run.json` (configuration, provenance, a digest of
every file), and for each result its arrays (`<name>.safetensors`, axes in the header), its table
(`<name>.csv`) and, where the pairs have text, its prompts (`<name>.pairs.jsonl`). The key is a hash
of the configuration and of the model's weights. Files appear whole or not at all; one process at a
time may write. Parts of a result that is not finished are under `shards/` (see docs/runs.md).

Reading a run imports no model library, so that figures are redrawn in seconds.
"""

from arith_lens.runs.files import RunError as RunError
from arith_lens.runs.folders import find_runs as find_runs
from arith_lens.runs.folders import load_run as load_run
from arith_lens.runs.folders import open_run as open_run
from arith_lens.runs.listing import run_table as run_table
from arith_lens.runs.merging import merge_runs as merge_runs
from arith_lens.runs.processes import PartDone as PartDone
from arith_lens.runs.run import Run as Run
from arith_lens.runs.shards import Shards as Shards
from arith_lens.runs.shards import every_shard as every_shard
