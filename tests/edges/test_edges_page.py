"""The numbers of docs/edges.md are those of the tables that ship with the project."""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "figures" / "gallery"
PAGE = ROOT / "docs" / "edges.md"
SIGNS = {"addition": "+", "subtraction": "−", "multiplication": "×", "division": "÷"}
INPUTS = {"q": "by q", "k": "by k", "v": "by v", "mlp": ""}
Rows = list[dict[str, str]]


def rows_of(path: str) -> Rows:
    with (FOLDER / path).open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def chosen(rows: Rows, **keys: str) -> Rows:
    return [row for row in rows if all(row[name] == value for name, value in keys.items())]


def numbers(row: dict[str, str], digits: int, *, factor: float = 1, unit: str = "") -> str:
    """A value and its interval; the sign of the value is kept."""
    value, low, high = (
        f"{factor * float(row[name]) + 0.0:.{digits}f}".replace("-", "−")
        for name in ("value", "low", "high")
    )
    zero = f"{0:.{digits}f}"
    value, low, high = (zero if one == "−" + zero else one for one in (value, low, high))
    return f"{value}{unit} [{low}, {high}]"


def input_lines(rows: Rows) -> Iterator[str]:
    """The Shapley shares of the strongest head."""
    for counterfactual in ("word", "operands"):
        for operation, sign in SIGNS.items():
            key = {"operation": operation, "counterfactual": counterfactual}
            own = chosen(rows, kind="input", metric="relative_logit", **key)
            totals = {row["receiver"]: 0.0 for row in own}
            for row in own:
                totals[row["receiver"]] += float(row["value"])
            head = min(totals, key=lambda name: totals[name])
            cells = [
                numbers(row, 1, factor=100)
                for letter in "qkv"
                for row in chosen(own, receiver=head, input=letter)
            ]
            yield f"| `{counterfactual}` | {sign} | {head} | {' | '.join(cells)} |"


def path_lines(rows: Rows, names: tuple[str, ...] = ("word", "operands")) -> Iterator[str]:
    """The three largest edges, as what the answer's lead loses without them."""
    for counterfactual in names:
        for operation, sign in SIGNS.items():
            key = {"operation": operation, "counterfactual": counterfactual}
            own = chosen(rows, kind="edge", metric="digit_contrast", **key)
            own = sorted(own, key=lambda row: -abs(float(row["value"])))[:3]
            cells = [_path(row) for row in own]
            if cells:
                yield f"| `{counterfactual}` | {sign} | {' | '.join(cells)} |"


def _path(row: dict[str, str]) -> str:
    by = f" {INPUTS[row['input']]}".rstrip()
    return f"{row['sender']} → {row['receiver']}{by}: {numbers(row, 2)}"


def kept_lines(rows: Rows, names: tuple[str, ...] = ("word", "operands")) -> Iterator[str]:
    """What is left where the graph alone is kept, and random graphs."""
    for counterfactual in names:
        for operation, sign in SIGNS.items():
            key = {"operation": operation, "counterfactual": counterfactual}
            own = chosen(rows, kind="kept", metric="digit_contrast", positions="end", **key)
            left = chosen(own, measure="share of the metric that is left")
            if not left:
                continue
            cells = [
                numbers(row, 0, factor=100, unit="%")
                for kept in ("graph", "random")
                for row in chosen(left, kept=kept)
            ]
            right = chosen(own, measure="accuracy", kept="graph")[0]
            cells.append(numbers(right, 0, factor=100, unit="%"))
            yield f"| `{counterfactual}` | {sign} | {' | '.join(cells)} |"


def score_lines(rows: Rows) -> Iterator[str]:
    """Pearson's r of gradients' scores, and EAP-IG's recall of direct edges."""
    for operation, sign in SIGNS.items():
        for counterfactual in ("word", "operands"):
            for metric in ("relative_logit", "digit_contrast"):
                key = {"operation": operation, "counterfactual": counterfactual, "metric": metric}
                own = chosen(rows, kind="score", **key)
                pearson = [
                    numbers(row, 2)
                    for via in ("direct", "via_mlps")
                    for method in ("eap", "eap_ig")
                    for row in chosen(own, measure="pearson", method=method, via=via)
                ]
                recall = chosen(own, measure="recall 50", method="eap_ig", via="direct")[0]
                cells = " | ".join([*pearson, numbers(recall, 2)])
                yield f"| {sign} | `{counterfactual}`, `{metric}` | {cells} |"


def count_lines(rows: Rows) -> Iterator[str]:
    """How many edges were measured, how many intervals exclude 0, how many have 80%."""
    measures = (
        "edges measured",
        "edges whose interval excludes 0",
        "edges expected by chance",
        "edges with 80% of the sizes",
    )
    for counterfactual in ("word", "operands"):
        for operation, sign in SIGNS.items():
            key = {"operation": operation, "counterfactual": counterfactual}
            own = chosen(rows, kind="graph", metric="relative_logit", **key)
            cells = [
                f"{float(row['value']):.0f}"
                for measure in measures
                for row in chosen(own, measure=measure)
            ]
            yield f"| `{counterfactual}` | {sign} | {' | '.join(cells)} |"


MISTRAL, GEMMA = "reference-mistral/circuit_paths.csv", "gemma-3-270m/circuit_paths.csv"
TABLES: dict[str, tuple[str, Callable[[Rows], Iterator[str]]]] = {
    "counts": ("circuit_paths.csv", count_lines),
    "inputs": ("circuit_paths.csv", input_lines),
    "paths": ("circuit_paths.csv", path_lines),
    "kept": ("circuit_paths.csv", kept_lines),
    "scores": ("circuit_paths.csv", score_lines),
    "paths of reference-mistral": (MISTRAL, path_lines),
    "kept of reference-mistral": (MISTRAL, kept_lines),
    "paths of Gemma": (GEMMA, path_lines),
    "kept of Gemma": (GEMMA, kept_lines),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_page_on_edges_has_the_numbers_of_the_tables(name: str) -> None:
    path, lines = TABLES[name]
    page = PAGE.read_text(encoding="utf-8").splitlines()
    expected = [*lines(rows_of(path))]
    start = page.index(expected[0])
    assert page[start : start + len(expected)] == expected
    assert len(expected) >= (1 if "Gemma" in name else 8)


def test_another_number_would_be_seen() -> None:
    rows = rows_of("circuit_paths.csv")
    page = PAGE.read_text(encoding="utf-8").splitlines()
    changed = [row | {"value": str(float(row["value"]) * 1.5 or 1.0)} for row in rows]
    for lines in (count_lines, path_lines, score_lines):
        assert not {*lines(changed)} & {*page}
