"""Benchmarks' records: read whole from files and the hub's form, and their faults flagged."""

import ast
import csv
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from arith_lens.answers import Question, load_questions
from arith_lens.benchmarks import flag_summary, load_records, parse_number, without_flags
from arith_lens.benchmarks.readers import SOURCES

SAMPLES = Path(__file__).parents[1] / "data"
COUNTS = {
    ("gsm8k", "train"): 7473,
    ("gsm8k", "test"): 1319,
    ("svamp", "whole"): 1000,
    ("svamp", "train"): 700,
    ("svamp", "test"): 300,
    ("addsub", "whole"): 395,
    ("addsub", "train"): 316,
    ("addsub", "test"): 79,
    ("singleeq", "whole"): 508,
    ("singleeq", "train"): 406,
    ("singleeq", "test"): 102,
    ("mawps", "train"): 1589,
    ("mawps", "val"): 199,
    ("mawps", "test"): 199,
    ("csqa", "train"): 9741,
    ("csqa", "dev"): 1221,
    ("mmlu", "dev"): 285,
    ("mmlu", "val"): 1531,
    ("mmlu", "test"): 14042,
}


@pytest.mark.parametrize(("name", "split"), COUNTS)
def test_every_published_record_is_read(data_directory, name, split):
    records = load_records(name, data_directory, split=split)
    assert len(records) == COUNTS[name, split]
    assert len({record.id for record in records}) == len(records)
    for record in records:
        if record.choices:
            assert record.gold in "ABCDE"[: len(record.choices)]
            assert record.number is None
        else:
            assert record.number is not None
            assert parse_number(record.gold) == pytest.approx(record.number, rel=1e-9)


def test_splits_are_parts_of_the_whole(data_directory):
    for name in ("svamp", "addsub", "singleeq"):
        whole, train, test = (
            Counter(plain(r.question) for r in load_records(name, data_directory, split=split))
            for split in ("whole", "train", "test")
        )
        assert whole == train + test


def plain(text):
    return "".join(c for c in text.lower() if c.isalnum())


def sampled(name, **options):
    return load_records(name, SAMPLES, **options)


def test_records_carry_what_was_published():
    first = sampled("gsm8k", split="train")[0]
    assert (first.id, first.gold, first.number) == ("gsm8k/train/0", "72", 72)
    assert first.question.endswith("altogether in April and May?")
    assert "<<48/2=24>>" in first.solution
    by_id = {record.id: record for record in sampled("svamp")}
    assert by_id["svamp/chal-777"].number == 145
    assert by_id["svamp/chal-777"].question.endswith("93 groups How big is each group of bananas?")
    assert [r.gold for r in sampled("addsub")[:3]] == ["23", "37", "0.75"]
    assert sampled("addsub")[0].id == "addsub/1001"
    solved = sampled("singleeq", split="train")[1]
    assert (solved.id, solved.gold, solved.solution[:10]) == (
        "singleeq/train/1",
        "12",
        "A: She pay",
    )
    record = sampled("csqa")[0]
    assert record.id == "csqa/1afa02df02c908a558b4036e80242fac"
    assert (record.gold, record.choices[0], len(record.choices)) == ("A", "bank", 5)
    law = sampled("mmlu", subjects="philosophy", split="val")[0]
    assert law.id == "mmlu/val/philosophy/0"
    assert len(law.choices) == 4 and "\n" not in law.choices[3]
    assert not law.question.startswith("The following")


def hub_form(tmp_path, name):
    """The samples as a dataset folder in the hub's own columns, written without the library."""
    folder = tmp_path / name
    folder.mkdir()
    for split, stored in HUB_SPLITS[name].items():
        rows = list(HUB_ROWS[name](split))
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{stored}.jsonl").write_text(text)
    stored = "".join(
        f"  - split: {stored}\n    path: {stored}.jsonl\n" for stored in HUB_SPLITS[name].values()
    )
    card = f"---\nconfigs:\n- config_name: default\n  data_files:\n{stored}---\n"
    (folder / "README.md").write_text(card)  # else "dev" would be taken for "validation"
    return str(folder)


def gsm8k_rows(split):
    yield from map(json.loads, (SAMPLES / "gsm8k" / f"{split}.jsonl").read_text().splitlines())


def svamp_rows(split):
    for row in json.loads((SAMPLES / "svamp" / f"{split}.json").read_text()):
        joined = f"{row['Body']} {row['Question']}"
        yield {**row, "Answer": str(row["Answer"]), "question_concat": joined}


def csqa_rows(split):
    for line in (SAMPLES / "csqa" / f"{split}_rand_split.jsonl").read_text().splitlines():
        row = json.loads(line)
        choices = row["question"]["choices"]
        yield {
            "id": row["id"],
            "question": row["question"]["stem"],
            "question_concept": row["question"]["question_concept"],
            "choices": {key: [choice[key] for choice in choices] for key in ("label", "text")},
            "answerKey": row["answerKey"],
        }


def mmlu_rows(split):
    for path in sorted((SAMPLES / "mmlu" / split).glob("*.csv")):
        subject = path.name.removesuffix(f"_{split}.csv")
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                choices = [row[f"choice{i}"] for i in range(4)]
                answer = int(row["answer"])
                yield {
                    "question": row["question"],
                    "subject": subject,
                    "choices": choices,
                    "answer": answer,
                }


HUB_ROWS = {"gsm8k": gsm8k_rows, "svamp": svamp_rows, "csqa": csqa_rows, "mmlu": mmlu_rows}
HUB_SPLITS = {
    "gsm8k": {"train": "train", "test": "test"},
    "svamp": {"train": "train", "test": "test"},
    "csqa": {"train": "train", "dev": "validation"},
    "mmlu": {"dev": "dev", "test": "test"},
}


@pytest.mark.parametrize("name", HUB_ROWS)
def test_the_hubs_form_gives_the_same_records(tmp_path, monkeypatch, name):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = hub_form(tmp_path, name)
    for split in HUB_SPLITS[name]:
        assert load_records(name, split=split, hub_id=folder) == sampled(name, split=split)
    if name == "svamp":
        both = load_records(name, hub_id=folder)
        assert {r.id for r in both} == {r.id for r in sampled(name)}
        assert [r.id for r in both if r.flags] == ["svamp/chal-680"]


def test_without_a_network_the_hub_is_refused_plainly(monkeypatch):
    import datasets.config
    import huggingface_hub.constants

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError, match=r"openai/gsm8k.*network.*data_dir="):
        load_records("gsm8k")


def value(expression):
    """Of + - * / and parentheses, by hand."""

    def walk(node):
        if isinstance(node, ast.BinOp):
            a, b = walk(node.left), walk(node.right)
            if isinstance(node.op, ast.Add):
                return a + b
            if isinstance(node.op, ast.Sub):
                return a - b
            return a * b if isinstance(node.op, ast.Mult) else a / b
        assert isinstance(node, ast.Constant) and isinstance(node.value, int | float)
        return node.value

    return walk(ast.parse(expression.strip(), mode="eval").body)


def satisfied(equation, solution):
    """Whether both sides are one number, with the solution for the unknown."""
    number = f"({solution!r})"
    sides = [value(re.sub("[xX]", number, side)) for side in equation.split("=")]
    return len(sides) == 2 and abs(sides[0] - sides[1]) < 1e-3


def flagged(records, *kinds):
    return {r.id for r in records for flag in r.flags if flag.kind in kinds}


def test_what_contradicts_its_equation_is_flagged(data_directory):
    rows = json.loads((data_directory / "svamp" / "SVAMP.json").read_text())
    wrong = {r["ID"] for r in rows if abs(value(r["Equation"]) - r["Answer"]) > 1e-3}
    assert flagged(load_records("svamp", data_directory), "wrong gold") == {
        f"svamp/{i}" for i in wrong
    }
    kinds = ("wrong gold", "ill-posed", "wrong equation")
    for name, file in (("addsub", "AddSub.json"), ("singleeq", "questions.json")):
        rows = json.loads((data_directory / name / file).read_text())
        wrong = {
            f"{name}/{r['iIndex']}"
            for r in rows
            if "x" in r["lEquations"][0].lower()
            and not satisfied(r["lEquations"][0], float(r["lSolutions"][0]))
        }
        marked = flagged(load_records(name, data_directory), *kinds)
        assert marked - {"singleeq/191"} == wrong - {"singleeq/191"}  # its equation has no unknown
    assert marked == {
        f"singleeq/{i}" for i in (191, 226, 255, 317, 320, 332, 408, 453, 462, 482, 485, 495)
    }


def test_faults_are_flagged_and_nothing_is_corrected(data_directory):
    whole = load_records("singleeq", data_directory)
    assert flagged(whole, "wrong gold") == {"singleeq/453", "singleeq/462"}
    assert flagged(whole, "ill-posed") == {"singleeq/482"}
    assert flagged(whole, "duplicate") == {"singleeq/138", "singleeq/275"}
    assert {r.id: r.number for r in whole if r.doubtful} == {
        "singleeq/453": 208,
        "singleeq/462": 134,
        "singleeq/482": 5,
    }
    assert len(without_flags(whole)) == 505
    assert len(without_flags(whole, ("duplicate",))) == 506
    kinds = ("wrong gold", "ill-posed", "wrong equation", "duplicate")
    for name in ("addsub", "singleeq", "svamp"):  # split files have the same records, without ids
        parts = [r for s in ("train", "test") for r in load_records(name, data_directory, split=s)]
        counts = [Counter(f.kind for r in rs for f in r.flags) for rs in (parts, whole)]
        if name == "singleeq":
            assert counts[0] == counts[1]
        assert len(flagged(parts, *kinds)) == {"addsub": 1, "singleeq": 14, "svamp": 1}[name]


def test_choices_damaged_by_a_spreadsheet_are_told_from_dates_and_times(data_directory):
    found = flagged(load_records("mmlu", data_directory), "damaged choices")
    assert Counter(name.split("/")[2] for name in found) == {
        "elementary_mathematics": 5,
        "clinical_knowledge": 1,
        "college_medicine": 1,
        "college_physics": 1,
        "global_facts": 1,
        "high_school_physics": 2,
    }


def test_flags_are_found_in_the_samples_and_said():
    assert flag_summary(sampled("svamp")) == ("11 records, flagged: 1 wrong gold (svamp/chal-680)")
    assert flag_summary(sampled("gsm8k")) == "4 records, none flagged"
    (damaged, other) = [r for r in sampled("mmlu") if r.flags]
    assert damaged.id == "mmlu/test/elementary_mathematics/2"
    assert "7-Mar" in damaged.flags[0].reason and "6-Jan" in other.flags[0].reason
    dates = sampled("mmlu", subjects="miscellaneous")[1]
    assert dates.choices[1] == "21-Mar" and not dates.flags


@pytest.fixture
def copied(tmp_path):
    return Path(shutil.copytree(SAMPLES, tmp_path / "data"))


def test_a_changed_file_is_noticed(copied):
    path = copied / "svamp" / "SVAMP.json"
    path.write_text(path.read_text().replace("Rachel's tree had 4", "Rachel's tree had 5"))
    with pytest.warns(
        UserWarning, match="chal-680 the record that is known as wrong gold .*found another"
    ):
        records = load_records("svamp", copied)
    assert flagged(records, "wrong gold") == set()


def test_commonsense_questions_become_prompts_with_letters():
    (question, *_) = load_questions("csqa", SAMPLES, shots=1)
    shot, _, rest = question.prompt.partition("\n\n")
    assert shot.startswith("The sanctions against the school") and shot.endswith("\nAnswer: A")
    assert rest.endswith("D. mall\nE. new york\nAnswer:")
    assert (question.answer, question.task, question.choices) == (" A", "csqa", tuple("ABCDE"))
    assert load_questions("svamp", SAMPLES, split="test")[0] == Question(
        load_records("svamp", SAMPLES, split="test")[0].question + " The answer is ", "1", "svamp"
    )


@pytest.mark.parametrize(
    ("file", "text", "name", "split", "message"),
    [
        ("gsm8k/test.jsonl", '{"question": "How?"}', "gsm8k", "test", "answer is missing"),
        ("gsm8k/test.jsonl", '{"question": "?", "answer": "2"}', "gsm8k", "test", "after '####'"),
        ("svamp/SVAMP.json", "{}", "svamp", "whole", "expected a JSON list"),
        ("svamp/SVAMP.json", '[{"Body": "a"}]', "svamp", "whole", "record 0: expected the"),
        ("addsub/train.json", '[{"instruction": "a"}]', "addsub", "train", "KeyError: 'answer'"),
        (
            "singleeq/questions.json",
            '[{"sQuestion": "a", "lSolutions": [1, 2]}]',
            "singleeq",
            "whole",
            "too many values",
        ),
        ("csqa/dev_rand_split.jsonl", "[1]", "csqa", "dev", "expected a JSON object"),
        ("csqa/dev_rand_split.jsonl", "\n", "csqa", "dev", "expected questions, found none"),
        ("mmlu/test/philosophy_test.csv", "a,b,c", "mmlu", "test", "four choices and the answer"),
        ("mmlu/val/zero_shot_mmlu_val.jsonl", "{}", "mmlu", "val", "a prompt with choices A to D"),
    ],
)
def test_other_schemas_are_refused(copied, file, text, name, split, message):
    (copied / file).write_text(text)
    with pytest.raises(ValueError, match=message):
        load_records(name, copied, split=split)


def test_a_question_without_public_answer_is_refused(copied):
    path = copied / "csqa" / "dev_rand_split.jsonl"
    path.write_text(path.read_text().replace('"answerKey": "A"', '"answerKey": ""'))
    with pytest.raises(ValueError, match="test answers are not public"):
        load_records("csqa", copied)


def test_mistakes_are_said_plainly(tmp_path):
    with pytest.raises(ValueError, match=r"expected a benchmark among gsm8k.*found 'mnli'"):
        load_records("mnli", SAMPLES)
    with pytest.raises(ValueError, match=r"expected a split of csqa, train, dev.*, found 'test'"):
        load_records("csqa", SAMPLES, split="test")
    with pytest.raises(ValueError, match="found physics"):
        load_records("mmlu", SAMPLES, subjects="physics")
    with pytest.raises(FileNotFoundError, match=r"expected svamp's published SVAMP.json"):
        load_records("svamp", tmp_path)
    with pytest.raises(ValueError, match=r"files of addsub, or hub_id= .* found neither"):
        load_records("addsub")
    assert set(SOURCES) == {name for name, _ in COUNTS}
