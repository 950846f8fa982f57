"""Copy what figures read of finished runs to figures/gallery/runs, small enough to ship.

Tables of tuning take hours; with their answers at hand, figures and the report show them at once
(`figures/common.py` looks there where `results/` has none). Tables as CSV, weights and what
`--leave-out` names stay behind; what is copied is bit for bit the run's, with its record.
"""

import json
import shutil
from pathlib import Path

import tyro

from arith_lens.runs import RunError, load_run
from experiments.command import exit_on_user_error


def main(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    *,
    leave_out: tuple[str, ...] = ("effects",),
    to: Path = Path("figures") / "gallery" / "runs",
) -> None:
    """Copy each to `<to>/<experiment>/<key>`, in place of one that is there.

    Args:
        runs: finished run folders.
        leave_out: results that no figure reads.
        to: where runs are shipped.
    """
    for path in runs:
        with exit_on_user_error():
            size, copy = _shipped(path, leave_out, to)
        print(f"{copy}: {size / 1e6:.2f} MB")


def _shipped(path: Path, leave_out: tuple[str, ...], to: Path) -> tuple[int, Path]:
    run = load_run(path)
    if run.record["status"] != "finished":
        raise RunError(f"expected a finished run, found {run.path}: {run.record['status']}")
    copy = to / run.experiment / run.path.name
    if copy.resolve() == run.path.resolve():
        raise RunError(f"expected a run elsewhere than under {to}, found {run.path}")
    record = json.loads((run.path / "run.json").read_text("utf-8"))
    for name in leave_out:
        record["results"].pop(name, None)
    partial = copy.with_name(f"{copy.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for entry in record["results"].values():
        entry["sha256"] = {file: found for file, found in entry["sha256"].items()
                           if file.endswith(".safetensors")}  # fmt: skip
        for file in entry["sha256"]:
            shutil.copyfile(run.path / file, partial / file)
    (partial / "run.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for name in load_run(partial).names:
        load_run(partial).load_arrays(name)  # refuses a damaged file
    shutil.rmtree(copy, ignore_errors=True)
    partial.rename(copy)
    return sum(file.stat().st_size for file in copy.iterdir()), copy


if __name__ == "__main__":
    tyro.cli(main, prog="python -m experiments.ship_runs", description=__doc__)
