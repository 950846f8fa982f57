"""Load a checkpoint or wrap a model in memory in a TransformerBridge, and check the result.

The checkpoint must have every weight of the model and no other, and the bridge must compute the
same as Transformers. This is the only module that imports TransformerLens, and it does so inside
functions.
"""

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from arith_lens.imports import without_collections
from arith_lens.memory import is_out_of_memory
from arith_lens.model.checkpoints import (
    Checkpoint,
    find_checkpoint,
    is_wrapped,
    load_tokenizer,
    read_config,
    refuse_changed,
    refuse_quantised,
)
from arith_lens.model.config_files import first_line
from arith_lens.model.faithful import keep_masks_finite, require_faithful, transformers_logits
from arith_lens.model.hooked import HookedLike, HookedModel
from arith_lens.model.state import check_device, compute_device, default_device, lacks_weights
from arith_lens.model.texts import require_round_trip, set_bos
from arith_lens.model.weights import load_weights
from arith_lens.tensor_parallel import VARIABLE, is_tensor_parallel, split_config


@dataclass
class VerifiedLoader:
    """A Transformers auto class for `boot_transformers(model_class=)` that checks what it loads."""

    auto_class: Any
    """The class, such as AutoModelForCausalLM."""
    device: Any = None
    """The device of the weights; None: `device_map` decides."""
    logits: Tensor | None = field(default=None, init=False)
    """The logits of Transformers on the prompts of `example`, before any bridge; None if weights
    are offloaded or the logits are not finite."""

    def from_pretrained(self, location: str, **options: Any) -> Any:
        """Load the model. Raises ValueError for missing, unexpected and mismatched weights."""
        if is_tensor_parallel():
            if str(self.device) != default_device():
                raise ValueError(
                    f"expected neither device= nor device_map= with {VARIABLE}=1, found one; each "
                    "process takes the GPU of its number"
                )
            options["distributed_config"] = split_config(self.auto_class, options["config"])
        model = load_weights(self.auto_class, location, **options)
        if self.device is not None:
            model = model.to(self.device)
        self.logits = transformers_logits(model.eval())
        _keep_savable(model)
        return model


def load_model(
    source: str | Path | tuple[Any, Any] | HookedModel,
    *,
    dtype: torch.dtype | str | None = None,
    device: str | torch.device | None = None,
    device_map: str | dict[str, Any] | None = None,
    offload_folder: str | Path | None = None,
    trust_remote_code: bool = False,
    bos: bool | None = None,
) -> HookedModel:
    """Load a model in evaluation mode with eager attention. No weight is folded or centred.

    Args:
        source: `reference` or `reference-mistral` (shipped), `smollm2-135m` or `gemma-3-270m`
            (downloaded before, see `pretrained.get_pretrained`), a directory, a GGUF file, a hub
            id, or `(hf_model, tokenizer)` in memory. A model in memory is wrapped in place. Its
            tokenizer is None if its prompts are bare tokens (`PromptPairs.from_tokens`). A GGUF
            file is converted to float32 on its first use; later calls read the result from the
            cache.
        dtype: such as torch.bfloat16 or "bfloat16". None: the checkpoint's on a GPU; on a CPU
            float32 if it fits in memory. A model in memory keeps its dtype.
        device: the device. None: the GPU if there is one; with several processes, each uses its
            own. A model in memory stays on its device.
        device_map: as in Transformers, for a model larger than one device, instead of `device`. For
            a model that several processes hold together see `docs/clusters.md`.
        offload_folder: the folder of the layers that `device_map` puts on "disk".
        trust_remote_code: whether to run code that comes with the checkpoint.
        bos: whether BOS is put in front of every text; None: as the checkpoint's tokenizer does.

    Raises:
        TypeError: a model in memory without `(hf_model, tokenizer)` around it.
        FileNotFoundError, ValueError, PermissionError, ConnectionError: the checkpoint was not
            found or cannot be read; see `checkpoints.find_checkpoint`.
        ValueError: the weights are damaged, the model is quantised, TransformerLens does not know
            the architecture, the GPU does not exist, both `device` and `device_map` are given, or
            the tokenizer does not give a text back or has no BOS for `bos=True`.
        MemoryError: the weights do not fit in memory.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> model.n_layers, model.n_heads
        (12, 8)
    """
    dtype = _as_dtype(dtype)
    if device is not None and device_map is not None:
        raise ValueError("expected device or device_map, found both; device_map alone places all")
    if device is not None:
        device = check_device(device)
    if isinstance(source, tuple):
        if len(source) != 2 or not isinstance(source[0], torch.nn.Module):
            kinds = ", ".join(type(part).__name__ for part in source)
            raise TypeError(f"expected (hf_model, tokenizer), found ({kinds}); give these two")
        if device_map is not None:
            raise ValueError(
                "expected no device_map for a model in memory, found one; give it to Transformers' "
                "from_pretrained, before this"
            )
        return _wrap(*source, dtype=dtype, device=device, bos=bos)
    if isinstance(source, HookedModel):
        return _as_asked(source, dtype, device)
    if not isinstance(source, str | Path):
        raise TypeError(
            f"expected a name, a path or (hf_model, tokenizer), found {type(source).__name__}; "
            "wrap a model in memory with load_model((hf_model, tokenizer)), or with None as the "
            "tokenizer if its prompts are bare tokens"
        )
    checkpoint, config, tokenizer = _without_weights(source, trust_remote_code, bos, weights=True)
    if device is None and device_map is None:
        device = default_device()
    on_cpu = str(device) == "cpu" or (device_map is not None and not torch.cuda.is_available())
    loader = VerifiedLoader(_auto_class(config, checkpoint.location), device)
    dtype = dtype or _default_dtype(config, on_cpu=on_cpu, trust_remote_code=trust_remote_code)
    keep_masks_finite(dtype)
    bridge = _boot(
        checkpoint.location,
        model_class=loader,
        tokenizer=tokenizer,
        dtype=dtype,
        device=device,
        device_map=device_map,
        **({} if offload_folder is None else {"offload_folder": str(offload_folder)}),
        trust_remote_code=trust_remote_code,
    )
    require_faithful(bridge, loader.logits)
    bridge.cfg.device = str(compute_device(bridge.embed))  # "meta" if the embedding is offloaded
    return HookedModel(bridge, checkpoint.name)


def _as_asked(model: HookedModel, dtype: Any, device: Any) -> HookedModel:
    """A model that is loaded already. Raises ValueError if it has another dtype or device."""
    wanted = dtype or model.dtype, torch.device(device or model.device)
    if (model.dtype, torch.device(model.device)) != wanted:
        raise ValueError(
            f"expected a loaded model as it is, in {model.dtype} on {model.device}, found "
            f"dtype={dtype} and device={device}; load it again from its folder with these"
        )
    return model


def _as_dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """The dtype of a name. Raises ValueError if the name is not a dtype."""
    named = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    if dtype is not None and not (isinstance(named, torch.dtype) and named.is_floating_point):
        raise ValueError(
            f"expected a floating-point dtype such as torch.bfloat16 or 'bfloat16', found {dtype!r}"
        )
    return named


def empty_model(
    source: str | Path | tuple[Any, Any] | HookedModel,
    *,
    dtype: torch.dtype | str | None = None,
    device: str | torch.device | None = None,
    trust_remote_code: bool = False,
    bos: bool | None = None,
) -> HookedModel:
    """The model without its weights, from config.json and the tokenizer alone.

    It is for `plan` and `sample_pairs(keep="all")`; it cannot compute. Its weights have the dtype
    and the device that `load_model` would choose, but no values, and need no memory.

    Args:
        source, dtype, device, trust_remote_code, bos: as in `load_model`. Weights may be missing. A
            model in memory is wrapped as in `load_model`.

    Raises:
        FileNotFoundError, ValueError, PermissionError, ConnectionError: as in `load_model`, except
            for weights.

    Example:
        >>> import arith_lens as al
        >>> model = al.empty_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, counterfactual="operands", keep="all")
        >>> al.plan(model, pairs).flops > 0        # what path_patch would cost
        True
    """
    dtype = _as_dtype(dtype)
    if isinstance(source, (tuple, HookedModel)):
        return load_model(source, dtype=dtype, device=device, bos=bos)
    parts = _without_weights(source, trust_remote_code, bos, weights=False)
    return _empty(*parts, dtype, device, trust_remote_code)


def planned_model(source: str | Path | HookedLike) -> HookedLike:
    """A model as it is; of a folder or a hub id the model without weights and without a tokenizer.

    config.json is all that is read, or downloaded.
    """
    if not isinstance(source, str | Path):
        return source
    checkpoint = find_checkpoint(source, weights=False)
    model = _empty(checkpoint, read_config(checkpoint), _placeholder())
    model.bridge.tokenizer = None
    return model


def _empty(
    checkpoint: Checkpoint,
    config: Any,
    tokenizer: Any,
    dtype: torch.dtype | None = None,
    device: Any = None,
    trust_remote_code: bool = False,
) -> HookedModel:
    """The model of a config, without values of weights."""
    device = check_device(default_device() if device is None else device)
    on_cpu = device.type == "cpu"
    dtype = dtype or _default_dtype(config, on_cpu=on_cpu, trust_remote_code=trust_remote_code)
    auto_class = _auto_class(config, checkpoint.location)

    def from_config(config: Any, **options: Any) -> Any:
        """The model with fake weights, which have a shape, a dtype and a device but no values."""
        with _without_values(device):
            options["attn_implementation"] = "eager"
            return auto_class.from_config(config, dtype=dtype, **options)

    bridge = _boot(
        checkpoint.location,
        model_class=SimpleNamespace(from_config=from_config),
        load_weights=False,
        tokenizer=tokenizer,
        dtype=dtype,
        device=device,
        trust_remote_code=trust_remote_code,
    )
    return HookedModel(bridge, checkpoint.name)


@without_collections()  # it imports Transformers
def _without_weights(
    source: str | Path, trust_remote_code: bool, bos: bool | None, *, weights: bool
) -> tuple[Checkpoint, Any, Any]:
    """The checkpoint, its config and its tokenizer."""
    checkpoint = find_checkpoint(source, weights=weights)
    config = read_config(checkpoint, trust_remote_code=trust_remote_code)
    tokenizer = load_tokenizer(checkpoint, config, trust_remote_code=trust_remote_code, bos=bos)
    return checkpoint, config, tokenizer


def _wrap(
    hf_model: Any, tokenizer: Any, *, dtype: Any, device: Any, bos: bool | None
) -> HookedModel:
    """Wrap a model in memory. It is moved or cast only if `device` or `dtype` is given."""
    name = Path(hf_model.config._name_or_path or type(hf_model).__name__).name
    refuse_quantised(hf_model.config, name)
    refuse_changed(hf_model, name)
    if all(weight.is_meta for weight in hf_model.parameters()) and lacks_weights(hf_model):
        hf_model = _with_fake_weights(hf_model, dtype or hf_model.dtype, device)
    elif dtype is not None or device is not None:
        hf_model = hf_model.to(device=device, dtype=dtype)
    placed = next(hf_model.parameters())
    if not hf_model.config.architectures:  # the bridge needs it, and only saving sets it
        hf_model.config.architectures = [type(hf_model).__name__]
    keep_masks_finite(placed.dtype)
    own = _placeholder() if tokenizer is None else copy.deepcopy(tokenizer)
    if tokenizer is not None:
        require_round_trip(own, name)
        set_bos(own, bos)
    logits = transformers_logits(hf_model.eval())
    _keep_savable(hf_model)
    bridge = _boot(name, hf_model=hf_model, tokenizer=own, dtype=placed.dtype, device=placed.device)
    if tokenizer is None:
        bridge.tokenizer = None
    require_faithful(bridge, logits)
    return HookedModel(bridge, name)


def _with_fake_weights(hf_model: Any, dtype: torch.dtype, device: Any) -> Any:
    """A model on the meta device, with weights that say where they would be, as in `empty_model`.

    It is for `plan`. The model itself stays as it is.
    """
    with _without_values(torch.device(device or default_device())):
        options = {"dtype": dtype, "attn_implementation": "eager"}
        return type(hf_model)._from_config(copy.deepcopy(hf_model.config), **options)


@contextmanager
def _without_values(device: torch.device) -> Iterator[None]:
    """A context in which new weights have a shape, a dtype and a device, but no values."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers.initialization import no_init_weights

    with FakeTensorMode(), device, no_init_weights():
        yield


def _keep_savable(hf_model: Any) -> None:
    """Let a model's `save_pretrained` write its own names of weights, also when it is wrapped.

    The bridge's modules, which are then parts of it, list each weight under several other names.
    """
    if not is_wrapped(hf_model):
        save = partial(_save_plain, tuple(hf_model.state_dict()))
        hf_model.save_pretrained = MethodType(save, hf_model)  # a copy of the model binds its own


def _save_plain(names: tuple[str, ...], hf_model: Any, *places: Any, **options: Any) -> Any:
    if options.get("state_dict") is None:
        state = hf_model.state_dict()
        plain = {name.replace("._original_component", ""): name for name in state}
        options["state_dict"] = {name: state[plain[name]] for name in names if name in plain}
    return type(hf_model).save_pretrained(hf_model, *places, **options)


def _placeholder() -> Any:
    """A tokenizer for `_boot` alone, without which TransformerLens would download one by name."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    plain = Tokenizer(models.WordLevel({"<s>": 0}, unk_token="<s>"))
    return PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<s>", eos_token="<s>")


@without_collections()  # it imports TransformerLens
def _auto_class(config: Any, location: str) -> Any:
    """The Transformers class with which TransformerLens loads this architecture."""
    from transformer_lens.model_bridge.sources.transformers import (
        determine_architecture_from_hf_config,
        get_hf_model_class_for_architecture,
    )

    try:
        return get_hf_model_class_for_architecture(determine_architecture_from_hf_config(config))
    except ValueError as error:
        raise ValueError(_not_bridged(location, str(error))) from error


def _boot(location: str, *, tokenizer: Any, **options: Any) -> Any:
    from transformer_lens.model_bridge import TransformerBridge

    # If BOS is known, TransformerLens keeps the tokenizer. Else it loads another one by name, which
    # is the wrong one for SentencePiece folders. It gives the tokenizer EOS as BOS if it has none.
    bos, settings = tokenizer.bos_token, tokenizer.init_kwargs
    tokenizer.init_kwargs = {"name_or_path": location} | settings | {"add_bos_token": True}
    tokenizer.padding_side = "left"
    try:
        with _without_processors():
            bridge = TransformerBridge.boot_transformers(location, tokenizer=tokenizer, **options)
    except ImportError as error:
        raise ImportError(
            f"expected the packages that TransformerLens needs for {location}, found that one is "
            f"missing ({first_line(error)}); install it, or choose a model of text alone"
        ) from error
    except SafetensorError as error:
        raise ValueError(
            f"expected whole safetensors weights in {location}, found a damaged file ({error}); "
            "download or copy them again"
        ) from error
    except (ValueError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and is_out_of_memory(error):
            raise MemoryError(
                f"expected memory for the weights of {location}, found too little ({error}); load "
                "them in a smaller dtype, or some layers with device_map= and offload_folder="
            ) from error
        if isinstance(error, ValueError) and "supported architecture" not in str(error):
            raise
        raise ValueError(_not_bridged(location, str(error))) from error
    tokenizer.init_kwargs, tokenizer.bos_token = settings, bos
    bridge.cfg.default_prepend_bos = bridge.cfg.tokenizer_prepends_bos
    # TransformerLens makes an empty part if the model has no such part
    parts = bridge.named_modules()
    if unset := [name for name, part in parts if getattr(part, "original_component", part) is None]:
        raise ValueError(_not_bridged(location, f"it finds no {unset[0]}"))
    return bridge.eval()


@contextmanager
def _without_processors() -> Iterator[None]:
    """Let TransformerLens load no processor of images and sounds, which prompts do not need.

    It would install a package that a processor lacks, with pip, in the user's environment.
    """
    from transformer_lens.model_bridge.sources import transformers

    source: Any = transformers.source
    load = source.load_modality_processor
    source.load_modality_processor = lambda *_, **__: None
    try:
        yield
    finally:
        source.load_modality_processor = load


def _not_bridged(location: str, reason: str) -> str:
    architectures = reason.rpartition("Config architectures: ")[2]
    return (
        f"expected an architecture that TransformerLens can bridge, found {location} "
        f"({architectures}); choose a model of the LLaMA or Mistral family, or another that it "
        "lists"
    )


def _default_dtype(config: Any, *, on_cpu: bool, trust_remote_code: bool) -> torch.dtype:
    """The checkpoint's dtype; on a CPU float32 if the weights then need under 80% of the memory."""
    stored = config.dtype or torch.float32
    if not on_cpu or stored.itemsize >= 4:
        return stored
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fits = 4 * sum(weight.numel() for weight in empty.parameters()) < 0.8 * memory
    return torch.float32 if fits else stored
