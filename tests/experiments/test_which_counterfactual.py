"""Three kinds of counterfactual: from the experiment's configuration to its figure."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pandas import read_csv
from scipy.stats import spearmanr
from support.drawings import written

from arith_lens.runs import find_runs
from experiments import results, which_heads
from experiments.which_heads import which_counterfactual
from figures.agreement import counterfactuals
from figures.common import Options
from figures.exhibit import show


def test_maps_and_their_agreement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("figures.agreement.N_RESAMPLES", 50)
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
    table: Any = read_csv(written(tmp_path, "counterfactuals.csv"))
    row = table[(table["a"] == "word") & (table["b"] == "operands")].iloc[0]
    means = [maps[kind].mean().flatten().numpy() for kind in ("word", "operands")]
    assert row["rank_correlation"] == pytest.approx(
        float(np.asarray(spearmanr(means[0], means[1]))[0])
    )
    assert row["top_10_in_common"] == shared / 10
    for name in ("rank_correlation", "top_10_in_common"):
        assert (table[f"{name}_low"] < table[f"{name}_high"]).all()
    assert len(table) == 3
    assert "other operands" in written(tmp_path, "counterfactuals.html").read_text("utf-8")
