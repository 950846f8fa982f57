"""Training sets hold no test question: overlaps are found, said, left out, and refused."""

import json
import re
from pathlib import Path

import pytest

from arith_lens.benchmarks import (
    Record,
    find_overlaps,
    held_out,
    load_records,
    parse_number,
    refuse_overlap,
    training_parts,
    training_set,
)
from arith_lens.benchmarks.training import to_dataset
from experiments import datasets

SAMPLES = Path(__file__).parents[1] / "data"


def made_records(*questions, name="test"):
    return [Record(f"{name}/{i}", question, "1", 1.0) for i, question in enumerate(questions)]


HATS = "Ann has 12 red hats. She gives 3 of the hats to Bob. How many hats does Ann have now?"


@pytest.mark.parametrize(
    ("question", "rule"),
    [
        (HATS, "same"),
        (
            "Ann has 12 red hats . she gives 3 of the hats to Bob , how many hats does Ann have",
            "reworded",
        ),
        (
            "ann has 12 red hats; she gives 3 of the hats to bob. how many hats does ann have NOW",
            "same",
        ),
        (
            "Ann has twelve red hats. She gives three to Bob. How many hats does Ann have now?",
            "reworded",
        ),
        (
            "Ann had 12 red hats. She gave 3 of her hats to Bob. How many hats has Ann now?",
            "reworded",
        ),
        (
            "Ann has 12 red hats. She gives 4 of the hats to Bob. How many hats does Ann have now?",
            None,
        ),
        ("Bea saw 12 boats and 3 ships. How many more boats than ships did she see?", None),
        ("", None),
    ],
)
def test_the_same_problem_is_found_in_other_words_but_not_with_other_numbers(question, rule):
    found = find_overlaps([{"question": question}], {"t": made_records("Why?", HATS)})
    assert [o.rule for o in found] == ([rule] if rule else [])
    assert all((o.test, o.test_set, o.train) == ("test/1", "t", "row 0") for o in found)


def test_one_story_with_other_numbers_is_found_on_request():
    tests = {"t": made_records(HATS)}
    other = {"question": HATS.replace("12", "19")}
    assert [o.rule for o in find_overlaps([other], tests, ("story",))] == ["story"]
    assert find_overlaps([other], tests) == []
    apart = {"question": HATS.replace("of the hats to Bob", "away")}  # never 13 words in a row
    assert find_overlaps([apart], tests, ("story",)) == []


def test_a_set_that_touches_a_test_set_is_refused_with_counts_and_examples():
    train = [{"id": "mine/7", "question": HATS.upper()}, {"question": "What is 3 plus 4?"}]
    refuse_overlap(train[1:], {"t": made_records(HATS)})
    with pytest.raises(
        ValueError, match=r"t 1 same. For example\n  mine/7 is test/0 \(same\): ANN"
    ):
        refuse_overlap(train, {"t": made_records(HATS)})
    with pytest.raises(ValueError, match=r"or the key question .* found the keys \['text'\]"):
        refuse_overlap([{"text": HATS}], {"t": made_records(HATS)})
    with pytest.raises(ValueError, match=r"training row 0: expected a Record.* found 'Ann has"):
        refuse_overlap([HATS], {"t": made_records(HATS)})
    with pytest.raises(ValueError, match="expected rules of same, reworded, story, found alike"):
        find_overlaps(train, {}, ("alike",))


def test_the_samples_lose_what_was_written_into_them_to_be_found(capsys):
    made = training_set(data_dir=SAMPLES)
    printed = capsys.readouterr().out
    assert "addsub/train: 7 read, 5 kept\n  1 in test sets (singleeq/test 1 same)" in printed
    assert "singleeq/train: 7 read, 5 kept\n  1 in test sets (addsub/test 1 same)" in printed
    assert "svamp/train: 7 read, 6 kept\n  1 with a doubtful gold answer" in printed
    assert made.column_names == ["prompt", "answer", "gold", "question", "source", "id"]
    assert len(made) == 8 + 6 + 5 + 5
    refuse_overlap(made, held_out(data_dir=SAMPLES))
    assert made["id"][:8] == [f"gsm8k/train/{i}" for i in range(8)]
    first = made[0]
    assert first["prompt"].startswith("Question: Natalia sold clips")
    assert first["prompt"].endswith("April and May?\nAnswer:")
    assert first["answer"] == (
        " Natalia sold 48/2 = 24 clips in May.\n"
        "Natalia sold 48+24 = 72 clips altogether in April and May.\nThe answer is 72."
    )
    by_source = {example["source"]: example["answer"] for example in made.to_list()[::-1]}
    assert by_source["svamp"] == " The answer is 145."
    assert by_source["addsub"] == " In all she picked 14 + 9 = 23 plums. The answer is 23."


def test_answers_at_once_need_no_solution():
    made = training_set(("addsub",), SAMPLES, form="answer", tests={})
    assert len(made) == 7
    assert made[4]["prompt"].endswith("How many lamps are there altogether ? The answer is ")
    assert made[4]["answer"] == "23"
    assert {part.unsolved for part in training_parts(("addsub",), SAMPLES)} == {("addsub/train/4",)}


def test_only_test_sets_without_a_train_part_are_whole():
    """A whole set holds its train part, so that after training on it, only the test part counts."""
    assert set(held_out(("gsm8k",), SAMPLES)) >= {"svamp/whole", "addsub/whole", "singleeq/whole"}
    assert set(held_out(("svamp",), SAMPLES)) >= {"svamp/test", "addsub/whole", "gsm8k/test"}
    made = training_set(("svamp",), SAMPLES)
    with pytest.raises(ValueError, match=r"(?s)whole 6 same.*whole sets hold their train parts"):
        refuse_overlap(made, {"whole": load_records("svamp", SAMPLES)})


def test_mawps_is_refused_or_decontaminated():
    with pytest.raises(
        ValueError, match="found mawps among the names: it holds most of AddSub and SingleEq"
    ):
        training_set(("mawps",), SAMPLES)
    (part,) = training_parts(("mawps",), SAMPLES, mawps="decontaminate")
    assert [o.rule for o in part.overlaps] == ["same"]
    assert [record.id for record in part.records] == ["mawps/train/1", "mawps/train/2"]


def test_mistakes_are_said_plainly():
    with pytest.raises(ValueError, match=r"expected names of gsm8k.* to train on, found mmlu"):
        training_set(("mmlu",), SAMPLES)
    with pytest.raises(ValueError, match=r"found 'gsm8k'; give names=\('gsm8k',\)"):
        training_set("gsm8k", SAMPLES)
    with pytest.raises(ValueError, match="expected form among solution, answer, found 'chat'"):
        training_set(("gsm8k",), SAMPLES, form="chat")


@pytest.fixture(scope="module")
def parts(data_directory):
    return training_parts(data_dir=data_directory)


def keys(directory, name, *files):
    """Questions without spacing and punctuation, read without the library."""
    questions = set()
    for file in files:
        for row in json.loads((directory / name / file).read_text()):
            text = row.get("sQuestion") or row["instruction"]
            questions.add(re.sub("[^a-z0-9]", "", text.lower()))
    return questions


def test_the_counts_are_the_published_overlaps(data_directory, parts):
    """Recounted from the files by set intersection, as the data's README counts them."""
    addsub, singleeq = (
        {part: keys(data_directory, name, f"{part}.json") for part in ("train", "test")}
        for name in ("addsub", "singleeq")
    )
    whole = {
        "addsub": keys(data_directory, "addsub", "AddSub.json"),
        "singleeq": keys(data_directory, "singleeq", "questions.json"),
    }
    pairs = (
        (addsub["train"], singleeq["test"], 22),
        (singleeq["train"], addsub["test"], 18),
        (singleeq["train"], singleeq["test"], 1),
        (addsub["train"], addsub["test"], 0),
        (whole["addsub"], whole["singleeq"], 126),
    )
    for one, other, count in pairs:
        assert len(one & other) == count
    same = {
        (part.name, o.test_set): sum(
            p.rule == "same" and p.test_set == o.test_set for p in part.overlaps
        )
        for part in parts
        for o in part.overlaps
    }
    assert {key: count for key, count in same.items() if count} == {
        ("addsub", "singleeq/test"): 22,
        ("singleeq", "addsub/test"): 18,
        ("singleeq", "singleeq/test"): 1,
    }
    files = ("trainset.json", "validset.json", "testset.json")
    mawps, train = keys(data_directory, "mawps", *files), keys(data_directory, "mawps", files[0])
    assert (len(mawps), len(train)) == (1780, 1451)
    assert [len(mawps & whole[name]) for name in whole] == [370, 423]
    assert [len(train & whole[name]) for name in whole] == [317, 359]
    assert len(mawps - whole["addsub"] - whole["singleeq"]) == 1111
    tests = {f"{n}/whole": load_records(n, data_directory) for n in ("addsub", "singleeq")}
    (part,) = training_parts(("mawps",), data_directory, tests=tests, mawps="decontaminate")
    for name, count in (("addsub", 317), ("singleeq", 359)):
        found = {
            re.sub("[^a-z0-9]", "", o.train_question.lower())
            for o in part.overlaps
            if o.rule == "same" and o.test_set == f"{name}/whole"
        }
        assert len(found) == count
    assert not {re.sub("[^a-z0-9]", "", r.question.lower()) for r in part.records} & (
        whole["addsub"] | whole["singleeq"]
    )


@pytest.mark.parametrize(("form", "step"), [("solution", 1), ("answer", 20)])
def test_every_training_answer_is_its_gold_answer(parts, form, step):
    made = to_dataset(parts, form)
    assert len(made) == len(set(made["id"])) == 8695
    for example in made.to_list()[::step]:
        written = example["prompt"] + example["answer"]
        assert parse_number(written) == pytest.approx(float(example["gold"]), rel=1e-9)
        assert "<<" not in written and "####" not in written


def test_the_experiment_prints_and_saves(tmp_path, capsys):
    config = datasets.SplitConfig(data_dir=SAMPLES)
    datasets.training_splits(config, root=tmp_path, dry_run=True)
    assert "svamp/test: 4 records, none flagged" in capsys.readouterr().out
    datasets.training_splits(config, root=tmp_path)
    printed = capsys.readouterr().out
    assert "addsub/train/5 is singleeq/test/0 (same)" in printed
    lines = (tmp_path / "training_splits" / "solution.jsonl").read_text().splitlines()
    assert len(lines) == 24
    counts = (tmp_path / "training_splits" / "solution_counts.csv").read_text()
    assert "singleeq,same in addsub/test,1" in counts
    with pytest.raises(SystemExit, match="found no file"):
        datasets.training_splits(datasets.SplitConfig(data_dir=tmp_path), root=tmp_path)
