"""Two writers are kept apart, a full disk loses nothing, and bad folders are refused by name."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.children import Script
from support.fresh import MODEL_LIBRARIES, FreshPython
from support.made_runs import MadePairs

from arith_lens.effects import Effects
from arith_lens.runs import Run, RunError, find_runs, load_run, open_run


def effects(value: int) -> Effects:
    return Effects(torch.full((2, 4), float(value)), axes=("layer",), metric="logit")


def value_of(run: Run, name: str) -> float:
    return float(load_run(run.path).load_arrays(name).tensors["per_pair"][0, 0])


def test_a_second_writer_is_told_who_has_the_folder(tmp_path: Path) -> None:
    with open_run("x", {}, root=tmp_path) as first:
        first.save("a", effects(1))
        second = open_run("x", {}, root=tmp_path)
        with pytest.raises(RunError) as refused, second:
            pass
        with pytest.raises(RunError, match=f"process {os.getpid()} on"):
            second.save("a", effects(2))
        assert value_of(first, "a") == 1, "readers are not blocked"
        assert first.manifest["status"] == "running"
    for part in (str(first.path), f"process {os.getpid()} on", "since 20", "another root"):
        assert part in str(refused.value)
    with second:
        assert second.names == ("a",), "what the first saved meanwhile is seen"


def test_a_run_within_itself_keeps_the_lock_until_the_outer_block_ends(tmp_path: Path) -> None:
    run, other = (open_run("x", {}, root=tmp_path) for _ in range(2))
    with run:
        with run, pytest.raises(RunError, match="for this process alone"):
            other.save("a", effects(1))
        with pytest.raises(RunError, match="for this process alone"):
            other.save("a", effects(1))
    other.save("a", effects(1))
    assert value_of(run, "a") == 1


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "import sys, time; from arith_lens.runs import open_run\n"
        f"with open_run('x', {{}}, root={str(tmp_path)!r}):\n"
        "    print('open', flush=True); time.sleep(100)"
    )
    script = Script(code, output=tmp_path / "printed.txt")
    while not (script.output.exists() and script.printed == "open\n"):
        assert script.process.is_alive(), script.printed
        time.sleep(0.01)
    with pytest.raises(RunError, match=f"process {script.process.pid} on"):
        open_run("x", {}, root=tmp_path).save("a", effects(1))
    script.process.kill()
    script.wait()
    with open_run("x", {}, root=tmp_path) as run:
        run.save("a", effects(1))
    assert value_of(run, "a") == 1
    assert not (run.path / ".holder.json").exists()


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    with open_run("x", {}, root=tmp_path) as run:
        run.save("a", effects(1))
    host = socket.gethostname().replace(".", "-")
    ended = f"{host}.{_ended_process()}.partial"
    folder = run.folder("a")
    shards = folder / "shards" / "0123"
    shards.mkdir(parents=True)
    for path in (run.path / f".run.json.{ended}", folder / f".result.csv.{ended}",
                 shards / f".00000.safetensors.{ended}", folder / "result.2.csv"):  # fmt: skip
        path.write_text("half")
    mine = [run.path / "notes.txt", run.path / f".notes.{host}.{os.getpid()}.partial"]
    for path in mine:
        path.write_text("mine")
    with run:
        run.save("a", effects(1))
    left = {
        path.name for place in (run.path, folder) for path in place.rglob("*") if path.is_file()
    }
    assert left == {
        *("run.json", ".lock", *(path.name for path in mine)),
        *("identity.json", "result.json", "result.2.safetensors", "result.2.csv"),
    }


@pytest.mark.parametrize("number", ["9" * 40, "\N{SUPERSCRIPT TWO}"])
def test_a_half_written_file_of_a_process_with_an_impossible_number_is_no_hindrance(
    tmp_path: Path, number: str
) -> None:
    run = open_run("x", {}, root=tmp_path)
    host = socket.gethostname().replace(".", "-")
    half = run.path / f".run.json.{host}.{number}.partial"
    half.write_text("half")
    run.save("a", effects(1))
    assert value_of(run, "a") == 1
    assert half.exists() == (not number.isdecimal())  # then it is of another kind of writer


@pytest.mark.parametrize(
    "part",
    ["x", "x/{key}", "x/{key}/trainings", "store", "store/{result}", "store/{result}/shards"],
)
def test_a_link_in_a_folder_of_results_leads_no_writing_elsewhere(
    tmp_path: Path, part: str
) -> None:
    root, elsewhere = tmp_path / "results", tmp_path / "elsewhere"
    question = {"method": "mine"}
    run = open_run("x", {}, root=root)
    with run:
        run.shards("a", question).save(0, {"values": torch.ones(1)})
        run.save("a", effects(1), identity=question)
    folder = run.store.folder_of(run.manifest["results"]["a"]["identity"])
    linked = root / part.format(key=run.path.name, result=folder.name)
    elsewhere.mkdir()
    (elsewhere / "mine.txt").write_text("mine")
    if linked.exists():
        shutil.move(linked, elsewhere / "moved")
    linked.symlink_to(elsewhere / "moved" if (elsewhere / "moved").exists() else elsewhere)
    before = {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")}
    with (
        pytest.raises(RunError, match=f"found the link {linked} to"),
        open_run("x", {}, root=root) as run,
    ):
        run.save("a", effects(2), identity=question)
    assert {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")} == before


def test_a_root_that_is_a_link_is_the_users_choice(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "results").symlink_to(tmp_path / "disk")
    with open_run("x", {}, root=tmp_path / "results") as run:
        run.save("a", effects(1))
    assert value_of(run, "a") == 1


def _ended_process() -> int:
    """The number of a process that runs no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


class Disk:
    """Counts what is written, and is full from one write on."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.writes = 0
        self.full_after: int | None = None
        for owner, name in ((Path, "open"), (Path, "replace"), (Path, "mkdir"), (os, "fsync")):
            patched.setattr(owner, name, self._counted(getattr(owner, name), name))

    def _counted(self, right: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counted(*given: Any, **options: Any) -> Any:
            mode = options.get("mode", given[1] if len(given) > 1 else "r")
            if name == "open" and "w" not in mode:
                return right(*given, **options)
            self.writes += 1
            if self.full_after is not None and self.writes > self.full_after:
                raise OSError(28, "No space left on device")
            return right(*given, **options)

        return counted


class TextPairs(MadePairs):
    """Pairs with text, which a run keeps in a file of its own."""

    reference_text = ("1 + 2 = ",) * 18

    def to_jsonl(self, path: Path) -> None:
        path.write_text("\n".join(self.reference_text))


def experiment(root: Path) -> Iterator[str]:
    """Two shards of a result, then the result, which replaces an older one; says what is done."""
    with open_run("x", {}, root=root) as run:
        for index in range(2):
            shards = run.shards("a", {"seed": 1})
            if shards.load(index) is None:
                shards.save(index, {"values": torch.full((3,), float(index))})
            yield f"shard {index}"
        run.save("a", effects(2), pairs=TextPairs(), identity={"seed": 1})
        yield "result"


def test_a_full_disk_loses_nothing_at_whatever_write_it_is_full(tmp_path: Path) -> None:
    """Full from the first write on, from the second, and so on until the experiment passes."""
    for full_after in range(100):
        root = tmp_path / str(full_after)
        with open_run("x", {}, root=root) as run:
            run.save("a", effects(1))
            run.save("other", effects(7))
        done = []
        with pytest.MonkeyPatch.context() as patched:
            disk = Disk(patched)
            disk.full_after = full_after
            try:
                done.extend(step for step in experiment(root))
            except RunError as error:
                said = str(error)
                assert "No space left" in said and "ree some space" in said
            else:
                break
        assert value_of(run, "a") in (1, 2) and value_of(run, "other") == 7
        if (
            "result" in done
        ):  # without it, the manifest may be in place and what follows have failed
            assert value_of(run, "a") == 2
        elif "shard 1" not in done:
            assert value_of(run, "a") == 1
        with open_run("x", {}, root=root) as again:
            shards = again.shards("a", {"seed": 1})
            kept = {f"shard {index}" for index in range(2) if shards.load(index) is not None}
            is_stored = again.stored({"seed": 1}) is not None
        assert value_of(run, "a") == 2 or is_stored or kept >= set(done)
        assert list(experiment(root))[-1] == "result"
        assert value_of(run, "a") == 2 and value_of(run, "other") == 7
    assert (load_run(run.path).folder("a") / "result.pairs.jsonl").exists()
    assert full_after > 24, "every write of shards and result was refused once"


def test_a_run_that_was_stopped_says_what_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt), open_run("x", {}, root=tmp_path) as run:
        run.save("a", effects(1))
        for index in range(3):
            run.shards("b", {}).save(index, {"values": torch.ones(1)})
        raise KeyboardInterrupt
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"kept in {run.path}: a and 3 shards of b. Run the same again" in said
    with pytest.raises(ZeroDivisionError) as error, run:
        _ = 1 / 0
    assert "3 shards of b" in error.value.__notes__[0]


def test_a_file_where_a_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("mine")
    with pytest.raises(RunError, match="hoose another root"):
        open_run("x", {}, root=tmp_path / "results")
    run = open_run("x", {}, root=tmp_path)
    run.path.rmdir()
    run.path.write_text("mine")
    with pytest.raises(RunError, match="hoose another root"):
        open_run("x", {}, root=tmp_path)
    with pytest.raises(RunError, match="expected a run folder"):
        load_run(run.path)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system without folders")
def test_a_root_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(RunError, match="hoose another root"):
        open_run("x", {}, root="/proc/self/results")


def test_a_folder_that_became_read_only_is_refused(tmp_path: Path) -> None:
    with open_run("x", {}, root=tmp_path) as run:
        run.save("a", effects(1))

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "open", refuse)
        with pytest.raises(RunError, match="Read-only file system"), run:
            pass
    assert value_of(run, "a") == 1


def test_a_folder_in_the_locks_place_is_named(tmp_path: Path) -> None:
    run = open_run("x", {}, root=tmp_path)
    (run.path / ".lock").mkdir()
    with pytest.raises(RunError, match=r"\.lock"), run:
        pass


@pytest.mark.parametrize("holder", ["", "{oops", "[]", '{"pid": 1}'])
def test_a_foreign_holder_does_not_hide_the_refusal(tmp_path: Path, holder: str) -> None:
    with open_run("x", {}, root=tmp_path) as run:
        (run.path / ".holder.json").write_text(holder)
        with pytest.raises(RunError, match="another process"):
            open_run("x", {}, root=tmp_path).save("a", effects(1))


@pytest.mark.parametrize("contents", [b"", b"mine", b"\x00\xff" * 99])
def test_a_foreign_lock_file_is_no_lock(tmp_path: Path, contents: bytes) -> None:
    run = open_run("x", {}, root=tmp_path)
    (run.path / ".lock").write_bytes(contents)
    with run:
        run.save("a", effects(1))
    assert value_of(run, "a") == 1


def test_the_run_of_something_else_under_this_key_is_refused(tmp_path: Path) -> None:
    with open_run("x", {"seed": 0}, root=tmp_path) as theirs:
        theirs.save("a", effects(1))
    ours = open_run("x", {"seed": 1}, root=tmp_path)
    ours.path.rmdir()
    theirs.path.rename(ours.path)
    with pytest.raises(RunError, match="another configuration"):
        open_run("x", {"seed": 1}, root=tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 0.99])
def test_a_manifest_that_was_cut_short_is_refused(tmp_path: Path, share: float) -> None:
    with open_run("x", {}, root=tmp_path) as run:
        run.save("a", effects(1))
    data = (run.path / "run.json").read_bytes()
    (run.path / "run.json").write_bytes(data[: int(share * len(data))])
    for reading in (lambda: load_run(run.path), lambda: open_run("x", {}, root=tmp_path)):
        with pytest.raises(RunError, match="damaged"):
            reading()
    with pytest.warns(UserWarning, match="passed over"):
        assert find_runs("x", root=tmp_path) == []


@pytest.mark.parametrize("place", [0.0, 0.1, 0.5, 0.999])
def test_one_flipped_bit_of_a_result_is_refused(tmp_path: Path, place: float) -> None:
    with open_run("x", {}, root=tmp_path) as run:
        run.save("a", effects(1))
    path = run.folder("a") / "result.safetensors"
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 16
    path.write_bytes(data)
    with pytest.raises(RunError, match=r"result\.safetensors, found another"):
        run.load_arrays("a")


def test_a_reader_follows_a_result_that_was_replaced(tmp_path: Path) -> None:
    with open_run("x", {}, root=tmp_path) as run:
        run.save("a", effects(1))
        reader = load_run(run.path)
        run.save("a", effects(2))
        assert float(reader.load_arrays("a").tensors["per_pair"][0, 0]) == 2


def test_figures_are_drawn_where_no_model_library_is(fresh_python: FreshPython) -> None:
    assert not MODEL_LIBRARIES & fresh_python.after["drawing"].packages
    assert "drawing where there are no model libraries" in fresh_python.after
    assert fresh_python.page.stat().st_size > 10_000
    manifest = json.loads((fresh_python.run / "run.json").read_text())
    assert manifest["results"]["effects-addition"]
