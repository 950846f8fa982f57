"""Each number has one writer, and a new figure needs few files.

Other tests hold the other counts: exhibits from their tables and places that aggregate
(tests/figures/test_tables.py), parameters (test_signatures.py), imports from inside packages and
the one list of families (test_layers.py), and the words of the README (test_readme.py).
"""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.questions import exhibit_entries, questions

ROOT = Path(__file__).parents[2]
CODE = [path for name in ("experiments", "figures") for path in (ROOT / name).rglob("*.py")]


def places(matches: Callable[[ast.AST], bool]) -> set[str]:
    """The files in which some part of the code matches."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in CODE
        if any(map(matches, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    }


def writes_a_range(node: ast.AST) -> bool:
    """Whether it makes the words for a range over draws, such as "range of 20 draws"."""
    if not isinstance(node, ast.JoinedStr) or len(node.values) < 2:
        return False
    first, second = node.values[:2]
    is_counted = isinstance(second, ast.FormattedValue) and "len" in ast.dump(second)
    return isinstance(first, ast.Constant) and first.value == "range of " and is_counted


def test_one_place_makes_a_range_over_draws() -> None:
    assert places(writes_a_range) == {"figures/tables/number.py"}


def defines(*names: str) -> Callable[[ast.AST], bool]:
    """Whether code defines a function with one of the names."""
    return lambda node: isinstance(node, ast.FunctionDef) and node.name in names


def returns_a_verdict(node: ast.AST) -> bool:
    """Whether it returns the verdict of a claim or prediction."""
    value = node.value if isinstance(node, ast.Return) else None
    return isinstance(value, ast.Constant) and value.value == "does not hold here"


def test_one_engine_judges_and_one_function_finds_a_run() -> None:
    assert places(defines("judge", "holm")) == {"figures/verdicts.py"}
    assert places(returns_a_verdict) == {"figures/verdicts.py"}
    assert places(defines("find_run", "newest_run")) == {"experiments/finding.py"}
    assert places(defines("no_such_function")) == set()


LISTS = ("Makefile", "experiments/study.py", "figures/report.py", "figures/gallery.py")
"""Files that are made from the questions, and name none."""


@pytest.mark.parametrize("key", ["carry", "circuit"])
def test_a_question_with_its_figure_is_four_files(key: str) -> None:
    experiment = questions()[key].experiment
    files = {path.stem for path in (ROOT / "figures").glob("*.py")}
    assert key in files and (ROOT / "figures" / "tables" / f"{key}.py").exists()
    assert (ROOT / "experiments" / f"{experiment}.py").exists()
    for name in LISTS:
        words = ast.dump(ast.parse(text)) if (text := read(name)) and ".py" in name else text
        assert f"'{key}'" not in words and f"\n{key}:" not in words, name


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


MOST_SHOWN = 26
"""Exhibits with a picture on the page of the gallery. This number may only shrink."""


def test_the_gallery_shows_few_exhibits() -> None:
    shown = [entry for _, entry in exhibit_entries().values() if entry.gallery != "numbers"]
    assert len(shown) <= MOST_SHOWN
