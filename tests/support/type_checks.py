"""Types of every call of the package are checked while tests run, and shapes where there are any.

`--jaxtyping-packages` decorates each function with jaxtyping's check, which binds the arguments and
checks them twice. Here beartype checks them once. Around the call is a scope of jaxtyping, in which
a dimension has one size, if the signature has shapes.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any, get_args, get_type_hints

import jaxtyping

check_shapes: Any = jaxtyping.jaxtyped
SCOPE: Any = jaxtyping.jaxtyped("context")


def has_shape(annotation: Any) -> bool:
    """Whether a shape is anywhere in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(map(has_shape, get_args(annotation)))


def check_types(function: Any, typechecker: Callable[..., Any]) -> Any:
    """The function or dataclass with its calls checked."""
    if isinstance(function, type):
        if dataclasses.is_dataclass(function):
            function.__init__ = check_types(function.__init__, typechecker)
        return function
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(check_types(function.__func__, typechecker))
    if isinstance(function, property):
        return property(check_types(function.fget, typechecker), doc=function.__doc__)
    if "<locals>" in function.__qualname__ and not inspect.isgeneratorfunction(function):
        return _check_inner(function, typechecker)
    return _check_function(function, typechecker)


def _check_function(function: Any, typechecker: Callable[..., Any]) -> Any:
    """The function with a check that is written when it is called first.

    A process calls some of the functions that it imports, and beartype takes milliseconds for each.
    """

    @functools.cache
    def check() -> Any:
        hints = _hints(function)
        if not any(map(has_shape, hints.values())):
            return typechecker(_annotated(function, hints))
        if inspect.isgeneratorfunction(function):  # its body runs when the scope is left
            return check_shapes(function, typechecker=typechecker)
        return _in_scope(typechecker(_annotated(function, hints)))

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        return check()(*args, **kwargs)

    return checked


def _hints(function: Any) -> dict[str, Any]:
    """The annotations, those in quotes read; `Any` for what only type checkers import."""
    try:
        return get_type_hints(function, include_extras=True)
    except NameError:
        return {
            name: _hint(annotation, function.__globals__)
            for name, annotation in function.__annotations__.items()
        }


def _hint(annotation: Any, names: dict[str, Any]) -> Any:
    def one() -> None: ...

    one.__annotations__ = {"hint": annotation}
    try:
        return get_type_hints(one, names, include_extras=True)["hint"]
    except NameError:
        return Any


def _annotated(function: Any, hints: dict[str, Any]) -> FunctionType:
    """The same function with other annotations."""
    same = _copy(function, function.__closure__)
    same.__annotations__ = hints
    if hasattr(function, "__wrapped__"):
        vars(same)["__wrapped__"] = _annotated(function.__wrapped__, hints)
    return same


def _in_scope(function: Any) -> Any:
    """The function, in each of whose calls a dimension has one size."""

    def scoped(*args: Any, **kwargs: Any) -> Any:
        with SCOPE:
            return function(*args, **kwargs)

    return scoped


_inner_checks: dict[CodeType, tuple[Callable[..., Any], list[Any]]] = {}
"""By the code of an inner function: its check, and the functions of that code in progress."""


def _check_inner(function: Any, typechecker: Callable[..., Any]) -> Any:
    """An inner function with its calls checked.

    Python makes an inner function anew in each call of the outer one, and a check takes a
    thousand times as long to write. So the functions of one code share one check.
    """
    code = function.__code__
    if code not in _inner_checks:
        calls: list[Any] = []

        @functools.wraps(_without_closure(function))
        def newest(*args: Any, **kwargs: Any) -> Any:
            return calls[-1](*args, **kwargs)

        _inner_checks[code] = _check_function(newest, typechecker), calls
    check, calls = _inner_checks[code]

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        calls.append(function)
        try:
            return check(*args, **kwargs)
        finally:
            calls.pop()

    return checked


def _without_closure(function: Any) -> FunctionType:
    """A function of the same code and signature, which keeps no object of the outer call alive."""
    return _copy(function, tuple(CellType() for _ in function.__closure__ or ()))


def _copy(function: Any, closure: tuple[CellType, ...] | None) -> FunctionType:
    """A function of the same code and signature, with these variables of the outer call."""
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, closure
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__, copy.__qualname__ = function.__annotations__, function.__qualname__
    copy.__module__ = function.__module__
    return copy


def install() -> None:
    """Let the decorator that `--jaxtyping-packages` writes above each function be this one."""

    def jaxtyped(*, typechecker: Callable[..., Any]) -> Callable[[Any], Any]:
        return lambda function: check_types(function, typechecker)

    jaxtyping.jaxtyped = jaxtyped
