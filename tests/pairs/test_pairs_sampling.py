"""sample_pairs: what is drawn, how it is filtered, what is refused."""
# Fields that bare tokens lack are None; here they are known.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportOptionalIterable=false, reportArgumentType=false

import hashlib
import re
import warnings
from dataclasses import replace
from inspect import unwrap
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from arith_lens.pairs import PromptPairs, Role, keep_correct, sample_pairs
from arith_lens.templates import NULL_SYMBOLS, NULL_WORDS, TEMPLATES

N_REFERENCES = {
    "addition": 324,
    "subtraction": 405,
    "multiplication": 207,
    "division": 207,
    "exponentiation": 40,
}


def make_tokenizer(pieces: dict[str, list[str]] | None = None) -> PreTrainedTokenizerFast:
    """Every word `▁word`, every digit and sign one token, but for the words split in `pieces`.

    A WordLevel vocabulary: its behaviour can be read off this function, so that what follows is
    counted by hand. Spaces are a token of their own only where a digit or the end follows.
    """
    split = {word: parts for word, parts in (pieces or {}).items()}
    texts = [t.render(1, 2)[0] for group in TEMPLATES.values() for t in group]
    signs = "+-*/^=?:" + "".join(NULL_SYMBOLS)
    words = {w for text in texts for w in text.split() if w.isalpha()} | {*NULL_WORDS, "Q", "A"}
    vocabulary = ["<unk>", "<s>", "▁", *"0123456789", *signs, *(f"▁{sign}" for sign in signs)]
    vocabulary += sorted(f"▁{w}" for w in words) + [p for parts in split.values() for p in parts]
    ids = {piece: i for i, piece in enumerate(dict.fromkeys(vocabulary))}
    parts = sorted({p for parts in split.values() for p in parts}, key=len, reverse=True)
    pattern = "|".join(
        [*(f"{p}" for p in parts), r"▁[A-Za-z]+", r"▁[^\w▁]", r"▁_", r"▁", r"\d", r"."]
    )
    backend = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", ids["<s>"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", unk_token="<unk>", name_or_path="toy"
    )


@pytest.fixture(scope="module")
def toy() -> PreTrainedTokenizerFast:
    return make_tokenizer()


class Oracle:
    """Answers C with probability 0.9 on the prompts that `knows` holds of, else token 0."""

    def __init__(self, tokenizer, pairs: PromptPairs, knows, *, side: str = "reference"):
        self.tokenizer = tokenizer
        self.answers = {
            tuple(row): int(answer)
            for row, answer, known in zip(
                getattr(pairs, side).tolist(), pairs.answer, knows, strict=True
            )
            if known
        }
        self.batches = []

    def __call__(self, tokens, *, attention_mask, logits_to_keep):
        assert logits_to_keep == 1 and attention_mask.dtype == torch.bool
        self.batches.append(len(tokens))
        size = len(self.tokenizer)
        logits = torch.zeros(len(tokens), 1, size)
        for row, prompt in enumerate(tokens.tolist()):
            # exp(x) / (exp(x) + size - 1) = 0.9
            logits[row, 0, self.answers.get(tuple(prompt), 0)] = torch.tensor(
                9.0 * (size - 1)
            ).log()
        return logits


@pytest.mark.parametrize("operation", N_REFERENCES)
def test_all_distinct_references_are_taken_once(toy, operation):
    pairs = sample_pairs(toy, operation, keep="all")
    assert (
        len(pairs) == pairs.n_distinct == len(set(pairs.reference_text)) == N_REFERENCES[operation]
    )
    assert set(pairs.template) == {t.name for t in TEMPLATES[operation]}
    assert set(pairs.operation) == {operation}


def test_a_pair_differs_in_the_operator_only(toy):
    for operation in N_REFERENCES:
        pairs = sample_pairs(toy, operation, keep="all")
        differs = pairs.reference != pairs.counterfactual
        assert torch.equal(differs, pairs.role_mask(Role.OPERATOR))
        assert pairs.role_mask(Role.BOS).sum(1).eq(1).all()
        assert (pairs.reference[pairs.role_mask(Role.BOS)] == toy.bos_token_id).all()
        assert pairs.role_mask(Role.END)[:, -1].all()


def test_texts_and_tokens_agree(toy):
    pairs = sample_pairs(toy, "division", keep="all")
    for side, texts in (
        ("reference", pairs.reference_text),
        ("counterfactual", pairs.counterfactual_text),
    ):
        for tokens, mask, text in zip(
            getattr(pairs, side), pairs.attention_mask, texts, strict=True
        ):
            assert tokens[mask].tolist() == toy(text)["input_ids"]


def test_computed_pairs_are_those_that_copying_does_not_answer(toy):
    pairs = sample_pairs(toy, "multiplication", keep="all")
    assert int(pairs.computed.sum()) == 9 * (23 - 17)
    a, b = pairs.operands.unbind(-1)
    assert torch.equal(pairs.computed, (a * b != a) & (a * b != b))


def test_n_references_are_spread_over_the_templates(toy):
    pairs = sample_pairs(toy, "addition", n=20, keep="all")
    counts = [pairs.template.count(t.name) for t in TEMPLATES["addition"]]
    assert len(pairs) == pairs.n_distinct == 20
    assert sorted(counts) == [2] * 7 + [3] * 2
    assert len({tuple(ab) for ab in pairs.operands.tolist()}) > 10


def test_more_references_than_exist_are_refused_with_their_count(toy):
    assert len(sample_pairs(toy, "addition", n=324, keep="all")) == 324
    with pytest.raises(ValueError, match="at most 324, found n=325: only 324 distinct"):
        sample_pairs(toy, "addition", n=325, keep="all")
    wider = sample_pairs(toy, "subtraction", n=406, keep="all", operands=range(1, 12))
    assert wider.n_distinct == 406


def test_every_reference_gets_its_different_draws(toy):
    pairs = sample_pairs(toy, "exponentiation", keep="all", draws=3)
    assert len(pairs) == 3 * 40 and pairs.n_distinct == 40
    assert len(set(zip(pairs.reference_text, pairs.counterfactual_text, strict=True))) == 120
    with pytest.raises(ValueError, match=r"expected draws=13 .*addition/0\), found 12"):
        sample_pairs(toy, "addition", keep="all", draws=len(NULL_SYMBOLS) + 1)


def test_the_seed_decides_and_nothing_else(toy):
    state = torch.get_rng_state()
    one, again, other = (sample_pairs(toy, n=30, keep="all", seed=s) for s in (3, 3, 4))
    assert one.reference_text == again.reference_text
    assert one.counterfactual_text == again.counterfactual_text
    assert one.reference_text != other.reference_text
    assert torch.equal(torch.get_rng_state(), state)


def test_every_machine_draws_the_same_texts(toy):
    """The digest was written down once: other processes, Pythons and systems must meet it."""
    pairs = [sample_pairs(toy, operation, n=30, seed=7, keep="all") for operation in N_REFERENCES]
    texts = [t for p in pairs for t in (*p.reference_text, *p.counterfactual_text)]
    assert hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16] == "14bd0e5f16fdf207"


@pytest.mark.parametrize(
    "parts", [["▁pl", "us"], ["▁p", "lu", "s"], ["▁p", "l", "u", "s"]], ids=len
)
def test_a_long_operator_word_gets_a_null_phrase_of_its_length(parts):
    """Every null word is one piece here, so phrases of two to four words must stand in."""
    tokenizer = make_tokenizer({"plus": parts})
    wanted = [t.name for t in TEMPLATES["addition"] if t.word == "plus"]
    pairs = sample_pairs(tokenizer, keep="all", templates=wanted)
    texts = zip(pairs.reference_text, pairs.counterfactual_text, strict=True)
    assert {len(other.split()) - len(text.split()) for text, other in texts} == {len(parts) - 1}
    assert len({t.split(" plus ")[0] for t in pairs.counterfactual_text}) > 100, "many phrases"
    assert set(pairs.role_mask(Role.OPERATOR).sum(1).tolist()) == {len(parts)}
    assert torch.equal(pairs.reference != pairs.counterfactual, pairs.role_mask(Role.OPERATOR))


def test_a_template_without_a_candidate_is_named_and_can_be_helped():
    tokenizer = make_tokenizer({"plus": ["▁p", "l", "u", "s"]})
    few = {"templates": ["addition/1"], "keep": "all"}
    with pytest.raises(ValueError, match=r"template addition/1 .* under toy") as error:
        sample_pairs(tokenizer, null_words=["none", "null"], **few)
    assert "'plus' is 4 tokens" in str(error.value) and "none 1, null 1" in str(error.value)
    assert "null_words of 4 tokens" in str(error.value)
    helped = sample_pairs(tokenizer, null_words=["null void nil none"], **few)
    assert set(helped.role_mask(Role.OPERATOR).sum(1).tolist()) == {4}


def test_a_null_word_given_twice_is_one_counterfactual():
    tokenizer = make_tokenizer()
    options = {"templates": ["addition/1"], "keep": "all", "null_words": ["null", "null"]}
    with pytest.raises(ValueError, match=r"expected draws=2 .* found 1 under"):
        sample_pairs(tokenizer, draws=2, **options)
    assert len(sample_pairs(tokenizer, draws=1, **options)) == 36


def test_single_words_of_the_right_length_come_before_phrases():
    tokenizer = make_tokenizer(
        {"plus": ["▁pl", "us"]}
        | {w: [f"▁{w[:2]}", f"{w[2:]}"] for w in ("hollow", "barren", "nobody", "zilch")}
    )
    pairs = sample_pairs(tokenizer, keep="all", templates=["addition/5"])
    assert {t.split()[5] for t in pairs.counterfactual_text} == {
        "hollow",
        "barren",
        "nobody",
        "zilch",
    }


def test_operands_of_several_tokens_have_longer_spans(toy):
    pairs = sample_pairs(toy, "subtraction", n=200, keep="all", operands=range(95, 120))
    lengths = pairs.role_mask(Role.OPERAND_A).sum(1).tolist()
    assert lengths == [len(str(a)) for a in pairs.operands[:, 0].tolist()]
    assert {2, 3} == set(lengths)
    assert set(pairs.answer_text) <= set("0123456789")


def test_an_impossible_range_is_refused_and_explained(toy):
    with pytest.raises(
        ValueError, match=r"answer of one token .* found none in 100 problems"
    ) as error:
        sample_pairs(toy, operands=range(10, 20), keep="all")
    assert "▁1 0" not in str(error.value) and "10 + 10 = 20" in str(error.value)
    with pytest.raises(ValueError, match=r"expected division problems .* found none with"):
        sample_pairs(toy, "division", operands=[0], keep="all")


@pytest.mark.parametrize(
    "choice, message",
    [
        ({"operation": "modulus"}, "expected an operation of addition, .*, found 'modulus'"),
        ({"answer_token": "second"}, "answer_token among whole, first, last, found 'second'"),
        ({"counterfactual": "swap"}, "among word, operands, operator.* found 'swap'"),
        ({"keep": "wrong"}, "expected keep among correct, all, found 'wrong'"),
        (
            {"templates": "every"},
            "expected templates='operation', 'symbols', 'all' or names .* found 'every'",
        ),
        (
            {"templates": ["addition/0", "addition/9"]},
            "expected templates='operation', 'symbols', 'all' or names",
        ),
        ({"templates": ["story/13"]}, "names of addition's templates, .* story/12$"),
        ({"operation": "division", "templates": ["story/1"]}, "names of division's templates"),
        ({"templates": []}, "expected templates='operation', 'symbols', 'all' or names"),
        ({"n": 0}, "expected n as a whole number, 1 or more, found 0; give n=1"),
        ({"draws": 0}, "expected draws as a whole number, 1 or more, found 0"),
        ({"operands": []}, "expected at least one operand, .*, found none"),
    ],
    ids=str,
)
def test_unknown_choices_are_refused_with_what_is_accepted(toy, choice, message):
    with pytest.raises(ValueError, match=message):
        sample_pairs(toy, **{"keep": "all"} | choice)


def test_chosen_templates_only(toy):
    pairs = sample_pairs(toy, keep="all", templates=["addition/2", "addition/0"])
    assert set(pairs.template) == {"addition/0", "addition/2"} and len(pairs) == 72


def test_the_filter_asks_a_model_and_a_slow_tokenizer_is_refused(toy):
    with pytest.raises(ValueError, match="expected a model with keep='correct'"):
        sample_pairs(toy)
    with pytest.raises(ValueError, match=r"fast Hugging Face tokenizer, .* found SimpleN"):
        sample_pairs(SimpleNamespace(tokenizer=SimpleNamespace()), keep="all")


def test_the_filter_keeps_what_the_model_answers_and_says_so(toy):
    """The oracle knows sums above 5 but for template 3's: shares and means are counted by hand."""
    every = sample_pairs(toy, keep="all", seed=2)
    knows = [
        int(c) > 5 and name != "addition/3"
        for c, name in zip(every.answer_text, every.template, strict=True)
    ]
    model = Oracle(toy, every, knows)
    kept = sample_pairs(model, seed=2, batch_size=50)
    assert kept.reference_text == every.filter(knows).reference_text
    assert max(model.batches) == 50
    # Sums 6, 7, 8, 9 have 5 + 6 + 7 + 8 = 26 of the 36 problems.
    selection = kept.selection
    assert (selection.n_drawn, selection.n_kept) == (324, 8 * 26)
    assert selection.by_template["addition/3"] == (0, 36)
    assert selection.by_template["addition/0"] == (26, 36)
    wrong = 0.1 / (len(toy) - 1)
    expected = (208 * 0.9 + 116 * wrong) / 324
    assert selection.mean_probability == pytest.approx(expected, rel=1e-4)
    assert selection.counterfactual_correct == 0
    assert "kept 208 of 324 pairs (64.2%)" in kept.summary()
    assert "0.0% (addition/3) to 72.2%" in kept.summary()


def test_counterfactuals_that_are_still_answered_are_counted(toy):
    every = sample_pairs(toy, n=40, keep="all")
    model = Oracle(toy, every, [True] * 40)
    answered = Oracle(toy, every, [i < 10 for i in range(40)], side="counterfactual")
    model.answers |= answered.answers
    kept = keep_correct(model, every)
    assert len(kept) == 40 and kept.selection.counterfactual_correct == 0.25


@pytest.mark.parametrize(("n", "warned"), [(10, False), (11, True)])
def test_more_than_a_third_of_unchanged_answers_is_a_warning(toy, n, warned):
    """Ten of thirty pairs are exactly a third, which has no exact number in binary."""
    every = sample_pairs(toy, n=30, keep="all")
    model = Oracle(toy, every, [True] * 30)
    answered = Oracle(toy, every, [i < n for i in range(30)], side="counterfactual")
    model.answers |= answered.answers
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        keep_correct(model, every)
    assert ["answered with C after the counterfactual" in str(w.message) for w in caught] == (
        [True] if warned else []
    )


def test_an_empty_selection_says_the_models_accuracy(toy):
    every = sample_pairs(toy, keep="all")
    model = Oracle(toy, every, [False] * 324)
    with pytest.raises(
        ValueError, match=r"found 0 of 324 \(accuracy 0.0%, mean p\(C\) 0\."
    ) as error:
        sample_pairs(model)
    assert "keep='all'" in str(error.value) and "calculat" not in str(error.value), "of any task"


def test_logits_that_are_not_finite_are_refused(toy):
    every = sample_pairs(toy, n=9, keep="all")

    def broken(tokens, **_):
        return torch.full((len(tokens), 1, 50), float("nan"))

    with pytest.raises(ValueError, match=r"expected finite logits, .* END of 9 of 9 reference"):
        keep_correct(broken, every)


@pytest.mark.parametrize("batch_size", [1, 7, 128])
def test_a_real_model_is_judged_as_it_judges_each_prompt_alone(llama, batch_size):
    """Left padding and batching must not change what the model answers."""
    pairs = sample_pairs(llama, "addition", n=18, keep="all", seed=1)
    alone = []
    for tokens, mask in zip(pairs.reference, pairs.attention_mask, strict=True):
        alone.append(llama(tokens[mask][None])[0, -1])
    alone = torch.stack(alone).detach()
    # Let the model be right on half: call what it says the answer.
    said = alone.argmax(-1)
    answers = torch.where(torch.arange(18) % 2 == 0, said, (said + 1) % len(llama.tokenizer))
    kept = keep_correct(llama, replace(pairs, answer=answers), batch_size=batch_size)
    assert kept.reference_text == pairs[::2].reference_text
    p = alone.softmax(-1).gather(-1, answers[:, None]).mean()
    assert kept.selection.mean_probability == pytest.approx(float(p), rel=1e-4)


@pytest.mark.parametrize("n", ["12", 2.5])
def test_a_number_of_another_type_is_refused(toy, n):
    untyped: Any = unwrap(sample_pairs)  # as users call it, without the types that tests check
    with pytest.raises(ValueError, match=f"expected n as a whole number, 1 or more, found {n!r}"):
        untyped(toy, n=n, keep="all")


def test_several_operations_are_refused_with_their_sum(toy):
    untyped: Any = unwrap(sample_pairs)
    with pytest.raises(TypeError, match=r"expected the name of one operation, found \['add.* \+ "):
        untyped(toy, ["addition", "division"], keep="all")


def test_a_template_that_does_not_fit_is_left_out_and_named():
    """`▁+` is one token, and `▁ <` are two, as where few pairs of characters were merged."""
    tokenizer = make_tokenizer()
    signs = "".join(map(re.escape, NULL_SYMBOLS))
    pattern = rf"▁(?=[{signs}])|▁[A-Za-z]+|▁[^\w▁]|▁|\d|."
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    with pytest.warns(UserWarning, match=r"found 1 that do not, .* left them out: addition/0") as w:
        pairs = sample_pairs(tokenizer, keep="all")
    assert set(pairs.template) == {f"addition/{i}" for i in range(1, 9)}
    assert w[0].filename == __file__ or "type_checks" in w[0].filename
    with pytest.raises(ValueError, match="'\\+' is 1 token, found tokens in its place, with") as e:
        sample_pairs(tokenizer, keep="all", templates=["addition/0", "addition/1"])
    assert "< 2, > 2" in str(e.value), "the blank before these is a token of its own"
    lines = str(e.value).splitlines()
    assert lines[1] == "  reference         8 tokens  <s> ▁ 1 [▁+] ▁ 1 ▁= ▁"
    assert lines[2] == "  counterfactual    9 tokens  <s> ▁ 1 [▁] < ▁ 1 ▁= ▁"


def test_if_no_template_fits_the_first_error_is_raised():
    with pytest.raises(ValueError, match=r"after template addition/0 .* in 100 problems"):
        sample_pairs(make_tokenizer({}), keep="all", operands=range(10, 20), templates="operation")


def test_counterfactuals_that_change_little_are_warned_of(toy):
    every = sample_pairs(toy, n=40, keep="all")
    model = Oracle(toy, every, [True] * 40)
    model.answers |= Oracle(toy, every, [True] * 40, side="counterfactual").answers
    with pytest.warns(UserWarning, match="found that 100% of the 40 kept pairs are answered with"):
        keep_correct(model, every)
