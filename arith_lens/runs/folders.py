"""Run folders: open, load, find, list and merge them."""

import json
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arith_lens.runs.files import RunError, check_name, digest, digests, make_folder, plain_value
from arith_lens.runs.manifest import RUN_FILE, inputs_of, key_parts, new_manifest, read_manifest
from arith_lens.runs.provenance import describe_model, software
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
    path = Path(root) / experiment / run_key(fresh)
    if (path / RUN_FILE).exists():
        manifest = read_manifest(path)
        _refuse_other(path, manifest, fresh)
        return Run(path, manifest, provenance, again=again)
    make_folder(path)
    return Run(path, fresh, provenance, again=again)


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
    runs = []
    for file in (Path(root) / experiment).glob(f"*/{RUN_FILE}"):
        try:
            run = load_run(file)
        except RunError as error:
            warnings.warn(f"a run is passed over: {error}", stacklevel=2)
            continue
        if run.finished and model in (None, run.config.get("model")):
            runs.append(run)
    return sorted(runs, key=lambda run: run.manifest.get("ended", ""), reverse=True)


def run_key(manifest: Mapping[str, Any]) -> str:
    """The name of the folder of a run with this manifest: twelve hexadecimal digits."""
    return digest(json.dumps(key_parts(manifest), sort_keys=True).encode())[:12]


def _refuse_other(path: Path, manifest: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise RunError if the folder with this key's name contains another run."""
    if other := _differing(_decisive(expected), _decisive(manifest)):
        raise RunError(
            f"expected the run of this configuration in {path}, found one with another "
            f"{', another '.join(other)}. Move that folder away, or choose another root."
        )


def _decisive(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What makes two runs the same, by the words of an error."""
    weights, configuration, inputs = inputs_of(manifest)
    return {
        "experiment": manifest["experiment"],
        "configuration:": manifest["config"],
        "model's weights": weights,
        "model's configuration": configuration,
        "input files": inputs,
        "version": manifest["provenance"]["versions"]["arith-lens"],
    }


RUN_TABLE_COLUMNS = ["experiment", "model", "status", "when", "results", "path"]


def run_table(root: str | Path = "results") -> "DataFrame":
    """One row per run under `root`, newest first: `load_run(path).load(result)` reads a result.

    Folders that cannot be read are left out, with a warning that says why.
    """
    from pandas import DataFrame

    rows = []
    for file in sorted(Path(root).glob(f"*/*/{RUN_FILE}")):
        try:
            run = load_run(file)
        except RunError as error:
            warnings.warn(f"a run is left out: {error}", stacklevel=2)
            continue
        manifest, names = run.manifest, ", ".join(run.names)
        when = str(manifest.get("ended") or manifest.get("started") or "")
        rows.append([run.experiment, run.model, manifest["status"], when, names, str(run.path)])
    table = DataFrame(rows, columns=RUN_TABLE_COLUMNS)
    return table.sort_values("when", ascending=False, ignore_index=True, kind="stable")


PATH = Path | str
_PART = re.compile(r"part (\d+) of (\d+)")  # how `Processes` names itself


def merge_runs(into: PATH, *others: PATH) -> Run:
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
    parts = sorted({part for run in (target, *sources) for part in _parts(run)})
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
    if other := _differing(_decisive(target.manifest), _decisive(source.manifest)):
        raise RunError(
            f"expected a part of the run in {target.path}, found {source.path} with another "
            f"{', another '.join(other)}. Merge runs of one configuration, model and version."
        )


def _refuse_another_computation(target: Run, source: Run) -> None:
    """Raise RunError if results or shards of one name have different identities."""
    ours, theirs = identities(target), identities(source)
    for name in sorted(ours.keys() & theirs.keys()):
        if ours[name] == theirs[name]:
            continue
        target_question, source_question = [run.store.question(key[name])
                     for run, key in ((target, ours), (source, theirs))]  # fmt: skip
        differing = _differing(target_question, source_question)
        what = "".join(f", another {difference}" for difference in differing)
        raise RunError(
            f"expected shards of {name} that were computed like those of {target.path}, found "
            f"those of {source.path}{what}: their bits are not the same. Compute all parts alike, "
            "or remove one of the folders."
        )


def identities(run: Run) -> dict[str, str]:
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


def _parts(run: Run) -> list[str]:
    """Names such as `part 1 of 2`, also of the parts that were merged before."""
    return [run.manifest["status"], *run.manifest.get("parts", [])]


def _warn_of_missing(parts: list[str]) -> None:
    """Warn if parts are missing."""
    matches = [] if "finished" in parts else [_PART.fullmatch(part) for part in parts]
    numbers = {(int(part[1]), int(part[2])) for part in matches if part}
    for count in sorted({count for _, count in numbers}):
        if missing := [k for k in range(1, count + 1) if (k, count) not in numbers]:
            warnings.warn(
                f"of {count} parts, {', '.join(map(str, missing))} "
                "not among these folders, or stopped on the way: merge it too, or the next run "
                "computes what is missing",
                stacklevel=3,
            )
