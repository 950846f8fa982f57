"""Weights from files: loaded exactly, or converted from GGUF.

A GGUF file has weights, configuration and tokenizer, and is mostly quantised. Transformers can
read many families of them. A file is converted once, into a folder in Hugging Face's format with
weights in float32, and this folder is loaded like any other. The folder is in the cache, under the
file's hash. Its configuration says from which quantised file it comes, so that results can say it
too.
"""

import errno
import hashlib
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock

from arith_lens.model.config_files import SIZES, check_sizes, first_line
from arith_lens.model.gguf_settings import settings_beside
from arith_lens.progress import working

CACHE = "ARITH_LENS_CACHE"
"""The environment variable that names the cache folder."""
CONVERSION = 3
"""The version of the conversion; a folder of another version is not read."""
FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))
"""How errors say that a disk is full."""
ORIGIN = "quantised_from"
"""The configuration's attribute with the quantisation, the name and the hash of the file."""


def load_weights(auto_class: Any, location: str, **options: Any) -> Any:
    """Call `auto_class.from_pretrained`, and check that the checkpoint has exactly the model's
    weights.

    Tied weights, and buffers that older versions of Transformers saved, may be missing or extra.
    Transformers decides which of them are harmless.

    Raises:
        ValueError: weights are missing, unexpected or of another shape. The message names them.
    """
    model, info = auto_class.from_pretrained(
        location, output_loading_info=True, ignore_mismatched_sizes=True, **options
    )
    mismatched = [
        f"{name} {list(stored)} instead of {list(wanted)}"
        for name, stored, wanted in sorted(info["mismatched_keys"])
    ]
    problems = [
        f"{len(names)} {kind} ({', '.join(names[:4])}{', ...' if len(names) > 4 else ''})"
        for kind, names in (
            ("missing", sorted(info["missing_keys"])),
            ("unexpected", sorted(info["unexpected_keys"])),
            ("of another shape", mismatched),
        )
        if names
    ]
    if problems:
        layers = getattr(model.config.get_text_config(), "num_hidden_layers", None)
        raise ValueError(
            f"expected exactly the weights of {type(model).__name__} with num_hidden_layers="
            f"{layers} in {location}, found {'; '.join(problems)}; the weights and config.json do "
            "not belong together, or a file is incomplete: download or save the model again"
        )
    return model


def cache_folder() -> Path:
    """The folder of converted models: `ARITH_LENS_CACHE`, or arith_lens in the user's cache."""
    if os.environ.get(CACHE):
        return Path(os.environ[CACHE]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "arith_lens"


def converted(file: Path) -> Path:
    """The folder with a GGUF file's model in float32. It is made on the first call.

    Raises:
        ValueError: the file is damaged or cut, or Transformers does not read its family.
        ImportError: the package `gguf` is missing.
        PermissionError: the cache folder cannot be written.
    """
    digest = sha256_of(file)
    folder = _folder(file, digest)
    with making(folder) as partial:
        if partial is not None:
            size = f"{file.stat().st_size / 1e6:.0f} MB"
            with working(f"converting {file.name} ({size}) to float32 in {folder}, once"):
                _convert(file, digest, partial)
    return folder


def gguf_tokenizer(file: Path) -> Any:
    """The tokenizer of a GGUF file that is not converted yet; None if it is. No weight is read.

    Raises:
        ValueError, ImportError: as in `converted`.
    """
    from transformers import AutoTokenizer

    if _folder(file, sha256_of(file)).is_dir():
        return None
    with _alone(file) as (_, folder):
        return AutoTokenizer.from_pretrained(folder, gguf_file=file.name)


def _folder(file: Path, digest: str) -> Path:
    return cache_folder() / f"{file.stem}-{digest[:16]}-{CONVERSION}"


@contextmanager
def making(
    folder: Path, *, is_whole: Callable[[Path], bool] = Path.is_dir
) -> Iterator[Path | None]:
    """A new folder that gets its name at the end; None if the folder is there already.

    One process makes it while others wait. What was begun before an error or a kill is removed.

    Args:
        is_whole: whether a folder of this name has what it must have; else it is made anew.

    Raises:
        PermissionError: the cache folder cannot be written.
        OSError: the disk is full.
    """
    if is_whole(folder):
        yield None
        return
    partial = folder.with_name(f".{folder.name}.partial")
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise PermissionError(
            f"expected a cache folder that can be written, found {folder.parent} ({error}); name "
            f"another one in the environment variable {CACHE}"
        ) from error
    try:
        if is_whole(folder):
            yield None
            return
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    except Exception as error:  # safetensors has an error of its own
        if isinstance(error, ConnectionError) or not any(full in str(error) for full in FULL):
            raise
        raise OSError(
            f"expected room for {folder.name} in {folder.parent}, found a full disk ({error}); "
            f"free some, or name another folder in the environment variable {CACHE}"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        lock.release()


@contextmanager
def _alone(file: Path) -> Iterator[tuple[str, str]]:
    """The quantisation of a GGUF file, and a folder with a link to it and nothing beside it."""
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise ValueError(
                f"expected a GGUF file, found another beginning in {file}; download it again"
            )
    try:
        quantisation, sizes = _header(file)
        check_sizes(sizes, file)
        with TemporaryDirectory() as folder:  # files beside it would be read in its place
            (Path(folder) / file.name).symlink_to(file.resolve())
            yield quantisation, folder
    except (
        *(ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RuntimeError),
        *(TypeError, ValueError, struct.error),
    ) as error:
        raise ValueError(_unreadable(file, error)) from error


def _convert(file: Path, digest: str, folder: Path) -> None:
    """Write the model and its tokenizer to a folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with _alone(file) as (quantisation, link_folder):
        source: dict[str, Any] = {"gguf_file": file.name}
        tokenizer = AutoTokenizer.from_pretrained(link_folder, **source)
        model = load_weights(AutoModelForCausalLM, link_folder, dtype=torch.float32, **source)
    # its own configuration says that it is quantised, which it no longer is
    settings = model.config.to_dict() | settings_beside(file, model)
    settings.pop("quantization_config", None)
    settings[ORIGIN] = f"{quantisation}, {file.name}, SHA-256 {digest}"
    plain = type(model)(type(model.config).from_dict(settings))
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _header(file: Path) -> tuple[str, dict[str, Any]]:
    """The quantisation of most weights, such as `Q4_K_M`, and the sizes, by GGUF's names."""
    from gguf import GGUFReader, LlamaFileType

    fields = GGUFReader(file).fields
    sizes = {name.partition(".")[2]: field for name, field in fields.items()}
    sizes = {name: field.contents() for name, field in sizes.items() if name in SIZES}
    for name in ("block_count", "embedding_length"):
        if name not in sizes:  # Transformers would take those of a model of 7 billion parameters
            raise ValueError(f"expected {name} in its header, found none")
    field = fields.get("general.file_type")
    if field is None:
        return "unknown quantisation", sizes
    kind = LlamaFileType(int(field.contents())).name
    return kind.removeprefix("MOSTLY_").removeprefix("ALL_"), sizes


def _unreadable(file: Path, error: Exception) -> str:
    message = first_line(error)
    if "not supported" in message:
        return (
            f"expected a GGUF file of a family that Transformers reads, found {file.name} "
            f"({message}); load the checkpoint that it was converted from, by its folder or hub id"
        )
    return (
        f"expected a whole GGUF file, found that {file.name} cannot be read ({message}); it is "
        "damaged or was cut: download it again"
    )


def sha256_of(file: Path) -> str:
    """SHA-256 of a file's content, which is read again once its size or time has changed."""
    state = file.stat()
    return _sha256(file.resolve(), (state.st_size, state.st_mtime_ns))


@cache
def _sha256(file: Path, state: tuple[int, int]) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
