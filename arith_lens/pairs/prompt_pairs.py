"""PromptPairs: reference prompts and their counterfactuals, aligned token by token."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from arith_lens.model import PAD
from arith_lens.options import check_choice, refuse_unknown_options, value_object
from arith_lens.pairs import files, own_prompts, shown_pairs, text_files
from arith_lens.pairs.alignment import ALONE
from arith_lens.pairs.bare_tokens import check_mask, check_shapes, refuse_negative, refuse_padding
from arith_lens.pairs.fields import PairFields
from arith_lens.pairs.own_prompts import PromptForm, PromptFormOptions
from arith_lens.pairs.tokens import NO_ANSWER, Role
from arith_lens.statistics import HasUnits, Units

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class PromptPairs(PairFields, HasUnits):
    """Reference prompts, which hold the calculation, and counterfactuals, which do not.

    Both prompts of a pair have the same number of tokens, unless there are `counterparts`. All are
    padded on the LEFT, so that END is column -1 of every row. Tokens under the mask are arbitrary.
    Fields that pairs from bare tokens lack are None. Pairs slice (`pairs[:8]`, `pairs[mask]`) and
    add.
    """

    @classmethod
    def from_tokens(
        cls,
        reference: Int[Tensor, "pair pos"],
        counterfactual: Int[Tensor, "pair_c pos_c"],
        answer: Int[Tensor, " pair_a"],
        attention_mask: Int[Tensor, "pair_m pos_m"] | Bool[Tensor, "pair_m pos_m"] | None = None,
        *,
        pad_token: int | None = None,
        counterfactual_answer: Int[Tensor, " pair_o"] | None = None,
    ) -> "PromptPairs":
        """Pairs of your own from bare tokens; without roles, templates and text.

        Args:
            attention_mask: one mask for both prompts of a pair, as they have one length. Rows
                padded on the right are moved, so that END is column -1; what they are padded with,
                such as -100, does not matter. A mask of ones says that every token is to be read,
                one that looks like padding too.
            pad_token: the tokenizer's padding id, if known; padded rows without a mask are then
                refused.
            counterfactual_answer: the token after END in each counterfactual, C'; -1 where it has
                no answer. None: no counterfactual has one.

        Raises:
            TypeError: something else than tensors of whole numbers.
            ValueError: unequal shapes, no pairs, a negative id, a mask with holes or an empty row,
                or padding without a mask.
        """
        check_shapes(reference, counterfactual, answer, attention_mask, counterfactual_answer)
        if attention_mask is None:
            refuse_padding(reference, counterfactual, pad_token)
            mask = torch.ones_like(reference, dtype=torch.bool)
        else:
            mask = attention_mask.bool()
        check_mask(mask)
        for name, tokens in (("reference", reference), ("counterfactual", counterfactual)):
            refuse_negative(name, tokens[mask])
        refuse_negative("answer", answer)
        order = torch.argsort(mask.int(), dim=1, stable=True)  # padding first, the rest in order
        return cls(
            reference=reference.masked_fill(~mask, PAD).gather(1, order),
            counterfactual=counterfactual.masked_fill(~mask, PAD).gather(1, order),
            answer=answer.clone(),
            attention_mask=mask.gather(1, order),
            explicit_mask=attention_mask is not None,
            counterfactual_answer=torch.full_like(answer, NO_ANSWER)
            if counterfactual_answer is None
            else counterfactual_answer.long(),
        )

    def refuse_unmasked(self, pad_token: int | None) -> None:
        """Raise ValueError for rows that a model with this padding id was meant to mask.

        Never where the mask was explicit: then each of its tokens is to be read.
        """
        if self.explicit_mask:
            return
        reference, other = (side.masked_fill(~mask, -1) for side, mask in self.sides)
        refuse_padding(reference, other, pad_token)

    def __len__(self) -> int:
        return len(self.answer)

    def __getitem__(
        self, which: int | slice | Sequence[int] | Bool[Tensor, " pair"] | Int[Tensor, " kept"]
    ) -> "PromptPairs":
        """The chosen pairs, as PromptPairs of the same width; `pairs[3]` keeps the pair axis."""
        rows = torch.arange(len(self))[[which] if isinstance(which, int) else which]
        chosen = {
            field.name: _take(getattr(self, field.name), rows)
            for field in fields(self)
            if field.name not in ("pieces", "selection", "explicit_mask")
        }
        return replace(self, **chosen)

    def __iter__(self) -> Iterator["PromptPairs"]:
        return (self[i] for i in range(len(self)))

    def filter(self, mask: Bool[Tensor, " pair"] | Sequence[bool]) -> "PromptPairs":
        """The pairs whose `mask` is True, for instance `pairs.filter(pairs.computed)`."""
        chosen = torch.as_tensor(mask)
        if chosen.dtype != torch.bool or chosen.shape != (len(self),):
            raise ValueError(
                f"expected one boolean per pair, {len(self)} in all, found {tuple(chosen.shape)} "
                f"of {chosen.dtype}; choose by number with pairs[[0, 2]]"
            )
        return self[chosen]

    def __add__(self, other: "PromptPairs") -> "PromptPairs":
        """Both sets after one another; what only one of them knows is dropped (None)."""
        if not isinstance(other, PromptPairs):
            return NotImplemented
        width = max(self.reference.shape[1], other.reference.shape[1])
        a, b = _widen(self, width), _widen(other, width)
        if self.examples is not None or other.examples is not None:
            a, b = _with_examples(a), _with_examples(b)
        if a.counterparts is not None or b.counterparts is not None:
            a, b = _with_counterparts(a), _with_counterparts(b)
        names = [field.name for field in fields(self) if field.name != "explicit_mask"]
        joined = {name: _join(getattr(a, name), getattr(b, name)) for name in names}
        return PromptPairs(**joined, explicit_mask=a.explicit_mask and b.explicit_mask)

    def batches(self, size: int) -> Iterator["PromptPairs"]:
        """Consecutive slices of at most `size` pairs."""
        if size < 1:
            raise ValueError(f"expected a batch of at least one pair, found {size}; give 1 or more")
        return (self[start : start + size] for start in range(0, len(self), size))

    @property
    def units(self) -> Units:
        """Wording, reference prompt and problem of each pair. A template with another set of
        examples is another wording."""
        template = self.template
        if template is not None and self.exemplar_set is not None:
            sets = zip(template, self.exemplar_set, strict=True)
            template = tuple(f"{name}, {sampled}" if sampled else name for name, sampled in sets)
        return Units(template=template, cluster=self.cluster, problem=self.problem)

    @property
    def cluster(self) -> Int[Tensor, " pair"]:
        """One id per distinct reference prompt: pairs that share it are not independent."""
        rows = self.reference.masked_fill(~self.attention_mask, -1)
        return torch.unique(rows, dim=0, return_inverse=True)[1]

    @property
    def n_distinct(self) -> int:
        """How many distinct reference prompts there are."""
        return int(self.cluster.max()) + 1 if len(self) else 0

    @property
    def roles(self) -> tuple[str, ...]:
        """The names of roles: those of `Role`, then those of the pairs' own spans."""
        return tuple(dict.fromkeys([*Role, *(self.spans or ())]))

    def role_mask(self, role: str) -> Bool[Tensor, "pair pos"]:
        """Where the tokens of one role, or of a named span, stand.

        OTHER is every unpadded token without a role.

        Raises:
            ValueError: the pairs were made from bare tokens or own prompts, and have no roles; or
                they have none of this name.
        """
        if self.spans is None:
            raise ValueError(
                "expected pairs with the roles of their tokens, found none, since they are of bare "
                "tokens or of own prompts; give each row spans ({'subject': 'France'}), or the "
                "keys template ('addition/0'), a and b (PromptPairs.from_rows), or the columns of "
                "each role: dataclasses.replace(pairs, spans={Role.OPERAND_A: columns, …}), "
                "[pair, 2] with first and last + 1, counted in pairs.reference"
            )
        check_choice("a role", role, self.roles)
        if role == Role.OTHER:
            named = [self.role_mask(named) for named in self.roles if named != Role.OTHER]
            return self.attention_mask & ~torch.stack(named).any(0)
        if role not in self.spans:
            return torch.zeros_like(self.attention_mask)
        column = torch.arange(self.reference.shape[1])
        start, stop = self.spans[role].unbind(-1)
        return (start[:, None] <= column) & (column < stop[:, None])

    def position_mask(self, position: int) -> Bool[Tensor, "pair pos"]:
        """One token of each prompt: from its first token (0) or from END (-1).

        A prompt without this position has none.
        """
        width = self.reference.shape[1]
        first = width - self.lengths
        column = first + position if position >= 0 else torch.full_like(first, width + position)
        return (torch.arange(width) == column[:, None]) & self.attention_mask

    def summary(self) -> str:
        """What a reader must know of these pairs, in a few lines."""
        counts = f"{len({*self.problem})} problems, {self.n_distinct} distinct reference"
        lines = [f"{len(self)} pairs, {counts} prompts"]
        if len(self):
            shortest, longest = int(self.lengths.min()), int(self.lengths.max())
            lines[0] += f", {shortest} to {longest} tokens"
        if self.operation is not None and self.template is not None:
            names = ", ".join(dict.fromkeys(self.operation))
            lines.append(f"{names}; templates: {len(set(self.template))}")
        if self.computed is not None:
            n_computed = int(self.computed.sum())
            lines.append(
                f"{n_computed} computed (C is neither A nor B, nor follows from A = B), "
                f"{len(self) - n_computed} that need no calculation"
            )
        if n_other := int((self.counterfactual_answer != NO_ANSWER).sum()):
            lines.append(f"{n_other} counterfactuals have an answer of their own (C')")
        lines.append(str(self.selection or "not filtered by any model's answers"))
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"PromptPairs({len(self)} pairs, {self.n_distinct} distinct references)"

    def _repr_html_(self) -> str:
        return shown_pairs.html_table(self)

    def to_dataframe(self) -> "DataFrame":
        """One row per pair: both prompts and the answer (text, or token ids where there is none),
        the problem, the number of tokens, and what is known of operation, template, examples,
        operands (`a`, `b`) and `computed`."""
        return files.table(self)

    def to_dataset(self) -> Any:
        """A `datasets.Dataset` that holds everything but the padding.

        `from_dataset` gives the same pairs back. The selection and the tokens' names are in the
        dataset's description.
        """
        return files.dataset(self)

    @staticmethod
    def from_dataset(dataset: Any) -> "PromptPairs":
        """The pairs that `to_dataset` wrote, or bare tokens.

        Bare tokens have the columns reference, counterfactual and answer. Their rows may be padded
        on either side if there is a column attention_mask.

        Raises:
            ValueError: missing columns, or prompts of unequal length.
        """
        return PromptPairs(**files.dataset_fields(dataset))

    def to_jsonl(self, path: str | Path) -> None:
        """Write one JSON object per pair: reference, counterfactual and answer as text, and more.

        Raises:
            ValueError: pairs from bare tokens, which have no text.
        """
        text_files.write_jsonl(files.text_rows(self), path)

    def to_csv(self, path: str | Path) -> None:
        """Write a table with the columns reference, counterfactual, answer (text), and more.

        Raises:
            ValueError: pairs from bare tokens, which have no text.
        """
        text_files.write_csv(files.text_rows(self), path)

    @staticmethod
    def from_rows(
        rows: Sequence[Mapping[str, Any]], model: Any, **options: Unpack[PromptFormOptions]
    ) -> "PromptPairs":
        """Prompts of your own as dicts, `{"reference": …, "counterfactual": …, "answer": …}`.

        A row may also have `counterfactual_answer`: the answer of the counterfactual's own problem,
        C'; without it, the counterfactual has no answer. `clean` and `corrupted` are read as
        `reference` and `counterfactual`.

        If a row has `spans`, the pairs have roles of these names: each is a text that the reference
        has once, or its characters `[first, last + 1]`. A row with `counterfactual_spans`, those of
        the counterfactual or {}, may have prompts of unequal lengths, which `path_patch` and
        `interchange` alone read, at END and at spans. If each row has `"template"` (such as
        `"addition/0"`) and the operands `"a"` and `"b"`, and its reference is this template's, the
        pairs have the roles of sums.

        Args:
            rows: besides these keys, a row may have `problem`, the unit of statistics, and
                `examples` with `exemplar_set`.
            model: a model with a `.tokenizer`, or a tokenizer
            columns: by key, the name of its column in rows of another project:
                `{"reference": "prompt"}`.
            chat: whether both prompts stand in the tokenizer's chat template, as a user's message,
                so that the answer is the model's turn.
            answer_token: the token of the answer after END. `"whole"`: the only one. `"first"`,
                `"last"` or its number, counted from 0 (from the end: -1): those before it stand in
                both prompts (teacher forcing); of these, all but END have the roles `answer 0` …

        Raises:
            TypeError: no list of rows, or an option that does not exist.
            ValueError: a missing key or column, prompts of unequal length, an answer that does not
                have the token, a span outside its prompt, answer tokens beyond the context, no chat
                template, or prompts that hold it already.

        Example:
            >>> import arith_lens as al
            >>> model = al.load_model("reference")
            >>> row = {"clean": "13 plus 24 equals to ", "corrupted": "15 plus 61 equals to "}
            >>> row |= {"answer": 37, "counterfactual_answer": 76, "spans": {"first": "13"}}
            >>> pairs = al.PromptPairs.from_rows([row], model, answer_token=1)
            >>> model.tokenizer.decode(pairs.reference[0, -1:]), pairs.answer_text
            ('3', ('7',))
        """
        return _read(PromptPairs.from_rows, text_files.check_rows, rows, model, options)

    @staticmethod
    def from_jsonl(
        path: str | Path, model: Any, **options: Unpack[PromptFormOptions]
    ) -> "PromptPairs":
        """Prompts of your own, or those of `to_jsonl`, from JSON lines; see `from_rows`.

        Rows that `to_jsonl` wrote get their roles back. An error names the lines.

        Args:
            path: the file.
            model: a model with a `.tokenizer`, or a tokenizer.
            columns, chat, answer_token: as in `from_rows`.
        """
        return _read(PromptPairs.from_jsonl, text_files.read_jsonl, path, model, options)

    @staticmethod
    def from_csv(
        path: str | Path, model: Any, **options: Unpack[PromptFormOptions]
    ) -> "PromptPairs":
        """As `from_jsonl`, from a table with a header and commas or tabs; spans are JSON.

        Args:
            path: the file.
            model: a model with a `.tokenizer`, or a tokenizer.
            columns, chat, answer_token: as in `from_rows`.
        """
        return _read(PromptPairs.from_csv, text_files.read_csv, path, model, options)

    @staticmethod
    def from_file(
        path: str | Path, model: Any, **options: Unpack[PromptFormOptions]
    ) -> "PromptPairs":
        """`from_jsonl` if the text begins with `{` or the name ends in `.jsonl`, else `from_csv`.

        Args:
            path: the file.
            model: a model with a `.tokenizer`, or a tokenizer.
            columns, chat, answer_token: as in `from_rows`.
        """
        return _read(PromptPairs.from_file, text_files.read_file, path, model, options)


def _read(
    function: Callable[..., Any],
    reader: Callable[[Any, text_files.Columns], text_files.Located],
    source: Any,
    model: Any,
    options: PromptFormOptions,
) -> PromptPairs:
    """The pairs of a file or of rows; `function` is the public one, for its errors."""
    refuse_unknown_options(function, options, PromptForm)
    form = value_object(PromptForm, options)
    rows = reader(source, form.columns)
    return PromptPairs(**own_prompts.pair_fields(rows, model, form))


def _with_examples(pairs: PromptPairs) -> PromptPairs:
    """Pairs without examples as pairs whose examples are empty; others as they are."""
    if pairs.examples is not None:
        return pairs
    none = ("",) * len(pairs)
    return replace(pairs, examples=none, exemplar_set=none)


def _with_counterparts(pairs: PromptPairs) -> PromptPairs:
    """Pairs of one length, each with its own columns as counterparts; others as they are."""
    if pairs.counterparts is not None:
        return pairs
    columns = torch.arange(pairs.reference.shape[1]).expand_as(pairs.reference)
    return replace(pairs, counterparts=columns, counterfactual_mask=pairs.attention_mask)


def _widen(pairs: PromptPairs, width: int) -> PromptPairs:
    extra = width - pairs.reference.shape[1]
    spans, mask, columns = pairs.spans, pairs.counterfactual_mask, pairs.counterparts
    if columns is not None:
        columns = torch.where(columns < 0, columns, columns + extra)
    return replace(
        pairs,
        reference=pad(pairs.reference, (extra, 0), value=PAD),
        counterfactual=pad(pairs.counterfactual, (extra, 0), value=PAD),
        attention_mask=pad(pairs.attention_mask, (extra, 0), value=False),
        spans=None if spans is None else {role: span + extra for role, span in spans.items()},
        counterfactual_mask=None if mask is None else pad(mask, (extra, 0), value=False),
        counterparts=None if columns is None else pad(columns, (extra, 0), value=ALONE),
    )


def _take(value: Any, rows: Int[Tensor, " kept"]) -> Any:
    """Some rows of a field of PromptPairs: a tensor, a tuple, or a mapping of tensors."""
    if isinstance(value, Tensor):
        return value[rows]
    if isinstance(value, tuple):
        return tuple(value[row] for row in rows.tolist())
    if isinstance(value, Mapping):
        return {key: _take(rows_of_key, rows) for key, rows_of_key in value.items()}
    return value


def _join(first: Any, second: Any) -> Any:
    """Join a field of two PromptPairs; None if either has None."""
    if first is None or second is None:
        return None
    if isinstance(first, Tensor):
        return torch.cat([first, second])
    if isinstance(first, Mapping):
        if any(isinstance(value, Tensor) for value in first.values()):
            absent = [torch.zeros_like(next(iter(one.values()))) for one in (first, second)]
            keys = dict.fromkeys([*first, *second])
            return {
                key: torch.cat([first.get(key, absent[0]), second.get(key, absent[1])])
                for key in keys
            }
        return {**first, **second}
    return first + second
