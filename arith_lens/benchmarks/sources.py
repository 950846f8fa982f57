"""Rows from files or from the Hugging Face hub; what cannot be read is named with its place."""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

Row = Mapping[str, Any]


def json_lines(path: Path) -> Iterator[Row]:
    """The objects of a file of JSON lines; empty lines are passed over."""
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not a JSON object ({error})") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: expected a JSON object, found {row!r}")
        yield row


def json_list(path: Path) -> list[Row]:
    """The objects of a file that is one JSON list."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not a JSON list ({error})") from error
    if not isinstance(rows, list):
        raise ValueError(f"{path}: expected a JSON list of objects, found {type(rows).__name__}")
    return rows


def csv_rows(path: Path) -> list[list[str]]:
    """The rows of a csv file, each a list of its cells."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def hub_rows(source: str, configuration: str | None, split: str, advice: str) -> list[Row]:
    """A split of a dataset on the Hugging Face hub, or of a local folder in its form.

    Raises:
        FileNotFoundError: it does not load: no such id, configuration or split, or no network;
            the message ends in `advice`.
    """
    from datasets import load_dataset

    named = () if configuration is None or Path(source).is_dir() else (configuration,)
    try:
        return cast(list[Row], list(load_dataset(source, *named, split=split)))
    except (OSError, ValueError, RuntimeError) as error:
        raise FileNotFoundError(
            f"no questions at {source!r}, split {split!r}: as a dataset it did not load "
            f"({type(error).__name__}: {error}). {advice}"
        ) from error
