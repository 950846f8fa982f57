"""Conclusions about a model, and the rule by which each one holds under a lens.

The list and its rules were written on 2026-11-23, before the grid of lenses was computed
(docs/lenses.md says which numbers were known by then). A rule compares the 95% interval of one
number with one line.
"""

from dataclasses import dataclass
from math import isnan
from typing import Literal, TypeAlias

from figures.tables.number import Number, Unit

Verdict: TypeAlias = Literal["holds", "opposite", "not decided", ""]
"""What the interval says; empty where there is no number."""
ANSWER = "answer"
"""In place of a metric: the number reads which token is the likeliest, whatever the metric."""


@dataclass(frozen=True)
class Conclusion:
    """A sentence, the number that decides it, and the line that this number is compared with."""

    key: str
    """Its name in the table."""
    sentence: str
    measure: str
    """What the number is."""
    line: float
    side: Literal["above", "below"]
    """Where the number lies if the sentence holds."""
    unit: Unit = "share"
    metrics: tuple[str, ...] = ()
    """The metrics it is about; empty: every metric."""

    def verdict(self, number: Number) -> Verdict:
        """`holds` if the whole interval lies on the side of the sentence, `opposite` if it lies on
        the other side, else `not decided`."""
        low, high = number.low, number.high
        if isnan(number.value) or low is None or high is None or isnan(low) or isnan(high):
            return ""
        if low <= self.line <= high:
            return "not decided"
        return "holds" if (low > self.line) == (self.side == "above") else "opposite"


CONCLUSIONS = (
    Conclusion(
        "few_heads",
        "Few heads carry the answer: at most one in ten has 5% of the whole prompt's effect.",
        "share of heads with 5% of the whole prompt's effect or more",
        0.1,
        "below",
    ),
    Conclusion(
        "few_beyond_line",
        "At most one head in ten is beyond -5% of C's logit.",
        "share of heads beyond -5%",
        0.1,
        "below",
        metrics=("relative_logit",),
    ),
    Conclusion(
        "late_heads",
        "The five strongest heads lie in the second half of the layers.",
        "mean depth of the five strongest heads (0: first layer, 1: last layer)",
        0.5,
        "above",
    ),
    Conclusion(
        "same_heads",
        "The five strongest heads are mostly those under `word` and the raw logit.",
        "share of the five strongest heads that are among those five",
        0.5,
        "above",
    ),
    Conclusion(
        "last_mlp_effect",
        "The last MLP hardly matters: beside the norm's scale it has little of the whole effect.",
        "effect of the last MLP with the norm's scale held, as a share of the whole prompt's",
        0.25,
        "below",
        "relative",
    ),
    Conclusion(
        "last_mlp_answer",
        "The answer hardly depends on the last MLP.",
        "still answered C when the last MLP alone is exchanged",
        0.5,
        "above",
        metrics=(ANSWER,),
    ),
    Conclusion(
        "last_mlp_other",
        "The output of the last MLP is the answer.",
        "answered C' when the last MLP alone is exchanged",
        0.5,
        "above",
        metrics=(ANSWER,),
    ),
    Conclusion(
        "needed",
        "The ten strongest heads are needed, and ten others of the same layers are not.",
        "accuracy without ten others of the same layers, less accuracy without the ten strongest",
        0.1,
        "above",
        "points",
    ),
    Conclusion(
        "five_suffice",
        "Five heads suffice at END.",
        "accuracy with the five strongest heads alone at END",
        0.9,
        "above",
    ),
    Conclusion(
        "fourteen_suffice",
        "Fourteen heads suffice at END.",
        "accuracy with the fourteen strongest heads alone at END",
        0.9,
        "above",
    ),
    Conclusion(
        "five_exchange",
        "Five heads hold the operands: exchanging them at END exchanges the answer.",
        "answered C' when the five strongest heads are exchanged at END",
        0.5,
        "above",
    ),
    Conclusion(
        "via_mlps",
        "The strongest heads act through MLPs, not directly on the logits.",
        "share of the five strongest heads' effects that is lost if all MLPs are held",
        0.5,
        "above",
        "relative",
    ),
    Conclusion(
        "no_single_mlp",
        "No MLP conveys the heads' effects by itself.",
        "largest share of the five strongest heads' effects that one MLP alone conveys",
        0.5,
        "below",
        "relative",
    ),
    Conclusion(
        "last_mlp_carries",
        "The last MLP carries most of the heads' effects.",
        "share of the five strongest heads' effects that is lost if the last MLP is held",
        0.5,
        "above",
        "relative",
    ),
    Conclusion(
        "atp_sign",
        "One gradient (`atp`) has the wrong sign for MLPs.",
        "correlation of atp with the exact effects of MLPs",
        0.0,
        "below",
        "correlation",
    ),
    Conclusion(
        "relp_mlps",
        "`relp` is no guide for MLPs.",
        "correlation of relp with the exact effects of MLPs",
        0.5,
        "below",
        "correlation",
    ),
    Conclusion(
        "relp_heads",
        "`relp` finds the heads.",
        "correlation of relp with the exact effects of heads",
        0.7,
        "above",
        "correlation",
    ),
    Conclusion(
        "atp_heads",
        "One gradient (`atp`) is no guide for heads.",
        "correlation of atp with the exact effects of heads",
        0.5,
        "below",
        "correlation",
    ),
    Conclusion(
        "relp_over_eap_ig",
        "For heads, `relp` agrees better than `eap_ig`.",
        "correlation of relp less that of eap_ig, for heads",
        0.0,
        "above",
        "ratio",
    ),
    Conclusion(
        "ig_best",
        "For heads, `ig_activations` agrees better than `relp`.",
        "correlation of ig_activations less that of relp, for heads",
        0.0,
        "above",
        "ratio",
    ),
)
"""In the order of the card."""


def lens_verdict(verdicts: list[Verdict]) -> Verdict:
    """A lens's verdict by those of the operations: `holds` or `opposite` if all say so."""
    known: list[Verdict] = [verdict for verdict in verdicts if verdict != ""]
    if not known:
        return ""
    return known[0] if len({*known}) == 1 else "not decided"


def in_words(verdicts: dict[str, Verdict]) -> str:
    """Under how many lenses a conclusion holds, such as "holds under 3 of 8 lenses: …".

    Args:
        verdicts: by the name of the lens; lenses without a number are left out.
    """
    known = {lens: verdict for lens, verdict in verdicts.items() if verdict}
    if not known:
        return "has no number"
    parts = []
    for verdict in ("holds", "opposite", "not decided"):
        lenses = [lens for lens, own in known.items() if own == verdict]
        if len(lenses) == len(known):
            every = "the one lens" if len(known) == 1 else f"all {len(known)} lenses"
            return f"{_SAYS[verdict]} under {every}" + (f" ({lenses[0]})" * (len(known) == 1))
        if lenses:
            parts.append(f"{_SAYS[verdict]} under {len(lenses)} ({'; '.join(lenses)})")
    return ", ".join(parts)


_SAYS = {
    "holds": "holds",
    "opposite": "the opposite holds",
    "not decided": "is not decided, or differs between operations,",
}
