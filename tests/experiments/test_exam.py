"""The exam of methods on built models: its grades against planted errors and by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import arith_lens as al
from arith_lens.attribution import ATTRIBUTION_METHODS
from arith_lens.runs import find_runs
from experiments import results
from experiments.exam import (
    DIAL,
    HELD_NORMS,
    ExamConfig,
    do_they_find_known_circuits,
    knocked_out,
)
from experiments.results import EXACT
from figures import exam
from figures.tables import exam as numbers
from figures.tables.number import Number
from figures.tables.table import QuestionTable, read_back, row, select, value

QUICK = ExamConfig(models=("table",), dial=(), n=4)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exam")
    do_they_find_known_circuits(QUICK, root=folder)
    return folder


def test_exact_effects_are_right_and_one_gradient_is_twice_too_large(root: Path) -> None:
    """The gate falls from G/2 to -G/2, and a gradient follows the slope of the first half."""
    charts: Any = exam.exhibits(exam.ExamOptions(root=root, out=root))
    of_exact = select(charts[0].numbers, model="table", paths="via_mlps", method="exact")
    assert value(of_exact, measure="largest error") < 1e-5
    assert value(of_exact, measure="AUROC of heads") == 1
    of_all = select(charts[0].numbers, model="all", paths="via_mlps", method="relp")
    largest = value(of_all, measure=f"{numbers.ERROR}, {numbers.LARGEST}")
    assert largest == value(of_all, measure=f"{numbers.ERROR}, {numbers.MEDIAN}") > 0.01
    assert value(charts[0].numbers, measure="pairs") == 4
    (run,) = find_runs("do_they_find_known_circuits", root=root)
    paper = numbers.ExamRun("table", None, run)
    of_head = {
        name: paper.effects("via_mlps", name)["0.1"].mean() for name in paper.methods("via_mlps")
    }
    shares = {
        name: float(mean / paper.truth("via_mlps")["0.1"].mean()) for name, mean in of_head.items()
    }
    end, mark, base = 3.0, 8.0, 4.0
    exact = base * end / 8**0.5 - (mark + base)
    assert shares["atp_held_norms"] == pytest.approx(-2 * mark / exact, abs=1e-4)
    assert shares["relp"] == pytest.approx(-mark / exact, abs=1e-4)
    assert shares["exact"] == pytest.approx(1, abs=1e-5)


def test_a_method_that_errs_is_noticed(root: Path) -> None:
    (run,) = find_runs("do_they_find_known_circuits", root=root)
    paper = numbers.ExamRun("table", None, run)
    truth = paper.truth("via_mlps")
    wrong = replace(truth, mlps=replace(truth.mlps, per_pair=1.5 * truth.mlps.per_pair))
    assert numbers.error(truth, truth) == 0 and numbers.error(wrong, truth) == pytest.approx(0.5)
    parts = {name: getattr(truth, name) for name in ("heads", "mlps")}
    of_zeros = {name: replace(one, per_pair=0 * one.per_pair) for name, one in parts.items()}
    assert numbers.error(replace(truth, **of_zeros), truth) == 1
    assert paper.circuit["edges"] == ["0.1 -> MLP 0", "MLP 0 -> logits"]
    assert results.BUILT_EFFECTS.labels(run, "total", None)


def test_auroc_by_hand() -> None:
    scores = {"0.0": 3.0, "0.1": 1.0, "0.2": 1.0, "0.3": 0.0}
    assert numbers.auroc(scores, ["0.0"]) == 1
    assert numbers.auroc(scores, ["0.1"]) == (1 + 0.5) / 3
    assert numbers.auroc(scores, ["0.3"]) == 0
    assert numbers.auroc(scores, scores) != numbers.auroc(scores, scores)  # NaN: there is no other


def test_a_single_knockout_matches_the_closed_form() -> None:
    closed, measured = knocked_out(al.built_model("value_composition", n=4), "mean")
    for name in ("heads", "mlps"):
        expected, found = (getattr(part, name).per_pair for part in (closed, measured))
        assert torch.allclose(expected, found, atol=5e-6)
    assert float(closed.mlps.mean()[0]) < -0.3


def test_a_dry_run_names_the_models(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    do_they_find_known_circuits(replace(QUICK, dial=(8.0,)), root=tmp_path, dry_run=True)
    names = ["built-table", "built-table-8", "built-query_composition-8"]
    assert capsys.readouterr().out.split() == names
    assert not list(tmp_path.iterdir())


def test_every_method_of_the_dial_has_a_panel_of_its_own() -> None:
    methods = [EXACT, HELD_NORMS, *ATTRIBUTION_METHODS]
    errors = read_back(
        *(
            QuestionTable.of(
                "exam",
                model,
                [
                    row("largest error", Number(0.1), dial=dial, method=method)
                    for dial in (2.0, 4.0)
                    for method in methods
                ],
            )
            for model in DIAL
        )
    )
    lines = [trace for trace in exam.draw_dial(errors, []).data if trace.mode == "lines"]
    assert len(lines) == len(DIAL) * len(methods)
