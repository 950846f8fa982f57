"""Computed problems of larger numbers: no answer stands in its prompt; maps and their agreement."""

import re
from pathlib import Path

import pytest
from support.drawings import written

from arith_lens.model import empty_model
from arith_lens.runs import find_runs
from experiments import results
from experiments.configs.shared import SampleSettings
from experiments.selection import LARGEST_OPERAND
from experiments.settings import operation_pairs
from experiments.which_heads import PROBLEM_SETS, do_copies_decide
from figures.agreement import N_SHOWN, computed
from figures.exhibit import show
from figures.options import Options
from figures.tables.agreement import IN_COMMON
from figures.tables.table import from_csv, value


def test_maps_of_both_sets_and_their_agreement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("figures.tables.agreement.N_RESAMPLES", 50)
    monkeypatch.setitem(LARGEST_OPERAND, "multiplication", 12)
    monkeypatch.delitem(LARGEST_OPERAND, "division")
    config = do_copies_decide.config(n=45)
    do_copies_decide(config, root=tmp_path / "results")
    (run,) = find_runs("do_copies_decide", root=tmp_path / "results")
    maps = {
        label: results.SET_MAP.load(run, "multiplication", label).heads for label in PROBLEM_SETS
    }
    shared = len(set.intersection(*({*heads.top(10)} for heads in maps.values())))
    assert f"{shared} of 10 heads in both" in capsys.readouterr().out
    show(computed, Options(run=run.path, out=tmp_path, formats=()))
    (path,) = tmp_path.glob("computed*.csv")
    table = from_csv(path.read_text())
    assert value(table, measure=IN_COMMON) == shared / 10
    at = {"problems": "computed", "component": "3.1", "measure": "effect"}
    of_head = maps["computed"].mean()[3, 1].item()
    assert value(table, **at) == pytest.approx(of_head, rel=1e-5), "the maps are in the table"
    page = written(tmp_path, path.with_suffix(".html").name).read_text()
    strongest = {str(head) for heads in maps.values() for head in heads.top(N_SHOWN)}
    assert strongest <= {*re.findall(r"\b\d+\.\d+\b", page)}, "each has a row"
    names = ("one-digit problems", "larger problems, whose answer is not in the prompt")
    assert all(f' {name}",' in page for name in names), "the key has each mark"
    flags = results.SET_MAP.computed(run, "multiplication", "computed")
    assert flags is not None and bool(flags.all())
    among = results.SET_MAP.computed(run, "multiplication", "one-digit")
    assert among is not None and not bool(among.all()), "one-digit products are mostly copies"


def test_computed_problems_of_one_digit_and_a_number_of_them() -> None:
    model = empty_model("reference")
    config = SampleSettings(n=20, problems="computed", operations=("subtraction",))
    ((_, pairs),) = operation_pairs(model, config, keep="all")
    assert len(pairs) == 20 and pairs.computed is not None and bool(pairs.computed.all())
    assert pairs.operands is not None
    a, b = pairs.operands.unbind(-1)
    assert not bool(((a - b == b) | (a == b)).any()) and int(pairs.operands.max()) <= 9
    ((_, again),) = operation_pairs(model, config, keep="all")
    assert again.reference_text == pairs.reference_text
