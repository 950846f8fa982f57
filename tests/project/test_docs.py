"""Every link, command and example of the README and the docs works as it stands."""

import functools
import itertools
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from arith_lens.__main__ import _parser as arith_lens_parser
from arith_lens.benchmarks.readers import HUMANITIES
from arith_lens.model import empty_model
from arith_lens.pairs import read_file
from arith_lens.reference.sets import load_set
from experiments import catalogue, make, settings
from experiments.catalogue import Command
from experiments.command import Arguments, read_arguments
from experiments.questions import questions
from figures.__main__ import tables, without_conditions
from laboratory.__main__ import COMMANDS as LABORATORY
from laboratory.speed import growth
from laboratory.speed.fine_tuning_plan import STEP_SHAPES
from laboratory.speed.shapes import SHAPES

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "arith_lens" / "reference").glob("*/README.md")),
]
FLAGS = re.DOTALL | re.MULTILINE
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", FLAGS)
PYTHON = re.compile(
    r"(?:python3?|torchrun[^\n]*|accelerate launch[^\n]*) -m "
    r"((?:experiments|figures|laboratory)(?: --)?[ .][\w.]+)([^|;&>\n]*)"
)

# What an example takes too long over, and what it is shortened to.
SHORTER = {
    'load_set("word_problems_tuning")': 'load_set("word_problems_tuning")[:16]',
    'sample_pairs(model, "addition")': 'sample_pairs(model, "addition", n=18)',
    'sample_pairs(model, "addition", 36)': 'sample_pairs(model, "addition", 9)',
    '["gsm8k", "svamp", "mmlu_humanities"]': '["svamp"]',
    "limit=50": "limit=1, max_new_tokens=8",
    # The shipped model answers none of GSM8K's questions.
    "keep_correct(model, pairs)": "keep_correct(model, al.sample_pairs(model, n=8))",
    "n=10_000": "n=36",
    'sample_pairs(model, "addition", 100)': 'sample_pairs(model, "addition", 18)',
    'sample_pairs(model, "division", ': 'sample_pairs(model, "division", 18, ',
    "n=500": "n=18",
    'sample_pairs(model, "addition", n=36)': 'sample_pairs(model, "addition", n=18)',
    'templates="symbols", shots=4': 'n=9, templates="symbols", shots=4',
    "ks=range(25)": "ks=range(7)",
    'templates="symbols", counterfactual=': 'n=18, templates="symbols", counterfactual=',
    "sample_pairs(model, operands=range(10, 100)": "sample_pairs(model, operands=range(10, 20)",
}
# What a reader puts in place of a name in an example.
CHECKPOINTS = (
    "meta-llama/Llama-2-7b-hf",
    "mistralai/Mistral-7B-v0.1",
    "path/to/checkpoint",
    "gemma-3-270m",
    "smollm2-135m",
)
STAND_INS = {
    **dict.fromkeys(CHECKPOINTS, "checkpoint"),
    **dict.fromkeys(("data/", "path/to/data", "...", "…"), "data"),
    "$model": "reference",
    "$seed": "1",
    "$folder": "checkpoint",
    "$folder/final": "checkpoint",
    "cuda": "cpu",
    "12.22": "5.5",
    "13.11": "5.2",
}
# What these plan from is not here: a run of an hour, a model of the world, the hub, all of MMLU.
LACKS = {
    "experiments.do_tuned_heads_carry_more": "does_tuning_help --table 1",
    "experiments.do_tuned_heads_carry_more --controls 0 --questions 250": "does_tuning_help",
    "experiments.does_the_gain_hold": "does_tuning_help --table 1",
    "experiments.what_tuning_changes": "does_tuning_help --table 1",
    "experiments.training_splits": "data_dir",
    **dict.fromkeys(
        (
            f"experiments.does_tuning_help {options}"
            for options in (
                "--model checkpoint --data-dir data --dry-run",
                "--model checkpoint --data-dir data --heads 2 --dry-run",
                "--table 1 --model checkpoint --device cpu --data-dir data",
            )
        ),
        "in data/mmlu",
    ),
}


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def examples(page: Path) -> list[str]:
    return [text for name, text in FENCE.findall(page.read_text("utf-8")) if name == "python"]


def commands(text: str) -> Iterator[str]:
    """The commands of a page: lines of its shell blocks, and what stands between backticks."""
    for language, block in FENCE.findall(text):
        if language in ("", "bash"):
            yield from (
                re.sub(r"\s#.*", "", line) for line in block.replace("\\\n", "").split("\n")
            )
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", FENCE.sub("", text)))


@functools.cache
def expanded(command: str) -> str:
    """What a make command would run; other commands as they are."""
    if not re.match(r"make [a-z]", command):
        return command
    words = [word for word in shlex.split(command)[1:] if word != "MODEL=…"]
    values = dict(word.split("=", 1) for word in words if "=" in word)
    goals = [word for word in words if "=" not in word]
    assert not (wrong := make.check(goals, values)), f"{command}: {wrong}"
    return "\n".join(step.line for goal in goals for step in make.steps(goal, values))


def documented_commands() -> dict[str, str]:
    """Every module with its arguments that a page has a reader run, and the page."""
    pages: dict[str, str] = {}
    for page in PAGES:
        if page.name == "CHANGELOG.md" or page.parent.name == "studies":
            continue  # they tell of earlier versions, whose commands may be gone
        for command in commands(page.read_text("utf-8")):
            for module, rest in PYTHON.findall(expanded(command)):
                words = [STAND_INS.get(word, word) for word in shlex.split(rest)]
                module = re.sub(r"(?: --)? ", ".", module)
                pages.setdefault(shlex.join([module, *words]), page_id(page))
    return pages


def parsed_command(module: str, words: list[str]) -> tuple[Command, Arguments]:
    """A command, and what its words become. They are not checked: pages name folders that are not
    here."""
    package, _, name = module.partition(".")
    if package == "figures":
        printed = name == "table"
        known = tables() if printed else catalogue.exhibits_and_pages()
        name, words = (words[0], words[1:]) if printed else (name, words)
        words = without_conditions(words)[0]
        key = questions().get(name.replace("-", "_"))
        command = catalogue.with_settings(known[key.exhibit[0].name if key else name])
    else:
        every = LABORATORY if package == "laboratory" else catalogue.experiments()
        key = questions().get(name)
        command = every[key.experiment if key and package == "experiments" else name]
    return command, read_arguments(command, words)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what examples name: data/, a checkpoint, pairs of one's own."""
    folder = tmp_path_factory.mktemp("desk")
    shutil.copytree(ROOT / "tests" / "data", folder / "data")
    for part, subject in itertools.product(("test", "dev"), HUMANITIES):
        answers = folder / "data" / "mmlu" / part
        if not (file := answers / f"{subject}_{part}.csv").exists():
            shutil.copy(answers / f"philosophy_{part}.csv", file)
    shutil.copytree(ROOT / "arith_lens" / "reference" / "reference", folder / "checkpoint")
    (row,) = re.findall(r"^```json\n(.*?)^```$", (ROOT / "docs" / "data.md").read_text(), FLAGS)
    (folder / "mine.jsonl").write_text(row)
    (folder / "train.jsonl").write_text('{"prompt": "3 + 4 = ", "answer": "7"}\n')
    return folder


def anchors(page: Path) -> set[str]:
    """What a link into this page may end in: its headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text("utf-8")), flags=re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def broken_links(page: Path) -> list[str]:
    links = re.findall(r"\]\((?!https?:)([^)\s]+)\)", FENCE.sub("", page.read_text("utf-8")))
    broken = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# What is *this*?\n[a](#what-is-this) [b](#that) [c](none.md) [d](page.md#what)"
    )
    assert broken_links(page) == ["#that", "none.md", "page.md#what"]


ELSEWHERE = ROOT / "docs" / "coming_from_transformerlens.md"
"""The page whose examples are run, and their numbers compared, by test_coming_page.py."""


@pytest.mark.parametrize(
    "page", [page for page in PAGES[1:] if examples(page) and page != ELSEWHERE], ids=page_id
)
def test_examples_run_as_they_stand(
    page: Path, desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    names: dict[str, Any] = {}
    for text in examples(page):
        for old, new in SHORTER.items():
            text = text.replace(old, new)
        for name in CHECKPOINTS:
            text = text.replace(name, "checkpoint")
        exec(compile(text, page_id(page), "exec"), names)


@pytest.mark.parametrize("command", sorted(documented_commands()))
def test_commands_are_understood_and_plan(
    command: str,
    desk: Path,
    empty_models: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module, *words = shlex.split(command)
    monkeypatch.syspath_prepend(str(ROOT))
    if "--help" in words:
        with pytest.raises(SystemExit, match="0"):
            parsed_command(module, words)
        return
    command_, (positional, by_name) = parsed_command(module, words)
    call = command_.load()
    if not hasattr(call, "plan") and "dry_run" not in signature(call).parameters:
        return
    config, *others = positional or [by_name.pop("config")]
    if hasattr(config, "n") and getattr(config, "pairs", None) is None:
        config = replace(config, n=4)
    monkeypatch.chdir(desk)
    monkeypatch.setattr("arith_lens.reference.sets.load_set", lambda name: load_set(name)[::50])
    for names in (getattr(call, "__globals__", {}), vars(settings)):
        if names.get("empty_model") is empty_model:
            monkeypatch.setitem(names, "empty_model", empty_models)
    for known in (SHAPES, STEP_SHAPES):
        for name, shape in known.items():
            monkeypatch.setitem(known, name, replace(shape, n_layers=min(4, shape.n_layers)))
    monkeypatch.setattr(growth, "FULL", growth.QUICK)
    refused = pytest.raises(SystemExit, match=LACKS[command]) if command in LACKS else nullcontext()
    with refused:
        call(config, *others, **by_name | {"dry_run": True})
        assert capsys.readouterr().out


OWN_COMMAND = re.compile(r"arith-lens (?=[a-z])(?!--)")
GUIDES = [
    *("README.md", "docs/setup.md", "docs/data.md", "docs/explorer.md"),
    *("docs/knockout.md", "docs/audit.md", "docs/path_patching.md"),
]
"""Pages whose first command is the one that a wheel brings."""


def test_pages_name_the_command_of_the_package_and_it_understands_each_of_its_lines() -> None:
    by_page: dict[str, list[str]] = {}
    for page in PAGES:
        lines = [one.strip() for one in commands(page.read_text("utf-8"))]
        by_page[page_id(page)] = [one for one in lines if OWN_COMMAND.match(one)]
        for line in by_page[page_id(page)]:
            words = shlex.split(line)[1:]
            model = ["MODEL"] * (len(words) == 1 and words != ["models"])  # a mere name
            arith_lens_parser().parse_args([*words, *model])
    assert [name for name in GUIDES if not by_page[name]] == []
    with pytest.raises(ValueError, match="--pears"):
        arith_lens_parser().parse_args(["map", "MODEL", "--pears", "mine.csv"])


@pytest.mark.parametrize("name", ["README.md", "docs/data.md"])
def test_a_page_shows_rows_whose_answer_has_its_blank(name: str, tmp_path: Path) -> None:
    (rows,) = re.findall(r"^```csv\n(.*?)^```$", (ROOT / name).read_text("utf-8"), FLAGS)
    (tmp_path / "mine.csv").write_text(rows, "utf-8")
    for row in read_file(tmp_path / "mine.csv", {}).values():
        assert not row["reference"].endswith(" ") and row["answer"].startswith(" ")
        assert row["counterfactual"] != row["reference"]
    (tmp_path / "mine.csv").write_text(rows.replace("answer", "label"), "utf-8")
    with pytest.raises(ValueError, match="answer"):
        read_file(tmp_path / "mine.csv", {})


def broken_tables(text: str) -> list[str]:
    """The lines of Markdown that are cut off from a table, or that are a part of a row."""
    blocks, lines = MarkdownIt().enable("table").parse(text), text.splitlines()
    tables = [range(*block.map) for block in blocks if block.type == "table_open" and block.map]
    rows = [lines[i] for table in tables for i in table]
    cut = [line for block in blocks if block.type == "inline" for line in block.content.split("\n")]
    return [line for line in rows if not (line.startswith("|") and line.endswith("|"))] + [
        line for line in cut if line.startswith("|") or line.endswith("|")
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_table_of_a_page_is_whole(page: Path) -> None:
    assert not broken_tables(page.read_text(encoding="utf-8"))


def test_a_blank_line_or_a_cut_row_breaks_a_table() -> None:
    head = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert not broken_tables(head + "| 3 | 4 |\n")
    assert broken_tables(head + "\n| 3 | 4 |\n") == ["| 3 | 4 |"]
    assert broken_tables(head + "| 3 | x\n4 |\n") == ["| 3 | x", "4 |"]
