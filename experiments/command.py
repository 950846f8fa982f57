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
from contextlib import ExitStack, contextmanager, redirect_stdout
from importlib import import_module
from io import StringIO, TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import tyro

from arith_lens.path_patching import CertificateError, UnsupportedTrunk
from arith_lens.runs import PartDone, RunError
from arith_lens.runs.shards import PART_VARIABLE, claim_rank_zero

_MAIN = re.compile(r"^(?:def main\(|main = |from \S+ import main\b)", re.MULTILINE)


def commands(folder: Path) -> dict[str, str]:
    """The modules of a package that have a function `main`, each with its first sentence.

    The exhibit that draws an experiment follows in brackets.
    """
    sentences = {}
    for file in sorted([*folder.glob("*.py"), *folder.glob("*/__main__.py")]):
        name = file.parent.name if file.parent != folder else file.stem
        source = file.read_text(encoding="utf-8")
        if name != "__main__" and _MAIN.search(source):
            sentences[name] = first_sentence(source)
            if folder.name == "experiments" and (exhibit := exhibit_of(source)):
                sentences[name] += f" [figures {exhibit}]"
    return sentences


def first_sentence(source: str) -> str:
    """The first line of the first docstring in some code."""
    return source.partition('"""')[2].partition("\n")[0].removesuffix('"""')


_EXHIBIT = (r'figure="(\w+)"', r"`figures/(\w+)\.py`", r"`python -m figures (\w+)`")
_EXPERIMENT = (r"`experiments/(\w+)",)


def exhibit_of(source: str) -> str:
    """The exhibit that the code of an experiment names; "" if it names none."""
    return _first_match(_EXHIBIT, source)


def experiment_of(docstring: str) -> str:
    """The experiment that the docstring of an exhibit names; "" if it names none."""
    return _first_match(_EXPERIMENT, docstring)


def _first_match(patterns: Iterable[str], text: str) -> str:
    matches = (re.search(pattern, text) for pattern in patterns)
    return next((match[1] for match in matches if match), "")


def imported(folder: Path, name: str) -> ModuleType:
    """The module of a command."""
    package = (folder / name / "__main__.py").exists()  # figures/gallery/ holds pictures
    return import_module(f"{folder.name}.{name}{'.__main__' * package}")


def named_command(sentences: Mapping[str, str], kind: str, usage: str) -> str | None:
    """The command that the first argument names; it is removed from the arguments.

    Args:
        sentences: the first sentence of each command, by name.
        kind: what a command is called in an error.
        usage: the first line of the help.

    Returns:
        The name, or None if the user wanted help, which is printed.

    Raises:
        SystemExit: no command has this name; the message lists all commands.
    """
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        width = max(map(len, sentences))
        lines = [f"{entry:{width}}  {sentence}" for entry, sentence in sentences.items()]
        with robust_output():
            print("\n".join([usage, "", *lines]))
        return None
    if name not in sentences:
        sys.exit(f"expected {kind} among {', '.join(sentences)}, found {name!r}")
    del sys.argv[1]
    return name


def command(main: Callable[..., Any], name: str, about: str | None, *, shares: bool) -> None:
    """Read the command line and run `main`.

    Args:
        main: the function of the experiment.
        name: the name of its module.
        about: what it does, for the help.
        shares: whether several processes share its work. If not, the first process that torchrun
            or accelerate started does all of it, and the others exit at once.
    """
    with robust_output(), exit_cleanly(), rank_zero_prints():
        if not shares and PART_VARIABLE in os.environ:
            raise RunError(
                f"expected {name} on one machine, found {PART_VARIABLE}="
                f"{os.environ[PART_VARIABLE]}: it is not computed in parts. Start it without."
            )
        if shares or claim_rank_zero():
            tyro.cli(main, prog=f"python -m experiments {name}", description=about)


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
    try:
        yield
    except (OSError, ValueError, RunError, FloatingPointError, MemoryError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


@contextmanager
def continue_after_part() -> Iterator[None]:
    """If this process has computed its part of a result, print that and continue."""
    try:
        yield
    except PartDone as done:
        print(done)


@contextmanager
def rank_zero_prints() -> Iterator[None]:
    """If several processes were started together, only the first one prints and warns."""
    with ExitStack() as stack:
        if os.environ.get("RANK", "0") != "0":
            stack.enter_context(redirect_stdout(StringIO()))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        yield
