"""Clumsy command lines: each is refused with a sentence, before a model loads, and leaves nothing.

The commands run in this process. Loading a model, or computing, would fail the test.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.fresh import ROOT

import arith_lens as al
from arith_lens.model import loading
from experiments import __main__ as experiments
from experiments import settings, which_heads
from experiments.catalogue import exhibits_and_pages
from figures import __main__ as figures
from laboratory import __main__ as laboratory

MAINS = {"experiments": experiments.main, "figures": figures.main, "laboratory": laboratory.main}

CLUMSY = {
    # Names of commands
    "experiments wich_heads": r"found 'wich_heads'; did you mean which_heads",
    "experiments which-heads": r"did you mean which_heads\? .* lists all \d+$",
    "experiments Which_Heads": r"did you mean which_heads\?",
    "experiments whichheads": r"did you mean which_heads",
    "experiments which_head --n 9": r"did you mean which_heads",
    "experiments where_do_they_lok": r"did you mean where_do_they_look\?",
    "experiments what_do_mlp_add": r"did you mean what_do_mlps_add\?",
    "experiments mlps": r"did you mean \w*mlps\w*",
    "experiments whole": r"did you mean whole_study\?",
    "experiments fig2": r"'fig2', which is an exhibit: python -m figures fig2 .* which_heads",
    "experiments table1": r"which is an exhibit: python -m figures table1 .* does_tuning_help",
    "experiments claims": r"which is an exhibit: python -m figures claims",
    "experiments fig7": r"which is an exhibit: .* where_do_they_look",
    "experiments fig22": r"did you mean python -m figures fig2 or",
    "experiments zzzz": r"expected an experiment, found 'zzzz'; python -m experiments --help lists",
    "experiments ''": r"expected an experiment, found ''; python -m experiments --help",
    "experiments --n 9": r"expected an experiment, found '--n'",
    "experiments help": r"expected an experiment, found 'help'",
    "experiments ../secret": r"expected an experiment, found '\.\./secret'",
    "figures figure2": r"expected an exhibit, found 'figure2'",
    "figures fig_2": r"did you mean fig2 or",
    "figures Fig2": r"did you mean fig2\?",
    "figures fig22": r"expected an exhibit, found 'fig22'; did you mean fig2 or",
    "figures tabel1": r"did you mean table1",
    "figures transfr": r"did you mean transfer\?",
    "figures claim": r"did you mean claims\?",
    "figures reports": r"did you mean report\?",
    "figures which_heads": r"which is an experiment: python -m experiments which_heads .* fig2",
    "figures where_do_they_look": r"which is an experiment: .* fig5",
    "figures whole_study": r"which is an experiment: python -m experiments whole_study",
    "figures wich_heads": r"did you mean python -m experiments which_heads",
    "experiments speed": r"expected an experiment, found 'speed'",
    "laboratory which_heads": r"which is an experiment: python -m experiments which_heads; ",
    "laboratory sped": r"expected a command of the laboratory, found 'sped'; did you mean speed",
    "figures 2": r"expected an exhibit, found '2'",
    # Options
    "experiments which_heads --nn 3": r"Unrecognized options: --nn.*--n ",
    "experiments which_heads --operation addition": r"Unrecognized options.*--operations",
    "experiments which_heads --modle reference": r"Unrecognized options.*--model",
    "experiments which_heads --dryrun": r"Unrecognized options.*--dry-run",
    "experiments which_heads --shot 4": r"Unrecognized options.*--shots",
    "experiments which_heads reference": r"Unrecognized options: reference",
    "experiments where_do_they_look --pairs x.jsonl": r"Unrecognized options.*--pairs",
    "experiments like_a_computer --n 3": r"Unrecognized options: --n",
    "experiments tune": r"required|Required",
    "figures fig2 --modl reference": r"Unrecognized options.*--model",
    "figures fig2 --format png": r"Unrecognized options.*--formats",
    "figures gallery --model reference": r"Unrecognized options: --model",
    "figures exam --device cuda": r"Unrecognized options: --device",
    # Words that are no choice
    "experiments which_heads --operations addtion": r"invalid choice 'addtion'.*mean addition\?",
    "experiments which_heads --operations Division": r"invalid choice 'Division'.*mean division\?",
    "experiments which_heads --operations plus": r"invalid choice 'plus'.*'addition'",
    "experiments which_heads --operations +": r"invalid choice '\+'",
    "experiments which_heads --paths via-mlps": r"invalid choice 'via-mlps'.*mean via_mlps\?",
    "experiments which_heads --paths totl": r"invalid choice 'totl'.*mean total\?",
    "experiments which_heads --metric logits": r"invalid choice 'logits'.*mean logit",
    "experiments which_heads --metric probabilty": r"mean probability",
    "experiments which_heads --keep right": r"invalid choice 'right'.*'correct'",
    "experiments which_heads --counterfactual operand": r"mean operands",
    "experiments which_heads --engine fast": r"invalid choice 'fast'.*'sweep'",
    "experiments which_heads --dtype fp16": r"fp16.*float16",
    "experiments which_heads --problems computd": r"mean computed\?",
    "experiments which_heads --exemplars mix": r"mean mixed\?",
    "experiments are_they_needed --ablation zeros": r"mean zero\?",
    "experiments does_tuning_help --table 3": r"3.*1.*2.*5",
    "laboratory train_reference --architecture lama": r"mean llama\?",
    "laboratory speed_scale --size llama7b": r"mean llama-7b",
    "figures fig2 --formats gif": r"gif.*png",
    # Numbers
    "experiments which_heads --n 0": r"^ValueError: expected --n of 1 or more, found 0$",
    "experiments which_heads --n -3": r"^ValueError: expected --n of 1 or more, found -3$",
    "experiments which_heads --n 1000000000": r"--n \(N= of make\) of at most 729 .* 9",
    "experiments which_heads --n 1e9": r"--n.*'1e9'",
    "experiments which_heads --n 3.5": r"--n.*'3.5'",
    "experiments which_heads --n many": r"--n.*'many'",
    "experiments which_heads --n 100 --templates symbols": r"at most 81 in addition \(81 .* in 1",
    "experiments which_heads --n 82 --templates addition/0 --operations addition": r"at most 81 in",
    "experiments which_heads --n 500 --operations division": r"207 in division \(23 .* in 9",
    "experiments where_do_they_look --n 999": r"at most 729 in addition",
    "experiments which_heads --seed -1": r"expected --seed of 0 or more, found -1",
    "experiments which_heads --shots -1": r"expected --shots of 0 or more, found -1",
    "experiments which_heads --exemplar-sets 0": r"expected --exemplar-sets of 1 or more, found 0",
    "experiments which_heads --draws 0": r"expected --draws of 1 or more, found 0",
    "experiments which_heads --operands 9 1": r"the first and the last .* found 9 1",
    "experiments which_heads --operands 1": r"operands",
    "experiments which_heads --operands 0 99999999": r"expected operands for at most",
    "experiments are_they_needed --controls -1": r"expected --controls of 0 or more, found -1",
    "experiments are_they_needed --search-every 0": r"--search-every of 1 or more, found 0",
    "experiments what_comes_instead --prompts 0": r"expected --prompts of 1 or more",
    "experiments what_comes_instead --heads -5": r"expected --heads of 0 or more, found -5",
    "experiments what_the_calculation_does --k 0": r"expected --k of 1 or more",
    "experiments what_the_calculation_does --n 0": r"expected --n of 1 or more",
    "experiments does_tuning_help --batch 0": r"expected --batch of 1 or more",
    "experiments does_tuning_help --seeds 0": r"expected --seeds of 1 or more",
    "experiments whole_study --n 0": r"expected --n of 1 or more",
    "experiments do_they_find_known_circuits --n 0": r"expected --n of 1 or more",
    "laboratory train_reference --rows 0": r"expected --rows of 1 or more",
    "figures fig2 --n 0": r"expected --n of 1 or more, found 0",
    "figures fig2 --n x": r"--n.*'x'",
    # Samples
    "experiments which_heads --operations addition addition": r"once, found addition addition",
    "experiments which_heads --operations": r"expected operations, each of them once, found none",
    "experiments which_heads --templates symbol": r"expected --templates .*did you mean symbols\?",
    "experiments which_heads --templates addition/99": r"expected --templates .*'addition/99'",
    "experiments which_heads --templates addition/0": r"names of subtraction .*found 'addition/0'",
    "experiments which_heads --templates": r"expected --templates operation, symbols, all",
    # Models, devices, files and folders
    "experiments which_heads --model refrence": r"found 'refrence'; did you mean reference\?",
    "experiments which_heads --model Reference": r"did you mean reference\?",
    "experiments which_heads --model reference-mistrl": r"did you mean reference-mistral\?",
    "experiments which_heads --model gemma-3-270": r"did you mean gemma-3-270m\?",
    "experiments which_heads --model ''": r"expected a shipped model \(reference, .*found ''",
    "experiments which_heads --model ./nowhere": r"expected a model directory, found nothing at",
    "experiments which_heads --model /dev/null": r"found nothing at '/dev/null'",
    "experiments which_heads --model file.txt": r"expected a folder .*found a file at",
    "experiments which_heads --model empty": r"expected a Hugging Face checkpoint with config.json",
    "experiments which_heads --device cuda:99": r"expected .*cuda:99",
    "experiments which_heads --device graphics": r"graphics",
    "experiments which_heads --pairs nowhere.jsonl": r"as pairs, found nothing at nowhere",
    "experiments which_heads --root file.txt": r"expected --root to name a folder, found a file",
    "experiments how_good_is_it --data-dir nowhere": r"expected --data-dir .* found nothing in now",
    "experiments how_good_is_it --data-dir empty": r"expected --data-dir .* found none of them in",
    "experiments what_else_breaks --data-dir file.txt": r"expected --data-dir",
    "experiments do_word_problems_use_them --data-dir nowhere": r"expected --data-dir",
    "experiments does_tuning_help --data-dir nowhere": r"expected --data-dir",
    "experiments training_splits --data-dir nowhere": r"expected --data-dir",
    "experiments whole_study --data-dir nowhere": r"expected --data-dir",
    "experiments whole_study --model refrence": r"did you mean reference\?",
    "laboratory measure_reference nowhere": r"nowhere",
    "experiments do_they_find_known_circuits --models copy": r"copy",
    "figures fig2 --model refrence": r"did you mean reference\?",
    "figures fig12 --models reference refrence-mistral": r"did you mean reference-mistral\?",
    "figures fig2 --run nowhere": r"as run, found nothing at nowhere",
    "figures fig2 --out file.txt": r"expected --out to name a folder, found a file",
    "figures fig2": r"expected a finished run of reference under results/which_heads, found none",
    "figures fig3 --n 9": r"expected a finished run .* python -m experiments are_they_needed",
}  # fmt: skip
"""A command line, and what is said about it. `file.txt` is a file and `empty` an empty folder."""


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """Run a command line in an empty folder; what it says. It must fail and leave nothing."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("no checkpoint, no run\n")
    before = {*tmp_path.rglob("*")}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(al, "load_model", loading.load_model)
    for module, name in ((loading, "_boot"), (al, "path_patch"), (settings, "open_run")):
        monkeypatch.setattr(module, name, lambda *_, name=name, **__: pytest.fail(f"called {name}"))

    def run(line: str) -> str:
        package, *arguments = shlex.split(line)
        monkeypatch.setattr(sys, "argv", [package, *arguments])
        with pytest.raises(SystemExit) as ended:
            MAINS[package]()
        assert ended.value.code not in (0, None)
        printed = capsys.readouterr()
        said = "".join([printed.out, printed.err, str(ended.value.code)])
        assert "Traceback" not in said
        assert {*tmp_path.rglob("*")} == before
        return " ".join(re.sub("[│╭╮╰╯─]", " ", said).split())

    return run


@pytest.mark.parametrize("line", CLUMSY)
def test_a_clumsy_command_is_refused_with_a_sentence(line: str, refused: Any) -> None:
    said = refused(line)
    assert re.search(CLUMSY[line], said.removesuffix(" 2")), said


def test_an_error_before_the_first_result_leaves_no_run(tmp_path: Path) -> None:
    """Whether a tokenizer splits answers is seen with the model: 500 prompts are too many here."""
    config = which_heads.MapConfig(n=500, operations=("addition",), device="cpu")
    with pytest.raises(SystemExit, match="found n=500: only 324 distinct reference prompts exist"):
        which_heads.main(config, root=tmp_path)
    assert not [*tmp_path.iterdir()]


COMMANDS = experiments.experiments() | exhibits_and_pages()

WITHOUT_TORCH = """
import contextlib, io, sys
from experiments import __main__ as experiments
from figures import __main__ as figures
from laboratory import __main__ as laboratory

MAINS = {"experiments": experiments, "figures": figures, "laboratory": laboratory}
COMPUTING = {"torch", "pandas", "plotly", "transformers", "transformer_lens"}
for line in sys.argv[1:]:
    package, *sys.argv = line.split()
    sys.argv.insert(0, package)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            MAINS[package].main()
        except SystemExit:
            pass
    if loaded := COMPUTING & {*sys.modules}:
        sys.exit(f"{line} imports {', '.join(loaded)}")
"""


def test_help_and_wrong_arguments_import_nothing_that_computes() -> None:
    lines = [f"{one.package} {name} --help" for name, one in COMMANDS.items()]
    lines += [
        "experiments",
        "figures --help",
        "laboratory --help",
        "experiments wich_heads",
        "figures fig22",
    ]
    lines += ["experiments which_heads --n 0", "experiments which_heads --nn 1"]
    lines += ["figures fig2 --model refrence", "experiments how_good_is_it --data-dir nowhere"]
    command = [sys.executable, "-c", WITHOUT_TORCH, *lines, "figures exam"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.startswith("figures exam imports"), "the last line, which computes, alone"


@pytest.mark.parametrize("line", ["experiments fig2", "figures fig2 --n 0"])
def test_a_process_ends_with_the_sentence_alone(line: str) -> None:
    command = [sys.executable, "-m", *line.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert re.search(CLUMSY[line], done.stderr.strip()) and done.stderr.count("\n") == 1
