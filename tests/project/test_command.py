"""The command of the installed package: what it does, and one line for what a user can mend."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch

import arith_lens as al
from arith_lens import auditing, exploration
from arith_lens.__main__ import _program, main
from arith_lens.auditing.measures import Scale
from arith_lens.explorer_page.explorer import unpacked
from arith_lens.model import weights
from arith_lens.operations import OPERATIONS
from arith_lens.pairs.text_files import KEYS


@pytest.fixture(autouse=True)
def loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command has the shipped models that all tests share; that of the wheel loads its own."""
    monkeypatch.setattr("arith_lens.model.load_model", al.load_model)


def test_models_are_listed_and_a_wrong_name_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(weights.CACHE, str(tmp_path))
    monkeypatch.setattr("arith_lens.pairs.keep_correct", lambda *_: pytest.fail("the model ran"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.gguf").touch()
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "own-2.5.gguf").touch()
    assert main(["models"]) == 0
    assert {"reference", "smollm2-135m"} <= {
        line.partition(":")[0] for line in capsys.readouterr().out.splitlines()
    }
    for arguments, words in (
        (["models", "get", "smol"], "expected one of smollm2-135m"),
        (["models", "get"], "expected a name after get"),
        (["models", "smollm2-135m"], "models get smollm2-135m"),
        (["audit", "smollm2-135m"], "arith-lens models get smollm2-135m"),
        (["audit", "reference", "--operation", "addtion"], "addtion"),
        (["mpa", "reference"], "did you mean 'map'?"),
        (["map", "reference", "--opration", "division"], "did you mean '--operation'?"),
        (["map", "reference", "--n", "0"], "expected --n of 1 or more, found 0"),
        (["map", "reference", "--n", "x"], "expected a whole number after --n, found 'x'"),
        (["map", "reference", "--n"], "expected a value after --n, found none"),
        (["map", "reference", "--pairs", "x.csv", "--columns", "label"], "found 'label'"),
        (["map", "smolm2-135m"], "did you mean 'smollm2-135m'?"),
        (["map", "reference", "--pairs", "x.csv", "--shots", "1"], "without --operation"),
        (["map"], "expected a model after the command, found none; see arith-lens map --help"),
        (["knockout", "reference", "--heads", "99.1", "--out", str(tmp_path)], "99.1"),
        (["knockout", "reference", "--heads", "MLP10"], "expected heads after --heads"),
        (["knockout", "reference", "--heads", "23"], "found 23; write layer.head, such as"),
        (["knockout", "reference", "--heads", "5.4,99.3", "--out", str(tmp_path)], "99.3"),
        (["knockout", "reference", "5.4", "99.3"], "did you mean --heads 5.4 99.3?"),
        (["map", "reference", "addition"], "did you mean --operation addition?"),
        (["map", "reference", "--pairs", "x.csv", "--operation", "addition"], "leave one"),
        (["knockout", "reference", "5.4", "--draw"], "expected an option among"),
        (["map", str(tmp_path / "owm.gguf")], "in its folder: own.gguf;"),
        (["map", str(tmp_path / "own.guff")], "in its folder: own.gguf;"),
        (["map", "own.guff"], "in its folder: own.gguf;"),
        (["map", "org/own-2.5"], "no answer from the hub"),
        (["audit", "reference", "--pairs", str(tmp_path / "none.jsonl")], "none.jsonl"),
    ):
        assert main(arguments) == 1
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert words in said and "Traceback" not in said and len(said) < 500


def test_an_audit_is_written_where_it_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    tasks: list[str] = []

    def stub(model: Any, pairs: Any, **options: Any) -> Any:
        calls.append((model.name, [*pairs], options["draws"], options["run"] is not None))
        return SimpleNamespace(save=lambda folder, task: tasks.append(task))

    monkeypatch.setattr(auditing, "audit", stub)
    out = tmp_path / "mine"
    assert main(["audit", "reference", "--draws", "7", "--out", str(out)]) == 0
    assert calls == [("reference", ["operands", "operator"], 7, True)]
    assert tasks == ["addition"], "it is in the title of the page"
    assert str(out / "reference-addition" / "audit.html") in capsys.readouterr().out

    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(auditing, "audit", stopped)
    assert main(["audit", "reference", "--out", str(out)]) == 130


@pytest.fixture
def own_pairs(tmp_path: Path) -> Path:
    """Three prompts of the user's own, in a file."""
    rows = [(3, 4, 5), (2, 5, 1), (4, 4, 1)]
    lines = [
        f'{{"reference": "{a} + {b} = ", "counterfactual": "{c} + {b} = ", "answer": "{a + b}", '
        f'"counterfactual_answer": "{c + b}"}}'
        for a, b, c in rows
    ]
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_maps_and_knockouts_agree_with_the_library(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    own_pairs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = ["--pairs", str(own_pairs), "--out", str(tmp_path)]
    folder = tmp_path / "reference-mine"
    monkeypatch.setattr("arith_lens.path_patching.matrix_rate", lambda model: 1e8)
    folder.mkdir()
    (folder / "map.html").touch()
    assert main(["map", "reference", *ours]) == 0
    printed = capsys.readouterr().out
    assert f"this replaces {folder / 'map.html'} (of 2" in printed
    assert "4 other answers" in printed and "(counterfactual_answer)." in printed
    assert str(folder / "map.html") in printed and (folder / "map.html").exists()
    assert re.search(r"^this takes about [\d.]+ to [\d.]+ s here$", printed, re.MULTILINE)
    page = (folder / "map.html").read_text("utf-8")
    assert "<title>Map: reference, mine, 3 problems</title>" in page
    facts = unpacked(re.findall(r'"([A-Za-z0-9+/=]{200,})"', page)[0])["sets"][0]["facts"]
    assert len(facts["candidates"]) > 1, "the page says with which answers C is compared"
    model = al.load_model("reference")
    pairs = al.keep_correct(model, al.PromptPairs.from_file(own_pairs, model))
    answers = {*pairs.answer.tolist(), *pairs.counterfactual_answer.tolist()}
    options: dict[str, Any] = {"candidates": sorted(answers)}
    effects = al.path_patch(model, pairs, metric="digit_contrast", **options, progress=False)
    table: Any = pd.read_csv(folder / "map.csv", dtype={"component": str}).set_index("component")
    top: Any = effects.heads.top(1)[0]
    assert table["mean"][str(top)] == pytest.approx(float(effects[top].mean()), abs=1e-5)
    assert table["mean"].drop(str(top)).abs().max() > 0

    assert main(["knockout", "reference", *ours, "--heads", str(top)]) == 0
    rows: Any = pd.read_csv(folder / "knockout.csv").set_index("heads")
    without = al.knock_out(model, pairs, [top], positions="end", progress=False)
    alone = al.keep_only(model, pairs, [top], positions="end", progress=False)
    assert rows.right[f"without {top}"] == pytest.approx(without.accuracy(), abs=1e-4)
    assert rows.right[f"{top} alone"] == pytest.approx(alone.accuracy(), abs=1e-4)
    others = Scale(12, 8, 0, 10).controls([top], 10).values()
    assert len(others) == 20 and [top] not in others
    shares = [al.knock_out(model, pairs, some, positions="end").accuracy() for some in others]
    control = rows.loc["without as many others"]
    assert (control.low, control.high) == pytest.approx((min(shares), max(shares)), abs=1e-4)
    printed = capsys.readouterr().out
    assert "20 draws: " in printed and "this replaces" not in printed


def stored_map() -> Any:
    """A page whose map has one head, by two metrics."""
    row = {"paths": "via_mlps", "component": "5.5", "mean": -0.2, "ci_low": -0.3, "ci_high": -0.1}
    last = {"metric": "digit_contrast", "mean": -4.25}
    tables = {"effects": pd.DataFrame([{**row, "metric": "relative_logit"}, {**row, **last}])}
    return exploration.Exploration({}, tables)


def test_the_explorer_is_about_prompts_that_are_answered_right(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    own_pairs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: list[int] = []

    def stub(model: Any, pairs: al.PromptPairs, *, setup: str) -> Any:
        counts.append(len(pairs))
        exec(setup, scope := {})
        assert torch.equal(scope["pairs"].reference, pairs.reference), "what the page's code makes"
        assert "mine.jsonl" in setup
        return stored_map()

    monkeypatch.setattr(exploration, "explored", stub)
    monkeypatch.setattr("arith_lens.path_patching.matrix_rate", lambda model: 1e8)
    text = own_pairs.read_text("utf-8").replace('"answer": "7"', '"answer": "6"')
    own_pairs.write_text(text, "utf-8")
    own_pairs.write_text(own_pairs.read_text("utf-8").replace('"answer"', '"label"'), "utf-8")
    more = ["--columns", "answer=label", "--out", str(tmp_path)]
    assert main(["explore", "reference", "--pairs", str(own_pairs), *more]) == 0
    page = tmp_path / "reference-mine" / "explorer.html"
    printed = capsys.readouterr().out
    assert str(page) in printed and counts == [1] and page.exists()
    assert "1 of 3 prompts (1 of 3 problems) are answered right" in printed
    assert "\n  not '3 + 4 = ', where '6' is right and the model says '7'\n" in printed
    assert "lead over the others" not in printed, "the page's last map"
    assert "shares of the answer's" in printed
    assert "this takes about" in printed
    assert "5.5: -20.0% [-30.0%, -10.0%]" in printed, "the page begins with it"


@pytest.mark.filterwarnings("default")
def test_an_answer_without_its_blank_is_one_line_of_the_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("reference,counterfactual,answer\n3 plus 4 is,3 plus 5 is,7\n", "utf-8")
    main(["map", "reference", "--pairs", str(file), "--out", str(tmp_path)])
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "expected a blank" in one]
    assert line.startswith(f"{file}, line 2: ") and "'3 plus 4 is7'" in line


def test_a_folder_that_cannot_be_written_is_one_line_before_anything_is_computed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["map", "reference", "--out", "/proc/none"]) == 1
    printed = capsys.readouterr()
    *_, line = printed.err.splitlines()
    assert printed.out == "" and "Traceback" not in printed.err
    assert line.startswith("expected a folder that can be written, found /proc/none (")
    assert line.endswith("name another one with --out")


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0 and capsys.readouterr().out.strip() == al.__version__


def test_a_pair_file_of_another_project_is_read_with_its_columns(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    own_pairs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("arith_lens.__main__.CONTROLS", 2)
    text = own_pairs.read_text("utf-8").replace('"reference"', '"prompt"')
    own_pairs.write_text(text, "utf-8")
    ours = ["knockout", "reference", "--pairs", str(own_pairs), "--out", str(tmp_path)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("arith_lens.model.load_model", lambda name: pytest.fail("it was loaded"))
        assert main(ours) == 1
    said = capsys.readouterr().err
    assert "--columns reference=prompt" in said.splitlines()[-2] and "columns={" not in said
    assert main([*ours, "--heads", "5.5", "--columns", "reference=prompt"]) == 0
    assert main([*ours, "--columns", "reference=promt"]) == 1
    assert "did you mean 'prompt'?" in capsys.readouterr().err
    assert main([*ours, "--columns", "reference=prompt", "--chat"]) == 1
    said = capsys.readouterr().err
    assert "chat template for --chat" in said and "chat=True" not in said
    assert main(["map", "reference", "--chat"]) == 1
    assert "expected --pairs with --columns and --chat" in capsys.readouterr().err


def test_the_next_command_is_on_the_same_task(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "my sums.csv"
    file.write_text("prompt,counterfactual,answer\n3 + 4 = ,3 + 2 = ,7\n", "utf-8")
    monkeypatch.setattr(exploration, "explored", lambda *_, **__: stored_map())
    ours = ["--pairs", str(file), "--columns", "reference=prompt"]
    assert main(["explore", "reference", *ours, "--out", str(tmp_path)]) == 0
    *_, line = capsys.readouterr().out.splitlines()
    assert shlex.split(line)[:4] == ["next:", "arith-lens", "knockout", "reference"]
    assert shlex.split(line)[4:] == [*ours, "--out", str(tmp_path)]


@pytest.mark.parametrize(
    ("typed", "found", "next_is"),
    [
        (["venv/bin/arith-lens"], "{cwd}/venv/bin/arith-lens", "arith-lens"),
        (["venv/bin/arith-lens"], None, "venv/bin/arith-lens"),
        (["my venv/arith-lens"], "/usr/bin/arith-lens", "'my venv/arith-lens'"),
        (["venv/bin/python", "-m", "arith_lens"], None, "venv/bin/python -m arith_lens"),
        (["python3", "-X", "dev", "-m", "arith_lens"], None, "python3 -X dev -m arith_lens"),
        (["pytest", "-m", "slow"], None, "arith-lens"),
    ],
)
def test_the_next_command_begins_as_this_one_was_typed(
    typed: list[str], found: str | None, next_is: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = found and found.format(cwd=Path.cwd())
    monkeypatch.setattr("arith_lens.__main__.which", lambda name: found)
    monkeypatch.setattr("sys.orig_argv", [*typed, "map", "arith_lens"])
    monkeypatch.setattr("sys.argv", ["here/__main__.py" if "-m" in typed else typed[0], "map"])
    assert _program() == next_is


def test_without_a_word_it_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == 0 and "explore" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["map", "--help"])
    printed = capsys.readouterr().out
    assert {*KEYS} <= {*re.findall(r"\w+", printed.partition("keys are")[2])}
    operations = printed.partition("addition by default")[2].partition("--pairs")[0]
    assert {*OPERATIONS} == {*re.findall(r"\w+", operations)}


def test_a_folder_that_cannot_be_written_is_refused_before_the_model_is_loaded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arith_lens.model.load_model", lambda name: pytest.fail("it was loaded"))
    (tmp_path / "file").write_text("", "utf-8")
    assert main(["map", "reference", "--out", str(tmp_path / "file" / "new")]) == 1
    assert "--out" in capsys.readouterr().err
    with pytest.raises(pytest.fail.Exception):
        main(["map", "reference", "--out", str(tmp_path / "new")])
    assert not (tmp_path / "new").exists(), "nothing is left of a command that failed"


def test_options_and_pairs_are_refused_before_the_model_is_loaded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arith_lens.model.load_model", lambda name: pytest.fail("it was loaded"))
    row = '"reference": "3 + 4 = ", "counterfactual": "3 + 11 = "'
    spans = ', "counterfactual_spans": {}'
    text = f'{{{row}, "answer": "%s"%s}}'
    for arguments, content, words in (
        (["audit", "reference", "--draws", "1"], "", "expected --draws of 2 or more, found 1"),
        (["map", "reference"], text % ("123456789", spans), "expected an answer of the one token"),
        (["audit", "reference"], text % ("7", spans), "which map and knockout alone read"),
        (["explore", "reference"], text % ("7", spans), "leave counterfactual_spans out"),
    ):
        (tmp_path / "mine.jsonl").write_text(content, "utf-8")
        own = ["--pairs", str(tmp_path / "mine.jsonl")] if content else []
        assert main([*arguments, *own, "--out", str(tmp_path)]) == 1
        assert words in (error := capsys.readouterr().err) and "path_patch" not in error
    with pytest.raises(pytest.fail.Exception):
        main(["map", "reference", *own, "--out", str(tmp_path)])


def test_one_problem_has_no_interval_and_a_short_map_no_time(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "one.csv"
    file.write_text("reference,counterfactual,answer\n3 + 4 = ,5 + 4 = ,8\n", "utf-8")
    assert main(["map", "reference", "--pairs", str(file), "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.endswith("or prompts that it answers right.\n") and "keep=" not in error
    file.write_text("reference,counterfactual,answer\n3 + 4 = ,5 + 4 = ,7\n", "utf-8")
    assert main(["map", "reference", "--pairs", str(file), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "So few problems (1) tell little; ask 6 or more" in printed
    assert "one problem)" in printed and "nan" not in printed and "this takes" not in printed
