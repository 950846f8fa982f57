"""Several processes, or machines, fill one run: the same bits as one process alone."""

import socket
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import torch
from support.children import Script
from support.made_runs import shard_files

from arith_lens.effects import Effects
from arith_lens.runs import Run, RunError, load_run, merge_runs, open_run

N_PAIRS, SHARD = 14, 2
SCRIPT = """
import os, signal, sys
import torch
import arith_lens as al
from arith_lens.runs import PartDone, Shards
from arith_lens.runs import shards as processes

checkpoint, root = sys.argv[1:]
processes.JOIN = processes.timedelta(seconds=int(os.environ.get("JOIN", "90")))
rank, kill = os.environ.get("RANK"), os.environ.get("KILL", "")
save, computed = Shards.save, []
def save_and_die(shards, index, *given):
    save(shards, index, *given)
    computed.append(index)
    if kill == f"{rank} after {index}":
        os.kill(os.getpid(), signal.SIGKILL)
Shards.save = save_and_die

def say(*words):  # a line at once: print would let the processes' lines run into one another
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

model = al.load_model(checkpoint)
generator = torch.Generator().manual_seed(0)
tokens, other = torch.randint(3, model.d_vocab, (2, 14, 9), generator=generator)
pairs = al.PromptPairs.from_tokens(tokens, other, tokens[:, 2])
heads = [al.Head(0, 1), al.Head(2, 3)]
with al.open_run("shared", {}, model=model, root=root) as run:
    try:
        al.path_patch(model, pairs, run=run, name="effects", metric="logit", batch_size=2)
        say("COMPUTED", *computed)
        al.knockout_curve(model, pairs, heads, ks=[1, 2], ablation="zero", run=run, name="curve")
    except PartDone as done:
        say("PART", done)
    say(rank, run.names)
"""


@pytest.fixture(scope="module")
def checkpoint(make_hf: Callable[..., Any], tokenizer: Any, tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("small")
    make_hf("mistral").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def fill(
    checkpoint: Path, root: Path, *, n: int = 1, fails: bool = False, **environment: str
) -> str:
    """Run the script in n processes; what they say."""
    output = root.with_name(f"{root.name}-{uuid4().hex}.txt")
    script = Script(
        SCRIPT, str(checkpoint), str(root), output=output, n=n if n > 1 else 0, **environment
    )
    assert (script.wait() != 0) == fails, script.printed[-6000:]
    return script.printed


def the_run(root: Path) -> Run:
    (folder,) = (root / "shared").iterdir()
    return load_run(folder)


def contents(root: Path) -> dict[str, torch.Tensor]:
    """All that a finished run holds."""
    run = the_run(root)
    assert run.finished and run.names == ("effects", "curve")
    return {
        f"{name} {key}": tensor
        for name in run.names
        for key, tensor in run.load_arrays(name).tensors.items()
    }


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.fixture(scope="module")
def alone(checkpoint: Path, tmp_path_factory: Any) -> dict[str, torch.Tensor]:
    """What one process computes."""
    root = tmp_path_factory.mktemp("alone")
    fill(checkpoint, root)
    return contents(root)


def test_two_processes_give_the_bits_of_one(
    checkpoint: Path, alone: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    said = fill(checkpoint, tmp_path, n=2)
    assert same(contents(tmp_path), alone)
    assert "0 ('effects', 'curve')" in said and "1 ('effects', 'curve')" in said
    assert not list(tmp_path.glob("store/*/shards"))


@pytest.mark.parametrize("kill", ["0 after 2", "1 after 3"])
def test_a_killed_worker_is_resumed(
    checkpoint: Path, alone: dict[str, torch.Tensor], tmp_path: Path, kill: str
) -> None:
    fill(checkpoint, tmp_path, n=2, fails=True, KILL=kill)
    assert the_run(tmp_path).manifest["status"] in ("running", "stopped by RunError")
    kept = {int(path.stem) for path in shard_files(the_run(tmp_path), "effects")}
    assert int(kill[-1]) in kept and len(kept) < N_PAIRS // SHARD
    said = fill(checkpoint, tmp_path)  # goes on in another number of processes
    (again,) = [line for line in said.splitlines() if line.startswith("COMPUTED")]
    assert {*map(int, again.split()[1:])} == {*range(N_PAIRS // SHARD)} - kept
    assert same(contents(tmp_path), alone)


def free_port() -> str:
    """One that nothing listens at now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def test_a_worker_that_never_starts_is_waited_for_and_named(
    checkpoint: Path, tmp_path: Path
) -> None:
    said = fill(
        checkpoint,
        tmp_path,
        fails=True,
        RANK="0",
        LOCAL_RANK="0",
        WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=free_port(),
        JOIN="3",
    )
    assert "expected 2 processes, found that some did not start" in said


def test_parts_of_several_machines_are_merged(
    checkpoint: Path, alone: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    for part in (1, 2):
        said = fill(checkpoint, tmp_path / str(part), ARITH_LENS_PART=f"{part}/2")
        assert f"PART part {part} of 2 is done" in said
    runs = [the_run(tmp_path / str(part)) for part in (1, 2)]
    assert [run.manifest["status"] for run in runs] == ["part 1 of 2", "part 2 of 2"]
    counts = [len(shard_files(run, "effects")) for run in runs]
    assert counts == [4, 3]
    merged = merge_runs(runs[0].path, runs[1].path)
    computed = {path: path.stat().st_mtime_ns for path in shard_files(merged, "effects")}
    assert len(computed) == N_PAIRS // SHARD
    fill(checkpoint, tmp_path / "1")
    assert len(computed) == 7 and same(contents(tmp_path / "1"), alone)
    assert merge_runs(runs[1].path, runs[0].path).names == ("effects", "curve")  # whole results too


class StoredCounts:
    """A run of one unfinished result, as a machine that was stopped leaves it."""

    def __init__(self, root: Path, config: Any = None, **identity: Any) -> None:
        identity = {"threads": 1, "model": {"device": "cpu"}} | identity
        with open_run("parts", config or {}, root=root) as run:
            shards = run.shards("a", identity)
            for index in range(2):
                shards.save(index, {"values": torch.full((2, 3), float(index))})
        self.path = run.path


OTHERWISE = {
    "threads": ({"threads": 2}, r"threads \(1 and 2\)"),
    "device": ({"model": {"device": "cuda H200"}}, r"model device \(cpu and cuda H200\)"),
    "dtype": ({"model": {"device": "cpu", "dtype": "bfloat16"}}, r"model dtype \(.* bfloat16\)"),
    "pairs": ({"data_sha256": "ab"}, r"data_sha256 \(None and ab\)"),
    "seed": ({"question": {"seed": 1}}, r"question \(None and \{'seed': 1\}\)"),
    "library": ({"versions": {"torch": "2"}}, r"versions"),
}


@pytest.mark.parametrize("change", OTHERWISE)
def test_parts_that_were_computed_otherwise_are_named(tmp_path: Path, change: str) -> None:
    identity, said = OTHERWISE[change]
    one, other = StoredCounts(tmp_path / "1"), StoredCounts(tmp_path / "2", **identity)
    before = sorted(one.path.rglob("*"))
    with pytest.raises(RunError, match=rf"another {said}.*bits are not the same"):
        merge_runs(one.path, other.path)
    assert sorted(one.path.rglob("*")) == before
    alike = StoredCounts(tmp_path / "3")
    with pytest.raises(RunError, match="bits are not the same"):  # not only beside the first
        merge_runs(alike.path, one.path, other.path)


def test_shards_beside_a_result_of_another_computation_are_refused(tmp_path: Path) -> None:
    one, other = StoredCounts(tmp_path / "1"), StoredCounts(tmp_path / "2", threads=2)
    with open_run("parts", {}, root=tmp_path / "1") as run:
        result = Effects(torch.ones(2, 4), axes=("layer",), metric="logit")
        run.save("a", result, identity={"threads": 1, "model": {"device": "cpu"}})
    for paths in ((one.path, other.path), (other.path, one.path)):
        with pytest.raises(RunError, match="bits are not the same"):
            merge_runs(*paths)
    assert merge_runs(one.path, StoredCounts(tmp_path / "3").path).names == ("a",)


def test_runs_that_do_not_belong_together_are_not_merged(
    make_model: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = StoredCounts(tmp_path / "1"), StoredCounts(tmp_path / "2", {"n": 3})
    with pytest.raises(RunError, match=r"part of the run .* another configuration: n \(None and 3"):
        merge_runs(one.path, other.path)
    with pytest.raises(RunError, match=r"run\.json, found none"):
        merge_runs(one.path, tmp_path)
    models = [make_model(seed=seed) for seed in (0, 1)]
    runs = [open_run("parts", {}, model=model, root=tmp_path / "m") for model in models]
    for run in runs:
        with run:
            pass
    with pytest.raises(RunError, match="another model's weights"):
        merge_runs(runs[0].path, runs[1].path)
    monkeypatch.setattr("arith_lens.runs.manifest.installed", lambda package: "0.0.0")
    newer = StoredCounts(tmp_path / "4")
    with pytest.raises(RunError, match=r"another version \(.* and 0\.0\.0\)"):
        merge_runs(one.path, newer.path)


def test_a_part_given_twice_does_not_pass_for_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {}
    for part in (1, 2, 3):
        monkeypatch.setenv("ARITH_LENS_PART", f"{part}/3")
        paths[part] = StoredCounts(tmp_path / str(part)).path
    twin = StoredCounts(tmp_path / "twin").path  # the third, again
    with pytest.warns(UserWarning, match=r"of 3 parts, 1, 2 not among these folders"):
        merge_runs(twin, paths[3])
    with pytest.warns(UserWarning, match=r"of 3 parts, 2 not among"):
        merge_runs(paths[1], paths[3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        merge_runs(paths[1], paths[2])  # the third one was brought in before


def test_a_damaged_part_is_not_taken(tmp_path: Path) -> None:
    one, other = StoredCounts(tmp_path / "1"), StoredCounts(tmp_path / "2")
    (damaged,) = (tmp_path / "2").glob("store/*/shards/*/00001.safetensors")
    damaged.write_bytes(damaged.read_bytes()[:-3])
    before = {path: path.read_bytes() for path in (tmp_path / "1").rglob("*.safetensors")}
    with pytest.raises(RunError, match=r"00001\.safetensors is damaged"):
        merge_runs(one.path, other.path)
    assert {path: path.read_bytes() for path in (tmp_path / "1").rglob("*.safetensors")} == before


def test_two_different_results_of_one_name_are_not_merged(tmp_path: Path) -> None:
    paths = []
    for value in (1.0, 2.0):
        with open_run("parts", {}, root=tmp_path / str(value)) as run:
            run.save("a", Effects(torch.full((2, 4), value), axes=("layer",), metric="logit"))
        paths.append(run.path)
    with pytest.raises(RunError, match=r"expected one result, found different ones"):
        merge_runs(*paths)
    assert merge_runs(paths[0], paths[0]).names == ("a",)


@pytest.mark.parametrize("part", ["0/2", "3/2", "half", "2", "1/0"])
def test_a_part_that_cannot_be_is_refused(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARITH_LENS_PART", part)
    with pytest.raises(RunError, match=r"such as 2/3"), open_run("x", {}, root=tmp_path):
        pass
