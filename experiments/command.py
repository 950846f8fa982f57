"""Start a command: find it by its name, read and check its arguments, run what it names.

Mistakes end with a message, and only one of several processes prints.
"""

import atexit
import codecs
import gc
import os
import re
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import field, make_dataclass
from difflib import SequenceMatcher
from functools import partial, wraps
from inspect import signature
from io import StringIO, TextIOWrapper
from typing import Annotated, Any, TextIO, TypeAlias

import tyro

from arith_lens.progress import rank_zero_prints, working
from experiments.catalogue import Command, imported
from experiments.checks import check_settings, suggestion


def named_command(
    words: Sequence[str],
    commands: Mapping[str, Command],
    usage: str,
    others: Callable[[], Mapping[str, Command]],
    keys: Mapping[str, str] | None = None,
) -> Command | None:
    """The command that the first word of a command line names.

    Args:
        words: the command line.
        commands: the commands, by name, in the order of the help.
        usage: the first line of the help.
        others: reads the commands of the other package, for an error.
        keys: the command of each question, by its key.

    Returns:
        The command, or None if the user wanted help, which is printed.

    Raises:
        SystemExit: no command has this name; the message has the nearest names.
    """
    name = words[0] if words else "--help"
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
    return commands[name]


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


atexit.register(gc.freeze)  # a last collection, of what then ends, took a second

Arguments: TypeAlias = tuple[Sequence[Any], dict[str, Any]]
"""What a function is called with: by position, and by name."""


def checked_arguments(command: Command, words: Sequence[str]) -> Arguments:
    """Read and check a command line before anything is imported that computes.

    A word that is not among the choices of an option gets the nearest ones.

    Raises:
        SystemExit: the user wanted help, which is printed; or something is wrong.
    """
    messages = StringIO()
    with rank_zero_prints(), robust_output():
        try:
            with redirect_stderr(messages):
                arguments = read_arguments(command, words)
        except SystemExit as end:
            print(messages.getvalue(), end="", file=sys.stderr)
            wrong = re.search(
                r"invalid choice '([^']*)'.*?\((.*?)\)", _unframed(messages.getvalue())
            )
            if wrong and (near := suggestion(wrong[1], re.findall(r"'([^']*)'", wrong[2]))):
                print(near.removeprefix("; ").capitalize(), file=sys.stderr)
            sys.exit(end.code)
    positional, by_name = arguments
    try:
        check_settings({str(i): one for i, one in enumerate(positional)} | by_name)
    except (OSError, ValueError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    return arguments


def read_arguments(command: Command, words: Sequence[str]) -> Arguments:
    """The arguments of a command's function, from the words of a command line.

    An experiment gets its settings, and its options by name. An exhibit gets its options, then the
    settings of its experiment. Any other function gets what its signature says.

    Raises:
        SystemExit: the words have another form, or ask for help.
    """
    options: dict[str, Any] = {
        "prog": f"python -m {command.package} {command.name}",
        "description": command.about,
        "args": words,
    }
    if not command.takes:
        function = command.load()

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> dict[str, Any]:
            return signature(function).bind(*args, **kwargs).arguments

        return (), tyro.cli(call, **options)
    classes = [imported(reference) for reference in command.takes]
    if command.package == "figures" and not hasattr(classes[0], "model"):
        classes[1:] = map(_without_model, classes[1:])
    parts = [(f"part{i}", _without_prefix(kind)) for i, kind in enumerate(classes)]
    read = tyro.cli(make_dataclass("Arguments", parts), **options)
    values = [getattr(read, name) for name, _ in parts]
    if command.package == "figures":
        return values, {}
    return values[:1], vars(values[1])


def _without_prefix(kind: Any) -> Any:
    """A class whose fields are options of their own names."""
    return Annotated[kind, tyro.conf.arg(name="")]


def _without_model(settings_class: Any) -> Any:
    """The class of settings, without the option `--model`."""
    if not hasattr(settings_class, "model"):
        return settings_class
    hidden = ("model", tyro.conf.Suppress[str], field(default=settings_class.model))
    name = settings_class.__name__
    return make_dataclass(name, [hidden], bases=(settings_class,), frozen=True)


def _unframed(text: str) -> str:
    """The words in a frame of lines, as one line."""
    return " ".join(re.sub("[│|╭╮╰╯─]", " ", text).split())


def loaded(command: Command) -> Any:
    """The function or the `Experiment`. No collection looks at what the first one imports."""
    main = command.load()
    if not gc.get_freeze_count():
        gc.freeze()
    return main


def start(command: Command, words: Sequence[str]) -> None:
    """Read a command line, and run the function or the `Experiment` of the command."""
    positional, by_name = checked_arguments(command, words)
    with working("importing PyTorch and what computes"):
        main = loaded(command)
    shares = getattr(main, "shares", command.shares)
    run(partial(main, *positional, **by_name), command.name, shares=shares)


def run(main: Callable[[], Any], name: str, *, shares: bool) -> None:
    """Run what computes. Errors that a user can mend end it with a message.

    Args:
        shares: whether several processes share its work. If not, the first process that torchrun
            or accelerate started does all of it, and the others exit at once.
    """
    from arith_lens.runs import PART_VARIABLE, RunError, claim_rank_zero
    from arith_lens.tensor_parallel import VARIABLE

    with robust_output(), exit_cleanly(), rank_zero_prints():
        for variable in () if shares else (PART_VARIABLE, VARIABLE):
            if variable in os.environ:
                raise RunError(
                    f"expected {name} in one process, found {variable}={os.environ[variable]}: "
                    "processes do not share its work. Start it without."
                )
        if shares or claim_rank_zero():
            main()


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
