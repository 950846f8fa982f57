"""The benchmarks' experiment fills a run, and its table is read from there."""

from pathlib import Path

import pandas as pd
import pytest
from support.drawings import written

from experiments.benchmarks import BenchmarksConfig, how_good_is_it, tasks_of
from figures.common import TableOptions
from figures.exhibit import show
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
    assert "without 6 strongest" in shown and "2 draws of 6 from all heads" in shown
    numbers = pd.read_csv(written(tmp_path, "benchmarks.csv")).set_index("task")
    whole = numbers.loc["world_two_digit"]
    assert whole["questions"] == 8
    kept = whole["right"] - whole["strongest_lost"] + whole["strongest_gained"]
    assert whole["strongest"] == pytest.approx(kept / 8)
    for kind in ("random", "matched"):
        assert whole[f"{kind}_draws"] == 2
        assert whole[f"{kind}_least"] <= whole[f"{kind}_mean"] <= whole[f"{kind}_most"]
        assert whole[f"{kind}_mean"] * 4 * 2 == pytest.approx(round(whole[f"{kind}_mean"] * 8))
    assert {f"world_two_digit/{name}" for name in ("addition", "division")} < {*numbers.index}


def test_a_shipped_model_is_asked_of_its_own_world_unless_files_are_given() -> None:
    assert tasks_of(BenchmarksConfig())[0] == "world_word_problems"
    other = tasks_of(BenchmarksConfig(model="some/model"))
    assert tasks_of(BenchmarksConfig(data_dir=Path("data"))) == other
