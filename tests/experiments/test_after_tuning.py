"""Questions about tuned models: knockout of the tuned heads, questions that were not tuned on."""

from pathlib import Path

import pytest
import torch
from support.drawings import written

import arith_lens as al
from arith_lens.answers import Answers
from arith_lens.fine_tuning import Delta, TuningResult, pieces_of
from arith_lens.fine_tuning.pieces import read_pieces
from arith_lens.fine_tuning.results import DELTA_FILE, load_base
from arith_lens.model import weights_hash
from arith_lens.reference.sets import UNFAMILIAR_SETS
from arith_lens.runs import find_runs, open_run
from experiments import results
from experiments.after_tuning import do_tuned_heads_carry_more, does_the_gain_hold
from experiments.does_tuning_help import SelectedRates, Training, TuningRow
from experiments.does_tuning_help.models import precise_models, stored_models, tuning_run
from experiments.does_tuning_help.studies import World
from figures.after_tuning import generalisation
from figures.exhibit import MakesExhibits, options_of, show
from figures.options import Options, TableOptions
from figures.tables.answers import BEFORE, CHANGE
from figures.tables.carrying import MORE
from figures.tables.table import from_csv, records, select, value
from figures.tables.tuning import TRAININGS
from figures.tasks import carrying

HEADS = (al.Head(5, 5), al.Head(5, 2), al.Head(11, 6))


def leave_as_it_was(folder: Path) -> None:
    """What a tuning leaves that changed nothing."""
    hf_model, _, base = load_base("reference", dtype=None)
    pieces = pieces_of(hf_model, HEADS)
    folder.mkdir(parents=True)
    delta = Delta(base, weights_hash(hf_model), "float32", HEADS, (), read_pieces(hf_model, pieces))
    delta.save(folder / DELTA_FILE)
    named = tuple(map(str, HEADS))
    counts = {"n_examples": 1, "n_tuned": 1, "n_parameters": 1, "lora_rank": None, "seconds": 1}
    fields = {"heads": named, "mlps": (), "settings": {}, "losses": (), "untouched": None}
    fields |= {"base": base, "base_hash": delta.base_hash, "dataset_hash": "", "method": "precise"}
    TuningResult(**fields, **counts, samples_per_second=1, output=str(folder)).save()


@pytest.fixture
def tuning(tmp_path: Path) -> Path:
    """A finished run of Table 1 whose precise trainings left the model as it was."""
    row = TuningRow("precise", 3)
    answers = Answers(torch.ones(3, dtype=torch.bool), ("",) * 3, ("8",) * 3, ("groups",) * 3)
    facts = {"method": "precise", "heads": 3, "mlps": 0}
    with open_run("does_tuning_help", {"model": "reference"}, root=tmp_path) as run:
        for rate, seed in ((0.01, 0), (0.03, 0), (0.01, 1)):
            name = Training(row, rate, seed).name
            results.TUNED_ANSWERS.save(run, answers, name, **facts, rate=rate, seed=seed)
            leave_as_it_was(run.path / "trainings" / name)
        losses = {row: {0.01: -0.5, 0.03: 0.0}}
        results.CHOSEN_RATES.save(run, SelectedRates({row: {0.01: 0.5, 0.03: 0.4}}, losses), "1")
    return tmp_path


def test_the_tuned_models_are_those_of_the_chosen_rate_a_seed_each(tuning: Path) -> None:
    found = precise_models(tuning_run("reference", tuning))
    assert [one.name for one in found] == ["seed-0", "seed-1"]
    folders = [Path(one.result.output) for one in found]
    assert [folder.name for folder in folders] == [
        f"precise-3-0-rate-0p01-seed-{seed}" for seed in (0, 1)
    ]
    assert found[0].heads == HEADS
    every = stored_models(tuning_run("reference", tuning))
    assert [one.chosen_for for one in every] == [("mathematics",)] * 2 + [("little_loss",)]
    (folders[0] / "tuning.json").unlink()
    with pytest.raises(al.runs.RunError, match="--weights"):
        precise_models(tuning_run("reference", tuning))
    assert len(stored_models(tuning_run("reference", tuning))) == 2
    with pytest.raises(al.runs.RunError, match=r"--table 1 --model gpt2"):
        tuning_run("gpt2", tuning)


def test_heads_of_a_model_that_tuning_left_alone_carry_no_more(
    tuning: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = do_tuned_heads_carry_more.config(questions=4, controls=1, control_limit=3, n=9)
    whole = World.test_questions
    monkeypatch.setattr(
        World, "test_questions", lambda world: whole(world)[:16] + whole(world)[16:316:20]
    )
    do_tuned_heads_carry_more(config, root=tuning)
    show(carrying, TableOptions(root=tuning, out=tuning))
    table = from_csv(written(tuning, "carrying.csv").read_text())
    shares, changes = (select(table, measure=name) for name in ("accuracy", CHANGE))
    by_model = {name: select(shares, tuned_model=name).value for name in ("before tuning", "tuned")}
    assert by_model["before tuning"].tolist() == by_model["tuned"].tolist()
    assert {*select(table, measure=MORE).value} == {0}
    before, tuned = (select(changes, tuned_model=name) for name in by_model)
    assert {*select(before, knocked_out="tuned heads").value} != {0}, "a knockout does something"
    for kind in ("random", "same layers"):
        of_both = [select(some, knocked_out=kind).value.tolist() for some in (before, tuned)]
        assert of_both[0] == of_both[1] != []
    assert {*select(changes, knocked_out="random").spread} == {"range of 1 draws"}
    of_heads = select(changes, knocked_out="tuned heads")
    was = dict(zip(zip(shares.group, shares.task, strict=True), shares.value, strict=True))
    for one in records(of_heads):
        share = was[one.group, one.task]
        assert -share - 1e-6 <= one.low <= one.high <= 1 - share + 1e-6, "ends are cut"
    assert value(table, measure=TRAININGS) == 2
    assert "more after tuning" in capsys.readouterr().out
    (run,) = find_runs("do_tuned_heads_carry_more", root=tuning)
    saved = {path: path.stat().st_mtime_ns for path in run.store.folder.glob("*/*.safetensors")}
    do_tuned_heads_carry_more(config, root=tuning)
    files = run.store.folder.glob("*/*.safetensors")
    assert saved == {path: path.stat().st_mtime_ns for path in files}


def test_a_model_that_tuning_left_alone_gains_nothing_anywhere(tuning: Path) -> None:
    config = does_the_gain_hold.config(questions=2)
    does_the_gain_hold(config, root=tuning)
    show(generalisation, Options(root=tuning, out=tuning, formats=()))
    table = from_csv(written(tuning, "generalisation.csv").read_text())
    before = select(table, measure=BEFORE, task="all")
    assert before.group.tolist() == [*UNFAMILIAR_SETS]
    trainings = select(table, measure=TRAININGS)
    assert dict(zip(trainings.chosen_for, trainings.value, strict=True)) == {
        "mathematics": 2, "little_loss": 1,
    }  # fmt: skip
    assert {*select(table, measure=CHANGE).value} == {0}
    assert before.value.between(0, 1).all() and before.value.nunique() > 1
    (run,) = find_runs("does_the_gain_hold", root=tuning)
    names = {*results.GENERALISATION_ANSWERS.labels(run)} - {"before"}
    name = min(names)
    answers = results.GENERALISATION_ANSWERS.load(run, name)
    better = Answers(
        torch.ones_like(answers.correct), *(answers.said, answers.expected, answers.task)
    )
    results.GENERALISATION_ANSWERS.save(
        run, better, name, **results.GENERALISATION_ANSWERS.facts(run, name)
    )
    show(generalisation, Options(root=tuning, out=tuning, formats=()))
    table = from_csv(written(tuning, "generalisation.csv").read_text())
    assert select(table, measure=CHANGE).value.max() > 0, "a gain would be seen"


@pytest.mark.parametrize("exhibits", [carrying, generalisation])
def test_a_missing_run_is_named_with_its_cure(exhibits: MakesExhibits, tmp_path: Path) -> None:
    options = options_of(exhibits)
    with pytest.raises(SystemExit, match=r"Make one: python -m experiments \w+ --model mine"):
        show(exhibits, options(model="mine", root=tmp_path, out=tmp_path))
