"""A wrapped model is still its owner's: Transformers saves it under its own names."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from support.families import EVERY
from transformers import AutoModelForCausalLM

from arith_lens.model import load_model


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", ["Qwen2", "GPT-2", "Gemma 3", "Mixtral"])
def test_transformers_saves_a_wrapped_model_as_before(
    family: str, tied: bool, tmp_path: Path
) -> None:
    hf = EVERY[family].make(60, tie_word_embeddings=tied)
    tokens = torch.arange(9)[None] + 5
    with torch.no_grad():
        expected = hf(tokens).logits
    hf.save_pretrained(tmp_path / "before")
    model = load_model((hf, None))
    changed = copy.deepcopy(hf)
    for name, folder, source in (("after", "after", hf), ("copy", "copy", changed)):
        if name == "copy":
            changed.get_input_embeddings().weight.data.mul_(2)
        source.save_pretrained(tmp_path / folder)
        again = AutoModelForCausalLM.from_pretrained(tmp_path / folder, attn_implementation="eager")
        with torch.no_grad():
            is_same = torch.equal(again(tokens).logits, expected)
        assert is_same == (name == "after")
    before, after = ((tmp_path / name / "model.safetensors") for name in ("before", "after"))
    assert before.read_bytes() == after.read_bytes()
    torch.testing.assert_close(model(tokens), expected, rtol=0, atol=1e-5)


def test_a_model_from_a_folder_is_saved_as_it_was(
    make_hf: Any, tokenizer: Any, tmp_path: Path
) -> None:
    make_hf("llama").save_pretrained(tmp_path / "before")
    tokenizer.save_pretrained(tmp_path / "before")
    model = load_model(tmp_path / "before")
    model.bridge.original_model.save_pretrained(tmp_path / "after")
    before, after = ((tmp_path / name / "model.safetensors") for name in ("before", "after"))
    assert before.read_bytes() == after.read_bytes()
