"""The numbers of frozen studies are those of the tables beside their pages."""

import re
from pathlib import Path
from typing import Any

from pandas import DataFrame

from figures.tables.table import from_csv, keys_of, records, select

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "docs" / "studies"
PAGE = (STUDIES / "lenses.md").read_text("utf-8")
ROWS = from_csv((STUDIES / "lenses.csv").read_text("utf-8"))
MODELS = ("reference", "reference-mistral")
CONCLUSIONS = [key for key in keys_of(ROWS, "conclusion") if key]
ALL = "all"


def lines_of_the_page() -> list[str]:
    """The rows of the page's table, in the order of the numbers."""
    header = "| conclusion | number | holds if it is | `reference` | `reference-mistral` |"
    return PAGE.split(f"{header}\n|---|---|---|---|---|\n")[1].split("\n\n")[0].splitlines()


def count_of(rows: DataFrame, conclusion: str) -> str:
    """Under how many lenses a conclusion holds, and under how many its opposite does."""
    own = select(rows, conclusion=conclusion, operation=ALL)
    verdicts = [one.verdict for one in records(own) if one.verdict]
    n = len(verdicts)
    texts = [
        f"{words}{'all' if count == n else f'{count} of'} {n}"
        for words, count in (
            ("", verdicts.count("holds")),
            ("opposite: ", verdicts.count("opposite")),
        )
        if count
    ]
    return "; ".join(texts) or "none"


def rows_of(model: str) -> DataFrame:
    """The numbers of a model."""
    return select(ROWS, model=model)


def test_the_counts_of_lenses_are_those_of_the_numbers() -> None:
    tables = [rows_of(model) for model in MODELS]
    lines = lines_of_the_page()
    assert len(lines) == len(CONCLUSIONS)
    ends = [f" | {' | '.join(count_of(rows, one) for rows in tables)} |" for one in CONCLUSIONS]
    pairs = zip(lines, ends, strict=True)
    assert [line for line, end in pairs if not line.endswith(end)] == []
    assert len({*ends}) > 5, "the test can fail"


def numbers_in(rows: DataFrame, key: str, **keys: str) -> list[Any]:
    """The rows of single operations of a conclusion."""
    own = records(select(rows, conclusion=key, **keys))
    return [one for one in own if one.operation != ALL and one.verdict]


def spans(rows: DataFrame, key: str, **keys: str) -> str:
    """The smallest and the largest number of single operations, in percent."""
    values = [100 * one.value for one in numbers_in(rows, key, **keys)]
    return f"{min(values):.0f} to {max(values):.0f}%"


def test_the_sentence_that_holds_everywhere_is_the_one_that_the_page_names() -> None:
    always = {*CONCLUSIONS}
    for model in MODELS:
        rows = rows_of(model)
        for one in CONCLUSIONS:
            own = records(select(rows, conclusion=one, operation=ALL))
            if {row.verdict for row in own if row.verdict} != {"holds"}:
                always.discard(one)
    assert always == {"few_beyond_line"} and len(CONCLUSIONS) == 20
    assert "few heads are beyond −5% of C's logit, in both models" in " ".join(PAGE.split())
    page = " ".join((ROOT / "docs" / "what_the_metric_hides.md").read_text("utf-8").split())
    assert "Of twenty conclusions about the shipped models, one holds under every lens" in page


def test_the_sentences_on_the_strongest_heads_are_their_tables() -> None:
    text = " ".join((STUDIES / "strongest_heads.md").read_text("utf-8").split())
    rows, computed = (
        from_csv((STUDIES / f"{name}.csv").read_text("utf-8"))
        for name in ("counterfactuals", "computed")
    )
    own = select(rows, model=[*MODELS], measure="rank correlation of the heads")
    near = (own.counterfactual == "word") & (own.other == "operator")
    ends = [f"{one.min():.2f} to {one.max():.2f}" for one in (own.value[near], own.value[~near])]
    assert "(rank correlation {}); other numbers find others ({}).".format(*ends) in (
        text.replace("−", "-")
    )
    in_common = "share of the 10 strongest heads in common"
    shares = 10 * select(rows, model=[*MODELS], measure=in_common).value
    assert {round(shares.min()), round(shares.max())} == {2, 8} and "two to eight" in text
    effects = select(computed, model="reference", measure="effect", problems="computed")
    of_head = select(effects, component="8.4").value
    assert "× {:.0%}, ÷ {:.0%}".format(*of_head).replace("-", "−") in text
    own = select(computed, model="reference", measure=in_common)
    correlations = select(computed, model="reference", measure="rank correlation of the heads")
    for share, one in zip(10 * own.value, records(correlations), strict=True):
        line = f"| {one.value:.2f} [{one.low:.2f}, {one.high:.2f}] | {share:.0f} |"
        assert f"| {one.operation}" in text and line in text
    strongest = DataFrame(effects[effects["index"].notna()]).sort_values("value")
    assert strongest.groupby("operation").component.first().tolist() == ["8.4", "8.4"]


NUMBERS = (ROOT / "docs" / "numbers.md").read_text("utf-8")
EMERGENCE = (STUDIES / "emergence.md").read_text("utf-8")


def outcomes(model: str, prediction: str) -> Any:
    """The rows of a prediction on numbers in a model."""
    path = STUDIES / "predictions.csv"
    table = from_csv(path.read_text(encoding="utf-8"))
    return select(table, question="numbers", model=model, prediction=prediction)


def test_unseen_values_of_other_problems_are_those_of_the_tables() -> None:
    start = NUMBERS.index("| number | A's token, `reference` |")
    lines = NUMBERS[start:].split("\n\n")[0].splitlines()[2:]
    subjects = ("ones", "tens", "multiplication", "division")
    for line, subject in zip(lines, subjects, strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")][1:5]
        known = []
        for name in ("N1", "N2"):
            for model in ("reference", "reference-mistral"):
                rows = select(outcomes(model, name), subject=subject)
                one = records(rows)[0]  # of N2, layer 7
                known.append(f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]")
        assert cells == known


def test_the_verdicts_by_problems_are_those_of_the_tables() -> None:
    rows = outcomes("reference", "N1")
    verdicts = {subject: {*rows[rows.subject == subject].verdict} for subject in {*rows.subject}}
    assert verdicts.pop("division") == {"not decided"}
    assert {*map(frozenset, verdicts.values())} == {frozenset({"holds here"})}
    assert "| N1 | holds in sums" in NUMBERS and "| N2 | **fails**" in NUMBERS
    of_line = [outcomes(model, "N2") for model in ("reference", "reference-mistral")]
    assert all({*rows.verdict} == {"does not hold here"} for rows in of_line)
    largest = max(rows[rows.subject == "addition"].value.max() for rows in of_line)
    words = f"one-digit sums the line has at most {largest:.0%}"
    assert words in NUMBERS


WORDS = {"holds here": "holds", "does not hold here": "**fails**", "not decided": "open"}


def wrong_outcomes(page: str) -> list[str]:
    """The predictions whose verdict, value or interval on the page is not that of the table."""
    path = STUDIES / "emergence.csv"
    table: Any = from_csv(path.read_text(encoding="utf-8"))
    wrong = []
    for one in records(select(table, kind="prediction")):
        (line,) = re.findall(
            rf"^\| {one.prediction} \| ((?:holds|open|\*\*fails).*) \|$", page, re.M
        )
        digits = 0 if one.prediction == "E2" else 2
        value, low, high = (f"{part:.{digits}f}" for part in (one.value, one.low, one.high))
        if not line.startswith(WORDS[one.verdict]) or f"{value} [{low}, {high}]" not in line:
            wrong.append(one.prediction)
    return wrong


def test_each_outcome_on_the_page_is_that_of_the_table() -> None:
    assert wrong_outcomes(EMERGENCE) == []
    assert wrong_outcomes(EMERGENCE.replace("| E1 | holds", "| E1 | open")) == ["E1"]


def test_the_page_names_the_last_snapshot() -> None:
    table: Any = from_csv((STUDIES / "emergence.csv").read_text(encoding="utf-8"))
    last = int(select(table, kind="overlap").step.max())
    assert f"step {last:,}" in EMERGENCE or last == 3000
