"""How many of many verdicts chance alone would give.

Each claim is tested at 5% in both directions. Whatever is true, only one of the two verdicts would
be wrong, so that of n tested claims at most 5% are expected to have a wrong verdict. The control of
false discoveries (Benjamini and Hochberg) says which verdicts stay if all claims are looked at
together.
"""

from collections.abc import Iterator
from typing import get_args

import torch
from pandas import DataFrame

from arith_lens.statistics import false_discovery_control
from figures.tables.number import Number
from figures.tables.table import Row, records, row, select
from figures.verdicts import TEST_LEVEL, Judgement, holm

TOGETHER = "all claims together"
"""The group, and the claim, of the rows."""
TESTED, BY_CHANCE = "claims with a test", "wrong verdicts by chance, at most"
DECIDED, CONTROLLED = "decided claims", "decided claims with a false discovery rate of 5%"


def multiplicity_rows(verdicts: DataFrame) -> Iterator[Row]:
    """How many claims were tested and decided, and what chance would give.

    A claim whose numbers have no interval, or that is about other claims, has no test.

    Args:
        verdicts: the rows of `verdict_table` of one model, as its CSV file has them.
    """
    ruled = select(verdicts, number_holds=get_args(Judgement))
    tested = [
        (records(of_claim)[0].holds, p)
        for _, of_claim in ruled.groupby("claim", sort=False)
        if (p := _p_value(of_claim)) is not None
    ]
    decided = torch.tensor([holds != "not decided" for holds, _ in tested], dtype=torch.bool)
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


def multiplicity_sentence(rows: DataFrame) -> str:
    """The rows in words.

    Args:
        rows: a table with the rows of `multiplicity_rows`.
    """
    numbers = {one.measure: one.value for one in records(select(rows, claim=TOGETHER))}
    return (
        f"In this model, {numbers[TESTED]:.0f} claims have a test, and {numbers[DECIDED]:.0f} of "
        f"them are decided. By chance alone, at most {numbers[BY_CHANCE]:.1f} verdicts are "
        f"expected to be wrong (5% of the tests). {numbers[CONTROLLED]:.0f} decided claims stay if "
        "the false discovery rate over all of them is held at 5%."
    )


def _p_value(ruled: DataFrame) -> float | None:
    """Two-sided: of the direction with the stronger evidence. None without a test."""
    if (ruled.group == "models").any() or ruled.low.isna().all():
        return None
    outside = min(holm(ruled.p_outside.tolist()))
    return min(1.0, 2 * min(ruled.p_within.max(), outside))
