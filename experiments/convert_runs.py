"""Bring run folders of format 2, which hold their results, to format 3, which refer to a store.

Every file is checked against its digest before, and read back after.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import tyro

from arith_lens.runs import RunError, load_run
from arith_lens.runs.files import digest, write
from arith_lens.runs.folders import run_key
from arith_lens.runs.record import FORMAT, key_parts
from arith_lens.runs.shards import identity_digest
from arith_lens.runs.store import ENTRY, Store


def main(runs: tyro.conf.Positional[tuple[Path, ...]]) -> None:
    """Convert each folder in place; its store is beside the experiments.

    Args:
        runs: folders `<root>/<experiment>/<key>` of format 2.
    """
    for path in runs:
        print(convert(path))


def convert(path: Path) -> Path:
    """The folder of the converted run. Raises RunError for a folder of another format."""
    record = json.loads((path / "run.json").read_bytes())
    if record.get("arith_lens_run") != 2:
        raise RunError(
            f"expected a run of format 2, found {record.get('arith_lens_run')} in {path}"
        )
    store = Store(path.parents[1])
    new: dict[str, Any] = {**record, "arith_lens_run": FORMAT, "results": {}, "unfinished": {}}
    for name, entry in record["results"].items():
        new["results"][name] = _stored(store, path, name, entry, new)
    target = path.with_name(run_key(new))
    target.mkdir(exist_ok=True)
    write(target / "run.json", json.dumps(new, indent=1, ensure_ascii=False).encode() + b"\n")
    converted = load_run(target)
    for name, entry in record["results"].items():
        file = f"{_stem(name, entry)}.safetensors"
        data = (converted.folder(name) / "result.safetensors").read_bytes()
        assert digest(data) == entry["sha256"][file], name
        converted.load_arrays(name)
    for other in path.iterdir():
        if other.is_dir() and other.name != "shards":
            shutil.copytree(other, target / other.name, dirs_exist_ok=True)
    if target != path:
        shutil.rmtree(path)
    return target


def _stored(
    store: Store, path: Path, name: str, entry: dict[str, Any], record: dict[str, Any]
) -> dict[str, Any]:
    """Put one result into the store; how the run refers to it."""
    identity = {"run": key_parts(record), "result": name}
    key = identity_digest(identity)
    folder = store.place(key)
    folder.mkdir(parents=True)
    stem = _stem(name, entry)
    hashes = {}
    for file, expected in entry["sha256"].items():
        data = (path / file).read_bytes()
        if digest(data) != expected:
            raise RunError(f"{path / file} is damaged")
        renamed = file.replace(stem, "result", 1)
        write(folder / renamed, data)
        hashes[renamed] = expected
    stored = {"identity": key, "generation": 1, "sha256": hashes} | {
        part: entry[part] for part in ("saved", "versions", "kind", "computation")
    }
    write(folder / ENTRY, json.dumps(stored, indent=1).encode())
    return {"identity": key, "kind": entry["kind"], "facts": entry["facts"]}


def _stem(name: str, entry: dict[str, Any]) -> str:
    generation = entry["generation"]
    return name if generation == 1 else f"{name}.{generation}"


if __name__ == "__main__":
    tyro.cli(main, prog="python -m experiments convert_runs", description=__doc__)
