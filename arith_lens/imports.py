"""Imports without garbage collections, which took a quarter of the time of loading a model.

Libraries make some hundred thousand objects that stay, and each collection looks at all of them.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Pause Python's garbage collector; where the user has switched it off, it stays off."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
