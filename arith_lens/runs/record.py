"""run.json: what a run says of itself, checked when it is read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arith_lens.runs.files import RunError, listed, write
from arith_lens.runs.provenance import now

FORMAT = 3
"""The layout of a run folder; others are refused."""

FILE = "run.json"


def new_record(
    experiment: str, config: Mapping[str, Any], provenance: Mapping[str, Any]
) -> dict[str, Any]:
    """Of a run in which nothing has been computed."""
    return {
        "arith_lens_run": FORMAT,
        "experiment": experiment,
        "config": config,
        "status": "new",
        "started": now(),
        "wall_seconds": 0.0,
        "provenance": provenance,
        "results": {},
        "unfinished": {},
    }


def key_parts(record: Mapping[str, Any]) -> list[Any]:
    """What must be the same for two runs to be the same: experiment, format, version,
    configuration, and the digests of the model's weights, its configuration and the input files."""
    version = record["provenance"]["versions"]["arith-lens"]
    return [record["experiment"], FORMAT, version, record["config"], *inputs_of(record)]


def inputs_of(record: Mapping[str, Any]) -> list[Any]:
    """Digests of what the experiment reads."""
    provenance = record["provenance"]
    model = provenance.get("model") or {}
    digests = [model.get("weights_sha256"), model.get("configuration_sha256")]
    return [*digests, provenance.get("inputs") or []]


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Raises RunError when the disk refuses; the record that was there stays."""
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    write(folder / FILE, text.encode())


def read_record(folder: Path) -> dict[str, Any]:
    """The record of a run folder.

    Raises:
        RunError: nothing there, not a run, damaged, or of another version.
    """
    file = folder / FILE
    if not file.is_file():
        raise RunError(
            f"expected a run folder with a run.json, found none at {folder}. "
            "Give a folder results/<experiment>/<key>, or run the experiment first."
        )
    try:
        record = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{file} is damaged ({error}). Delete the folder and run again.") from error
    if not isinstance(record, dict) or "arith_lens_run" not in record:
        raise RunError(f"{file} was not written by arith_lens. Give a folder of results/.")
    if record["arith_lens_run"] != FORMAT:
        raise RunError(
            f"{folder} has format {record['arith_lens_run']}, this version reads {FORMAT}. Delete "
            "that folder and run the experiment again, or read it with the version in its "
            "provenance."
        )
    if lacking := _lacking(record):
        raise RunError(
            f"{file} is damaged: it lacks {listed(lacking)}, or they are of another kind. "
            "Delete it and run again."
        )
    return record


def _lacking(record: Mapping[str, Any]) -> list[str]:
    """What a record should have and has not, or not as a run writes it."""
    kinds = {
        "experiment": str,
        "config": dict,
        "status": str,
        "wall_seconds": int | float,
        "provenance": dict,
        "results": dict,
        "unfinished": dict,
    }
    lacking = [name for name, kind in kinds.items() if not isinstance(record.get(name), kind)]
    if "results" in lacking:
        return lacking
    parts = {"identity": str, "kind": str, "facts": dict}
    return lacking + [
        f"{part} of {name}"
        for name, entry in record["results"].items()
        for part, kind in parts.items()
        if not isinstance(entry, dict) or not isinstance(entry.get(part), kind)
    ]
