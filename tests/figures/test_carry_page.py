"""The numbers of the page on carries are those of the shipped tables."""

import re
from pathlib import Path
from typing import Any

import pytest

from figures.tables.table import from_csv, records, select

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how_it_calculates.md").read_text(encoding="utf-8")
TABLES = {"reference": "carry.csv", "reference-mistral": "reference-mistral/carry.csv"}
LINES = {
    "carry of the tens, whole stream": ("tens_carry", "whole"),
    "carry of the ones, whole stream": ("ones_carry", "whole"),
    "one direction": ("ones_carry", "mean"),
    "written without a source": ("ones_carry", "written"),
    "everything but the direction": ("ones_carry", "everything but"),
    "random in the span of the differences": ("ones_carry", "random in the span"),
    "random in the span, written": ("ones_carry", "random in the span, written"),
    "the same fit with the carry shuffled": ("ones_carry", "variable shuffled"),
    "whole stream": ("borrow", "whole"),
    "borrow, one direction": ("borrow", "mean"),
    "borrow, everything but it": ("borrow", "everything but"),
}
TESTS = {
    "other wordings": "wordings",
    "other ones digits": "digits",
    "sources of other tens": "tens",
    "sums from 110": "large_sums",
}
SPACES = {
    "whole stream": "whole",
    "one direction": "mean",
    "everything but it": "everything but",
    "random in the span": "random in the span",
    "carry shuffled": "variable shuffled",
    "written": "written",
    "random, written": "random in the span, written",
}


def numbers(model: str) -> Any:
    path = ROOT / "figures" / "gallery" / TABLES[model]
    return from_csv(path.read_text(encoding="utf-8"))


def cells_of(page: str, header: str) -> list[list[str]]:
    """The lines of the table whose header begins so; the header first."""
    table = page[page.index(header) :].split("\n\n")[0].splitlines()
    lines = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table]
    return [line for line in lines if not set(line[0]) <= {"-"}]


def wrong_cells(cell: str, one: Any) -> list[str]:
    """The numbers of a cell, value and ends in percent, that are not those of a row."""
    texts = [float(text) for text in re.findall(r"-?\d+(?:\.\d+)?", cell)]
    known = [one.value, one.low, one.high][: len(texts)]
    return [
        f"{cell}: {known}"
        for text, number in zip(texts, known, strict=True)
        if abs(100 * number - text) > 0.51
    ]


def wrong_layers(page: str, model: str) -> list[str]:
    table, wrong = numbers(model), []
    header, *lines = cells_of(page, f"| `{model}`, `addition/0`, exit of layer")
    for name, *cells in lines:
        variable, space = LINES[name.removeprefix("borrow in `subtraction/0`, ")]
        rows = select(table, kind="interchange", test="layers", variable=variable, space=space)
        for layer, cell in zip(header[1:], cells, strict=True):
            (one,) = records(select(rows, layer=int(layer)))
            wrong += wrong_cells(cell, one)
    return wrong


@pytest.mark.parametrize("model", TABLES)
def test_the_layers_of_the_page_are_those_of_the_table(model: str) -> None:
    assert wrong_layers(PAGE, model) == []
    assert len(wrong_layers(PAGE.replace("[95, 100]", "[85, 100]"), "reference")) > 0


@pytest.mark.parametrize(("model", "layer"), [("reference", 9), ("reference-mistral", 6)])
def test_the_tests_of_the_direction_are_those_of_the_table(model: str, layer: int) -> None:
    table = numbers(model)
    header, *lines = cells_of(PAGE, f"| `{model}`, layer {layer} |")
    assert len(lines) == len(TESTS)
    for name, *cells in lines:
        rows = select(table, kind="interchange", test=TESTS[name], layer=layer)
        for column, cell in zip(header[1:], cells, strict=True):
            if column in SPACES:
                (one,) = records(select(rows, space=SPACES[column]))
                assert wrong_cells(cell, one) == []
    assert wrong_cells("90 [80, 95]", one)


def words_of(verdicts: list[str]) -> set[str]:
    """The words that a page must use for the verdicts of one prediction, and no others."""
    texts = {"holds here": "hold", "does not hold here": "fails", "not decided": "open"}
    return {texts[one] for one in verdicts}


@pytest.mark.parametrize(("model", "column"), [("reference", 1), ("reference-mistral", 2)])
def test_each_prediction_has_the_verdict_of_the_table(model: str, column: int) -> None:
    rows = select(numbers(model), kind="prediction")
    _, *lines = cells_of(PAGE, "| prediction | outcome in `reference`")
    assert sorted(line[0] for line in lines) == sorted(f"C{i}" for i in range(1, 12))
    for line in lines:
        own = records(select(rows, prediction=line[0]))
        if not own:
            assert line[column].startswith("not measured")
            continue
        words = {
            word for word in ("hold", "fails", "open") if re.search(rf"\b{word}", line[column])
        }
        expected = words_of([one.verdict for one in own])
        assert words == (expected if line[0] == "C8" else expected - {"hold"} or {"hold"}), line
        for one in own:
            share = f"{100 * one.value:.0f}"
            ratio = f"{one.value:.2f}".lstrip("0")
            assert line[0] in ("C3", "C6", "C5") or share in line[column] or ratio in line[column]


@pytest.mark.parametrize(("model", "column"), [("reference", 1), ("reference-mistral", 2)])
def test_writers_and_readers_are_those_of_the_table(model: str, column: int) -> None:
    table = numbers(model)
    writers, readers = cells_of(PAGE, "| | `reference`, layer 9 |")
    for kind, line in (("writer", writers), ("reader", readers)):
        named = re.findall(r"((?:MLP )?\d+(?:\.\d+)?) (\d+% \[\d+, \d+\])", line[column])
        assert len(named) == (5 if kind == "writer" else 2 + (model == "reference-mistral"))
        rows = select(table, kind=kind).sort_values("value", ascending=kind == "reader")
        assert [name for name, _ in named] == rows.component.tolist()[: len(named)]
        for name, cell in named:
            (one,) = records(select(rows, component=name))
            assert wrong_cells(cell, one) == []


def wrong_outcomes(page: str) -> list[str]:
    """The lines of the third training that differ from its table."""
    path = ROOT / "figures" / "gallery" / "reference-1" / "carry.csv"
    rows = records(select(from_csv(path.read_text(encoding="utf-8")), kind="prediction"))
    words = {"holds here": "holds", "does not hold here": "fails", "not decided": "open"}
    expected = []
    for one in rows:
        number = f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"
        expected.append([one.prediction, one.of, one.condition, number, words[one.verdict]])
    _, *lines = cells_of(page, "| prediction | measured | asked |")
    return [str(line) for line, own in zip(lines, expected, strict=True) if line != own]


def test_the_third_training_has_the_outcomes_of_its_table() -> None:
    assert wrong_outcomes(PAGE) == []
    assert len(wrong_outcomes(PAGE.replace("| at most .5 | 0.3", "| at most .5 | 0.4"))) == 1
