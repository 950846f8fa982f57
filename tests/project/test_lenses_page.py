"""The tables of docs/lenses.md are those of the numbers in the gallery, for each shipped model."""

from pathlib import Path
from typing import Any

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


def cells_of(rows: DataFrame, conclusion: Conclusion) -> list[str]:
    """For each counterfactual the range of a conclusion's number over operations and metrics, and a
    mark for each metric; and under how many lenses it holds."""
    cells: list[str] = []
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
    return [*cells, "; ".join(said) or "none"]


def rows_of(model: str) -> DataFrame:
    """The numbers of a model's card."""
    file = ROOT / "figures" / "gallery" / FOLDERS[model] / "lenses.csv"
    return from_csv(file.read_text("utf-8"))


def test_the_card_is_that_of_the_numbers_with_the_counts_of_the_twin() -> None:
    text = PAGE.partition("## The card of `reference`")[2].partition("\n## ")[0]
    rows, twin = (rows_of(model) for model in FOLDERS)
    names = names_on_the_page()
    assert len(names) == len(CONCLUSIONS)
    lines = [
        f"| {' | '.join([name, *cells_of(rows, one), cells_of(twin, one)[-1]])} |"
        for one, name in zip(CONCLUSIONS, names, strict=True)
    ]
    assert [line for line in lines if line not in text] == []
    others = [one.replace("●", "○") for one in lines if "●" in one]
    assert others and not any(line in text for line in others), "the test must be able to fail"


def numbers_in(rows: DataFrame, key: str, **keys: str) -> list[Any]:
    """The rows of single operations of a conclusion."""
    own = records(select(rows, conclusion=key, **keys))
    return [one for one in own if one.operation != ALL and one.verdict]


def spans(rows: DataFrame, key: str, **keys: str) -> str:
    """The smallest and the largest number of single operations, in percent."""
    values = [100 * one.value for one in numbers_in(rows, key, **keys)]
    return f"{min(values):.0f} to {max(values):.0f}%"


def test_the_sentences_about_the_twin_are_its_numbers() -> None:
    twin = rows_of("reference-mistral")
    text = " ".join(PAGE.partition("## The card of `reference-mistral`")[2].split())
    under = {"counterfactual": "operands"}
    assert f"{spans(twin, 'last_mlp_other', **under)} answer C'" in text
    assert f"{spans(twin, 'last_mlp_answer', **under)} are still answered C" in text
    assert f"it has {spans(twin, 'last_mlp_effect', **under)} of the whole prompt's" in text
    kept = numbers_in(twin, "five_suffice", metric="digit_contrast", **under)
    shares = [f"{100 * one.value:.0f}" for one in kept]
    assert "they answer {}, {}, {} and {}% (+ − × ÷)".format(*shares) in text
    grades = [one.value for one in numbers_in(twin, "relp_heads")]
    assert f"at {min(grades):.2f} to {max(grades):.2f}." in text
    beginning = " ".join(PAGE.partition("## ")[0].split())
    for model, words in zip(FOLDERS, ("{} (`reference`)", "{} (`reference-mistral`)"), strict=True):
        of_word = spans(rows_of(model), "five_suffice", counterfactual="word")
        assert words.format(of_word) in beginning


def test_the_sentence_that_holds_everywhere_is_the_one_that_the_page_names() -> None:
    always = {one.key for one in CONCLUSIONS}
    for model in FOLDERS:
        rows = rows_of(model)
        for one in CONCLUSIONS:
            own = records(select(rows, conclusion=one.key, operation=ALL))
            if {row.verdict for row in own if row.verdict} != {"holds"}:
                always.discard(one.key)
    assert always == {"few_beyond_line"}
    assert ANSWER not in always
    assert "few heads are beyond −5% of C's logit, in both models" in " ".join(PAGE.split())
