"""Every template under real tokenizers: alignment, and END is the token before C."""
# Fields that bare tokens lack are None; here they are known.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportOptionalIterable=false, reportArgumentType=false

import base64
import functools
import operator as op
import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from tokenizers import Regex as Pattern
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaTokenizer, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from arith_lens.operations import IN_PAPER
from arith_lens.pairs import Role, sample_pairs
from arith_lens.templates import FIGURE_10, NULL_SYMBOLS, NULL_WORDS, SLOTS, TEMPLATES

N_REFERENCES = dict(zip(IN_PAPER, (324, 405, 207, 207, 40), strict=True))
ANSWER = dict(zip(IN_PAPER, (op.add, op.sub, op.mul, op.floordiv, op.pow), strict=True))
LLAMA_3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT_2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


STORIES = [story.name for story in FIGURE_10]


def story_texts() -> list[str]:
    """The stories' constant words, and each word of their lists as it stands in a sentence."""
    words = [f" {word}" for listed in SLOTS.values() for word in listed] + list(SLOTS["NAME"])
    return [*words, *(s.text for s in FIGURE_10), *(s.counterfactual for s in FIGURE_10)]


def byte_level(ranks: dict[bytes, int], split: str, bos: str | None) -> PreTrainedTokenizerFast:
    """A tiktoken-like tokenizer: ranks are merge order. Ids are not the model's own."""
    letter = bytes_to_unicode()

    def write(token: bytes) -> str:
        return "".join(letter[byte] for byte in token)

    ordered = sorted(ranks, key=ranks.__getitem__)
    merges = []
    for token in ordered:
        halves = [(token[:i], token[i:]) for i in range(1, len(token))]
        known = [half for half in halves if half[0] in ranks and half[1] in ranks]
        merges += [
            (write(a), write(b)) for a, b in sorted(known, key=lambda h: (ranks[h[0]], ranks[h[1]]))
        ]
    vocabulary = {write(token): i for i, token in enumerate(ordered)}
    backend = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Pattern(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    if bos:
        backend.add_special_tokens([bos])
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, backend.token_to_id(bos))]
        )
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=bos)


def llama_3(directory: Path):
    """Llama-3's ranks, cut to the tokens that can occur in our prompts: merging stays the same."""
    path = directory / "tokenizers" / "llama3" / "tokenizer.model"
    if not path.is_file():
        pytest.skip(f"needs {path}")
    templates = [t for group in TEMPLATES.values() for t in group]
    texts = [t.render(1, 2)[0] for t in templates] + [
        f" {w} " for w in (*NULL_WORDS, *NULL_SYMBOLS)
    ]
    text = "\n".join(texts + story_texts()).encode()
    numbers = {str(n).encode() for n in range(1000)}
    ranks = {}
    for line in path.read_text(encoding="ascii").splitlines():
        encoded, rank = line.split()
        token = base64.b64decode(encoded)
        if len(token) == 1 or token in numbers or token in text:
            ranks[token] = int(rank)
    return byte_level(ranks, LLAMA_3_SPLIT, "<|begin_of_text|>")


def made(split: str, bos: str | None):
    """A tokenizer with a token for each word and number of our prompts, and its beginnings."""
    texts = [f" {n}" for n in range(100)] + [str(n) for n in range(100)]
    for template in (t for group in TEMPLATES.values() for t in group):
        texts += template.render(1, 2)[0].split() + [f" {w}" for w in template.text.split()]
        texts.append(f" {template.word}")
    texts += [f" {word}" for word in (*NULL_WORDS, *NULL_SYMBOLS)]
    texts += [f" {word}" for text in story_texts() for word in text.split() if "{" not in word]
    prefixes = {text[:i].encode() for text in texts for i in range(1, len(text) + 1)}
    letters = {bytes([byte]) for byte in range(256)}
    ordered = sorted(letters | prefixes, key=lambda token: (len(token), token))
    return byte_level({token: i for i, token in enumerate(ordered)}, split, bos)


def joined_numbers():
    """GPT-2's way: a space belongs to the number after it, and there is no BOS."""
    return made(GPT_2_SPLIT, None)


def separate_spaces():
    """Llama-3's way: a space before a number is a token of its own. Words are not Llama-3's."""
    return made(LLAMA_3_SPLIT, "<|begin_of_text|>")


PUBLISHED = ("llama2", "mistral", "llama3")
NO_DATA = {"joined numbers": joined_numbers, "separate spaces": separate_spaces}


@pytest.fixture(scope="module")
def cut_llama_3(data_directory):
    return llama_3(data_directory)


@pytest.fixture(scope="module", params=[*PUBLISHED, *NO_DATA])
def tokenizer(request: pytest.FixtureRequest):
    if request.param in NO_DATA:
        return NO_DATA[request.param]()
    if request.param == "llama3":
        return request.getfixturevalue("cut_llama_3")
    return request.getfixturevalue("real_tokenizer")(request.param)


@pytest.fixture(scope="module")
def sampled(tokenizer):
    """All pairs of an operation, drawn once."""
    return functools.cache(lambda operation: sample_pairs(tokenizer, operation, keep="all"))


def splits_digits(tokenizer) -> bool:
    return len(tokenizer.tokenize("12")) > len(tokenizer.tokenize("1"))


@pytest.mark.parametrize("operation", IN_PAPER)
def test_every_template_aligns_and_end_stands_before_the_answer(tokenizer, sampled, operation):
    pairs = sampled(operation)
    assert set(pairs.template) == {template.name for template in TEMPLATES[operation]}
    if splits_digits(tokenizer):
        assert len(pairs) == N_REFERENCES[operation]
    else:
        assert len(pairs) > N_REFERENCES[operation] or operation in ("subtraction", "division")
    rows = zip(pairs.reference, pairs.counterfactual, pairs.attention_mask, strict=True)
    ids = [(row[mask].tolist(), other[mask].tolist()) for row, other, mask in rows]
    answers = [ANSWER[operation](a, b) for a, b in pairs.operands.tolist()]
    # What follows END, from the text: at most one space, then C.
    whole = [f"{t.rstrip(' ')} {c}" for t, c in zip(pairs.reference_text, answers, strict=True)]
    assert [prompt for prompt, _ in ids] == tokenizer(list(pairs.reference_text))["input_ids"]
    assert [other for _, other in ids] == tokenizer(list(pairs.counterfactual_text))["input_ids"]
    assert all(len(prompt) == len(other) and prompt != other for prompt, other in ids)
    assert tokenizer(whole)["input_ids"] == [
        [*prompt, c] for (prompt, _), c in zip(ids, pairs.answer.tolist(), strict=True)
    ]
    said = tokenizer.batch_decode(pairs.answer[:, None])
    assert [int(text) for text in said] == answers


@pytest.mark.parametrize("operation", IN_PAPER)
def test_operands_and_operator_are_where_the_roles_say(tokenizer, sampled, operation):
    pairs = sampled(operation)
    words = {template.name: template.word for template in TEMPLATES[operation]}
    said = {
        Role.OPERAND_A: [str(a) for a, _ in pairs.operands.tolist()],
        Role.OPERAND_B: [str(b) for _, b in pairs.operands.tolist()],
        Role.OPERATOR: [words[name] for name in pairs.template],
    }
    for role, expected in said.items():
        masks = pairs.role_mask(role)
        rows = [row[mask].tolist() for row, mask in zip(pairs.reference, masks, strict=True)]
        assert [text.strip() for text in tokenizer.batch_decode(rows)] == expected
        if role is not Role.OPERATOR:
            assert torch.equal(pairs.reference[masks], pairs.counterfactual[masks])
    changed = pairs.reference != pairs.counterfactual
    assert not (changed & ~pairs.role_mask(Role.OPERATOR)).any()


@pytest.mark.parametrize("operation", ["addition", "subtraction", "multiplication", "division"])
@pytest.mark.parametrize("templates", ["symbols", None])
def test_examples_before_a_problem_leave_its_tokens_and_its_answer_as_they_are(
    tokenizer, operation, templates
):
    """Against the tokenizer itself, on the whole text: no token joins a line to the next one."""
    options = {} if templates is None else {"templates": templates}
    pairs = sample_pairs(tokenizer, operation, keep="all", n=12, shots=4, **options)
    bos = int(tokenizer.bos_token is not None)
    answers = [ANSWER[operation](a, b) for a, b in pairs.operands.tolist()]
    columns = (pairs.reference_text, pairs.counterfactual_text, pairs.examples, answers)
    for row, (text, other, examples, answer) in enumerate(zip(*map(list, columns), strict=True)):  # type: ignore
        mask = pairs.attention_mask[row]
        ids, changed = pairs.reference[row][mask].tolist(), pairs.counterfactual[row][mask].tolist()
        assert [ids, changed] == tokenizer([text, other])["input_ids"]
        assert text.startswith(examples) and other.startswith(examples)
        assert tokenizer(f"{text.rstrip(' ')} {answer}")["input_ids"] == [*ids, pairs.answer[row]]
        assert int(tokenizer.decode([pairs.answer[row]])) == answer
        of_examples = pairs.role_mask(Role.EXAMPLES)[row][mask]
        n = int(of_examples.sum())
        assert of_examples[bos : bos + n].all(), "examples are right after BOS"
        assert tokenizer.decode(ids[bos : bos + n]).strip() == examples.strip()
        assert ids[: bos + n] == changed[: bos + n] and ids != changed
        lines = examples.strip().splitlines()
        assert len(lines) == 4 and all(line.split()[-1] != str(answer) for line in lines)
        for role, operand in zip(
            (Role.OPERAND_A, Role.OPERAND_B), pairs.operands[row], strict=True
        ):
            said = tokenizer.decode(pairs.reference[row][pairs.role_mask(role)[row]])
            assert int(said) == operand


def test_bos_is_a_role_where_there_is_one(tokenizer):
    pairs = sample_pairs(tokenizer, keep="all", n=9)
    bos = pairs.role_mask(Role.BOS)
    assert bos.sum(1).tolist() == [int(tokenizer.bos_token is not None)] * 9
    assert set(pairs.reference[bos].tolist()) <= {tokenizer.bos_token_id}


@pytest.mark.parametrize("name", ["llama2", "mistral"])
def test_end_is_the_blank_piece_under_sentencepiece(real_tokenizer, name):
    tokenizer = real_tokenizer(name)
    for operation in IN_PAPER:
        pairs = sample_pairs(tokenizer, operation, keep="all", n=40)
        assert set(tokenizer.convert_ids_to_tokens(pairs.reference[:, -1].tolist())) == {"▁"}


def test_minus_is_two_pieces_under_mistral_and_so_is_its_null_word(real_tokenizer):
    tokenizer = real_tokenizer("mistral")
    pairs = sample_pairs(tokenizer, "subtraction", keep="all", templates=["subtraction/1"])
    masks = pairs.role_mask(Role.OPERATOR)
    assert tokenizer.convert_ids_to_tokens(pairs.reference[0][masks[0]].tolist()) == ["▁min", "us"]
    assert masks.sum(1).eq(2).all()
    assert len({text.split()[1] for text in pairs.counterfactual_text}) >= 4


def test_a_space_joined_to_numbers_is_cut_from_the_prompt():
    tokenizer = joined_numbers()
    pairs = sample_pairs(tokenizer, keep="all", templates=["addition/0"])
    assert len(pairs) == 81, "two-digit answers are one token here"
    assert pairs.reference_text[0] == "1 + 1 ="
    assert tokenizer.convert_ids_to_tokens(pairs.answer[:1].tolist()) == ["Ġ2"]


def test_the_tokenizer_of_a_copied_folder_draws_the_same(data_directory, real_tokenizer, tmp_path):
    """The draw hangs on what the tokenizer does, not on where it lies."""
    source = data_directory / "tokenizers" / "llama2"
    shutil.copy(source / "tokenizer.model", tmp_path)
    copied = LlamaTokenizer.from_pretrained(tmp_path, add_bos_token=True)
    one = sample_pairs(real_tokenizer("llama2"), n=50, keep="all")
    assert sample_pairs(copied, n=50, keep="all").counterfactual_text == one.counterfactual_text


def stories(tokenizer) -> list[str]:
    """Those a tokenizer can tell: one that joins numbers has no token for a year's last digit."""
    return STORIES[2:] if tokenizer.bos_token is None else STORIES


def test_every_story_aligns_and_end_stands_before_the_answer(tokenizer):
    names = stories(tokenizer)
    pairs = sample_pairs(tokenizer, keep="all", templates=names, n=30 * len(names))
    assert Counter(pairs.template) == dict.fromkeys(names, 30)
    assert pairs.n_distinct == len(set(pairs.reference_text)) == len(pairs)
    rows = zip(pairs.reference, pairs.counterfactual, pairs.attention_mask, strict=True)
    ids = [(row[mask].tolist(), other[mask].tolist()) for row, other, mask in rows]
    assert [prompt for prompt, _ in ids] == tokenizer(list(pairs.reference_text))["input_ids"]
    assert [other for _, other in ids] == tokenizer(list(pairs.counterfactual_text))["input_ids"]
    assert all(len(prompt) == len(other) and prompt != other for prompt, other in ids)
    sums = [a + b for a, b in pairs.operands.tolist()]
    ends = ["" if text[-1].isdigit() else " " for text in pairs.reference_text]
    whole = [
        f"{t.rstrip(' ')}{end}{c}"
        for t, end, c in zip(pairs.reference_text, ends, sums, strict=True)
    ]
    assert tokenizer(whole)["input_ids"] == [
        [*prompt, c] for (prompt, _), c in zip(ids, pairs.answer.tolist(), strict=True)
    ]


def test_a_storys_operands_have_roles_and_its_operator_none(tokenizer):
    names = stories(tokenizer)
    pairs = sample_pairs(tokenizer, keep="all", templates=names, n=10 * len(names))
    for role, place in ((Role.OPERAND_A, 0), (Role.OPERAND_B, 1)):
        masks = pairs.role_mask(role)
        for tokens in (pairs.reference, pairs.counterfactual):
            rows = [row[mask].tolist() for row, mask in zip(tokens, masks, strict=True)]
            said = [text.strip() for text in tokenizer.batch_decode(rows)]
            assert said == [str(n) for n in pairs.operands[:, place].tolist()]
    assert not pairs.role_mask(Role.OPERATOR).any()
    assert torch.equal(pairs.reference[:, -1], pairs.counterfactual[:, -1])
    has_bos = tokenizer.bos_token is not None
    assert pairs.role_mask(Role.BOS).sum(1).eq(int(has_bos)).all()


def test_a_storys_counterfactual_changes_words_for_words_of_as_many_pieces(tokenizer):
    """Word for word, so that what is not changed stands at its own place."""
    pairs = sample_pairs(tokenizer, keep="all", templates=STORIES[8:], n=80)
    for text, other in zip(pairs.reference_text, pairs.counterfactual_text, strict=True):
        changed = [(a, b) for a, b in zip(text.split(), other.split(), strict=True) if a != b]
        assert 2 <= len(changed) <= 3
        for words in changed:
            lengths = {len(tokenizer(f"The {word} is")["input_ids"]) for word in words}
            assert len(lengths) == 1


def test_a_year_takes_one_digit_and_a_clock_twelve_hours(cut_llama_3):
    """Llama-3 has 10 to 18 as one token, but no year ends in 15018 and no clock says 18 pm."""
    pairs = sample_pairs(cut_llama_3, keep="all", templates=STORIES)
    largest = {name: 0 for name in STORIES}
    for name, ab in zip(pairs.template, pairs.operands.tolist(), strict=True):
        largest[name] = max(largest[name], sum(ab))
    assert list(largest.values()) == [9] * 2 + [18] * 2 + [12] * 4 + [18] * 4
