"""Tuning as an experiment: what is trained, how rates are chosen, what tables say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support import children
from support.drawings import written
from support.made_runs import make_effects
from support.squares import square

import experiments.does_tuning_help as tables
from arith_lens.answers import Answers, Question
from arith_lens.components import Head
from arith_lens.operations import FOUR
from experiments.does_tuning_help import (
    VALIDATION,
    SelectedRates,
    Training,
    TuningRow,
    generic_to_choose,
    generic_to_report,
)
from experiments.does_tuning_help import __main__ as command
from experiments.does_tuning_help import plan as planning
from experiments.does_tuning_help.plan import table_rows
from experiments.does_tuning_help.studies import World
from experiments.rehearsal import in_small
from figures.exhibit import show
from figures.options import Options, TableOptions
from figures.tables.answers import CHANGE, PLACE
from figures.tables.table import from_csv, records, select, value
from figures.tables.tuning import CHOOSING_CHANGE, CHOSEN_RATE, PARAMETERS, TRAININGS
from figures.tuning import frontier
from figures.tuning_tables import table1, table2, table5

SIZES = planning.TuningConfig(heads=3, several=(1, 2, 3), mlps=3, more=(0, 1, 12))


def answers(right: dict[str, list[bool]]) -> Answers:
    task = tuple(name for name, found in right.items() for _ in found)
    correct = torch.tensor([one for found in right.values() for one in found])
    return Answers(correct, ("",) * len(task), ("8",) * len(task), task)


def test_the_tables_have_the_papers_rows() -> None:
    names = {table: [row.name for row in table_rows(table, SIZES)] for table in (1, 2, 5)}
    assert names[1] == ["full", "precise-3-0", "lora-3-0", "random-3-0"]
    assert names[2] == ["precise-1-0", "precise-2-0", "precise-3-0", "precise-3-3"]
    assert names[5] == ["precise-3-0", "precise-3-1", "precise-3-12"]


def test_a_setting_that_two_tables_share_is_one_training() -> None:
    shared = {*table_rows(1, SIZES)} & {*table_rows(2, SIZES)} & {*table_rows(5, SIZES)}
    assert shared == {TuningRow("precise", 3)}
    assert Training(TuningRow("precise", 3), 0.003, 1).name == "precise-3-0-rate-0p003-seed-1"
    assert len(tables.grid([TuningRow("full"), TuningRow("full")], (1e-3, 1e-2), 0)) == 2


def test_a_rate_is_chosen_on_validation_alone() -> None:
    good = answers({"validation/groups": [True, True], "groups": [False] * 8, "facts": [False]})
    bad = answers({"validation/groups": [True, False], "groups": [True] * 8, "facts": [True]})
    shares = {1e-3: tables.validation_accuracy(bad), 1e-2: tables.validation_accuracy(good)}
    assert shares == {1e-3: 0.5, 1e-2: 1.0}
    assert SelectedRates({TuningRow("full"): shares}).rates == {TuningRow("full"): 1e-2}
    none = tables.validation_accuracy(answers({"groups": [True]}))
    assert SelectedRates({TuningRow("full"): {2e-5: none}}).rates == {TuningRow("full"): 2e-5}
    with pytest.raises(ValueError, match="to choose a rate on, found none for full"):
        _ = SelectedRates({TuningRow("full"): {1e-3: 0.5, 2e-5: none}}).rates


def test_of_rates_that_do_equally_well_the_smaller_is_taken() -> None:
    chosen = SelectedRates({TuningRow("full"): {3e-3: 0.5, 1e-3: 0.5, 1e-2: 0.4}})
    assert chosen.rates[TuningRow("full")] == 1e-3
    table = chosen.to_dataframe()
    assert table.loc[table["mathematics"], "rate"].tolist() == [1e-3]
    assert chosen.to_arrays().header["rows"][0] == {
        "method": "full", "heads": 0, "mlps": 0, "rate": 1e-3,
    }  # fmt: skip


def test_a_rate_that_loses_more_than_two_points_is_not_chosen_for_little_loss() -> None:
    full, lora = TuningRow("full"), TuningRow("lora", 3)
    validation = {full: {1e-3: 0.5, 3e-3: 0.6, 1e-2: 0.7}, lora: {1e-3: 0.5, 3e-3: 0.6, 1e-2: 0.7}}
    losses = {
        full: {1e-3: 0.01, 3e-3: -0.019, 1e-2: -0.021},
        lora: dict.fromkeys(validation[lora], -0.5),
    }
    chosen = SelectedRates(validation, losses)
    assert chosen.rates_with_little_loss == {full: 3e-3}
    assert chosen.rates == {full: 1e-2, lora: 1e-2}
    again = SelectedRates.from_arrays(chosen.to_arrays())
    assert again == chosen
    assert SelectedRates(validation).criteria == ("mathematics",)


def test_each_generic_question_either_chooses_or_reports() -> None:
    tasks = {
        f"{VALIDATION}groups": [True],
        "groups": [True],
        "facts": [True] * 3,
        "plurals": [True],
    }
    choose, report = (of(answers(tasks)) for of in (generic_to_choose, generic_to_report))
    assert choose == [False, False, True, False, True, True]
    assert report == [False, False, False, True, False, False]
    without = answers({"groups": [True], "facts": [True] * 2})
    assert generic_to_choose(without) == [False] * 3, "no rate is chosen"
    assert generic_to_report(without) == [False, True, True]


def test_tuning_validation_and_test_problems_are_different_ones() -> None:
    world = World(examples=0, questions=0)
    tuned = {line["prompt"] for line in world.tuning_set(0)}
    assert len(tuned) == 8000
    questions = world.all_questions()
    validation = {q.prompt for q in questions if q.task.startswith(VALIDATION)}
    test = {q.prompt for q in questions if not q.task.startswith(VALIDATION)}
    assert (len(validation), len(test)) == (1200, 4734)
    assert not tuned & validation and not tuned & test and not validation & test
    assert len(World(examples=8, questions=2).all_questions()) == 2 * (4 + 4 + 5)


def test_a_seed_draws_its_own_examples_and_the_end_of_an_answer_is_learned() -> None:
    first, second = (World(examples=50, questions=1).tuning_set(seed) for seed in (0, 1))
    assert first == World(examples=50, questions=1).tuning_set(0)
    assert len(first) == 50 and first != second
    assert {line["answer"][-1] for line in first} == {"\n"}
    assert len({line["task"] for line in first}) == 4


def test_work_side_by_side_gives_each_job_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    methods: list[str] = []

    def begins_sooner(method: str) -> Any:
        methods.append(method)
        return children.context

    monkeypatch.setattr(command, "get_context", begins_sooner)
    for processes in (1, 2):
        assert dict(command.side_by_side(square, [1, 2, 3], processes)) == {1: 1, 2: 4, 3: 9}
    assert methods == ["spawn"], "a fork has the locks of threads that it lacks"
    with pytest.raises(ValueError, match="unlucky"):
        dict(command.side_by_side(square, [13, 14], 2))


QUESTIONS = [
    *(Question("3 plus 5 = ", "8", f"{before}groups") for before in (VALIDATION, "")),
    Question("4 plus 5 = ", "9", "groups"),
    Question("The opposite of hot is", " cold", "opposites"),
    Question("The opposite of big is", " small", "opposites"),
    Question("The opposite of up is", " down", "opposites"),
    Question("The opposite of old is", " young", "opposites"),
]
CONFIG = planning.TuningConfig(rates=(1e-3, 1e-2), n=9, several=(1, 3), more=(0, 1))


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[command.TrainingJob]:
    """Trainings that are not done: each answers more, and forgets more, the higher its rate."""
    jobs: list[command.TrainingJob] = []

    def train_and_ask(job: command.TrainingJob) -> tuple[Answers, dict]:
        jobs.append(job)
        high = job.training.rate > 5e-3
        correct = torch.tensor([high, high, high, not high, True, True, not high])
        facts = {"parameters": 8192 * len(job.heads), "of": 2_500_000, "seconds": 3.0}
        facts |= {"which_heads": list(map(str, job.heads)), "which_mlps": list(map(str, job.mlps))}
        tasks = tuple(question.task for question in QUESTIONS)
        expected = tuple(question.answer.strip() for question in QUESTIONS)
        answers = Answers(correct, ("",) * len(tasks), expected, tasks)
        job.output.mkdir(parents=True, exist_ok=True)
        return answers, {**job.training.facts, **facts, "samples_per_second": 40.0}

    monkeypatch.setattr(World, "all_questions", lambda self: QUESTIONS)
    monkeypatch.setattr(command, "train_and_ask", train_and_ask)
    return jobs


def test_the_table_is_trained_at_every_rate_and_repeated_at_the_best(
    tmp_path: Path, pretended: list[command.TrainingJob], capsys: pytest.CaptureFixture[str]
) -> None:
    command.main(CONFIG, root=tmp_path, processes=1, seeds=2)
    trained = [job.training.name for job in pretended]
    assert trained[:2] == ["full-rate-0p001-seed-0", "full-rate-0p01-seed-0"]
    assert trained[8:] == [
        f"{name}-rate-{rate}-seed-1"
        for rate in ("0p01", "0p001")  # the best, and the one that loses nothing elsewhere
        for name in ("full", "precise-3-0", "lora-3-0", "random-3-0")
    ]
    by_method = {job.training.tuned.method: job for job in pretended}
    assert [str(head) for head in by_method["precise"].heads] == ["5.5", "5.2", "7.3"]
    assert by_method["random"].heads == by_method["precise"].heads
    show(table1, TableOptions(root=tmp_path, out=tmp_path))
    printed = capsys.readouterr().out
    assert "word problems (100.0%" in printed
    assert "LoRA: about" in printed
    table = from_csv(written(tmp_path, "table1.csv").read_text())
    rates = select(table, measure=CHOSEN_RATE)
    assert rates.method.tolist() == ["full", "precise", "lora", "random"] * 2
    assert rates.chosen_for.tolist() == ["mathematics"] * 4 + ["little_loss"] * 4
    assert rates.value.tolist() == [0.01] * 4 + [0.001] * 4
    assert select(table, measure=TRAININGS).value.tolist() == [2] * 8
    generic = select(table, group="generic tasks", task="all")
    changes = select(generic, measure=CHANGE)
    assert select(changes, rate=0.01).value.tolist() == pytest.approx([-0.5] * 4)
    assert select(changes, rate=0.001).value.tolist() == [0] * 4
    assert {*changes.n} == {2}, "two of four choose"
    assert value(table, measure=PARAMETERS, method="precise") == 8192 * 3
    show(frontier, Options(root=tmp_path, out=tmp_path, formats=()))
    points = from_csv(written(tmp_path, "frontier.csv").read_text())
    losses = select(points, measure=CHANGE, group="generic tasks", task="all")
    assert losses.rate.tolist() == [0.001, 0.01] * 4
    assert losses.value.tolist() == pytest.approx([0, -0.5] * 4)
    chose = select(points, measure=CHOOSING_CHANGE, method="full")
    assert [(one.rate, one.value) for one in records(chose)] == [(0.001, 0), (0.01, -0.5)]


@pytest.mark.filterwarnings("ignore:expected counterfactuals that change the answer")
def test_a_table_that_was_broken_off_goes_on_and_tables_share_trainings(
    tmp_path: Path, pretended: list[command.TrainingJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = command.train_and_ask

    def killed(job: command.TrainingJob) -> tuple[Answers, dict]:
        if len(pretended) == 5:
            raise KeyboardInterrupt
        return whole(job)

    monkeypatch.setattr(command, "train_and_ask", killed)
    with pytest.raises(KeyboardInterrupt):
        command.main(CONFIG, root=tmp_path, processes=1, seeds=2)
    monkeypatch.setattr(command, "train_and_ask", whole)
    command.main(CONFIG, root=tmp_path, processes=1, seeds=2)
    names = [job.training.name for job in pretended]
    assert len(names) == len({*names}) == 16
    command.main(CONFIG, root=tmp_path, processes=1, seeds=2, table=5)
    further = [job.training.name for job in pretended[16:]]
    assert further == [f"precise-3-1-rate-{end}" for end in
                       ("0p001-seed-0", "0p01-seed-0", "0p01-seed-1", "0p001-seed-1")]  # fmt: skip
    show(table5, TableOptions(root=tmp_path, out=tmp_path))
    table = from_csv(written(tmp_path, "table5.csv").read_text())
    assert select(table, measure=CHOSEN_RATE).n_mlps.tolist() == [0, 1] * 2
    assert select(table, measure=PLACE, n_mlps=1).component.tolist()[-1] == "MLP 11"
    with pytest.raises(SystemExit, match=r"--model reference .*--n 9 .*--table 2"):
        show(table2, TableOptions(root=tmp_path, out=tmp_path))


def test_a_dry_run_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.main(planning.TuningConfig(), root=tmp_path, dry_run=True)
    printed = capsys.readouterr().out
    assert " 4 further seeds: " in printed and "most 52 trainings" in printed
    assert "4,000 examples, 1 epoch" in printed and "32 a step: 125" in printed
    assert "lora-3-0: 24,576" in printed and "(1.0%), rank 2" in printed
    assert not [*tmp_path.iterdir()]


def test_a_rehearsal_trains_every_row_once_in_small_and_leaves_nothing(
    tmp_path: Path, pretended: list[command.TrainingJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsed = []
    monkeypatch.setattr(command, "run_in_small", lambda *parts: rehearsed.append(parts))
    large = replace(CONFIG, which_heads=("31.5", "31.2", "30.3"), examples=0)
    command.main(large, root=tmp_path / "results", rehearse=True)
    ((compute, config, figure, _),) = rehearsed
    assert figure == "table1" and not [*tmp_path.iterdir()]
    maps = {name: make_effects(name, 12, 8) for name in FOUR}
    monkeypatch.setattr(command, "operation_maps", lambda *_: maps)
    compute(in_small(config), root=tmp_path)
    assert [job.training.tuned.method for job in pretended] == ["full", "precise", "lora", "random"]
    assert {job.plan.study for job in pretended} == {World(examples=8, questions=2)}
    on_data = planning.TuningConfig(data_dir=tmp_path, form="answer", shots={"gsm8k": 2})
    assert planning.planned(in_small(on_data), 12).study == World(examples=8, questions=2)


def test_a_training_says_what_it_trained_and_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(World, "all_questions", lambda self: QUESTIONS)
    config = planning.TuningConfig(examples=16, questions=1, epochs=1, batch=4, device="cpu")
    job = command.TrainingJob(
        Training(TuningRow("precise", 2), 3e-3, 1),
        planning.planned(config, 12),
        (Head(5, 5), Head(5, 2)),
        (),
        tmp_path / "training",
    )
    answers, facts = command.train_and_ask(job)
    assert facts["which_heads"] == ["5.2", "5.5"]
    assert facts["parameters"] == 2 * 4 * 128 * 16 and facts["of"] == 2_575_488
    assert facts["untouched"].startswith("2,559,104 untouched weights bit-identical")
    assert (facts["method"], facts["rate"], facts["seed"]) == ("precise", 3e-3, 1)
    assert answers.task == tuple(question.task for question in QUESTIONS)
    again, facts_again = command.train_and_ask(job)
    assert facts_again["seconds"] == facts["seconds"], "trained a second time"
    assert again.said == answers.said


def test_the_world_has_settings_of_its_size_and_what_is_given_counts() -> None:
    plan = planning.planned(planning.TuningConfig(examples=0, heads=5), 12)
    assert plan.study == World(examples=0, questions=500)
    filled = plan.config
    assert (filled.heads, filled.several) == (5, (1, 2, 3, 5, 6, 12))
    assert (filled.mlps, filled.more) == (3, (0, 1, 2, 3, 6, 12))
    assert len(plan.config.rates) == 5
    assert not {"tasks", "shots", "max_new_tokens"} & {*plan.identity}
    with pytest.raises(ValueError, match=r"expected --data-dir, .* with shots"):
        planning.planned(planning.TuningConfig(shots={"gsm8k": 0}), 12)
