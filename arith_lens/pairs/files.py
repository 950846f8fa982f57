"""Prompt pairs as rows: `datasets.Dataset`, JSON lines and CSV."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from arith_lens.pairs.roles import Role
from arith_lens.pairs.rows import left_pad
from arith_lens.pairs.selection import Selection

if TYPE_CHECKING:
    from arith_lens.pairs.prompt_pairs import PromptPairs

COLUMNS = ("reference", "counterfactual", "answer")
OPTIONAL = ("template", "a", "b")
TEXTS = ("reference_text", "counterfactual_text", "answer_text")
Row: TypeAlias = Mapping[str, Any]


def to_jsonl(pairs: "PromptPairs", path: str | Path) -> None:
    """One JSON object a pair, text only; raises ValueError for pairs from bare tokens."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in _text_rows(pairs)]
    Path(path).write_text("".join(lines), encoding="utf-8")


def to_csv(pairs: "PromptPairs", path: str | Path) -> None:
    """A table with a header, text only; raises ValueError for pairs from bare tokens."""
    rows = _text_rows(pairs)
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else list(COLUMNS))
        writer.writeheader()
        writer.writerows(rows)


def read_jsonl(path: str | Path) -> list[Row]:
    """The rows of JSON lines with the keys reference, counterfactual and answer.

    Raises:
        ValueError: no row, a damaged line, or a missing key (with its line).
    """
    rows = []
    for number, line in enumerate(StringIO(_text(path), newline=None), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not a JSON object ({error})") from error
        rows.append(_checked(row, f"{path}, line {number}"))
    return _not_empty(rows, path)


def checked_rows(rows: Sequence[Row]) -> list[Row]:
    """Dicts with the keys reference, counterfactual and answer. Raises ValueError as read_jsonl."""
    return [_checked(row, f"row {i}") for i, row in enumerate(rows)]


def read_csv(path: str | Path) -> list[Row]:
    """The rows of a table with the columns reference, counterfactual and answer; see read_jsonl."""
    table = csv.DictReader(StringIO(_text(path), newline=""))
    try:
        rows = [_checked(row, f"{path}, row {i}") for i, row in enumerate(table, 1)]
    except csv.Error as error:
        raise ValueError(f"{path}, line {table.line_num}: not a line of CSV ({error})") from error
    return _not_empty(rows, path)


def read_file(path: str | Path) -> list[Row]:
    """The rows of a table where the name ends in `.csv`, else of JSON lines; see read_jsonl."""
    return (read_csv if Path(path).suffix.lower() == ".csv" else read_jsonl)(path)


def _text(path: str | Path) -> str:
    """A file's text, its line ends unchanged. Raises ValueError where it is not UTF-8."""
    data = Path(path).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}, line {line}: expected text in UTF-8, found the byte "
            f"0x{data[error.start]:02x}, which no character has there; save the file as UTF-8"
        ) from error


def _not_empty(rows: list[Row], path: str | Path) -> list[Row]:
    if not rows:
        raise ValueError(
            f"expected rows of {', '.join(COLUMNS)} in {path}, found none; write one a pair"
        )
    return rows


def _checked(row: Any, place: str) -> Mapping[str, Any]:
    """A row with all it needs and no key misspelt; or a ValueError."""
    missing = [c for c in COLUMNS if not isinstance(row, dict) or row.get(c) in (None, "")]
    if missing:
        found = ", ".join(map(str, row)) if isinstance(row, dict) else repr(row)
        raise ValueError(
            f"{place}: expected the keys {', '.join(COLUMNS)}, each with text; "
            f"{', '.join(missing)} is missing or empty; found {found or 'nothing'}"
        )
    for column in COLUMNS:
        if not (text := str(row[column])).isascii() and _surrogates(text):
            raise ValueError(
                f"{place}: expected text in {column!r}, found half of a surrogate pair in "
                f"{text!a}, which is no character; write the whole character"
            )
    if None in row:
        raise ValueError(f"{place}: more cells than the header has columns; quote text with commas")
    for key in row.keys() - {*COLUMNS, *OPTIONAL}:
        if near := _meant(str(key)):
            raise ValueError(
                f"{place}: unknown key {key!r}; if {near!r} is meant, spell it so, else rename it "
                f"(known keys: {', '.join((*COLUMNS, *OPTIONAL))})"
            )
    _check_origin(row, place)
    return row


def _surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _meant(key: str) -> str | None:
    """The known key that an unknown one looks like."""
    near = get_close_matches(key.lower(), [*COLUMNS, *OPTIONAL], n=1, cutoff=0.75)
    return near[0] if near else None


def _check_origin(row: dict[str, Any], place: str) -> None:
    """Refuse half of what says where a prompt comes from: template, a and b go together."""
    given = [key for key in OPTIONAL if row.get(key) not in (None, "")]
    if given and len(given) < len(OPTIONAL):
        absent = ", ".join(key for key in OPTIONAL if key not in given)
        raise ValueError(
            f"{place}: {', '.join(given)} without {absent}; give template, a and b together (they "
            "bring the roles of tokens back), or none of them"
        )
    for key in OPTIONAL[1:] if given else ():
        if not str(row[key]).removeprefix("-").isdecimal():
            raise ValueError(f"{place}: expected a whole number as {key!r}, found {row[key]!r}")


def _text_rows(pairs: "PromptPairs") -> list[dict[str, Any]]:
    texts = [getattr(pairs, name) for name in TEXTS]
    if any(text is None for text in texts):
        raise ValueError(
            "these pairs have no text (they were made from bare tokens), which JSON lines and CSV "
            "hold: use to_dataset, which keeps the tokens"
        )
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*texts, strict=True)]
    more: dict[str, Sequence[Any]] = {}
    if pairs.template is not None and pairs.operands is not None:
        a, b = pairs.operands.unbind(-1)
        more = {"template": pairs.template, "a": a.tolist(), "b": b.tolist()}
    return [{**row, **{key: more[key][i] for key in more}} for i, row in enumerate(rows)]


def to_dataset(pairs: "PromptPairs") -> Any:
    """Everything but the padding; the selection and the tokens' names are in the description."""
    from datasets import Dataset, DatasetInfo

    columns: dict[str, list[Any]] = {
        "reference": _unpadded(pairs.reference, pairs.attention_mask),
        "counterfactual": _unpadded(pairs.counterfactual, pairs.attention_mask),
        "answer": pairs.answer.tolist(),
    }
    for name in ("template", "operation", *TEXTS):
        if getattr(pairs, name) is not None:
            columns[name] = list(getattr(pairs, name))
    for name in ("operands", "computed"):
        if getattr(pairs, name) is not None:
            columns[name] = getattr(pairs, name).tolist()
    if pairs.spans is not None:
        starts = (~pairs.attention_mask).sum(1)[:, None]
        columns |= {str(role): (span - starts).tolist() for role, span in pairs.spans.items()}
    selection = None if pairs.selection is None else asdict(pairs.selection)
    about = {
        "selection": selection,
        "pieces": pairs.pieces and dict(pairs.pieces),
        "explicit_mask": pairs.explicit_mask,
    }
    return Dataset.from_dict(columns, info=DatasetInfo(description=json.dumps(about)))


def dataset_fields(dataset: Any) -> dict[str, Any]:
    """The fields of `PromptPairs` that `to_dataset` wrote, or bare tokens: columns reference,
    counterfactual, answer.

    Rows of bare tokens may be padded on either side if there is a column attention_mask.

    Raises:
        ValueError: missing columns, or prompts of unequal length.
    """
    missing = [column for column in COLUMNS if column not in dataset.column_names]
    if missing:
        raise ValueError(f"the dataset lacks {missing}: found columns {dataset.column_names}")
    columns = dataset.to_dict()
    if "attention_mask" in columns:
        for side in COLUMNS[:2]:
            columns[side] = [
                [token for token, real in zip(row, mask, strict=True) if real]
                for row, mask in zip(columns[side], columns["attention_mask"], strict=True)
            ]
    lengths = [list(map(len, columns[name])) for name in COLUMNS[:2]]
    if lengths[0] != lengths[1]:
        row = next(i for i, (r, c) in enumerate(zip(*lengths, strict=True)) if r != c)
        raise ValueError(
            f"pair {row} is not token-aligned: reference {lengths[0][row]} tokens, counterfactual "
            f"{lengths[1][row]}. Patching needs prompts of one length."
        )
    tokens, mask = left_pad(columns["reference"])
    starts = (~mask).sum(1)[:, None]
    roles = [role for role in Role if str(role) in columns]
    spans = {role: torch.tensor(columns[str(role)]) + starts for role in roles}
    tuples = {n: tuple(columns[n]) for n in ("template", "operation", *TEXTS) if n in columns}
    tensors = {n: torch.tensor(columns[n]) for n in ("operands", "computed") if n in columns}
    return {
        "reference": tokens,
        "counterfactual": left_pad(columns["counterfactual"])[0],
        "answer": torch.tensor(columns["answer"]),
        "attention_mask": mask,
        "spans": spans or None,
        **tuples,
        **tensors,
        "explicit_mask": "attention_mask" in columns,
        **_about(dataset.info.description),
    }


def _about(description: str | None) -> dict[str, Any]:
    try:
        about = json.loads(description or "")
    except json.JSONDecodeError:  # a dataset of someone else's, with a description in prose
        return {}
    if not isinstance(about, Mapping):
        return {}
    selection, pieces = about.get("selection"), about.get("pieces")
    by_template = {k: tuple(v) for k, v in (selection or {}).get("by_template", {}).items()}
    return {
        "selection": selection and Selection(**{**selection, "by_template": by_template}),
        "pieces": pieces and {int(token): piece for token, piece in pieces.items()},
    } | {key: bool(about[key]) for key in ("explicit_mask",) if key in about}


def _unpadded(tokens: torch.Tensor, mask: torch.Tensor) -> list[list[int]]:
    return [row[keep].tolist() for row, keep in zip(tokens, mask, strict=True)]
