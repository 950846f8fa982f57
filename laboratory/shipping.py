"""Copy finished runs to the gallery, small enough to ship."""

from pathlib import Path

import tyro

from arith_lens.runs import RunError, load_run
from arith_lens.runs.files import LOCK
from arith_lens.runs.manifest import write_manifest
from arith_lens.runs.store import Store
from experiments.command import exit_on_user_error


def ship_runs(
    folders: tyro.conf.Positional[tuple[Path, ...]],
    *,
    leave_out: tuple[str, ...] = ("effects",),
    to: Path = Path("figures") / "gallery" / "runs",
) -> None:
    """Copy what figures read of finished runs to figures/gallery/runs, small enough to ship.

    Tables of tuning take hours; with their answers at hand, figures and the report show them at
    once (they read shipped runs where `results/` has none). Each run goes to
    `<to>/<experiment>/<key>`, its results to the store beside it. Tables as CSV, weights and what
    `--leave-out` names stay behind; what is copied is bit for bit the run's, with its manifest.

    Args:
        folders: of finished runs.
        leave_out: results that no figure reads.
        to: where runs are shipped.
    """
    for path in folders:
        with exit_on_user_error():
            size, copy = _shipped(path, leave_out, to)
        print(f"{copy}: {size / 1e6:.2f} MB")


def _shipped(path: Path, leave_out: tuple[str, ...], to: Path) -> tuple[int, Path]:
    run = load_run(path)
    if not run.finished:
        raise RunError(f"expected a finished run, found {run.path}: {run.manifest['status']}")
    copy = to / run.experiment / run.path.name
    if copy.resolve() == run.path.resolve():
        raise RunError(f"expected a run elsewhere than under {to}, found {run.path}")
    results = {
        name: entry for name, entry in run.manifest["results"].items() if name not in leave_out
    }
    store = Store(to)
    for entry in results.values():
        store.copy_arrays(run.store, entry["identity"])
        (store.folder_of(entry["identity"]) / LOCK).unlink(missing_ok=True)
    copy.mkdir(parents=True, exist_ok=True)
    write_manifest(copy, {**run.manifest, "results": results})
    stored = [store.folder_of(entry["identity"]) for entry in results.values()]
    files = [file for folder in (copy, *stored) for file in folder.iterdir()]
    return sum(file.stat().st_size for file in files), copy
