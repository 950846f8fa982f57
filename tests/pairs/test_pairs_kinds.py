"""Answers of several tokens, other operands, other operators, stories: what the text must say."""
# Fields that bare tokens lack are None; here they are known.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportOptionalIterable=false, reportArgumentType=false

import operator as op
import random
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from test_pairs import same
from test_pairs_sampling import make_tokenizer
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import arith_lens
from arith_lens.operations import FOUR
from arith_lens.pairs import PromptPairs, Role, sample_pairs
from arith_lens.pairs.story_words import Choices, one_by_one
from arith_lens.templates import FIGURE_10

VALUE = dict(zip(FOUR, (op.add, op.sub, op.mul, Fraction), strict=True))
WORD_OF = {
    **{"plus": "addition", "added to": "addition", "sum": "addition", "total": "addition"},
    **{"addition": "addition", "minus": "subtraction", "less": "subtraction"},
    **{"subtraction": "subtraction", "difference": "subtraction", "gap": "subtraction"},
    **{"excess": "subtraction", "margin": "subtraction", "times": "multiplication"},
    **{"multiplied by": "multiplication", "product": "multiplication"},
    **{"multiplication": "multiplication", "over": "division", "divided by": "division"},
    **{"ratio": "division", "quotient": "division", "division": "division"},
    **{"+": "addition", "-": "subtraction", "*": "multiplication", "/": "division"},
}


@pytest.fixture(scope="module")
def numbers() -> PreTrainedTokenizerFast:
    """Llama-3's way: up to three digits a token, from the left; every other sign is a token."""
    letters = [chr(i) for i in range(32, 127)]
    whole = [str(n) for n in range(10, 100)] + [f"{n:03}" for n in range(1000)]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(["<unk>", *letters, *whole]))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(pattern=Regex(r"\d{1,3}|."), behavior="isolated")
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


@pytest.fixture(scope="module")
def shipped() -> PreTrainedTokenizerFast:
    """The reference model's: words in pieces of up to three letters, digits alone."""
    folder = Path(arith_lens.__file__).parent / "reference" / "reference"
    return PreTrainedTokenizerFast.from_pretrained(folder)


def tokens_of(tokenizer, pairs: PromptPairs, pair: int) -> list[int]:
    return pairs.reference[pair, pairs.attention_mask[pair]].tolist()


@pytest.mark.parametrize("which", ["first", "last"])
@pytest.mark.parametrize("operation", FOUR)
def test_prompt_and_answer_are_the_tokens_of_the_whole_calculation(tokenizer, operation, which):
    pairs = sample_pairs(
        tokenizer, operation, n=60, keep="all", operands=range(1, 40), answer_token=which
    )
    for i, (a, b) in enumerate(pairs.operands.tolist()):
        c = str(int(VALUE[operation](a, b)))
        text, answer = pairs.reference_text[i], pairs.answer_text[i]
        assert answer == (c[0] if which == "first" else c[-1]) and len(c) > 1
        prompt = [*tokens_of(tokenizer, pairs, i), int(pairs.answer[i])]
        whole = text + (c if which == "first" else answer)
        assert tokenizer(whole)["input_ids"][: len(prompt)] == prompt
        assert text.endswith(" " if which == "first" else f" {c[:-1]}")


@pytest.mark.parametrize("which", ["first", "last"])
def test_numbers_of_three_digits_a_token_are_split_where_the_tokenizer_does(numbers, which):
    pairs = sample_pairs(
        numbers, "multiplication", n=40, keep="all", operands=range(30, 50), answer_token=which
    )
    for i, (a, b) in enumerate(pairs.operands.tolist()):
        c = str(a * b)
        assert len(c) == 4 or a * b < 1000
        assert pairs.answer_text[i] == (c[:3] if which == "first" else c[3:])
        ended = pairs.reference_text[i].endswith(c[:3])
        assert ended == (which == "last")


def test_whole_numbers_of_three_digits_are_whole_answers(numbers):
    pairs = sample_pairs(numbers, n=50, keep="all", operands=range(100, 140))
    assert pairs.role_mask(Role.OPERAND_A).sum(1).eq(1).all()
    assert [int(c) for c in pairs.answer_text] == pairs.operands.sum(1).tolist()


def test_the_papers_example_of_a_last_digit(tokenizer):
    pairs = sample_pairs(
        tokenizer, keep="all", operands=[34, 42], answer_token="last", templates=["addition/1"]
    )
    row = pairs.operands.tolist().index([42, 34])
    assert pairs.reference_text[row] == "42 plus 34 equals to 7"
    assert pairs.answer_text[row] == "6"
    assert pairs.counterfactual_text[row].endswith(" 34 equals to 7")


def test_a_part_of_an_answer_is_computed_if_none_of_its_digits_stands_before(tokenizer):
    """By hand: the last digit of a sum is copied if A, B or the sum's tens have it."""
    pairs = sample_pairs(
        tokenizer, keep="all", operands=range(10, 30), answer_token="last", templates=["addition/0"]
    )
    for (a, b), computed in zip(pairs.operands.tolist(), pairs.computed.tolist(), strict=True):
        tens, ones = str(a + b)
        assert computed == (ones not in f"{a}{b}{tens}")
    assert 0 < int(pairs.computed.sum()) < len(pairs)


def test_answers_that_are_too_short_or_too_long_are_refused_with_a_cure(tokenizer, shipped):
    with pytest.raises(
        ValueError, match=r"answer of several tokens after template addition/0 .* found none in 9"
    ):
        sample_pairs(tokenizer, keep="all", operands=range(1, 4), answer_token="first")
    with pytest.raises(ValueError, match=r"exact answer that template story/1 can take, found"):
        sample_pairs(shipped, keep="all", operands=range(10, 20), templates=["story/1"])


@pytest.mark.parametrize("operation", FOUR)
@pytest.mark.parametrize("which", ["whole", "first", "last"])
def test_other_operands_have_the_same_lengths_and_another_answer(tokenizer, operation, which):
    pairs = sample_pairs(
        tokenizer, operation, n=45, keep="all", operands=range(1, 41), draws=2,
        answer_token=which, counterfactual="operands", seed=3,
    )  # fmt: skip
    assert len(pairs) == 90 and pairs.n_distinct == 45
    assert len(set(zip(pairs.reference_text, pairs.counterfactual_text, strict=True))) == 90
    changed = pairs.reference != pairs.counterfactual
    operands = pairs.role_mask(Role.OPERAND_A) | pairs.role_mask(Role.OPERAND_B)
    assert changed.any(1).all() and not (changed & ~operands).any()
    for i in range(len(pairs)):
        (a, b), sides = pairs.operands[i].tolist(), []
        for role in (Role.OPERAND_A, Role.OPERAND_B):
            ids = pairs.counterfactual[i, pairs.role_mask(role)[i]].tolist()
            sides.append(int(tokenizer.decode(ids)))
        assert [len(str(n)) for n in sides] == [len(str(a)), len(str(b))]
        own, c = (str(int(VALUE[operation](*ab))) for ab in (sides, (a, b)))
        assert VALUE[operation](*sides) == int(own), "exact"
        assert own != c
        place = -1 if which == "last" else 0
        assert own[place] != c[place] == pairs.answer_text[i]


def calculations(pairs: PromptPairs) -> list[tuple[str, ...]]:
    """A, operator and B as the counterfactuals of templates with a symbol write them."""
    found = [re.fullmatch(r"(\d+) (\S) (\d+) = ?(\d*)", t) for t in pairs.counterfactual_text]
    return [match.groups()[:3] for match in found]


@pytest.mark.parametrize("which", ["whole", "first", "last"])
def test_the_answer_of_other_operands_follows_the_counterfactual(tokenizer, which):
    pairs = sample_pairs(
        tokenizer, "subtraction", n=30, keep="all", operands=range(1, 41), templates="symbols",
        answer_token=which, counterfactual="operands",
    )  # fmt: skip
    texts = [str(int(a) - int(b)) for a, sign, b in calculations(pairs) if sign == "-"]
    assert len(texts) == 30
    digits = [text[-1 if which == "last" else 0] for text in texts]
    assert list(pairs.counterfactual_answer_text) == digits
    assert pairs.counterfactual_answer.tolist() == tokenizer.convert_tokens_to_ids(digits)
    assert (pairs.counterfactual_answer != pairs.answer).all()


def test_the_answer_of_another_operator_is_its_first_digit_or_none(tokenizer):
    pairs = sample_pairs(
        tokenizer, "subtraction", keep="all", templates="symbols", counterfactual="operator"
    )
    signs = {"+": op.add, "*": op.mul, "/": Fraction, "^": op.pow}
    values = [signs[sign](int(a), int(b)) for a, sign, b in calculations(pairs)]
    texts = [str(value)[0] if value == int(value) else "" for value in values]
    assert "" in texts and len({*texts}) > 5, "some quotients are no whole number"
    assert list(pairs.counterfactual_answer_text) == texts
    tokens = [tokenizer.convert_tokens_to_ids(text) if text else -1 for text in texts]
    assert pairs.counterfactual_answer.tolist() == tokens
    assert f"{len(texts) - texts.count('')} counterfactuals have an answer" in pairs.summary()


def test_null_words_have_no_answer(tokenizer):
    pairs = sample_pairs(tokenizer, n=20, keep="all")
    assert pairs.counterfactual_answer.tolist() == [-1] * 20
    assert pairs.counterfactual_answer_text == ("",) * 20


@pytest.mark.parametrize("operation", FOUR)
def test_another_operator_asks_for_another_answer(operation):
    more = ("added", "multiplied", "divided", "by", "to", "less", "total")
    toy = make_tokenizer({"minus": ["▁min", "us"]} | {word: [f"▁{word}"] for word in more})
    draws = 1 if operation == "subtraction" else 2  # 4 - 3: 4 times 3 and 4 over 3 begin with 1
    pairs = sample_pairs(toy, operation, keep="all", counterfactual="operator", draws=draws)
    changed = pairs.reference != pairs.counterfactual
    assert torch.equal(changed.any(1), torch.ones(len(pairs), dtype=torch.bool))
    assert not (changed & ~pairs.role_mask(Role.OPERATOR)).any()
    seen = Counter()
    for text, (a, b), answer in zip(
        pairs.counterfactual_text, pairs.operands.tolist(), pairs.answer_text, strict=True
    ):
        other = {WORD_OF[word] for word in WORD_OF if f" {word} " in text} - {operation}
        seen += Counter(other or {"exponentiation"})
        for name in other:
            assert VALUE[name](a, b) != int(answer)
            assert not str(float(VALUE[name](a, b))).startswith(answer), "1.25 begins with 1"
    assert len(seen) >= 3 and operation not in seen


def test_a_template_without_another_operator_is_named(tokenizer):
    for name, operation in (("exponentiation/1", "exponentiation"), ("story/9", "addition")):
        with pytest.raises(ValueError, match=f"the one of template {name} .* found none"):
            sample_pairs(
                tokenizer, operation, keep="all", templates=[name], counterfactual="operator"
            )
    signs = sample_pairs(
        tokenizer, "exponentiation", keep="all", templates=["exponentiation/0"],
        counterfactual="operator",
    )  # fmt: skip
    assert {text.split()[1] for text in signs.counterfactual_text} <= set("+-*/")


def test_problems_that_no_other_operands_match_are_left_out_and_none_is_an_error(tokenizer):
    """20 is the only operand of two digits: 20 - 20 has no other A and B of its lengths."""
    pairs = sample_pairs(
        tokenizer, "subtraction", keep="all", operands=[1, 2, 20], counterfactual="operands",
        templates=["subtraction/0"],
    )  # fmt: skip
    assert [20, 20] not in pairs.operands.tolist() and [2, 1] in pairs.operands.tolist()
    with pytest.raises(ValueError, match=r"subtraction/0 with counterfactual='operands', found"):
        sample_pairs(tokenizer, "subtraction", keep="all", operands=[3], counterfactual="operands")


@pytest.mark.parametrize("kind", ["word", "operands", "operator"])
def test_every_kind_is_seeded(tokenizer, kind):
    def drawn(seed):
        return sample_pairs(
            tokenizer, n=12, keep="all", counterfactual=kind, seed=seed, templates=["addition/0"]
        ).counterfactual_text

    assert drawn(1) == drawn(1) != drawn(2)


def test_all_templates_are_figure_8_and_figure_10_and_n_is_spread_over_them(shipped):
    once = sample_pairs(shipped, keep="all", templates="all")
    assert Counter(once.template) == {
        **{f"addition/{place}": 36 for place in range(9)},
        **{story.name: 36 for story in FIGURE_10},
    }
    many = sample_pairs(shipped, n=1500, keep="all", templates="all")
    counts = Counter(many.template)
    assert many.n_distinct == len(set(many.reference_text)) == 1500
    assert {counts[f"addition/{place}"] for place in range(9)} == {36}
    story_counts = [counts[story.name] for story in FIGURE_10]
    assert max(story_counts) - min(story_counts) <= 1 and sum(story_counts) == 1500 - 324
    assert same(once, sample_pairs(shipped, keep="all", templates="all"))


def test_operations_without_stories_have_no_more_than_their_own_templates(tokenizer):
    own, every = (
        sample_pairs(tokenizer, "division", keep="all", templates=names)
        for names in ("operation", "all")
    )
    assert same(own, every)


def test_a_story_whose_words_never_agree_is_named_with_their_counts(tokenizer):
    """The toy tokenizer spells the verbs that it does not know letter by letter."""
    with pytest.raises(ValueError, match=r"story/1 is not token-aligned under") as error:
        sample_pairs(tokenizer, keep="all", templates=["story/1"])
    assert "for LASTED: lasted" in str(error.value) and "instead PAINTED: painted" in str(
        error.value
    )


def test_stories_take_several_counterfactuals_of_one_reference(shipped):
    pairs = sample_pairs(shipped, keep="all", n=20, draws=3, templates=["story/9", "story/5"])
    assert len(pairs) == 60 and pairs.n_distinct == 20
    assert len(set(pairs.counterfactual_text)) == 60


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
@pytest.mark.parametrize(
    "choice",
    [
        {"templates": "all", "n": 63},
        {"answer_token": "last", "operands": range(10, 40), "n": 20},
        {"answer_token": "first", "operands": range(10, 40), "n": 20, "counterfactual": "operands"},
    ],
    ids=str,
)
def test_every_kind_comes_back_from_text(shipped, tmp_path, choice, kind):
    pairs = sample_pairs(shipped, keep="all", **choice)
    getattr(pairs, f"to_{kind}")(tmp_path / "pairs")
    assert same(getattr(PromptPairs, f"from_{kind}")(tmp_path / "pairs", shipped), pairs)


def test_choices_are_all_the_ways_and_each_once():
    choices = Choices({"NAME": ["a", "b", "c"], "NAME2": ["a", "b", "c"], "DAY": ["x", "y"]})
    ways = [tuple(way.values()) for way in choices]
    assert len(ways) == len(set(ways)) == len(choices) == 3 * 2 * 2
    assert all(first != second for first, second, _ in ways)
    with pytest.raises(IndexError):
        choices[12]


@pytest.mark.parametrize("size", [0, 1, 7, 40])
def test_a_lazy_order_is_a_permutation(size):
    order = list(one_by_one(range(size), random.Random(size)))
    assert sorted(order) == list(range(size))
    assert size < 7 or order != list(range(size))


def test_lazy_orders_are_alike_likely():
    """600 orders of three: each of the six about 100 times, by chi-square below its 0.1% point."""
    rng = random.Random(0)
    counts = Counter(tuple(one_by_one("abc", rng)) for _ in range(600))
    assert len(counts) == 6
    assert sum((n - 100) ** 2 / 100 for n in counts.values()) < 20.5
