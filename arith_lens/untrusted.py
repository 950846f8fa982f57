"""What files from elsewhere contain: JSON of any shape, and names that would become paths."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

DEEPEST = 64
"""The levels of lists and objects that a JSON text may have. No file of this package needs ten."""

_NOT_IN_NAMES = re.compile(r'[\x00-\x1f/\\:*?"<>|]')


def parse_json(data: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: the text is not JSON, or lists and objects are nested too deeply in it.
    """
    too_deep = f"expected at most {DEEPEST} levels of lists and objects, found more"
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError(too_deep) from None
    level, depth = _items([value]), 0
    while level:
        level, depth = _items(level), depth + 1
        if depth > DEEPEST:
            raise ValueError(too_deep)
    return value


def json_line(line: str) -> Any:
    """The value of a line of JSON. Raises ValueError: it is not JSON."""
    try:
        return parse_json(line)
    except ValueError as error:
        raise ValueError(
            f"expected a JSON object, found {line!r:.80} ({error}); write one object per line"
        ) from error


def json_lines(lines: Iterable[str], path: Any) -> Iterator[tuple[str, Any]]:
    """The values of JSON lines, each after its file and line. Empty lines are skipped.

    Raises:
        ValueError: a line is not JSON.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            value = json_line(line)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        yield where, value


def _items(values: list[Any]) -> list[Any]:
    """All items of the lists and objects among some values."""
    parts = (list(value.values()) if isinstance(value, dict) else value for value in values)
    return [item for part in parts if isinstance(part, list) for item in part]


def is_plain_file_name(name: object) -> bool:
    """Whether a name is that of a file in its own folder, on every system.

    A name with a slash, a backslash, a colon or a control character is none, nor is one that
    begins with a dot or ends with a blank or a dot.
    """
    return (
        isinstance(name, str)
        and 0 < len(name) <= 255
        and not _NOT_IN_NAMES.search(name)
        and not name.startswith(".")
        and name.rstrip(" .") == name
    )
