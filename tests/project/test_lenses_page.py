"""The tables of docs/lenses.md are those of the numbers in the gallery, for each shipped model."""

from pathlib import Path
from typing import Any

import pytest
from pandas import DataFrame

from figures.tables.conclusions import ANSWER, CONCLUSIONS, Conclusion
from figures.tables.lenses import ALL
from figures.tables.table import from_csv, keys_of, records, select

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "lenses.md").read_text("utf-8")
FOLDERS = {"reference": "", "reference-mistral": "reference-mistral"}
MARKS = {"holds": "●", "opposite": "○", "not decided": "◐"}
PLAIN_NUMBERS = ("correlation", "ratio")


def names_on_the_page() -> list[str]:
    """The conclusions as the page's first table names them, in the order of `CONCLUSIONS`."""
    rules = PAGE.split("| conclusion | number | holds if it is |\n|---|---|---|\n")[1]
    return [line.split(" | ")[0].lstrip("| ") for line in rules.split("\n\n")[0].splitlines()]


def range_text(values: list[float], conclusion: Conclusion) -> str:
    """The smallest and the largest number."""
    plain = conclusion.unit in PLAIN_NUMBERS or conclusion.key == "late_heads"

    def text(value: float) -> str:
        words = f"{value:.2f}" if plain else f"{100 * value:.0f}"
        return words.replace("-0.00", "0.00").replace("-", "−")

    low, high = text(min(values)), text(max(values))
    sign = "" if plain else " points" if conclusion.unit == "points" else "%"
    return f"{low}{sign}" if low == high else f"{low} to {high}{sign}"


def card_line(rows: DataFrame, conclusion: Conclusion, name: str) -> str:
    """A conclusion: for each counterfactual, the range of its number over operations and metrics,
    and a mark for each metric; and under how many lenses it holds."""
    cells = [name]
    verdicts: list[str] = []
    for counterfactual in keys_of(rows, "counterfactual"):
        own = select(rows, conclusion=conclusion.key, counterfactual=counterfactual)
        values = [one.value for one in records(own) if one.verdict and one.operation != ALL]
        together = [one for one in records(own) if one.operation == ALL and one.verdict]
        verdicts += [one.verdict for one in together]
        marks = "".join(MARKS[one.verdict] for one in together)
        cells.append(f"{range_text(values, conclusion)} {marks}" if values else "")
    n = len(verdicts)
    said = [
        f"{words}{'all' if count == n else f'{count} of'} {n}"
        for words, count in (
            ("", verdicts.count("holds")),
            ("opposite: ", verdicts.count("opposite")),
        )
        if count
    ]
    return f"| {' | '.join(cells)} | {'; '.join(said) or 'none'} |"


@pytest.mark.parametrize("model", FOLDERS)
def test_the_card_of_each_model_is_that_of_its_numbers(model: str) -> None:
    text = PAGE.partition(f"## The card of `{model}`")[2].partition("\n## ")[0]
    file = ROOT / "figures" / "gallery" / FOLDERS[model] / "lenses_in_words.csv"
    rows = from_csv(file.read_text("utf-8"))
    names = names_on_the_page()
    assert len(names) == len(CONCLUSIONS)
    lines = [card_line(rows, one, name) for one, name in zip(CONCLUSIONS, names, strict=True)]
    assert [line for line in lines if line not in text] == []
    others = [one.replace("●", "○") for one in lines if "●" in one]
    assert others and not any(line in text for line in others), "the test must be able to fail"


def numbers_in(rows: DataFrame, key: str, **keys: str) -> list[Any]:
    """The rows of single operations of a conclusion."""
    own = records(select(rows, conclusion=key, **keys))
    return [one for one in own if one.operation != ALL and one.verdict]


def test_the_sentence_that_holds_everywhere_is_the_one_that_the_page_names() -> None:
    always = {one.key for one in CONCLUSIONS}
    for folder in FOLDERS.values():
        file = ROOT / "figures" / "gallery" / folder / "lenses_in_words.csv"
        rows = from_csv(file.read_text("utf-8"))
        for one in CONCLUSIONS:
            own = records(select(rows, conclusion=one.key, operation=ALL))
            if {row.verdict for row in own if row.verdict} != {"holds"}:
                always.discard(one.key)
    assert always == {"few_beyond_line"}
    assert ANSWER not in always
    assert "few heads are beyond −5% of C's logit, in both models" in " ".join(PAGE.split())
