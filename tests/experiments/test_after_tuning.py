"""Questions about tuned models: knockout of the tuned heads, accuracy over many answers."""

from pathlib import Path

import pandas
import pytest
import torch
from support.drawings import written

import arith_lens as al
from arith_lens.answers import Answers
from arith_lens.fine_tuning import Delta, TuningResult, pieces_of
from arith_lens.fine_tuning.pieces import read_pieces
from arith_lens.fine_tuning.results import DELTA, load_base
from arith_lens.model import weights_hash
from arith_lens.runs import find_runs, open_run
from experiments import do_tuned_heads_carry_more, does_it_drift, results
from experiments.does_tuning_help import Chosen, Tuned
from experiments.does_tuning_help.training import TunedModel, World, precise_models, tuning_run
from figures import carrying, drift
from figures.common import Options, TableOptions

HEADS = (al.Head(5, 5), al.Head(5, 2), al.Head(11, 6))


def leave_as_it_was(folder: Path) -> None:
    """What a tuning leaves that changed nothing."""
    hf_model, _, base = load_base("reference", dtype=None)
    pieces = pieces_of(hf_model, HEADS)
    folder.mkdir(parents=True)
    delta = Delta(base, weights_hash(hf_model), "float32", HEADS, (), read_pieces(hf_model, pieces))
    delta.save(folder / DELTA)
    named = tuple(map(str, HEADS))
    counts = {"n_examples": 1, "n_tuned": 1, "n_parameters": 1, "lora_rank": None, "seconds": 1}
    told = {"heads": named, "mlps": (), "settings": {}, "losses": (), "untouched": None}
    told |= {"base": base, "base_hash": delta.base_hash, "dataset_hash": "", "method": "precise"}
    TuningResult(**told, **counts, samples_per_second=1, output=str(folder)).save()


@pytest.fixture
def tuning(tmp_path: Path) -> Path:
    """A finished run of Table 1 whose precise trainings left the model as it was."""
    row = Tuned("precise", 3)
    answers = Answers(torch.ones(3, dtype=torch.bool), ("",) * 3, ("8",) * 3, ("groups",) * 3)
    told = {"method": "precise", "heads": 3, "mlps": 0}
    with open_run("does_tuning_help", {"model": "reference"}, root=tmp_path) as run:
        for rate, seed in ((0.01, 0), (0.03, 0), (0.01, 1)):
            name = f"training-{seed}-{int(100 * rate)}"
            results.TRAINING.save(run, answers, name, **told, rate=rate, seed=seed)
            leave_as_it_was(run.path / "trainings" / name)
        results.TABLE.save(run, Chosen({row: {0.01: 0.5, 0.03: 0.4}}), "1")
    return tmp_path


def test_the_tuned_models_are_those_of_the_chosen_rate_a_seed_each(tuning: Path) -> None:
    found = precise_models(tuning_run("reference", tuning))
    assert [one.name for one in found] == ["seed-0", "seed-1"]
    folders = [Path(one.result.output) for one in found]
    assert [folder.name for folder in folders] == ["training-0-1", "training-1-1"]
    assert found[0].heads == HEADS
    (folders[0] / "tuning.json").unlink()
    with pytest.raises(al.runs.RunError, match="--again"):
        precise_models(tuning_run("reference", tuning))
    with pytest.raises(al.runs.RunError, match=r"--table 1 --model gpt2"):
        tuning_run("gpt2", tuning)


def test_heads_of_a_model_that_tuning_left_alone_carry_no_more(
    tuning: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = do_tuned_heads_carry_more.Config(questions=4, controls=0, n=9)
    whole = World.test_questions
    monkeypatch.setattr(
        World, "test_questions", lambda world: whole(world)[:16] + whole(world)[16:316:20]
    )
    do_tuned_heads_carry_more.main(config, root=tuning)
    carrying.main(TableOptions(root=tuning, out=tuning, n=config.n))
    table = pandas.read_csv(written(tuning, "carrying.csv")).set_index("task")
    assert table["before"].tolist() == table["tuned"].tolist()
    assert {*table["more after tuning"].tolist()} == {0}
    assert {*table["before: without"].tolist()} != {0}, "the knockout must do something"
    assert "over questions and 2 seeds of tuning" in capsys.readouterr().out
    (run,) = find_runs("do_tuned_heads_carry_more", root=tuning)
    saved = {path: path.stat().st_mtime_ns for path in run.store.folder.glob("*/*.safetensors")}
    do_tuned_heads_carry_more.main(config, root=tuning)
    files = run.store.folder.glob("*/*.safetensors")
    assert saved == {path: path.stat().st_mtime_ns for path in files}


def test_answers_do_not_depend_on_what_was_answered_before(
    tuning: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    does_it_drift.main(does_it_drift.Config(questions=30, chunk=10), root=tuning)
    assert "the first 10 again at the end: 10 answers the same" in capsys.readouterr().out
    drift.main(Options(root=tuning, out=tuning, formats=()))
    table = pandas.read_csv(written(tuning, "drift.csv"))
    assert table["model"].tolist() == ["before"] * 3 + ["seed-0"] * 3 + ["seed-1"] * 3
    assert table["answers"].tolist() == [10] * 9
    assert "10 of 10; 10 of 10; 10 of 10" in written(tuning, "drift.html").read_text()


def test_a_drift_would_be_seen(tuning: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that gets worse from chunk to chunk."""
    chunks = iter(range(100))

    def worse(model: object, asked: list) -> Answers:
        right = torch.arange(len(asked)) >= 2 * next(chunks)
        texts = tuple(question.answer for question in asked)
        return Answers(right, texts, texts, ("groups",) * len(asked))

    monkeypatch.setattr(does_it_drift.al, "answer_questions", worse)
    base = al.load_model("reference")
    monkeypatch.setattr(TunedModel, "load", lambda self, settings: base)
    does_it_drift.main(does_it_drift.Config(questions=200, chunk=20), root=tuning)
    drift.main(Options(root=tuning, out=tuning, formats=()))
    assert "NOT flat" in written(tuning, "drift.html").read_text()


@pytest.mark.parametrize("figure", [carrying, drift])
def test_a_missing_run_is_named_with_its_cure(figure: object, tmp_path: Path) -> None:
    options = Options if figure is drift else TableOptions
    with pytest.raises(SystemExit, match=r"Make one: python -m experiments \w+ --model mine"):
        figure.main(options(model="mine", root=tmp_path, out=tmp_path))  # pyright: ignore
