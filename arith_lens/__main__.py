"""The command `arith-lens`: find, check and explain the parts of a language model that do a task.

Exit codes: 0; 1 for what a user can mend, with one clear line; 130 if it was stopped.
"""

import re
import shlex
import sys
import warnings
from argparse import ArgumentParser, Namespace
from ast import literal_eval
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache, partial
from math import isnan
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, NoReturn

from arith_lens import __version__
from arith_lens.operations import OPERATIONS
from arith_lens.options import check_choice
from arith_lens.progress import is_first, loading, rank_zero_prints

COLUMNS = """names of the columns of --pairs, KEY=COLUMN, such as answer=label; keys are reference
counterfactual answer counterfactual_answer template a b problem examples exemplar_set spans
counterfactual_spans"""
OPTIONS: dict[str, dict[str, Any]] = {
    "operation": {"help": f"of the problems, addition by default: {', '.join(OPERATIONS)}"},
    "pairs": {"type": Path, "help": "a file of your own prompts (JSON lines or CSV) in its place"},
    "columns": {"nargs": "+", "default": (), "help": COLUMNS},
    "chat": {"action": "store_true", "help": "put --pairs into the model's chat template"},
    "shots": {"type": int, "help": "solved examples before each problem; 1, of shipped models 0"},
    "n": {"type": int, "help": "the first so many prompts; all by default"},
    "out": {"type": Path, "default": Path("arith-lens"), "help": "the folder of the results"},
}
"""What all commands about a model take."""
HEADS: dict[str, Any] = {"nargs": "+", "help": "layer.head, as 5.5; the three strongest by default"}
DRAWS: dict[str, Any] = {"type": int, "default": 100, "help": "random sets of heads, as controls"}


NAME = "arith-lens"
CONTROLS = 20
"""Random sets of heads beside a knockout."""
MOST_NAMED = 5
"""Prompts that are named because the model answers them otherwise."""
MENDABLE = LookupError, ValueError, TypeError, OSError, ImportError, MemoryError, RuntimeError
MESSAGES = (
    (r"the following arguments are required: (\w+)", r"a \1 after the command, found none"),
    (r"argument (--\w+): invalid int value: (.*)", r"a whole number after \1, found \2"),
    (r"argument (--\w+): expected .*", r"a value after \1, found none"),
)
"""Errors of ArgumentParser, and the words for them."""
FILES = {"explore": "explorer.html", "knockout": "knockout.csv"}
"""The file that a command says to open, if it is not its own name with `.html`."""
LEAST = {"n": 1, "draws": 2, "shots": 0}


class _Parser(ArgumentParser):
    """A parser whose errors are those of the user, and name the nearest command."""

    def error(self, message: str) -> NoReturn:
        for pattern, words in MESSAGES:
            message = re.sub(pattern, words, message)
        requirement, _, value = message.rpartition(", found ")
        requirement = requirement or f"arguments of {self.prog}"
        raise ValueError(f"expected {requirement}, found {value}; see {self.prog} --help")

    def _check_value(self, action: Any, value: Any) -> None:
        if action.choices is not None:
            check_choice(action.metavar or "a value", value, action.choices)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with its arguments (those of the process, if None). Returns the exit code."""
    try:
        words = [*(sys.argv[1:] if arguments is None else arguments)] or ["--help"]
        chosen, others = _parser().parse_known_args(words)
        if others:
            value = " ".join(others)
            option = "operation" if value in OPERATIONS else "heads"
            if option in chosen and (value in OPERATIONS or re.fullmatch(r"[\d., ]+", value)):
                cure = f"did you mean --{option} {value}?"
                raise ValueError(f"expected an option before {value}, found none; {cure}")
            known = [f"--{name}" for name in vars(chosen) if name not in ("model", "run", "file")]
            check_choice("an option", others[0].partition("=")[0], known)
        first = rank_zero_prints()  # of several processes, which alone writes
        with warnings.catch_warnings(), first, TemporaryDirectory() as scratch:
            print_once = cache(partial(print, file=sys.stderr))
            warnings.showwarning = lambda message, *_, **__: print_once(str(message))
            chosen.pages = chosen.out if is_first() and "out" in chosen else Path(scratch)
            chosen.run(chosen)
    except KeyboardInterrupt:
        print("stopped; an audit goes on from what is stored, others begin anew", file=sys.stderr)
        return 130
    except MENDABLE as error:
        print(_as_options(str(error)), file=sys.stderr)
        return 1
    return 0


def _parser() -> ArgumentParser:
    start = "to begin: arith-lens map reference; of your own, arith-lens map MODEL --pairs FILE"
    parser = _Parser(NAME, description=(__doc__ or "").partition("\n")[0], epilog=start)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    about = "list the models that have a name, or get a pretrained one"
    models = commands.add_parser("models", help=about, description=about)
    models.add_argument("action", nargs="?", metavar="get")
    models.add_argument("name", nargs="?", help="such as smollm2-135m")
    models.set_defaults(run=_models)
    questions: dict[str, tuple[str, Callable[[Namespace], None], dict[str, dict[str, Any]]]] = {
        "audit": ("ask seven questions about a model and a task", _audit, {"draws": DRAWS}),
        "map": ("measure the effect of every head and MLP on the answer", _map, {}),
        "knockout": ("replace heads, or all others, by their means", _knockout, {"heads": HEADS}),
        "explore": ("write a page on which a click shows what a head does", _explore, {}),
    }
    for name, (about, run, more) in questions.items():
        command = commands.add_parser(name, help=about, description=about)
        command.add_argument("model", help="a name, a folder, a GGUF file or a hub id")
        for option, settings in {**OPTIONS, **more}.items():
            command.add_argument(f"--{option}", **settings)
        command.set_defaults(run=run, file=FILES.get(name, f"{name}.html"))
    return parser


def _models(chosen: Namespace) -> None:
    from arith_lens.model import get_pretrained, load_model
    from arith_lens.named_models import PRETRAINED, REFERENCE_MODELS

    if chosen.action is None:
        for name in REFERENCE_MODELS:
            print(f"{name}: ships with this package")
        for name, model in PRETRAINED.items():
            print(f"{name}: {model.hub_id}, quantised, {model.n_bytes / 1e6:.0f} MB to download")
        return
    if chosen.action != "get":
        of = chosen.action if chosen.action in PRETRAINED else "NAME"
        raise ValueError(
            f"expected models alone, or models get NAME, found models {chosen.action}; to download "
            f"a model, write {NAME} models get {of}"
        )
    if chosen.name is None:
        raise ValueError(f"expected a name after get, found none; one of {', '.join(PRETRAINED)}")
    file = get_pretrained(chosen.name)
    with loading(f"loading {chosen.name}"):
        model = load_model(chosen.name)  # which converts it the first time
    print(f"{model}\n\nin {file.parent}\nnext: {_program()} audit {chosen.name}")


def _task(chosen: Namespace) -> tuple[Any, dict[str, Any], Path]:
    """The model, its pairs by what the counterfactual changes, and the folder of the results.

    The folder is there, and can be written, before anything is computed.
    """
    from arith_lens.auditing import operation_pairs
    from arith_lens.components import as_heads, check_components
    from arith_lens.model import early_tokenizer, load_model
    from arith_lens.pairs import PromptPairs, read_file

    columns = _checked_columns(chosen)
    check_choice("--operation", chosen.operation or "addition", OPERATIONS)
    chosen.task = chosen.pairs.stem if chosen.pairs else chosen.operation or "addition"
    _writable(chosen.pages)
    if chosen.pairs is not None:  # a fault in it is said before weights are loaded
        read_file(chosen.pairs, columns)
        with loading(f"reading the tokenizer of {chosen.model}"):
            tokenizer = early_tokenizer(chosen.model)
        own = PromptPairs.from_file(chosen.pairs, tokenizer, columns=columns, chat=chosen.chat)
        if own.counterparts is not None and chosen.run in (_audit, _explore):
            spans = columns.get("counterfactual_spans", "counterfactual_spans")
            raise ValueError(
                f"expected counterfactuals of as many tokens as their references, found {spans} in "
                f"{chosen.pairs}, which map and knockout alone read; run one of these, or leave "
                f"{spans} out and make both prompts of a row equally long"
            )
    with loading(f"loading {chosen.model}"):
        model = load_model(chosen.model)
    check_components(as_heads(chosen.heads), int(model.cfg.n_layers), int(model.cfg.n_heads))
    if chosen.pairs is None:
        pairs = operation_pairs(model, chosen.task, shots=chosen.shots)
    else:
        own = PromptPairs.from_file(chosen.pairs, model, columns=columns, chat=chosen.chat)
        pairs = {"own": own}
    if chosen.n is not None:
        pairs = {lens: some[range(min(chosen.n, len(some)))] for lens, some in pairs.items()}
    folder = chosen.pages / f"{Path(model.name).name}-{chosen.task}"
    _writable(folder).mkdir(parents=True, exist_ok=True)
    if (file := folder / chosen.file).exists():
        age = datetime.fromtimestamp(file.stat().st_mtime)
        print(f"this replaces {file} (of {age:%Y-%m-%d %H:%M}), unless --out names another folder")
    return model, pairs, folder


def _checked_columns(chosen: Namespace) -> dict[str, str]:
    """The columns of --pairs, after a look at the options. Raises ValueError for a faulty one."""
    for name, least in LEAST.items():
        if (value := getattr(chosen, name, None)) is not None and value < least:
            raise ValueError(f"expected --{name} of {least} or more, found {value}; take more")
    if chosen.pairs is None and (chosen.columns or chosen.chat):
        raise ValueError("expected --pairs with --columns and --chat, found none; give a file")
    if chosen.pairs and (chosen.shots is not None or chosen.operation is not None):
        raise ValueError("expected --pairs without --operation and --shots, found both; leave one")
    chosen.heads = " ".join(getattr(chosen, "heads", None) or ()).replace(",", " ").split()
    if faulty := [head for head in chosen.heads if not re.fullmatch(r"\d+\.\d+", head)]:
        cure = "write layer.head, such as --heads 5.5 4.3"
        raise ValueError(f"expected heads after --heads, found {faulty[0]}; {cure}")
    if faulty := [item for item in chosen.columns if not all(item.partition("="))]:
        raise ValueError(
            "expected --columns as KEY=COLUMN, such as answer=label for a file whose answers stand "
            f"in the column label, found {faulty[0]!r}; name the key, = and the column"
        )
    return dict(item.split("=", 1) for item in chosen.columns)


def _writable(folder: Path) -> Path:
    """A folder that can be written, or made. Raises OSError for another one."""
    try:
        with TemporaryFile(dir=next(one for one in (folder, *folder.parents) if one.exists())):
            return folder
    except OSError as error:
        raise OSError(
            f"expected a folder that can be written, found {folder} ({error.strerror}); name "
            "another one with --out"
        ) from None


def _as_options(message: str) -> str:
    """A message whose cures are options of the command, not of functions."""

    def option(match: re.Match[str]) -> str:
        columns = literal_eval(match[1])
        return "--columns " + shlex.join(f"{key}={name}" for key, name in columns.items())

    message = re.sub(r"(, or | \()keep='[\w ')]+", "", message.replace("chat=True", "--chat"))
    return re.sub(r"columns=(\{.*?\})", option, message).replace(" columns=", " --columns")


def _right(chosen: Namespace) -> tuple[Any, Any, Path]:
    """The model, the pairs that it answers right, and the folder, which then exists."""
    from arith_lens.pairs import keep_correct

    model, lenses, folder = _task(chosen)
    every = next(iter(lenses.values()))
    _say_right(model, every)
    return model, keep_correct(model, every), folder


def _say_right(model: Any, pairs: Any) -> None:
    """Say how many prompts are answered right, and what the model says after some others."""
    from arith_lens.pairs import answer, mistakes

    right, _ = answer(model, pairs, "reference", 128)
    problems = f"{len({*pairs.filter(right).problem})} of {len({*pairs.problem})} problems"
    print(f"{int(right.sum())} of {len(right)} prompts ({problems}) are answered right", flush=True)
    lost = [int(row) for row in (~right).nonzero()]
    for line in mistakes(model, pairs[lost[:MOST_NAMED]]) if lost else ():
        print(f"  not {line}")
    if len(lost) > MOST_NAMED:
        print(f"  and {len(lost) - MOST_NAMED} more", flush=True)


def _measure(pairs: Any) -> str:
    """What an effect of a map is an effect on."""
    from arith_lens.auditing import fitting_metric

    answers = fitting_metric(pairs).get("candidates", ())
    own = " and of the counterfactuals (counterfactual_answer)" * any(
        pairs.counterfactual_answer_text or ()
    )
    lead = f"lead: its logit above the mean of the {len(answers) - 1} other answers here{own}"
    return f"An effect is on the answer's {lead if answers else 'logit'}."


def _effects(model: Any, pairs: Any) -> Any:
    from arith_lens.auditing import fitting_metric
    from arith_lens.path_patching import fitting_engine, path_patch, plan

    engine = fitting_engine(model)
    _say_time(model, plan(model, pairs, engine=engine).flops)
    return path_patch(model, pairs, engine=engine, **fitting_metric(pairs))


def _say_time(model: Any, flops: int, subject: str = "this takes") -> None:
    from arith_lens.path_patching import matrix_rate, time_text

    if flops > (rate := matrix_rate(model)):  # below a second, what is not counted takes longer
        print(f"{subject} about {time_text(flops, rate)}", flush=True)


def _audit(chosen: Namespace) -> None:
    from arith_lens.auditing import audit, four_operations
    from arith_lens.path_patching import fitting_engine, forward_flops, plan
    from arith_lens.runs import open_run

    model, pairs, folder = _task(chosen)
    first = next(iter(pairs.values()))
    _say_right(model, first)
    forwards = chosen.draws * len(first) * forward_flops(model, first.reference.shape[1]) // 2
    maps = (3 + len(pairs)) * plan(model, first, engine=fitting_engine(model)).flops
    _say_time(model, maps + forwards)  # of random sets, mostly at END alone
    options: dict[str, Any] = {"draws": chosen.draws}
    if chosen.pairs is None:
        options["means_over"] = four_operations(model, shots=chosen.shots)
    with open_run("audit", {}, model=model, root=chosen.out / "runs") as run:
        result = audit(model, pairs, run=run, **options)
    result.save(folder, task=chosen.task)
    _end(f"{result}\n{_measure(first)}", folder, "explore", chosen)


def _map(chosen: Namespace) -> None:
    from arith_lens.auditing import fitting_metric
    from arith_lens.auditing.auditing import LEAST_PROBLEMS
    from arith_lens.explorer_page import Explorer

    model, pairs, folder = _right(chosen)
    effects = _effects(model, pairs)
    effects.to_dataframe().to_csv(folder / "map.csv", index=False)
    (tables,) = (tables for _, tables in effects.explore().sets.values())
    example = (
        f"Example: after “{pairs.reference_text[0].strip()}”, the right answer C is "
        f"{pairs.answer_text[0].strip()}. The counterfactual is "
        f"“{pairs.counterfactual_text[0].strip()}”."
    )
    task, n = chosen.task, len({*pairs.problem})
    title = f"Map: {Path(model.name).name}, {task}, {n} problem{'s'[: n != 1]}"
    others = fitting_metric(pairs).get("candidates", ())
    facts = {"note": example, "n_pairs": len(pairs), "candidates": [*others]}
    Explorer({task: (facts, tables)}, title=title).save(folder / chosen.file, maps_only=True)
    following = "explore" if pairs.counterparts is None else "knockout"  # it takes equal lengths
    finding = f"{_strongest(tables['effects'], 5)}\n{_measure(pairs)}"
    if n < LEAST_PROBLEMS:
        finding += f"\nSo few problems ({n}) tell little; ask {LEAST_PROBLEMS} or more."
    _end(finding, folder, following, chosen)


def _strongest(table: Any, n: int) -> str:
    """The n parts with the most negative effects of a table of one metric, a line each."""
    metric, form = table.metric.iloc[0], ".2f"
    names = {"digit_contrast": "lead over the others", "logit": "logit"}
    if (of := names.get(metric)) is None:
        of, form = "logit, as a share,", ".1%"
    lines = [f"What the answer's {of} loses when one part alone gets its output of another prompt:"]
    for row in table.nsmallest(n, "mean").itertuples():
        mean, low, high = row.mean, row.ci_low, row.ci_high
        lines.append(f"  {row.component:>6}: {mean:+{form}} {_interval(low, high, form)}")
    return "\n".join(lines)


def _interval(low: float, high: float, form: str) -> str:
    if isnan(low):
        return "(no interval: there is one problem)"
    return f"[{low:{form}}, {high:{form}}]"


def _knockout(chosen: Namespace) -> None:
    from arith_lens.auditing.measures import Scale
    from arith_lens.components import as_heads
    from arith_lens.knockout import keep_only, knock_out
    from arith_lens.path_patching import forward_flops
    from arith_lens.progress import bar

    model, pairs, folder = _right(chosen)
    heads = as_heads(chosen.heads or _effects(model, pairs).heads.top(3))
    half = CONTROLS // 2  # of any layers, and as many of the same ones
    sets = Scale.of(model, 0, half).controls(heads, half)
    forwards = 2 * (1 + len(sets)) * len(pairs)
    _say_time(
        model, forwards * forward_flops(model, pairs.reference.shape[1]), "the knockouts take"
    )
    rows, lines = ["heads,right,low,high"], []
    for words, method in (("without {}", knock_out), ("{} alone", keep_only)):
        outcome = method(model, pairs, heads, positions="end")
        right, (low, high) = outcome.accuracy(), map(float, outcome.ci())
        name, control = words.format(" ".join(map(str, heads))), words.format("as many others")
        rows.append(f"{name},{right:.4f},{low:.4f},{high:.4f}")
        interval = _interval(100 * low, 100 * high, ".0f")
        lines.append(f"{name}: {right:.0%} {interval} are right")
        shares = []
        with bar(visible=True, total=len(sets), desc="sets of other heads", leave=False) as done:
            for some in sets.values():
                outcome = method(model, pairs, some, positions="end", progress=False)
                shares.append(outcome.accuracy())
                done.update()
        mean, least, most = sum(shares) / len(shares), min(shares), max(shares)
        rows.append(f"{control},{mean:.4f},{least:.4f},{most:.4f}")
        lines.append(f"{control}, {len(shares)} draws: {mean:.0%} ({least:.0%} to {most:.0%})")
    (folder / chosen.file).write_text("\n".join([*rows, ""]), encoding="utf-8")
    if not chosen.heads:
        lines.append(f"The map's strongest heads were taken. {_measure(pairs)}")
    following = "audit" if pairs.counterparts is None else None  # it takes pairs of one length
    _end("\n".join(lines), folder, following, chosen)


def _explore(chosen: Namespace) -> None:
    from arith_lens.exploration import explored, page_flops
    from arith_lens.explorer_page import Explorer

    model, pairs, folder = _right(chosen)
    _say_time(model, page_flops(model, pairs))
    options = {"columns": _checked_columns(chosen), "chat": chosen.chat}
    more = "".join(f", {name}={value!r}" for name, value in options.items() if value)
    made = f"al.PromptPairs.from_file({str(chosen.pairs)!r}, model{more})"
    if chosen.pairs is None:
        made = f"auditing.operation_pairs(model, {chosen.task!r}, shots={chosen.shots})['operands']"
    made += f"[:{chosen.n}]" * (chosen.n is not None)
    imports = "import arith_lens as al\nfrom arith_lens import auditing\n"
    setup = f"{imports}model = al.load_model({chosen.model!r})\n"
    setup += f"pairs = al.keep_correct(model, {made})"
    part = explored(model, pairs, setup=setup)
    name = Path(model.name).name
    explorer = Explorer({chosen.task: (part.facts, part.tables)}, title=f"Explorer: {name}")
    explorer.save(folder / chosen.file)
    maps = part.to_dataframe()
    first = (maps.paths == maps.paths.iloc[0]) & (maps.metric == maps.metric.iloc[0])
    strongest = _strongest(maps[first], 3)  # those that the page begins with
    measure = "These are shares of the answer's own logit, with which the page begins; its lead "
    measure += "over the other answers, as of map, knockout and audit, is a choice of the page."
    _end(f"{strongest}\n{measure}", folder, "knockout", chosen)


def _end(finding: Any, folder: Path, command: str | None, chosen: Namespace) -> None:
    """The finding, the file to open, and the next command on the same task, if there is one."""
    print(f"\n{finding}\n\nopen {folder / chosen.file}")
    if command is None:
        return
    words = [command, chosen.model]
    for name, about in OPTIONS.items():
        value = getattr(chosen, name)
        if value and value != about.get("default"):
            values = value if isinstance(value, list) else [] if value is True else [value]
            words += [f"--{name}", *map(str, values)]
    print(f"next: {_program()} {shlex.join(words)}")


def _program() -> str:
    """How this command was started: as it was typed, or by its name where that finds it."""
    typed, started = sys.orig_argv, Path(sys.argv[0])
    if "-m" in typed and typed[typed.index("-m") + 1] == "arith_lens":
        return shlex.join(typed[: typed.index("-m") + 2])
    if started.stem != NAME or which(NAME) == str(started.absolute()):
        return NAME
    return shlex.quote(str(started))


if __name__ == "__main__":
    sys.exit(main())
