"""All runs of a folder as a table."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from arith_lens.runs.files import RunError
from arith_lens.runs.folders import load_run
from arith_lens.runs.record import FILE
from arith_lens.runs.run import Run

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = ["experiment", "model", "status", "when", "results", "path"]


def run_table(root: str | Path = "results") -> "DataFrame":
    """One row per run under `root`, newest first: `load_run(path).load(result)` reads a result.

    Folders that cannot be read are left out, with a warning that says why.
    """
    from pandas import DataFrame

    rows = []
    for file in sorted(Path(root).glob(f"*/*/{FILE}")):
        try:
            run = load_run(file)
        except RunError as error:
            warnings.warn(f"a run is left out: {error}", stacklevel=2)
            continue
        rows.append([run.experiment, run.model, *_state(run), ", ".join(run.names), str(run.path)])
    table = DataFrame(rows, columns=COLUMNS)
    return table.sort_values("when", ascending=False, ignore_index=True, kind="stable")


def _state(run: Run) -> tuple[str, str]:
    """Its status, and when it ended (or started)."""
    record = run.record
    return record["status"], str(record.get("ended") or record.get("started") or "")
