"""The widths that pictures are drawn for: a column or a page of a paper, a screen and a phone.

A picture of 120 pixels to the inch has text of 6 points where it has 10 pixels. All layouts ask
`page_width` how wide they may be; fewer panels stand in a row where there is less room.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TypeAlias

Width: TypeAlias = Literal["column", "page", "screen", "phone"]

PER_INCH = 120
"""Pixels of an inch of paper."""
INCHES: dict[Width, float] = {"column": 3.3, "page": 6.9, "screen": 6.9, "phone": 3.0}
"""How wide a picture is. That of a screen has the layout of a page, that of a phone the layout of a
column, and both may be higher."""
MOST_INCHES = 9.0
"""The greatest height on paper."""
SMALLEST = 10
"""The least size of text in pixels: 6 points on paper."""

_WIDTH: ContextVar[Width] = ContextVar("width", default="screen")


@contextmanager
def drawn_for(width: Width) -> Iterator[None]:
    """Pictures that are made within are laid out for this width.

    Raises:
        ValueError: there is no such width.
    """
    if width not in INCHES:
        raise ValueError(f"expected a width among {', '.join(INCHES)}, found {width!r}")
    token = _WIDTH.set(width)
    try:
        yield
    finally:
        _WIDTH.reset(token)


def page_width() -> int:
    """The pixels that a picture may be wide."""
    return round(INCHES[_WIDTH.get()] * PER_INCH)


def is_narrow() -> bool:
    """Whether pictures are drawn for a column or a phone."""
    return _WIDTH.get() in ("column", "phone")


def is_printed() -> bool:
    """Whether pictures are drawn for paper, so that their files have its size."""
    return _WIDTH.get() in ("column", "page")


def page_height() -> float:
    """The pixels that a picture may be high; infinite on a screen."""
    return MOST_INCHES * PER_INCH if is_printed() else float("inf")
