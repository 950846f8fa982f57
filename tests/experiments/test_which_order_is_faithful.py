"""Orders of heads and MLPs, and what their circuits keep: from the configuration to the table."""

import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import arith_lens as al
from arith_lens.knockout import shrink_greedily
from arith_lens.runs import Run, find_runs
from experiments import circuits, results
from experiments.circuits import GREEDY, RIVAL, SHRINKING, cmd_ratio, which_order_is_faithful

SMALL = which_order_is_faithful.config(
    operations=("addition",),
    n=27,
    total=1,
    approximated=2,
    candidates=2,
    searched=1,
    searched_on=1,
    drawn_on=6,
    controls=1,
)
CURVE_PARTS = ("addition", "all", "end", "keep_only")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("results")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # so few prompts that some means are of one
        methods = {name: circuits.ATTRIBUTION_METHODS[name] for name in ("relp", RIVAL)}
        patch.setattr(circuits, "ATTRIBUTION_METHODS", methods)
        quick = partial(shrink_greedily, share=0.5)  # 7 steps instead of 57
        patch.setattr(circuits, "shrink_greedily", quick)
        which_order_is_faithful(SMALL, root=root)
    (run,) = find_runs("which_order_is_faithful", root=root)
    return run


def test_orders_are_of_scores_on_the_other_half(run: Run) -> None:
    exact = results.FAITHFUL_SCORES.load(run, "addition", results.EXACT)
    curves = {label: results.CIRCUIT_CURVE.load(run, *CURVE_PARTS, label)
              for label in results.CIRCUIT_CURVE.labels(run, *CURVE_PARTS, None)}  # fmt: skip
    assert curves.keys() == {
        *(f"{name}-{kind}" for name in (results.EXACT, f"{results.EXACT}_total", "relp", RIVAL)
          for kind in ("signed", "by_size")),
        GREEDY,
        SHRINKING,
        "random-0",
    }  # fmt: skip
    signed, by_size = curves["exact-signed"], curves["exact-by_size"]
    assert [*signed.order] == exact.top(108)
    largest = max([*exact.heads.mean().flatten(), *exact.mlps.mean()], key=abs)
    first = by_size.order[0]
    means = exact.heads.mean() if isinstance(first, al.Head) else exact.mlps.mean()
    place = (first.layer, first.index) if isinstance(first, al.Head) else (first.layer,)
    assert float(means[place]) == float(largest)
    assert not {*(signed.problem or ())} & {*(exact.heads.problem or ())}
    assert curves[GREEDY].order[0] in signed.order[:2]


def test_ratios_are_of_the_same_draws(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    rival, ours = (
        results.CIRCUIT_CURVE.load(run, *CURVE_PARTS, f"{name}-by_size") for name in (RIVAL, "relp")
    )
    assert cmd_ratio(rival, rival) == (1.0, (1.0, 1.0))
    share, (low, high) = cmd_ratio(ours, rival)
    assert share == pytest.approx(ours.cmd / rival.cmd)
    sampled = ours.sampled("cmd") / rival.sampled("cmd")
    assert (low, high) == tuple(np.nanquantile(sampled, [0.025, 0.975]))
    with pytest.raises(ValueError, match="cpr or cmd"):
        ours.sampled("area")
    which_order_is_faithful.report(run)
    printed = capsys.readouterr().out
    assert f"CMD {ours.cmd:.2f}" in printed and f"of {RIVAL}'s {share:.2f}" in printed


def test_a_dry_run_says_what_it_takes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    which_order_is_faithful(SMALL, root=tmp_path, dry_run=True)
    assert "1 operations, each: 108 forwards of 1 pairs" in capsys.readouterr().out
    assert not [*tmp_path.iterdir()]
