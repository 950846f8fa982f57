"""The numbers of docs/studies/gemma.md on heads that suffice are those of its tables."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pandas import DataFrame, read_csv

import arith_lens as al
from arith_lens.knockout import matched_order
from figures.tables.table import from_csv, records, select

STUDIES = Path(__file__).parents[2] / "docs" / "studies"
PAGE = (STUDIES / "gemma.md").read_text("utf-8")
WORDS = " ".join(PAGE.split())


@pytest.fixture(scope="module")
def table() -> DataFrame:
    file = STUDIES / "gemma_few_heads.csv"
    return from_csv(file.read_text("utf-8"))


def number_text(one: Any) -> str:
    """A number of the page: shares in percent, others with two digits."""
    share = one.unit in ("share", "relative")

    def text(value: float) -> str:
        number = f"{100 * value:.0f}" if share else f"{value + 0.0:.2f}"
        return f"{value:.0f}" if one.unit == "count" else number.replace("-", "−")

    ends = f" [{text(one.low)}, {text(one.high)}]" if one.low < one.high else ""
    return f"{text(one.value)}{'%' * share}{ends}"


def test_the_outcomes_of_predictions_are_counted_from_the_tables(table: DataFrame) -> None:
    earlier = read_csv(STUDIES / "gemma_predictions.csv").itertuples()
    counts: dict[str, Counter[str]] = {}
    for one in [*earlier, *(row for row in records(table) if row.prediction)]:
        name = one.prediction.partition(" (")[0]
        counts.setdefault(name, Counter())[one.verdict.removesuffix(" here")] += 1
    verdicts = ("holds", "does not hold", "not decided")
    groups: dict[str, list[str]] = {}
    for name, own in counts.items():
        assert {*own} <= {*verdicts}
        holds = own["holds"]
        kind = "none" if not holds else "all" if holds == own.total() else "some"
        groups.setdefault(kind, []).append(name.partition(":")[0])
    texts = {
        k: f"{', '.join(of[:-1])} and {of[-1]}" if of[1:] else of[0] for k, of in groups.items()
    }
    assert sum(map(len, groups.values())) == 16
    words = f"All numbers hold in {texts['all']}, and none in {texts['none']}."
    assert f"{words} In {texts['some']} some hold." in WORDS


@pytest.mark.parametrize(("case", "n_sets"), [("multiplication", 1), ("division", 4)])
def test_the_draws_of_other_heads_are_few_sets(table: DataFrame, case: str, n_sets: int) -> None:
    rows = select(table, case=case, counterfactual="operands", measure="effect", order="effect")
    names = [one.component for one in sorted(records(rows), key=lambda one: one.k)]
    heads = [al.Head(*map(int, name.split("."))) for name in names]
    drawn = {frozenset(matched_order(heads, 18, 4, seed)[:5]) for seed in range(20)}
    shared = sorted(map(str, frozenset.intersection(*drawn)))
    assert len(drawn) == n_sets
    if n_sets == 1:
        assert f"one set: {', '.join(shared[:-1])} and {shared[-1]}." in WORDS
    else:
        assert {head.layer for one in drawn for head in one} == {11, 14, 15} and len(shared) == 4


def test_products_with_a_factor_of_one_stand_beside_the_others(table: DataFrame) -> None:
    rows: Any = read_csv(STUDIES / "gemma_factors.csv").set_index(["others replaced", "prompts"])

    def right(where: str, prompts: str) -> str:
        one = rows.loc[where, prompts]
        return f"{one.value:.0%} [{100 * one.low:.0f}, {100 * one.high:.0f}]"

    kinds = ("a factor is 1", "no factor is 1")
    at_end, everywhere = (
        [right(where, kind) for kind in kinds] for where in ("at END", "everywhere")
    )
    assert f"alone answer {at_end[0]} of these and {at_end[1]} of the three others" in WORDS
    assert f"replaced everywhere, {everywhere[0]} and {everywhere[1]} (" in WORDS
    assert rows.loc["at END", "no factor is 1"].n == 3 and right("at END", "all") in WORDS
    products = [(a, b) for a in range(1, 10) for b in range(1, 10) if a * b < 10]
    ones = [pair for pair in products if 1 in pair]
    assert f"{len(ones)} of {len(products)}." in WORDS


def test_the_size_of_each_half_is_on_the_page(table: DataFrame) -> None:
    rows = records(select(table, measure="problems", half="curves"))
    sizes = {one.case: f"{one.value:.0f}" for one in rows}
    assert sizes["multiplication"] == sizes["division"]
    assert f"{sizes['multiplication']} each in × and ÷" in WORDS


def test_the_result_is_of_the_table(table: DataFrame) -> None:
    def right(k: int) -> str:
        (one,) = records(
            select(
                table,
                case="multiplication",
                counterfactual="operands",
                order="effect",
                k=k,
                measure="accuracy",
            )
        )
        return number_text(one)

    for k, words in (
        (3, "{} of the prompts are right"),
        (5, "15.3) {} are right"),
        (9, "with nine {}, with no"),
        (0, "with no head {}."),
    ):
        assert words.format(right(k)) in WORDS
    heads = select(
        table, case="multiplication", counterfactual="operands", measure="effect", order="effect"
    )
    first = [one.component for one in sorted(records(heads), key=lambda one: one.k)][:7]
    assert f"The order is {', '.join(first)}." in WORDS
    assert f"({', '.join(first[:3])})" in WORDS and f"(also {first[3]} and {first[4]})" in WORDS
    (base,) = records(select(table, case="multiplication", measure="base rate"))
    assert f"The most frequent answer is right in {number_text(base)}." in WORDS


def test_the_result_names_controls_and_earlier_outcomes(table: DataFrame) -> None:
    five = select(table, case="multiplication", k=5, measure="accuracy")
    (random,) = records(select(five, order="random"))
    (matched,) = records(select(five, order="same layers"))
    (mean,) = [
        one
        for one in records(select(table, of="multiplication"))
        if "mean of random orders" in one.measure
    ]
    ends = f"[{100 * mean.low:.0f}, {100 * mean.high:.0f}]"
    words = f"keep {mean.value:.0%} {ends} right on average, {random.high:.0%} at most"
    assert words in WORDS
    assert matched.high == 0 and "keep none right in any of 20 draws" in WORDS
    earlier = read_csv(STUDIES / "gemma_predictions.csv")

    def outcome(quantity: str, operation: str) -> Any:
        rows = earlier[(earlier.measure == quantity) & (earlier.of == operation)]
        (one,) = rows.itertuples()
        return one

    for operation, before in (
        ("multiplication", "In ×, yes"),
        ("division", "In ÷ it is not decided"),
    ):
        lost = outcome("share of accuracy lost, without 7 heads", operation)
        text = f"{lost.value:.0%} [{100 * lost.low:.0f}, {100 * lost.high:.0f}]"
        assert text in WORDS.partition(before)[2][:160]
