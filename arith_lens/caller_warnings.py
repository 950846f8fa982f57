"""Warnings that point to the line of the user's code, and not into this package."""

import sys
import warnings

_BETWEEN = frozenset({"arith_lens", "beartype", "contextlib", "functools", "jaxtyping", "torch"})
"""The package, and what wraps its functions."""


def warn_caller(message: str) -> None:
    """Warn at the innermost line outside this package that called it.

    Args:
        message: what was expected, what was found, and what to do.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _package(frame.f_globals.get("__name__")) in _BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def _package(module: object) -> str:
    return str(module).partition(".")[0]
