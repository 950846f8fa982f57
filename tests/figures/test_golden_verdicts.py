"""Every verdict, number and p-value on made runs is the one of a golden file.

To renew the files after a change that is meant: `RENEW_GOLDEN=1 python -m pytest
tests/figures/test_golden_verdicts.py -k verdicts_on`. Read the difference before it is committed.
"""

import os
from pathlib import Path

import pytest
from pandas import DataFrame
from support import made_claims as made
from support.table_schema import faults

from arith_lens.operations import FOUR
from figures.claims import CLAIMS, check_claims, verdict_table
from figures.tables.table import NUMERIC, from_csv, read_back, to_csv

GOLDEN = Path(__file__).parents[1] / "golden"
SLACK = {"p_within": 0.02, "p_outside": 0.02}
"""How far numbers may be apart: a resample that lies on a bound can fall on either side."""
OF_STRONGEST = "a value outside its ends"
"""Shares of the strongest heads are smaller in a resample: its percentiles can leave them out."""
TWO = {(4, 6): -0.15, (5, 1): -0.08}
PLUS = {**TWO, (1, 3): -0.051}
TIMES = {**PLUS, (5, 2): -0.1, (6, 0): -0.1}
RISING = [0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.1, 0.3, 0.5, 0.6, 0.7, 0.7]
UP_AND_DOWN = [0.01, 0.0, 0.0, 0.02, 0.0, 0.1, 0.2, 0.3, 0.2, 0.1, 0.05, 0.0]
FALLING = [0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.2, 0.1, 0.0, 0.0, 0.1]
WON = [*["other"] * 3, "A", "B", "C±1", "A", *["C"] * 5]


def made_study(root: Path) -> None:
    """A run of each experiment that claims read."""
    heads = {name: TIMES if name in FOUR[2:] else PLUS for name in FOUR}
    mlps = {0: 0.004, 2: 0.012, **{layer: -0.08 for layer in range(4, 12)}}
    made.which_heads(root, heads, mlps, noise=0.01)
    made.which_heads(root, PLUS, mlps, model="second", noise=0.03)
    made.which_paths(root, -0.04, via_mlps=-0.1)
    made.powers(root, {**PLUS, (9, 1): -0.2}, without=0.3)
    strongest = {(4 + i // 8, i % 8): -0.1 for i in range(4, 14)}
    lost = {"word_problems-on-word_problems": 0.3, "overlap-on-generated": 0.5}
    lost["word_problems_only-on-word_problems"] = 0.8
    made.word_problem_heads(root, strongest, lost)
    made.are_they_needed(root, TWO, without=0.3, without_random=8 / 9, without_matched=0.7)
    made.what_comes_instead(root, 0.98)
    made.what_else_breaks(root, made.answers(0.3, 0.94))
    roles = {
        "4.6": {"operand a": 0.4, "operand b": 0.3, "BOS": 0.2, "other": 0.1},
        "5.1": {"operator": 0.5, "BOS": 0.3, "END": 0.2},
    }
    made.where_do_they_look(root, roles)
    curves = {"operands": UP_AND_DOWN, "C": RISING, "others": FALLING}
    made.what_do_mlps_add(root, curves, WON)
    made.what_do_mlps_add(root, curves, WON, model="second")
    after = {"full": (0.6, 0.94), "precise": (0.59, 0.95), "mlps": (0.7, 0.9), "random": (0.5, 0.9)}
    after["more"] = (0.58, 0.95)
    speeds = {"full": 15, "precise": 50, "mlps": 19, "random": 50, "more": 45}
    made.does_tuning_help(root, after, speeds)


def check(rows: DataFrame, name: str) -> None:
    """Compare with a golden file, or write it."""
    file, text = GOLDEN / f"{name}.csv", to_csv(rows)
    if os.environ.get("RENEW_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert [one for one in faults(from_csv(text)) if not one.startswith(OF_STRONGEST)] == []
    expected = from_csv(file.read_text(encoding="utf-8"))
    rows = from_csv(text)
    assert [*rows.columns] == [*expected.columns] and len(rows) == len(expected)
    for column in rows.columns:
        one, other = rows[column].tolist(), expected[column].tolist()
        if column in NUMERIC:
            slack = SLACK.get(column, 2e-5)
            assert one == pytest.approx(other, rel=1e-4, abs=slack, nan_ok=True), column
        else:
            assert one == other, column


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the runs."""
    root = tmp_path_factory.mktemp("study")
    made_study(root)
    return root


def test_verdicts_on_claims(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("figures.tables.resampled.N_RESAMPLES", 100)
    verdicts = check_claims("made", roots=(study,))
    measured = [verdict.claim.key for verdict in verdicts if verdict.findings]
    assert measured == [claim.key for claim in CLAIMS]
    assert {verdict.judgement for verdict in verdicts} == {
        "holds here",
        "does not hold here",
        "not decided",
    }
    rows = read_back(verdict_table("made", verdicts))
    check(rows.drop(columns=["runs", "why", "command"]), "claims")


def test_another_number_or_verdict_would_be_seen() -> None:
    golden = from_csv((GOLDEN / "claims.csv").read_text(encoding="utf-8"))
    check(golden, "claims")
    for column, other in (("value", 0.123), ("p_within", 0.5), ("holds", "not decided")):
        changed = golden.copy()
        changed.loc[0, column] = other
        with pytest.raises(AssertionError):
            check(changed, "claims")
