"""The experiment on paths, and the figures that read runs of heads: from configuration to files."""

from pathlib import Path

import numpy as np
import pytest
from support.drawings import written

from arith_lens.runs import find_runs
from experiments import results
from experiments.which_heads import which_paths
from figures.exhibit import show
from figures.options import TableOptions
from figures.paths import paths
from figures.tables.paths import PARTS
from figures.tables.table import from_csv, select


def test_the_parts_of_the_table_add_up_to_the_total(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = which_paths.config(
        model=str(checkpoint), operations=("addition",), n=12, keep="all", metric="logit", top=3
    )
    which_paths(config, root=tmp_path / "results")
    (run,) = find_runs("which_paths", root=tmp_path / "results")
    total, via_mlps = (
        results.PATH_EFFECTS.load(run, "addition", name).heads for name in ("total", "via_mlps")
    )
    assert int((~total.mean().isnan()).sum()) == 3 and via_mlps.mean().isfinite().all()
    assert {str(head) for head in total.top(3)} == {str(head) for head in via_mlps.top(3)}
    show(paths, TableOptions(run=run.path, out=tmp_path))
    assert "heads add" in capsys.readouterr().out
    table = from_csv(written(tmp_path, "paths.csv").read_text())
    effects = select(table, measure="effect")
    of_part = {name: select(effects, part=name).value.to_numpy() for name in PARTS}
    parts = of_part["direct"] + of_part["MLPs add"] + of_part["heads add"]
    assert np.allclose(parts, of_part["total"], atol=1e-6)
    assert np.abs(of_part["MLPs add"]).max() > 1e-3
    direct = select(effects, part="direct")
    assert direct.value.between(direct.low, direct.high).all()
    shares = select(table, measure="share of the total effect")
    summed = sum(
        select(shares, part=name).value.to_numpy() for name in ("direct", "MLPs add", "heads add")
    )
    assert np.allclose(summed, 1, atol=1e-4)


def test_a_dry_run_prints_the_cost_of_each_meaning(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = which_paths.config(model=str(checkpoint), operations=("addition",), n=12, keep="all")
    which_paths(config, root=tmp_path, dry_run=True)
    lines = capsys.readouterr().out.splitlines()
    costs = [line.split(":")[0].split(", ") for line in lines]
    assert [cost[1] for cost in costs if len(cost) > 1] == ["via_mlps", "direct", "total"]
    assert not list(tmp_path.iterdir())


def test_a_run_of_another_kind_is_refused_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"experiments which_paths"):
        show(paths, TableOptions(root=tmp_path))
