"""Types of every call of the package are checked while tests run, and shapes where there are any.

`--jaxtyping-packages` decorates each function with jaxtyping's check, which binds the arguments and
checks them twice. A signature without a shape needs beartype alone, a fraction of that time.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any, get_args

import jaxtyping

check_shapes: Any = jaxtyping.jaxtyped


def has_shape(annotation: Any, names: set[str]) -> bool:
    """Whether a shape is anywhere in an annotation; one in quotes may be of other than `names`."""
    if isinstance(annotation, str):
        return not {*re.findall(r"\w+", annotation)} <= names
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(has_shape(part, names) for part in get_args(annotation))


def check_types(function: Any, typechecker: Callable[..., Any]) -> Any:
    """The function or dataclass with its calls checked."""
    if isinstance(function, type):
        if dataclasses.is_dataclass(function):
            function.__init__ = check_types(function.__init__, typechecker)
        return function
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(check_types(function.__func__, typechecker))
    if isinstance(function, property) or _has_shapes(function):
        return check_shapes(function, typechecker=typechecker)
    return typechecker(function)


def _has_shapes(function: Any) -> bool:
    own_class = function.__qualname__.rpartition(".")[0]
    annotations = function.__annotations__.values()
    return any(has_shape(annotation, {own_class, "None"}) for annotation in annotations)


def install() -> None:
    """Let the decorator that `--jaxtyping-packages` writes above each function be this one."""

    def jaxtyped(*, typechecker: Callable[..., Any]) -> Callable[[Any], Any]:
        return lambda function: check_types(function, typechecker)

    jaxtyping.jaxtyped = jaxtyped
