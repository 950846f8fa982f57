"""Run folders of one computation, made on several machines, brought together."""

import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arith_lens.runs.files import RunError, write
from arith_lens.runs.folders import load_run, run_key
from arith_lens.runs.results import read_file
from arith_lens.runs.run import Run
from arith_lens.runs.shards import FOLDER, IDENTITY, check_shard, identity_digest

PATH = Path | str
_PART = re.compile(r"part (\d+) of (\d+)")  # how `Processes` names itself


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
    for number, source in enumerate(sources):
        _refuse_another_run(target, source)
        for other in (target, *sources[:number]):
            _refuse_another_computation(other, source)
    parts = sorted({part for run in (target, *sources) for part in _parts(run)})
    with target.collecting(parts=parts) as entries:
        for source in sources:
            for name in source.names:
                _take_result(target, source, name, entries)
            for folder in _shard_folders(source):
                if _name(folder) not in entries:
                    _take_shards(target, folder)
    _warn_of_missing(parts)
    return load_run(into)


def _refuse_another_run(target: Run, source: Run) -> None:
    if run_key(target.record) == run_key(source.record):
        return
    ours, theirs = (_decisive(run.record) for run in (target, source))
    raise RunError(
        f"expected a part of the run in {target.path}, found {source.path} with another "
        f"{', another '.join(_differing(ours, theirs))}. Merge runs of one configuration, model "
        "and version."
    )


def _decisive(record: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a run another one, in the words of the error."""
    provenance = record["provenance"]
    model = provenance.get("model") or {}
    return {
        "experiment": record["experiment"],
        "configuration:": record["config"],
        "model's weights": model.get("weights_sha256"),
        "model's configuration": model.get("configuration_sha256"),
        "input files": provenance.get("inputs"),
        "version": provenance["versions"]["arith-lens"],
    }


def _refuse_another_computation(target: Run, source: Run) -> None:
    """A result of several has shards of several identities: some must be of both runs."""
    ours, theirs = _made_of(target), _made_of(source)
    for name in sorted(ours.keys() & theirs.keys()):
        if ours[name].keys() & theirs[name].keys():
            continue
        (folder, one), (other_folder, other) = (next(iter(m[name].items())) for m in (ours, theirs))
        differing = [] if one is None or other is None else _differing(one, other)
        what = "".join(f", another {difference}" for difference in differing)
        raise RunError(
            f"expected shards of {name} that were computed like {folder} of {target.path}, found "
            f"{other_folder} of {source.path}{what}: their bits are not the same. Compute all "
            "parts alike, or remove one of the folders."
        )


def _made_of(run: Run) -> dict[str, dict[str, Mapping[str, Any] | None]]:
    """By result, the folders of shards it has or was made of, with what decided their numbers."""
    made: dict[str, dict[str, Mapping[str, Any] | None]] = {}
    for name in run.names:
        if folders := run.record["results"][name].get("shard_folders"):
            made[name] = dict.fromkeys(folders)
    for folder in _shard_folders(run):
        made.setdefault(_name(folder), {})[folder.name] = _read(folder / IDENTITY)
    return made


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


def _take_shards(target: Run, folder: Path) -> None:
    ours = target.path / FOLDER / folder.name
    ours.mkdir(parents=True, exist_ok=True)
    if not (ours / IDENTITY).exists():
        write(ours / IDENTITY, (folder / IDENTITY).read_bytes())
    identity = identity_digest(_read(folder / IDENTITY))
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        try:
            check_shard(data, identity, int(path.stem))
        except RunError as error:
            raise RunError(f"{path} is damaged ({error}); remove it") from error
        write(ours / path.name, data)


def _parts(run: Run) -> list[str]:
    """Such as `part 1 of 2`: of those that were brought together before, all."""
    return [run.record["status"], *run.record.get("parts", [])]


def _warn_of_missing(parts: list[str]) -> None:
    """Where one part was given twice, or not yet."""
    found = [] if "finished" in parts else [_PART.fullmatch(part) for part in parts]
    numbers = {(int(part[1]), int(part[2])) for part in found if part}
    for count in sorted({count for _, count in numbers}):
        if missing := [k for k in range(1, count + 1) if (k, count) not in numbers]:
            warnings.warn(
                f"of {count} parts, {', '.join(map(str, missing))} "
                "not among these folders, or stopped on the way: merge it too, or the next run "
                "computes what is missing",
                stacklevel=3,
            )


def _shard_folders(run: Run) -> list[Path]:
    return [path.parent for path in sorted((run.path / FOLDER).glob(f"*/{IDENTITY}"))]


def _name(folder: Path) -> str:
    return folder.name.rpartition("-")[0]


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is damaged ({error}). Remove that folder of shards.") from error
