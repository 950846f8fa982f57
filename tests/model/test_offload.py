"""A model with layers on disk: the same effects, one or two layers' weights in memory at a time."""

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
from oracles import make_pairs
from support.children import Script

from arith_lens.model import HookedModel, load_model, state, weights_hash
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import path_patch
from arith_lens.runs import open_run

N_LAYERS = 4


@pytest.fixture(scope="module", params=["llama", "mistral"])
def folder(
    request: pytest.FixtureRequest,
    make_hf: Callable[..., Any],
    tokenizer: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    folder = tmp_path_factory.mktemp(request.param) / "model"
    make_hf(request.param, num_hidden_layers=N_LAYERS).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def in_memory(folder: Path) -> Callable[[torch.dtype], HookedModel]:
    """The same model with all of its weights in memory, loaded once in each dtype."""
    return cache(lambda dtype: load_model(folder, dtype=dtype, device="cpu"))


@cache
def offloaded(folder: Path, *parts: str, **options: Any) -> HookedModel:
    """The model with these parts on disk and the others in memory, loaded once for each choice."""
    names = ["model.embed_tokens", "model.rotary_emb", "model.norm", "lm_head"]
    names += [f"model.layers.{layer}" for layer in range(N_LAYERS)]
    places = {name: "disk" if name in parts else "cpu" for name in names}
    disk = mkdtemp(dir=folder.parent)
    return load_model(folder, device_map=places, offload_folder=disk, **options)


MIDDLE = ("model.layers.1", "model.layers.2")
ALL = ("model.norm", "lm_head", *(f"model.layers.{layer}" for layer in range(N_LAYERS)))


@pytest.mark.parametrize("parts", [MIDDLE, ALL], ids=["two layers", "everything but the embedding"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("paths", ["via_mlps", "direct"])
def test_effects_are_those_of_the_model_in_memory(
    folder: Path,
    in_memory: Callable[[torch.dtype], HookedModel],
    parts: tuple[str, ...],
    dtype: torch.dtype,
    paths: str,
) -> None:
    whole = in_memory(dtype)
    pairs = make_pairs(whole)
    settings: dict[str, Any] = {"paths": paths, "metric": "logprob", "progress": False}
    expected = path_patch(whole, pairs, **settings)
    model = offloaded(folder, *parts, dtype=dtype)
    found = path_patch(model, pairs, **settings)
    assert torch.equal(found.heads.per_pair, expected.heads.per_pair)
    assert torch.equal(found.mlps.per_pair, expected.mlps.per_pair)
    assert sum(weight.is_meta for weight in model.bridge.parameters()) > 0  # and offloaded again
    assert found.computation["device"] == "cpu"


def test_two_layers_weights_at_most_are_in_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = offloaded(folder, *ALL)
    pairs = make_pairs(model)
    in_memory = []

    def watched(blocks: Sequence[Any]) -> Iterator[int]:
        for layer in right(blocks):
            in_memory.append(sum(not next(block.parameters()).is_meta for block in blocks))
            yield layer

    right = state.layers_with_weights
    monkeypatch.setattr("arith_lens.path_patching.sweep.layers_with_weights", watched)
    path_patch(model, pairs, progress=False)
    assert len(in_memory) >= N_LAYERS and min(in_memory) >= 1 and max(in_memory) <= 2


def test_an_offloaded_model_is_known_by_its_weights(
    folder: Path, in_memory: Callable[[torch.dtype], HookedModel], tmp_path: Path
) -> None:
    whole, model = in_memory(torch.float32), offloaded(folder, *ALL)
    assert weights_hash(model) == weights_hash(whole)
    pairs = make_pairs(whole)
    effects = []
    for one in (model, whole):  # the same numbers: the second finds them there
        with open_run("x", {}, model=one, root=tmp_path / "results") as run:
            effects.append(path_patch(one, pairs, run=run, progress=False))
    entry = json.loads((run.folder("path_patching") / "result.json").read_text())
    assert entry["generation"] == 1
    assert torch.equal(effects[0].heads.per_pair, effects[1].heads.per_pair)


def test_weights_that_nothing_can_bring_in_are_refused(folder: Path) -> None:
    model = load_model(folder, device="cpu")
    pairs = make_pairs(model)
    assert not state.lacks_weights(model.blocks[1])
    assert not state.lacks_weights(offloaded(folder, *ALL).blocks[1])
    model.blocks[1].to("meta")
    assert state.lacks_weights(model.blocks[1])
    with pytest.raises(ValueError, match="weights without values"):
        path_patch(model, pairs, progress=False)


LIMIT = 300 * 2**20
"""Bytes: less than the model's weights. The libraries are the server's, whose fork is limited."""

SWEEP = """
import ctypes, os, sys
from pathlib import Path
import torch
from arith_lens import PromptPairs, load_model, path_patch
group, folder, where = sys.argv[1:]
M_MMAP_THRESHOLD = -3  # weights are given back to the system when they are freed, as large ones are
ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1_000_000)
Path(group, "cgroup.procs").write_text(str(os.getpid()))
names = ["model.embed_tokens", "model.rotary_emb", "model.norm", "lm_head"]
places = dict.fromkeys(names, "cpu") | {f"model.layers.{layer}": "disk" for layer in range(8)}
options = {"device_map": places, "offload_folder": folder + "-disk"} if where == "disk" else {}
model = load_model(folder, dtype=torch.float32, **options)
tokens = torch.arange(20).reshape(2, 10) + 20
pairs = PromptPairs.from_tokens(tokens, tokens + 30, torch.tensor([5, 6]))
print(float(path_patch(model, pairs, metric="logit", progress=False).heads.per_pair.abs().sum()))
"""


@pytest.fixture
def memory_limit() -> Iterator[Path]:
    """A control group whose processes get `LIMIT` bytes."""
    root = Path("/sys/fs/cgroup")
    group = (root / "memory" if (root / "memory").is_dir() else root) / f"arith_lens_{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here ({error})")
    files = [group / name for name in ("memory.limit_in_bytes", "memory.max")]
    limits = [file for file in files if file.exists()]
    try:
        if not limits:
            pytest.skip("control groups do not limit memory here")
        limits[0].write_text(str(LIMIT))
        yield group
    finally:
        with suppress(OSError):
            group.rmdir()


def swept_within(group: Path, folder: Path, where: str) -> tuple[int, str]:
    """The exit status and what was printed, the sum in the last line."""
    output = folder.parent / f"{where}.txt"
    script = Script(SWEEP, str(group), str(folder), where, output=output)
    return script.wait(), script.printed


def test_a_model_that_does_not_fit_in_memory_is_swept_from_disk(
    memory_limit: Path, make_hf: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    shape = {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16}
    hf_model = make_hf("llama", num_hidden_layers=8, num_key_value_heads=16, head_dim=64, **shape)
    size = sum(4 * weight.numel() for weight in hf_model.parameters())
    assert size > LIMIT, "the weights alone are too large"
    folder = tmp_path / "model"
    hf_model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    from_disk, output = swept_within(memory_limit, folder, "disk")
    assert from_disk == 0, output[-2000:]
    in_memory, _ = swept_within(memory_limit, folder, "memory")
    assert in_memory == -signal.SIGKILL, "the limit is too wide for this test to show anything"
    whole = load_model(folder, dtype=torch.float32, device="cpu")
    tokens = torch.arange(20).reshape(2, 10) + 20
    pairs = PromptPairs.from_tokens(tokens, tokens + 30, torch.tensor([5, 6]))
    expected = path_patch(whole, pairs, metric="logit", progress=False).heads.per_pair
    assert float(output.splitlines()[-1]) == pytest.approx(float(expected.abs().sum()), rel=1e-5)
