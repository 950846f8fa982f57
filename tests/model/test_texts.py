"""Text becomes tokens in one way, that of the checkpoint's own tokenizer."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support.text_folders import ADD_BOS, SETTINGS, text_folder
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoTokenizer

from arith_lens.answers.answering import Question, answer_questions
from arith_lens.attention import patterns_of
from arith_lens.components import Head
from arith_lens.fine_tuning.training import tokenized_examples
from arith_lens.knockout import knockout_hooks
from arith_lens.knockout.means import tokens_that_count
from arith_lens.model import empty_model, load_model, record
from arith_lens.pairs import PromptPairs, Role, sample_pairs
from arith_lens.probes import lens_table
from arith_lens.runs.manifest import describe_model, identity_of
from arith_lens.word_problems.convert import WordProblem, word_problem_pairs
from arith_lens.word_problems.phrases import PhraseEdit

TEXT = "3 plus 4 equals "
ROW = {"reference": TEXT, "counterfactual": "3 null 4 equals ", "answer": "7"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = text_folder(name, tmp_path_factory.mktemp("folders") / name)
        return made[name]

    return folder


def own_ids(folder: Path, name: str, text: str) -> list[int]:
    """What plain Transformers makes of a text, without what it adds at the end."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text)["input_ids"]
    adds_eos = ids[-1] == tokenizer.eos_token_id
    assert adds_eos == (name == "BOS and EOS")
    return ids[:-1] if adds_eos else ids


def answer_row(name: str) -> dict[str, str]:
    """The row with a blank where the tokenizer has it: in the prompt, or before the number."""
    if SETTINGS[name][1] != "joined":
        return ROW
    texts = {side: ROW[side].rstrip() for side in ("reference", "counterfactual")}
    return texts | {"answer": " 7"}


@torch.no_grad()
@pytest.mark.parametrize("name", SETTINGS)
def test_every_way_from_text_to_tokens_is_that_of_the_checkpoint(name: str, folders: Any) -> None:
    folder = folders(name)
    model, hf = load_model(folder), AutoModelForCausalLM.from_pretrained(folder)
    tokenizer, row = model.tokenizer, answer_row(name)
    text = row["reference"]
    expected = own_ids(folder, name, text)
    assert (expected[0] == tokenizer.bos_token_id) == ADD_BOS[name]
    pairs = PromptPairs.from_rows([row], model)
    (example,) = tokenized_examples(
        tokenizer, [(text, row["answer"])], max_length=None, end_with_eos=False
    )
    ways = {
        "pairs": pairs.reference[0].tolist(),
        "to_tokens": model.to_tokens(text)[0].tolist(),
        "several texts": model.to_tokens([text, f"{text}{row['answer']} and {text}"])[0].tolist(),
        "fine-tuning": list(example.input_ids[: example.n_prompt]),
        "patterns": tokenizer.convert_tokens_to_ids(
            [*patterns_of(model, text, [Head(0, 0)]).tokens[0]]
        ),
        "sampled pairs": sample_pairs(model, n=1, keep="all").reference[0].tolist(),
    }
    sampled = sample_pairs(model, n=1, keep="all").reference_text
    assert sampled is not None
    for way, ids in ways.items():
        own = own_ids(folder, name, sampled[0]) if way == "sampled pairs" else expected
        assert ids[-len(own) :] == own, way
        assert way == "several texts" or len(ids) == len(own), way
    logits = hf(torch.tensor([expected])).logits
    for way, found in {
        "text": model(text),
        "batch of texts": model([text]),
        "hooks": model.run_with_hooks(text, fwd_hooks=[]),
        "cache": model.run_with_cache(text)[0],
        "pairs": model(pairs.reference, attention_mask=pairs.attention_mask),
    }.items():
        assert_close(found, logits, atol=1e-5, rtol=1e-4, msg=way)
    assert lens_table(model, text).position.max() == len(expected) - 1
    assert (
        model.generate(text, max_new_tokens=3, stop_at_eos=False, return_type="tokens")[
            0, : len(expected)
        ].tolist()
        == expected
    )
    written = answer_questions(model, [Question(text, row["answer"])], max_new_tokens=1)
    first = int(logits[0, -1].argmax())
    assert tokenizer.decode([*expected, first], skip_special_tokens=True).endswith(written.said[0])
    another = [tokenizer.eos_token_id, *expected]
    assert not torch.allclose(hf(torch.tensor([another])).logits[:, -1], logits[:, -1], atol=1e-3)


@pytest.mark.parametrize("name", ["Qwen 2", "Llama 3", "BOS and EOS"])
def test_a_word_problem_has_the_tokens_of_its_text(name: str, folders: Any) -> None:
    tokenizer = load_model(folders(name)).tokenizer
    edit = PhraseEdit(TEXT.index("plus"), TEXT.index(" 4"), ("null", "void"), needed=True)
    pairs, _ = word_problem_pairs(tokenizer, [WordProblem(TEXT, "7", (edit,))])
    assert pairs.reference[0].tolist() == own_ids(folders(name), name, TEXT)


@pytest.mark.parametrize("name", ["GPT-2", "SmolLM2", "Llama 3", "Gemma"])
def test_an_option_puts_bos_in_front_or_leaves_it_out_and_records_say_so(
    name: str, folders: Any
) -> None:
    folder = folders(name)
    plain, adds = AutoTokenizer.from_pretrained(folder), ADD_BOS[name]
    alone = plain(TEXT, add_special_tokens=False)["input_ids"]
    rows, identities = {}, {}
    for bos in (None, True, False):
        model = load_model(folder, bos=bos)
        rows[bos] = model.to_tokens(TEXT)[0].tolist()
        assert model.tokenizer(TEXT)["input_ids"] == rows[bos]
        assert empty_model(folder, bos=bos).to_tokens(TEXT)[0].tolist() == rows[bos]
        expected = plain.bos_token if (adds if bos is None else bos) else None
        assert model.first_token == describe_model(model)["first_token"] == expected
        assert f"first_token={expected!r}" in repr(model)
        identities[bos] = json.dumps(identity_of(model, None), sort_keys=True)
    assert rows == {None: rows[adds], True: [plain.bos_token_id, *alone], False: alone}
    assert identities[True] != identities[False]
    assert identities[None] == identities[adds]


def test_a_tokenizer_in_memory_follows_the_option_and_stays_as_it_is(
    make_hf: Any, tokenizer: Any
) -> None:
    model = load_model((make_hf(), tokenizer), bos=False)
    assert model.to_tokens("3 plus")[0].tolist() == tokenizer("3 plus").input_ids[1:]
    assert tokenizer("3 plus").input_ids[0] == tokenizer.bos_token_id
    without = copy.deepcopy(tokenizer)
    without.bos_token = None
    with pytest.raises(ValueError, match="expected a tokenizer with BOS for bos=True, found"):
        load_model((make_hf(), without), bos=True)


@pytest.mark.parametrize("name", ["Llama 3", "BOS and EOS", "Gemma"])
def test_a_text_that_begins_with_bos_gets_no_second_one(name: str, folders: Any) -> None:
    """As a chat template writes it."""
    model = load_model(folders(name))
    bos, once = model.tokenizer.bos_token, model.to_tokens(TEXT)[0].tolist()
    assert model.to_tokens(bos + TEXT)[0].tolist() == once
    row = {side: bos + ROW[side] for side in ("reference", "counterfactual")}
    pairs = PromptPairs.from_rows([row | {"answer": "7"}], model)
    assert pairs.reference[0].tolist() == once
    doubled = AutoTokenizer.from_pretrained(folders(name))(bos + TEXT)["input_ids"]
    assert doubled[:2] == [model.tokenizer.bos_token_id] * 2, "Transformers puts one more"


def test_a_part_of_a_prompt_is_tokenized_alone(folders: Any) -> None:
    model = load_model(folders("Llama 3"))
    whole = model.to_tokens(TEXT)
    assert torch.equal(model.to_tokens(TEXT, prepend_bos=False), whole[:, 1:])
    assert torch.equal(model.to_tokens(TEXT, prepend_bos=True), whole)
    assert torch.equal(model(TEXT, prepend_bos=False), model(whole[:, 1:]))
    with pytest.raises(ValueError, match="expected texts of at least one token"):
        model.to_tokens("", prepend_bos=False)


@torch.no_grad()
def test_the_first_token_is_like_any_other_where_there_is_no_bos(folders: Any) -> None:
    """Against the same replacement in plain Transformers, of every token."""
    model = load_model(folders("SmolLM2"))
    pairs = PromptPairs.from_rows([answer_row("SmolLM2")], model)
    text = pairs.reference_text[0]  # pyright: ignore[reportOptionalSubscript]
    assert tokens_that_count(pairs, model.tokenizer).all()
    sampled = sample_pairs(model, n=4, keep="all")
    assert not sampled.role_mask(Role.BOS).any()
    hf = AutoModelForCausalLM.from_pretrained(folders("SmolLM2"))
    hf.model.layers[1].mlp.register_forward_hook(lambda *args: torch.zeros_like(args[-1]))
    hooks = knockout_hooks(model, ["MLP 1"], ablation="zero")
    found = model.run_with_hooks(text, fwd_hooks=hooks)
    assert_close(found, hf(pairs.reference).logits, atol=1e-5, rtol=1e-4)
    with_bos = torch.tensor([[model.tokenizer.bos_token_id, *pairs.reference[0].tolist()]])
    spared = model.run_with_hooks(with_bos, fwd_hooks=hooks)
    assert not torch.allclose(spared[:, 0], hf(with_bos).logits[:, 0], atol=1e-3), "BOS is spared"


@torch.no_grad()
def test_pairs_and_hooks_spare_bos_wherever_it_stands(folders: Any) -> None:
    """A chat's text has it several times."""
    model = load_model(folders("SmolLM2"))
    start = model.tokenizer.bos_token
    row = answer_row("SmolLM2")
    row |= {side: f"{start}3{start}{row[side]}" for side in ("reference", "counterfactual")}
    pairs = PromptPairs.from_rows([row], model)
    counted = tokens_that_count(pairs, model.tokenizer)[0]
    assert (~counted).nonzero()[:, 0].tolist() == [0, 2]
    name = "blocks.0.hook_mlp_out"
    hooks = knockout_hooks(model, ["MLP 0"], ablation="zero")
    with model.hooks(hooks):
        written = record(model, pairs.reference, [name])[name][0]
    assert torch.equal(written.abs().sum(-1) == 0, counted)


@pytest.mark.parametrize("architecture", ["Qwen2", "Gemma"])
def test_a_tokenizer_that_gives_another_text_back_is_refused(
    architecture: str, tmp_path: Path, tokenizer: Any, folders: Any
) -> None:
    """Transformers puts the usual class of the model's family in place of the folder's."""
    name = {"Qwen2": "Qwen 2", "Gemma": "Gemma"}[architecture]
    shutil.copytree(folders(name), tmp_path / "mixed")
    other = folders("GPT-2") if architecture == "Gemma" else folders("Gemma")
    shutil.copy(other / "tokenizer.json", tmp_path / "mixed")
    with pytest.raises(ValueError, match=r"gives a text back, found that .* of another kind"):
        load_model(tmp_path / "mixed")
    load_model(folders(name))
