"""What a checkpoint must hold: exactly the model's weights; and a model without any."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import arith_lens as al
from arith_lens.fine_tuning.results import load_base
from arith_lens.model import HookedModel, empty_model, load_model, weights_hash


@pytest.fixture(scope="module")
def saved(make_hf: Callable[..., Any], tokenizer: Any, tmp_path_factory: Any) -> Path:
    """Three layers, as save_pretrained writes them."""
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    make_hf("llama").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(saved, tmp_path / "tiny"))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def change_config(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


NORM = "model.layers.1.input_layernorm.weight"


def test_a_missing_weight_is_named(folder: Path) -> None:
    change_weights(folder, lambda weights: weights.pop(NORM))
    for load in (load_model, lambda source: load_base(source, dtype=None)):
        with pytest.raises(ValueError, match=rf"exactly the weights.* 1 missing \({NORM}\)"):
            load(folder)


@pytest.mark.parametrize("n_layers", [5, 2])
def test_another_number_of_layers_than_the_weights_is_refused(folder: Path, n_layers: int) -> None:
    change_config(folder, num_hidden_layers=n_layers)
    kind, layer = ("missing", 3) if n_layers > 3 else ("unexpected", n_layers)
    with pytest.raises(
        ValueError, match=rf"num_hidden_layers={n_layers} .*{kind} \(model\.layers\.{layer}"
    ):
        load_model(folder)


def test_weights_of_another_shape_are_named(folder: Path) -> None:
    change_config(folder, intermediate_size=40)
    with pytest.raises(ValueError, match=r"9 of another shape \(.*mlp.* \[32, 48\] instead of"):
        load_model(folder)


def test_another_architecture_than_the_weights_is_refused(folder: Path) -> None:
    change_config(folder, model_type="bert", architectures=["BertForMaskedLM"])
    with pytest.raises(ValueError, match=r"weights of Bert.* missing \(bert\.emb.* unexpected"):
        load_model(folder)


def test_what_transformers_calls_harmless_loads(
    folder: Path, make_hf: Callable[..., Any], tokenizer: Any
) -> None:
    """Rotary frequencies of older versions; an unembedding that is tied to the embedding."""
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    change_weights(folder, lambda weights: weights.update({name: torch.ones(4)}))
    load_model(folder)
    make_hf("llama", tie_word_embeddings=True).save_pretrained(folder)
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    load_model(folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("notes", r"folder in Hugging Face format .*found a file at .*notes"),
        ("tiny/model.safetensors", r"found a file in one, .*; give .*tiny'"),
    ],
)
def test_a_file_is_no_model(folder: Path, name: str, message: str) -> None:
    (folder.parent / "notes").write_text("hello")
    with pytest.raises(ValueError, match=message):
        load_model(folder.parent / name)
    with pytest.raises(ValueError, match=message):
        load_model(f"{folder}/../{name}")


@pytest.mark.parametrize("size", [10_000_000, 10**30, 0, -1])
@pytest.mark.parametrize("load", [load_model, empty_model])
def test_a_number_of_layers_that_no_model_has_is_refused_before_it_is_built(
    folder: Path, size: int, load: Callable[..., Any]
) -> None:
    change_config(folder, num_hidden_layers=size)
    with pytest.raises(ValueError, match=rf"expected num_hidden_layers from 1 to .* found {size}"):
        load(folder)


DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000
DAMAGED = [
    *[("config.json", text, "JSON") for text in (DEEP, "{")],
    *[("config.json", text, "object of settings") for text in ("[]", "1", "null")],
    ("config.json", '{"model_type": ["llama"]}', "that Transformers reads"),
    ("config.json", '{"model_type": "llama", "hidden_size": "x"}', "that Transformers reads"),
    ("generation_config.json", DEEP, "JSON"),
    *[("tokenizer.json", text, "a tokenizer beside") for text in (DEEP, "[]", "{}")],
    *[("tokenizer_config.json", text, "a tokenizer beside") for text in (DEEP, "[]")],
    *[
        ("model.safetensors.index.json", text, "weight_map")
        for text in ('{"weight_map": [1]}', '{"a": 1}')
    ],
    ("model.safetensors.index.json", DEEP, "JSON"),
]


@pytest.mark.parametrize(("file", "text", "message"), DAMAGED)
def test_a_damaged_file_beside_the_weights_is_named(
    folder: Path, file: str, text: str, message: str
) -> None:
    (folder / file).write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=f"expected .*{message}"):
        load_model(folder)


@pytest.mark.parametrize("name", ["../other.safetensors", "/x.safetensors", "a/b", 3, ""])
def test_an_index_of_weights_names_files_of_its_folder_alone(folder: Path, name: Any) -> None:
    weights = folder / "model.safetensors"
    shutil.copy(weights, folder.parent / "other.safetensors")
    names = load_file(weights).keys()
    weights.unlink()
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, name)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="expected names of files in the folder"):
        load_model(folder)


def test_an_index_of_weights_names_no_pickle(folder: Path) -> None:
    names = load_file(folder / "model.safetensors").keys()
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04N.")
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "pytorch_model.bin")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"expected names of safetensors files .*model\.bin"):
        load_model(folder)


def test_weights_in_several_files_load(folder: Path) -> None:
    weights = folder / "model.safetensors"
    names = load_file(weights).keys()
    weights.rename(folder / "model-00001-of-00001.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "model-00001-of-00001.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert load_model(folder).n_layers > 0


def test_a_device_that_there_is_not_is_named(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a device such as .*found 'potato'"):
        load_model(folder, device="potato")
    with pytest.raises(ValueError, match="expected a device that computes, found 'meta'"):
        load_model(folder, device="meta")


def test_an_empty_model_plans_as_the_loaded_one(folder: Path) -> None:
    model = load_model(folder, device="cpu")
    (folder / "model.safetensors").unlink()
    empty = empty_model(folder, device="cpu")
    pairs = al.sample_pairs(empty, n=20, keep="all")
    assert torch.equal(pairs.reference, al.sample_pairs(model, n=20, keep="all").reference)
    for engine in ("sweep", "hooks"):
        assert al.plan(empty, pairs, engine=engine) == al.plan(model, pairs, engine=engine)
    assert (empty.dtype, empty.device) == (model.dtype, model.device)
    assert repr(empty) == repr(model)
    with pytest.raises(ValueError, match=r"expected weights, found .* without values"):
        weights_hash(empty)
    with pytest.raises(FileNotFoundError, match="expected weights"):
        load_model(folder)


@pytest.mark.parametrize("family", ["llama", "mistral"])  # mistral shares keys and values
def test_a_plan_needs_config_json_alone_and_is_that_of_the_loaded_model(
    family: str, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    model = make_model(family)
    model.bridge.original_model.config.save_pretrained(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]
    pairs = al.sample_pairs(model, n=20, keep="all")
    every: list[Any] = [{}, {"engine": "hooks", "paths": "total"}, {"metric": "logit"}]
    for options in every:
        assert al.plan(tmp_path, pairs, **options) == al.plan(model, pairs, **options)
    assert al.plan_edges(str(tmp_path), pairs, ["2.0"]) == al.plan_edges(model, pairs, ["2.0"])
    with pytest.raises(FileNotFoundError, match="expected a tokenizer"):
        empty_model(tmp_path)


def test_a_plan_of_a_hub_id_without_a_network_says_so(llama: HookedModel) -> None:
    pairs = al.sample_pairs(llama, n=2, keep="all")
    planned: list[Any] = [al.plan, lambda name, some: al.plan_edges(name, some, ["2.0"])]
    for one in planned:
        with pytest.raises(ConnectionError, match=r"expected a model's name .*'some/model'"):
            one("some/model", pairs)


def test_an_empty_model_of_7_billion_parameters_takes_no_memory(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    sizes = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32}
    change_config(folder, **sizes, num_attention_heads=32, num_key_value_heads=32, head_dim=128)
    empty = empty_model(folder)
    assert 6e9 < sum(weight.numel() for weight in empty.bridge.parameters()) < 7e9
    plan = al.plan(empty, al.sample_pairs(empty, n=4, keep="all"))
    assert plan.n_senders == 32 * 33 and plan.flops > 1e13


def test_a_model_in_memory_that_was_changed_is_refused(
    make_hf: Callable[..., Any], tokenizer: Any
) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(make_hf("llama"), config)
    other = make_hf("llama")
    other.lm_head = torch.nn.Sequential(other.lm_head)
    for load in (load_model, lambda source: load_base(source, dtype=None)):
        with pytest.raises(ValueError, match=r"with peft's adapters; give .*merge"):
            load((adapted, tokenizer))
        with pytest.raises(ValueError, match=r"one matrix as the unembedding .*found a Sequential"):
            load((other, tokenizer))


def test_a_model_that_load_model_wrapped_is_not_tuned(
    make_hf: Callable[..., Any], tokenizer: Any
) -> None:
    hf = make_hf("llama")
    load_model((hf, tokenizer))
    with pytest.raises(ValueError, match="wrapped by load_model, which works in place"):
        load_base((hf, tokenizer), dtype=None)
    load_model((hf, tokenizer))  # to load it again is harmless
