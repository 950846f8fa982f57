"""The benchmarks' experiment fills a run, and its table is read from there."""

from pathlib import Path

import pytest
from support.drawings import written

from experiments.benchmarks import BenchmarksConfig, how_good_is_it, tasks_of
from figures.exhibit import show
from figures.options import TableOptions
from figures.tables.answers import AFTER, BEFORE, CHANGE, HEADS
from figures.tables.benchmarks import GAINED, LOST
from figures.tables.table import from_csv, records, select, value
from figures.tasks import benchmarks

pytest.importorskip("lm_eval", reason="needs the extra `evaluation`: pip install '.[evaluation]'")


def test_the_table_shows_each_task_before_and_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = BenchmarksConfig(
        tasks=("world_two_digit",), limit=8, max_new_tokens=3, heads=6, n=6, controls=2,
        control_limit=4,
    )  # fmt: skip
    how_good_is_it(config, root=tmp_path)
    printed = capsys.readouterr().out
    assert "reference as it is" in printed
    show(benchmarks, TableOptions(root=tmp_path, out=tmp_path))
    shown = capsys.readouterr().out
    assert "without 6 strongest" in shown and ", 2 draws" in shown
    table = from_csv(written(tmp_path, "benchmarks.csv").read_text())
    whole = select(table, group="world_two_digit", task="all")
    (before,) = records(select(whole, measure=BEFORE))
    assert before.n == 8 and 0 <= before.low <= before.value <= before.high <= 1
    right, lost, gained = 8 * before.value, *(value(whole, measure=m) for m in (LOST, GAINED))
    assert value(whole, measure=AFTER) == pytest.approx((right - lost + gained) / 8)
    for kind in ("random", "same layers"):
        (change,) = records(select(whole, measure=CHANGE, knocked_out=kind))
        assert change.n == 2 and change.spread == "range of 2 draws"
        assert change.low <= change.value <= change.high
        assert change.value * 4 * 2 == pytest.approx(round(change.value * 8))
    (change,) = records(select(whole, measure=CHANGE, knocked_out="strongest"))
    assert change.spread == "95% over questions" and change.low >= -before.value - 1e-6
    assert value(table, measure=HEADS, knocked_out="strongest") == 6
    assert {f"world_two_digit/{name}" for name in ("addition", "division")} < {*table.task}


def test_a_shipped_model_is_asked_of_its_own_world_unless_files_are_given() -> None:
    assert tasks_of(BenchmarksConfig())[0] == "world_word_problems"
    other = tasks_of(BenchmarksConfig(model="some/model"))
    assert tasks_of(BenchmarksConfig(data_dir=Path("data"))) == other
