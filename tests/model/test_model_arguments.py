"""What `load_model` and `plan` take: loaded models, models without weights, names with a slip."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.families import GROUPED, Family
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaMLP

import arith_lens as al
from arith_lens.model import HookedModel
from arith_lens.pairs.text_files import write_csv, write_jsonl
from arith_lens.path_patching import UnsupportedTrunk
from arith_lens.path_patching.layers import running


@pytest.fixture
def pairs() -> al.PromptPairs:
    tokens = torch.arange(18).reshape(2, 9) + 5
    return al.PromptPairs.from_tokens(tokens, tokens.roll(1, 0), tokens[:, 0])


def test_a_loaded_model_is_returned_as_it_is(llama: HookedModel) -> None:
    assert al.load_model(llama) is llama is al.empty_model(llama)
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


@pytest.mark.parametrize("layers", [(0,), (2,), (0, 1, 2)])
def test_layers_that_the_sweep_cannot_run_are_refused_and_hooks_compute_them(
    make_hf: Any, pairs: al.PromptPairs, layers: tuple[int, ...]
) -> None:
    """A family that nobody listed, whose MLP returns the tokens of all prompts in one row."""
    usual, hf = make_hf("llama"), make_hf("llama")
    for layer in layers:
        block = hf.model.layers[layer]
        block.__class__, block.mlp.__class__ = _FlatLayer, _FlatMlp
    model = al.load_model((hf, None))
    options: Any = {"metric": "logit", "progress": False}
    for call in (
        lambda: al.path_patch(model, pairs, **options),
        lambda: al.path_patch(model, pairs, paths="direct", certify=False, **options),
        lambda: al.mediators(model, pairs, ["0.0"], **options),
        lambda: al.edge_effects(model, pairs, ["1.0"], progress=False),
        lambda: al.neuron_effects(model, pairs, ["mlp1"]),
        lambda: al.logit_attribution(model, pairs),
    ):
        with pytest.raises(UnsupportedTrunk, match="path_patch with engine='hooks'"):
            call()
    effects = al.path_patch(model, pairs, engine="hooks", senders=["1.0"], **options)
    same = al.path_patch(al.load_model((usual, None)), pairs, senders=["1.0"], **options)
    torch.testing.assert_close(effects.heads.per_pair[1, 0], same.heads.per_pair[1, 0])


class _FlatMlp(LlamaMLP):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).flatten(0, 1)


class _FlatLayer(LlamaDecoderLayer):
    def forward(self, hidden_states: torch.Tensor, **options: Any) -> torch.Tensor:
        attention, _ = self.self_attn(self.input_layernorm(hidden_states), **options)
        stream = hidden_states + attention
        return stream + self.mlp(self.post_attention_layernorm(stream)).view(stream.shape)


def test_errors_of_memory_and_of_a_users_metric_stay_what_they_are(
    llama: HookedModel, pairs: al.PromptPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def own(logits: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("a fault of my own")

    with pytest.raises(RuntimeError, match="of my own"):
        al.path_patch(llama, pairs, metric=own, progress=False)
    for text, error in (("can't allocate memory", RuntimeError), ("of size 3", UnsupportedTrunk)):
        with pytest.raises(error, match=text), running(llama.blocks[0]):
            raise RuntimeError(text)


def test_an_empty_model_says_that_it_cannot_compute(make_hf: Any, pairs: al.PromptPairs) -> None:
    with torch.device("meta"):
        hf = type(make_hf("llama"))(make_hf("llama").config).eval()
    model = al.empty_model((hf, None))
    assert al.plan(model, pairs).n_pairs == len(pairs)
    for call in (
        lambda: al.path_patch(model, pairs, metric="logit", progress=False),
        lambda: al.path_patch(model, pairs, metric="logit", engine="hooks", progress=False),
        lambda: al.knock_out(model, pairs, ["1.0"], ablation="zero", progress=False),
        lambda: al.edge_effects(model, pairs, ["1.0"], progress=False),
        lambda: al.logit_lens(model, pairs),
        lambda: model(pairs.reference),
        lambda: model.generate(pairs.reference),
    ):
        with pytest.raises(ValueError, match=r"expected weights to compute with, .* load_model"):
            call()


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
