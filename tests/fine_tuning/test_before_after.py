"""Effects before and after tuning: the type, and real slices."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.made_runs import make_effects

import arith_lens as al
from arith_lens.arrays import Storable
from arith_lens.components import Head
from arith_lens.effects import BeforeAfter, ComponentEffects, Effects
from arith_lens.fine_tuning import TuningResult, effects_before_after, fine_tune
from arith_lens.runs import load_run, open_run

N_PAIRS = 18


def changed(effects: ComponentEffects, head: Head, by: float) -> ComponentEffects:
    """The same effects but at one head."""
    values = effects.heads.per_pair.clone()
    values[head.layer, head.index] += by
    return replace(effects, heads=replace(effects.heads, per_pair=values))


@pytest.fixture
def both() -> BeforeAfter:
    before = make_effects("addition", 12, 8)
    return BeforeAfter(before, changed(before, Head(11, 3), -0.2))


def test_a_change_is_within_pairs_and_its_interval_is_of_the_difference(both: BeforeAfter) -> None:
    noise = torch.randn(N_PAIRS, generator=torch.Generator().manual_seed(1)).double() / 100
    after = both.after.heads.per_pair.clone()
    after[11, 3] += noise
    after[0, 0, 5] = torch.nan
    noisy = replace(both.after, heads=replace(both.after.heads, per_pair=after))
    table: Any = BeforeAfter(both.before, noisy).to_dataframe().set_index(["layer", "index"])
    templates = torch.arange(N_PAIRS) % 3
    by_hand = torch.stack([(noise - 0.2)[templates == t].mean() for t in range(3)]).mean()
    row = table.loc[(11, 3)]
    assert row["difference"] == pytest.approx(float(by_hand), abs=1e-6)
    # the noise of prompts, which both sides have, drops out: what is left is the change's own
    assert row["ci_high"] - row["ci_low"] < 0.014
    left_out = table.loc[(0, 0)]
    assert left_out["n"] == N_PAIRS - 1 and left_out["difference"] == pytest.approx(0, abs=1e-8)
    assert left_out["before"] != pytest.approx(left_out["after"], abs=1e-6)
    assert table["difference"].drop((11, 3)).abs().max() < 1e-7
    assert len(table) == 12 * 8 + 12 and table["ci_low"].notna().all()


def test_it_is_kept_in_a_run_bit_for_bit(both: BeforeAfter, tmp_path: Path) -> None:
    assert isinstance(both, Storable)
    with open_run("mine", {}, root=tmp_path) as run:
        run.save("tuned", both)
    back = load_run(run.path).load("tuned")
    for side in ("before", "after"):
        for part in ("heads", "mlps"):
            kept: Effects = getattr(getattr(back, side), part)
            was: Effects = getattr(getattr(both, side), part)
            assert torch.equal(kept.per_pair, was.per_pair) and kept.template == was.template
    with pytest.raises(ValueError, match="kind 'before_after'"):
        BeforeAfter.from_arrays(both.before.to_arrays())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "logit"}, "one metric"),
        ({"paths": "direct"}, "one meaning of paths"),
        ({"cluster": torch.arange(N_PAIRS).flip(0)}, "the same pairs"),
        ({"per_pair": torch.zeros(11, 8, N_PAIRS)}, r"the same components .* \(12, 8\).*\(11, 8\)"),
    ],
)
def test_sides_that_cannot_be_compared_are_refused(
    both: BeforeAfter, change: dict[str, Any], message: str
) -> None:
    other = replace(both.after, heads=replace(both.after.heads, **change))
    with pytest.raises(ValueError, match=message):
        BeforeAfter(both.before, other)


ROWS = [{"prompt": f"Q: What is {a} plus 2? A: ", "answer": str(a + 2)} for a in range(1, 8)]
TUNED = Head(7, 3)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> TuningResult:
    """One head of the reference model, a few steps."""
    options: dict[str, Any] = {"learning_rate": 3e-2, "batch_size": 4, "epochs": 1}
    folder = tmp_path_factory.mktemp("tunings") / "one head"
    return fine_tune(
        "reference", ROWS, heads=[TUNED], output=folder, device="cpu", checkpoint=True,
        progress=False, save_every=0, **options,
    )  # fmt: skip


def test_a_delta_and_a_checkpoint_give_the_same(tuned: TuningResult) -> None:
    pairs = al.sample_pairs(al.load_model("reference", device="cpu"), "addition", 3)
    checkpoint = Path(tuned.output) / "checkpoint"
    by_delta = effects_before_after(tuned.delta, pairs, progress=False)
    by_checkpoint = effects_before_after(checkpoint, pairs, base="reference", progress=False)
    assert torch.equal(by_checkpoint.heads.per_pair, by_delta.heads.per_pair)
    assert by_delta.heads.mean()[TUNED.layer, TUNED.index] != 0
    with pytest.raises(ValueError, match="a checkpoint does not say it; give base="):
        effects_before_after(checkpoint, pairs)
