"""What `load_model` and `plan` take: loaded models, models without weights, names with a slip."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.families import GROUPED, Family

import arith_lens as al
from arith_lens.model import HookedModel
from arith_lens.pairs.files import write_csv, write_jsonl
from arith_lens.path_patching import UnsupportedTrunk


@pytest.fixture
def pairs() -> al.PromptPairs:
    tokens = torch.arange(18).reshape(2, 9) + 5
    return al.PromptPairs.from_tokens(tokens, tokens.roll(1, 0), tokens[:, 0])


def test_a_loaded_model_is_returned_as_it_is(llama: HookedModel) -> None:
    assert al.load_model(llama) is llama
    assert al.load_model(llama, dtype="float32", device="cpu") is llama
    with pytest.raises(ValueError, match=r"expected a loaded model as it is, in torch\.float32"):
        al.load_model(llama, dtype="bfloat16")


def test_a_slip_in_a_shipped_models_name_is_pointed_out() -> None:
    with pytest.raises(ConnectionError, match=r"did you mean 'reference'\?$"):
        al.load_model("refrence")
    with pytest.raises(ConnectionError) as refused:
        al.load_model("quite-another-model")
    assert "did you mean" not in str(refused.value)


def test_a_model_on_the_meta_device_is_planned_as_the_loaded_one(
    make_hf: Any, pairs: al.PromptPairs
) -> None:
    expected = al.plan(al.load_model((make_hf("llama"), None)), pairs)
    with torch.device("meta"):
        hf = type(make_hf("llama"))(make_hf("llama").config).eval()
    for load in (al.load_model, al.empty_model):
        assert al.plan(load((hf, None)), pairs) == expected
    assert all(weight.is_meta for weight in hf.parameters()), "it stays as it is"


def test_the_sweep_refuses_llama_4_by_name_before_it_computes(pairs: al.PromptPairs) -> None:
    sizes = GROUPED | {"head_dim": 8, "intermediate_size_mlp": 48, "num_local_experts": 2}
    hf = Family("Llama4Text", sizes | {"interleave_moe_layer_step": 1})
    model = al.load_model((_llama_4(hf), None))
    for call in (
        lambda: al.plan(model, pairs),
        lambda: al.path_patch(model, pairs, metric="logit", engine="sweep", progress=False),
        lambda: al.mediators(model, pairs, ["0.0"], metric="logit", progress=False),
    ):
        with pytest.raises(UnsupportedTrunk, match="experts that return the tokens of all prompts"):
            call()
    effects = al.path_patch(
        model, pairs, metric="logit", engine="hooks", senders=["1.0"], progress=False
    )
    assert effects.heads.per_pair[1, 0].isfinite().all()


def _llama_4(family: Family) -> Any:
    from transformers import Llama4ForCausalLM, Llama4TextConfig

    settings: dict[str, Any] = {"attn_implementation": "eager", **family.config}
    config = Llama4TextConfig(vocab_size=60, **settings)
    config.pad_token_id = None
    torch.manual_seed(0)
    return Llama4ForCausalLM(config).eval()


def test_what_is_saved_makes_its_folder(tmp_path: Path) -> None:
    values = al.Effects(torch.ones(2, 3), axes=("layer",), metric="logit")
    assert values.save(tmp_path / "a" / "b" / "effects.safetensors").is_file()
    for write in (write_jsonl, write_csv):
        file = tmp_path / write.__name__ / "rows"
        write([{"reference": "1+1=", "answer": "2"}], file)
        assert file.read_text()
