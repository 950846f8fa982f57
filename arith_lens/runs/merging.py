"""Run folders of one computation, made on several machines, brought together."""

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arith_lens.runs.files import RunError
from arith_lens.runs.folders import load_run, run_key
from arith_lens.runs.run import Run

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
    with target.writing():
        results, unfinished = dict(target.record["results"]), dict(target.record["unfinished"])
        for source in sources:
            for name, entry in source.record["results"].items():
                target.store.copy(source.store, entry["identity"])
                results.setdefault(name, entry)
            for name, identity in source.record["unfinished"].items():
                if name not in results and source.store.count_shards(identity):
                    target.store.copy_shards(source.store, identity)
                    unfinished[name] = identity
        unfinished = {name: one for name, one in unfinished.items() if name not in results}
        target.write_record(parts=parts, results=results, unfinished=unfinished)
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
    """Results and shards under one name must have one identity."""
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
    """By name, of the results that a run refers to or has begun."""
    begun = {name: run.record["unfinished"][name] for name in run.unfinished()}
    return begun | {name: entry["identity"] for name, entry in run.record["results"].items()}


def _differing(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "") -> list[str]:
    names: list[str] = []
    for key in sorted({*a, *b}):
        one, other = a.get(key), b.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            names += _differing(one, other, f"{prefix}{key} ")
        elif one != other:
            names.append(f"{prefix}{key} ({one} and {other})")
    return names


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
