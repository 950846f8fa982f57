"""The ladder, from configuration to files, on a tiny random model."""

from pathlib import Path
from typing import Any

import pytest
from support.drawings import written

import arith_lens as al
from arith_lens.attribution import ATTRIBUTION_METHODS
from arith_lens.runs import find_runs
from experiments import results
from experiments.approximations import do_gradients_agree
from figures.exhibit import show
from figures.ladder import exhibits as ladder
from figures.options import Options
from figures.tables.approximations import COST
from figures.tables.table import from_csv, keys_of, records, select, value


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
        table = from_csv(written(tmp_path, name).read_text())
        of_addition = select(table, operation="addition")
        assert {*keys_of(table, "method")} == {"exact", *ATTRIBUTION_METHODS}
        assert value(of_addition, measure="pairs") == count
        exact, relp = (
            results.LADDER.load(run, "addition", paths, method) for method in ("exact", "relp")
        )
        expected = al.agreement(relp, exact)
        measures = select(of_addition, method="relp", components=["heads", "MLPs"])
        assert measures.measure.tolist() == expected["measure"].tolist()
        assert measures.value.tolist() == pytest.approx(expected["value"].tolist(), rel=1e-5)
        for effects, method in ((relp, "relp"), (exact, "exact")):
            assert value(of_addition, measure=COST, method=method) == pytest.approx(
                1000 * effects.computation["processor_seconds"] / count, rel=1e-5
            )
        costs = {one.method: one.value for one in records(select(of_addition, measure=COST))}
        dearer = sum(cost > costs["exact"] for cost in costs.values())
        assert value(table, measure="methods dearer than exact in every operation") == dearer
