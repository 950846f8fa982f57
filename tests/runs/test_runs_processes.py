"""Several processes, or machines, fill one run: the same bits as one process alone."""

import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import torch
from support.children import Script
from support.made_runs import shard_files

from arith_lens.runs import Run, RunError, load_run, open_run

N_PAIRS, SHARD = 14, 2
SCRIPT = """
import os, signal, sys, time
import torch
import arith_lens as al
from arith_lens.runs import PartDone, Shards
from arith_lens.runs import processes

checkpoint, root = sys.argv[1:]
processes.JOIN = processes.timedelta(seconds=int(os.environ.get("JOIN", "90")))
processes.SILENCE = 5
rank, kill = os.environ.get("RANK"), os.environ.get("KILL", "")
save, computed = Shards.save, []
def save_and_die(shards, index, *given):
    is_first_start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if kill == rank and computed and is_first_start:  # in its second shard
        os.kill(os.getpid(), signal.SIGKILL)
    save(shards, index, *given)
    computed.append(index)
    if kill:
        time.sleep(0.5)
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
    checkpoint: Path,
    root: Path,
    *,
    n: int = 1,
    fails: bool = False,
    restarts: int = 0,
    **environment: str,
) -> str:
    """Run the script in n processes; what they say."""
    output = root.with_name(f"{root.name}-{uuid4().hex}.txt")
    agent: dict[str, Any] = {"n": n if n > 1 else 0, "restarts": restarts, **environment}
    script = Script(SCRIPT, str(checkpoint), str(root), output=output, **agent)
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


def computed_by(printed: str) -> list[set[int]]:
    """The shards of each process that came to the end of the first result."""
    lines = [line for line in printed.splitlines() if line.startswith("COMPUTED")]
    return [{*map(int, line.split()[1:])} for line in lines]


@pytest.mark.parametrize("kill", ["0", "1"])
def test_what_torchruns_agent_ends_is_resumed(
    checkpoint: Path, alone: dict[str, torch.Tensor], tmp_path: Path, kill: str
) -> None:
    fill(checkpoint, tmp_path, n=2, fails=True, KILL=kill)
    assert the_run(tmp_path).manifest["status"] in ("running", "stopped by RunError")
    kept = {int(path.stem) for path in shard_files(the_run(tmp_path), "effects")}
    assert 0 < len(kept) < N_PAIRS // SHARD
    printed = fill(checkpoint, tmp_path)  # goes on in another number of processes
    assert computed_by(printed) == [{*range(N_PAIRS // SHARD)} - kept]
    assert same(contents(tmp_path), alone)


def test_processes_that_torchruns_agent_starts_anew_go_on(
    checkpoint: Path, alone: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    """The store has the keys of the former start; they count for nothing."""
    printed = fill(checkpoint, tmp_path, n=2, restarts=1, KILL="1")
    (first, second) = computed_by(printed)
    assert 0 < len(first | second) < N_PAIRS // SHARD, "finished shards are read"
    assert same(contents(tmp_path), alone)


@pytest.mark.parametrize("kill", ["0", "1"])
def test_the_shards_of_a_killed_process_are_the_others(
    checkpoint: Path, alone: dict[str, torch.Tensor], tmp_path: Path, kill: str
) -> None:
    port = free_port()
    workers = [
        Script(
            *(SCRIPT, str(checkpoint), str(tmp_path)),
            output=tmp_path / f"{rank}.txt",
            RANK=rank,
            KILL=kill,
            WORLD_SIZE="2",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
        )
        for rank in "01"
    ]
    ends = [worker.wait() for worker in workers]
    survivor = workers[1 - int(kill)]
    assert ends[int(kill)] == -9
    if kill == "0":  # it has the lock and the store
        assert ends[1] == 1 and "found that the first one has ended" in survivor.printed
        survivor = Script(SCRIPT, str(checkpoint), str(tmp_path), output=tmp_path / "2.txt")
        assert survivor.wait() == 0
    (own,) = computed_by(survivor.printed)
    assert len(own) == (N_PAIRS // SHARD) - 1 if kill == "1" else own, "all but one finished shard"
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


def test_parts_of_several_machines_are_brought_together_by_copying_the_store(
    checkpoint: Path, alone: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    for part in (1, 2):
        said = fill(checkpoint, tmp_path / str(part), ARITH_LENS_PART=f"{part}/2")
        assert f"PART part {part} of 2 is done" in said and "Copy the folder store/" in said
    runs = [the_run(tmp_path / str(part)) for part in (1, 2)]
    assert [run.manifest["status"] for run in runs] == ["part 1 of 2", "part 2 of 2"]
    assert [len(shard_files(run, "effects")) for run in runs] == [4, 3]
    shutil.copytree(tmp_path / "2" / "store", tmp_path / "1" / "store", dirs_exist_ok=True)
    assert len(shard_files(runs[0], "effects")) == N_PAIRS // SHARD
    said = fill(checkpoint, tmp_path / "1")
    assert "COMPUTED\n" in said, "no shard of the effects is computed again"
    assert same(contents(tmp_path / "1"), alone)
    shutil.copytree(tmp_path / "1" / "store", tmp_path / "2" / "store", dirs_exist_ok=True)
    assert "COMPUTED\n" in fill(checkpoint, tmp_path / "2"), "a whole result is read, too"
    assert same(contents(tmp_path / "2"), alone)


def test_another_version_of_the_package_has_a_run_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = open_run("x", {}, root=tmp_path).path
    assert open_run("x", {}, root=tmp_path).path == ours
    monkeypatch.setattr("arith_lens.runs.manifest.installed", lambda package: "0.0.0")
    assert open_run("x", {}, root=tmp_path).path != ours


@pytest.mark.parametrize("part", ["0/2", "3/2", "half", "2", "1/0"])
def test_a_part_that_cannot_be_is_refused(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARITH_LENS_PART", part)
    with pytest.raises(RunError, match=r"such as 2/3"), open_run("x", {}, root=tmp_path):
        pass
