"""How many of many verdicts chance alone would give.

Each claim is tested at 5% in both directions. Whatever is true, only one of the two verdicts would
be wrong, so that of n tested claims at most 5% are expected to have a wrong verdict. The control of
false discoveries (Benjamini and Hochberg) says which verdicts stay if all claims are looked at
together.
"""

from collections.abc import Iterator, Sequence

import torch

from arith_lens.statistics import false_discovery_control
from figures.claims.claim import Verdict
from figures.tables.number import Number
from figures.tables.table import Row, row
from figures.verdicts import TEST_LEVEL, holm

TOGETHER = "all claims together"
"""The group, and the claim, of the rows."""
TESTED, BY_CHANCE = "claims with a test", "wrong verdicts by chance, at most"
DECIDED, CONTROLLED = "decided claims", "decided claims with a false discovery rate of 5%"


def multiplicity_rows(verdicts: Sequence[Verdict]) -> Iterator[Row]:
    """How many claims were tested and decided, and what chance would give.

    A claim whose numbers have no interval, or that is about other claims, has no test.

    Args:
        verdicts: of one model, or of several.
    """
    tested = [(verdict, p) for verdict in verdicts if (p := _p_value(verdict)) is not None]
    decided = torch.tensor([v.judgement != "not decided" for v, _ in tested], dtype=torch.bool)
    q = false_discovery_control(torch.tensor([p for _, p in tested], dtype=torch.float64))
    counts = {
        TESTED: len(tested),
        DECIDED: int(decided.sum()),
        BY_CHANCE: TEST_LEVEL * len(tested),
        CONTROLLED: int((decided & (q <= TEST_LEVEL)).sum()),
    }
    for name, count in counts.items():
        number = Number(count, unit="ratio" if name == BY_CHANCE else "count")
        yield row(name, number, group=TOGETHER, claim=TOGETHER)


def multiplicity_sentence(verdicts: Sequence[Verdict], where: str) -> str:
    """The rows in words.

    Args:
        verdicts: of one model, or of several.
        where: the models, such as "both models".
    """
    numbers = {one.measure: one.number.value for one in multiplicity_rows(verdicts)}
    return (
        f"In {where}, {numbers[TESTED]:.0f} claims have a test, and {numbers[DECIDED]:.0f} of them "
        f"are decided. By chance alone, at most {numbers[BY_CHANCE]:.1f} verdicts are expected to "
        f"be wrong (5% of the tests). {numbers[CONTROLLED]:.0f} decided claims stay if the false "
        "discovery rate over all of them is held at 5%."
    )


def _p_value(verdict: Verdict) -> float | None:
    """Two-sided: of the direction with the stronger evidence. None without a test."""
    findings = [finding for finding in verdict.findings if finding.rule]
    if not findings or verdict.claim.group == "models":
        return None
    if not any(finding.number.low is not None for finding in findings):
        return None
    within = max(finding.p_within for finding in findings)
    outside = min(holm([finding.p_outside for finding in findings]))
    return min(1.0, 2 * min(within, outside))
