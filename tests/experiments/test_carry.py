"""Carries from the command's configuration to a table and a picture."""

from pathlib import Path
from typing import Any

import pytest
import torch

from arith_lens.effects import Effects
from arith_lens.runs import find_runs
from experiments.carry import CarryConfig, main
from experiments.results import CARRY
from figures.carry import exhibits
from figures.common import Options
from figures.exhibit import show
from figures.tables.carry import _at_step
from figures.tables.table import from_csv, select


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A small run of a trained model: a random one does not borrow."""
    root = tmp_path_factory.mktemp("results")
    main(CarryConfig(n=16, subjects=("borrow",)), root=root)
    (run,) = find_runs("carry", root=root)
    return run


def test_the_table_has_the_numbers_of_the_stored_interchange(run: Any, tmp_path: Path) -> None:
    show(exhibits, Options(run=run.path, out=tmp_path, formats=()))
    (file, _) = sorted(tmp_path.glob("*.csv"))
    table: Any = from_csv(file.read_text(encoding="utf-8"))
    stored = CARRY.load(run, "borrow", "layers")
    own: Any = select(table, kind="interchange", variable="borrow")
    assert len(own) == stored.iia.numel() and own["n"].nunique() == 1
    for one in own.itertuples():
        at = int(one.layer), stored.spaces.index(one.space)
        assert one.value == pytest.approx(float(stored.iia[at]), abs=1e-5)
    last: Any = select(own, layer=11)
    by_space = dict(zip(last["space"], last["value"], strict=True))
    assert by_space["whole"] == 1 and by_space["random in the span"] < 0.5
    assert float(select(table, kind="base rate", what="base")["value"].iloc[0]) == 0


def test_the_share_of_errors_at_the_step_counts_wrong_sums_alone() -> None:
    nan = float("nan")
    values = torch.tensor([[1.0, nan, nan, 0.0], [nan, 1.0, nan, nan], [nan, nan, 1.0, nan]])
    wrong = Effects(
        values,
        ("ones_sum",),
        metric="wrong",
        labels={"ones_sum": ("3", "9", "10")},
        problem=("a", "b", "c", "d"),
    )
    number = _at_step(wrong)
    assert number.value == pytest.approx(2 / 3) and number.n == 3
    assert number.low is not None and number.low < 0.3
