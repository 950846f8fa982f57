"""Carries from the command's configuration to a table and a picture."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import arith_lens as al
from arith_lens.effects import Effects
from arith_lens.interchanges import InterchangePairs
from arith_lens.runs import find_runs
from experiments import carry as experiment
from experiments.carry import CONTEXTS, CarryConfig, main
from experiments.results import CARRY
from figures.carry import exhibits
from figures.exhibit import show
from figures.options import Options
from figures.tables.carry import ALL, WITH, WITHOUT, _right_sums
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
    (file,) = tmp_path.glob("*.csv")
    table: Any = from_csv(file.read_text(encoding="utf-8"))
    stored = CARRY.load(run, "borrow", "layers")
    own: Any = select(table, kind="interchange", variable="borrow")
    assert len(own) == stored.iia.numel() and {*own["n"]} == {8, 30}
    for one in own.itertuples():
        at = int(one.layer), stored.spaces.index(one.space)
        if one.space in stored.draws:
            shares = stored.draws[one.space][at[0]].double().mean(1)
            middle, low, high = np.median(shares), float(shares.min()), float(shares.max())
            assert " range of 30 " in one.spread
            assert (one.value, one.low, one.high) == pytest.approx((middle, low, high), abs=1e-5)
            continue
        assert one.value == pytest.approx(float(stored.iia[at]), abs=1e-5)
        assert one.low < one.high and 0 <= one.low <= one.value <= one.high <= 1, "of 8 problems"
    last: Any = select(own, layer=11)
    by_space = dict(zip(last["space"], last["value"], strict=True))
    assert by_space["whole"] == 1 and by_space["random in the span"] < 0.5
    assert float(select(table, kind="base rate", what="base")["value"].iloc[0]) == 0


def test_a_model_without_right_sums_has_its_shares_and_no_interchange(
    make_hf: Any, tokenizer: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_hf("llama").save_pretrained(tmp_path / "untrained")
    tokenizer.save_pretrained(tmp_path / "untrained")
    config = CarryConfig(
        model=str(tmp_path / "untrained"), subjects=("ones_carry",), n=8, problems=60
    )
    main(config, root=tmp_path / "results")
    assert "ones_carry is left out: " in capsys.readouterr().out
    (run,) = find_runs("carry", root=tmp_path / "results")
    show(exhibits, Options(run=run.path, out=tmp_path / "out", formats=()))
    (file,) = (tmp_path / "out").glob("*.csv")
    table: Any = from_csv(file.read_text(encoding="utf-8"))
    assert {*table.kind} == {"accuracy", "error"}
    shares: Any = select(table, kind="accuracy")
    assert shares.what.tolist() == [ALL, WITH, WITHOUT] and shares.value.max() < 0.5
    assert shares.n.tolist()[0] == 60 == sum(shares.n.tolist()[1:])


def test_each_sum_of_the_tens_is_tested_on_pairs_that_were_not_fitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, kept = al.load_model("reference"), dict[str, InterchangePairs]()
    monkeypatch.setattr(
        experiment,
        "_save",
        lambda _run, _model, pairs, _site, parts, **_: kept.update({parts[1]: pairs}),
    )
    settings: Any = {"run": None, "model": model, "site": al.Site(9)}
    experiment._save_contexts(config=CarryConfig(context_pairs=200), **settings)
    assert [*kept] == [*CONTEXTS.values()]
    for total, test in CONTEXTS.items():
        pairs = kept[test]
        assert pairs.pairs.operands is not None
        tens = (pairs.pairs.operands // 10).sum(1)
        assert {*tens[pairs.test].tolist()} == {total}
        assert {*tens[pairs.fit].tolist()} == {*CONTEXTS} - {total}


def wrong_sums() -> Effects:
    """Four sums: 3 wrong, 9 wrong, 10 wrong, 3 right."""
    nan = float("nan")
    values = torch.tensor([[1.0, nan, nan, 0.0], [nan, 1.0, nan, nan], [nan, nan, 1.0, nan]])
    return Effects(
        values,
        ("ones_sum",),
        metric="wrong",
        labels={"ones_sum": ("3", "9", "10")},
        problem=("a", "b", "c", "d"),
    )


def test_right_sums_with_and_without_a_carry_are_those_of_their_ones() -> None:
    shares = {
        what: (right.per_pair[0].tolist(), list(right.problem or ()))
        for what, right in _right_sums(wrong_sums()).items()
    }
    assert shares == {
        ALL: ([0, 0, 0, 1], ["a", "b", "c", "d"]),
        WITH: ([0], ["c"]),
        WITHOUT: ([0, 0, 1], ["a", "b", "d"]),
    }
