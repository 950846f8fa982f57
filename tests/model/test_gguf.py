"""GGUF files: converted once, exactly; refused with the reason where they cannot be read."""

import copy
import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.families import GROUPED, LLAMA_SIZES, Family
from torch.testing import assert_close

from arith_lens.model import checkpoints, families, load_model, weights
from arith_lens.pairs.tokens import tokenizer_name

gguf_package = pytest.importorskip("gguf", reason="needs the package gguf")

GEMMA = LLAMA_SIZES | {"num_key_value_heads": 1, "head_dim": 16, "query_pre_attn_scalar": 16}
FAMILIES = {
    "llama": Family("Llama", GROUPED | {"tie_word_embeddings": True}),
    "gemma3": Family("Gemma3Text", GEMMA),
}
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
"""llama.cpp's names of Transformers' weights."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv(weights.CACHE, str(folder))
    return folder


def write(
    hf: Any,
    tokenizer: Any,
    file: Path,
    family: str,
    *,
    file_type: int = 0,
    attention_scale: float | None = None,
    stretch: float | None = None,
    extra: Callable[[Any], None] = lambda writer: None,
) -> None:
    """The model as llama.cpp's converter writes it, in float32 or Q8_0."""
    config = hf.config
    writer: Any = gguf_package.GGUFWriter(file, family)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(128)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    d_head = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    writer.add_key_length(d_head)
    writer.add_value_length(d_head)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("rope_theta") or rope["full_attention"]["rope_theta"])
    writer.add_file_type(file_type)
    if attention_scale is not None:
        writer.add_attention_scale(attention_scale)
    if stretch is not None:
        writer.add_rope_scaling_type(gguf_package.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(stretch)
    extra(writer)
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_scores([float(-index) for index in range(len(pieces))])
    writer.add_token_types([1] * len(pieces))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    for name, weight in hf.state_dict().items():
        if name != "lm_head.weight":
            writer.add_tensor(*as_stored(name, weight, config, family, file_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def as_stored(
    name: str, weight: torch.Tensor, config: Any, family: str, file_type: int
) -> tuple[str, Any, Any, Any]:
    """A weight with llama.cpp's name, order of rows, and offset of Gemma's norms."""
    names = dict(NAMES)
    middle = "post_attention_norm" if family == "gemma3" else "ffn_norm"
    names["post_attention_layernorm"] = middle
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, count in heads.items():
        if family == "llama" and part in name:  # rotary pairs stand beside each other
            rows = weight.view(count, 2, -1, weight.shape[-1])
            weight = rows.transpose(1, 2).reshape(weight.shape)
    if family == "gemma3" and "norm" in name:
        weight = weight + 1
    for own, other in names.items():
        name = name.replace(own, other)
    name = name.replace("model.layers.", "blk.")
    values = weight.float().numpy()
    if file_type and values.ndim == 2:
        kind = gguf_package.GGMLQuantizationType.Q8_0
        return name, gguf_package.quants.quantize(values, kind), None, kind
    return name, values.astype(np.float32), None, None


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_gives_the_model_that_was_written(
    family: str, tokenizer: Any, tmp_path: Path, cache: Path
) -> None:
    hf = FAMILIES[family].make(len(tokenizer))
    file = tmp_path / f"small-{family}.gguf"
    write(hf, tokenizer, file, family)
    model = load_model(file)
    tokens = torch.tensor([[1, 7, 9, 30, 12]])
    assert_close(model(tokens), hf(tokens).logits, atol=1e-5, rtol=1e-4)
    wrong = copy.deepcopy(hf)
    wrong.model.layers[1].self_attn.q_proj.weight.data[0] += 0.5
    assert not torch.allclose(wrong(tokens).logits, model(tokens), atol=1e-3)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert model.name == f"small-{family}"
    assert model.quantised_from == f"F32, {file.name}, SHA-256 {digest}"
    assert model.tokenizer.convert_ids_to_tokens([7, 30]) == tokenizer.convert_ids_to_tokens(
        [7, 30]
    )
    assert len(list(cache.glob("*/model.safetensors"))) == 1


@torch.no_grad()
@pytest.mark.parametrize(
    ("n_layers", "scalar", "written"),
    [(2, 16, {}), (3, 8, {}), (2, 168, {"attention_scale": 168**-0.5}), (6, 16, {"stretch": 8.0})],
)
def test_a_gemma_attends_as_in_llama_cpp(
    n_layers: int,
    scalar: int,
    written: dict[str, Any],
    tokenizer: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By d_head; of 27B, here of three layers, by d_model / n_heads; by the file's own factor. The
    layers with full attention have stretched positions in files that say so."""
    row = families.FAMILIES["gemma3_text"]
    assert row.n_layers_27b == 62
    monkeypatch.setitem(families.FAMILIES, "gemma3_text", replace(row, n_layers_27b=3))
    sizes = {"num_hidden_layers": n_layers, "query_pre_attn_scalar": scalar}
    family = Family("Gemma3Text", GEMMA | sizes)
    plain = family.make(len(tokenizer))
    ropes = copy.deepcopy(plain.config.rope_parameters)
    if "stretch" in written:
        ropes["full_attention"] |= {"rope_type": "linear", "factor": written["stretch"]}
    hf = family.make(len(tokenizer), rope_parameters=ropes)
    file = tmp_path / "small.gguf"
    write(hf, tokenizer, file, "gemma3", **written)
    tokens = torch.tensor([[1, 7, 9, 30, 12, 44, 5, 81]])
    expected = hf(tokens).logits
    assert_close(load_model(file)(tokens), expected, atol=1e-4, rtol=1e-3)
    other = family.make(len(tokenizer), query_pre_attn_scalar=256)  # Transformers' default
    assert (other(tokens).logits - expected).abs().max() > 1e-2, "the test must be able to fail"
    if "stretch" in written:
        assert (plain(tokens).logits - expected).abs().max() > 1e-2


R = gguf_package.RopeScalingType
LONG, SHORT = [1.5, 2.0, 4.0, 10.0], [1.05, 1.1, 1.2, 1.4]
LLAMA_3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def _llama_3_factors() -> np.ndarray:
    """As llama.cpp's converter computes them, for 8 dimensions and 64 positions."""
    factors = []
    for i in range(0, 8, 2):
        length = 2 * math.pi * 10000 ** (i / 8)
        share = (64 / length - 1) / (4 - 1)
        factors.append(
            1.0 if length < 64 / 4 else 8.0 if length > 64 else 1 / ((1 - share) / 8 + share)
        )
    return np.array(factors, dtype=np.float32)


def _llama_3(writer: Any) -> None:
    writer.add_tensor("rope_freqs.weight", _llama_3_factors())


def _linear(writer: Any) -> None:
    writer.add_rope_scaling_type(R.LINEAR)
    writer.add_rope_scaling_factor(4.0)


def _old_linear(writer: Any) -> None:
    writer.add_float32("llama.rope.scale_linear", 4.0)


def _yarn(writer: Any) -> None:
    writer.add_rope_scaling_type(R.YARN)
    writer.add_rope_scaling_factor(4.0)
    writer.add_rope_scaling_orig_ctx_len(16)


def _phi(writer: Any) -> None:
    writer.add_rope_scaling_orig_ctx_len(16)
    writer.add_pad_token_id(0)
    writer.add_rope_scaling_attn_factors(1.25)
    writer.add_tensor("rope_factors_long.weight", np.array(LONG, dtype=np.float32))
    writer.add_tensor("rope_factors_short.weight", np.array(SHORT, dtype=np.float32))


OF_PHI = {"long_factor": LONG, "short_factor": SHORT, "attention_factor": 1.25}
ROPES: dict[str, tuple[str, str, Callable[[Any], None], dict[str, Any]]] = {
    "Llama 3": (
        *("Llama", "llama", _llama_3),
        {"rope_type": "llama3", "original_max_position_embeddings": 64, **LLAMA_3},
    ),
    "linear": ("Llama", "llama", _linear, {"rope_type": "linear", "factor": 4.0}),
    "an older file": ("Llama", "llama", _old_linear, {"rope_type": "linear", "factor": 4.0}),
    "YaRN": (
        *("Llama", "llama", _yarn),
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    ),
    "Phi 3": (
        *("Phi3", "phi3", _phi),
        {"rope_type": "longrope", "original_max_position_embeddings": 16, **OF_PHI},
    ),
}


@torch.no_grad()
@pytest.mark.parametrize("case", ROPES)
def test_positions_are_scaled_as_in_the_checkpoint(
    case: str, tokenizer: Any, tmp_path: Path
) -> None:
    """On a prompt within the 16 positions of the training, and on a longer one."""
    prefix, architecture, extra, scaling = ROPES[case]
    settings: dict[str, Any] = GROUPED | {"tie_word_embeddings": True}
    if prefix == "Phi3":
        settings |= {"original_max_position_embeddings": 16, "pad_token_id": 0}
    rope = {"rope_theta": 10000.0, **scaling}
    hf = Family(prefix, settings).make(len(tokenizer), rope_parameters=rope)
    plain = Family(prefix, settings).make(len(tokenizer))
    write(hf, tokenizer, tmp_path / "small.gguf", architecture, extra=extra)
    model = load_model(tmp_path / "small.gguf")
    for n_tokens in (9, 24):
        tokens = (torch.arange(n_tokens)[None] * 7) % 50 + 3
        expected = hf(tokens).logits
        assert_close(model(tokens), expected, atol=1e-4, rtol=1e-3)
        assert (plain(tokens).logits - expected).abs().max() > 1e-2, "it must be able to fail"


UNREAD: dict[str, Callable[[Any], None]] = {
    "llama.residual_scale": lambda writer: writer.add_float32("llama.residual_scale", 0.5),
    "llama.attention.sliding_window": lambda writer: writer.add_sliding_window(4),
    "llama.rope.scaling.type": lambda writer: writer.add_rope_scaling_type(R.LONGROPE),
    "llama.rope.scaling.yarn_ext_factor": lambda writer: writer.add_float32(
        "llama.rope.scaling.yarn_ext_factor", 0.5
    ),
    "llama.made_up": lambda writer: writer.add_uint32("llama.made_up", 1),
    "llama.attention.scale": lambda writer: writer.add_attention_scale(0.5),
    "rope_factors_long.weight": lambda writer: writer.add_tensor(
        "rope_factors_long.weight", np.array(LONG, dtype=np.float32)
    ),
    "attn_q.bias": lambda writer: writer.add_tensor(
        "blk.0.attn_q.bias", np.ones(32, dtype=np.float32)
    ),
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_file_with_a_setting_or_weight_that_nobody_reads_is_refused(
    name: str, tokenizer: Any, tmp_path: Path, cache: Path
) -> None:
    hf = FAMILIES["llama"].make(len(tokenizer))
    write(hf, tokenizer, tmp_path / "small.gguf", "llama", extra=UNREAD[name])
    message = rf"expected .*{name.removeprefix('llama.')}.*load the checkpoint that it was"
    with pytest.raises(ValueError, match=message):
        load_model(tmp_path / "small.gguf")
    assert not [*cache.glob("*/model.safetensors")]


def test_a_file_with_harmless_settings_loads(tokenizer: Any, tmp_path: Path) -> None:
    def extra(writer: Any) -> None:
        writer.add_string("general.made_up", "x")
        writer.add_string("somebody.quantised_by", "x")
        writer.add_attention_scale(8**-0.5)  # the root of d_head
        writer.add_rope_dimension_count(8)
        writer.add_rope_scaling_type(R.NONE)

    hf = FAMILIES["llama"].make(len(tokenizer))
    write(hf, tokenizer, tmp_path / "small.gguf", "llama", extra=extra)
    tokens = torch.tensor([[1, 7, 9, 30, 12]])
    assert_close(load_model(tmp_path / "small.gguf")(tokens), hf(tokens).logits)


def test_quantised_weights_are_those_of_the_file_and_results_say_so(
    tokenizer: Any, tmp_path: Path
) -> None:
    hf = Family("Llama", GROUPED | {"hidden_size": 64, "intermediate_size": 64}).make(
        len(tokenizer), tie_word_embeddings=True
    )
    file = tmp_path / "small.gguf"
    write(hf, tokenizer, file, "llama", file_type=7)
    model = load_model(file)
    assert (model.quantised_from or "").startswith("Q8_0, small.gguf")
    own = model.bridge.original_model.model.layers[0].mlp
    weight = own.down_proj.original_component.weight
    written = hf.model.layers[0].mlp.down_proj.weight
    kind = gguf_package.GGMLQuantizationType.Q8_0
    stored = gguf_package.quants.quantize(written.detach().numpy(), kind)
    by_hand = gguf_package.quants.dequantize(stored, kind)
    assert torch.equal(weight, torch.from_numpy(by_hand))
    assert 0 < (weight - written).abs().max() < 0.02


def test_a_second_load_converts_nothing(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "small.gguf"
    write(FAMILIES["llama"].make(len(tokenizer)), tokenizer, file, "llama")
    first = checkpoints.find_checkpoint(file)
    monkeypatch.setattr(weights, "_convert", lambda *_: pytest.fail("converted again"))
    assert checkpoints.find_checkpoint(str(file)) == first


def test_a_conversion_that_breaks_off_leaves_nothing(
    tokenizer: Any, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "small.gguf"
    write(FAMILIES["llama"].make(len(tokenizer)), tokenizer, file, "llama")

    def broken(file: Path, digest: str, folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(weights, "_convert", broken)
        load_model(file)
    assert not [path for path in cache.iterdir() if path.is_dir()]
    load_model(file)


def test_files_that_cannot_be_read_are_refused_with_the_reason(
    tokenizer: Any, tmp_path: Path
) -> None:
    whole = tmp_path / "whole.gguf"
    write(FAMILIES["llama"].make(len(tokenizer)), tokenizer, whole, "llama")
    content = whole.read_bytes()
    cases = {
        "cut": (content[: len(content) // 2], "damaged or was cut"),
        "beginning": (content[:200], "damaged or was cut"),
        "other": (b"PK\x03\x04" + content, "another beginning"),
        "empty": (b"", "another beginning"),
        "family": (content.replace(b"llama", b"lhama"), "lhama is not supported"),
    }
    for name, (stored, message) in cases.items():
        file = tmp_path / f"{name}.gguf"
        file.write_bytes(stored)
        with pytest.raises(ValueError, match=message):
            load_model(file)


@pytest.mark.parametrize("key", ["block_count", "embedding_length", "attention.head_count"])
@pytest.mark.parametrize("bit", [0, 31])
def test_a_flipped_bit_in_a_header_is_a_damaged_file(
    key: str, bit: int, tokenizer: Any, tmp_path: Path
) -> None:
    """Of the highest bit of a size, and of the lowest bit of the length of its name."""
    file = tmp_path / "flipped.gguf"
    write(FAMILIES["llama"].make(len(tokenizer)), tokenizer, file, "llama")
    content = bytearray(file.read_bytes())
    name = f"llama.{key}".encode()
    place = content.index(name)
    if bit == 31:
        content[place + len(name) + 4 + 3] ^= 1 << 7  # after the four bytes of the value's type
    else:
        content[place - 8] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged"):
        load_model(file)


def test_a_name_with_a_flipped_bit_does_not_bring_the_sizes_of_another_model(
    tokenizer: Any, tmp_path: Path
) -> None:
    """Where a size is missing, Transformers would build a model of 7 billion parameters."""
    file = tmp_path / "flipped.gguf"
    write(FAMILIES["llama"].make(len(tokenizer)), tokenizer, file, "llama")
    content = file.read_bytes()
    file.write_bytes(content.replace(b"llama.block_count", b"llama.block_cound"))
    with pytest.raises(ValueError, match=r"expected block_count in its header, found none"):
        load_model(file)


def test_a_cache_that_cannot_be_written_is_named(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "small.gguf"
    write(FAMILIES["llama"].make(len(tokenizer)), tokenizer, file, "llama")

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(PermissionError, match=r"ARITH_LENS_CACHE"):
        load_model(file)


def test_files_beside_it_are_not_read(tokenizer: Any, tmp_path: Path) -> None:
    file = tmp_path / "folder" / "small.gguf"
    file.parent.mkdir()
    write(FAMILIES["llama"].make(len(tokenizer)), tokenizer, file, "llama")
    reference = Path(weights.__file__).parents[1] / "reference" / "reference"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (file.parent / name).write_bytes((reference / name).read_bytes())
    assert len(load_model(file).tokenizer) == len(tokenizer)


def test_the_tokenizer_is_there_before_the_weights_and_errors_name_the_file(
    tokenizer: Any, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, text = tmp_path / "small.gguf", "3 + 4 = "
    write(FAMILIES["llama"].make(len(tokenizer)), tokenizer, file, "llama")
    with monkeypatch.context() as patched:
        patched.setattr(weights, "load_weights", lambda *_, **__: pytest.fail("weights are read"))
        early = checkpoints.early_tokenizer(file)
    assert not cache.exists() or not [path for path in cache.iterdir() if path.is_dir()]
    model = load_model(file)
    assert early(text)["input_ids"] == model.tokenizer(text)["input_ids"]
    assert tokenizer_name(early) == tokenizer_name(model.tokenizer) == "small"
    monkeypatch.setattr(weights, "_alone", lambda *_: pytest.fail("the converted one is there"))
    assert tokenizer_name(checkpoints.early_tokenizer(file)) == "small"
