"""The harness's own class for Transformers reads the same tokens from the same folder."""

from pathlib import Path
from typing import Any

import pytest
from support.text_folders import ADD_BOS, text_folder

pytest.importorskip("lm_eval", reason="needs lm_eval")

from lm_eval.api.instance import Instance

from arith_lens.evaluation.hooked_lm import HookedLM
from arith_lens.model import load_model
from arith_lens.pairs import PromptPairs

harness_models: Any = pytest.importorskip("lm_eval.models.huggingface")


@pytest.mark.parametrize("name", ["Qwen 2", "GPT-2", "SmolLM2", "Llama 3", "Gemma"])
def test_contexts_and_choices_have_the_harnesss_tokens_and_likelihoods(
    name: str, tmp_path: Path
) -> None:
    folder = text_folder(name, tmp_path / "folder")
    theirs = harness_models.HFLM(pretrained=str(folder), device="cpu", batch_size=1)
    ours = HookedLM(load_model(folder), progress=False)
    start = ours.tokenizer.decode(ours.prefix_token_id)
    texts = ["3 plus 4 equals", f"{start}3 plus 4", "Question: 3"]
    for text in texts:
        assert ours.tok_encode(text) == theirs.tok_encode(text)
    begins = ours.tok_encode(texts[0])[0] == ours.prefix_token_id
    assert begins == ADD_BOS[name], "BOS stands where the checkpoint puts it"
    pairs = [(texts[0], " 7"), (texts[2], " plus 4"), ("", "7 plus 4")]
    requests = [Instance("loglikelihood", {}, pair, i, ("t", i, 1)) for i, pair in enumerate(pairs)]
    found = [logprob for logprob, _ in ours.loglikelihood(requests)]
    expected = [logprob for logprob, _ in theirs.loglikelihood(requests, disable_tqdm=True)]
    assert found == pytest.approx(expected, abs=1e-4)
    assert len({round(value, 3) for value in expected}) == len(pairs)


@pytest.mark.parametrize("name", ["SmolLM2", "Llama 3"])
def test_pairs_in_a_chat_have_the_harnesss_tokens(name: str, tmp_path: Path) -> None:
    folder = text_folder(name, tmp_path / "folder")
    theirs = harness_models.HFLM(pretrained=str(folder), device="cpu", batch_size=1)
    model = load_model(folder)
    for tokenizer in (theirs.tokenizer, model.tokenizer):
        bos = "{{ bos_token }}" * ADD_BOS[name]
        tokenizer.chat_template = bos + "Question: {{ messages[0]['content'] }} equals"
    row = {"reference": "3 plus 4", "counterfactual": "3 plus 7", "answer": " plus"}
    pairs = PromptPairs.from_rows([row], model, chat=True)
    for side in ("reference", "counterfactual"):
        text = theirs.apply_chat_template([{"role": "user", "content": row[side]}])
        ids = theirs.tok_encode(text)
        assert getattr(pairs, f"{side}_text") == (text,) and text.endswith(" equals")
        assert getattr(pairs, side)[0].tolist() == ids
