"""Start a command: mistakes end with a message, and only one of several processes prints."""

import codecs
import os
import select
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from io import StringIO, TextIOWrapper
from typing import Any, TextIO

import tyro

from arith_lens.path_patching import CertificateError, UnsupportedTrunk
from arith_lens.runs import PartDone, RunError
from arith_lens.runs.shards import PART, claim_rank_zero


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
        if not shares and PART in os.environ:
            raise RunError(
                f"expected {name} on one machine, found {PART}={os.environ[PART]}: it is not "
                "computed in parts. Start it without."
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
