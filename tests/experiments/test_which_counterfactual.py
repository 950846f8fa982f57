"""Three kinds of counterfactual: from the experiment's configuration to its figure."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from support.drawings import written

from arith_lens.runs import find_runs
from experiments import results, which_heads
from experiments.which_heads import which_counterfactual
from figures.agreement import counterfactuals
from figures.exhibit import show
from figures.options import Options
from figures.tables.agreement import CORRELATION, IN_COMMON
from figures.tables.table import from_csv, select, value


def test_maps_and_their_agreement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("figures.tables.agreement.N_RESAMPLES", 50)
    config = which_counterfactual.config(operations=("addition",), n=27)
    which_counterfactual(config, root=tmp_path / "results")
    (run,) = find_runs("which_counterfactual", root=tmp_path / "results")
    maps = {
        kind: results.COUNTERFACTUAL_MAP.load(run, "addition", kind).heads
        for kind in which_heads.COMPARED_KINDS
    }
    top = {kind: heads.top(10) for kind, heads in maps.items()}
    shared = len({*top["word"]} & {*top["operands"]})
    assert f"word and operands: {shared} of 10 heads in both" in capsys.readouterr().out
    show(counterfactuals, Options(run=run.path, out=tmp_path, formats=()))
    table = from_csv(written(tmp_path, "counterfactuals.csv").read_text())
    of_both = select(table, counterfactual="word", other="operands")
    means = [maps[kind].mean().flatten().numpy() for kind in ("word", "operands")]
    assert value(of_both, measure=CORRELATION) == pytest.approx(
        float(np.asarray(spearmanr(means[0], means[1]))[0]), rel=1e-5
    )
    assert value(of_both, measure=IN_COMMON) == shared / 10
    for measure in (CORRELATION, IN_COMMON):
        rows = select(table, measure=measure)
        assert (rows.low < rows.high).all() and len(rows) == 3
    at = {"counterfactual": "operands", "component": "3.1", "measure": "effect"}
    of_head = maps["operands"].mean()[3, 1].item()
    assert value(table, **at) == pytest.approx(of_head, rel=1e-5), "the maps are in the table"
    page = written(tmp_path, "counterfactuals.html").read_text("utf-8")
    marks = ("a word and other numbers (4 plus 2)", "by chance")
    assert all(f' {mark}",' in page for mark in marks), "the key has each mark"
