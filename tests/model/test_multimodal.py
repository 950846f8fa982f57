"""Models of images and texts: their text part is loaded, and nothing is installed for the rest."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from arith_lens.model import empty_model, load_model
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import plan

TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


@pytest.fixture(autouse=True)
def nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(command: Any, *_: Any, **__: Any) -> Any:
        pytest.fail(f"{command} would change the environment")

    for name in ("run", "call", "check_call", "check_output", "Popen"):
        monkeypatch.setattr(subprocess, name, refused)


def test_the_text_part_of_gemma_3_computes_as_in_transformers(
    tmp_path: Path, tokenizer: Any
) -> None:
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    vision = VISION | {"model_type": "siglip_vision_model"}
    text = TEXT | {"vocab_size": len(tokenizer), "initializer_range": 0.15}
    settings: dict[str, Any] = {"mm_tokens_per_image": 4, "attn_implementation": "eager"}
    config = Gemma3Config(
        text_config=text, vision_config=vision, image_token_index=len(tokenizer) - 1, **settings
    )
    hf = Gemma3ForConditionalGeneration(config).eval()
    hf.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    tokens = torch.arange(9)[None] + 5
    with torch.no_grad():
        expected = hf(tokens).logits
    model = load_model(tmp_path)
    torch.testing.assert_close(model(tokens), expected, rtol=0, atol=1e-5)
    assert not torch.equal(model(tokens), model(tokens + 1))
    pairs = PromptPairs.from_tokens(tokens, tokens + 1, tokens[:, 0])
    planned = plan(model, pairs)
    (tmp_path / "model.safetensors").unlink()
    assert plan(empty_model(tmp_path), pairs) == planned
    assert plan(empty_model(tmp_path), pairs, senders=["0.0"]) != planned


def test_a_package_that_a_family_needs_is_named(
    tmp_path: Path, make_hf: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformer_lens.model_bridge.supported_architectures.llama import LlamaArchitectureAdapter

    library = "a_library_that_nobody_has"
    monkeypatch.setattr(LlamaArchitectureAdapter, "required_libraries", [library], raising=False)
    with pytest.raises(ImportError, match=rf"expected the packages .*{library}.*install it, or"):
        load_model((make_hf("llama"), tokenizer))


@pytest.mark.parametrize("named", [{}, {"model_type": "made_up_vl"}])
def test_an_unknown_model_of_images_has_one_clear_error(
    tmp_path: Path, make_hf: Any, tokenizer: Any, named: dict[str, str]
) -> None:
    make_hf("llama").save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    settings = named | {"architectures": ["MadeUpForConditionalGeneration"], "text_config": TEXT}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"expected a family of models that Transformers knows"):
        load_model(tmp_path)
