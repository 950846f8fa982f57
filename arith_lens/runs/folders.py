"""Run folders: open, load, find, list and merge them."""

import json
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arith_lens.runs.files import RunError, check_name, digest, digests, make_folder, plain_value
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
        inputs: files that the experiment reads. Their contents are part of the key.
        again: compute stored results again. Each old result stays until its new one is complete.

    Raises:
        ValueError: the name of the experiment is not valid.
        RunError: an input cannot be read; or the folder of this key is damaged, of another version,
            or contains another run. `with` raises it if another process has the folder open.
    """
    check_name(experiment, "an experiment's name")
    if experiment == STORE_FOLDER:
        raise ValueError(
            f"expected another name of an experiment than {STORE_FOLDER!r}, where results are"
        )
    plain_config = plain_value(config)
    provenance = software() | {"model": describe_model(model), "inputs": digests(inputs)}
    fresh = new_manifest(experiment, plain_config, provenance)
    key = digest(json.dumps(key_parts(fresh), sort_keys=True).encode())[:12]
    path = Path(root) / experiment / key
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


def load_run(path: str | Path) -> Run:
    """Read a run folder (or its run.json). No model is needed.

    Raises:
        RunError: there is no run, or it is damaged or of another version.
    """
    folder = Path(path).parent if Path(path).name == RUN_FILE else Path(path)
    return Run(folder, read_manifest(folder))


def find_runs(
    experiment: str, *, model: str | None = None, root: str | Path = "results"
) -> list[Run]:
    """The finished runs of an experiment, newest first.

    Folders that cannot be read are left out, with a warning that says why.

    Args:
        experiment: the name of the experiment.
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

    Folders that cannot be read are left out, with a warning that says why.
    """
    from pandas import DataFrame

    rows = []
    for run in _readable(sorted(Path(root).glob(f"*/*/{RUN_FILE}")), "left out"):
        manifest, names = run.manifest, ", ".join(run.names)
        when = str(manifest.get("ended") or manifest.get("started") or "")
        rows.append([run.experiment, run.model, manifest["status"], when, names, str(run.path)])
    columns = ["experiment", "model", "status", "when", "results", "path"]
    table = DataFrame(rows, columns=columns)
    return table.sort_values("when", ascending=False, ignore_index=True, kind="stable")


def _readable(files: Iterable[Path], otherwise: str) -> list[Run]:
    """The runs of some manifests, with a warning in place of each that cannot be read."""
    runs = []
    for file in files:
        try:
            runs.append(load_run(file))
        except RunError as error:
            warnings.warn(f"a run is {otherwise}: {error}", stacklevel=3)
    return runs


def merge_runs(into: str | Path, *others: str | Path) -> Run:
    """Copy the results and shards of `others` into the run folder `into`.

    The same experiment, run with this folder, then computes only what is still missing. Each file
    is checked before it is copied. The folders `others` do not change.

    Returns:
        The merged run.

    Raises:
        RunError: a folder is no run, is damaged, or has another configuration, model, version or
            input; or results or shards of one name differ, or were computed in another way (device,
            threads, versions, ...). The message names what differs.
    """
    target, sources = load_run(into), [load_run(path) for path in others]
    for number, source in enumerate(sources):
        _refuse_another_run(target, source)
        for other in (target, *sources[:number]):
            _refuse_another_computation(other, source)
    # such as "part 1 of 2"; those that were merged before are in the manifest's parts
    manifests = [run.manifest for run in (target, *sources)]
    parts = sorted({p for one in manifests for p in (one["status"], *one.get("parts", []))})
    with target.writing():
        results, unfinished = dict(target.manifest["results"]), dict(target.manifest["unfinished"])
        for source in sources:
            for name, entry in source.manifest["results"].items():
                target.store.copy(source.store, entry["identity"])
                results.setdefault(name, entry)
            for name, identity in source.manifest["unfinished"].items():
                if name not in results and source.store.count_shards(identity):
                    target.store.copy_shards(source.store, identity)
                    unfinished[name] = identity
        unfinished = {name: key for name, key in unfinished.items() if name not in results}
        target.write_manifest(parts=parts, results=results, unfinished=unfinished)
    _warn_of_missing(parts)
    return load_run(into)


def _refuse_another_run(target: Run, source: Run) -> None:
    if other := _differing(decisive_parts(target.manifest), decisive_parts(source.manifest)):
        raise RunError(
            f"expected a part of the run in {target.path}, found {source.path} with another "
            f"{', another '.join(other)}. Merge runs of one configuration, model and version."
        )


def _refuse_another_computation(target: Run, source: Run) -> None:
    """Raise RunError if results or shards of one name have different identities."""
    ours, theirs = _identities(target), _identities(source)
    for name in sorted(ours.keys() & theirs.keys()):
        if ours[name] == theirs[name]:
            continue
        differing = _differing(
            target.store.question(ours[name]), source.store.question(theirs[name])
        )
        what = "".join(f", another {difference}" for difference in differing)
        raise RunError(
            f"expected shards of {name} that were computed like those of {target.path}, found "
            f"those of {source.path}{what}: their bits are not the same. Compute all parts alike, "
            "or remove one of the folders."
        )


def _identities(run: Run) -> dict[str, str]:
    """The identity of each result that a run refers to or has begun, by name."""
    begun = {name: run.manifest["unfinished"][name] for name in run.unfinished()}
    return begun | {name: entry["identity"] for name, entry in run.manifest["results"].items()}


def _differing(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "") -> list[str]:
    names: list[str] = []
    for key in sorted({*a, *b}):
        ours, theirs = a.get(key), b.get(key)
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            names += _differing(ours, theirs, f"{prefix}{key} ")
        elif ours != theirs:
            names.append(f"{prefix}{key} ({ours} and {theirs})")
    return names


def _warn_of_missing(parts: list[str]) -> None:
    """Warn if parts are missing, by the names that `Processes` gives them."""
    if "finished" in parts:
        return
    matches = [re.fullmatch(r"part (\d+) of (\d+)", part) for part in parts]
    numbers = {(int(part[1]), int(part[2])) for part in matches if part}
    for count in sorted({count for _, count in numbers}):
        if missing := [k for k in range(1, count + 1) if (k, count) not in numbers]:
            warnings.warn(
                f"of {count} parts, {', '.join(map(str, missing))} "
                "not among these folders, or stopped on the way: merge it too, or the next run "
                "computes what is missing",
                stacklevel=3,
            )
