"""The harness's own class for Transformers reads the same tokens from the same folder."""

from pathlib import Path
from typing import Any

import pytest
from support.text_folders import ADD_BOS, text_folder

pytest.importorskip("lm_eval", reason="needs lm_eval")

from lm_eval.api.instance import Instance

from arith_lens.evaluation.hooked_lm import HookedLM
from arith_lens.model import load_model

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
