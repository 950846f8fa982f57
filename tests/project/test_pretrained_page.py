"""The page on pretrained models: its table of audits and its outcomes are those of the tables."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.outcomes import at_least, decided, less

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pretrained.md").read_text(encoding="utf-8")
AUDITS: Any = pd.read_csv(ROOT / "docs" / "studies" / "audits.csv", keep_default_na=True)
NAMES = {
    "SmolLM2": "smollm2-135m",
    "`reference`": "reference",
    "`reference-mistral`": "reference-mistral",
    "Qwen": "qwen2.5-coder-0.5b-instruct-q4_k_m",
    "Gemma": "gemma-3-270m",
}
SIGNS = {"+": "addition", "−": "subtraction", "×": "multiplication", "÷": "division"}
LENSES = (
    "means at every token",
    "means over more prompts at END",
    "another prompt's outputs at END",
)
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.partition("## What came out")[2].splitlines()
    if line.startswith("| ") and ", " in line.split("|")[1] and "%" in line
]


def row_of(audit: Any, question: str, lens: str) -> Any:
    """A row of the table; None: the number was not measured."""
    found = audit[(audit.question == question) & (audit.lens == lens)].dropna(subset=["value"])
    return None if found.empty else found.iloc[0]


def share(row: Any) -> str:
    return f"{row.value:.0%} [{100 * row.low:.0f}, {100 * row.high:.0f}]"


@pytest.mark.parametrize("cells", ROWS, ids=lambda cells: cells[0])
def test_a_row_of_the_atlas_is_that_of_the_table(cells: list[str]) -> None:
    model, task = cells[0].split(", ")
    of_model = AUDITS[AUDITS.model == NAMES[model]]
    audit = of_model[of_model.task == SIGNS.get(task, task)]
    right = row_of(audit, "Can the model do it?", "all prompts")
    alone = row_of(audit, "Do few suffice?", "means at END")
    without = row_of(audit, "Are they needed?", "means at END")
    lenses = [row_of(audit, "Do few suffice?", lens) for lens in LENSES]
    assert cells[1:] == [
        f"{share(right)} ({right.n})",
        str(len(str(alone.heads).split())),
        f"{share(alone)} ({alone.control_high:.0%}) {alone.verdict}",
        *("" if row is None else f"{share(row)} {row.verdict}" for row in lenses),
        f"{share(without)} ({without.control_low:.0%}) {without.verdict}",
    ]


def test_every_audit_has_its_row() -> None:
    named = {(NAMES[m], SIGNS.get(t, t)) for m, t in (row[0].split(", ") for row in ROWS)}
    assert named == {*zip(AUDITS.model, AUDITS.task, strict=True)}


def test_the_outcomes_are_those_that_the_rules_decide() -> None:
    outcomes: dict[str, list[str]] = {}
    for name, _, outcome in decided(AUDITS):
        outcomes.setdefault(outcome, []).append(name)
    for outcome, names in outcomes.items():
        assert f"| {outcome} | {', '.join(names)} |" in PAGE


def test_what_the_heads_of_addition_read_is_in_the_table_of_heads() -> None:
    heads: Any = pd.read_csv(ROOT / "docs" / "studies" / "audit_heads.csv", dtype={"head": str})
    heads = heads.query("model == 'smollm2-135m' and task == 'addition'").set_index("head")
    text = " ".join(PAGE.split())
    assert f"20.8 gives {heads.loc['20.8', 'operand a']:.0%} of its attention to A" in text
    assert f"21.2 {heads.loc['21.2', 'operand b']:.0%} to B" in text
    of_qwen: Any = pd.read_csv(ROOT / "docs" / "studies" / "audit_heads.csv", dtype={"head": str})
    of_qwen = of_qwen[of_qwen.model == NAMES["Qwen"]].set_index(["task", "head"])
    on_a = of_qwen.loc[("subtraction", "16.11"), "operand a"]
    on_b = of_qwen.loc[("subtraction", "16.8"), "operand b"]
    assert f"In − 16.11 gives {on_a:.0%} of its attention to A, 16.8 {on_b:.0%} to B" in text
    assert [*of_qwen.loc["addition"].index] == ["16.11", "16.8", "16.7"]
    assert [*of_qwen.loc["subtraction"].index] == ["16.8", "16.11", "16.7", "19.11"]
    assert [*heads.reads] == ["operand a", "operand b", "operand b", "operand b"]


def test_the_page_of_results_begins_with_them() -> None:
    text = " ".join((ROOT / "docs" / "results.md").read_text("utf-8").split())
    first = text.partition("## In the shipped models")[0]
    of_model = AUDITS[AUDITS.model == "smollm2-135m"]
    for task in ("addition", "multiplication"):
        audit = of_model[of_model.task == task]
        alone = row_of(audit, "Do few suffice?", "means at every token")
        without = row_of(audit, "Are they needed?", "means at END")
        assert share(alone) in first and share(without) in first


def test_the_exchange_of_heads_is_that_of_its_table() -> None:
    table: Any = pd.read_csv(ROOT / "docs" / "studies" / "exchange.csv")
    by = table.set_index(["changed", "heads"])
    for head in ("20.8", "21.2"):
        shares = [share(by.loc[(changed, head)]) for changed in ("A", "B", "A and B")]
        assert f"| {head} | {' | '.join(shares)} |" in PAGE
    assert f"| all four | | | {share(by.loc[('A and B', 'all')])} |" in PAGE
    others = table[table.heads.str.startswith("layers")].value
    assert len(others) == 20
    assert f"others of these layers | | | {others.min():.0%} to {others.max():.0%} |" in PAGE
    limits = {("A", "20.8"): 0.5, ("B", "21.2"): 0.25}
    assert all(by.low[key] < limit < by.value[key] for key, limit in limits.items())
    assert by.low["A and B", "all"] > 0.5
    assert 0.1 < by.high["A", "21.2"] < 0.12 > by.high["B", "20.8"] > 0.1


def test_the_outcomes_of_the_carry_are_those_of_its_table() -> None:
    table: Any = pd.read_csv(ROOT / "docs" / "studies" / "carries.csv")
    of_qwen = table[table.model == NAMES["Qwen"]].set_index(["test", "space"])

    def row(test: str, space: str) -> Any:
        return next(of_qwen.loc[[(test, space)]].itertuples())

    means = table[(table.model == NAMES["SmolLM2"]) & (table.space == "mean")]
    highest = next(means.sort_values("value").tail(1).itertuples())
    first = "largest variance (no values)"
    held = next(space for test, space in of_qwen.index if test == "held" and space != "nothing")
    direction, none = row("chosen layer", "mean"), row("held", "nothing")
    shuffled = row("chosen layer", "variable shuffled")
    other = row("chosen layer", first), row("5 directions", first)
    outcomes = {
        "H1": (share(direction), at_least(direction, 0.8)),
        "H2": (share(other[0]), less(other[0], 0.5)),
        "H3": (share(other[1]), less(other[1], 0.5)),
        "H4": (
            f"{shuffled.lowest:.0%} to {shuffled.highest:.0%}",
            "holds" if shuffled.highest < direction.value else "fails",
        ),
        "H5": (
            share(row("chosen layer", "everything but")),
            less(row("chosen layer", "everything but"), 0.2),
        ),
        "H6": (share(highest), less(highest, 0.5)),
        "H7": (share(row("other wordings", "mean")), at_least(row("other wordings", "mean"), 0.75)),
        "H8": (share(row("held", held)), at_least(row("held", held), none.value / 2)),
    }
    lines = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| H")]
    said = {cells[0]: tuple(cells[2:]) for cells in lines if len(cells) == 4}
    assert said == outcomes
    assert f"heads {held.replace(' ', ' and ')} held ({share(none)} with none)" in PAGE
    smol = table[(table.model == NAMES["SmolLM2"]) & (table.test == "chosen layer")]
    smol = {one.space: one for one in smol.itertuples()}
    text, shuffles = " ".join(PAGE.split()), smol["variable shuffled"]
    assert f"{share(smol['mean'])} follow it, {share(smol[first])} the first principal" in text
    assert f"{shuffles.lowest:.0%} to {shuffles.highest:.0%} each of 30 shuffles" in text
    assert f"with MLP 20 held {share(row('readers', 'MLP 20'))} follow" in text
    assert {row("chosen layer", "mean").site} == {"stream 16 at END"} and direction.n == 106


def test_the_gains_by_tuning_are_those_of_its_table() -> None:
    table: Any = pd.read_csv(ROOT / "figures" / "gallery" / "smollm2-135m" / "table1.csv")
    table = table[(table["group"] == "word problems") & (table.chosen_for == "mathematics")]
    gains = table[table.compared_with == "untuned"].set_index("method")
    text = " ".join(PAGE.split()).replace("−", "-")
    for words in (
        "full: All weights gain",
        "precise: the four heads",
        "random: random heads",
        "lora: LoRA",
    ):
        method, named = words.split(": ")
        row = gains.loc[method]
        number = f"{100 * row.value:.1f}{{}} [{100 * row.low:.1f}, {100 * row.high:.1f}]"
        assert f"{named} {number.format(' points' * (method == 'full'))}" in text


def test_what_writes_the_carry_of_smollm2_is_in_the_table() -> None:
    table: Any = pd.read_csv(ROOT / "docs" / "studies" / "carries.csv")
    held = table[(table.model == NAMES["SmolLM2"]) & (table.test == "held")].set_index("space")
    both, none = held.loc["20.7 21.2"], held.loc["nothing"]
    words = f"Heads 20.7 and 21.2 write it: with both held {share(both)} follow, with none"
    assert f"{words} {share(none)}" in " ".join(PAGE.split())
