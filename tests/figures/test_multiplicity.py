"""How many verdicts chance gives, against studies in which every claim lies at its bound."""

from dataclasses import replace

import numpy as np

from figures.claims import CLAIMS, Verdict, verdict_table
from figures.claims.checking import with_multiplicity
from figures.claims.multiplicity import (
    BY_CHANCE,
    CONTROLLED,
    DECIDED,
    TESTED,
    multiplicity_rows,
    multiplicity_sentence,
)
from figures.tables.number import Number
from figures.tables.table import read_back
from figures.verdicts import Finding, Within, judge


def verdicts_on(truths: list[float], seed: int) -> list[Verdict]:
    """Claims that a number is above 0, measured with an error of 1."""
    draw, found = np.random.default_rng(seed), []
    for number_of_claim, truth in enumerate(truths):
        value = truth + draw.standard_normal()
        number = Number(value, value - 1.96, value + 1.96, unit="logit")
        findings = (Finding("made", number, Within(above=0)),)
        claim = replace(CLAIMS[0], group="made", key=f"made_{number_of_claim}")
        found.append(Verdict(claim, judge(findings), findings))
    return found


def counts(verdicts: list[Verdict]) -> dict[str, float]:
    rows = multiplicity_rows(read_back(verdict_table("made", verdicts)))
    return {one.measure: one.number.value for one in rows}


def test_chance_decides_no_more_claims_than_it_says() -> None:
    """At the bound both directions are wrong: 10% are decided. Little stays under control."""
    studies = [counts(verdicts_on([0.0] * 40, seed)) for seed in range(60)]
    assert all(study[TESTED] == 40 and study[BY_CHANCE] == 2 for study in studies)
    assert 3 < np.mean([study[DECIDED] for study in studies]) < 5
    assert np.mean([study[CONTROLLED] for study in studies]) < 0.2


def test_clear_verdicts_stay_and_counts_without_interval_have_no_test() -> None:
    clear = verdicts_on([8.0] * 20 + [-8.0] * 20, 0)
    exact = Finding("made", Number(3, unit="count"), Within(above=0))
    counted = Verdict(replace(clear[0].claim, key="counted"), "holds here", (exact,))
    found = counts([*clear, counted])
    assert found[TESTED] == found[DECIDED] == found[CONTROLLED] == 40
    rows = read_back(with_multiplicity("made", clear))
    assert "40 decided claims stay" in multiplicity_sentence(rows)
