"""Signs that a long computation continues: a line at its start, and one at least every ten seconds.

They go to stderr, from the first of several processes. Where a count is known, the sign is a bar,
which moves while nothing is finished. Where stderr is no terminal, signs come every ten seconds in
the first minute, then every thirty.
"""

import os
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from io import StringIO
from threading import Event, Thread
from typing import Any, TypeVar

SECONDS_BETWEEN_SIGNS = 10
SECONDS_BETWEEN_LINES = 30
"""The same after the first minute, where there is no terminal."""

Item = TypeVar("Item")
_signs: list[Callable[[], Any]] = []
"""What shows that the work continues, the innermost work last; only this one is shown."""


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


@contextmanager
def working(what: str, *, visible: bool = True) -> Iterator[None]:
    """Print what is done, and again with the seconds until it is done.

    While a bar or other work inside shows signs of its own, this prints none.

    Args:
        what: such as "loading the model".
        visible: whether to print.
    """
    if not (visible and is_first()):
        yield
        return
    started = time.monotonic()
    _print(f"{what} …")
    with _repeated(lambda: _print(f"{what}: {time.monotonic() - started:.0f} s so far")):
        yield


@contextmanager
def loading(what: str, *, visible: bool = True) -> Iterator[None]:
    """`working`, in place of Transformers' bars of weights; those of downloads stay."""
    with working(what, visible=visible):
        from huggingface_hub.utils import (
            are_progress_bars_disabled,
            disable_progress_bars,
            enable_progress_bars,
        )
        from transformers.utils import logging

        had_bars, downloads_had = (
            logging.is_progress_bar_enabled(),
            not are_progress_bars_disabled(),
        )
        logging.disable_progress_bar()
        if downloads_had:
            enable_progress_bars()
        try:
            yield
        finally:
            if had_bars:
                logging.enable_progress_bar()
            if not downloads_had:
                disable_progress_bars()


@contextmanager
def bar(*, visible: bool, **options: Any) -> Iterator[Any]:
    """A progress bar of tqdm, whose time continues while nothing is finished.

    If it is written to a file or a pipe, it is a line now and then.

    Args:
        visible: whether to show it.
    """
    from tqdm.auto import tqdm

    if not (visible and is_first()):
        yield tqdm(**options, disable=True)
        return
    if not _is_seen():
        options |= dict.fromkeys(["delay", "mininterval", "maxinterval"], SECONDS_BETWEEN_LINES)
    with tqdm(**options) as shown_bar, _repeated(shown_bar.refresh):
        yield shown_bar


def counted(
    items: Sequence[Item], what: str, *, visible: bool = True
) -> Generator[Item, None, None]:
    """Each item; before it is used, a line such as `prompts: 2 of 6, addition`."""
    for number, item in enumerate(items, 1):
        with working(f"{what}: {number} of {len(items)}, {item}", visible=visible):
            yield item


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _is_seen() -> bool:
    """Whether bars are drawn in a terminal or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@contextmanager
def _repeated(sign: Callable[[], Any]) -> Iterator[None]:
    """Show a sign now and then, as long as no inner work shows its own."""
    ended, started = Event(), time.monotonic()

    def repeat() -> None:
        wait = SECONDS_BETWEEN_SIGNS
        while not ended.wait(wait):
            if _signs[-1:] == [sign]:
                sign()
            if not _is_seen() and time.monotonic() - started > 60:
                wait = SECONDS_BETWEEN_LINES

    _signs.append(sign)
    thread = Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _signs.remove(sign)
