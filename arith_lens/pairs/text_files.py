"""Rows of text, of which prompt pairs are made: JSON lines, tables or dicts, read and checked."""

import csv
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from typing import Any

from arith_lens.arrays import in_new_folder
from arith_lens.options import check_choice
from arith_lens.pairs.fields import COUNTERFACTUAL_SPANS
from arith_lens.untrusted import json_line

TOKEN_KEYS = ("reference", "counterfactual", "answer")
OPTIONAL_KEYS = ("template", "a", "b")
EXAMPLE_KEYS = ("examples", "exemplar_set")
OTHER_ANSWER = "counterfactual_answer"
SPANS = "spans"
KEYS = (
    *TOKEN_KEYS,
    OTHER_ANSWER,
    *OPTIONAL_KEYS,
    "problem",
    *EXAMPLE_KEYS,
    SPANS,
    COUNTERFACTUAL_SPANS,
)
PLAIN_NAMES = {
    **{"clean": "reference", "corrupted": "counterfactual", "corrupt": "counterfactual"},
    **dict.fromkeys(["corrupted_answer", "corrupt_answer"], OTHER_ANSWER),
}
"""Names of other projects' columns whose meaning is plain."""
LIKELY_NAMES = {
    "reference": ("prompt", "input", "question", "text", "base", "clean_prompt"),
    "counterfactual": ("source", "corrupted_prompt", "counterfactual_prompt", "cf"),
    "answer": ("label", "target", "correct", "gold", "correct_answer", "clean_answer"),
    OTHER_ANSWER: ("wrong_label", "wrong_answer", "incorrect", "incorrect_answer", "foil"),
}
"""Names that errors propose and nothing reads by itself."""
Columns = Mapping[str, str]
"""By key of a row, the name of its column in a file of another project."""
Located = Mapping[str, Mapping[str, Any]]
"""Rows by where they stand: `mine.csv, line 2`, as an editor counts lines, or `rows[0]`."""
MOST_NAMED = 5
"""The number of refused rows that an error names."""


def write_jsonl(rows: Sequence[Mapping[str, Any]], path: str | Path) -> None:
    """Write one JSON object per row."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    in_new_folder(path).write_text("".join(lines), encoding="utf-8")


def write_csv(rows: Sequence[Mapping[str, Any]], path: str | Path) -> None:
    """Write a table with a header."""
    with in_new_folder(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else list(TOKEN_KEYS))
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {k: json.dumps(v) if isinstance(v, dict) else v for k, v in row.items()}
            )


def read_jsonl(path: str | Path, columns: Columns) -> Located:
    """Rows of JSON lines with the keys reference, counterfactual and answer.

    Raises:
        ValueError: no row, a damaged line or a missing key, with its line.
    """
    lines = enumerate(StringIO(_text(path), newline=None), 1)
    texts = {f"{path}, line {i}": line for i, line in lines if line.strip()}
    return _some(each(texts, lambda where: _checked(json_line(texts[where]), columns)), path)


def read_csv(path: str | Path, columns: Columns) -> Located:
    """Rows of a table, by commas or tabs, with the columns reference, counterfactual and answer."""
    text = _text(path)
    delimiter = max(",\t", key=text.partition("\n")[0].count)  # as in its header
    table = csv.DictReader(StringIO(text, newline=""), strict=True, delimiter=delimiter)
    rows, following = {}, 2
    try:
        for row in table:
            more = "".join(map(str, row.values())).count("\n")  # a row begins before its last line
            rows[f"{path}, line {table.line_num - more}"] = row
            following = table.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {following}: expected a line of CSV, found other text ({error}); put "
            "quotes around text with commas or line ends, and write a quote inside as two"
        ) from error
    return _some(each(rows, lambda where: _checked(rows[where], columns)), path)


def read_file(path: str | Path, columns: Columns) -> Located:
    """`read_jsonl` if the text begins with `{` or the name ends in `.jsonl`, else `read_csv`."""
    is_json = _text(path).lstrip()[:1] in ("{", "[") or Path(path).suffix.lower() == ".jsonl"
    return (read_jsonl if is_json else read_csv)(path, columns)


def check_rows(rows: Sequence[Mapping[str, Any]], columns: Columns) -> Located:
    """Check rows. Raises TypeError: no list of rows; ValueError: a key is missing or misspelt."""
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        raise TypeError(
            f"expected a list of rows, then the model, found a {type(rows).__name__} first; write "
            "from_rows([{'reference': …, 'counterfactual': …, 'answer': …}], model)"
        )
    by_place = {f"rows[{i}]": row for i, row in enumerate(rows)}
    return each(by_place, lambda where: _checked(by_place[where], columns))


def each(places: Iterable[str], function: Callable[[str], Any]) -> dict[str, Any]:
    """What a function makes of the row at each place, such as `mine.csv, line 2`.

    Raises:
        ValueError: it refuses some rows. The message has the first reason, and where they all are.
    """
    values, faults = {}, {}
    for where in places:
        try:
            values[where] = function(where)
        except ValueError as error:
            faults[where] = error
    if not faults:
        return values
    (where, error), *others = faults.items()
    message = f"{where}: {error}"
    if others:
        named = ", ".join(where.rpartition(", ")[2] for where in [*faults][:MOST_NAMED])
        rest = ", …" * (len(faults) > MOST_NAMED)
        n = len(faults) + len(values)
        message += (
            f"\n{len(faults)} of {n} rows are refused, for this or another reason: {named}{rest}"
        )
    raise ValueError(message) from error


def _text(path: str | Path) -> str:
    """A file's text with its line ends."""
    if not isinstance(path, str | Path):
        raise TypeError(
            f"expected the path of a file, then the model, found a {type(path).__name__} first; "
            "write from_jsonl(path, model)"
        )
    if not Path(path).is_file():
        kind = "a folder" if Path(path).is_dir() else "nothing there"
        raise FileNotFoundError(
            f"expected a file of pairs at {path}, found {kind} (looked in "
            f"{Path(path).absolute().parent}); check the path"
        )
    data = Path(path).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}, line {line}: expected text in UTF-8, found the byte "
            f"0x{data[error.start]:02x}, which no character has there; save the file as UTF-8"
        ) from error


def _some(rows: Located, path: str | Path) -> Located:
    if not rows:
        raise ValueError(
            f"expected rows of {', '.join(TOKEN_KEYS)} in {path}, found none; write one per pair"
        )
    return rows


def _checked(own: Any, columns: Columns) -> Mapping[str, Any]:
    """Check one row. Raises ValueError if a key is missing or misspelt."""
    keys = ", ".join(TOKEN_KEYS)
    if not isinstance(own, dict):
        raise ValueError(f"expected an object with {keys}, found {own!r:.80}; write one per line")
    row = _renamed(own, columns)
    if missing := [key for key in TOKEN_KEYS if key not in row]:
        names = ", ".join(map(str, own)) or "nothing"
        commas = "; a CSV file has commas between its columns" * bool(re.search(r"[;\t]", names))
        raise ValueError(
            f"expected the keys {keys}, found {names}; add {', '.join(missing)}{commas}"
            f"{_mapping(own, missing)}"
        )
    if empty := [key for key in TOKEN_KEYS if row[key] in (None, "")]:
        raise ValueError(
            f"expected text in each of {keys}, found none in {', '.join(empty)}; write it, or take "
            "the row out"
        )
    for column in (*TOKEN_KEYS, OTHER_ANSWER, "template", *EXAMPLE_KEYS, "problem"):
        value, may_be_number = row.get(column), column in ("answer", OTHER_ANSWER, "problem")
        if not isinstance(value, str | None) and not (may_be_number and type(value) is int):
            raise ValueError(
                f"expected text in {column!r}, found {value!r:.80} "
                f"({type(value).__name__}); write it as text, in quotes"
            )
    for column in (*TOKEN_KEYS, *({OTHER_ANSWER} & row.keys())):
        if re.search("[\ud800-\udfff]", text := str(row[column])):
            raise ValueError(
                f"expected text in {column!r}, found half of a surrogate pair in "
                f"{text!a}, which is not a character; write the whole character"
            )
    if None in row:
        raise ValueError(
            "expected one cell per column of the header, found more; put quotes around "
            "text with commas or tabs"
        )
    for key in row.keys() - {*KEYS}:
        if near := get_close_matches(str(key).lower(), KEYS, n=1, cutoff=0.75):
            raise ValueError(
                f"expected keys such as {', '.join(KEYS)}, found {key!r}; if {near[0]!r} "
                "is meant, spell it so, else rename it"
            )
    _check_origin(row)
    return row


def _renamed(row: dict[str, Any], columns: Columns) -> dict[str, Any]:
    """A row whose columns have the names of this package.

    Raises:
        ValueError: `columns` names a key that rows do not have, or a column that this one lacks.
    """
    for key in columns:
        check_choice("a key in columns=", key, KEYS)
    names = {own: other for other, own in PLAIN_NAMES.items() if other in row and own not in row}
    names |= columns
    for other in columns.values():
        check_choice("a column in columns=", other, map(str, row))
    rest = {key: value for key, value in row.items() if key not in names.values()}
    return rest | {own: row[other] for own, other in names.items()}


def _mapping(row: Mapping[str, Any], missing: Sequence[str]) -> str:
    """The mapping to give for a row with other columns; nothing where it has none."""
    if not row.keys() - {*KEYS, *PLAIN_NAMES}:
        return ""
    others = [OTHER_ANSWER] if row.keys() & {*LIKELY_NAMES[OTHER_ANSWER]} else []
    likely = {
        key: next((name for name in LIKELY_NAMES[key] if name in row), "…")
        for key in [*missing, *others]
    }
    return f"; or say which column is which: columns={likely}"


def _check_origin(row: dict[str, Any]) -> None:
    """Raise ValueError unless template, a and b are all present or all missing."""
    present = [key for key in OPTIONAL_KEYS if row.get(key) not in (None, "")]
    if present and len(present) < len(OPTIONAL_KEYS):
        absent = ", ".join(key for key in OPTIONAL_KEYS if key not in present)
        raise ValueError(
            f"expected template, a and b together, found {', '.join(present)} without "
            f"{absent}; give all three, which bring the roles of tokens, or none"
        )
    for key in OPTIONAL_KEYS[1:] if present else ():
        if not str(row[key]).removeprefix("-").isdecimal():
            raise ValueError(
                f"expected a whole number as {key!r}, found {row[key]!r}; give an operand "
                "of the template"
            )
