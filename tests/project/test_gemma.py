"""The numbers of docs/studies/gemma.md on heads that suffice are those of its tables."""

import math
from pathlib import Path
from typing import Any

import pytest
from pandas import DataFrame, read_csv
from scipy.stats import binomtest

import arith_lens as al
from arith_lens.knockout import matched_order
from figures.tables.table import from_csv, records, select

STUDIES = Path(__file__).parents[2] / "docs" / "studies"
PAGE = (STUDIES / "gemma.md").read_text("utf-8")
WORDS = " ".join(PAGE.split())
FAILS = "**fails**"
VERDICTS = {"holds here": "holds", "does not hold here": FAILS, "does not hold": FAILS}
SIGNS = {
    "multiplication": "×",
    "division": "÷",
    "addition_one_example": "+, one example",
    "multiplication_two_digits": "×, two digits",
    "division_two_digits": "÷, two digits",
}


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


def lines_of_outcomes() -> list[list[str]]:
    """The cells of the table of outcomes: prediction, measure, ×, ÷, outcome."""
    lines = [line.strip("| ").split(" |") for line in PAGE.split("\n") if line[:3] == "| P"]
    cells = [[cell.strip() for cell in line] for line in lines]
    return [line for line in cells if len(line) == 5]


def outcome_of(line: list[str], column: int) -> str:
    """The outcome that a line states for the operation of a column."""
    stated = dict(part.split(" ", 1) for part in line[4].split(", ") if part[0] in "×÷")
    return stated["×÷"[column - 2]] if stated else line[4]


def test_outcomes_of_predictions(table: DataFrame) -> None:
    earlier = read_csv(STUDIES / "gemma_predictions.csv")
    measured = [one for one in records(table) if one.prediction] + [*earlier.itertuples()]
    outcomes = {
        (one.prediction.partition(":")[0], number_text(one), VERDICTS.get(one.verdict, one.verdict))
        for one in measured
    }
    lines = lines_of_outcomes()
    stated = {
        (line[0], line[column], outcome_of(line, column))
        for line in lines
        for column in (2, 3)
        if line[column]
    }
    assert stated and stated - outcomes == set()
    fails = {name for name, _, verdict in outcomes if verdict == FAILS}
    unmentioned = fails - {name for name, _, verdict in stated if verdict == FAILS}
    assert unmentioned == {"P6"}, "its only failing row is no prediction"
    named = {line[0] for line in lines}
    assert named == {f"P{k}" for k in range(1, 18)} - {"P15"}


def test_the_outcomes_in_sentences(table: DataFrame) -> None:
    p15 = [one for one in records(table) if (one.prediction or "").startswith("P15:")]
    right, accuracy, contrast = (number_text(one) for one in p15)
    assert f"It takes part with {right} right by the point estimate" in WORDS
    kept = f"Seven heads keep {contrast} of `digit_contrast`, which holds."
    assert f"{kept} Seven heads keep {accuracy} right" in WORDS
    assert [one.verdict for one in p15] == ["holds here", "not decided", "holds here"]
    gate = p15[0]
    assert math.isnan(gate.low), "the gate has no interval"
    share = binomtest(round(36 * gate.value), 36).proportion_ci(method="wilson")
    assert share.low < 0.6 < share.high


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


def test_the_size_of_each_half_is_on_the_page(table: DataFrame) -> None:
    sizes = {
        one.case: f"{one.value:.0f}"
        for one in records(select(table, measure="problems", half="curves"))
    }
    assert [sizes[case] for case in SIGNS] == ["11", "11", "16", "29", "20"]
    assert "11 each in × and ÷, 16 in +, 29 and 20 in × and ÷ of two digits" in WORDS


def test_from_seven_heads_on_more_than_the_whole_contrast_is_kept(table: DataFrame) -> None:
    keys = {"case": "multiplication", "counterfactual": "operands", "order": "effect"}
    rows = records(select(table, measure="faithfulness", **keys))
    above = [int(one.k) for one in rows if one.low > 1]
    assert above == [*range(7, 15)]
    (seven,) = [one for one in rows if one.k == 7]
    words = "From seven heads on, faithfulness of `digit_contrast` in × is above 1 (with seven"
    assert f"{words} {number_text(seven)})" in WORDS


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

    few = outcome("faithfulness with 4 of 72 heads", "multiplication")
    assert f"keep {few.value:.2f} [{few.low:.2f}, {few.high:.2f}] in × (P1)" in WORDS
    for operation, before in (
        ("multiplication", "In ×, yes"),
        ("division", "In ÷ it is not decided"),
    ):
        lost = outcome("share of accuracy lost, without 7 heads", operation)
        text = f"{lost.value:.0%} [{100 * lost.low:.0f}, {100 * lost.high:.0f}]"
        assert text in WORDS.partition(before)[2][:160]
