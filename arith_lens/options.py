"""Keyword options of a function that travel together, as frozen value objects.

A function with many options names those that most callers need. It takes the others as
`**options: Unpack[...]`, whose types editors and type checkers read, and makes value objects of
them: `value_object(StoppingRule, options)`. The defaults are those of the value objects.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, TypeVar

Kind = TypeVar("Kind")


def value_object(kind: type[Kind], options: Mapping[str, Any]) -> Kind:
    """The value object of those options that are its fields."""
    return kind(**{name: options[name] for name in _names(kind) if name in options})


def check_choice(what: str, value: Any, known: Iterable[str]) -> None:
    """Check that a value is one of the names that an option takes.

    Args:
        what: the option, for the error, such as `a metric`.
        value: what the user gave.

    Raises:
        ValueError: another value. The message has the names, and the nearest of them.
    """
    names = [*known]
    if isinstance(value, str) and value in names:
        return
    near = get_close_matches(str(value), names, 1)
    cure = f"did you mean {near[0]!r}?" if near else "choose one of them"
    raise ValueError(f"expected {what} among {', '.join(names)}, found {value!r}; {cure}")


def refuse_unknown_options(
    function: Callable[..., Any], options: Mapping[str, Any], *kinds: type
) -> None:
    """Check that every option is a field of one of the value objects.

    Raises:
        TypeError: another name. The message has the nearest name, and all options.
    """
    known = [name for kind in kinds for name in _names(kind)]
    strange = next((name for name in options if name not in known), None)
    if strange is None:
        return
    parameters = inspect.signature(function).parameters.values()
    named = [one.name for one in parameters if one.kind is not one.VAR_KEYWORD]
    near = get_close_matches(strange, [*named, *known], 1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    raise TypeError(
        f"{function.__name__}() got an unexpected keyword argument {strange!r}. {hint}It was "
        f"expected among {', '.join(named)} and the options {', '.join(known)}; found none of "
        "this name, so correct it or leave it out"
    )


def _names(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]
