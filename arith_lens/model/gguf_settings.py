"""What a GGUF file says about a model's computation beside what Transformers reads of it.

A setting of the file is read by Transformers, read here, equal to what the configuration has
anyway, or known to be harmless. A file with any other setting, or with weights that no part of the
model takes, is refused: it would load as another model.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from arith_lens.model.families import family_of

_HARMLESS = frozenset(
    [
        *("context_length", "vocab_size", "tensor_data_layout", "rope.scaling.finetuned"),
        *("feed_forward_length", "expert_feed_forward_length"),  # the weights' shapes show these
        "expert_shared_feed_forward_length",
    ]
)
_FREQUENCIES = "rope_freqs.weight"
_LONG, _SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
_TYPE, _FACTOR, _OLD_FACTOR = "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear"
_ORIGINAL, _ATTENTION = "rope.scaling.original_context_length", "rope.scaling.attn_factor"
_BETAS = {"rope.scaling.yarn_beta_fast": "beta_fast", "rope.scaling.yarn_beta_slow": "beta_slow"}


def settings_beside(file: Path, model: Any) -> dict[str, Any]:
    """The settings of a file that Transformers' configuration of it lacks, by Transformers' names.

    Args:
        file: the GGUF file.
        model: the model that Transformers has read from it.

    Raises:
        ValueError: the file has a setting or weights that nobody reads.
    """
    from gguf import GGUFReader

    reader, config = GGUFReader(file), model.config
    architecture = reader.fields["general.architecture"].contents()
    # llama.cpp reads no other name's settings when it computes
    values = {
        name.removeprefix(f"{architecture}."): field.contents()
        for name, field in reader.fields.items()
        if name.startswith(f"{architecture}.")
    }
    factors = {
        tensor.name: np.asarray(tensor.data, dtype=np.float32).reshape(-1).tolist()
        for tensor in reader.tensors
        if tensor.name in (_FREQUENCIES, _LONG, _SHORT)
    }
    positions, known = _positions(values, factors, config)
    settings = _gemma_settings(values, config) | positions
    if config.model_type == "phi3" and "attention.sliding_window" in values:
        settings["sliding_window"] = values["attention.sliding_window"]
        known |= {"attention.sliding_window"}
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if name in values and hasattr(config, name):
            settings[name] = values[name]
            known |= {name}
    if family_of(config).n_layers_27b is not None:
        known |= {"attention.scale"}
    _refuse_unknown(values, known, config, file)
    _refuse_left_out(reader, model, known, file)
    return settings


def _refuse_unknown(values: Mapping[str, Any], known: set[str], config: Any, file: Path) -> None:
    """Raise ValueError if a setting is not read, and not what the configuration has anyway."""
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING

    family = config.model_type.removesuffix("_text")
    read = {name for name, own in GGUF_CONFIG_MAPPING.get(family, {}).items() if own is not None}
    anyway = _equal_anyway(values, config)
    if unknown := sorted(
        f"{name} ({value!r:.40})"
        for name, value in values.items()
        if name not in {*read, *known, *_HARMLESS} and not anyway.get(name)
    ):
        raise ValueError(
            f"expected settings that can be read in {file.name}, found others, which change what "
            f"the model computes: {', '.join(unknown)}; load the checkpoint that it was converted "
            "from, by its folder or hub id"
        )


def _equal_anyway(values: Mapping[str, Any], config: Any) -> dict[str, bool]:
    """For settings that Transformers does not read: whether its configuration has this value."""
    rope = getattr(config, "rope_parameters", None) or {}
    sliding = rope.get("sliding_attention", rope)
    full = rope.get("full_attention", rope)
    d_head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    d_rotary = int(d_head * full.get("partial_rotary_factor", 1.0))
    kinds = [kind == "sliding_attention" for kind in getattr(config, "layer_types", None) or ()]
    expected: dict[str, Any] = {
        "attention.key_length": d_head,
        "attention.value_length": d_head,
        "rope.dimension_count": d_rotary,
        "rope.dimension_count_swa": d_rotary,
        "rope.freq_base": full.get("rope_theta"),
        "rope.freq_base_swa": sliding.get("rope_theta"),
        "attention.causal": True,
        "use_parallel_residual": getattr(config, "use_parallel_residual", None),
    }
    equal = {
        name: values[name] == value or np.allclose(values[name], float(value), rtol=1e-6)
        for name, value in expected.items()
        if name in values and value is not None
    }
    if "attention.scale" in values:
        equal["attention.scale"] = bool(np.isclose(values["attention.scale"], d_head**-0.5))
    pattern = values.get("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        equal["attention.sliding_window_pattern"] = [*map(bool, pattern)] == kinds
    elif isinstance(pattern, int) and pattern > 0:
        every = [(index + 1) % pattern > 0 for index in range(len(kinds))]
        equal["attention.sliding_window_pattern"] = every == kinds
    return equal


def _positions(
    values: Mapping[str, Any], factors: Mapping[str, list[float]], config: Any
) -> tuple[dict[str, Any], set[str]]:
    """How positions are scaled, and the names of the file's settings and weights that say it.

    Factors of single frequencies are Transformers' `longrope`, whatever they were computed from:
    a file has no other setting for those of Llama 3.
    """
    factor = float(values.get(_FACTOR, values.get(_OLD_FACTOR, 1.0)))
    kind = values.get(_TYPE, "none" if factor == 1.0 else "linear")
    original = int(values.get(_ORIGINAL, 0))
    rope, names = getattr(config, "rope_parameters", None) or {}, {*factors}
    if "full_attention" in rope:  # `_gemma_settings` reads it
        is_read = kind == "none" or (kind == "linear" and family_of(config).angles_by_kind)
        return {}, {_TYPE, _FACTOR} if is_read else set()
    if names == {_LONG, _SHORT} and original and kind in ("none", "longrope"):
        attention = float(values.get(_ATTENTION, 1.0))
        scaled = _by_frequency(factors[_LONG], factors[_SHORT], attention, original)
        used = {_TYPE, _ORIGINAL, _ATTENTION, *names}
    elif names == {_FREQUENCIES} and kind == "none":
        same = factors[_FREQUENCIES]
        scaled = _by_frequency(same, same, 1.0, config.max_position_embeddings)
        used = {_TYPE, *names}
    elif names or kind not in ("none", "linear", "yarn"):
        return {}, set()
    elif kind == "yarn":
        betas = {own: float(values[name]) for name, own in _BETAS.items() if name in values}
        scaled = {"rope_type": "yarn", "factor": factor, **betas}
        scaled["original_max_position_embeddings"] = original or config.max_position_embeddings
        used = {_TYPE, _FACTOR, _ORIGINAL, *_BETAS}
    else:
        scaled = {"rope_type": "linear", "factor": factor} if kind == "linear" else {}
        used = {_TYPE, _FACTOR, _OLD_FACTOR, _ORIGINAL}
    settings: dict[str, Any] = {"rope_parameters": {**rope, **scaled}} if scaled else {}
    if scaled and hasattr(config, "original_max_position_embeddings"):
        settings["original_max_position_embeddings"] = original or config.max_position_embeddings
    return settings, used


def _by_frequency(
    long: list[float], short: list[float], attention: float, original: int
) -> dict[str, Any]:
    return {
        "rope_type": "longrope",
        "long_factor": long,
        "short_factor": short,
        "attention_factor": attention,
        "factor": 1.0,
        "original_max_position_embeddings": original,
    }


def _refuse_left_out(reader: Any, model: Any, known: set[str], file: Path) -> None:
    """Raise ValueError if the file has more weights than the model, which has taken the others."""
    is_tied = model.config.tie_word_embeddings
    left_out = {*known, "output.weight"} if is_tied else known
    names = [tensor.name for tensor in reader.tensors if tensor.name not in left_out]
    stored = sum(int(t.n_elements) for t in reader.tensors if t.name not in left_out)
    taken = sum(weight.numel() for weight in model.parameters())
    if stored != taken:
        others = [name for name in names if not name.startswith("blk.")]
        kinds = sorted({name.split(".", 2)[-1] for name in names if name.startswith("blk.")})
        raise ValueError(
            f"expected {taken} weights of {type(model).__name__} in {file.name}, found {stored} "
            f"({', '.join([*others, *kinds])}), some of which it has no part for; load the "
            "checkpoint that it was converted from, by its folder or hub id"
        )


def _gemma_settings(values: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """What a file says about a Gemma's attention beside what Transformers reads of it.

    Scores are divided by the root of `query_pre_attn_scalar`. The file can have the factor. Else it
    is d_head, except in the largest models, which have d_model / n_heads: llama.cpp's rule. In
    Gemma 3 the layers with full attention can have stretched positions.
    """
    family = family_of(config)
    if family.n_layers_27b is None:
        return {}
    is_27b = config.num_hidden_layers == family.n_layers_27b
    by_rule = config.hidden_size // config.num_attention_heads if is_27b else config.head_dim
    factor = values.get("attention.scale")
    settings: dict[str, Any] = {"query_pre_attn_scalar": round(factor**-2) if factor else by_rule}
    if family.angles_by_kind and values.get(_TYPE) == "linear":
        stretched = {"rope_type": "linear", "factor": values[_FACTOR]}
        full = config.rope_parameters["full_attention"] | stretched
        settings["rope_parameters"] = config.rope_parameters | {"full_attention": full}
    return settings
