"""How a command is started: mistakes end with a message, and one process of several speaks."""

import codecs
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO, TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Generic, TextIO, TypeVar

import tyro

from arith_lens.path_patching import CertificateError, UnsupportedTrunk
from arith_lens.runs import PartDone, Run, RunError, open_run
from arith_lens.runs.shards import PART, claim_rank_zero
from experiments.exits import exit_on_user_error

RESULTS = Path("results")
"""Where runs are kept, unless the user names another root."""

Config = TypeVar("Config")


@dataclass(frozen=True)
class Experiment(Generic[Config]):
    """One question: what decides its answer, what it computes, and what it prints."""

    name: str
    """That of its module, and of the folder of its runs."""
    config: type[Config]
    """A dataclass of the settings that decide the results."""
    compute: Callable[[Run, Any, Config], None]
    """Fill the run, with the loaded model; what is stored already costs nothing."""
    plan: Callable[[Any, Config], str]
    """What it would cost, with a model that has no weights."""
    report: Callable[[Run], None]
    """Print what a finished run says."""
    figure: str = ""
    """The exhibit that draws it."""
    inputs: Callable[[Config], Iterable[Path]] = lambda config: ()
    """Files that it reads."""

    def run(self, config: Config, *, root: Path, dry_run: bool, again: bool) -> None:
        """Compute what is missing, save and print."""
        from experiments.settings import loaded_model

        model = loaded_model(config, weights=not dry_run)
        if dry_run:
            print(self.plan(model, config))
            return
        with exit_on_user_error():
            inputs = self.inputs(config)
            run = open_run(self.name, config, model=model, inputs=inputs, root=root, again=again)
        is_complete = run.complete and not again
        if is_complete:
            print(f"saved before in {run.path}, not computed again\n")
        with run:
            if not is_complete:
                self.compute(run, model, config)
        if not run.finished:
            return
        self.report(run)
        print(f"\nsaved in {run.path}")
        if self.figure:
            print(f"python -m figures {self.figure} --model {run.config['model']} draws it")

    def main(self) -> Callable[..., None]:
        """The function that the command line calls."""
        config_class: Any = self.config

        def main(
            config: Annotated[config_class, tyro.conf.arg(name="")],  # pyright: ignore
            *,
            root: Path = RESULTS,
            dry_run: bool = False,
            again: bool = False,
        ) -> None:
            """Compute, save and print.

            Args:
                config: what to compute.
                root: where runs are kept.
                dry_run: print what it would cost, and stop; no weights are loaded.
                again: compute anew what is stored; without it, what is finished is used again, and
                    what was stopped goes on.
            """
            self.run(config, root=root, dry_run=dry_run, again=again)

        return main


def command(main: Callable[..., Any], name: str, about: str | None, *, shares: bool) -> None:
    """Read the command line and run `main`.

    Args:
        main: of the experiment.
        name: of its module.
        about: the module's docstring.
        shares: whether several processes share its work. Else the first one of those that torchrun
            or accelerate started does it, and the others end at once.
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
    """What a terminal gets for characters that it cannot show: the nearest in ASCII, or `?`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_ASCII)
    return text.encode("ascii", "replace").decode("ascii"), error.end


@contextmanager
def robust_output() -> Iterator[None]:
    """Characters that the output's encoding lacks are replaced, not fatal; and where the reader of
    the output has gone (`| head`), the command ends without a message."""
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
"""What a shell says of a command that SIGPIPE ended."""


def _is_closed(stream: TextIO) -> bool:
    """Whether nobody reads a stream: what could not be written to it still cannot."""
    try:
        stream.flush()
    except BrokenPipeError:
        return True
    return False


@contextmanager
def exit_cleanly() -> Iterator[None]:
    """If the user stops the run or the disk fills up, print a message that says what was saved,
    without a traceback."""
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
def continue_after_part() -> Iterator[None]:
    """Around one result of several: where this process computes a part of it, go on to the next."""
    try:
        yield
    except PartDone as done:
        print(done)


@contextmanager
def rank_zero_prints() -> Iterator[None]:
    """Of several processes started together, the first one alone prints and warns."""
    with ExitStack() as stack:
        if os.environ.get("RANK", "0") != "0":
            stack.enter_context(redirect_stdout(StringIO()))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        yield
