"""Kill -9 at any moment loses nothing that was finished, and the run ends with the same bits.

`ARITH_LENS_KILLS=20` kills more often than the suite does.
"""

import json
import os
import random
import signal
import socket
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from support import children

from arith_lens.runs import Run, RunError, find_runs, load_run
from arith_lens.runs.store import Store
from experiments.catalogue import experiments

KILLS = int(os.environ.get("ARITH_LENS_KILLS", "4"))
N_PAIRS, SHARD = 40, 2
NAMES = ("first", "second")


def compute(checkpoint: Path, root: Path, ready: Connection, environment: dict[str, str]) -> None:
    """What is killed: two results of a small random model, twenty shards each."""
    import arith_lens as al
    from arith_lens.runs import processes

    os.environ.update(environment)
    processes.JOIN, processes.SILENCE = timedelta(seconds=30), 5
    torch.set_num_threads(1)
    model = al.load_model(str(checkpoint))
    ready.send("ready")
    with al.open_run("killed", {}, model=model, root=root) as run:
        for seed, name in enumerate(NAMES):
            generator = torch.Generator().manual_seed(seed)
            tokens = torch.randint(3, model.d_vocab, (N_PAIRS, 9), generator=generator)
            other = torch.randint(3, model.d_vocab, (N_PAIRS, 9), generator=generator)
            pairs = al.PromptPairs.from_tokens(tokens, other, tokens[:, 2])
            settings: dict[str, Any] = {"metric": "logit", "batch_size": SHARD, "progress": False}
            al.path_patch(model, pairs, run=run, name=name, **settings)


@pytest.fixture(scope="module")
def checkpoint(make_hf: Any, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    make_hf("mistral").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def start(checkpoint: Path, root: Path, **environment: str) -> Any:
    """The process, once it begins to compute."""
    ready, child = children.pipe(duplex=False)
    with ready, child:
        process = children.start(compute, checkpoint, root, child, environment)
        assert ready.poll(120)
    return process


def folder_in(root: Path) -> Path | None:
    return next((root / "killed").glob("*/"), None)


def finished_parts(root: Path) -> dict[str, bytes]:
    """The contents of every shard and of every whole result's arrays.

    A result is whole in the store a moment before the run's manifest names it.
    """
    folder = folder_in(root)
    if folder is None:
        return {}
    files = sorted(root.glob("store/*/shards/*/0*.safetensors"))
    parts = {str(path.relative_to(root)): path.read_bytes() for path in files}
    saved_names(folder)
    for entry in root.glob("store/*/result.json"):
        Store(root).load(json.loads(entry.read_bytes())["identity"])  # checks its digest
        parts[entry.parent.name] = (entry.parent / "result.safetensors").read_bytes()
    return parts


def saved_names(folder: Path) -> tuple[str, ...]:
    """Of results that load, which checks their digests."""
    if not (folder / "run.json").exists():
        return ()
    run = load_run(folder)
    for name in run.names:
        run.load(name)
    return run.names


def lost(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    """What was finished before and is not there as it was, nor part of a result that is saved."""
    missing = {part for part, data in before.items() if after.get(part) != data}
    return {part for part in missing if "/" not in part or part.split("/")[1] not in after}


def bits(run: Run, name: str) -> dict[str, torch.Tensor]:
    return {
        key: tensor.contiguous().view(torch.uint8)
        for key, tensor in run.load_arrays(name).tensors.items()
    }


def assert_same_run(found: Run, expected: Run) -> None:
    assert found.finished and found.names == expected.names == NAMES
    for name in NAMES:
        ours, theirs = bits(found, name), bits(expected, name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
        timed = {"seconds", "processor_seconds", "certificates_after_resuming"}
        computations = [
            {key: value for key, value in run.load(name).computation.items() if key not in timed}
            for run in (found, expected)
        ]
        assert computations[0] == computations[1]
    left = [path.name for path in found.path.parents[1].rglob("*")]
    assert not [name for name in left if name == "shards" or "partial" in name]


def unbroken(checkpoint: Path, root: Path) -> float:
    """Seconds that one process computes a whole run under `root`."""
    worker = start(checkpoint, root)
    computing = time.monotonic()
    worker.join(120)
    return time.monotonic() - computing


def test_a_run_that_is_killed_and_run_again_ends_with_the_same_bits(
    checkpoint: Path, tmp_path: Path
) -> None:
    started = time.monotonic()
    seconds = unbroken(checkpoint, tmp_path / "whole")
    expected = load_run(folder_in(tmp_path / "whole") or tmp_path)
    draw, kills, rounds, resumed_at = random.Random(0), 0, 0, []
    root = tmp_path / "killed-0"
    while True:
        before = finished_parts(root)
        process = start(checkpoint, root)
        computing = time.monotonic()
        process.join(draw.uniform(0, seconds * 0.6) if kills < KILLS else 120)
        if process.is_alive():
            process.kill()
            process.join()
            kills += 1
            after = finished_parts(root)
            resumed_at.append(len(after))
            assert lost(before, after) == set()
            continue
        assert process.exitcode == 0
        seconds = min(seconds, time.monotonic() - computing)  # the first one may be slow
        assert_same_run(load_run(folder_in(root) or root), expected)
        rounds += 1
        if kills == KILLS:
            break
        root = tmp_path / f"killed-{rounds}"
    print(f"{kills} kills in {rounds} runs, each run {seconds:.2f} s unbroken; parts that were "
          f"finished at each kill: {resumed_at}; {time.monotonic() - started:.0f} s")  # fmt: skip
    assert not torch.equal(expected.load("first").logit, expected.load("second").logit)


def start_workers(checkpoint: Path, root: Path) -> list[Any]:
    """Two processes that share a run, as torchrun tells them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        start(checkpoint, root, RANK=rank, LOCAL_RANK=rank, **environment) for rank in ("0", "1")
    ]


def test_several_workers_of_which_any_is_killed_end_with_the_bits_of_one_process(
    checkpoint: Path, tmp_path: Path
) -> None:
    started = time.monotonic()
    seconds = unbroken(checkpoint, tmp_path / "alone")
    root, draw, resumed_at = tmp_path / "shared", random.Random(1), []
    for victim in [0, 1] * max(1, KILLS // 4):
        before = finished_parts(root)
        workers = start_workers(checkpoint, root)
        workers[victim].join(draw.uniform(0, seconds / 2))
        workers[victim].kill()
        for worker in workers:
            worker.join(120)
        assert workers[victim].exitcode in (-9, 0)
        is_alone = workers[victim].exitcode != 0
        assert (workers[1 - victim].exitcode != 0) == (is_alone and victim == 0)
        after = finished_parts(root)
        resumed_at.append(len(after))
        assert lost(before, after) == set()
    print(f"parts that were finished at each kill: {resumed_at}; "
          f"{time.monotonic() - started:.0f} s")  # fmt: skip
    assert_same_run(
        load_run(folder_in(root) or root), load_run(folder_in(tmp_path / "alone") or root)
    )


SMALL: dict[str, dict[str, Any]] = {
    "are_they_needed": {
        "operations": ("addition",),
        **{"n": 3, "most": 2, "controls": 1, "candidates": 2, "masked": 1},
    },
    "what_else_breaks": {"n": 2, "heads": 2, "controls": 0, "limit": 1},
    "how_good_is_it": {
        "tasks": ("world_two_digit",),
        **{"n": 2, "heads": 2, "controls": 0, "limit": 2, "max_new_tokens": 2},
    },
}
"""Experiments whose results are made in different ways, and settings that take a second or two."""


def run_experiment(name: str, root: Path, threads: int, kill_at: int | None = None) -> int:
    """Run one experiment; the number of shards and results that it saved.

    Args:
        kill_at: this process is killed as soon as it has saved so many.
    """
    from arith_lens.runs.shards import Shards
    from arith_lens.runs.store import Store

    n_saved = 0

    def counted(save: Any) -> Any:
        def save_and_count(*arguments: Any, **options: Any) -> Any:
            nonlocal n_saved
            entry = save(*arguments, **options)
            n_saved += 1
            if n_saved == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return entry

        return save_and_count

    torch.set_num_threads(threads)
    experiment = experiments()[name].load()
    with pytest.MonkeyPatch.context() as patched:
        for kind in (Shards, Store):
            patched.setattr(kind, "save", counted(kind.save))
        experiment(experiment.config(device="cpu", **SMALL[name]), root=root)
    return n_saved


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.filterwarnings("ignore:.*groups of aligned prompts")
def test_an_experiment_that_is_killed_and_started_again_ends_with_the_same_bits(
    name: str, tmp_path: Path
) -> None:
    if name == "how_good_is_it":
        pytest.importorskip("lm_eval", reason="needs the extra `evaluation`")
    threads = torch.get_num_threads()
    n_saved = run_experiment(name, tmp_path / "unbroken", threads)
    kill_at = n_saved * 2 // 3
    process = children.start(run_experiment, name, tmp_path / "killed", threads, kill_at)
    process.join(240)
    assert process.exitcode == -signal.SIGKILL
    (killed,) = (tmp_path / "killed" / name).glob("*/")
    assert load_run(killed).manifest["status"] == "running"
    n_saved_again = run_experiment(name, tmp_path / "killed", threads)
    assert n_saved_again <= n_saved - kill_at + 1, "what was saved is not computed again"
    (expected,), (found,) = (
        find_runs(name, root=tmp_path / root) for root in ("unbroken", "killed")
    )
    assert found.complete and found.names == expected.names
    for result in found.names:
        ours, theirs = bits(found, result), bits(expected, result)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours), result


def test_the_check_would_see_a_loss(tmp_path: Path) -> None:
    before = {"first": b"1", "store/second/shards/0123/00000.safetensors": b"2"}
    assert lost(before, {}) == set(before)
    assert lost(before, {**before, "first": b"0"}) == {"first"}
    assert lost(before, {"first": b"1", "second": b"3"}) == set()
    with pytest.raises(RunError):
        load_run(tmp_path)
