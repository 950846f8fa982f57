"""Keeping the strongest heads alone: from the experiment's configuration to its figure."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from pandas import DataFrame
from support.drawings import written

import arith_lens as al
from arith_lens.knockout import halves
from arith_lens.runs import Run, find_runs
from experiments import circuits, results
from experiments.circuits import do_they_suffice
from figures.exhibit import show
from figures.knockout import sufficiency
from figures.options import Options
from figures.tables.table import from_csv, select, value

SMALL = do_they_suffice.config(
    operations=("addition",), n=18, controls=2, candidates=3, searched=2, search_every=4, splits=2
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("results")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # so few prompts that some means are of one
        patch.setattr(circuits, "FINE", (0.03, 0.05, 0.1, 0.2, 0.5))
        do_they_suffice(SMALL, root=root)
    (run,) = find_runs("do_they_suffice", root=root)
    return run


def curve(run: Run, *keys: str) -> al.CircuitCurve:
    return results.CIRCUIT_CURVE.load(run, "addition", *keys)


def test_orders_are_chosen_on_one_half_and_drawn_on_the_other(run: Run) -> None:
    drawn = curve(run, "heads", "all", "keep_only", "effect")
    searched = results.SEARCH_MAP.load(run, "addition")
    assert not {*(drawn.problem or ())} & {*(searched.heads.problem or ())}
    model = al.load_model("reference")
    first, second = halves(al.sample_pairs(model, "addition", n=18))
    assert drawn.problem == second.problem and searched.heads.problem == first.problem
    assert [*drawn.order] == searched.heads.top(96)
    other = curve(run, "heads", "all", "keep_only", "growing")
    assert {*other.order[:2]} <= {*drawn.order[:3]} and {*other.order} == {*drawn.order}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = al.keep_only(model, second, drawn.order[:5], progress=False)
    assert torch_equal(drawn, 5, alone)


def torch_equal(drawn: al.CircuitCurve, size: int, outcomes: al.Outcomes) -> bool:
    """Whether a curve has these outcomes at a size."""
    row = drawn.sizes.index(size)
    return bool((drawn.correct[row] == outcomes.correct).all())


def test_the_figure_and_the_table_show_the_run(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show(sufficiency, Options(run=run.path, out=tmp_path, formats=()))
    table = from_csv(written(tmp_path, "sufficiency.csv").read_text())
    curves = DataFrame(table[table.k.notna()])
    assert {*curves["order"]} == {"effect", "weights", "growing", "iterative", "random"}
    assert {*curves["components"]} == {"heads", "MLPs"}
    assert {*curves["positions"]} == {"all", "END"}
    assert (
        len(curves.groupby(["components", "positions", "kind", "order"])) == 5 + 5 + 2 + 2 + 2 + 2
    )
    everywhere = select(curves, positions="all")
    random = select(everywhere, order="random", kind="keep_only", measure="accuracy")
    accuracies = [
        curve(run, "heads", "all", "keep_only", f"random-{seed}").accuracy() for seed in (0, 1)
    ]
    assert np.allclose(random.value, sum(accuracies) / 2, atol=1e-4)
    assert np.allclose(random.low, torch.minimum(*accuracies), atol=1e-4)
    assert {*random.spread} == {"range of 2 orders"}
    assert np.allclose(select(curves, kind="keep_only", k=0, measure="faithfulness").value, 0)
    drawn = curve(run, "heads", "all", "keep_only", "effect")
    own = {"components": "heads", "positions": "all", "kind": "keep_only", "order": "effect"}
    right = select(table, measure="accuracy", **own)
    assert np.allclose(right.value, drawn.accuracy(), atol=1e-4)
    assert value(table, measure="CMD", **own) == pytest.approx(drawn.cmd, abs=1e-4)
    assert value(table, measure="k from which on 90% are right", **own) == circuits.enough(drawn)
    page = written(tmp_path, "sufficiency.html").read_text("utf-8")
    assert "strongest" in page
    do_they_suffice.report(run)
    assert f"effect     positions all: CPR {drawn.cpr:.2f}" in capsys.readouterr().out


def test_further_splits_are_told_from_the_first(run: Run, tmp_path: Path) -> None:
    """Each prompt counts in the splits whose order was chosen without its problem."""
    splits = [curve(run, "heads", "end", "keep_only", f"split-{i}") for i in (1, 2)]
    assert splits[0].problem != splits[1].problem and splits[0].sizes == (0, 5, 14, 96)
    show(sufficiency, Options(run=run.path, out=tmp_path, formats=()))
    table = from_csv(written(tmp_path, "sufficiency.csv").read_text())
    mean = select(table, measure="accuracy, mean of the splits", k=5)
    both = [float(one.accuracy()[1]) for one in splits]
    assert mean.value.tolist() == [pytest.approx(sum(both) / 2, abs=1e-4)]
    assert mean.low.tolist() == [pytest.approx(min(both), abs=1e-4)]
    right: dict[tuple[str, str], list[float]] = {}
    for one in splits:
        for key in zip(one.problem or (), one.template or (), one.correct[1], strict=True):
            right.setdefault(key[:2], []).append(float(key[2]))
    by_wording: dict[str, list[float]] = {}
    for (_, template), values in right.items():
        by_wording.setdefault(template, []).append(float(sum(values) > len(values) / 2))
    expected = np.mean([np.mean(values) for values in by_wording.values()])
    assert value(table, measure="prompts that are right in most splits", k=5) == pytest.approx(
        expected, abs=1e-4
    )


def test_enough_is_the_first_size_from_which_on_it_stays_right(run: Run) -> None:
    drawn = curve(run, "heads", "all", "keep_only", "effect")
    accuracy = drawn.accuracy()
    size = circuits.enough(drawn)
    row = drawn.sizes.index(size)
    assert (accuracy[row:] >= 0.9).all() and (row == 0 or accuracy[row - 1] < 0.9)
