"""Setup names what is missing and its cure, pins agree with the metadata, and the entry points, the
make targets and the script of CI set the environment that they need."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from support.makefiles import copy_makefile

from arith_lens.model import PRETRAINED, pretrained
from experiments import make as make_commands
from experiments import settings
from experiments.make import all_targets, run, steps, taken
from experiments.questions import exhibit_entries, next_target, questions, targets

ROOT = Path(__file__).parents[2]
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="no make")


def make(folder: Path, *arguments: str, first: str = "") -> subprocess.CompletedProcess[str]:
    """Run make on a copy of the Makefile, with the programs in `first` before all others."""
    copy_makefile(folder)
    return subprocess.run(
        ["make", "--no-print-directory", "-C", str(folder), f"PYTHON={sys.executable}", *arguments],
        capture_output=True,
        text=True,
        env={"PATH": f"{first}{os.environ['PATH']}", "HOME": str(folder)},
    )


def fake_program(path: Path, script: str) -> Path:
    """An executable file that runs a few lines of the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def fake_python(folder: Path, script: str) -> Path:
    """A program that answers as a lacking Python would."""
    return fake_program(folder / "python3", script)


def without_torch(folder: Path) -> str:
    """The variable that names a Python without torch, whose import takes seconds."""
    script = f'case "$2" in "import torch"*) exit 1;; esac\nexec {sys.executable} "$@"'
    return f"PYTHON={fake_python(folder / 'bare', script)}"


@needs_make
def test_a_missing_venv_module_is_named_with_its_cure(tmp_path: Path) -> None:
    refuse = 'case "$2" in *venv*) echo "No module named venv" >&2; exit 1;; esac'
    python = fake_python(tmp_path, f'{refuse}\nexec {sys.executable} "$@"')
    done = make(tmp_path, "setup", f"PYTHON={python}")
    assert done.returncode != 0
    assert "no venv module" in done.stdout
    assert "apt-get install python3-venv" in done.stdout
    assert not (tmp_path / ".venv").exists()


@needs_make
@pytest.mark.parametrize(
    "script", ['[ "$1" = --version ] && echo "Python 3.9.2" || exit 1', "exit 127"]
)
def test_an_old_or_missing_python_is_named_with_its_cure(tmp_path: Path, script: str) -> None:
    done = make(tmp_path, "setup", f"PYTHON={fake_python(tmp_path, script)}")
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in done.stdout
    assert "Cure:" in done.stdout


@needs_make
def test_a_torch_that_is_there_is_kept(tmp_path: Path) -> None:
    """The new environment sees it, and its pin is left out; pip itself is not run."""
    stand_in = tmp_path / "base"
    (stand_in / "torch").mkdir(parents=True)
    (stand_in / "torch" / "__init__.py").write_text("__version__ = '2.99.0'\n")
    site = f"import site; site.getsitepackages = lambda: [{str(stand_in)!r}]\n"
    (stand_in / "sitecustomize.py").write_text(site)
    python = fake_python(
        tmp_path,
        'test "$2" = venv && set -- -m venv --without-pip "$3"\n'
        f'PYTHONPATH={stand_in} exec {sys.executable} "$@"',
    )
    done = make(tmp_path, "-n", "setup", f"PYTHON={python}")
    assert done.returncode == 0, done.stderr
    commands = done.stdout.replace("-m pip install", "--version; : install")
    run = subprocess.run(["sh", "-e", "-c", commands], cwd=tmp_path, capture_output=True, text=True)
    assert "keeping torch 2.99.0" in run.stdout, run.stderr
    assert "torch==" not in (tmp_path / ".venv" / "constraints.txt").read_text()
    assert "numpy==" in (tmp_path / ".venv" / "constraints.txt").read_text()


@pytest.mark.parametrize("words", ["help", "help-all", "check fig3 N=3"])
def test_targets_are_explained_before_any_package_is_installed(words: str) -> None:
    without = [sys.executable, "-S", "-m", "experiments.make", *words.split()]
    with_all = [sys.executable, "-m", "experiments.make", *words.split()]
    found, expected = (
        subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
        for line in (without, with_all)
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, expected.stdout, "")


@needs_make
def test_help_lists_every_target(tmp_path: Path) -> None:
    said = make(tmp_path, "help-all").stdout
    listed = re.findall(r"^make ([a-z0-9-]+)", said, re.MULTILINE)
    assert len(listed) == len({*listed})
    own = re.findall(r"^([a-z0-9 -]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    exhibits = {entry.target for _, entry in exhibit_entries().values()}
    assert {name for names in own for name in names.split()} | exhibits <= {*listed}
    assert {"help", "setup", "fig2", "test", "check", "bench", "reference"} <= {*listed}
    others = {*listed} - exhibits - {name for names in own for name in names.split()}
    assert all(targets()[name].run or targets()[name].draws for name in others)


@needs_make
def test_help_has_groups_and_explains_every_variable(tmp_path: Path) -> None:
    said = make(tmp_path, "help-all").stdout
    assert re.search(
        r"^Does tuning them alone help\?\nmake table1 +20 min  does tuning", said, re.MULTILINE
    )
    explained = dict(re.findall(r"^  ([A-Z]+)= +(\S.*)", said, re.MULTILINE))
    declared = {*re.findall(r"^([A-Z]+) \?=", (ROOT / "Makefile").read_text(), re.MULTILINE)}
    assert declared <= {*explained} and "reference if empty" in explained["MODEL"]
    used = set().union(*(taken(name) for name in all_targets()))
    assert used | declared == {*explained}


@needs_make
def test_make_alone_prints_a_short_help(tmp_path: Path) -> None:
    said = make(tmp_path).stdout
    assert said == make(tmp_path, "help").stdout
    targets = re.findall("^make ([a-z0-9-]+) .* {2}\\S", said, re.MULTILINE)
    assert targets[:3] == ["smollm", "audit", "fig2"] and len(targets) == 11
    assert said.splitlines()[-1].startswith("make help-all")


@needs_make
def test_a_questions_key_draws_its_first_figure(tmp_path: Path) -> None:
    by_key, by_name = (
        make(tmp_path, "-n", name, "N=7").stdout.splitlines()[-2:] for name in ("knockout", "fig3")
    )
    assert by_key == by_name and "experiments are_they_needed" in by_key[0]
    assert "next-tokens" in make(tmp_path, "help-all").stdout.splitlines()[-1]
    assert {"knockout", "effects", "probes"} <= questions().keys()


CLUMSY = {
    "fig22": r"no target fig22; did you mean fig2",
    "figure2": r"no target figure2",
    "tabel1": r"did you mean table1",
    "cary-directions": r"did you mean carry-directions",
    "explorr": r"did you mean explorer or explore",
    "benchmaks": r"did you mean benchmarks",
    "hlep": r"did you mean help",
    "wich_heads": r"no target wich_heads; .*make help-all lists all",
    "fig2 OPERATION=addition": r"takes no OPERATION=; did you mean OPERATIONS",
    "fig2 MODLE=reference": r"no variable MODLE; did you mean MODE",
    "fig2 n=9": r"no variable n; did you mean N\?",
    "fig2 model=reference": r"no variable model; did you mean MODEL\?",
    "fig2 SHOT=4": r"no variable SHOT; did you mean SHOTS",
    "fig2 x=9": r"no variable x; make help-all explains all",
    "fig12 MODELLS=reference": r"no variable MODELLS; did you mean MODELS",
    "fig5 PAIRS=mine.jsonl": r"make fig5 takes no PAIRS=",
    "fig17 N=9": r"fig17 takes no N=; leave it out, or set one of: DEVICE DTYPE MODEL WIDTH\.",
    "fig9 SHOTS=4": r"fig9 takes no SHOTS=",
    "gallery MODEL=x": r"gallery takes no MODEL=",
    "test MODEL=x": r"test takes no MODEL=; leave it out, or set one of: WORKERS",
    "fig2 PROCESSES=2": r"fig2 takes no PROCESSES=",
    "exam knockout DATA=x": r"exam knockout takes no DATA=",
}


@needs_make
@pytest.mark.parametrize("line", CLUMSY)
def test_a_clumsy_make_is_refused_with_the_nearest_name(tmp_path: Path, line: str) -> None:
    done = make(tmp_path, *line.split())
    assert done.returncode == 2 and done.stdout == ""
    assert re.search(CLUMSY[line], done.stderr), done.stderr
    assert not (tmp_path / ".venv").exists() and not (tmp_path / "results").exists()


@needs_make
def test_an_empty_variable_is_none(tmp_path: Path) -> None:
    plain, empty = (make(tmp_path, "-n", "fig9", *more) for more in ([], ["SHOTS=", "N="]))
    assert empty.returncode == 0
    assert empty.stdout.splitlines()[-2:] == plain.stdout.splitlines()[-2:]


def installs(text: str) -> list[str]:
    """The extras that the printed commands of make install, in order."""
    return list(dict.fromkeys(re.findall(r"--editable '?\.\[(\w+)\]", text)))


@needs_make
def test_a_target_installs_what_it_needs_and_says_what_that_takes(tmp_path: Path) -> None:
    extras = {
        "fig2": [],
        "table1": ["evaluation", "tuning"],
        "evaluate": ["evaluation"],
        "docs": ["site"],
        "notebook": ["notebook"],
        "test": ["dev"],
        "check": ["dev"],
    }
    for target, more in extras.items():
        said = make(tmp_path, "-n", target, "PYTHON=python3", "PIP=--no-cache-dir").stdout
        assert installs(said) == ["commands", *more], target
        lines = [line for line in said.splitlines() if "-m pip install" in line]
        assert all("--no-cache-dir" in line and "--quiet" not in line for line in lines)
        for extra in ["commands", *more]:
            size = rf"^echo \"installing {extra} into \.venv, once: .*[\d.]+ [GM]B"
            assert re.search(size, said, re.MULTILINE), (target, extra)


@needs_make
def test_what_installs_everything_installs_it_once(tmp_path: Path) -> None:
    bin_folder = tmp_path / "venv" / "bin"
    python = fake_python(bin_folder, 'case "$*" in *"pip install"*) echo "$@";; esac')
    python.rename(bin_folder / "python")
    for name in ("ruff", "pyright"):
        fake_program(bin_folder / name, "exit 0")
    done = make(tmp_path, "check", "VENV=venv", without_torch(tmp_path))
    assert installs(done.stdout) == ["commands", "dev"]
    for target in ("check", "docs", "table1", "evaluate"):
        assert installs(make(tmp_path, "-n", target, "VENV=venv").stdout) == [], target
    assert installs(make(tmp_path, "-n", "notebook", "VENV=venv").stdout) == ["notebook"]


@needs_make
@pytest.mark.parametrize("code", [0, 3])
def test_while_pip_unpacks_unwatched_lines_say_that_it_is_at_work(
    tmp_path: Path, code: int
) -> None:
    """Its stand-in ends when the clock's has ticked twice."""
    wait = f"until test -e {tmp_path}/second; do /bin/sleep 0.01; done; exit {code}"
    python = fake_python(tmp_path / "venv" / "bin", f'case "$*" in *install*) {wait};; esac')
    python.rename(python.with_name("python"))
    tick = f"test -e {tmp_path}/first && touch {tmp_path}/second; touch {tmp_path}/first"
    fake_program(tmp_path / "clock" / "sleep", f"{tick}; exec /bin/sleep 0.01")
    options = ("VENV=venv", without_torch(tmp_path))
    done = make(tmp_path, "setup", *options, first=f"{tmp_path / 'clock'}:")
    assert re.search(r"^  still installing: \d+ MB are in venv$", done.stdout, re.MULTILINE)
    assert bool(done.returncode) == bool(code) == (not (tmp_path / "venv" / ".installed").exists())


@needs_make
def test_pretrained_models_are_downloaded_and_never_installed(tmp_path: Path) -> None:
    setup = make(tmp_path, "-n", "setup", "PYTHON=python3").stdout
    for target, name in (("smollm", "smollm2-135m"), ("gemma", "gemma-3-270m")):
        commands = make(tmp_path, "-n", target, "PYTHON=python3").stdout.removeprefix(setup)
        assert commands.endswith(f" {name}\n") and "pip install" not in commands
        assert name in PRETRAINED
    assert "pip install" in setup


@needs_make
def test_an_audit_is_the_command_with_the_variables_as_options(tmp_path: Path) -> None:
    def words(*assignments: str) -> list[str]:
        done = make(tmp_path, "-n", "audit", *assignments)
        return shlex.split(done.stdout.replace("\\\n", " ").splitlines()[-1])[1:]

    first = ["audit"]
    assert words() == [*first, "reference", "--out", "results/audits"]
    given = ["MODEL=my model", "OPERATION=division", "PAIRS=my pairs.csv", "SHOTS=2", "OUT=here"]
    options = ["--operation", "division", "--pairs", "my pairs.csv", "--shots", "2"]
    assert words(*given) == [*first, "my model", "--out", "here", *options]
    assert "takes no N=" in make(tmp_path, "-n", "audit", "N=9").stderr


@pytest.mark.parametrize("downloaded", [True, False])
def test_figure_2_alone_takes_the_pretrained_model_that_is_there_and_says_which(
    downloaded: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def file(name: str) -> Path:
        if not downloaded:
            raise FileNotFoundError(name)
        return Path(name)

    monkeypatch.setattr(pretrained, "pretrained_file", file)
    monkeypatch.setattr("os.environ", {})
    for word in ("show", "run"):
        monkeypatch.setattr(make_commands.Step, "run", lambda step: print(step.line))
        make_commands.main([word, "fig2", "PYTHON=python3.12", "MODEL="])
        said = capsys.readouterr()
        commands = [line for line in said.out.splitlines() if " -m " in line]
        models = {line.partition("--model ")[2].partition(" ")[0] for line in commands}
        assert models == ({"smollm2-135m"} if downloaded else {""})
        assert ("MODEL=reference" if downloaded else "make smollm") in said.err
        for goal in (["fig2", "N=9"], ["fig2", "MODEL=reference"], ["fig3"]):
            make_commands.main([word, *goal])
            said = capsys.readouterr()
            assert "smollm2" not in said.out and not said.err


@needs_make
def test_processes_share_the_knockouts_of_figure_3(tmp_path: Path) -> None:
    alone, shared = (
        next(line for line in make(tmp_path, "-n", "fig3", *more).stdout.splitlines()
             if "experiments are_they_needed" in line)
        for more in ([], ["PROCESSES=2"])
    )  # fmt: skip
    assert "torch.distributed.run" not in alone
    assert shared.startswith("OMP_NUM_THREADS=1 ") and "--nproc_per_node 2 -m experiments" in shared


@needs_make
def test_variables_become_options(tmp_path: Path) -> None:
    assignments = ["N=7", "OPERATIONS=addition division", "DTYPE=bfloat16", "DEVICE=cuda"]
    assignments.append("KEEP=all")
    paths = ["MODEL=my model's folder", "PAIRS=my pairs.jsonl"]
    lines = make(tmp_path, "-n", "fig2", *assignments, *paths).stdout.splitlines()
    (computed,) = [shlex.split(line) for line in lines if "experiments which_heads" in line]
    (drawn,) = [shlex.split(line) for line in lines if "figures fig2" in line]
    for options in (
        ["--model", "my model's folder"],
        ["--n", "7"],
        ["--operations", "addition", "division"],
        ["--pairs", "my pairs.jsonl"],
        ["--keep", "all"],
        ["--dtype", "bfloat16"],
        ["--device", "cuda"],
    ):
        start = computed.index(options[0])
        assert computed[start : start + len(options)] == options
    assert drawn[4:] == computed[4:], "the figure finds the run by the same options"


@needs_make
def test_a_name_with_quotes_is_one_word_of_the_shell(tmp_path: Path) -> None:
    for target, variable in (
        ("evaluate", "MODEL"),
        ("fig8", "TOKENIZER"),
    ):
        text = make(tmp_path, "-n", target, f"{variable}=it's").stdout.replace("\\\n", " ")
        words = shlex.split(text.splitlines()[-1].replace(";", " "))
        assert "it's" in words, target


@needs_make
@pytest.mark.parametrize("target", ["paths", "fig3", "claims"])
def test_pairs_are_refused_by_targets_that_would_not_use_them(tmp_path: Path, target: str) -> None:
    done = make(tmp_path, "-n", target, "PAIRS=mine.jsonl")
    assert done.returncode != 0 and done.stdout == ""
    refusal = (
        rf"make {target} takes no PAIRS=; leave it out, or take one of: .*\bfig2\b.*\beffects\b"
    )
    assert re.search(refusal, done.stderr)


@needs_make
@pytest.mark.parametrize("target", ["explore", "report"])
def test_the_explorer_and_the_report_take_own_pairs(tmp_path: Path, target: str) -> None:
    text = make(tmp_path, "-n", target, "PAIRS=my pairs.jsonl", "KEEP=all").stdout
    commands = [shlex.split(line) for line in text.splitlines() if line.startswith("python -m ")]
    assert len(commands) == 2
    for words in commands:
        start = words.index("--pairs")
        assert words[start : start + 4] == ["--pairs", "my pairs.jsonl", "--keep", "all"]


@pytest.mark.parametrize("fails", ["whole_study", "report", "none", "interrupted"])
def test_a_report_with_a_study_that_failed_is_written_and_is_no_success(
    fails: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    started: list[str] = []

    def main(words: Any) -> None:
        started.append(words[0])
        if fails in (words[0], "interrupted"):
            sys.exit(130 if fails == "interrupted" else "ValueError: no")

    for package in ("experiments", "figures"):
        monkeypatch.setattr(f"{package}.__main__.main", main)
    ended = pytest.raises(SystemExit) if fails != "none" else nullcontext()
    with ended as end:
        run("report", {"N": "3"})
    assert started == ["whole_study", "report"][: 1 if fails == "interrupted" else 2]
    said = capsys.readouterr()
    assert "python -m experiments whole_study --n 3\n" in said.out
    code = str(end.value.code) if end else ""
    assert ("some failed" in code) == (fails == "whole_study") == ("ValueError" in said.err)
    assert code == "130" or fails != "interrupted"


def test_a_target_ends_with_the_next_one_on_the_same_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(make_commands.Step, "run", lambda step: None)
    for target in all_targets():
        assert next_target(target) in all_targets() and next_target(target) != target
    run("fig2", {"MODEL": "my model", "N": "9", "WIDTH": "page"})
    assert capsys.readouterr().out == "next: make explore 'MODEL=my model' N=9\n"


@needs_make
@pytest.mark.parametrize("code", [0, 2, 130])
def test_make_ends_as_the_command_of_its_target_does(tmp_path: Path, code: int) -> None:
    """The environment is there, so one process of its Python runs the target."""
    folder = tmp_path / "venv"
    (folder / "bin").mkdir(parents=True)
    script = f'echo "$@"; test "$3" = check || exit {code}'
    fake_python(folder / "bin", f'test "$3" = check || {{ {script}; }}').rename(
        folder / "bin" / "python"
    )
    (folder / ".installed").touch()
    os.utime(folder / ".installed", (2**31 - 1, 2**31 - 1))
    done = make(tmp_path, "fig2", f"VENV={folder}", "N=3", "MODEL=it's")
    assert done.stdout.startswith("-m experiments.make run fig2 ") and "N=3" in done.stdout
    assert done.stdout.count("\n") == 1 and "MODEL=it's" in done.stdout
    assert done.returncode == (2 if code else 0) and (f"Error {code}" in done.stderr) == bool(code)


def test_a_target_computes_and_draws_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A run that is there is found without its model."""
    monkeypatch.chdir(tmp_path)
    values = {"N": "4", "OPERATIONS": "addition", "DEVICE": "cpu"}
    for step in steps("fig2", values):
        step.run()
    first = capsys.readouterr().out
    assert (
        "saved in results/which_heads/" in first
        and "open figures/reference/which_heads-reference-addition.html\n" in first
    )
    monkeypatch.setattr(settings, "loaded_model", lambda *_, **__: pytest.fail("loaded"))
    next(steps("fig2", values)).run()
    assert "saved before in results/which_heads/" in capsys.readouterr().out
    with pytest.raises(pytest.fail.Exception, match="loaded"):
        next(steps("fig2", values | {"N": "5"})).run()


def test_every_dependency_is_pinned_within_its_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    for requirement in project["dependencies"]:
        name, lowest = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()  # pyright: ignore
        pinned = [int(part) for part in pins[name].split(".")]
        assert pinned >= [int(part) for part in lowest.split(".")], requirement


def test_no_dependency_is_required_twice() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split("[<>=]", requirement)[0] for requirement in project["dependencies"]]
    assert len(names) == len(set(names))


INDIRECT = {"sentencepiece", "protobuf"}
"""Transformers imports these to read tokenizers."""


def test_every_required_package_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split("[<>=]", requirement)[0] for requirement in project["dependencies"]}
    text = "\n".join(file.read_text() for file in (ROOT / "arith_lens").rglob("*.py"))
    imported = {*re.findall(r"^ *(?:from|import) (\w+)", text, flags=re.MULTILINE)}
    assert {name for name in names if name.replace("-", "_") not in imported} == INDIRECT


def run_ci(folder: Path, *, make: str, browser: bool) -> tuple[int, list[str]]:
    """The exit status of `.ci/run` and its calls in order, with stand-ins for every program."""
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci")
    record = f'echo "$(basename "$0") $* | $BROWSER_PATH | $PYTEST_ADDOPTS" >> {folder}/calls'
    fake_program(folder / "bin" / "make", f"{record}\n{make}")
    fake_program(folder / "bin" / "apt-get", record)
    fake_program(folder / "bin" / "id", "echo 0")
    fake_program(folder / ".venv" / "bin" / "python", f"exit {0 if browser else 1}")
    done = subprocess.run(
        ["bash", str(folder / ".ci" / "run")],
        env={"PATH": f"{folder / 'bin'}:{os.defpath}"},
        capture_output=True,
    )
    return done.returncode, (folder / "calls").read_text().splitlines()


@pytest.mark.parametrize("browser", [True, False])
def test_ci_tests_without_a_browser_before_it_installs_one(tmp_path: Path, browser: bool) -> None:
    status, calls = run_ci(tmp_path, make="exit 0", browser=browser)
    assert status == 0
    assert calls[:2] == ["make setup |  | ", "make test | none | -m pictures"]
    assert calls[-2:] == ["make check |  | ", "make test |  | --durations=20"]
    assert [call.split()[0] for call in calls[2:-2]] == ([] if browser else ["apt-get"] * 2)


@pytest.mark.parametrize("failure", ['-n "$BROWSER_PATH"', '"$1" = check', '"$1" = test'])
def test_ci_fails_with_any_of_its_parts_after_all_have_run(tmp_path: Path, failure: str) -> None:
    status, calls = run_ci(tmp_path, make=f"[ {failure} ] && exit 3 || exit 0", browser=True)
    assert status == 3
    assert len(calls) == 4


def test_the_tests_of_pictures_are_those_that_import_what_draws(
    request: pytest.FixtureRequest,
) -> None:
    """Marked by tests/conftest.py."""
    drawing = (
        "from arith_lens import plotting",
        "import arith_lens as al\nfrom arith_lens.views import pattern",
        "def test() -> None:\n    from figures.map_figures import fig2",
        "from notebooks.generate import sources",
    )
    other = ("import arith_lens as al", "from experiments.which_heads import main")
    conftest = request.config.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))
    assert conftest is not None
    assert all(conftest.DRAWING_IMPORT.search(text) for text in drawing)
    assert not any(conftest.DRAWING_IMPORT.search(text) for text in other)
    assert request.node.get_closest_marker("pictures") is None


@needs_make
@pytest.mark.parametrize("user", [0, 1000])
def test_jupyter_starts_for_root_too(tmp_path: Path, user: int) -> None:
    fake_program(tmp_path / "id", f"echo {user}")
    lines = make(
        tmp_path, "-n", "notebook", "PYTHON=python3", first=f"{tmp_path}:"
    ).stdout.splitlines()
    (start,) = [line for line in lines if "-m jupyterlab" in line]
    assert ("--allow-root" in start) == (user == 0)


def beginning(entry: str) -> str:
    """The code that an entry point begins with: a package's import, or a notebook's first cell."""
    if (ROOT / entry).is_dir():
        return f"import {entry}; import torch"
    source = (ROOT / "notebooks" / f"{entry}.py").read_text(encoding="utf-8")
    (cell,) = re.findall(r"\A.*?^# %%\n(.*?)^# %%", source, re.DOTALL | re.MULTILINE)
    return cell


FAKE_TORCH = """
import os

print("torch", os.environ.get("OMP_WAIT_POLICY"), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("own", [None, "ACTIVE"])
@pytest.mark.parametrize(
    "entry",
    ["arith_lens", "experiments", "figures", "laboratory", "tutorial", "your_own_task"],
)
def test_idle_threads_sleep_before_torch_is_imported(
    tmp_path: Path, entry: str, own: str | None
) -> None:
    """A value of the user's own wins."""
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", beginning(entry)],
        env=environment | ({} if own is None else {"OMP_WAIT_POLICY": own}),
        cwd=ROOT / "notebooks",
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"torch {own or 'PASSIVE'}\n", done.stderr
