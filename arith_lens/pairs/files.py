"""Prompt pairs as rows of text (JSON lines, CSV or dicts) and as datasets, and back.

Prompts of your own come as rows of text, too: `pair_fields` tokenizes and checks them.
"""

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

import torch

from arith_lens.arrays import in_new_folder
from arith_lens.model import left_pad
from arith_lens.pairs.fields import PairFields, Selection, unpadded
from arith_lens.pairs.references import (
    AnyTemplate,
    Wording,
    examples_span,
    is_computed,
    role_spans,
)
from arith_lens.pairs.tokens import (
    NO_ANSWER,
    Prompt,
    Role,
    Span,
    answer_token,
    continued,
    disjoint,
    encode,
    side_by_side,
    token_fields,
    token_spans,
    token_texts,
    tokenizer_name,
    tokenizer_of,
    tokens_after,
)
from arith_lens.problems import Problem
from arith_lens.templates import FIGURE_10, SLOTS, TEMPLATES, Template
from arith_lens.untrusted import parse_json

if TYPE_CHECKING:
    from pandas import DataFrame

TOKEN_KEYS = ("reference", "counterfactual", "answer")
OPTIONAL_KEYS = ("template", "a", "b")
EXAMPLE_KEYS = ("examples", "exemplar_set")
OTHER_ANSWER = "counterfactual_answer"
KEYS = (*TOKEN_KEYS, OTHER_ANSWER, *OPTIONAL_KEYS, "problem", *EXAMPLE_KEYS)


def write_jsonl(rows: Sequence[Mapping[str, Any]], path: str | Path) -> None:
    """Write one JSON object per row."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    in_new_folder(path).write_text("".join(lines), encoding="utf-8")


def write_csv(rows: Sequence[Mapping[str, Any]], path: str | Path) -> None:
    """Write a table with a header."""
    with in_new_folder(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else list(TOKEN_KEYS))
        writer.writeheader()
        writer.writerows(rows)


def read_jsonl(path: str | Path) -> list[Mapping[str, Any]]:
    """Rows of JSON lines with the keys reference, counterfactual and answer.

    Raises:
        ValueError: no row, a damaged line or a missing key, with its line.
    """
    rows = []
    for number, line in enumerate(StringIO(_text(path), newline=None), 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            raise ValueError(
                f"{path}, line {number}: expected a JSON object, found something else ({error}); "
                "write one object per line"
            ) from error
        rows.append(_checked(row, f"{path}, line {number}"))
    return _some(rows, path)


def read_csv(path: str | Path) -> list[Mapping[str, Any]]:
    """Rows of a table with the columns reference, counterfactual and answer; see `read_jsonl`."""
    table = csv.DictReader(StringIO(_text(path), newline=""))
    try:
        rows = [_checked(row, f"{path}, row {i}") for i, row in enumerate(table, 1)]
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {table.line_num}: expected a line of CSV, found other text ({error}); "
            "put quotes around text with commas or line ends"
        ) from error
    return _some(rows, path)


def check_rows(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Check rows. Raises TypeError: no list of rows; ValueError: a key is missing or misspelt."""
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        raise TypeError(
            f"expected a list of rows, then the model, found a {type(rows).__name__} first; write "
            "from_rows([{'reference': …, 'counterfactual': …, 'answer': …}], model)"
        )
    return [_checked(row, f"row {i}") for i, row in enumerate(rows)]


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


def _some(rows: list[Mapping[str, Any]], path: str | Path) -> list[Mapping[str, Any]]:
    if not rows:
        raise ValueError(
            f"expected rows of {', '.join(TOKEN_KEYS)} in {path}, found none; write one per pair"
        )
    return rows


def _checked(row: Any, where: str) -> Mapping[str, Any]:
    """Check one row. Raises ValueError if a key is missing or misspelt."""
    missing = [c for c in TOKEN_KEYS if not isinstance(row, dict) or row.get(c) in (None, "")]
    if missing:
        keys = ", ".join(map(str, row)) if isinstance(row, dict) else repr(row)
        commas = "; a CSV file has commas between its columns" * bool(re.search(r"[;\t]", keys))
        raise ValueError(
            f"{where}: expected the keys {', '.join(TOKEN_KEYS)}, each with text, found "
            f"{keys or 'nothing'}; add {', '.join(missing)}, which is missing or empty{commas}"
        )
    for column in (*TOKEN_KEYS, OTHER_ANSWER, "template", *EXAMPLE_KEYS, "problem"):
        value, may_be_number = row.get(column), column in ("answer", OTHER_ANSWER, "problem")
        if not isinstance(value, str | None) and not (may_be_number and type(value) is int):
            raise ValueError(
                f"{where}: expected text in {column!r}, found {value!r:.80} "
                f"({type(value).__name__}); write it as text, in quotes"
            )
    for column in (*TOKEN_KEYS, *({OTHER_ANSWER} & row.keys())):
        if re.search("[\ud800-\udfff]", text := str(row[column])):
            raise ValueError(
                f"{where}: expected text in {column!r}, found half of a surrogate pair in "
                f"{text!a}, which is not a character; write the whole character"
            )
    if None in row:
        raise ValueError(
            f"{where}: expected one cell per column of the header, found more; put quotes around "
            "text with commas"
        )
    for key in row.keys() - {*KEYS}:
        if near := get_close_matches(str(key).lower(), KEYS, n=1, cutoff=0.75):
            raise ValueError(
                f"{where}: expected keys such as {', '.join(KEYS)}, found {key!r}; if {near[0]!r} "
                "is meant, spell it so, else rename it"
            )
    _check_origin(row, where)
    return row


def _check_origin(row: dict[str, Any], where: str) -> None:
    """Raise ValueError unless template, a and b are all present or all missing."""
    present = [key for key in OPTIONAL_KEYS if row.get(key) not in (None, "")]
    if present and len(present) < len(OPTIONAL_KEYS):
        absent = ", ".join(key for key in OPTIONAL_KEYS if key not in present)
        raise ValueError(
            f"{where}: expected template, a and b together, found {', '.join(present)} without "
            f"{absent}; give all three, which bring the roles of tokens, or none"
        )
    for key in OPTIONAL_KEYS[1:] if present else ():
        if not str(row[key]).removeprefix("-").isdecimal():
            raise ValueError(
                f"{where}: expected a whole number as {key!r}, found {row[key]!r}; give an operand "
                "of the template"
            )


_BY_NAME: dict[str, AnyTemplate] = {
    template.name: template for group in (*TEMPLATES.values(), FIGURE_10) for template in group
}


def pair_fields(rows: Sequence[Mapping[str, Any]], model: Any) -> dict[str, Any]:
    """The fields of PromptPairs from rows with reference, counterfactual and answer.

    Raises:
        ValueError: no row, prompts of unequal length, or an answer that is not one token after its
            prompt.
    """
    if not rows:
        raise ValueError(
            "expected at least one row of reference, counterfactual and answer, found none; give "
            "one per pair"
        )
    tokenizer = tokenizer_of(model)
    references, counterfactuals, answers = (
        [str(row[column]) for row in rows] for column in TOKEN_KEYS
    )
    prompts, others = encode(tokenizer, references), encode(tokenizer, counterfactuals)
    answered = encode(tokenizer, _answered(rows, references, answers))
    tokens = [
        _answer(tokenizer, i, references[i], answers[i], prompts[i], answered[i])
        for i in range(len(rows))
    ]
    for i, (prompt, other) in enumerate(zip(prompts, others, strict=True)):
        if prompt.ids == other.ids:
            raise ValueError(
                f"pair {i}: expected a counterfactual that differs from its reference, found "
                f"{references[i]!r} as both, so that patching can change nothing; give a "
                "counterfactual without the calculation"
            )
        if len(prompt.ids) != len(other.ids):
            raise ValueError(
                f"pair {i} is not token-aligned under {tokenizer_name(tokenizer)}: expected "
                f"prompts of one length, found {len(prompt.ids)} and {len(other.ids)} tokens; the "
                "first different one is in brackets:\n"
                f"{side_by_side(tokenizer, prompt.ids, other.ids)}\n"
                "Patching moves activations position by position; give a counterfactual of the "
                "same number of tokens (BOS included in the counts)."
            )
    other_answers = _cells(rows, OTHER_ANSWER)
    continued_others = _answered(rows, counterfactuals, other_answers)
    other_tokens = [
        _answer(tokenizer, i, counterfactuals[i], other_answers[i], others[i], answered)
        if other_answers[i].strip()
        else NO_ANSWER
        for i, answered in enumerate(encode(tokenizer, continued_others))
    ]
    return {
        **token_fields(tokenizer, prompts, others, tokens, other_tokens),
        "reference_text": tuple(references),
        "counterfactual_text": tuple(counterfactuals),
        "answer_text": tuple(answers),
        "counterfactual_answer_text": tuple(other_answers),
        "problem": _labels(rows),
        **_known(tokenizer, rows, prompts),
    }


def _answered(
    rows: Sequence[Mapping[str, Any]], texts: Sequence[str], answers: Sequence[str]
) -> list[str]:
    """Each prompt with its answer, which follows as it is written, with a blank or without.

    In rows of a template it follows as in the template, whose blank older files leave out.
    """
    joined = zip(rows, texts, answers, strict=True)
    return [
        continued(text, answer) if row.get("template") else text + answer
        for row, text, answer in joined
    ]


def _cells(rows: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    """A column as text; empty where a row lacks it."""
    cells = [row.get(name) for row in rows]
    return ["" if cell is None else str(cell) for cell in cells]


def _labels(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The column `problem`, the reference prompt where it is empty; () if no row has it."""
    labels, prompts = _cells(rows, "problem"), _cells(rows, "reference")
    pairs = zip(labels, prompts, strict=True)
    return tuple(label or prompt for label, prompt in pairs) if any(labels) else ()


def _answer(
    tokenizer: Any, pair: int, text: str, answer: str, prompt: Prompt, answered: Prompt
) -> int:
    token = answer_token(tokenizer, prompt, answered, answer.strip())
    if token is None:
        tokens_text = " ".join(tokenizer.convert_ids_to_tokens(list(answered.ids)))
        raise ValueError(
            f"pair {pair}: expected an answer of the one token after {text!r} under "
            f"{tokenizer_name(tokenizer)}, found {answer!r}; prompt and answer are {tokens_text}.\n"
            f"{_advice(tokenizer, text, answer)}"
        )
    return token


def _advice(tokenizer: Any, text: str, answer: str) -> str:
    """What to do: another place for the blank, or the answer's first token, if that is accepted."""
    bare, word = text.rstrip(" "), answer.strip()
    forms = [(text, word), (bare, f" {word}"), (f"{bare} ", word), (bare, word)]
    forms = list(dict.fromkeys(form for form in forms if form != (text, answer)))
    fitting = [form for form in forms if _accepted(tokenizer, *form)]
    if fitting:
        ways = [
            f"the answer {other!r}" + f" after {start!r}" * (start != text)
            for start, other in fitting[:2]
        ]
        return (
            f"The answer follows the prompt as it is written, with its blank or without. Give "
            f"{', or '.join(ways)}; the counterfactual's end changes with its reference's."
        )
    for start, other in [(text, answer), *forms]:
        prompt, answered = encode(tokenizer, [start, start + other])
        after = tokens_after(prompt.ids, answered.ids)
        first = token_texts(tokenizer, after)[after[0]] if after else ""
        blank = other[: len(other) - len(other.lstrip())]
        if first and _accepted(tokenizer, start, blank + first):
            return (
                f"Give its first token, {blank + first!r}"
                + f" after {start!r}" * (start != text)
                + ", as the answer (then another answer that begins so counts as right, too), or "
                "an answer of one token."
            )
    return "Give an answer of one token that leaves the prompt's tokens as they are."


def _accepted(tokenizer: Any, text: str, answer: str) -> bool:
    """Whether an answer is the one token after a prompt."""
    prompt, answered = encode(tokenizer, [text, text + answer])
    return answer_token(tokenizer, prompt, answered, answer.strip()) is not None


def _known(
    tokenizer: Any, rows: Sequence[Mapping[str, Any]], prompts: Sequence[Prompt]
) -> dict[str, Any]:
    """The fields that rows of a known template have: roles, operands and others; else none."""
    bos = tokenizer.bos_token_id
    matched = [_matched(row, prompt, bos) for row, prompt in zip(rows, prompts, strict=True)]
    known = [match for match in matched if match is not None]
    if len(known) < len(rows):
        return {}
    wordings, spans = zip(*known, strict=True)
    computed = [
        is_computed(tokenizer, wording, str(row["reference"]), prompt, fields)
        for (wording, fields), row, prompt in zip(known, rows, prompts, strict=True)
    ]
    return {
        "spans": role_spans(tokenizer, list(zip(prompts, spans, strict=True))),
        "template": tuple(wording.template.name for wording in wordings),
        "operation": tuple(wording.problem.operation for wording in wordings),
        "operands": torch.tensor([(w.problem.a, w.problem.b) for w in wordings]),
        "computed": torch.tensor(computed),
        **{name: column for name in EXAMPLE_KEYS if any(column := _column(rows, name))},
    }


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[str, ...]:
    """Of the examples or of their set, which is `examples` if a row with examples names none."""
    default = "" if name == "examples" else "examples"
    return tuple(str(row.get(name) or (row.get("examples") and default) or "") for row in rows)


def _matched(
    row: Mapping[str, Any], prompt: Prompt, bos: int | None
) -> tuple[Wording, Mapping[str, Span]] | None:
    """The row's wording and the tokens of its fields; None if its text is not its template's."""
    name = row.get("template")
    if name in (None, ""):
        return None
    if name not in _BY_NAME:
        raise ValueError(
            f"expected a template such as 'addition/0' or 'story/9', found {name!r} at "
            f"{row['reference']!r}; correct the name, or leave template, a and b out"
        )
    template = _BY_NAME[name]
    problem = Problem(template.operation, int(row["a"]), int(row["b"]))
    text, answer = str(row["reference"]), str(row["answer"]).strip()
    examples = str(row.get("examples") or "")
    match = re.fullmatch(re.escape(examples) + _pattern(template, problem), text)
    if match is None or not problem.is_exact:
        return None
    if not str(problem.answer).startswith(match["given"] + answer):
        return None
    spans = token_spans(prompt, {name: match.span(name) for name in match.re.groupindex})
    spans |= examples_span(prompt, len(examples), bos)
    wording = Wording(template, problem, answer, match["given"], examples=examples)
    return (wording, spans) if disjoint(spans) else None


def _pattern(template: AnyTemplate, problem: Problem) -> str:
    """A regular expression of the template's prompts. Groups are the fields, C's digits last."""
    known = {"A": str(problem.a), "B": str(problem.b)}
    if isinstance(template, Template):
        known["op"] = template.word
    pattern = ""
    for literal, name, _, _ in Formatter().parse(template.text.rstrip(" ")):
        pattern += re.escape(literal)
        if name is not None and f"(?P<{name}>" in pattern:
            pattern += f"(?P={name})"
        elif name is not None:
            words = (known[name],) if name in known else SLOTS[name.rstrip("23")]
            pattern += f"(?P<{name}>{'|'.join(map(re.escape, words))})"
    return pattern + r" ?(?P<given>\d*)"


_TEXTS = ("reference_text", "counterfactual_text", "answer_text")
_OTHER_TEXT = f"{OTHER_ANSWER}_text"
_TUPLES = (
    *("template", "problem", "examples", "exemplar_set", "operation"),
    *_TEXTS,
    _OTHER_TEXT,
)
_TENSORS = ("operands", "computed", OTHER_ANSWER)


def text_rows(pairs: PairFields) -> list[dict[str, Any]]:
    """One row of text per pair. Raises ValueError for pairs from bare tokens."""
    texts = [getattr(pairs, name) for name in _TEXTS]
    if any(text is None for text in texts):
        raise ValueError(
            "expected pairs with text, which JSON lines and CSV hold, found pairs from bare "
            "tokens; use to_dataset, which keeps the tokens"
        )
    columns: dict[str, Any] = dict(zip(TOKEN_KEYS, texts, strict=True))
    if pairs.template is not None and pairs.operands is not None:
        a, b = pairs.operands.T.tolist()
        columns |= {"template": pairs.template, "a": a, "b": b}
    columns["problem"] = pairs.problem
    if any(others := pairs.counterfactual_answer_text or ()):
        columns[OTHER_ANSWER] = others
    if pairs.examples is not None and pairs.exemplar_set is not None:
        columns |= {"examples": pairs.examples, "exemplar_set": pairs.exemplar_set}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def table(pairs: PairFields) -> "DataFrame":
    """The table of some pairs; see `PromptPairs.to_dataframe`."""
    from pandas import DataFrame

    sides = ("reference", "counterfactual")
    columns: dict[str, Any] = {
        side: getattr(pairs, f"{side}_text") or unpadded(getattr(pairs, side), pairs.attention_mask)
        for side in sides
    }
    columns["answer"] = pairs.answer_text or pairs.answer.tolist()
    columns["problem"], columns["tokens"] = pairs.problem, pairs.lengths.tolist()
    columns |= {name: getattr(pairs, name) for name in ("operation", "template", *EXAMPLE_KEYS)}
    if pairs.operands is not None:
        columns |= dict(zip("ab", pairs.operands.T.tolist(), strict=True))
    if pairs.computed is not None:
        columns["computed"] = pairs.computed.tolist()
    return DataFrame({name: list(values) for name, values in columns.items() if values is not None})


def dataset(pairs: PairFields) -> Any:
    """The `datasets.Dataset` of some pairs; see `PromptPairs.to_dataset`."""
    from datasets import Dataset, DatasetInfo

    columns: dict[str, list[Any]] = {
        "reference": unpadded(pairs.reference, pairs.attention_mask),
        "counterfactual": unpadded(pairs.counterfactual, pairs.attention_mask),
        "answer": pairs.answer.tolist(),
    }
    for name in (*_TUPLES, *_TENSORS):
        value = getattr(pairs, name)
        if value is not None:
            columns[name] = value.tolist() if name in _TENSORS else list(value)
    if pairs.spans is not None:
        starts = (~pairs.attention_mask).sum(1)[:, None]
        columns |= {str(role): (span - starts).tolist() for role, span in pairs.spans.items()}
    about = {
        "selection": None if pairs.selection is None else asdict(pairs.selection),
        "pieces": pairs.pieces and dict(pairs.pieces),
        "explicit_mask": pairs.explicit_mask,
    }
    return Dataset.from_dict(columns, info=DatasetInfo(description=json.dumps(about)))


def dataset_fields(dataset: Any) -> dict[str, Any]:
    """The fields of PromptPairs from a dataset; see `PromptPairs.from_dataset`."""
    missing = [column for column in TOKEN_KEYS if column not in dataset.column_names]
    if missing:
        raise ValueError(
            f"expected a dataset with the columns {', '.join(TOKEN_KEYS)}, found "
            f"{dataset.column_names}; add {', '.join(missing)}"
        )
    columns = _aligned_columns(dataset.to_dict())
    tokens, mask = left_pad(columns["reference"])
    starts = (~mask).sum(1)[:, None]
    spans = {role: torch.tensor(columns[role]) + starts for role in Role if role in columns}
    return {
        "reference": tokens,
        "counterfactual": left_pad(columns["counterfactual"])[0],
        "answer": torch.tensor(columns["answer"]),
        "attention_mask": mask,
        "spans": spans or None,
        **{name: tuple(columns[name]) for name in _TUPLES if name in columns},
        **{name: torch.tensor(columns[name]) for name in _TENSORS if name in columns},
        "explicit_mask": "attention_mask" in columns,
        **_about(dataset.info.description),
    }


def _aligned_columns(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns, prompts without padding; raises ValueError for prompts of unequal length."""
    sides = ("reference", "counterfactual")
    if "attention_mask" in columns:
        for side in sides:
            columns[side] = [
                [token for token, real in zip(row, mask, strict=True) if real]
                for row, mask in zip(columns[side], columns["attention_mask"], strict=True)
            ]
    for i, (reference, other) in enumerate(zip(*(columns[side] for side in sides), strict=True)):
        if len(reference) != len(other):
            raise ValueError(
                f"pair {i}: expected prompts of one length, found {len(reference)} tokens in the "
                f"reference and {len(other)} in the counterfactual; patching moves activations "
                "position by position, so give both prompts the same number of tokens"
            )
    return columns


def _about(description: str | None) -> dict[str, Any]:
    """What a dataset's description says of the pairs; nothing where others wrote it, in prose."""
    try:
        about = parse_json(description or "")
    except ValueError:
        return {}
    if not isinstance(about, Mapping):
        return {}
    selection, pieces = about.get("selection"), about.get("pieces")
    by_template = {k: tuple(v) for k, v in (selection or {}).get("by_template", {}).items()}
    return {
        "selection": selection and Selection(**{**selection, "by_template": by_template}),
        "pieces": pieces and {int(token): piece for token, piece in pieces.items()},
    } | {key: bool(about[key]) for key in ("explicit_mask",) if key in about}
