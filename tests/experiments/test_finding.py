"""A run is found by its settings, never by its age alone, with the options that computed it."""

import re
import shlex
from html import unescape
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from support.made_runs import make_run

from arith_lens.runs import Run, RunError
from experiments import catalogue
from experiments.catalogue import experiments
from experiments.command import checked_arguments, read_arguments
from experiments.finding import (
    NotComputed,
    RunSettings,
    config_class,
    experiment_command,
    figure_command,
    find_run,
    name_ending,
)
from experiments.make import steps, taken
from experiments.questions import exhibit_entries
from experiments.which_heads import MapConfig
from figures.common import chosen_run
from figures.exhibit import named_for_files, show, with_settings
from figures.map_figures import fig2
from figures.options import GALLERY, Options, TableOptions
from figures.tuning_tables import table1

ROOT = Path(__file__).parents[2]
EVERY_VARIABLE = {
    **{"N": "7", "OPERATIONS": "addition division", "KEEP": "all", "DTYPE": "bfloat16"},
    **{"DEVICE": "cpu", "SHOTS": "2", "SETS": "3", "TEMPLATES": "symbols", "MODEL": "made"},
    **{"DATA": "my data", "TASKS": "gsm8k", "LIMIT": "5", "MODELS": "made other"},
}
CHANGES_NO_RUN = {"--table"}
"""An option of an experiment that only adds results to its run."""


def found(root: Path, config: MapConfig) -> Path:
    settings = RunSettings.of_config(config)
    return find_run("which_heads", "made", settings, (root,)).path


def test_a_run_is_found_by_its_settings_whichever_is_newer(tmp_path: Path) -> None:
    pairs = tmp_path / "mine.jsonl"
    settings: list[dict[str, Any]] = [
        *({}, {"shots": 2, "templates": ("symbols",)}, {"n": 9, "operations": ("addition",)}),
        *({"exemplar_sets": 3, "shots": 2}, {"keep": "all"}, {"problems": "computed"}),
        *({"counterfactual": "operands"}, {"metric": "logit"}, {"pairs": pairs}),
        *({"dtype": "bfloat16"}, {"seed": 1}),
    ]
    made = [make_run(tmp_path, **{"model": "made", **some}).path for some in settings]
    assert [found(tmp_path, MapConfig(model="made", **some)) for some in settings] == made
    make_run(tmp_path, "made", seed=5)  # newer than all of them
    assert [found(tmp_path, MapConfig(model="made", **some)) for some in settings] == made
    with pytest.raises(NotComputed, match=r"which_heads --model made --n 8 --root"):
        found(tmp_path, MapConfig(model="made", n=8))


def test_runs_that_differ_in_settings_are_refused_and_listed(tmp_path: Path) -> None:
    two = [make_run(tmp_path, "made", n=n) for n in (8, 9)]
    options = Options(model="made", root=tmp_path)
    with pytest.raises(RunError) as refused:
        chosen_run(options, "which_heads")
    assert not isinstance(refused.value, NotComputed)
    for run, n in zip(two, (8, 9), strict=True):
        assert f"{run.path}: --n {n}" in str(refused.value)
    usual = make_run(tmp_path, "made")
    make_run(tmp_path, "made", n=10)
    assert chosen_run(options, "which_heads").path == usual.path, "the defaults decide"


def test_runs_of_other_weights_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = make_run(tmp_path / "a", "made"), make_run(tmp_path / "a", "made", note="new")
    manifest = old.path / "run.json"
    manifest.write_text(
        manifest.read_text().replace('"model": {}', '"model": {"weights_sha256": "w"}')
    )
    assert find_run("which_heads", "made", RunSettings({}), (tmp_path / "a",)).path == new.path
    assert f"other input files: {old.path}" in capsys.readouterr().err


def test_shipped_tables_in_place_of_a_missing_run_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show(table1, TableOptions(root=tmp_path / "empty", out=tmp_path))
    notice = f"no such run under {tmp_path / 'empty'}: these are the tables that ship with it"
    assert capsys.readouterr().out.startswith(notice)
    show(table1, TableOptions(root=GALLERY, out=tmp_path))
    assert "no such run" not in capsys.readouterr().out, "it was named"
    with pytest.raises(SystemExit, match=r"experiments does_tuning_help --model made"):
        show(table1, TableOptions(model="made", root=tmp_path / "empty", out=tmp_path))


def test_a_page_of_other_settings_says_them_and_that_it_takes_the_place_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = make_run(tmp_path, "made")
    other = make_run(tmp_path, "made", shots=2, exemplar_sets=1, templates=["a&b"])
    line, page = (
        "Settings that are not the defaults: templates a&b, shots 2.",
        tmp_path / "out" / "which_heads-made.html",
    )

    def warning(run: Run) -> str:
        show(fig2, Options(run=run.path, out=page.parent, formats=()))
        return "".join(re.findall("written anew.*", capsys.readouterr().out))

    assert warning(usual) == warning(usual) == "" and line not in unescape(page.read_text("utf-8"))
    assert f"{page} had other settings, the defaults; another --out keeps both" in warning(other)
    assert line in unescape(page.read_text("utf-8")) and warning(other) == ""
    assert "other settings, templates a&b, shots 2;" in warning(usual)
    (plain,) = fig2(Options(run=other.path))
    chart: Any = named_for_files(plain)
    assert chart.notes[0] == line
    small_print = [note for note in chart.figure.layout.annotations if note.name == "note"]
    assert " ".join(note.text for note in small_print).startswith(line.partition("a&b")[0])


def test_names_of_files_say_models_operations_and_own_prompts_alone() -> None:
    assert name_ending(["reference"], {}) == "-reference"
    asked = {"n": 9, "operations": ["addition"], "pairs": "my/pairs of.jsonl", "keep": "all"}
    ending = "-Llama-2-7b-hf-addition-pairs_of"
    assert name_ending(["meta-llama/Llama-2-7b-hf"], asked) == ending
    assert name_ending(["a", "/b/c.gguf"], {}) == "-a-c.gguf"
    assert len(name_ending(["m" * 200], {})) == 150


def test_a_run_that_is_named_must_have_the_settings_that_are_named(tmp_path: Path) -> None:
    run = make_run(tmp_path, "made", n=9)
    command = catalogue.with_settings(catalogue.exhibits()["fig2"])
    same, other = (
        with_settings(*read_arguments(command, ["--run", str(run.path), "--n", n])[0])
        for n in ("9", "8")
    )
    assert chosen_run(same, "which_heads").path == run.path
    with pytest.raises(RunError, match=r"found .* with n 9"):
        chosen_run(other, "which_heads")


def test_hints_are_commands_that_find_the_same_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "my runs", "made", shots=2, operations=["division"])
    words = shlex.split(figure_command("fig2", run))
    assert words[:4] == ["python", "-m", "figures", "fig2"]
    command = catalogue.with_settings(catalogue.exhibits()["fig2"])
    options = with_settings(*read_arguments(command, words[4:])[0])
    assert chosen_run(options, "which_heads").path == run.path
    wanted = MapConfig(model="my model", shots=2, operations=("division",), n=8)
    text = experiment_command(
        "which_heads", "my model", RunSettings.of_config(wanted).values, tmp_path / "my runs"
    )
    words = shlex.split(text)
    assert words[:4] == ["python", "-m", "experiments", "which_heads"]
    (parsed,), more = read_arguments(experiments()["which_heads"], words[4:])
    assert parsed == wanted and more["root"] == tmp_path / "my runs"


@pytest.mark.parametrize(
    "more", [["--n", "9"], ["--operations", "addition"], ["--shots", "2"], ["--seed", "1"]]
)
@pytest.mark.parametrize("command", ["experiments which_heads", "figures fig2"])
def test_a_file_of_prompts_with_settings_of_templates_is_refused(
    tmp_path: Path, command: str, more: list[str]
) -> None:
    arguments = ["--pairs", str(tmp_path / "mine.jsonl"), *more, "--root", str(tmp_path)]
    package, name = command.split()
    entry = (experiments() if package == "experiments" else catalogue.exhibits())[name]
    entry = catalogue.with_settings(entry) if package == "figures" else entry
    with pytest.raises(SystemExit, match=f"--pairs without settings of the templates.*{more[0]}"):
        checked_arguments(entry, arguments)
    checked_arguments(entry, [*more, "--root", str(tmp_path)])


def lines_of(target: str) -> tuple[list[list[str]], list[list[str]]]:
    """The names and arguments of the experiments and of the figures that a target starts."""
    used = taken(target)
    values = {name: value for name, value in EVERY_VARIABLE.items() if name in used}
    of: dict[str, list[list[str]]] = {"experiments": [], "figures": []}
    for step in steps(target, values):
        of[step.command.package].append([step.command.name, *step.words])
    return of["experiments"], of["figures"]


def options_in(arguments: list[str]) -> dict[str, list[str]]:
    """The options of a command line, each with its values."""
    options: dict[str, list[str]] = {}
    for word in arguments:
        if word.startswith("--"):
            options[word] = []
        elif options:
            options[[*options][-1]].append(word)
    return options


def targets() -> list[str]:
    """The targets that compute with an experiment and draw with a figure."""
    return [
        *(entry.target for _, entry in exhibit_entries().values()),
        "evaluate",
        "report",
    ]


@pytest.mark.parametrize("target", targets())
def test_each_option_of_an_experiment_reaches_its_figure(target: str) -> None:
    computed, drawn = lines_of(target)
    assert len(computed) == 2 - ("MODELS" not in taken(target)) and len(drawn) == 1
    ours, theirs = options_in(computed[0]), options_in(drawn[0])
    assert {**ours, "--models": 0}.keys() >= theirs.keys()
    missing = ours.keys() - theirs.keys() - CHANGES_NO_RUN
    assert missing <= ({"--model"} if "--models" in theirs else set())
    assert all(ours[name] == value for name, value in theirs.items() if name in ours)
    page = catalogue.exhibits_and_pages()[drawn[0][0]]
    assert page.other == computed[0][0]
    function = page.load()
    options = get_type_hints(function)["options"]
    settings: Any = config_class(page.other)
    known = {f"--{name.replace('_', '-')}" for name in settings.__dataclass_fields__}
    assert {*ours} - CHANGES_NO_RUN <= known
    assert "settings" in options.__dataclass_fields__
