"""The numbers of docs/edges.md are those of the tables that ship with the project."""

import csv
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "figures" / "gallery"
PAGE = ROOT / "docs" / "edges.md"
PERFORMANCE = ROOT / "docs" / "performance.md"
PREDICTIONS = ROOT / "docs" / "studies" / "predictions.md"
SIGNS = {"addition": "+", "subtraction": "−", "multiplication": "×", "division": "÷"}
REFERENCE, MISTRAL, GEMMA = (
    "circuit_paths.csv",
    "reference-mistral/circuit_paths.csv",
    "gemma-3-270m/circuit_paths.csv",
)
INPUTS = {"q": "by q", "k": "by k", "v": "by v", "mlp": ""}
LENSES = (("word", "relative_logit"), ("operands", "digit_contrast"))
"""The lenses of the prediction on gradients' scores."""
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
        for operation in ("addition", "subtraction"):
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
            yield f"| `{counterfactual}` {SIGNS[operation]} | {head} | {' | '.join(cells)} |"


def kept_sentences() -> Iterator[str]:
    """What is left where the graph alone is kept, and random graphs: the range over operations."""
    key = {"kind": "kept", "metric": "digit_contrast", "positions": "end"}
    left = chosen(rows_of(REFERENCE), measure="share of the metric that is left", **key)

    def ends(kept: str, counterfactual: str) -> str:
        rows = chosen(left, kept=kept, counterfactual=counterfactual)
        values = [100 * float(row["value"]) for row in rows]
        return f"{min(values):.0f} to {max(values):.0f}%"

    yield (
        f"the graph keeps {ends('graph', 'operands')} of `digit_contrast` under `operands`, and "
        f"{ends('graph', 'word')} under `word`."
    )
    yield f"Random graphs keep {ends('random', 'operands')} and {ends('random', 'word')},"


def score_sentences() -> Iterator[str]:
    """The recall of EAP-IG, and the range of r with edges via MLPs."""
    rows = [
        row
        for counterfactual, metric in LENSES
        for row in chosen(
            rows_of(REFERENCE), kind="score", counterfactual=counterfactual, metric=metric
        )
    ]

    def ends(**keys: str) -> str:
        values = [float(row["value"]) for row in chosen(rows, **keys)]
        return f"{min(values):.2f} to {max(values):.2f}".replace("-", "−")

    yield (
        "EAP-IG has a recall of the 50 largest direct edges of "
        f"{ends(measure='recall 50', method='eap_ig', via='direct')}."
    )
    via = {"measure": "pearson", "via": "via_mlps"}
    yield (
        f"So r with edges via MLPs is lower: {ends(method='eap', **via)} for EAP, "
        f"{ends(method='eap_ig', **via)} for EAP-IG."
    )


def largest(rows: Rows, n: int, **keys: str) -> Rows:
    """The largest edges of an operation, a counterfactual and a metric."""
    own = chosen(rows, kind="edge", **keys)
    return sorted(own, key=lambda row: -abs(float(row["value"])))[:n]


def word_lines() -> Iterator[str]:
    """The two strongest paths of each model, in words."""
    for name, path, operation in (
        ("`reference`", REFERENCE, "addition"),
        ("`reference-mistral`", MISTRAL, "addition"),
        ("Gemma 3 270M", GEMMA, "multiplication"),
    ):
        key: Any = {"operation": operation, "counterfactual": "operands"}
        own = largest(rows_of(path), n=2, metric="digit_contrast", **key)
        said = ", ".join(f"{_in_words(row)} ({_carried(row)})" for row in own)
        yield f"- {name}, {operation}: {said}."


def _in_words(row: dict[str, str]) -> str:
    """Who reads whom."""
    sender, receiver = (
        ("" if "MLP" in name or name == "embeddings" else "head ") + name
        for name in (row["sender"], row["receiver"])
    )
    sender = sender.replace("embeddings", "the embeddings")
    letter = {"q": " by its queries", "k": " by its keys", "v": " by its values"}
    return f"{receiver} reads {sender}{letter.get(row['input'], '')}"


def _carried(row: dict[str, str]) -> str:
    """An effect that helps, without its sign."""
    ends = {"value": row["value"], "low": row["high"], "high": row["low"]}
    return numbers({name: str(-float(end)) for name, end in ends.items()}, 2)


def _input_shares(counterfactual: str) -> dict[str, float]:
    """The parts of head 5.5's effect in addition that enter by q, k and v."""
    key = {"operation": "addition", "counterfactual": counterfactual, "receiver": "5.5"}
    own = chosen(rows_of(REFERENCE), kind="input", metric="relative_logit", **key)
    whole = sum(float(row["value"]) for row in own)
    return {row["input"]: float(row["value"]) / whole for row in own}


def _above_random(path: str) -> Iterator[tuple[str, str, bool]]:
    """Whether a graph keeps more of the metric than each random graph."""
    measure = "share of the metric that is left"
    key = {"kind": "kept", "metric": "digit_contrast", "positions": "end", "measure": measure}
    own = chosen(rows_of(path), **key)
    for graph in chosen(own, kept="graph"):
        names = {name: graph[name] for name in ("operation", "counterfactual")}
        (random,) = chosen(own, kept="random", **names)
        is_above = float(graph["value"]) > float(random["high"])
        yield graph["operation"], graph["counterfactual"], is_above


def outcome_lines() -> Iterator[str]:
    """What became of each prediction."""
    word, operands = _input_shares("word"), _input_shares("operands")
    yield (
        f"| 1 | **{'holds' if word['v'] >= 0.7 else 'fails'}** under `word`: {word['v']:.0%} by v, "
        f"{word['q']:.0%} by q, {word['k']:.0%} by k. Under `operands` {operands['v']:.0%} enters "
        "by v (this was not predicted) |"
    )
    key = {"operation": "addition", "counterfactual": "word", "metric": "relative_logit"}
    counts = {
        row["measure"]: float(row["value"])
        for row in chosen(rows_of(REFERENCE), kind="graph", **key)
    }
    certain = counts["edges whose interval excludes 0"]
    yield (
        f"| 2 | **{'holds' if certain < 60 else 'fails'}** under `word`: "
        f"{certain:.0f} of {counts['edges measured']:,.0f} intervals exclude 0, of which chance "
        f"alone would give {counts['edges expected by chance']:.0f}. "
        f"{counts['edges with 80% of the sizes']:.0f} edges have 80% of the sizes |"
    )
    yield _gemma_outcome()
    yield _score_outcome()
    cases = [(path, [*_above_random(path)]) for path in (REFERENCE, MISTRAL, GEMMA)]
    told = ", ".join(
        f"{sum(above for *_, above in own)} of {len(own)} in {name}"
        for name, (_, own) in zip(
            ("`reference`", "`reference-mistral`", "Gemma"), cases, strict=True
        )
    )
    yield (
        f"| 5 | {told}. In `reference` under `word`, the graphs of + and − still keep next "
        "to nothing |"
    )


def _gemma_outcome() -> str:
    key = {"operation": "multiplication", "counterfactual": "operands"}
    own = largest(rows_of(GEMMA), n=99, metric="digit_contrast", **key)
    first = {
        row["receiver"]: row["sender"] for row in reversed(own) if "MLP" not in row["receiver"]
    }
    by_sender: dict[str, list[str]] = {}
    for receiver, sender in sorted(first.items()):
        by_sender.setdefault(sender, []).append(receiver)
    said = ", ".join(
        f"from {'the embeddings' if sender == 'embeddings' else sender} into {' and '.join(into)}"
        for sender, into in by_sender.items()
    )
    from_mlps = sum("MLP" in sender for sender in first.values())
    return (
        f"| 3 | **{'holds' if from_mlps == len(first) else 'fails'}** with other operands, "
        f"`digit_contrast`: {from_mlps} of the {len(first)} measured heads. It comes {said} |"
    )


def _score_outcome() -> str:
    def pearson(counterfactual: str, metric: str) -> list[float]:
        key = {"counterfactual": counterfactual, "metric": metric, "via": "via_mlps"}
        own = chosen(rows_of(REFERENCE), kind="score", measure="pearson", **key)
        return [float(row["value"]) for row in own]

    high, low = pearson("operands", "digit_contrast"), pearson("word", "relative_logit")
    holds = [sum(r > 0.8 for r in high), sum(r < 0.5 for r in low)]
    return (
        f"| 4 | **{'holds' if holds == [len(high), len(low)] else 'fails'}**: "
        f"{holds[0]} of {len(high)} are above .8 (at most {max(high):.2f}), "
        f"{holds[1]} of {len(low)} below .5 (at least {min(low):.2f}) |"
    )


def suffice_lines() -> Iterator[str]:
    """Where a graph keeps no more than the best random graph."""
    weak = [
        f"{name} {SIGNS[operation]} `{counterfactual}`"
        for name, path in (
            ("`reference`", REFERENCE),
            ("`reference-mistral`", MISTRAL),
            ("Gemma", GEMMA),
        )
        for operation, counterfactual, is_above in _above_random(path)
        if not is_above
    ]
    yield (
        f"So many small edges do the rest. Within the range of random graphs are {', '.join(weak)}."
    )


SPEED = ROOT / "laboratory" / "speed" / "edges.csv"
RECEIVERS = {
    "one head": "one head of the last layer",
    "all heads of its layer": "all eight heads of that layer",
    "those of make circuit": "those of `make circuit`",
}


def speed_rows() -> Rows:
    """What `python -m laboratory speed --parts edges` measured."""
    with SPEED.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def cost_lines(rows: Rows) -> Iterator[str]:
    """One row for each choice of receivers."""
    for row in rows:
        if row["method"] in RECEIVERS and not row["factor"]:
            numbers = (
                f"{int(row['edges']):,}",
                f"{float(row['cpu_seconds']):.2f} s",
                f"{float(row['ratio']):.0f}",
            )
            yield f"| {RECEIVERS[row['method']]} | {' | '.join(numbers)} |"


def test_the_cost_of_edges_is_that_of_the_table_that_ships() -> None:
    rows = speed_rows()
    page = PERFORMANCE.read_text(encoding="utf-8")
    expected = "\n".join(cost_lines(rows))
    assert expected in page and len(expected.splitlines()) == len(RECEIVERS)
    changed = [row | {"cpu_seconds": str(2 * float(row["cpu_seconds"] or 0))} for row in rows]
    assert "\n".join(cost_lines(changed)) not in page, "other numbers would be seen"
    assert all(int(row["rounds"]) >= 5 for row in rows if row["edges"])


def ladder_lines() -> Iterator[str]:
    """Edges in the ladder: r with exact direct edges under each lens, for + − × ÷."""
    for method in ("eap", "eap_ig"):
        cells = []
        for metric, counterfactual in product(
            ("relative_logit", "digit_contrast"), ("word", "operands")
        ):
            key = {"metric": metric, "counterfactual": counterfactual, "method": method}
            own = chosen(rows_of(REFERENCE), kind="score", measure="pearson", via="direct", **key)
            by_operation = {row["operation"]: f"{float(row['value']):.2f}" for row in own}
            texts = [by_operation[operation].replace("0.", ".") for operation in SIGNS]
            cells.append(" ".join(texts))
        raw_word, raw_operands, word, operands = cells
        yield f"| edges: `{method}` | {raw_word} | {word} | {raw_operands} | {operands} |"


def test_the_ladder_has_edges() -> None:
    study = ROOT / "docs" / "studies" / "attribution.md"
    page = study.read_text(encoding="utf-8").splitlines()
    assert all(line in page for line in ladder_lines())


def test_the_page_on_edges_has_the_shares_of_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8").splitlines()
    expected = [*input_lines(rows_of(REFERENCE))]
    start = page.index(expected[0])
    assert page[start : start + len(expected)] == expected
    assert len(expected) >= 4


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        (PAGE, word_lines),
        (PREDICTIONS, outcome_lines),
        (PAGE, kept_sentences),
        (PAGE, suffice_lines),
        (PAGE, score_sentences),
    ],
    ids=lambda one: one.stem if isinstance(one, Path) else one.__name__,
)
def test_the_sentences_of_the_page_are_those_of_the_tables(
    path: Path, lines: Callable[[], Iterator[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = " ".join(path.read_text(encoding="utf-8").split())
    assert all(line in page for line in lines())
    changed = {
        path: [row | {"value": str(-1.5 * float(row["value"]) - 1)} for row in rows_of(path)]
        for path in (REFERENCE, MISTRAL, GEMMA)
    }
    monkeypatch.setitem(globals(), "rows_of", changed.__getitem__)
    assert not all(line in page for line in lines()), "other numbers would be seen"


def test_another_number_would_be_seen() -> None:
    rows = rows_of("circuit_paths.csv")
    page = PAGE.read_text(encoding="utf-8").splitlines()
    changed = [row | {"value": str(float(row["value"]) * 1.5 or 1.0)} for row in rows]
    assert not {*input_lines(changed)} & {*page}
