"""Loading, running and recording, against raw Transformers; and each refusal."""

import inspect
import json
import shutil
from copy import deepcopy
from inspect import unwrap
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from support.fixtures import random_tokens

from arith_lens.components import mlp_out_name, pattern_name, resid_post_name, z_name
from arith_lens.model import (
    HookedLike,
    HookedModel,
    default_device,
    load_model,
    record,
    weights_hash,
)
from arith_lens.model.checkpoints import Checkpoint, load_tokenizer
from arith_lens.pairs import sample_pairs

FAMILIES = ["llama", "mistral"]


@pytest.fixture(params=FAMILIES)
def family(request) -> str:
    return request.param


@pytest.fixture
def folder(make_hf, tokenizer, tmp_path: Path) -> Path:
    """A checkpoint as save_pretrained writes it."""
    make_hf("llama").save_pretrained(tmp_path / "tiny")
    tokenizer.save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


@torch.no_grad()
def test_logits_are_the_hugging_face_models_own(family, make_hf, make_model, reference):
    model = make_model(family)
    assert torch.equal(model(reference), make_hf(family)(reference, use_cache=False).logits)
    other = make_hf(family, seed=1)
    assert not torch.allclose(model(reference), other(reference).logits), "able to fail"


@torch.no_grad()
def test_thirteen_layers_give_the_hugging_face_models_logits(deep, reference):
    deep_tokens = random_tokens(deep, 2, 9)
    assert torch.equal(
        deep(deep_tokens), deep.bridge.original_model(deep_tokens, use_cache=False).logits
    )
    assert deep.n_layers == 13


@torch.no_grad()
def test_bfloat16_logits_are_the_hugging_face_models_own(family, make_hf, tokenizer, reference):
    model = load_model((make_hf(family), tokenizer), dtype=torch.bfloat16)
    assert model.dtype == torch.bfloat16
    logits = model(reference)
    assert logits.dtype == torch.bfloat16
    assert torch.equal(
        logits, make_hf(family).to(torch.bfloat16)(reference, use_cache=False).logits
    )


@torch.no_grad()
def test_z_is_the_input_of_o_proj(family, make_hf, make_model, reference):
    hf_model, model, raw = make_hf(family), make_model(family), {}
    for layer, block in enumerate(hf_model.model.layers):
        block.self_attn.o_proj.register_forward_pre_hook(
            lambda module, inputs, layer=layer: raw.update({layer: inputs[0]})
        )
    hf_model(reference, use_cache=False)
    recorded = record(model, reference, [z_name(layer) for layer in range(3)])
    for layer in range(3):
        assert torch.equal(recorded[z_name(layer)].flatten(2), raw[layer])
    assert not torch.allclose(raw[0], raw[1])


@torch.no_grad()
def test_the_weights_are_views_of_the_checkpoints(model):
    for layer, block in enumerate(model.blocks):
        o_proj = model.bridge.original_model.model.layers[layer].self_attn.o_proj.weight
        for head in range(4):
            columns = o_proj.T[head * 8 : (head + 1) * 8]
            assert torch.equal(block.attn.W_O[head], columns)
        assert block.attn.W_O.untyped_storage().data_ptr() == o_proj.untyped_storage().data_ptr()
    head = model.bridge.original_model.lm_head.weight
    assert torch.equal(model.W_U, head.T)
    assert model.W_U.untyped_storage().data_ptr() == head.untyped_storage().data_ptr()


@torch.no_grad()
def test_submodules_rebuild_the_run(model, reference):
    """attn_out + mlp(ln2(x)) over the layers, then unembed(ln_final(x)), is the model."""
    names = [f"blocks.{layer}.hook_attn_out" for layer in range(3)]
    writes = record(model, reference, ["hook_embed", *names], positions=-1)
    stream = writes["hook_embed"]
    for layer, block in enumerate(model.blocks):
        stream = stream + writes[names[layer]]
        stream = stream + block.mlp(block.ln2(stream))
    assert torch.allclose(model.unembed(model.ln_final(stream)), model(reference)[:, -1:])


def test_sizes_are_the_configs(llama, mistral):
    for model, n_kv_heads in ((llama, 4), (mistral, 2)):
        assert (model.n_layers, model.n_heads, model.n_kv_heads) == (3, 4, n_kv_heads)
        assert (model.d_model, model.d_head, model.d_vocab) == (32, 8, len(model.tokenizer))
        assert model.device == torch.device("cpu")
        assert model.dtype == torch.float32
        assert model.attn_implementation == "eager"
        assert not model.bridge.training
        assert "n_heads=4" in repr(model)


def test_a_bare_bridge_is_hooked_like_and_so_on_later_pythons(model):
    assert all(isinstance(thing, HookedLike) for thing in (model, model.bridge))
    assert not isinstance(model.tokenizer, HookedLike)
    for member in ("cfg", "tokenizer", "__call__", "run_with_hooks", "run_with_cache", "hooks"):
        inspect.getattr_static(model.bridge, member)  # what isinstance does from Python 3.12 on


@torch.no_grad()
def test_record_takes_a_bare_bridge(model, reference):
    names = [z_name(1), mlp_out_name(2)]
    one, other = record(model, reference, names), record(model.bridge, reference, names)
    assert all(torch.equal(one[name], other[name]) for name in names)


@torch.no_grad()
def test_record_keeps_what_is_asked_and_nothing_else(model, reference):
    names = [resid_post_name(0), z_name(2), pattern_name(1)]
    _, cache = model.run_with_cache(reference)
    everywhere, end = record(model, reference, names), record(model, reference, names, positions=-1)
    assert set(everywhere) == set(end) == set(names)
    for name in names:
        axis = 2 if name == pattern_name(1) else 1
        assert torch.equal(everywhere[name], cache[name])
        assert torch.equal(end[name], cache[name].narrow(axis, 9, 1)), "the axis is kept"
        assert end[name].untyped_storage().nbytes() == end[name].numel() * 4, "no view of it all"
        assert not end[name].requires_grad


@torch.no_grad()
def test_record_computes_the_vocabulary_where_it_is_asked_for_and_at_end_alone(model, reference):
    seen = []
    with model.hooks([("unembed.hook_out", lambda logits, hook: seen.append(logits.shape[1]))]):
        record(model, reference, [z_name(0)])
        record(model, reference, ["unembed.hook_in"])
        model(reference)
    assert seen == [0, 1, 10]
    assert torch.equal(model(reference, logits_to_keep=1), model(reference)[:, -1:])


def left_padded(tokens, n_pad, pad=2):
    padding = torch.full((len(tokens), n_pad), pad)
    mask = torch.cat([torch.zeros_like(padding), torch.ones_like(tokens)], dim=1)
    return torch.cat([padding, tokens], dim=1), mask


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
@torch.no_grad()
def test_left_padding_with_a_mask_equals_no_padding(model, reference, dtype):
    padded, mask = left_padded(reference, 4)
    mask = mask.to(dtype)
    logits = model(padded, attention_mask=mask)[:, 4:]
    assert torch.allclose(logits, model(reference), atol=2e-5)
    unmasked = model(padded, attention_mask=torch.ones_like(mask))[:, 4:]
    assert not torch.allclose(unmasked, model(reference), atol=1e-2), "able to fail"
    z = record(model, padded, [z_name(2)], attention_mask=mask, positions=-1)[z_name(2)]
    plain = record(model, reference, [z_name(2)], positions=-1)[z_name(2)]
    assert torch.allclose(z, plain, atol=2e-5)
    hooked = model.run_with_hooks(padded, fwd_hooks=[], attention_mask=mask)[:, 4:]
    assert torch.equal(hooked, logits)


@torch.no_grad()
def test_generation_from_padded_prompts_equals_each_alone(model, reference):
    padded, mask = left_padded(reference, 3)
    options = {"max_new_tokens": 5, "stop_at_eos": False}
    together = model.generate(padded, attention_mask=mask, **options)[:, 3:]
    alone = torch.cat([model.generate(row[None], **options) for row in reference])
    assert torch.equal(together, alone)


@torch.no_grad()
def test_a_batch_of_one_and_a_bare_row_are_rows_of_a_batch(model, reference):
    together = model(reference)
    assert torch.allclose(model(reference[:1]), together[:1], atol=1e-5)
    assert torch.equal(model(reference[0]), model(reference[:1]))
    assert torch.equal(model(reference.tolist()), together)
    assert torch.equal(model(list(reference)), together)


@torch.no_grad()
def test_text_is_tokenized_with_bos(model):
    tokens = model.tokenizer("3 plus 5 = ", return_tensors="pt").input_ids
    assert tokens[0, 0] == model.tokenizer.bos_token_id
    assert torch.equal(model("3 plus 5 = "), model(tokens))
    # texts of two lengths: padded on the left, so that the last column is END for both
    both = model(["3 plus 5 = ", "The sum of 3 and 5 is "])
    assert torch.allclose(both[:1, -1], model("3 plus 5 = ")[:, -1], atol=2e-5)


@torch.no_grad()
def test_decoding_by_hand_with_a_cache_works(model, reference):
    logits, cache = model(reference[:, :6], use_cache=True, return_type="logits_and_cache")
    rest = model(reference[:, 6:], past_key_values=cache)
    whole = model(reference)
    assert torch.allclose(torch.cat([logits, rest], dim=1), whole, atol=1e-5)


# Loading


@torch.no_grad()
def test_a_directory_loads_absolute_and_relative(folder, llama, reference, monkeypatch):
    absolute = load_model(folder)
    monkeypatch.chdir(folder.parent)
    relative = load_model("tiny")
    for model in (absolute, relative, load_model("./tiny"), load_model(str(folder))):
        assert torch.equal(model(reference), llama(reference))
        assert model.name == "tiny"
        assert model.tokenizer("3 plus 5 = ").input_ids == llama.tokenizer("3 plus 5 = ").input_ids


@torch.no_grad()
def test_a_directory_named_like_a_known_model_is_still_the_directory(
    folder, llama, reference, monkeypatch
):
    """Upstream would read `gpt2-small` as an alias of a hub id."""
    shutil.copytree(folder, folder.parent / "gpt2-small")
    monkeypatch.chdir(folder.parent)
    assert torch.equal(load_model("gpt2-small")(reference), llama(reference))


@torch.no_grad()
def test_a_hub_id_loads_from_the_cache_without_a_network(folder, llama, reference, monkeypatch):
    """The cache's layout, made by hand; the network is off in every test."""
    import huggingface_hub.constants

    cache = folder.parent / "hub"
    repo = cache / "models--acme--tiny"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("0" * 40)
    shutil.copytree(folder, repo / "snapshots" / ("0" * 40))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.file_download.constants.HF_HUB_CACHE", str(cache))
    model = load_model("acme/tiny")
    assert model.name == "acme/tiny"
    assert torch.equal(model(reference), llama(reference))


def test_shipped_names_lead_to_shipped_folders(folder, monkeypatch):
    import arith_lens.model.checkpoints as checkpoints

    package = folder.parent / "arith_lens" / "model" / "checkpoints.py"
    shutil.copytree(folder, package.parents[1] / "reference" / "reference")
    monkeypatch.setattr(checkpoints, "__file__", str(package))
    assert load_model("reference").name == "reference"
    with pytest.raises(FileNotFoundError, match="reference-mistral"):
        load_model("reference-mistral")


def test_dtype_defaults_to_float32_on_a_cpu(folder, make_hf):
    make_hf("llama").to(torch.bfloat16).save_pretrained(folder)
    assert load_model(folder).dtype == torch.float32
    assert load_model(folder, dtype=torch.bfloat16).dtype == torch.bfloat16


def test_dtype_stays_the_checkpoints_where_float32_does_not_fit(folder, make_hf, monkeypatch):
    make_hf("llama").to(torch.bfloat16).save_pretrained(folder)
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PHYS_PAGES": 16}.get(name, 4096))
    assert load_model(folder).dtype == torch.bfloat16


@torch.no_grad()
def test_device_and_device_map_place_the_model(folder, llama, reference):
    assert torch.equal(load_model(folder, device="cpu")(reference), llama(reference))
    assert torch.equal(load_model(folder, device_map="cpu")(reference), llama(reference))
    with pytest.raises(ValueError, match="found both"):
        load_model(folder, device="cpu", device_map="auto")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_an_error(folder):
    with pytest.raises(ValueError, match="expected a GPU for device='cuda:0'"):
        load_model(folder, device="cuda:0")


def test_a_model_in_memory_keeps_dtype_device_and_weights(make_hf, tokenizer):
    hf_model = make_hf("llama").to(torch.bfloat16).train()
    weight = hf_model.lm_head.weight
    model = load_model((hf_model, tokenizer))
    assert model.dtype == model.cfg.dtype == torch.bfloat16
    assert model.bridge.original_model is hf_model
    assert model.W_U.data_ptr() == weight.data_ptr()
    assert not hf_model.training, "dropout would make every effect noisy"
    with pytest.raises(ValueError, match="from_pretrained"):
        load_model((make_hf("llama"), tokenizer), device_map="auto")
    untyped: Any = unwrap(load_model)  # as users call it, without the types that tests check
    with pytest.raises(TypeError, match=r"found LlamaFor.* load_model\(\(hf_model, tokenizer\)"):
        untyped(make_hf("llama"))
    with pytest.raises(TypeError, match=r"expected \(hf_model, tokenizer\), found \(LlamaFor"):
        untyped((make_hf("llama"), tokenizer, None))


def test_the_users_tokenizer_is_left_as_it_was(make_hf, tokenizer):
    tokenizer = deepcopy(tokenizer)
    tokenizer.pad_token = None
    model = load_model((make_hf("llama"), tokenizer))
    assert tokenizer.pad_token is None
    assert model.tokenizer is not tokenizer
    assert model.tokenizer.padding_side == "left"


def test_a_tokenizer_in_memory_is_used_as_it_is(make_hf, tokenizer):
    """Upstream would look up one by name, to have BOS put first; there is none to find."""
    from transformers import LlamaTokenizer

    plain = LlamaTokenizer(vocab=tokenizer.get_vocab(), merges=[], add_bos_token=False)
    expected = plain("3 plus").input_ids
    assert expected[0] != plain.bos_token_id
    assert load_model((make_hf("llama"), plain)).tokenizer("3 plus").input_ids == expected


@torch.no_grad()
def test_another_architecture_goes_through(tokenizer, reference):
    """Qwen2: biases on queries, keys and values, a tied unembedding."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    config._attn_implementation = "eager"
    hf_model = Qwen2ForCausalLM(config).eval()
    expected, digest = hf_model(reference, use_cache=False).logits, weights_hash(hf_model)
    model = load_model((hf_model, tokenizer))
    assert torch.equal(model(reference), expected)
    assert weights_hash(model) == digest
    assert record(model, reference, z_name(1))[z_name(1)].shape == (6, 10, 4, 8)


# The hash


def test_the_hash_is_of_the_weights_alone(make_hf, make_model, folder):
    digest = weights_hash(make_model("llama"))
    assert digest == weights_hash(make_hf("llama")) == weights_hash(load_model(folder))
    assert digest == weights_hash(make_model("llama").bridge)
    assert digest != weights_hash(make_model("llama", seed=1))
    changed = make_hf("llama")
    changed.model.layers[2].mlp.down_proj.weight.data[0, 0] += 1e-3
    assert digest != weights_hash(changed), "one element must tell"
    assert digest != weights_hash(make_hf("llama").to(torch.bfloat16))


def test_a_model_without_weights_has_no_hash(make_hf):
    with pytest.raises(ValueError, match="meta device"):
        weights_hash(make_hf("llama").to("meta"))


# Real tokenizers


@pytest.fixture(scope="module", params=["llama2", "mistral"])
def pieces_alone(request, data_directory, tmp_path_factory):
    """A tokenizer from SentencePiece's file, the same saved and read again, and SentencePiece's."""
    import sentencepiece

    folder = tmp_path_factory.mktemp("pieces")
    source = data_directory / "tokenizers" / request.param / "tokenizer.model"
    shutil.copy(source, folder)
    family = "mistral" if request.param == "mistral" else "llama"
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    ours = _loaded_tokenizer(folder)
    ours.save_pretrained(folder / "saved")  # now with tokenizer.json
    shutil.copy(folder / "config.json", folder / "saved")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(source))
    return ours, _loaded_tokenizer(folder / "saved"), pieces


@pytest.mark.parametrize(
    "text",
    ["3 + 5 = ", "Q: What is 3 plus 5? A: ", "The sum of 31 and 47 is ", "é → 7\n8"],
)
def test_folders_with_pieces_alone_tokenize_as_sentencepiece(text, pieces_alone):
    ours, saved, pieces = pieces_alone
    expected = [pieces.bos_id(), *pieces.encode(text)]
    assert ours(text).input_ids == expected
    assert expected[1] != pieces.piece_to_id("3"), "the leading piece must be there to be lost"
    assert saved(text).input_ids == expected


@pytest.mark.parametrize("name", ["llama2", "mistral"])
def test_a_real_tokenizer_survives_loading_with_its_model(name, data_directory, make_hf, tmp_path):
    """Upstream loads another tokenizer by name unless told that BOS is settled."""
    make_hf("mistral" if name == "mistral" else "llama").save_pretrained(tmp_path)
    shutil.copy(data_directory / "tokenizers" / name / "tokenizer.model", tmp_path)
    tokenizer = load_model(tmp_path).tokenizer
    pieces = tokenizer.convert_ids_to_tokens(tokenizer("3 + 5 = ").input_ids)
    assert pieces == ["<s>", "▁", "3", "▁+", "▁", "5", "▁=", "▁"]


def _loaded_tokenizer(directory: Path):
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(directory)
    return load_tokenizer(Checkpoint(str(directory), directory.name), config)


# Refusals


@pytest.mark.parametrize(
    "missing",
    ["./nowhere", "/nowhere/at/all", "a/b/c", "~/nowhere", Path("nowhere"), "x.safetensors"],
)
def test_a_missing_directory_is_an_error_that_says_where(missing, monkeypatch):
    def no_question(*args, **kwargs):
        raise AssertionError("what looks like a path must not be asked of the hub")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", no_question)
    with pytest.raises(FileNotFoundError, match="model directory") as caught:
        load_model(missing)
    assert Path(missing).name in str(caught.value)


def test_without_a_network_an_unknown_name_says_what_was_looked_for():
    with pytest.raises(ConnectionError, match=r"nothing at .* no answer from the hub"):
        load_model("acme/no-such-model")


def test_an_unknown_hub_id_is_an_error(monkeypatch):
    error = _hub_error("RepositoryNotFoundError")
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", _raise(error))
    with pytest.raises(ValueError, match=r"'acme/no-such-model'.*spelling"):
        load_model("acme/no-such-model")


def test_a_gated_model_is_an_error_that_says_how_to_get_in(monkeypatch):
    monkeypatch.setattr(
        huggingface_hub.HfApi,
        "model_info",
        lambda *args, **kwargs: huggingface_hub.ModelInfo(id="acme/gated", gated="manual"),
    )
    monkeypatch.setattr(huggingface_hub.HfApi, "auth_check", _raise(_hub_error("GatedRepoError")))
    with pytest.raises(PermissionError, match=r"acme/gated.*licence.*hf auth login"):
        load_model("acme/gated")


def _hub_error(name: str) -> Exception:
    """Made without a response: its library changes name between versions."""
    kind = getattr(huggingface_hub.errors, name)
    return kind.__new__(kind, "refused")


def _raise(error: Exception):
    def answer(*args, **kwargs):
        raise error

    return answer


def test_a_directory_without_weights_is_an_error_that_lists_it(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"weights \(model\.safetensors or .*config\.json"):
        load_model(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config\.json in"):
        load_model(folder)


def test_damaged_weights_are_an_error_that_says_so(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "damaged")
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"junk")
    with pytest.raises(ValueError, match="damaged file"):
        load_model(tmp_path / "damaged")


def test_weights_that_would_be_unpickled_are_refused(folder, monkeypatch):
    """An adapter's safetensors beside `*.bin` weights do not make the weights safetensors."""
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"weights .*pytorch_model\.bin.*pickles"):
        load_model(folder)
    names = ["config.json", "pytorch_model.bin", "tokenizer.json"]
    info = huggingface_hub.ModelInfo(id="acme/old", siblings=[{"rfilename": n} for n in names])
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *args, **kwargs: info)
    with pytest.raises(FileNotFoundError, match=r"acme/old, found config.*pickles"):
        load_model("acme/old")


def test_a_directory_without_a_tokenizer_is_an_error(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(FileNotFoundError, match="tokenizer beside the weights of tiny"):
        load_model(folder)


def test_a_quantised_model_is_refused_by_its_method(folder, make_hf, tokenizer):
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"float weights, found tiny quantised \(gptq\)"):
        load_model(folder)
    hf_model = make_hf("llama")
    hf_model.config.quantization_config = {"quant_method": "awq"}
    with pytest.raises(ValueError, match="awq"):
        load_model((hf_model, tokenizer))


def test_an_architecture_that_nobody_knows_is_an_error(make_hf, tokenizer):
    hf_model = make_hf("llama")
    hf_model.config.architectures = ["OddForCausalLM"]
    hf_model.config.model_type = "odd"
    with pytest.raises(ValueError, match=r"architecture that TransformerLens can bridge.*Odd"):
        load_model((hf_model, tokenizer))


@pytest.mark.parametrize("run", ["call", "hooks", "cache", "record", "generate", "bridge"])
def test_padding_without_a_mask_is_refused(run, model, reference):
    padded, _ = left_padded(reference, 2, pad=model.tokenizer.pad_token_id)
    calls = {
        "call": lambda: model(padded),
        "hooks": lambda: model.run_with_hooks(padded, fwd_hooks=[]),
        "cache": lambda: model.run_with_cache(padded),
        "record": lambda: record(model, padded, [z_name(0)]),
        "generate": lambda: model.generate(padded),
        "bridge": lambda: record(model.bridge, padded, [z_name(0)]),
    }
    with pytest.raises(ValueError, match="attention_mask with padded tokens, found none: row 0"):
        calls[run]()


def test_one_leading_bos_is_no_padding_where_the_two_are_one_token(make_hf, tokenizer, reference):
    model = load_model((make_hf("llama"), tokenizer))
    model.tokenizer.pad_token = model.tokenizer.bos_token
    model(reference)
    with pytest.raises(ValueError, match="padded tokens"):
        model(left_padded(reference, 1, pad=1)[0])


def test_padding_at_the_position_asked_for_is_refused(model, reference):
    mask = torch.ones_like(reference)
    mask[2, -1] = 0
    with pytest.raises(ValueError, match="pad on the left"):
        record(model, reference, [z_name(0)], attention_mask=mask, positions=-1)


@pytest.mark.parametrize("rows", [[[1, 5, 6], [1, 5]], [torch.tensor([1, 5]), torch.tensor([1])]])
def test_unequal_lengths_are_refused(rows, model):
    for call in (model, model.generate, lambda rows: record(model, rows, [z_name(0)])):
        with pytest.raises(ValueError, match=r"one length, found lengths \["):
            call(rows)


def test_odd_tokens_and_masks_are_refused(model, reference):
    with pytest.raises(TypeError, match=r"torch\.float32"):
        model(reference.float())
    with pytest.raises(ValueError, match=r"\[2, 3, 4\]"):
        model(torch.ones(2, 3, 4, dtype=torch.long))
    with pytest.raises(ValueError, match=r"mask of the tokens' shape \(6, 10\), found \(6, 9\)"):
        model(reference, attention_mask=torch.ones(6, 9))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_and_infinity_are_errors_that_name_the_layer(bad, make_model, reference):
    model = make_model("llama")
    with torch.no_grad():
        model.bridge.original_model.model.layers[1].self_attn.v_proj.weight[0, 0] = bad
    names = [z_name(layer) for layer in range(3)]
    assert torch.isfinite(record(model, reference, names[:1])[names[0]]).all()
    with pytest.raises(FloatingPointError, match=r"first in layer 1 \(blocks\.1\.attn\.hook_z\)"):
        record(model, reference, names)


def test_a_hook_point_that_is_not_there_is_an_error(model, reference):
    with pytest.raises(IndexError, match=r"layers 0 to 2, found blocks\.3"):
        record(model, reference, [z_name(3)])
    with pytest.raises(KeyError, match="hook_zzz"):
        record(model, reference, ["blocks.0.attn.hook_zzz"])


def test_remote_code_is_off(folder):
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "odd", "auto_map": {"AutoConfig": "odd.OddConfig"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "odd.py").write_text("raise SystemExit('remote code ran')")
    with pytest.raises(ValueError, match="trust_remote_code"):
        load_model(folder)


def test_importing_the_module_loads_neither_library(fresh_python):
    loaded = fresh_python.after["the model"].modules
    assert "arith_lens.model" in loaded
    assert not {"transformer_lens", "transformers", "plotly"} & loaded


def test_hooked_model_is_what_load_model_gives(model):
    assert isinstance(model, HookedModel)


@pytest.mark.parametrize(
    ("there", "rank", "expected"),
    [
        (0, "0", "cpu"),
        (1, None, "cuda"),
        (1, "3", "cuda"),
        (4, "3", "cuda:3"),
        (2, "2", ValueError),
    ],
)
def test_each_process_has_its_own_gpu(
    there: int, rank: str | None, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", rank)
    if expected is ValueError:
        with pytest.raises(ValueError, match="found 2 and LOCAL_RANK=2; start 2 processes"):
            default_device()
    else:
        assert default_device() == expected


def test_pairs_of_unequal_lengths_need_their_mask(llama):
    """Their padding is this package's own, whatever the tokenizer pads with."""
    two = sample_pairs(llama, "addition", n=8, keep="all", templates=["addition/0", "addition/2"])
    assert len({*two.lengths.tolist()}) == 2 and two.attention_mask[:, 0].any()
    short = two[~two.attention_mask[:, 0]]
    for tokens in (two.reference, two.counterfactual, short.reference, short.reference[:1]):
        with pytest.raises(ValueError, match="expected attention_mask with padded tokens"):
            llama(tokens)
    llama(two.reference, attention_mask=two.attention_mask)
    llama(short.reference, attention_mask=torch.ones_like(short.reference))  # meant so


def test_text_and_tokens_go_both_ways_as_in_transformer_lens(llama):
    text = "3 plus 5 = "
    tokens = llama.to_tokens(text)
    assert tokens.tolist() == [llama.tokenizer(text)["input_ids"]]
    # the blank is `▁` alone before a digit, and a part of `▁plus`
    pieces = ["<s>", " ", "3", " plus", " ", "5", " =", " "]
    assert llama.to_str_tokens(text) == llama.to_str_tokens(tokens[0]) == pieces
    assert llama.to_str_tokens([text, "3"]) == [pieces, ["<s>", " ", "3"]]
    assert llama.to_string(tokens[0, 1:]).strip() == text.strip()


@pytest.mark.parametrize("dtype", ["bfloat16", "torch.bfloat16", torch.bfloat16])
def test_a_dtype_may_be_named(dtype, make_hf, tokenizer):
    assert load_model((make_hf("llama"), tokenizer), dtype=dtype).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", ["float17", "nn", "int8", torch.int8])
def test_what_is_no_dtype_is_refused(dtype, make_hf, tokenizer):
    with pytest.raises(ValueError, match=r"floating-point dtype .* found .*(float17|nn|int8)"):
        load_model((make_hf("llama"), tokenizer), dtype=dtype)
