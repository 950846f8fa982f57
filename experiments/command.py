"""The commands of `experiments/` and `figures/`: find one by its name, and start it.

Mistakes end with a message, and only one of several processes prints.
"""

import codecs
import os
import re
import select
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from difflib import SequenceMatcher
from importlib import import_module
from inspect import cleandoc
from io import StringIO, TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

import tyro

from experiments.arguments import experiment_settings, signature
from experiments.checks import check_settings, suggestion


@dataclass(frozen=True)
class Command:
    """A function or an `Experiment` that a command starts."""

    module: str
    """Dotted."""
    variable: str
    """Its name in the module."""
    about: str
    """Its docstring; that of the module if it has the module's name."""
    other: str
    """The exhibit of an experiment, the experiment of an exhibit; "" if it has none."""

    @property
    def package(self) -> str:
        """`experiments`, `figures` or `laboratory`."""
        return self.module.partition(".")[0]

    @property
    def sentence(self) -> str:
        """The first line of its docstring, with its exhibit or experiment in brackets."""
        kind = "experiments" if self.module.startswith("figures.") else "figures"
        return self.about.partition("\n")[0] + f" [{kind} {self.other}]" * bool(self.other)

    def load(self) -> Any:
        """The function or the `Experiment`."""
        return getattr(import_module(self.module), self.variable)


def commands(
    folder: Path, definition: re.Pattern[str], other: re.Pattern[str]
) -> dict[str, Command]:
    """The commands of a package, by name, read from its code without importing it.

    A function or `Experiment` gives a command its own name, and its docstring is the help. If it is
    called `main` or `exhibits`, both are the module's.

    Args:
        folder: the package.
        definition: what defines a command; its only group that matches is the variable.
        other: what names the other side: the exhibit of an experiment, the experiment of an
            exhibit. It is searched in the definition, then in the docstring, then in the module's.
    """
    commands_by_name = {}
    for file in sorted(folder.rglob("*.py")):
        module = file.relative_to(folder.parent).with_suffix("").parts
        source = file.read_text(encoding="utf-8")
        for part in definition.finditer(source):
            variable, story = str(part[part.lastindex or 0]), _docstring(source)
            is_module = variable in ("main", "exhibits")
            if is_module and len(module) != (3 if module[-1] == "__main__" else 2):
                continue  # a part of a package's command, or the list of commands
            name = module[1] if is_module else variable
            about = story if is_module else _docstring(source[part.end() :])
            names = (match[1] for text in (part[0], about, story) for match in other.finditer(text))
            commands_by_name[name] = Command(".".join(module), variable, about, next(names, ""))
    return commands_by_name


def _docstring(source: str) -> str:
    """The first docstring in some code, without sections such as the arguments."""
    text = cleandoc(source.partition('"""')[2].partition('"""')[0])
    return re.split(r"\n\n(?:Args|Raises|Returns):", text)[0]


def named_command(
    commands: Mapping[str, Command],
    usage: str,
    others: Callable[[], Mapping[str, Command]],
    keys: Mapping[str, str] | None = None,
) -> str | None:
    """The command that the first argument names; it is removed from the arguments.

    Args:
        commands: the commands, by name, in the order of the help.
        usage: the first line of the help.
        others: reads the commands of the other package, for an error.
        keys: the command of each question, by its key.

    Returns:
        The name, or None if the user wanted help, which is printed.

    Raises:
        SystemExit: no command has this name; the message has the nearest names.
    """
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        width = max(map(len, commands))
        lines = [f"{entry:{width}}  {one.sentence}" for entry, one in commands.items()]
        with robust_output():
            print("\n".join([usage, "", *lines]))
        return None
    if name not in commands:
        name = (keys or {}).get(name.replace("-", "_"), name)
    if name not in commands:
        sys.exit(_unknown(name, commands, others()))
    del sys.argv[1]
    return name


KINDS = {
    "experiments": "an experiment",
    "figures": "an exhibit",
    "laboratory": "a command of the laboratory",
}
"""What a command of a package is called."""


def _unknown(name: str, commands: Mapping[str, Command], others: Mapping[str, Command]) -> str:
    """The refusal of a name that no command has, with the nearest names."""
    package, other_package = (next(iter(some.values())).package for some in (commands, others))
    near = suggestion(name, commands) or ";"
    if name in others:
        near = f", which is {KINDS[other_package]}: python -m {other_package} {name}"
        if (own := others[name].other) in commands:
            near += f" (its own is {own}: python -m {package} {own})"
        near += ";"
    elif _likeness(name, others) > _likeness(name, commands) and (
        other := suggestion(name, others)
    ):
        near = other.replace("did you mean ", f"did you mean python -m {other_package} ")
    listed = f"python -m {package} --help lists all {len(commands)}"
    return f"expected {KINDS[package]}, found {name!r}{near} {listed}"


def _likeness(name: str, known: Iterable[str]) -> float:
    """How much a name is like the nearest of some names, between 0 and 1."""
    return max((SequenceMatcher(None, name, one).ratio() for one in known), default=0.0)


def check_arguments(entry: Command, name: str, experiment: Command | None = None) -> None:
    """Read and check the command line before anything is imported that computes.

    A word that is not among the choices of an option gets the nearest ones.

    Args:
        entry: the command.
        name: its name.
        experiment: of an exhibit, the experiment whose settings it takes.

    Raises:
        SystemExit: the user wanted help, which is printed; or something is wrong.
    """
    messages = StringIO()
    settings = experiment and experiment_settings(experiment.module, experiment.variable)
    with rank_zero_prints(), robust_output():
        try:
            with redirect_stderr(messages):
                values = tyro.cli(
                    signature(entry.module, entry.variable, settings),
                    prog=f"python -m {entry.package} {name}",
                    description=entry.about,
                )
        except SystemExit as end:
            print(messages.getvalue(), end="", file=sys.stderr)
            wrong = re.search(
                r"invalid choice '([^']*)'.*?\((.*?)\)", _unframed(messages.getvalue())
            )
            if wrong and (near := suggestion(wrong[1], re.findall(r"'([^']*)'", wrong[2]))):
                print(near.removeprefix("; ").capitalize(), file=sys.stderr)
            sys.exit(end.code)
    try:
        check_settings(values)
    except (OSError, ValueError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


def _unframed(text: str) -> str:
    """The words in a frame of lines, as one line."""
    return " ".join(re.sub("[│|╭╮╰╯─]", " ", text).split())


def command(
    main: Callable[..., Any],
    name: str,
    about: str | None,
    *,
    shares: bool,
    package: str = "experiments",
) -> None:
    """Read the command line and run `main`.

    Args:
        main: the function of the experiment.
        name: the name of its module.
        about: what it does, for the help.
        shares: whether several processes share its work. If not, the first process that torchrun
            or accelerate started does all of it, and the others exit at once.
        package: the package whose command it is, for the help.
    """
    from arith_lens.runs import RunError
    from arith_lens.runs.shards import PART_VARIABLE, claim_rank_zero

    with robust_output(), exit_cleanly(), rank_zero_prints():
        if not shares and PART_VARIABLE in os.environ:
            raise RunError(
                f"expected {name} on one machine, found {PART_VARIABLE}="
                f"{os.environ[PART_VARIABLE]}: it is not computed in parts. Start it without."
            )
        if shares or claim_rank_zero():
            tyro.cli(main, prog=f"python -m {package} {name}", description=about)


_ASCII = str.maketrans(
    {
        **dict.fromkeys("−–—─━╌", "-"),
        **dict.fromkeys("│┃", "|"),
        **dict.fromkeys("╭╮╰╯├┤┬┴┼", "+"),
        **dict.fromkeys("“”", '"'),
        **dict.fromkeys("\u2018\u2019", "'"),
        "×": "x",
        "÷": "/",
        "±": "+/-",
        "≤": "<=",
        "≥": ">=",
        "→": "->",
        "…": "...",
    }
)


def _ascii_letters(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that the terminal cannot show by similar ASCII characters, or by `?`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_ASCII)
    return text.encode("ascii", "replace").decode("ascii"), error.end


@contextmanager
def robust_output() -> Iterator[None]:
    """Replace characters that the output's encoding lacks.

    If the reader of the output has closed it (`| head`), end the command without a message.
    """
    codecs.register_error("plain letters", _ascii_letters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="plain letters")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _is_closed(sys.stdout):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's last flush
        sys.exit(_CLOSED)


_CLOSED = 128 + 13
"""The exit status of a command that SIGPIPE ended."""


def _is_closed(stream: TextIO) -> bool:
    """Whether the reader of a stream has closed it, so that nothing can be written."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


@contextmanager
def exit_cleanly() -> Iterator[None]:
    """If the user stops the run or the disk fills up, print what was saved, without a traceback."""
    from arith_lens.path_patching import CertificateError, UnsupportedTrunk
    from arith_lens.runs import RunError

    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)
    except SystemExit as error:
        sys.exit(_with_notes(error) if isinstance(error.code, str) else error.code)
    except (RunError, FloatingPointError, MemoryError, UnsupportedTrunk, CertificateError) as error:
        sys.exit(f"{type(error).__name__}: {_with_notes(error)}")


def _with_notes(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


@contextmanager
def exit_on_user_error() -> Iterator[None]:
    """If something that the user named is wrong, exit with the error's message."""
    from arith_lens.runs import RunError

    try:
        yield
    except (OSError, ValueError, RunError, FloatingPointError, MemoryError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


@contextmanager
def continue_after_part() -> Iterator[None]:
    """If this process has computed its part of a result, print that and continue."""
    from arith_lens.runs import PartDone

    try:
        yield
    except PartDone as done:
        print(done)


def is_first() -> bool:
    """Whether this is the only process, or the first of those that were started together."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def rank_zero_prints() -> Iterator[None]:
    """If several processes were started together, only the first one prints and warns."""
    with ExitStack() as stack:
        if not is_first():
            stack.enter_context(redirect_stdout(StringIO()))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        yield
