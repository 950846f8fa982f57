"""Table 1 on the benchmarks: from data to columns, the paper's settings, what a 7B would take."""

import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.drawings import written

from arith_lens.benchmarks import load_records
from arith_lens.fine_tuning.results import load_base
from experiments.does_tuning_help import TuningRow
from experiments.does_tuning_help import __main__ as command
from experiments.does_tuning_help.plan import (
    TrainingBudget,
    TuningConfig,
    check_named_components,
    empty_hf_model,
    fitting_micro_batch,
    parameter_count,
    planned,
    table_rows,
)
from experiments.does_tuning_help.studies import Benchmarks, ShortAnswers
from figures.exhibit import show
from figures.options import TableOptions
from figures.tables.answers import AFTER, BEFORE, CHANGE
from figures.tables.table import from_csv, records, select, value
from figures.tables.tuning import TRAININGS
from figures.tuning_tables import table1

pytest.importorskip("lm_eval", reason="needs the extra `evaluation`: pip install '.[evaluation]'")

DATA = Path(__file__).parents[1] / "data"
MATHEMATICS = ("gsm8k", "addsub", "singleeq", "svamp")
TASKS = (*MATHEMATICS, "mmlu_philosophy", "csqa")
OPTIONS: dict[str, Any] = {"tasks": TASKS, "shots": dict.fromkeys(TASKS, 0), "max_new_tokens": 3}
TUNING_OPTIONS: dict[str, Any] = {
    "rates": (3e-3,),
    "examples": 8,
    "epochs": 1,
    "batch": 4,
    "heads": 2,
    "n": 9,
}


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped model as anybody's directory."""
    folder = tmp_path_factory.mktemp("models") / "foreign"
    hf_model, tokenizer, _ = load_base("reference", dtype=None)
    hf_model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def run(foreign: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Table 1 of that model, on the samples."""
    root = tmp_path_factory.mktemp("results")
    config = TuningConfig(str(foreign), DATA, device="cpu", **TUNING_OPTIONS, **OPTIONS)
    command.main(config, root=root, seeds=1)
    (folder,) = (root / "does_tuning_help").iterdir()
    return folder


def squeezed(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))


def published(name: str, file: str, key: str) -> list[str]:
    text = (DATA / name / file).read_text(encoding="utf-8")
    return [squeezed(record[key]) for record in json.loads(text)]


def answers_in(run: Path, name: str) -> list[dict[str, str]]:
    """A result's own table, read without the library."""
    identity = json.loads((run / "run.json").read_text("utf-8"))["results"][name]["identity"]
    table = run.parents[1] / "store" / identity[:16] / "result.csv"
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def share(answers: list[dict[str, str]], mathematics: bool) -> float:
    chosen = [a["correct"] == "True" for a in answers if (a["task"] in MATHEMATICS) == mathematics]
    return sum(chosen) / len(chosen)


def trained_names(rows: Any) -> Iterator[tuple[str, Any]]:
    """The name of each training in the run, with its rows."""
    for one in records(select(rows, measure=TRAININGS)):
        end = "" if one.method == "full" else f"-{one.n_heads:.0f}-0"
        yield f"{one.method}{end}-rate-0p003-seed-0", select(rows, method=one.method)


def test_the_tables_columns_are_the_shares_of_the_answers(run: Path, tmp_path: Path) -> None:
    before = answers_in(run, "before")
    assert 0 < share(before, mathematics=False) < 1
    show(table1, TableOptions(run=run, out=tmp_path))
    table, tasks = (
        from_csv(written(tmp_path, name).read_text()) for name in ("table1.csv", "table1_tasks.csv")
    )
    changed = set()
    for name, rows in trained_names(table):
        after = answers_in(run, name)
        assert [a["task"] for a in after] == [b["task"] for b in before]
        for group, mathematics in (("word problems", True), ("generic tasks", False)):
            was, now = share(before, mathematics), share(after, mathematics)
            of_group = {"group": group, "task": "all"}
            assert value(table, measure=BEFORE, **of_group) == pytest.approx(was, abs=1e-6)
            assert value(rows, measure=CHANGE, **of_group) == pytest.approx(now - was, abs=1e-6)
            changed.add(now - was)
    for name, rows in trained_names(tasks):
        mmlu = [a for a in answers_in(run, name) if a["task"].startswith("mmlu")]
        right = sum(a["correct"] == "True" for a in mmlu) / len(mmlu)
        assert value(rows, measure=AFTER, task="mmlu") == pytest.approx(right, abs=1e-6)
    assert len(changed) > 1


def test_an_answer_counts_by_its_number(run: Path) -> None:
    """Of what was written the last number, as a reader of the file would count it."""
    import re

    for answer in answers_in(run, "before"):
        numbers = re.findall(r"-?\d+(?:\.\d+)?", answer["said"].replace(",", ""))
        if answer["task"] in MATHEMATICS and len(numbers) == 1:
            right = float(numbers[0]) == float(answer["expected"].replace(",", ""))
            assert (answer["correct"] == "True") == right


def test_only_test_parts_are_asked_and_nothing_of_them_is_trained_on(run: Path) -> None:
    tasks = [a["task"] for a in answers_in(run, "before")]
    keys = {"addsub": "instruction", "singleeq": "instruction"}
    trained = [line["prompt"] for line in Benchmarks(DATA, 0, 0).tuning_set(0)]
    trained = {squeezed(p.removeprefix("Question:").removesuffix("Answer:")) for p in trained}
    offered, tests = set(), set()
    for name, key in keys.items():
        test = published(name, "test.json", key)
        assert tasks.count(name) == len(test) < len(published(name, FULL_FILES[name], "sQuestion"))
        offered |= {*published(name, "train.json", key)}
        tests |= {*test}
    assert offered & tests
    assert trained & offered and not trained & tests


FULL_FILES = {"addsub": "AddSub.json", "singleeq": "questions.json"}


def test_whole_models_are_gone_when_their_answers_are_saved(run: Path) -> None:
    kept = [path.name for path in run.glob("trainings/*/*")]
    assert "checkpoint" not in kept and kept.count("delta.safetensors") == 2


def test_a_table_that_is_asked_for_again_asks_and_trains_nothing(
    run: Path, foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "train_and_ask", None)
    monkeypatch.setattr(Benchmarks, "ask", None)
    config = TuningConfig(str(foreign), DATA, device="cpu", **TUNING_OPTIONS, **OPTIONS)
    command.main(config, root=run.parents[1], seeds=1)


def test_the_benchmarks_have_the_papers_settings_and_one_rate() -> None:
    plan = planned(TuningConfig(data_dir=DATA), 32)
    assert (plan.recipe.epochs, plan.recipe.batch_size, plan.config.rates) == (2, 128, (2e-5,))
    assert (plan.config.heads, plan.config.several) == (32, (8, 16, 32, 48, 64))
    assert (plan.config.mlps, plan.config.more) == (3, (0, 1, 2, 3, 6, 32))
    assert plan.config.tasks == ("gsm8k", "addsub", "singleeq", "svamp", "mmlu", "csqa")
    assert (
        planned(TuningConfig(data_dir=DATA), 32, TrainingBudget(micro_batch=2)).recipe.micro_batch
        == 2
    )
    with pytest.raises(ValueError, match="one rate on the benchmarks"):
        planned(TuningConfig(data_dir=DATA, rates=(2e-5, 1e-4)), 32)


def test_a_batch_is_cut_into_equal_parts() -> None:
    assert [fitting_micro_batch(batch) for batch in (128, 12, 7, 11, 1)] == [8, 6, 7, 1, 1]


@pytest.fixture
def llama2(tmp_path: Path) -> Path:
    """LLaMA2-7B's shape: no weights, no tokenizer."""
    from transformers import LlamaConfig

    LlamaConfig(max_position_embeddings=4096).save_pretrained(tmp_path / "Llama-2-7b-hf")
    return tmp_path / "Llama-2-7b-hf"


def test_a_dry_run_of_llama2_7b_prints_the_papers_settings_and_counts(
    llama2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = (*MATHEMATICS, "mmlu_philosophy", "csqa")
    shots: dict[str, int] = dict.fromkeys(tasks, 1)
    config = TuningConfig(str(llama2), DATA, tasks=tasks, shots=shots, device="cpu")
    for table in (1, 5):
        command.main(config, table=table, root=tmp_path / "results", dry_run=True)
    printed = capsys.readouterr().out
    for text in (
        *("32 layers of 32 heads, 6,738,415,616 parameters", "full: 6,738,415,616"),
        *("precise-32-0: 67,108,864 parameters (1.0%)", "lora-32-0: 67,108,864 parameters (1.0%)"),
        *("precise-32-3: 472,907,776", "precise-32-6: 878,706,688", "precise-32-32: 4,395,630,592"),
        *("rate 2e-05, warm-up 2%", "weight decay 0.1", "2 epochs, 128 a step (8 at once)"),
        *("4 rows, each at 5 seeds: 20 trainings", "commonsense_qa: 4 questions, 1 shot"),
    ):
        assert text in printed
    assert not (tmp_path / "results").exists()


def test_with_grouped_queries_a_plan_counts_the_most_that_heads_can_have(tmp_path: Path) -> None:
    """8 heads of 8 in 2 groups of 4: two of different groups share no key and value."""
    from transformers import LlamaConfig

    sizes: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2}
    LlamaConfig(**sizes, num_hidden_layers=1, intermediate_size=32).save_pretrained(tmp_path)
    empty = empty_hf_model(str(tmp_path))
    assert parameter_count(empty, TuningRow("precise", 2))[0] == 2 * 4 * 8 * 64
    assert parameter_count(empty, TuningRow("precise", 3))[0] == 2 * 4 * 8 * 64 + 2 * 8 * 64


SHORT: dict[str, Any] = {
    "form": "answer",
    "rates": (1e-3, 3e-2),
    "examples": 4,
    "batch": 2,
    "heads": 1,
}


@pytest.fixture(scope="module")
def short(foreign: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rows of Table 1 of that model on numbers alone, with named heads."""

    def some(*of: Any) -> list[TuningRow]:
        return [row for row in table_rows(*of) if row.method in ("precise", "random")]

    root = tmp_path_factory.mktemp("short")
    config = TuningConfig(str(foreign), DATA, device="cpu", which_heads=("9.4", "8.1"), **SHORT)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(command, "table_rows", some)
        command.main(config, root=root, seeds=1)
    (folder,) = (root / "does_tuning_help").iterdir()
    return folder


def test_short_answers_are_learned_on_named_heads_and_judged_on_test_parts(short: Path) -> None:
    facts = json.loads((short / "run.json").read_text("utf-8"))["results"]
    names = [name for name in facts if name.startswith("precise-1-0")]
    assert len(names) == 2
    delta = json.loads((short / "trainings" / names[0] / "tuning.json").read_text("utf-8"))
    assert delta["heads"] == ["9.4"]
    before = answers_in(short, "before")
    tasks = Counter(answer["task"].split("/")[0] for answer in before)
    assert {*tasks} == {"validation", "svamp", "addsub", "singleeq", "commonsense_qa_text"}
    assert tasks["addsub"] == len(published("addsub", "test.json", "instruction"))
    study = ShortAnswers(DATA, 0, 0)
    tuned = {squeezed(line["prompt"]) for line in study.tuning_set(0)}
    assert tuned.isdisjoint(squeezed(question.prompt) for question in study.all_questions())
    assert len(tuned) == len(study.tuning_set(0)) > tasks["validation"] > 0


def test_commonsense_is_answered_by_the_likeliest_text(short: Path, foreign: Path) -> None:
    """By hand: the sum of the log-probabilities of each choice's tokens, in plain Transformers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    hf_model = AutoModelForCausalLM.from_pretrained(foreign)
    tokenizer = AutoTokenizer.from_pretrained(foreign)
    records = load_records("csqa", DATA, split="dev")
    answers = [a for a in answers_in(short, "before") if a["task"] == "commonsense_qa_text"]
    assert len(answers) == len(records)
    for record, answer in zip(records, answers, strict=True):
        prompt, scores = f"Question: {record.question}\nAnswer:", []
        for choice in record.choices:
            ids = tokenizer(f"{prompt} {choice}", return_tensors="pt")["input_ids"]
            n_prompt = len(tokenizer(prompt)["input_ids"])
            with torch.no_grad():
                logprobs = hf_model(ids).logits[0, :-1].log_softmax(-1)
            taken = logprobs.gather(1, ids[0, 1:, None])[:, 0]
            scores.append(float(taken[n_prompt - 1 :].sum()))
        assert answer["said"] == record.choices[scores.index(max(scores))]
        gold = record.choices["ABCDE".index(record.gold)]
        assert (answer["correct"] == "True") == (answer["said"] == gold)


def test_a_plan_of_short_answers_refuses_what_does_not_fit(tmp_path: Path) -> None:
    for wrong, options in (
        ("with --form answer", {}),
        ("expected --form solution with tasks", {"data_dir": DATA, "tasks": ("svamp",)}),
    ):
        with pytest.raises(ValueError, match=wrong):
            planned(TuningConfig(form="answer", **options), 12)
    named = TuningConfig(form="answer", data_dir=DATA, which_heads=("9.4",), heads=2)
    with pytest.raises(ValueError, match="--which-heads with at least 2"):
        check_named_components(named, [TuningRow("precise", 2)])
    with pytest.raises(ValueError, match="--which-mlps with at least 1"):
        check_named_components(named, [TuningRow("precise", 1, 1)])


def test_later_options_leave_the_identity_of_older_runs_as_it_is() -> None:
    identity = planned(TuningConfig(), 12).identity
    assert not {"form", "which_heads", "which_mlps"} & {*identity}
    named = planned(TuningConfig(which_heads=("9.4", "8.1", "5.2")), 12).identity
    assert named["which_heads"] == ("9.4", "8.1", "5.2")
