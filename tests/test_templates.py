"""The wordings, against the paper's figures written out."""

import random
from itertools import islice
from string import Formatter

import pytest

from arith_lens.operations import FOUR, OPERATIONS
from arith_lens.pairs.story_words import Choices, one_by_one
from arith_lens.templates import FIGURE_10, NULL_SYMBOLS, NULL_WORDS, SLOTS, TEMPLATES, fill

SYMBOL_INFIX_NOUN_QUESTION = {
    "addition": ("+", "plus", "addition", "sum"),
    "subtraction": ("-", "minus", "difference", "difference"),
    "multiplication": ("*", "times", "product", "product"),
    "division": ("/", "over", "ratio", "ratio"),
}


@pytest.mark.parametrize("operation", FOUR)
def test_the_nine_wordings_are_figure_8s(operation):
    symbol, infix, noun, question = SYMBOL_INFIX_NOUN_QUESTION[operation]
    assert [template.render(3, 5)[0] for template in TEMPLATES[operation]] == [
        f"3 {symbol} 5 = ",
        f"3 {infix} 5 equals to ",
        f"The {noun} of 3 and 5 is ",
        f"The {noun} of 3 and 5 equals to ",
        f"The {noun} of 3 and 5 is equal to ",
        f"Q: How much is 3 {infix} 5? A: ",
        f"Q: What is 3 {infix} 5? A: ",
        f"Q: What is the result of 3 {infix} 5? A: ",
        f"Q: What is the {question} of 3 and 5? A: ",
    ]


def test_exponentiation_has_two_wordings():
    texts = [template.render(2, 3)[0] for template in TEMPLATES["exponentiation"]]
    assert texts == ["2 ^ 3 = ", "2 to the power of 3 equals "]


def test_names_say_operation_and_place():
    for operation in OPERATIONS:
        templates = TEMPLATES[operation]
        names = [template.name for template in templates]
        assert names == [f"{operation}/{place}" for place in range(len(templates))]
        assert {template.operation for template in templates} == {operation}


@pytest.mark.parametrize("word", [None, "nothing at all", "<"])
def test_spans_hold_the_fields_characters(word):
    for template in (t for group in TEMPLATES.values() for t in group):
        text, spans = template.render(31, 470, word)
        cut = {field: text[start:stop] for field, (start, stop) in spans.items()}
        assert cut == {"A": "31", "op": word or template.word, "B": "470"}


def test_symbols_are_replaced_by_symbols_and_words_by_words():
    for template in (t for group in TEMPLATES.values() for t in group):
        assert (template.kind == "word") == template.word.isalpha()


def test_null_words_are_many_single_and_no_operators():
    operators = {t.word for group in TEMPLATES.values() for t in group}
    assert len(NULL_WORDS) == len(set(NULL_WORDS)) >= 30
    assert all(word.isalpha() and word.islower() for word in NULL_WORDS)
    assert all(len(symbol) == 1 for symbol in NULL_SYMBOLS)
    assert not operators & {*NULL_WORDS, *NULL_SYMBOLS}
    assert {"none", "nothing", "null", "void", "blank"} <= set(NULL_WORDS)
    assert {"<", ">", "@"} <= set(NULL_SYMBOLS)
    assert not set("+-*/^%=!:") & set(NULL_SYMBOLS), "these ask for a calculation"


def test_a_repeated_field_has_the_span_of_its_first_place():
    assert fill("{X} and {X}", X="ab") == ("ab and ab", {"X": (0, 2)})


def test_figure_10_has_its_twelve_wordings_in_order():
    words = {
        "EVENT": "war", "LASTED": "lasted", "LAST": "last", "MONTH": "May", "YYY": "150",
        "NAME": "Mary", "NAME2": "John", "OBJECT": "apples", "OBJECT2": "cups",
        "OBJECT3": "tables", "GETS": "gains", "GOT": "got", "PAINTED": "painted",
        "PAINT": "paint", "THINGS": "doors",
    }  # fmt: skip
    pairs = [(s.render(3, 4, words)[0], s.render_counterfactual(3, 4, words)[0]) for s in FIGURE_10]
    assert [story.name for story in FIGURE_10] == [f"story/{n}" for n in range(1, 13)]
    assert pairs[0] == (
        "The war lasted 3 years from the year 1504 to the year 150",
        "The war painted 3 doors from the year 1504 to the year 150",
    )
    assert [reference for reference, _ in pairs[1:8]] == [
        "The war lasted 3 years from 1504 to 150",
        "The war lasted 3 days from May 4 to May ",
        "The war will last 3 days from May 4 to May ",
        "The war lasted 3 hours from 4 pm to ",
        "The war will last 3 hours from 4 pm to ",
        "The war lasted 3 hours from 4 am to ",
        "The war will last 3 hours from 4 am to ",
    ]
    assert pairs[7][1] == "The war will paint 3 doors from 4 am to "
    question = "What's the total number of"
    assert pairs[8:] == [
        (
            f"Mary has 3 apples, then Mary gains 4 apples. {question} apples that Mary has? "
            "The answer is ",
            f"Mary has 3 apples, then Mary gains 4 cups. {question} tables that John has? "
            "The answer is ",
        ),
        (
            f"Mary got 3 apples, and John got 4 apples. {question} apples that they got? "
            "The answer is ",
            f"Mary got 3 apples, and John got 4 cups. {question} tables that they got? "
            "The answer is ",
        ),
        (
            f"Mary has 3 apples, and John has 4 apples. {question} apples that they have? "
            "The answer is ",
            f"Mary has 3 apples, and John has 4 cups. {question} tables that they have? "
            "The answer is ",
        ),
        (
            f"Mary got 3 apples yesterday, and Mary got 4 apples today. {question} apples that "
            "Mary got? The answer is ",
            f"Mary got 3 apples yesterday, and Mary got 4 cups today. {question} tables that "
            "John got? The answer is ",
        ),
    ]


@pytest.mark.parametrize("story", FIGURE_10, ids=lambda story: story.name)
def test_a_story_has_different_words_and_keeps_the_operands(story):
    fields = [field for _, field, _, _ in Formatter().parse(story.text + story.counterfactual)]
    slots = dict.fromkeys(field for field in fields if field not in (None, "A", "B"))
    choices = Choices({slot: SLOTS[slot.rstrip("23")] for slot in slots})
    told = set()
    for words in islice(one_by_one(choices, random.Random(5)), 50):
        assert len(set(words.values())) == len(words)
        assert all(word in SLOTS[slot.rstrip("23")] for slot, word in words.items())
        for text, spans in (
            story.render(6, 2, words),
            story.render_counterfactual(6, 2, words),
        ):
            assert [text[slice(*spans[field])] for field in "AB"] == ["6", "2"]
        told.add(story.render(6, 2, words)[0] + story.render_counterfactual(6, 2, words)[0])
    assert len(told) > 10
    rng = random.Random(5)
    assert story.sample(random.Random(1), 6, 2) == story.sample(random.Random(1), 6, 2)
    assert len({story.sample(rng, 6, 2) for _ in range(20)}) > 10


def test_there_are_100_first_names_and_100_years():
    assert len(set(SLOTS["NAME"])) == len(SLOTS["NAME"]) == 100
    assert SLOTS["YYY"] == tuple(map(str, range(100, 200)))
    assert all(len(set(words)) == len(words) for words in SLOTS.values())
