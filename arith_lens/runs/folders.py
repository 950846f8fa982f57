"""Run folders: open, load, find and list them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arith_lens.caller_warnings import warn_caller
from arith_lens.runs.files import (
    RunError,
    check_name,
    digest,
    digests,
    make_folder,
    plain_value,
    refuse_links,
)
from arith_lens.runs.manifest import (
    RUN_FILE,
    decisive_parts,
    describe_model,
    key_parts,
    new_manifest,
    read_manifest,
    software,
)
from arith_lens.runs.run import Run
from arith_lens.runs.store import STORE_FOLDER

if TYPE_CHECKING:
    from pandas import DataFrame


def open_run(
    experiment: str,
    config: Any,
    *,
    model: Any = None,
    files: str | None = None,
    inputs: Iterable[Path] = (),
    root: str | Path = "results",
    again: bool = False,
) -> Run:
    """Open the run of this configuration. Use it in a `with` block.

    If a run of the same configuration, model, inputs and version exists, it is continued. What it
    saved is in `names`, so an experiment can skip it. Methods with `run=` continue after
    the last shard that an earlier process finished. The provenance is that of the process that
    saved last. Each result has its own versions, device, dtype and threads.

    Args:
        experiment: the name of the experiment, and of the folder of its runs. Letters, digits, `_`
            and `-`.
        config: a dataclass or a mapping of plain values.
        model: the model that the run is about. Its weights and configuration are part of the key
            and of the manifest, so another checkpoint of the same name gets its own folder.
        files: the state of the model's files (`arith_lens.model.files_state`), by which
            `stored_run` finds the run again.
        inputs: files that the experiment reads. Their contents are part of the key.
        again: compute stored results again. Each old result stays until its new one is complete.

    Raises:
        ValueError: the name of the experiment is not valid.
        RunError: an input cannot be read; or the folder of this key is damaged, of another version,
            or contains another run. `with` raises it if another process has the folder open.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols", counterfactual="operands")
        >>> with al.open_run("my_study", {"n": 6}, root="results") as run:
        ...     effects = al.path_patch(model, pairs, run=run, progress=False)  # stored
    """
    check_name(experiment, "an experiment's name")
    if experiment == STORE_FOLDER:
        raise ValueError(
            f"expected an experiment's name, found {STORE_FOLDER!r}, the folder of results; choose "
            "another"
        )
    plain_config = plain_value(config)
    description = describe_model(model) | ({"files": files} if files else {})
    provenance = software() | {"model": description, "inputs": digests(inputs)}
    fresh = new_manifest(experiment, plain_config, provenance)
    key = digest(json.dumps(key_parts(fresh), sort_keys=True).encode())[:12]
    path = Path(root) / experiment / key
    refuse_links(path)
    if not (path / RUN_FILE).exists():
        make_folder(path)
        return Run(path, fresh, provenance, again=again)
    manifest = read_manifest(path)
    if other := _differing(decisive_parts(fresh), decisive_parts(manifest)):
        raise RunError(
            f"expected the run of this configuration in {path}, found one with another "
            f"{', another '.join(other)}. Move that folder away, or choose another root."
        )
    return Run(path, manifest, provenance, again=again)


def stored_run(
    experiment: str,
    config: Any,
    *,
    files: str | None,
    device: str,
    inputs: Iterable[Path] = (),
    root: str | Path = "results",
) -> Run | None:
    """The complete run of this configuration, found without the model.

    Its model was loaded from files in the same state, on the same device, by the same versions.

    Args:
        config: as of `open_run`.
        files: the state of the model's files; with None no run is found.
        device: where the model would be.
        inputs: files that the experiment reads.
        root: the folder of all runs.
    """
    wanted = {"versions": software()["versions"], "inputs": digests(inputs)}
    plain_config, of_model = plain_value(config), {"files": files, "device": device}
    for run in find_runs(experiment, root=root) if files else ():
        provenance = run.manifest["provenance"]
        known = [provenance | (provenance.get("model") or {}), wanted | of_model]
        if run.config == plain_config and known[0] | known[1] == known[0] and run.complete:
            return run
    return None


def load_run(path: str | Path) -> Run:
    """Read a run folder (or its run.json). No model is needed.

    Raises:
        RunError: there is no run, or it is damaged or of another version.

    Example:
        >>> import arith_lens as al
        >>> with al.open_run("my_study", {"n": 1}, root="results") as run:
        ...     path = run.path
        >>> al.load_run(path).config["n"]
        1
    """
    folder = Path(path).parent if Path(path).name == RUN_FILE else Path(path)
    return Run(folder, read_manifest(folder))


def find_runs(
    experiment: str, *, model: str | None = None, root: str | Path = "results"
) -> list[Run]:
    """The finished runs of an experiment, newest first.

    Folders that cannot be read are left out, with a warning that says why.

    Args:
        model: only runs whose configuration names this model; None: all.
        root: the folder of all runs.
    """
    runs = [
        run
        for run in _readable((Path(root) / experiment).glob(f"*/{RUN_FILE}"), "passed over")
        if run.finished and model in (None, run.config.get("model"))
    ]
    return sorted(runs, key=lambda run: run.manifest.get("ended", ""), reverse=True)


def run_table(root: str | Path = "results") -> "DataFrame":
    """One row per run under `root`, newest first: `load_run(path).load(result)` reads a result.

    `unfinished` has the results that are begun, with the number of their finished shards.
    Folders that cannot be read are left out, with a warning that says why.
    """
    from pandas import DataFrame

    rows = []
    for run in _readable(sorted(Path(root).glob(f"*/*/{RUN_FILE}")), "left out"):
        manifest, names = run.manifest, ", ".join(run.names)
        when = str(manifest.get("ended") or manifest.get("started") or "")
        left = ", ".join(f"{name}: {count}" for name, count in run.unfinished().items())
        status, path = manifest["status"], str(run.path)
        rows.append([run.experiment, run.model, status, when, names, left, path])
    columns = ["experiment", "model", "status", "when", "results", "unfinished", "path"]
    table = DataFrame(rows, columns=columns)
    return table.sort_values("when", ascending=False, ignore_index=True, kind="stable")


def _readable(files: Iterable[Path], otherwise: str) -> list[Run]:
    """The runs of some manifests, with a warning in place of each that cannot be read."""
    runs = []
    for file in files:
        try:
            runs.append(load_run(file))
        except RunError as error:
            warn_caller(f"expected runs that can be read, found one that is {otherwise}: {error}")
    return runs


def _differing(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "") -> list[str]:
    names: list[str] = []
    for key in sorted({*a, *b}):
        ours, theirs = a.get(key), b.get(key)
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            names += _differing(ours, theirs, f"{prefix}{key} ")
        elif ours != theirs:
            names.append(f"{prefix}{key} ({ours} and {theirs})")
    return names
