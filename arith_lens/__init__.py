"""Find, check, explain and improve the parts of a language model that do arithmetic.

After "Interpreting and Improving Large Language Models in Arithmetic Calculation"
(Zhang et al., ICML 2024, arXiv 2409.01659). The public names are in `__init__.pyi`. Importing
this package imports no other module of it: each name is imported on its first use.

Idle OpenMP threads sleep instead of spinning: a spinning thread takes the processor from the other
threads. PyTorch reads the policy when it is imported, so it is set here. A value of the user's own
wins.
"""

import os
from difflib import get_close_matches
from typing import Any

import lazy_loader

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_public_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """A public name; an error has the nearest one."""
    try:
        return _public_name(name)
    except AttributeError as error:
        if name in __all__:  # from the import of its module
            raise
        near = get_close_matches(name, __all__, 1)
        hint = f"; did you mean {near[0]!r}?" if near else "; docs/api.md lists the public names"
        raise AttributeError(f"module 'arith_lens' has no attribute {name!r}{hint}") from error
