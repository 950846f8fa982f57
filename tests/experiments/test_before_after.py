"""Effects before and after tuning: the type, the experiment on real slices, and the figure."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pandas import DataFrame
from support.drawings import written
from support.made_runs import MadePairs, make_effects

import arith_lens as al
from arith_lens.arrays import Storable
from arith_lens.components import Head
from arith_lens.effects import BeforeAfter, ComponentEffects, Effects
from arith_lens.fine_tuning import TuningResult, effects_before_after, fine_tune
from arith_lens.runs import find_runs, load_run, open_run
from experiments import after_tuning, results
from experiments.after_tuning import what_tuning_changes
from figures.after_tuning import before_after, changes
from figures.exhibit import show
from figures.options import Options
from figures.tables.effects import MapStatistics, Statistics, map_rows
from figures.tables.table import QuestionTable, from_csv, keys_of, read_back, select, value

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


def test_the_experiment_and_the_figure_show_what_changed(
    tuned: TuningResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(tuned.output)
    paths = (folder, folder / "checkpoint")
    config = what_tuning_changes.config(tuned=paths, n=4)
    what_tuning_changes(config, root=tmp_path, dry_run=True)
    assert "as it was, and one-head, checkpoint: each" in capsys.readouterr().out
    what_tuning_changes(config, root=tmp_path)
    (run,) = find_runs("what_tuning_changes", root=tmp_path)
    assert results.UNTUNED_MAP.is_in(run)
    names = results.TUNED_MAP.labels(run)
    assert names == ("one-head", "checkpoint")
    assert [results.TUNED_MAP.facts(run, name)["components"] for name in names] == [["7.3"], []]
    saved = {path: path.stat().st_mtime_ns for path in run.store.folder.glob("*/*.safetensors")}
    what_tuning_changes(config, root=tmp_path)
    files = run.store.folder.glob("*/*.safetensors")
    assert saved == {path: path.stat().st_mtime_ns for path in files}
    show(before_after, Options(root=tmp_path, out=tmp_path, formats=()))
    table = from_csv(written(tmp_path, "before_after.csv").read_text())
    assert keys_of(table, "tuned") == ["one-head", "checkpoint"]
    tuned_head = select(table, tuned="one-head", component=str(TUNED), measure="effect")
    one = results.TUNED_MAP.load(run, "one-head")
    means = [float(part.heads.mean()[7, 3]) for part in (one.before, one.after, one)]
    assert tuned_head.side.tolist() == ["before", "after", "change"]
    assert tuned_head.value.tolist() == pytest.approx(means, abs=1e-6)
    for side, effects in (("before", one.before), ("after", one.after)):
        logit = value(table, tuned="one-head", side=side, measure="mean logit of the answer")
        assert logit == pytest.approx(float(effects.logit.mean()), rel=1e-5)
    share = value(table, tuned="one-head", measure="share of all change in the tuned heads")
    sizes = one.heads.mean().abs()
    assert share == pytest.approx(float(sizes[7, 3] / sizes.sum()), rel=1e-5)
    page = written(tmp_path, "before_after.html").read_text()
    assert "one-head: 7.3 tuned" in page


def test_lora_tunes_other_than_the_heads_that_it_is_set_against(
    tuned: TuningResult, tmp_path: Path
) -> None:
    replace(tuned, method="lora", untouched=None, output=str(tmp_path)).save()
    assert after_tuning.TunedSource("lora", tmp_path).components() == []
    assert after_tuning.TunedSource("precise", Path(tuned.output)).components() == ["7.3"]


def change_rows(both: BeforeAfter) -> DataFrame:
    """The changes of effects as in a CSV file."""
    heads, mlps = (Statistics.of(part, None) for part in (both.heads, both.mlps))
    rows = map_rows(MapStatistics(heads, mlps), "relative_logit")
    return read_back(QuestionTable.of("made", "made", rows))


def test_clear_changes_alone_are_outlined_and_the_largest_are_named(both: BeforeAfter) -> None:
    more = change_rows(BeforeAfter(both.before, changed(both.after, Head(2, 1), 0.03)))
    marks = changes(more, 0.01)
    assert [(mark.text, mark.strong) for mark in marks] == [("11.3", True), ("2.1", False)]
    assert len(changes(more, 0.1)) == 1
    unclear = both.after.heads.per_pair.clone()
    unclear[2, 1, ::2] += 0.5
    unclear[2, 1, 1::2] -= 0.47
    other = replace(both.after, heads=replace(both.after.heads, per_pair=unclear))
    outlined = changes(change_rows(BeforeAfter(both.before, other)), 0.01)
    assert [mark.text for mark in outlined] == ["11.3"]


def test_a_run_without_tuned_models_and_a_missing_one_name_the_cure(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"Make one: python -m experiments what_tuning_changes"):
        show(before_after, Options(root=tmp_path, out=tmp_path))
    with open_run("what_tuning_changes", {"model": "reference"}, root=tmp_path) as run:
        results.UNTUNED_MAP.save(run, make_effects("addition", 12, 8), pairs=MadePairs())
    with pytest.raises(SystemExit, match=r"no tuned model. Make one: python -m experiments"):
        show(before_after, Options(root=tmp_path, out=tmp_path))
    with pytest.raises(SystemExit, match=r"--table 1 --model reference"):
        what_tuning_changes(what_tuning_changes.config(), root=tmp_path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("nowhere",), "nothing at .*nowhere"),
        (("one/delta.safetensors", "two/one"), "tell them apart"),
        (("before",), "tell them apart"),
        (("notes.txt",), "safetensors cannot read"),
    ],
)
def test_tuned_models_that_cannot_be_told_or_read_are_refused(
    tmp_path: Path, names: tuple[str, ...], message: str
) -> None:
    for name in ("one/delta.safetensors", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("notes")
    for name in ("two/one", "before"):
        (tmp_path / name).mkdir(parents=True)
    config = what_tuning_changes.config(tuned=tuple(tmp_path / name for name in names))
    with pytest.raises(SystemExit, match=message):
        what_tuning_changes(config, root=tmp_path)
