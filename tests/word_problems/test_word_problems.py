"""Word problems become pairs: the asking words replaced, the tokens counted, C found."""
# Fields that bare tokens lack are None; here they are known.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportArgumentType=false, reportOptionalIterable=false

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from datasets import Dataset

import arith_lens
from arith_lens.benchmarks import gold_answer
from arith_lens.pairs import Role
from arith_lens.reference.edits import (
    CONTAINERS,
    PROBLEM_FAMILIES,
    REWORDED_PARTS,
    world_edits,
)
from arith_lens.reference.sets import load_set, world_pairs
from arith_lens.templates import SLOTS
from arith_lens.word_problems import (
    PhraseEdit,
    WordProblem,
    gsm8k_pairs,
    question_edits,
    read_gsm8k,
    word_problem_pairs,
)
from arith_lens.word_problems.convert import (
    NEGATIVE,
    NO_ANSWER_TOKEN,
    NO_CANDIDATE,
    NO_EQUATION,
    NO_PHRASE,
    NOT_WHOLE,
    TOO_LONG,
)
from experiments.datasets import published_tokenizer as load_tokenizer
from laboratory.word_problems import GAIN_VERBS, LOSE_VERBS

RECORDS = [
    {
        "question": "John has 3 cups and gains 5 cups. How many cups does John have?",
        "answer": "He has 3 + 5 = <<3+5=8>>8 cups.\n#### 8",
    },
    {
        "question": "Mary raised $1,200. How much money did Mary raise in total?",
        "answer": "She raised 12*100 = $<<12*100=1200>>1200.\n#### 1,200",
    },
    {
        "question": "A day has 24 hours. Calculate the number of hours of 2 days.",
        "answer": "There are 24 x 2 = <<24*2=48>>48.\n#### 48",
    },
]


@pytest.fixture(scope="module", params=["llama2", "mistral", "llama3"])
def published(request, real_tokenizer):
    return real_tokenizer(request.param)


@pytest.fixture(scope="module")
def small():
    """The reference model's own, whose words are many pieces."""
    return load_tokenizer(Path(arith_lens.__file__).parent / "reference" / "reference")


def replaced(text: str) -> list[str]:
    return [text[e.start : e.stop] for e in question_edits(text) if e.needed]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("He has 3. How many cats has he?", ["How many"]),
        ("How many more cats does he have than Jim?", ["How many more"]),
        ("How many more does he need?", ["How many more"]),
        ("How much older is Tom than Jim?", ["How much"]),
        ("How many of them are red?", ["How many"]),
        ("If he has 3, how much did he pay in total?", ["how much"]),
        ("Calculate the total number of cats.", ["Calculate", "number"]),
        ("What's the average age of the cats?", ["age"]),
        ("What percentage of the cats is red?", ["percentage"]),
        ("How long will it take him to paint?", ["long", "take"]),
        ("How many years old is Tom?", ["How many years old"]),
        ("What is ten more than nine?", ["What"]),
        ("His computer cost 3. How much is it?", ["How much"]),
        ("When did they meet?", []),
        ("He has 3 cats.", []),
    ],
)
def test_the_words_that_ask_are_found(question, expected):
    assert replaced(question) == expected


def test_edits_never_overlap_and_never_touch_a_number(data_directory):
    for record in read_gsm8k(data_directory / "gsm8k", split="test"):
        text = record["question"]
        edits = question_edits(text)
        assert all(a.stop <= b.start for a, b in pairwise(edits))
        assert not any(re.search(r"\d", text[e.start : e.stop]) for e in edits)


def test_a_capital_stays_a_capital():
    (edit,) = question_edits("How many cats has he?")
    assert all(candidate[0].isupper() for candidate in edit.candidates)


def test_pairs_are_aligned_and_c_follows_end(published):
    """By the tokenizer alone: lengths, tokens outside the changed words, the token after END."""
    pairs, conversion = gsm8k_pairs(published, RECORDS)
    assert conversion.converted == (0, 1, 2)
    for i, gold in enumerate(["8", "1200", "48"]):
        mask = pairs.attention_mask[i]
        a, b = pairs.reference[i][mask].tolist(), pairs.counterfactual[i][mask].tolist()
        assert a == published(pairs.reference_text[i])["input_ids"]
        assert b == published(pairs.counterfactual_text[i])["input_ids"]
        assert a != b and a[0] == b[0] == published.bos_token_id and a[-1] == b[-1]
        whole = published(f"{RECORDS[i]['question']} The answer is {gold}")["input_ids"]
        assert whole[: len(a)] == a
        assert whole[len(a)] == pairs.answer[i]
        assert gold.startswith(published.decode([pairs.answer[i]]))
        numbers = [
            re.findall(r"\d[\d,]*", text)
            for text in (pairs.reference_text[i], pairs.counterfactual_text[i])
        ]
        assert numbers[0] == numbers[1]
        assert not re.search(r"how (many|much)|calculate", pairs.counterfactual_text[i], re.I)


@pytest.mark.parametrize("name", ["llama2", "mistral"])
def test_end_is_the_blank_piece_under_sentencepiece(real_tokenizer, name):
    tokenizer = real_tokenizer(name)
    pairs, _ = gsm8k_pairs(tokenizer, RECORDS)
    assert set(tokenizer.convert_ids_to_tokens(pairs.reference[:, -1].tolist())) == {"▁"}


def test_the_second_mode_stops_at_the_last_equals_sign(published):
    pairs, conversion = gsm8k_pairs(published, RECORDS, mode="equation")
    assert conversion.n_converted == 3
    assert pairs.reference_text[0].endswith("cups does John have?\nHe has 3 + 5 = <<3+5=")
    changed = pairs.counterfactual_text[0].split("\n")[1]
    assert re.fullmatch(r"He has 3 [^+\d\s] 5 = <<3[^+\d\s]5=", changed)
    assert [text[0] for text in pairs.answer_text] == ["8", "1", "4"]
    end = published.convert_ids_to_tokens(pairs.reference[:, -1].tolist())
    assert set(end) == {"="}


def test_most_real_questions_convert(data_directory, real_tokenizer):
    """The first 150 of each split."""
    tokenizer = real_tokenizer("llama2")
    for split in ("train", "test"):
        records = read_gsm8k(data_directory / "gsm8k", split=split)[:150]
        _, conversion = gsm8k_pairs(tokenizer, records)
        assert conversion.share > 0.95


def test_roles_are_end_and_bos_alone(small):
    pairs, _ = gsm8k_pairs(small, RECORDS[:2])
    assert pairs.role_mask(Role.END).sum(1).tolist() == [1, 1]
    assert pairs.role_mask(Role.BOS).sum(1).tolist() == [1, 1]
    for role in (Role.OPERAND_A, Role.OPERATOR, Role.OPERAND_B):
        assert not pairs.role_mask(role).any()
    assert torch.equal(pairs.role_mask(Role.OTHER).sum(1), pairs.lengths - 2)


def test_computed_says_that_no_token_of_the_prompt_is_c(small):
    pairs, _ = gsm8k_pairs(small, RECORDS)
    assert pairs.computed.tolist() == [True, False, False]  # $1,200 has the 1, 24 the 4


def test_a_seed_gives_the_same_texts_whatever_else_is_converted(small):
    both, _ = gsm8k_pairs(small, RECORDS, seed=3)
    one, _ = gsm8k_pairs(small, RECORDS[1:2], seed=3)
    assert one.counterfactual_text[0] == both.counterfactual_text[1]
    others = {gsm8k_pairs(small, RECORDS, seed=s)[0].counterfactual_text for s in range(5)}
    assert len(others) > 1


def test_what_does_not_convert_is_counted_with_its_reason(small):
    ask = "How many cups does John have?"
    records = [
        *RECORDS,
        {"question": "When did they meet?", "answer": "#### 7"},
        {"question": ask, "answer": "#### 1/2"},
        {"question": ask, "answer": "#### -3"},
        {"question": "John has a cup. " * 30 + ask, "answer": "#### 3"},
    ]
    _, conversion = gsm8k_pairs(small, records, max_tokens=100)
    assert conversion.left_out == {NO_PHRASE: 1, NOT_WHOLE: 1, NEGATIVE: 1, TOO_LONG: 1}
    assert "3 of 7 questions converted" in str(conversion)
    _, conversion = gsm8k_pairs(
        small, [*records[:1], {"question": ask, "answer": "#### 7"}], mode="equation"
    )
    assert conversion.left_out == {NO_EQUATION: 1}


def test_what_cannot_be_aligned_is_left_out(tokenizer):
    """A word of more pieces; an answer that joins the prompt's last piece: `▁pl` and `▁plus`."""
    said = (PhraseEdit(0, 4, ("Mary",)),)
    problems = [
        WordProblem("John has 3 ", "3", (PhraseEdit(0, 4, ("Maximilian",)),)),
        WordProblem("John has pl", "us", said),
        WordProblem("John has 3 ", "3", said),
    ]
    pairs, conversion = word_problem_pairs(tokenizer, problems)
    assert conversion.left_out == {NO_CANDIDATE: 1, NO_ANSWER_TOKEN: 1}
    assert conversion.converted == (2,)
    assert pairs.counterfactual_text == ("Mary has 3 ",)


def test_questions_come_from_files_folders_data_sets_and_records(small, tmp_path):
    lines = "".join(json.dumps(record) + "\n" for record in RECORDS)
    (tmp_path / "test.jsonl").write_text(lines)
    folder = tmp_path / "other"
    folder.mkdir()
    Dataset.from_list(RECORDS).to_parquet(str(folder / "test-00000-of-00001.parquet"))
    expected, _ = gsm8k_pairs(small, RECORDS)
    for source in (tmp_path, tmp_path / "test.jsonl", str(folder), Dataset.from_list(RECORDS)):
        pairs, _ = gsm8k_pairs(small, source)
        assert pairs.counterfactual_text == expected.counterfactual_text


def test_the_gold_answer_is_the_number_after_the_hashes():
    assert gold_answer("so 2 + 2 = 4\n#### 1,234") == "1234"
    assert gold_answer("#### $70") == "70"
    assert gold_answer("no mark, 4") == ""


def test_mistakes_are_said_plainly(small, tmp_path):
    with pytest.raises(ValueError, match="expected mode among question, equation, found"):
        gsm8k_pairs(small, RECORDS, mode="solution")
    with pytest.raises(ValueError, match="answer is missing"):
        gsm8k_pairs(small, [{"question": "How many?"}])
    with pytest.raises(ValueError, match="expected records with question and answer, found none"):
        gsm8k_pairs(small, [])
    with pytest.raises(FileNotFoundError, match="found no file"):
        gsm8k_pairs(small, tmp_path / "absent.jsonl")
    with pytest.raises(FileNotFoundError, match="found none that loads"):
        gsm8k_pairs(small, "nobody/nothing")
    with pytest.raises(ValueError, match="0 of 1 questions converted"):
        gsm8k_pairs(small, [{"question": "When?", "answer": "#### 7"}])
    (tmp_path / "bad.jsonl").write_text("{\n")
    with pytest.raises(ValueError, match="line 1: expected a JSON object"):
        gsm8k_pairs(small, tmp_path / "bad.jsonl")


OPERATORS = re.compile(
    rf"\b(?:{'|'.join((*GAIN_VERBS, *LOSE_VERBS))}|how many|more|fewer|than|each|equally|in all|"
    r"puts|left|has)\b",
    re.IGNORECASE,
)


def things(text: str) -> list[str]:
    """The objects that are named, in order."""
    return re.findall(rf"\b(?:{'|'.join(SLOTS['OBJECT'])})\b", text)


@pytest.fixture(scope="module", params=["small", "llama2", "llama3"])
def convention(request):
    """Where the space before the answer is a piece, and where it is not SentencePiece's."""
    if request.param == "small":
        return request.getfixturevalue("small")
    return request.getfixturevalue("real_tokenizer")(request.param)


@pytest.mark.parametrize("family", PROBLEM_FAMILIES)
def test_a_reworded_story_has_nothing_to_calculate(convention, family):
    """By the texts and the tokenizer alone: no operator, broken referents, numbers in place."""
    pairs, conversion = world_pairs(convention, family, split="validation")
    assert conversion.n_converted == len(pairs) > 200
    for i in range(0, len(pairs), 10):
        texts = pairs.reference_text[i], pairs.counterfactual_text[i]
        assert len(OPERATORS.findall(texts[0])) >= 3 and not OPERATORS.search(texts[1])
        said, asked = things(texts[0]), things(texts[1])
        assert len(set(said)) == 1 and len(said) == len(asked)
        assert asked[0] == said[0] and asked[-1] not in asked[:-1]
        assert set(asked[1:-1]).isdisjoint(said)
        rows = [convention(text)["input_ids"] for text in texts]
        mask = pairs.attention_mask[i]
        assert rows[0] == pairs.reference[i][mask].tolist()
        assert rows[1] == pairs.counterfactual[i][mask].tolist()
        pieces = [convention.convert_ids_to_tokens(row) for row in rows]
        digits = [[(n, p) for n, p in enumerate(of) if re.search(r"\d", p)] for of in pieces]
        assert digits[0] == digits[1] and digits[0]
        assert pieces[0][0] == pieces[1][0] and pieces[0][-1] == pieces[1][-1]


def test_a_story_stays_out_only_if_no_other_name_is_as_long(small):
    """Stephen alone has five pieces."""
    lines = load_set("word_problems_validation")
    _, conversion = world_pairs(small, split="validation")
    out = [line["prompt"] for i, line in enumerate(lines) if i not in conversion.converted]
    assert conversion.left_out == {NO_CANDIDATE: len(out)}
    assert out and all(re.search(r"How many[^?]* Stephen\b", text) for text in out)


def test_each_part_of_a_story_changes_its_own_words():
    containers = re.compile("|".join(CONTAINERS))
    for line in load_set("word_problems_validation"):
        text, family = line["prompt"], line["task"]
        edits = {part: world_edits(text, family, part) for part in REWORDED_PARTS}
        said = {part: [text[e.start : e.stop] for e in edits[part]] for part in REWORDED_PARTS}
        assert said["possession"] == ["has"] * text.count(" has ")
        telling = [word for word in said["operators"] if word not in ("with", "into", "all")]
        assert telling and all(OPERATORS.fullmatch(word) for word in telling)
        assert things(text)[1:] == [word for word in said["referents"] if things(word)]
        others = [word for word in said["referents"] if not things(word)]
        assert all(word in SLOTS["NAME"] or containers.fullmatch(word) for word in others)
        assert edits["question"] == question_edits(text)
        whole = world_edits(text, family)
        assert all(a.stop <= b.start for a, b in pairwise(whole))
        assert not any(re.search(r"\d", text[e.start : e.stop]) for e in whole)


def test_a_story_is_reworded_only_if_it_is_known():
    with pytest.raises(ValueError, match="among gain_lose"):
        world_edits("Q: Diana has 2 hats.", "sharing")
    with pytest.raises(ValueError, match="one or more of question, operators"):
        world_edits("Q: Diana has 2 hats.", "groups", ("verbs",))
    with pytest.raises(ValueError, match="a problem of the family groups"):
        world_edits("Q: Diana has 2 hats.", "groups")
