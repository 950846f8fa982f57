"""What the page on numbers says of spectra and of unseen values is in the shipped tables."""

import re
from pathlib import Path
from typing import Any

from figures.tables.table import from_csv, records, select

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8")
OTHERS = [f"reference-{i}" for i in range(1, 5)]
"""Other trainings of the recipe."""


def numbers(model: str) -> Any:
    """The rows of a model in the study of numbers."""
    path = ROOT / "docs" / "studies" / "numbers.csv"
    return select(from_csv(path.read_text(encoding="utf-8")), model=model)


def outcomes(model: str, prediction: str) -> Any:
    """The rows of a prediction on numbers in a model."""
    path = ROOT / "docs" / "studies" / "predictions.csv"
    table = from_csv(path.read_text(encoding="utf-8"))
    return select(table, question="numbers", model=model, prediction=prediction)


def strongest(model: str) -> str:
    """The range of the strongest frequency's share in layers 7 to 11, if it is the lowest one."""
    at_end = {"kind": "spectrum", "variable": "a", "place": "end", "source": "stream"}
    rows = select(numbers(model), measure="share of the variance between values", **at_end)
    late = rows[rows.layer >= 7]
    largest = late.loc[late.groupby("layer").value.idxmax()]
    assert {*largest.period} == {8}
    return f"{100 * largest.value.min():.0f} to {100 * largest.value.max():.0f}%"


def test_the_strongest_frequency_is_that_of_the_tables() -> None:
    (line,) = re.findall(r"^\| N4 \|.*$", PAGE, re.M)
    own, other = strongest("reference"), strongest("reference-mistral")
    assert f"with {own} of the variance" in line and f"| {other}; there" in line
    ends = [int(end) for model in OTHERS for end in re.findall(r"\d+", strongest(model))]
    assert (
        f"four other trainings of the recipe with half of the steps, with {min(ends)} to " in line
    )
    assert f" to {max(ends)}%. In all six models" in line


def test_the_chance_of_the_strongest_frequency_is_that_of_the_tables() -> None:
    models = ["reference", "reference-mistral", *OTHERS]
    at_end = {"kind": "spectrum", "variable": "a", "place": "end", "source": "stream", "period": 8}
    rows = [select(numbers(one), measure="p of the power", **at_end) for one in models]
    chances = [p for table in rows for p in table[table.layer >= 7].value]
    assert f"p of permuted values is {min(chances)} to {max(chances)} in these layers" in PAGE
    assert sum(p > 0.05 for p in chances) > len(chances) / 2


def test_unseen_values_of_other_problems_are_those_of_the_tables() -> None:
    start = PAGE.index("| number | A's token, `reference` |")
    lines = PAGE[start:].split("\n\n")[0].splitlines()[2:]
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
    assert "| N1 (of `reference`) | holds in sums and in ×, open in ÷" in PAGE
    of_line = outcomes("reference", "N2")
    assert {*of_line.verdict} == {"does not hold here"} and "| N2 | **fails**" in PAGE
