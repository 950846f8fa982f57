"""Find a checkpoint and its tokenizer, and refuse models that cannot be studied, with the reason.

Transformers is imported inside the functions, so that importing this module is cheap.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from arith_lens.model.config_files import check_index, check_sizes, first_line, settings_in
from arith_lens.model.families import family_of
from arith_lens.model.pretrained import pretrained_file
from arith_lens.model.texts import require_round_trip, set_bos
from arith_lens.model.weights import converted, gguf_tokenizer
from arith_lens.named_models import PRETRAINED, REFERENCE_MODELS

WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json")
"""The files that Transformers reads first. Without them it would unpickle a `*.bin`."""

_HUB_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")
_FILE_SUFFIXES = (".safetensors", ".bin", ".json", ".gguf")


@dataclass(frozen=True)
class Checkpoint:
    """The location of a model's weights, and the model's name in results."""

    location: str
    """An absolute directory, or a Hugging Face hub id."""
    name: str
    """`reference`, the directory's name, or the hub id."""


def find_checkpoint(source: str | Path, *, weights: bool = True) -> Checkpoint:
    """Find the checkpoint of a shipped model, of a directory, a GGUF file or a hub id, tried in
    this order.

    Without a network, the local cache is used if it has the model of a hub id. A GGUF file is
    converted on its first use (see `weights.converted`).

    Args:
        source: the name of a shipped or pretrained model, a directory or a GGUF file (relative or
            absolute), or a hub id.
        weights: whether weights are required; else config and tokenizer are enough.

    Raises:
        FileNotFoundError: the directory does not exist; the directory or hub id has no config or
            no safetensors weights; or the file of a pretrained model was not downloaded.
        ValueError: `source` is a file of another kind, a GGUF file that cannot be read, an unknown
            hub id, or neither a path nor a hub id.
        PermissionError: the model is gated, or the cache cannot be written.
        ImportError: the package that reads GGUF files is missing.
        ConnectionError: the hub cannot be reached.
    """
    path, name = Path(source).expanduser(), str(source)
    beside = sorted(one.name for one in path.parent.glob("*.gguf"))
    near = path.suffix[:2].lower() == ".g" and get_close_matches(path.name, beside, 1, 0.8)
    if name in REFERENCE_MODELS:
        folder = _reference_directory(name)
    elif gguf := _gguf_file(source):
        file, name = gguf
        folder = converted(file)
    elif path.is_dir():
        folder, name = path, path.resolve().name
    elif path.is_file():
        raise ValueError(_not_a_folder(path))
    elif near or source != name or not _HUB_ID.fullmatch(name) or path.suffix in _FILE_SUFFIXES:
        if near or path.suffix == ".gguf":
            raise FileNotFoundError(
                f"expected a GGUF file at {path}, found nothing; GGUF files in its folder: "
                f"{', '.join(beside) or 'none'}; correct the path"
            )
        raise FileNotFoundError(
            f"expected a model directory, found nothing at {name!r} (looked in {path.absolute()}); "
            "check the path, or give a hub id such as 'meta-llama/Llama-2-7b-hf'"
        )
    else:
        return Checkpoint(_hub_location(name, weights), name)
    return Checkpoint(_checked_directory(folder, weights), name)


def _gguf_file(source: str | Path) -> tuple[Path, str] | None:
    """The GGUF file of a pretrained model's name or of a path, and its name; None without one."""
    path, name = Path(source).expanduser(), str(source)
    if name in PRETRAINED:
        return pretrained_file(name), name
    return (path.resolve(), path.stem) if path.is_file() and path.suffix == ".gguf" else None


def early_tokenizer(source: str | Path) -> Any:
    """The tokenizer of `load_model(source)`, before weights are downloaded, converted or read.

    Raises:
        FileNotFoundError, ValueError, PermissionError, ConnectionError: as in `find_checkpoint`.
    """
    gguf = _gguf_file(source)
    if gguf and (tokenizer := gguf_tokenizer(gguf[0])) is not None:
        tokenizer.name_or_path = gguf[1]
        return tokenizer
    checkpoint = find_checkpoint(source, weights=False)
    return load_tokenizer(checkpoint, read_config(checkpoint))


def files_state(source: str | Path) -> str | None:
    """A digest of the paths, sizes and times of a local checkpoint's files, which are not read.

    As long as it is the same, the files are unchanged.

    Args:
        source: as of `find_checkpoint`.

    Returns:
        None for a hub id.

    Raises:
        FileNotFoundError: the file of a pretrained model was not downloaded.
    """
    path, name = Path(source).expanduser(), str(source)
    if name in REFERENCE_MODELS:
        path = _reference_directory(name)
    elif name in PRETRAINED:
        path = pretrained_file(name)
    files = sorted(path.iterdir()) if path.is_dir() else [path] if path.is_file() else []
    states = [(str(file.resolve()), file.stat()) for file in files]
    facts = [[file, state.st_size, state.st_mtime_ns] for file, state in states]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest() if facts else None


def read_config(checkpoint: Checkpoint, *, trust_remote_code: bool = False) -> Any:
    """The checkpoint's Transformers config.

    Raises:
        ValueError: Transformers cannot read it, a size is not possible, or the model is quantised.
    """
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    location, options = checkpoint.location, {"trust_remote_code": trust_remote_code}
    try:
        config = AutoConfig.from_pretrained(location, **options)
    except (StrictDataclassError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(
            f"expected a config.json that Transformers reads in {location}, found another "
            f"({first_line(error)}); save or download the model again"
        ) from error
    except ValueError as error:
        if trust_remote_code or "trust_remote_code" in str(error):
            raise
        raise ValueError(
            f"expected a family of models that Transformers knows in {location}, found another "
            f"({first_line(error)}); choose a language model that it knows, or a newer Transformers"
        ) from error
    check_sizes(config.to_dict(), checkpoint.name)
    refuse_quantised(config, checkpoint.name)
    return config


def refuse_quantised(config: Any, name: str) -> None:
    """Raise ValueError if the weights are quantised: patching needs the matrices themselves."""
    quantisation = getattr(config, "quantization_config", None)
    if quantisation is None:
        return
    settings = quantisation if isinstance(quantisation, dict) else vars(quantisation)
    method = settings.get("quant_method")
    raise ValueError(
        f"expected float weights, found {name} quantised ({method or 'unknown method'}); load the "
        "original checkpoint, with dtype=torch.bfloat16 where memory is short"
    )


def refuse_changed(hf_model: Any, name: str) -> None:
    """Raise ValueError if a model in memory has adapters, or its unembedding is not a matrix."""
    if hasattr(hf_model, "peft_config"):
        raise ValueError(
            f"expected a plain Transformers model, found {name} with peft's adapters; give "
            "model.merge_and_unload(), which puts them into the weights"
        )
    head = hf_model.get_output_embeddings()
    weight = getattr(head, "weight", None)
    if head is not None and getattr(weight, "ndim", None) != 2:
        raise ValueError(
            f"expected one matrix as the unembedding of {name}, found a {type(head).__name__} "
            "without weight [d_vocab d_model]; put a Linear there"
        )


def is_wrapped(hf_model: Any) -> bool:
    """Whether `load_model` has put a bridge's modules into this Transformers model."""
    return any("_original_component" in vars(part)["_modules"] for part in hf_model.modules())


def load_tokenizer(
    checkpoint: Checkpoint,
    config: Any,
    *,
    trust_remote_code: bool = False,
    bos: bool | None = None,
) -> Any:
    """The checkpoint's tokenizer. It puts BOS in front of a text if the checkpoint says so.

    Folders of the LLaMA and Mistral families with only SentencePiece's `tokenizer.model` need the
    family's own class, because the automatic one drops the leading token `▁` without a message. One
    difference from SentencePiece remains: a text that begins with a space gets no second `▁`.

    Args:
        checkpoint: the location.
        config: the checkpoint's Transformers config.
        trust_remote_code: whether to run code that comes with the checkpoint.
        bos: whether BOS is put in front of a text; None: as the checkpoint says.

    Raises:
        FileNotFoundError: there is no tokenizer beside the weights.
        ValueError: the tokenizer does not give a text back, or has no BOS.
    """
    from transformers import AutoTokenizer, LlamaTokenizer

    sentencepiece_alone = (
        family_of(config).sentencepiece
        and not _has_file(checkpoint, "tokenizer.json")
        and _has_file(checkpoint, "tokenizer.model")
    )
    try:
        if sentencepiece_alone:
            tokenizer = LlamaTokenizer.from_pretrained(checkpoint.location)
            if "add_bos_token" not in tokenizer.init_kwargs:
                tokenizer.add_bos_token = True  # SentencePiece's way, if no setting says otherwise
        else:
            tokenizer = AutoTokenizer.from_pretrained(
                checkpoint.location, trust_remote_code=trust_remote_code
            )
    except (OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise FileNotFoundError(
            f"expected a tokenizer beside the weights of {checkpoint.name}, found none that loads "
            f"in {checkpoint.location} ({first_line(error)}); copy tokenizer.json (or "
            "tokenizer.model) and tokenizer_config.json there, or give load_model "
            "(hf_model, tokenizer)"
        ) from error
    require_round_trip(tokenizer, checkpoint.name)
    set_bos(tokenizer, bos)
    tokenizer.name_or_path = checkpoint.name  # errors say it, and not where the cache has it
    return tokenizer


def _has_file(checkpoint: Checkpoint, filename: str) -> bool:
    from transformers.utils.hub import cached_file

    path = cached_file(
        checkpoint.location,
        filename,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return path is not None


def _reference_directory(name: str) -> Path:
    directory = Path(__file__).parents[1] / "reference" / name
    if not directory.is_dir():
        raise FileNotFoundError(
            f"expected the shipped model {name!r} in {directory}, found nothing; this copy of the "
            "package comes without it; install one that has it, or name another model"
        )
    return directory


def _not_a_folder(file: Path) -> str:
    folder = "a folder in Hugging Face format (config.json, model.safetensors, tokenizer.json)"
    if (file.parent / "config.json").is_file():
        return f"expected {folder}, found a file in one, {str(file)!r}; give {str(file.parent)!r}"
    return f"expected {folder}, found a file at {str(file)!r}; give a folder or a hub id"


def _checked_directory(directory: Path, weights: bool) -> str:
    """The absolute path: TransformerLens reads a relative one such as `gpt2` as a hub id."""
    if not (directory / "config.json").is_file():
        raise FileNotFoundError(
            f"expected a Hugging Face checkpoint with config.json in {directory}, found "
            f"{_listing(directory)}; point to the folder that save_pretrained wrote"
        )
    if weights and not any((directory / name).is_file() for name in WEIGHT_FILES):
        raise _no_weights(str(directory), _listing(directory))
    for name in ("config.json", "generation_config.json"):
        check_sizes(settings_in(directory / name), directory / name)
    check_index(directory / WEIGHT_FILES[1])
    return str(directory.resolve())


def _no_weights(location: str, files: str) -> FileNotFoundError:
    return FileNotFoundError(
        f"expected weights ({' or '.join(WEIGHT_FILES)}) in {location}, found {files}; download "
        "them, or convert older *.bin weights, which are pickles, with Transformers' "
        "save_pretrained"
    )


def _listing(directory: Path) -> str:
    return _shortened(sorted(path.name for path in directory.iterdir()))


def _shortened(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "nothing"


def _hub_location(model_id: str, weights: bool) -> str:
    """The id, or the directory of the cached snapshot if the hub cannot be reached.

    A short request is made first, because a download without a network retries for half a minute.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        info = HfApi().model_info(model_id, timeout=10)
        if getattr(info, "gated", False):
            HfApi().auth_check(model_id)
    except GatedRepoError as error:
        raise PermissionError(
            f"expected access to {model_id}, found a gated model; accept its licence at "
            f"https://huggingface.co/{model_id}, then log in with `hf auth login` or set HF_TOKEN"
        ) from error
    except RepositoryNotFoundError as error:
        raise ValueError(
            f"expected a directory, a shipped model ({', '.join(REFERENCE_MODELS)}) or a hub id, "
            f"found {model_id!r}, which is neither a directory nor a model that the hub shows you; "
            f"check the spelling, and log in if the model is private{_did_you_mean(model_id)}"
        ) from error
    except Exception as error:
        return _cached_snapshot(model_id, error, weights)
    files = sorted(file.rfilename for file in info.siblings or ())
    if weights and files and not set(files) & set(WEIGHT_FILES):
        raise _no_weights(model_id, _shortened(files))
    return model_id


def _did_you_mean(name: str) -> str:
    near = get_close_matches(name, [*REFERENCE_MODELS, *PRETRAINED], n=1, cutoff=0.7)
    return f"; did you mean {near[0]!r}?" if near else ""


def _cached_snapshot(model_id: str, error: Exception, weights: bool) -> str:
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(model_id, "config.json")
    if isinstance(config, str):
        return _checked_directory(Path(config).parent, weights)
    raise ConnectionError(
        f"expected a model's name ({', '.join([*REFERENCE_MODELS, *PRETRAINED])}), a folder, a "
        f"GGUF file or a hub id, found {model_id!r}: nothing at {Path(model_id).absolute()}, "
        f"nothing in the cache, no answer from the hub ({type(error).__name__}); check the name "
        f"and the network{_did_you_mean(model_id)}"
    ) from error
