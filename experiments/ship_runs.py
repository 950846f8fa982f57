"""Copy what figures read of finished runs to figures/gallery/runs, small enough to ship.

Tables of tuning take hours; with their answers at hand, figures and the report show them at once
(`figures/common.py` looks there where `results/` has none). Tables as CSV, weights and what
`--leave-out` names stay behind; what is copied is bit for bit the run's, with its record.
"""

from pathlib import Path

import tyro

from arith_lens.runs import RunError, load_run
from arith_lens.runs.record import write_record
from arith_lens.runs.store import LOCK, Store
from experiments.command import exit_on_user_error


def main(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    *,
    leave_out: tuple[str, ...] = ("effects",),
    to: Path = Path("figures") / "gallery" / "runs",
) -> None:
    """Copy each to `<to>/<experiment>/<key>`, and its results to the store beside it.

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
    if not run.finished:
        raise RunError(f"expected a finished run, found {run.path}: {run.record['status']}")
    copy = to / run.experiment / run.path.name
    if copy.resolve() == run.path.resolve():
        raise RunError(f"expected a run elsewhere than under {to}, found {run.path}")
    results = {name: one for name, one in run.record["results"].items() if name not in leave_out}
    store = Store(to)
    for entry in results.values():
        store.copy(run.store, entry["identity"], arrays_only=True)
        (store.place(entry["identity"]) / LOCK).unlink(missing_ok=True)
    copy.mkdir(parents=True, exist_ok=True)
    write_record(copy, {**run.record, "results": results})
    folders = [store.place(entry["identity"]) for entry in results.values()]
    files = [file for folder in (copy, *folders) for file in folder.iterdir()]
    return sum(file.stat().st_size for file in files), copy


if __name__ == "__main__":
    tyro.cli(main, prog="python -m experiments ship_runs", description=__doc__)
