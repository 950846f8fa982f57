"""Numbers in what models write: read whole, from the right place, or not at all."""

import json
import time

import pytest

from arith_lens.benchmarks import parse_number, same_number

TEXTS_WITH_NUMBERS = [
    # a number alone
    ("18", 18),
    (" 18.", 18),
    ("18.0", 18),
    ("-18", -18),
    ("\u221218", -18),
    ("\u201318", -18),
    ("0.53", 0.53),
    (".5", 0.5),
    ("5.", 5),
    ("1,234", 1234),
    ("1,234,567.89", 1234567.89),
    ("1\u202f234", 1234),
    ("007", 7),
    # currency, percent, units
    ("$70", 70),
    ("$1,200.50", 1200.5),
    ("-$5", -5),
    ("$-5", -5),
    ("US$ 12", 12),
    ("€3.20", 3.2),
    ("Rs.5", 5),
    ("25%", 25),
    ("12 apples", 12),
    ("15cm", 15),
    ("a 5-foot board", 5),
    # fractions, mixed numbers, powers of ten, multipliers
    ("3/4", 0.75),
    ("-3/4", -0.75),
    ("3 / 4", 0.75),
    ("1,000/8", 125),
    ("1 1/2", 1.5),
    ("½", 0.5),
    ("3½ cups", 3.5),
    ("\\frac{3}{4}", 0.75),
    ("1e3", 1000),
    ("2.5E-2", 0.025),
    ("1.5 x 10^3", 1500),
    ("2×10^{-2}", 0.02),
    ("5 million", 5_000_000),
    ("1.5 thousand dollars", 1500),
    # the place: after the last marker, else the last number
    ("The answer is 7.", 7),
    ("the ANSWER is: 7", 7),
    ("The answer is\n\n7", 7),
    ("Answer: 7", 7),
    ("The answer to the question is 7 of 9.", 7),
    ("He has 3 and gets 4.\n#### 7", 7),
    ("#### 1,000", 1000),
    ("#### -3", -3),
    ("The answer is - 3.", -3),
    ("The answer is negative 3.", -3),
    ("The answer is minus 3.", -3),
    ("The answer is **7**.", 7),
    ("So it is \\boxed{7}.", 7),
    ("so \\boxed{\\$1,007} in all", 1007),
    ("The answer is 7. Q: Ann has 3 hats and 2 coats.", 7),
    ("The answer is 5. No, the answer is 7.", 7),
    ("The answer is 7. I hope that the answer is clear.", 7),
    ("The answer is that Mrs. Hill has 7 hats left, not 9.", 7),
    ("The answer is 7 (4 of them red).", 7),
    ("The answer is 3 + 4 = 7.", 7),
    ("The answer is 3 hats + 4 hats = 7 hats", 7),
    ("The answer is x = 7", 7),
    ("The answer is $20 - $8.77 = $11.23.", 11.23),
    ("The answer is 7, since 9 = 7 + 2.", 7),
    ("Tom had 3 hats. He got 4 more. Now he has 7 hats.", 7),
    ("3 + 4 = 7", 7),
    ("10-4", 4),
    ("From 10 he takes 4. 10 - 4 = 6 remain at 3:30.", 6),
    ("He has 7 hats (version 1.2.3, of 3/4/2024).", 7),
    ("He has 16 - 9 = <<16-9=7>>7 hats", 7),
    ("16/2 = <<16/2=8>>8\nso 8 - 1 = <<8-1=7>>7", 7),
    ("It is 7 <<3+4=", 7),
    # no answer
    ("", None),
    ("I do not know.", None),
    ("The answer is unknown.", None),
    ("He has 3 hats. The answer is unknown.", None),
    ("He has 3 hats. The answer is five. Not 4.", None),
    ("The answer is 3 + 4.", None),
    ("The answer is 3 hats + 4 hats", None),
    ("The answer is 10-12.", None),
    ("The answer is 2^10", None),
    ("The answer is 3:30.", None),
    ("1,2", None),
    ("12,34,5", None),
    ("1.2.3", None),
    ("7/0", None),
    ("5 10/2", None),
    ("10²", None),
    ("1e999", None),
    ("A4 or COVID-19", None),
    ("<<3+4=7>>", None),
    ("- . , $ % / x", None),
]


@pytest.mark.parametrize(("text", "number"), TEXTS_WITH_NUMBERS)
def test_a_text_gives_its_answer_or_none(text, number):
    assert parse_number(text) == (None if number is None else pytest.approx(number, abs=1e-12))


def test_there_are_enough_texts_made_by_hand():
    assert len({text for text, _ in TEXTS_WITH_NUMBERS}) == len(TEXTS_WITH_NUMBERS) >= 60


@pytest.mark.parametrize(
    ("said", "gold"),
    [("120", 12), ("12", 120), ("1,200", 1), ("12.5", 12), ("-12", 12), ("3/4", 3), ("1e1", 1)],
)
def test_a_number_counts_only_as_a_whole(said, gold):
    assert not same_number(parse_number(said), gold)


def test_the_tolerance_is_what_it_says():
    assert same_number(0.333, 1 / 3)
    assert not same_number(0.33, 1 / 3)
    assert same_number(0.33, 1 / 3, tolerance=0.01)
    assert same_number(118558.0, 118558)
    assert not same_number(None, 0)


def test_a_long_text_is_read_in_no_time():
    started = time.perf_counter()
    assert parse_number("1," * 20_000) is None
    assert parse_number("9" * 20_000) is None
    assert parse_number("The answer is " + "3 + 4 " * 2_000) is None
    assert parse_number("the answer to " * 2_000) is None
    assert time.perf_counter() - started < 10  # quadratic backtracking takes minutes


def golds(directory, name):
    """(text, number) of a benchmark's gold answers, read without the library."""
    read = [json.loads((directory / name / file).read_text()) for file in FILES[name]]
    for record in (record for records in read for record in records):
        if "answer" in record:
            yield record["answer"], float(record["answer"])
        else:
            number = record["Answer"] if name == "svamp" else record["lSolutions"][0]
            yield str(number), float(number)


FILES = {
    "svamp": ["SVAMP.json", "train.json", "test.json"],
    "addsub": ["AddSub.json", "train.json", "test.json"],
    "singleeq": ["questions.json", "train.json", "test.json"],
    "mawps": ["trainset.json", "validset.json", "testset.json"],
}
COUNTS = {"svamp": 2000, "addsub": 790, "singleeq": 1016, "mawps": 1987}


@pytest.mark.parametrize("name", FILES)
def test_every_gold_answer_is_read(data_directory, name):
    read = list(golds(data_directory, name))
    assert len(read) == COUNTS[name]
    for text, number in read:
        for said in (text, f"3 of 9 are out. The answer is {text}."):
            assert abs((parse_number(said) or 0) - number) <= 1e-12 * abs(number), said


@pytest.mark.parametrize(("split", "count"), [("train", 7473), ("test", 1319)])
def test_every_solution_of_gsm8k_ends_on_its_answer(data_directory, split, count):
    lines = (data_directory / "gsm8k" / f"{split}.jsonl").read_text().splitlines()
    solutions = [json.loads(line)["answer"] for line in lines]
    assert len(solutions) == count
    for solution in solutions:
        working, gold = solution.rsplit("#### ", 1)
        assert parse_number(solution) == float(gold.replace(",", "")), gold
        assert parse_number(f"{working}The answer is {gold}.") == float(gold.replace(",", ""))


@pytest.mark.parametrize(
    ("name", "agreeing"), [("addsub", {316: 297, 79: 73}), ("singleeq", {406: 388, 102: 96})]
)
def test_written_solutions_agree_with_gold_as_often_as_published(data_directory, name, agreeing):
    for file in ("train.json", "test.json"):
        records = json.loads((data_directory / name / file).read_text())
        same = [same_number(parse_number(r["output"]), float(r["answer"])) for r in records]
        assert sum(same) == agreeing[len(records)]
