"""Imports without garbage collections, which took a quarter of the time of loading a model.

Libraries make some hundred thousand objects that stay, and each collection looks at all of them.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 100
"""Modules whose objects are worth a move to the oldest generation."""


@contextmanager
def without_collections() -> Iterator[None]:
    """Pause Python's garbage collector; where the user has switched it off, it stays off.

    After many imports all objects are in the oldest generation, which is collected most rarely.
    """
    collects, n_modules = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > n_modules + MANY and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if collects:
            gc.enable()
