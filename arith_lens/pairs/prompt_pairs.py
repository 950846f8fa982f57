"""PromptPairs: reference prompts and their counterfactuals, aligned token by token."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from arith_lens.pairs import files, show
from arith_lens.pairs.roles import Role, Spans
from arith_lens.pairs.rows import PAD, check_mask, check_shapes, join, refuse_padding, take
from arith_lens.pairs.selection import Selection
from arith_lens.pairs.texts import tokenized


@dataclass(frozen=True, eq=False)
class PromptPairs:
    """Reference prompts, which hold the calculation, and counterfactuals, which do not.

    Both prompts of a pair have the same number of tokens, and all are padded on the LEFT, so that
    END is column -1 of every row. What stands under the mask is arbitrary. Fields that pairs
    from bare tokens lack are None. Pairs slice (`pairs[:8]`, `pairs[mask]`) and add.
    """

    reference: Int[Tensor, "pair pos"]
    counterfactual: Int[Tensor, "pair pos"]
    answer: Int[Tensor, "pair"]  # the token after END in the reference: C
    attention_mask: Bool[Tensor, "pair pos"]  # False: padding
    spans: Spans | None = None  # half-open columns; start == stop where a role is absent
    template: tuple[str, ...] | None = None  # "addition/2"
    operation: tuple[str, ...] | None = None
    operands: Int[Tensor, "pair a_b=2"] | None = None
    computed: Bool[Tensor, "pair"] | None = None  # C is neither A nor B: copying cannot give it
    reference_text: tuple[str, ...] | None = None
    counterfactual_text: tuple[str, ...] | None = None
    answer_text: tuple[str, ...] | None = None
    pieces: Mapping[int, str] | None = None  # how the tokenizer writes each id that occurs
    selection: Selection | None = None  # how the filter chose these pairs, if it did
    explicit_mask: bool = True  # False: from_tokens had no mask, and took all tokens as read

    @classmethod
    def from_tokens(
        cls,
        reference: Int[Tensor, "pair pos"],
        counterfactual: Int[Tensor, "pair_c pos_c"],
        answer: Int[Tensor, "pair_a"],
        attention_mask: Int[Tensor, "pair_m pos_m"] | Bool[Tensor, "pair_m pos_m"] | None = None,
        *,
        pad_token: int | None = None,
    ) -> "PromptPairs":
        """Pairs of your own from bare tokens; without roles, templates and text.

        Args:
            attention_mask: one mask for both prompts of a pair, as they have one length. Rows
                padded on the right are moved, so that END is column -1; what they are padded with,
                such as -100, does not matter. A mask of ones says that every token is to be read,
                one that looks like padding too.
            pad_token: the tokenizer's padding id, if known; padded rows without a mask are then
                refused.

        Raises:
            ValueError: unequal shapes, no pairs, a mask with holes or an empty row, or padding
                without a mask.
        """
        check_shapes(reference, counterfactual, answer, attention_mask)
        if attention_mask is None:
            refuse_padding(reference, counterfactual, pad_token)
            mask = torch.ones_like(reference, dtype=torch.bool)
        else:
            mask = attention_mask.bool()
        check_mask(mask)
        order = torch.argsort(mask.int(), dim=1, stable=True)  # padding first, the rest in order
        return cls(
            reference=reference.masked_fill(~mask, PAD).gather(1, order),
            counterfactual=counterfactual.masked_fill(~mask, PAD).gather(1, order),
            answer=answer.clone(),
            attention_mask=mask.gather(1, order),
            explicit_mask=attention_mask is not None,
        )

    def refuse_unmasked(self, pad_token: int | None) -> None:
        """Raise ValueError for rows that a model with this padding id was meant to mask.

        Never where the mask was explicit: then each of its tokens is to be read.
        """
        if self.explicit_mask:
            return
        hidden = ~self.attention_mask
        reference = self.reference.masked_fill(hidden, -1)
        refuse_padding(reference, self.counterfactual.masked_fill(hidden, -1), pad_token)

    def __len__(self) -> int:
        return len(self.answer)

    def __getitem__(
        self, which: int | slice | Sequence[int] | Bool[Tensor, "pair"] | Int[Tensor, "kept"]
    ) -> "PromptPairs":
        """The chosen pairs, as PromptPairs of the same width; `pairs[3]` keeps the pair axis."""
        rows = torch.arange(len(self))[[which] if isinstance(which, int) else which]
        chosen = {
            field.name: take(getattr(self, field.name), rows)
            for field in fields(self)
            if field.name not in ("pieces", "selection", "explicit_mask")
        }
        return replace(self, **chosen)

    def __iter__(self) -> Iterator["PromptPairs"]:
        return (self[i] for i in range(len(self)))

    def filter(self, mask: Bool[Tensor, "pair"] | Sequence[bool]) -> "PromptPairs":
        """The pairs whose `mask` is True, for instance `pairs.filter(pairs.computed)`."""
        keep = torch.as_tensor(mask)
        if keep.dtype != torch.bool or keep.shape != (len(self),):
            raise ValueError(
                f"filter needs one boolean a pair: expected {len(self)}, "
                f"found {tuple(keep.shape)} of {keep.dtype}"
            )
        return self[keep]

    def __add__(self, other: "PromptPairs") -> "PromptPairs":
        """Both sets after one another; what only one of them knows is dropped (None)."""
        if not isinstance(other, PromptPairs):
            return NotImplemented
        width = max(self.reference.shape[1], other.reference.shape[1])
        a, b = _widen(self, width), _widen(other, width)
        names = [field.name for field in fields(self) if field.name != "explicit_mask"]
        joined = {name: join(getattr(a, name), getattr(b, name)) for name in names}
        return PromptPairs(**joined, explicit_mask=a.explicit_mask and b.explicit_mask)

    def batches(self, size: int) -> Iterator["PromptPairs"]:
        """Consecutive slices of at most `size` pairs."""
        if size < 1:
            raise ValueError(f"a batch holds at least one pair: found size {size}")
        return (self[start : start + size] for start in range(0, len(self), size))

    @property
    def cluster(self) -> Int[Tensor, "pair"]:
        """One id a distinct reference prompt: pairs that share it are not independent evidence."""
        rows = self.reference.masked_fill(~self.attention_mask, -1)
        return torch.unique(rows, dim=0, return_inverse=True)[1]

    @property
    def n_distinct(self) -> int:
        """How many distinct reference prompts there are."""
        return int(self.cluster.max()) + 1 if len(self) else 0

    @property
    def lengths(self) -> Int[Tensor, "pair"]:
        """Tokens of each prompt, BOS included and padding left out."""
        return self.attention_mask.sum(-1)

    def role_mask(self, role: Role) -> Bool[Tensor, "pair pos"]:
        """Where the tokens of one role stand; OTHER is every unpadded token without a role.

        Raises:
            ValueError: the pairs were made from bare tokens and have no roles.
        """
        if self.spans is None:
            raise ValueError(
                "these pairs have no roles: they were made from bare tokens or own prompts. "
                "Sample pairs from the templates, or give spans."
            )
        if role is Role.OTHER:
            named = [self.role_mask(named) for named in Role if named is not Role.OTHER]
            return self.attention_mask & ~torch.stack(named).any(0)
        column = torch.arange(self.reference.shape[1])
        start, stop = self.spans[role].unbind(-1)
        return (start[:, None] <= column) & (column < stop[:, None])

    def summary(self) -> str:
        """What a reader must know of these pairs, in a few lines."""
        return show.summary(self)

    def __repr__(self) -> str:
        return f"PromptPairs({len(self)} pairs, {self.n_distinct} distinct references)"

    def _repr_html_(self) -> str:
        return show.table(self)

    def to_dataset(self) -> Any:
        """A `datasets.Dataset` that holds everything; `from_dataset` gives the same pairs back."""
        return files.to_dataset(self)

    @staticmethod
    def from_dataset(dataset: Any) -> "PromptPairs":
        """The pairs that `to_dataset` wrote."""
        return PromptPairs(**files.dataset_fields(dataset))

    def to_jsonl(self, path: str | Path) -> None:
        """Write one JSON object a pair: reference, counterfactual and answer as text, and more."""
        files.to_jsonl(self, path)

    def to_csv(self, path: str | Path) -> None:
        """Write a table with the columns reference, counterfactual, answer (text), and more."""
        files.to_csv(self, path)

    @staticmethod
    def from_rows(rows: Sequence[Mapping[str, Any]], model: Any) -> "PromptPairs":
        """Prompts of your own as dicts, `{"reference": …, "counterfactual": …, "answer": …}`."""
        return PromptPairs(**tokenized(files.checked_rows(rows), model))

    @staticmethod
    def from_jsonl(path: str | Path, model: Any) -> "PromptPairs":
        """Prompts of your own, or those of `to_jsonl`, tokenized by `model` (or a tokenizer)."""
        return PromptPairs(**tokenized(files.read_jsonl(path), model))

    @staticmethod
    def from_csv(path: str | Path, model: Any) -> "PromptPairs":
        """As `from_jsonl`, from a table with a header."""
        return PromptPairs(**tokenized(files.read_csv(path), model))

    @staticmethod
    def from_file(path: str | Path, model: Any) -> "PromptPairs":
        """`from_csv` where the file's name ends in `.csv`, else `from_jsonl`."""
        return PromptPairs(**tokenized(files.read_file(path), model))


def _widen(pairs: PromptPairs, width: int) -> PromptPairs:
    extra = width - pairs.reference.shape[1]
    spans = pairs.spans
    return replace(
        pairs,
        reference=pad(pairs.reference, (extra, 0), value=PAD),
        counterfactual=pad(pairs.counterfactual, (extra, 0), value=PAD),
        attention_mask=pad(pairs.attention_mask, (extra, 0), value=False),
        spans=None if spans is None else {role: span + extra for role, span in spans.items()},
    )
