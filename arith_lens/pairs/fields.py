"""What prompt pairs hold, and the record of how they were chosen.

`PromptPairs` adds what can be done with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.operations import OPERATIONS
from arith_lens.pairs.tokens import NO_ANSWER

COUNTERFACTUAL_SPANS = "counterfactual_spans"
"""The key of a row whose prompts may have unequal numbers of tokens."""
Spans = Mapping[str, Int[Tensor, "pair start_stop=2"]]
"""By `Role`, or by a name of one's own."""


@dataclass(frozen=True)
class Selection:
    """What the filter kept, and how sure the model was before it (paper, section 3).

    All shares are of pairs, between 0 and 1.
    """

    n_drawn: int  # pairs before the filter
    n_kept: int  # pairs that the model answers right: top-1 = C over the whole vocabulary
    mean_probability: float  # mean p(C) before the filter (the paper: 82%)
    counterfactual_correct: float  # share of the kept pairs whose X_c is still answered C
    by_template: Mapping[str, tuple[int, int]]  # name: (kept, drawn)

    @property
    def kept_share(self) -> float:
        """The model's accuracy on what was drawn."""
        return self.n_kept / self.n_drawn

    def share_by_template(self) -> dict[str, float]:
        """The kept share of each template. Where they differ, hard wordings weigh less in a plain
        mean over pairs; the averages of this package weigh templates equally."""
        return {name: n_kept / n_drawn for name, (n_kept, n_drawn) in self.by_template.items()}

    def __add__(self, other: "Selection") -> "Selection":
        """The record of both sets of pairs together."""
        if not isinstance(other, Selection):
            return NotImplemented
        parts, by_template = (self, other), {**self.by_template}
        for name, (n_kept, n_drawn) in other.by_template.items():
            kept_before, n_before = by_template.get(name, (0, 0))
            by_template[name] = kept_before + n_kept, n_before + n_drawn
        return Selection(
            n_drawn=self.n_drawn + other.n_drawn,
            n_kept=self.n_kept + other.n_kept,
            mean_probability=_mean([(s.mean_probability, s.n_drawn) for s in parts]),
            counterfactual_correct=_mean([(s.counterfactual_correct, s.n_kept) for s in parts]),
            by_template=by_template,
        )

    def __str__(self) -> str:
        shares = self.share_by_template()
        lines = [
            f"kept {self.n_kept} of {self.n_drawn} pairs ({self.kept_share:.1%}) that the model "
            "answers right",
            f"mean p(C) before selection {self.mean_probability:.1%}; "
            f"X_c still answered C {self.counterfactual_correct:.1%}",
        ]
        if len(shares) > 1:
            least, most = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
            low, high = f"{shares[least]:.1%}", f"{shares[most]:.1%}"
            ends = f"{low} ({least}) to {high} ({most})" if low != high else f"{low} of each"
            lines.append(f"share kept per template: {ends}")
        return "\n".join(lines)


def _mean(values: list[tuple[float, int]]) -> float:
    total = sum(weight for _, weight in values)
    return sum(value * weight for value, weight in values) / total if total else float("nan")


@dataclass(frozen=True, eq=False)
class PairFields:
    """The fields of `PromptPairs`."""

    reference: Int[Tensor, "pair pos"]
    counterfactual: Int[Tensor, "pair pos"]
    answer: Int[Tensor, " pair"]  # the token after END in the reference: C
    attention_mask: Bool[Tensor, "pair pos"]  # False: padding
    spans: Spans | None = None  # half-open columns; start == stop where a role is absent
    span_characters: Spans | None = None  # of spans of one's own, in `reference_text`
    template: tuple[str, ...] | None = None  # "addition/2"
    problem: tuple[str, ...] = ()
    """What each pair asks, in whatever wording: `3 + 5`, the unit of all statistics. If it is not
    given, it is made of the operands, or else of the reference prompt."""
    examples: tuple[str, ...] | None = None
    """The solved examples before each prompt, one per line."""
    exemplar_set: tuple[str, ...] | None = None
    """The name of the draw of each pair's examples."""
    operation: tuple[str, ...] | None = None
    operands: Int[Tensor, "pair a_b=2"] | None = None
    computed: Bool[Tensor, " pair"] | None = None  # neither copying nor A = B gives C
    reference_text: tuple[str, ...] | None = None
    counterfactual_text: tuple[str, ...] | None = None
    answer_text: tuple[str, ...] | None = None
    pieces: Mapping[int, str] | None = None  # how the tokenizer writes each id that occurs
    selection: Selection | None = None  # how the filter chose these pairs, if it did
    explicit_mask: bool = True  # False: from_tokens had no mask, and took all tokens as read
    counterfactual_answer: Int[Tensor, " pair"] = field(
        default_factory=lambda: torch.empty(0, dtype=torch.long)
    )
    """C': the token after END in the counterfactual, the answer of its own problem; -1 where it has
    no answer, as in `3 void 5`. If it is not given, no counterfactual has one."""
    counterfactual_answer_text: tuple[str, ...] | None = None
    """The text of C'; empty where there is none."""
    counterfactual_mask: Bool[Tensor, "pair pos"] | None = None
    """The mask of counterfactuals with other numbers of tokens; None: `attention_mask`."""
    counterparts: Int[Tensor, "pair pos"] | None = None
    """By column of the reference, the column of the counterfactual's token in its stead; -1 where
    it has none. None: the same column."""
    counterfactual_span_characters: Spans | None = None
    """Of the spans that are named in both prompts, in `counterfactual_text`."""

    def __post_init__(self) -> None:
        if not self.problem:
            object.__setattr__(self, "problem", _problems(self))
        if not len(self.counterfactual_answer):
            none = torch.full((len(self.answer),), NO_ANSWER)
            object.__setattr__(self, "counterfactual_answer", none)

    @property
    def lengths(self) -> Int[Tensor, " pair"]:
        """Tokens of each prompt, BOS included and padding left out."""
        return self.attention_mask.sum(-1)

    @property
    def answer_tokens(self) -> list[int]:
        """The tokens that are the answer of some prompt, C or C'."""
        tokens = torch.cat([self.answer, self.counterfactual_answer]).unique().tolist()
        return [token for token in tokens if token != NO_ANSWER]

    @property
    def sides(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Tokens and mask of the references, then of the counterfactuals, all [pair pos]."""
        mask, other = self.attention_mask, self.counterfactual_mask
        return (self.reference, mask), (self.counterfactual, mask if other is None else other)

    def at_counterparts(
        self, activation: Float[Tensor, "pair pos *rest"]
    ) -> Float[Tensor, "pair pos *rest"]:
        """Activations of the counterfactuals, moved to the columns of the references.

        What a token without a counterpart gets is arbitrary; see `require_counterparts`.
        """
        if self.counterparts is None:
            return activation
        columns = self.counterparts.clamp(min=0).to(activation.device)
        return activation[torch.arange(len(columns), device=columns.device)[:, None], columns]

    def require_counterparts(self, at: Bool[Tensor, "*place pair pos"], name: str) -> None:
        """Raise ValueError for tokens that have none in the counterfactual, with their pair."""
        if self.counterparts is None:
            return
        alone = (at & (self.counterparts < 0)).any(-1).view(-1, len(self.answer)).any(0)
        if bool(alone.any()):
            raise ValueError(
                f"pair {int(alone.nonzero()[0])}: expected a token of the counterfactual for each "
                f"token of {name}, found fewer; name the span in {COUNTERFACTUAL_SPANS} with as "
                "many tokens, take its last token (Site(layer, name, token=-1)), or take END"
            )


def _problems(pairs: PairFields) -> tuple[str, ...]:
    """The problem of each pair by what is known of it."""
    if pairs.operation is not None and pairs.operands is not None:
        problems = zip(pairs.operation, pairs.operands.tolist(), strict=True)
        return tuple(f"{a} {OPERATIONS[name].symbol} {b}" for name, (a, b) in problems)
    if pairs.reference_text is not None:
        return pairs.reference_text
    return tuple(" ".join(map(str, row)) for row in unpadded(pairs.reference, pairs.attention_mask))


def unpadded(tokens: Tensor, mask: Tensor) -> list[list[int]]:
    """The tokens of each row without padding."""
    return [row[row_mask].tolist() for row, row_mask in zip(tokens, mask, strict=True)]
