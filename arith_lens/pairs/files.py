"""Prompt pairs as rows of text, as tables and as datasets, and datasets as pairs."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from arith_lens.model import left_pad
from arith_lens.pairs.alignment import ALONE, unequal_fields
from arith_lens.pairs.fields import COUNTERFACTUAL_SPANS, PairFields, Selection, Spans, unpadded
from arith_lens.pairs.text_files import EXAMPLE_KEYS, OTHER_ANSWER, SPANS, TOKEN_KEYS
from arith_lens.pairs.tokens import Role
from arith_lens.untrusted import parse_json

if TYPE_CHECKING:
    from pandas import DataFrame

CHARACTERS = "characters of "
_SPAN_FIELDS = {
    CHARACTERS: "span_characters",
    "counterfactual " + CHARACTERS: "counterfactual_span_characters",
}
"""By the beginning of a column's name, the field that has its spans."""
COUNTERPARTS = "counterparts"
_TEXTS = ("reference_text", "counterfactual_text", "answer_text")
_OTHER_TEXT = f"{OTHER_ANSWER}_text"
_TUPLES = (*("template", "problem", "examples", "exemplar_set", "operation"), *_TEXTS, _OTHER_TEXT)
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
    if pairs.span_characters is not None:
        columns[SPANS] = _named_spans(pairs, pairs.span_characters)
    if pairs.counterparts is not None:
        characters = pairs.counterfactual_span_characters or {}
        columns[COUNTERFACTUAL_SPANS] = _named_spans(pairs, characters)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _named_spans(pairs: PairFields, spans: Spans) -> list[dict[str, list[int]]]:
    """The characters of each pair's own spans."""
    characters = {name: of.tolist() for name, of in spans.items()}
    return [
        {name: of[i] for name, of in characters.items() if of[i][0] < of[i][1]}
        for i in range(len(pairs.answer))
    ]


def table(pairs: PairFields) -> "DataFrame":
    """The table of some pairs; see `PromptPairs.to_dataframe`."""
    from pandas import DataFrame

    sides = ("reference", "counterfactual")
    columns: dict[str, Any] = {
        name: getattr(pairs, f"{name}_text") or unpadded(*side)
        for name, side in zip(sides, pairs.sides, strict=True)
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
        "reference": unpadded(*pairs.sides[0]),
        "counterfactual": unpadded(*pairs.sides[1]),
        "answer": pairs.answer.tolist(),
    }
    for name in (*_TUPLES, *_TENSORS):
        value = getattr(pairs, name)
        if value is not None:
            columns[name] = value.tolist() if name in _TENSORS else list(value)
    if pairs.spans is not None:
        starts = (~pairs.attention_mask).sum(1)[:, None]
        columns |= {str(role): (span - starts).tolist() for role, span in pairs.spans.items()}
    for prefix, name in _SPAN_FIELDS.items():
        characters: Spans = getattr(pairs, name) or {}
        columns |= {prefix + span: of.tolist() for span, of in characters.items()}
    if pairs.counterparts is not None:
        columns[COUNTERPARTS] = _counterpart_numbers(pairs)
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
    n = len(columns["answer"])
    tokens, masks = left_pad([*columns["reference"], *columns["counterfactual"]])
    mask, other_mask = masks.split(n)
    starts = (~mask).sum(1)[:, None]
    own = [name.removeprefix(CHARACTERS) for name in columns if name.startswith(CHARACTERS)]
    roles = [role for role in (*Role, *own) if role in columns]
    spans = {role: torch.tensor(columns[role]) + starts for role in roles}
    return {
        "reference": tokens[:n],
        "counterfactual": tokens[n:],
        "answer": torch.tensor(columns["answer"]),
        "attention_mask": mask,
        "spans": spans or None,
        **{name: _spans_of(columns, prefix) for prefix, name in _SPAN_FIELDS.items()},
        **(unequal_fields(columns[COUNTERPARTS], other_mask) if COUNTERPARTS in columns else {}),
        **{name: tuple(columns[name]) for name in _TUPLES if name in columns},
        **{name: torch.tensor(columns[name]) for name in _TENSORS if name in columns},
        "explicit_mask": "attention_mask" in columns,
        **_about(dataset.info.description),
    }


def _counterpart_numbers(pairs: PairFields) -> list[list[int]]:
    """By token of each reference, the number of its counterpart, as `unequal_fields` reads it."""
    (_, mask), (_, other) = pairs.sides
    assert pairs.counterparts is not None
    padding = (~other).sum(1)[:, None]
    return unpadded((pairs.counterparts - padding).clamp(min=ALONE), mask)


def _spans_of(columns: Mapping[str, Any], prefix: str) -> Spans | None:
    names = [name for name in columns if name.startswith(prefix)]
    return {name.removeprefix(prefix): torch.tensor(columns[name]) for name in names} or None


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
        if len(reference) != len(other) and COUNTERPARTS not in columns:
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
