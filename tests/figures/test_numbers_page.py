"""What the page on numbers says of unseen values is in the shipped tables."""

from pathlib import Path
from typing import Any

from figures.tables.table import from_csv, records, select

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8")


def outcomes(model: str, prediction: str) -> Any:
    """The rows of a prediction on numbers in a model."""
    path = ROOT / "docs" / "studies" / "predictions.csv"
    table = from_csv(path.read_text(encoding="utf-8"))
    return select(table, question="numbers", model=model, prediction=prediction)


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
    assert "| N1 | holds in sums and in ×, open in ÷" in PAGE
    of_line = [outcomes(model, "N2") for model in ("reference", "reference-mistral")]
    assert all({*rows.verdict} == {"does not hold here"} for rows in of_line)
    largest = max(rows[rows.subject == "addition"].value.max() for rows in of_line)
    words = f"| N2 | **fails**: in one-digit sums the line has at most {largest:.0%} of the whole"
    assert words in PAGE
