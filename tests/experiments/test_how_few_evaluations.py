"""Races against all evaluations: from the experiment's configuration to its table."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import arith_lens as al
from arith_lens.effects import HEAD_AXES, MLP_AXES
from arith_lens.runs import Run, find_runs
from experiments import approximations, results
from experiments.approximations import RACE_MEASURES, how_few_evaluations, races

SMALL = how_few_evaluations.config(operations=("addition",), n=45, repeats=3, kept=10)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("results")
    how_few_evaluations(SMALL, root=root)
    (run,) = find_runs("how_few_evaluations", root=root)
    return run


def test_each_race_is_counted(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for goal in approximations.GOALS:
        whole = results.RACES.load(run, "addition", goal, "all")
        screened = results.RACES.load(run, "addition", goal, "screened")
        assert whole.labels == {"measure": RACE_MEASURES} and whole.per_pair.shape == (3, 3)
        assert (whole.per_pair[0] <= 1).all() and (whole.per_pair[0] >= 18 / 45).all()
        assert (screened.per_pair[0] <= 30 / 108).all()  # 10 kept and 20 checked of 108
        assert ((whole.per_pair[1:] == 0) | (whole.per_pair[1:] == 1)).all()
    how_few_evaluations.report(run)
    mean = 100 * results.RACES.load(run, "addition", "top10", "all").mean()[0]
    assert f"{float(mean):.1f}%" in capsys.readouterr().out


def planted(*, tail: float = 0.0) -> al.ComponentEffects:
    """Two layers of four heads on 180 pairs; head 0.0 is a key head; `tail` adds rare effects."""
    rng = torch.Generator().manual_seed(0)
    values = 0.01 * torch.randn(10, 180, generator=rng)
    values[0] -= 0.2
    values[1, :3] -= tail
    common: Any = {"metric": "relative_logit", "paths": "via_mlps"}
    heads = al.Effects(values[:8].reshape(2, 4, 180), HEAD_AXES, **common)
    return al.ComponentEffects(heads, al.Effects(values[8:], MLP_AXES, **common), torch.ones(180))


def test_a_clear_map_needs_few_evaluations() -> None:
    share, same, hold = races(planted(), "threshold", 20).mean().tolist()
    assert same == 1.0 and hold == 1.0
    assert share == pytest.approx(16 / 180)


def test_rare_effects_are_what_a_race_misses() -> None:
    """Three of 180 pairs make head 0.1 a key head: most races never see them."""
    exact = planted(tail=12.0)
    assert float(exact.heads.mean()[0, 1]) < -0.15
    _, _, hold = races(exact, "threshold", 20).mean().tolist()
    assert hold < 0.5
    bounded = races(exact, "threshold", 20, bound=12.5).mean().tolist()
    assert bounded[1:] == [1.0, 1.0], "a bound that holds makes the intervals hold"
    assert bounded[0] > 0.9, "at the price of nearly all evaluations"


def test_intervals_of_races_hold_on_the_effects_of_a_shipped_model() -> None:
    """Real effects as the population: the full computation knows the mean over all pairs."""
    model = al.load_model("reference")
    pairs = al.sample_pairs(model, "addition", n=144)
    exact = al.path_patch(model, pairs, progress=False)
    for bound, most in ((None, 0.2), (1.0, 0.9)):
        share, same, hold = races(exact, "threshold", 20, bound=bound).mean().tolist()
        assert same == 1.0 and hold >= 0.95
        assert share < most


def test_a_screen_that_drops_the_key_head_ends_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arith_lens.path_patching.fewer_evaluations.N_CHECKS", 0)
    exact = planted()
    kept = races(exact, "threshold", 5, rough=exact, n_screened=1).mean()
    assert float(kept[1]) == 1.0
    heads = exact.heads.per_pair.clone()
    heads[0, 0] = 0.0
    blind = replace(exact, heads=replace(exact.heads, per_pair=heads))
    assert float(races(exact, "threshold", 5, rough=blind, n_screened=1).mean()[1]) == 0.0


def test_a_dry_run_says_what_it_takes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    how_few_evaluations(SMALL, root=tmp_path, dry_run=True)
    assert "12 races on their numbers" in capsys.readouterr().out
