"""The ladder, from configuration to files, on a tiny random model."""

from pathlib import Path
from typing import Any

import pytest
from pandas import read_csv
from support.drawings import written

import arith_lens as al
from arith_lens.attribution import ATTRIBUTION_METHODS
from arith_lens.runs import find_runs
from experiments import results
from experiments.approximations import do_gradients_agree
from figures.agreement import ladder
from figures.common import Options
from figures.exhibit import show


@pytest.fixture
def checkpoint(make_hf: Any, tokenizer: Any, tmp_path: Path) -> Path:
    make_hf("llama", num_hidden_layers=2).save_pretrained(tmp_path / "tiny")
    tokenizer.save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def test_each_method_is_set_against_the_exact_effects(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = do_gradients_agree.config(
        model=str(checkpoint), operations=("addition",), n=12, keep="all", metric="logit",
        via_mlps=6, total=4, steps=2,
    )  # fmt: skip
    root = tmp_path / "results"
    do_gradients_agree(config, root=root, dry_run=True)
    assert "addition, total, exact:" in capsys.readouterr().out and not root.exists()
    do_gradients_agree(config, root=root)
    (run,) = find_runs("do_gradients_agree", root=root)
    show(ladder, Options(run=run.path, out=tmp_path, formats=()))
    for paths, count in (("via_mlps", 6), ("total", 4)):
        name = "ladder.csv" if paths == "via_mlps" else "ladder_total.csv"
        table: Any = read_csv(written(tmp_path, name))
        assert {*table["method"]} == {*ATTRIBUTION_METHODS} and {*table["pairs"]} == {count}
        exact, relp = (
            results.LADDER.load(run, "addition", paths, method) for method in ("exact", "relp")
        )
        expected = al.agreement(relp, exact)
        found = table[table["method"] == "relp"]
        assert found["value"].tolist() == pytest.approx(expected["value"].tolist())
        assert found["milliseconds"].iloc[0] == pytest.approx(
            1000 * relp.computation["processor_seconds"] / count
        )
        assert (table["exact milliseconds"] > 0).all()
