"""Run folders of one computation, made on several machines, brought together."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arith_lens.runs.files import RunError, write
from arith_lens.runs.folders import load_run, run_key
from arith_lens.runs.results import read_file
from arith_lens.runs.run import Run
from arith_lens.runs.shards import FOLDER, IDENTITY, check_shard, identity_digest

PATH = Path | str


def merge_runs(into: PATH, *others: PATH) -> Run:
    """Bring results and shards of `others` into the run folder `into`; running the same experiment
    there then computes what is still missing, and nothing else.

    Each file is checked before it is taken. The others stay as they are.

    Raises:
        RunError: a folder is none of a run, is damaged, or is of another configuration, model,
            version or input; results or shards that claim to be the same differ, or were computed
            in another way (device, threads, versions, ...), which is named.
    """
    target, sources = load_run(into), [load_run(path) for path in others]
    for source in sources:
        _refuse_another_run(target, source)
    known = _identities([target, *sources])
    with target.collecting() as entries:
        for source in sources:
            for name in source.names:
                _take_result(target, source, name, entries)
            for folder in _shard_folders(source):
                if _name(folder) not in entries:
                    _take_shards(target, folder, known)
    return load_run(into)


def _refuse_another_run(target: Run, source: Run) -> None:
    if run_key(target.record) == run_key(source.record):
        return
    differing = [
        what
        for what in ("experiment", "config", "provenance")
        if _decisive(target.record, what) != _decisive(source.record, what)
    ]
    raise RunError(
        f"expected a part of the run in {target.path}, found {source.path} with another "
        f"{', another '.join(differing)}. Merge runs of one configuration, model and version."
    )


def _decisive(record: Mapping[str, Any], what: str) -> str:
    value = record[what]
    if what == "provenance":
        value = {
            "model": (value.get("model") or {}).get("weights_sha256"),
            "inputs": value.get("inputs"),
            "version": value["versions"]["arith-lens"],
        }
    return json.dumps(value, sort_keys=True)


def _identities(runs: list[Run]) -> dict[str, Mapping[str, Any]]:
    """What decides each unfinished result's numbers. Raises RunError where runs differ in it."""
    known: dict[str, tuple[Path, Mapping[str, Any]]] = {}
    for run in runs:
        for folder in _shard_folders(run):
            found = _read(folder / IDENTITY)
            where, expected = known.setdefault(_name(folder), (folder, found))
            if found != expected:
                raise RunError(
                    f"expected shards that were computed like those in {where}, found {folder} "
                    f"with another {', another '.join(_differing(expected, found))}: their bits "
                    "are not the same. Compute all parts alike, or remove one of the folders."
                )
    return {name: identity for name, (_, identity) in known.items()}


def _differing(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "") -> list[str]:
    names: list[str] = []
    for key in sorted({*a, *b}):
        one, other = a.get(key), b.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            names += _differing(one, other, f"{prefix}{key} ")
        elif one != other:
            names.append(f"{prefix}{key} ({one} and {other})")
    return names


def _take_result(target: Run, source: Run, name: str, entries: dict[str, Any]) -> None:
    entry = source.record["results"][name]
    read_file(source.path, name, entry)  # refuses a damaged one
    if name in entries:
        ours, theirs = (_arrays_digest(one) for one in (entries[name], entry))
        if ours != theirs:
            raise RunError(
                f"expected one {name!r}, found different ones in {target.path} and "
                f"{source.path}. Keep one of the two runs."
            )
        return
    for file in entry["sha256"]:
        write(target.path / file, (source.path / file).read_bytes())
    entries[name] = entry


def _arrays_digest(entry: Mapping[str, Any]) -> str:
    return next(digest for file, digest in entry["sha256"].items() if file.endswith(".safetensors"))


def _take_shards(target: Run, folder: Path, known: Mapping[str, Mapping[str, Any]]) -> None:
    ours = target.path / FOLDER / folder.name
    ours.mkdir(parents=True, exist_ok=True)
    if not (ours / IDENTITY).exists():
        write(ours / IDENTITY, (folder / IDENTITY).read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        try:
            check_shard(data, identity_digest(known[_name(folder)]), int(path.stem))
        except RunError as error:
            raise RunError(f"{path} is damaged ({error}); remove it") from error
        write(ours / path.name, data)


def _shard_folders(run: Run) -> list[Path]:
    return [path.parent for path in sorted((run.path / FOLDER).glob(f"*/{IDENTITY}"))]


def _name(folder: Path) -> str:
    return folder.name.rpartition("-")[0]


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is damaged ({error}). Remove that folder of shards.") from error
