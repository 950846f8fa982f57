"""How a mistake of the user ends a command."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from arith_lens.runs import RunError


@contextmanager
def exit_on_user_error() -> Iterator[None]:
    """Around what a user names: a mistake ends with its message alone, without a traceback."""
    try:
        yield
    except (OSError, ValueError, RunError, FloatingPointError, MemoryError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
