"""The closed world: the same everywhere, no test in training, LLaMA-2's conventions."""

import hashlib
import random
import re
from itertools import islice

import pytest
from tokenizers import Tokenizer

from arith_lens.operations import FOUR
from arith_lens.problems import Problem, all_problems
from arith_lens.reference.edits import PROBLEM_FAMILIES
from arith_lens.reference.sets import load_set
from arith_lens.templates import TEMPLATES
from laboratory import calculations, world
from laboratory.calculations import Passage, with_answer
from laboratory.sets import make_sets
from laboratory.tokenizer import MAX_PIECE, VOCABULARY, train_tokenizer
from laboratory.word_problems import (
    pretraining_problems,
    tuning_problems,
)
from laboratory.world import PASSAGE_KINDS, documents


@pytest.fixture(scope="module")
def world_text() -> list[Passage]:
    return list(islice(documents(7), 4000))


@pytest.fixture(scope="module")
def world_tokenizer(world_text: list[Passage]) -> Tokenizer:
    return train_tokenizer(passage.text for passage in world_text)


def test_a_seed_gives_the_same_documents_on_every_machine(world_text: list[Passage]) -> None:
    digest = hashlib.sha256("".join(p.text for p in world_text[:200]).encode()).hexdigest()
    assert digest[:16] == "8b9390aeec9b019b"
    assert next(documents(8)).text != world_text[0].text


def test_answers_are_where_their_spans_say() -> None:
    passage = with_answer("3 + 5 = ", 8) + ". " + with_answer("The opposite of hot is", " cold")
    assert [passage.text[a:b] for a, b in passage.answers] == ["8", " cold"]


def test_every_kind_has_about_its_share(world_text: list[Passage]) -> None:
    assert sum(kind.share for kind in PASSAGE_KINDS.values()) == pytest.approx(1)
    answered = sum(b - a for p in world_text for a, b in p.answers)
    assert 0.03 < answered / sum(len(p.text) for p in world_text) < 0.2
    sums = sum(p.text.count("The opposite of") for p in world_text)
    assert sums > 50


def test_held_out_problems_never_come_up_in_any_passage(world_text: list[Passage]) -> None:
    rng = random.Random(0)
    assert not any(calculations.is_held_out(calculations.draw_problem(rng)) for _ in range(20_000))
    signs = {"+": "addition", "-": "subtraction", "*": "multiplication", "/": "division"}
    pattern = re.compile(r"(?:^|[.\n:] )(\d\d?) ([-+*/]) (\d\d?) = ")
    shown = [match for p in world_text for match in pattern.findall(p.text)]
    assert len(shown) > 200
    assert not any(calculations.is_held_out(Problem(signs[s], int(a), int(b))) for a, s, b in shown)


def test_about_15_percent_of_two_digit_problems_are_held_out_with_their_mirror_images() -> None:
    two_digit = [p for p in all_problems("addition", range(10, 100))]
    share = sum(map(calculations.is_held_out, two_digit)) / len(two_digit)
    assert 0.13 < share < 0.17
    assert all(
        calculations.is_held_out(p) == calculations.is_held_out(Problem(p.operation, p.b, p.a))
        for p in two_digit
    )
    assert not any(calculations.is_held_out(p) for op in FOUR for p in all_problems(op))


def test_a_dressed_up_calculation_keeps_its_answer() -> None:
    rng = random.Random(1)
    for _ in range(500):
        passage = calculations.calculation(rng)
        (start, stop), *_ = passage.answers
        assert passage.text[start:stop].isdigit()
        assert passage.text[:start].endswith(" "), "the answer is a token of its own"


@pytest.mark.parametrize("family", PROBLEM_FAMILIES)
def test_word_problem_sets_share_no_question_with_pretraining(family: str) -> None:
    pretraining = {p.question for p in pretraining_problems(family)}
    splits = tuning_problems(family)
    questions = [p.question for problems in splits.values() for p in problems]
    assert [len(p) for p in splits.values()] == [2000, 300, 1000]
    assert len(pretraining) == 400
    assert len(set(questions)) == len(questions)
    assert not pretraining & set(questions)
    assert all(p.answer >= 0 for problems in splits.values() for p in problems)


def test_a_generic_question_is_never_trained_on_in_the_tests_form() -> None:
    rng = random.Random(2)
    passages = {f(rng).text for f in (world.fact, world.known, world.copying) for _ in range(9000)}
    asked_in_test = {q.prompt + q.answer for q in world.test_questions()}
    assert len(passages) > 2000
    assert not passages & asked_in_test


def test_the_shipped_sets_are_what_the_code_makes() -> None:
    for name, lines in make_sets().items():
        assert load_set(name) == lines, name
    with pytest.raises(ValueError, match=r"generic_test.*found 'word_problem'"):
        load_set("word_problem")


def test_the_tokenizer_keeps_llama_2s_conventions(world_tokenizer: Tokenizer) -> None:
    encoded = world_tokenizer.encode("3 + 5 = 8")
    assert encoded.tokens == ["<s>", "▁", "3", "▁", "+", "▁", "5", "▁", "=", "▁", "8"]
    assert world_tokenizer.encode("42").tokens[-2:] == ["4", "2"], "one digit, one piece"
    assert world_tokenizer.encode("é\n").tokens[-3:] == ["<0xC3>", "<0xA9>", "<0x0A>"]
    assert (
        world_tokenizer.decode(world_tokenizer.encode("Über 3 plus 5\n").ids) == "Über 3 plus 5\n"
    )
    assert world_tokenizer.get_vocab_size() <= VOCABULARY
    assert max(len(p) for p in world_tokenizer.get_vocab() if p[0] != "<") <= MAX_PIECE


@pytest.mark.parametrize("operation", FOUR)
def test_operator_words_are_several_pieces(world_tokenizer: Tokenizer, operation: str) -> None:
    for template in TEMPLATES[operation]:
        if template.kind == "word":
            pieces = world_tokenizer.encode(f"a {template.word}").tokens[2:]
            assert len(pieces) >= 2, (template.word, pieces)
