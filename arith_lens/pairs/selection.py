"""What the filter kept of a set of pairs: the pairs that the model answers right."""

from collections.abc import Mapping
from dataclasses import dataclass


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
        return {name: kept / drawn for name, (kept, drawn) in self.by_template.items()}

    def __add__(self, other: "Selection") -> "Selection":
        """The record of both sets of pairs together."""
        if not isinstance(other, Selection):
            return NotImplemented
        names = [*self.by_template, *(n for n in other.by_template if n not in self.by_template)]
        parts = (self, other)
        return Selection(
            n_drawn=self.n_drawn + other.n_drawn,
            n_kept=self.n_kept + other.n_kept,
            mean_probability=_mean([(s.mean_probability, s.n_drawn) for s in parts]),
            counterfactual_correct=_mean([(s.counterfactual_correct, s.n_kept) for s in parts]),
            by_template={name: _total([s.by_template.get(name) for s in parts]) for name in names},
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


def _total(counts: list[tuple[int, int] | None]) -> tuple[int, int]:
    known = [count for count in counts if count is not None]
    return sum(kept for kept, _ in known), sum(drawn for _, drawn in known)
