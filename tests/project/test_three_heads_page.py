"""The numbers and outcomes of docs/studies/three_heads.md are those of its table."""

from pathlib import Path
from typing import Any

import pandas as pd

STUDIES = Path(__file__).parents[2] / "docs" / "studies"
PAGE = (STUDIES / "three_heads.md").read_text("utf-8")
ROWS: Any = pd.read_csv(STUDIES / "three_heads.csv").set_index(["prompts", "heads"])
KINDS = [kind for kind in dict.fromkeys(ROWS.index.get_level_values(0)) if "means" not in kind]
SIGNS = {
    "+": "addition, means over four operations",
    "×": "multiplication, means over four operations",
}


def share(row: Any) -> str:
    return f"{row.value:.0%} [{100 * row.low:.0f}, {100 * row.high:.0f}]"


def outcome(*conditions: tuple[float, float, float | None, float | None]) -> str:
    """By each low, high, bound from below and bound from above: all hold, one fails, or open."""
    words = []
    for low, high, least, most in conditions:
        inside = (least is None or low >= least) and (most is None or high < most)
        outside = (least is not None and high < least) or (most is not None and low >= most)
        words.append("holds" if inside else "fails" if outside else "open")
    return "fails" if "fails" in words else "open" if "open" in words else "holds"


def test_the_tables_are_those_of_the_rows() -> None:
    assert len(KINDS) == 6
    for kind in KINDS:
        right, alone, without = (ROWS.loc[kind, heads] for heads in ("all", "alone", "without"))
        name = f"`{kind}`" if kind.startswith("a ") else kind
        line = f"| {name} | {share(right)} | {share(alone)} ({alone.control_high:.0%}) | "
        assert f"{line}{share(without)} ({without.control_low:.0%}) |" in PAGE
    for sign, prompts in SIGNS.items():
        cells = [share(ROWS.loc[prompts, heads]) for heads in ("operands", "operator", "both")]
        both = ROWS.loc[prompts, "both"]
        ends = f"{100 * both.control_low:.0f} to {both.control_high:.0%}"
        assert f"| {sign} | {' | '.join(cells)} | {ends} |" in PAGE
    alone, without = (ROWS.xs(heads, level="heads").value for heads in ("alone", "without"))
    words = " ".join(PAGE.split())
    assert f"alone answer {100 * alone.min():.0f} to {alone.max():.0%} of what" in words
    assert f"without them {100 * without.min():.0f} to {without.max():.0%} are right" in words


def test_the_outcomes_follow_from_the_rows() -> None:
    def of(prompts: str, heads: str, least: float | None, most: float | None = None) -> Any:
        row = ROWS.loc[prompts, heads]
        return row.low, row.high, least, most

    ones = KINDS[:4]
    both = [(prompts, ROWS.loc[prompts, "both"].control_high) for prompts in SIGNS.values()]
    outcomes = {
        "L1": outcome(*(of(kind, "alone", 0.7) for kind in KINDS[1:3])),
        "L2": outcome(of(KINDS[3], "alone", 0.5)),
        "L3": outcome(*(of(kind, "alone", None, 0.5) for kind in KINDS[4:])),
        "L4": outcome(*(of(kind, "without", None, 0.5) for kind in KINDS)),
        "L5": outcome(*(of(k, "alone", ROWS.loc[k, "alone"].control_high) for k in ones)),
        "M1": outcome(of(SIGNS["+"], "operands", None, 0.6)),
        "M2": outcome(*(of(one, "operator", None, 0.3) for one in SIGNS.values())),
        "M3": outcome(*(of(one, "both", 0.6) for one in SIGNS.values())),
        "M4": outcome(*(of(prompts, "both", control) for prompts, control in both)),
    }
    assert all(ROWS.loc[kind, "alone"].value >= 0.5 for kind in KINDS), "L4 is about all kinds"
    for word in ("holds", "open", "fails"):
        names = [name for name, own in outcomes.items() if own == word]
        assert f"| {word} | {', '.join(names)} |" in PAGE
