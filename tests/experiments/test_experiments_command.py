"""How experiments start: mistakes end with a message, and one process of several speaks."""

import os
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.children import Script

from arith_lens.path_patching import CertificateError, UnsupportedTrunk
from arith_lens.runs import Run, RunError, find_runs, open_run
from arith_lens.runs.processes import Processes, processes
from experiments import are_they_needed
from experiments.command import continue_after_part, robust_output, run
from experiments.configs.shared import ModelSettings
from experiments.settings import Experiment

LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Start an experiment that prints and warns, as one of several processes; what it did."""

    def start(
        main: Callable[[], None] | None = None, *, shares: bool, **environment: str
    ) -> list[str]:
        did: list[str] = []

        def prints() -> None:
            did.append(f"{os.environ.get('WORLD_SIZE', '1')} processes")
            print("said")
            warnings.warn("warned", stacklevel=1)

        for name in LAUNCHED:
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        run(main or prints, "name", shares=shares)
        return did

    return start


def test_the_first_of_several_processes_alone_speaks(started: Any, capsys: Any) -> None:
    with pytest.warns(UserWarning, match="warned"):
        assert started(shares=True, RANK="0", WORLD_SIZE="2") == ["2 processes"]
    assert capsys.readouterr().out == "said\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert started(shares=True, RANK="1", WORLD_SIZE="2") == ["2 processes"]
    assert capsys.readouterr().out == ""


def test_work_that_is_not_shared_is_done_by_the_first_as_if_alone(started: Any) -> None:
    with pytest.warns(UserWarning, match="warned"):
        assert started(shares=False, RANK="0", LOCAL_RANK="0", WORLD_SIZE="2") == ["1 processes"]
    assert processes() == Processes()
    assert started(shares=False, RANK="1", LOCAL_RANK="1", WORLD_SIZE="2") == []


def test_work_that_is_not_shared_is_not_computed_in_parts(started: Any) -> None:
    with pytest.raises(SystemExit, match=r"expected name in one process, found .*PART=1/2"):
        started(shares=False, ARITH_LENS_PART="1/2")


@pytest.mark.parametrize(
    "error",
    [
        RunError("full"),
        FloatingPointError("NaN in layer 3"),
        UnsupportedTrunk("found soft-capped logits"),
        CertificateError("expected the sweep to reproduce the model"),
    ],
)
def test_an_error_is_said_with_what_is_kept(tmp_path: Path, started: Any, error: Any) -> None:
    def fails() -> None:
        with open_run("x", {}, root=tmp_path) as run:
            run.shards("a", {}).save(0, {"values": torch.ones(1)})
            raise error

    with pytest.raises(SystemExit) as ended:
        started(fails, shares=True)
    said = str(ended.value.code)
    assert said.startswith(f"{type(error).__name__}: {error}\nkept in ")
    assert "1 shards of a." in said


def _failing(run: Run, model: Any, settings: Any) -> None:
    raise FloatingPointError("NaN in layer 3")


def test_a_second_equal_command_is_refused_and_leaves_the_first_ones_folder(tmp_path: Path) -> None:
    experiment = Experiment("x", ModelSettings, _failing, lambda model, settings: "")

    def fill(error: type[Exception], message: str) -> Path:
        run = open_run("x", {}, root=tmp_path)
        with pytest.raises(error, match=message):
            experiment.fill(run, None, ModelSettings())
        return run.path

    with open_run("x", {}, root=tmp_path) as first:
        assert fill(RunError, "for this process alone") == first.path
        first.shards("a", {}).save(0, {"values": torch.ones(1)})
    assert fill(FloatingPointError, "NaN").exists()  # it has a shard
    shutil.rmtree(tmp_path)
    assert not fill(FloatingPointError, "NaN").parent.exists()  # nothing is in it


def test_who_exits_with_a_message_inside_a_run_reads_what_is_kept(
    tmp_path: Path, started: Any
) -> None:
    def fails() -> None:
        with open_run("x", {}, root=tmp_path):
            sys.exit("ValueError: no such operation")

    with pytest.raises(SystemExit, match=r"^ValueError: no such operation\nkept in "):
        started(fails, shares=True)

    def ends() -> None:
        with open_run("x", {}, root=tmp_path):
            raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        started(ends, shares=True)
    assert ended.value.code == 130


@pytest.mark.filterwarnings("ignore:.*groups of aligned prompts")
def test_the_experiment_of_knockouts_is_shared_by_two_processes(tmp_path: Path) -> None:
    """Every curve, those of iterative masking too; and one report."""
    arguments = ["--operations", "addition", "--n", "4", "--most", "2", "--controls", "1"]
    arguments += ["--candidates", "2", "--masked", "1", "--device", "cpu"]
    started = [*arguments, "--root", str(tmp_path / "2")]
    script = Script(
        "experiments", "are_they_needed", *started, output=tmp_path / "printed.txt", n=2
    )
    assert script.wait(600) == 0, script.printed[-3000:]
    said = script.printed
    assert said.count("saved in") == said.count("iterative masking chooses") == 1
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        config = are_they_needed.KnockoutConfig(
            operations=("addition",), n=4, most=2, controls=1, candidates=2, masked=1, device="cpu"
        )
        are_they_needed.main(config, root=tmp_path / "1")
    finally:
        torch.set_num_threads(threads)
    (two,), (one,) = (find_runs("are_they_needed", root=tmp_path / n) for n in "21")
    names = ("effects-addition", "curve-addition-effect", "curve-addition-END", "controls-addition")
    names += ("mask-addition", "curve-addition-iterative", "curve-addition-MLPs")
    names += ("mlp-controls-addition", "knockout-addition")
    assert two.names == one.names == names
    assert two.path.name == one.path.name
    assert same(two, one)
    assert not list(two.store.folder.glob("*/shards"))


def same(a: Run, b: Run) -> bool:
    """Whether all numbers are, bit for bit."""
    pairs = [(a.load_arrays(name).tensors, b.load_arrays(name).tensors) for name in a.names]
    return all(
        x.keys() == y.keys() and all(torch.equal(x[key], y[key]) for key in x) for x, y in pairs
    )


def test_a_part_goes_on_to_the_next_result(capsys: Any) -> None:
    from arith_lens.runs import PartDone

    with continue_after_part():
        raise PartDone("part 1 is done")
    assert capsys.readouterr().out == "part 1 is done\n"


def test_characters_that_the_output_lacks_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "out").open("w", encoding="ascii") as out:
        monkeypatch.setattr(sys, "stdout", out)
        with robust_output():
            print("−5% × … ≥ Jürgen")
    assert (tmp_path / "out").read_text() == "-5% x ... >= J?rgen\n"


@pytest.mark.parametrize("shares", [True, False])
def test_output_that_nobody_reads_ends_the_command_quietly(
    shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", encoding="utf-8") as out:
        monkeypatch.setattr(sys, "stdout", out)
        with pytest.raises(SystemExit) as ended:
            run(lambda: print("a line"), "name", shares=shares)
        out.flush()  # as Python does at its end
    assert ended.value.code == 141


def test_another_pipe_that_breaks_is_no_quiet_end() -> None:
    with pytest.raises(BrokenPipeError), robust_output():
        raise BrokenPipeError("a helper process has gone")
