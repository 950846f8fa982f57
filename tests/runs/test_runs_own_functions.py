"""Functions of the user in a run: each is known by its code and by all that it reads."""

import functools
import importlib
import logging
import random
import types
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import arith_lens as al
from arith_lens.code_digest import UnknownCode, digest_of_code
from arith_lens.effects import Effects
from arith_lens.model import HookedModel
from arith_lens.pairs import PromptPairs
from arith_lens.runs import RunError, open_run


@pytest.fixture
def pairs(reference: torch.Tensor, counterfactual: torch.Tensor) -> PromptPairs:
    return PromptPairs.from_tokens(reference, counterfactual, torch.arange(6) + 5)


class Halved:
    """A replacement that is an object."""

    def __init__(self, function: Callable[..., Any], share: float) -> None:
        functools.update_wrapper(self, function)
        self.function, self.share = function, share

    def __call__(self, *given: Any, **options: Any) -> Any:
        return self.function(*given, **options) * self.share


def of_values(value: float) -> Effects:
    return Effects(torch.full((2, 3), value), axes=("layer",), metric="logit")


FACTOR = 2.0
LOG = logging.getLogger(__name__)


def _scaled(model: Any, pairs: Any, **settings: Any) -> Effects:
    LOG.debug("scaled by %s", FACTOR)
    return of_values(FACTOR * settings.get("by", 1.0))


def computed(run: Any, model: Any, pairs: Any, method: Any, **settings: Any) -> float:
    return float(run.compute("mine", method, model, pairs, **settings).per_pair[0, 0])


def test_two_functions_of_one_name_have_their_own_results(
    llama: HookedModel, pairs: PromptPairs, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def holding(value: float, default: float = 0.0) -> Callable[..., Effects]:
        def method(model: Any, pairs: Any, plus: float = default) -> Effects:
            return of_values(value + plus)

        return method

    with open_run("mine", {}, root=tmp_path) as run:
        inline = [lambda m, p: of_values(1.0), lambda m, p: of_values(2.0)]
        assert [computed(run, llama, pairs, method) for method in inline] == [1.0, 2.0]
        held = [holding(3.0), holding(4.0), holding(3.0, 2.0)]
        assert [computed(run, llama, pairs, method) for method in held] == [3.0, 4.0, 5.0]
        partials = [functools.partial(_scaled, by=by) for by in (1.0, 3.0)]
        assert [computed(run, llama, pairs, method) for method in partials] == [2.0, 6.0]
        assert computed(run, llama, pairs, _scaled) == 2.0
        monkeypatch.setitem(globals(), "FACTOR", 5.0)  # a global value, set anew in a notebook
        assert computed(run, llama, pairs, _scaled) == 5.0
        monkeypatch.setitem(globals(), "of_values", lambda value: calls.append(value) or OTHER)
        assert computed(run, llama, pairs, lambda m, p: of_values(1.0)) == 9.0


OTHER = of_values(9.0)


def _by_attribute(value: float) -> float:
    return value * _by_attribute.factor  # type: ignore[attr-defined]


def _by_keyword(value: float, *, factor: float = 1.0) -> float:
    return value * factor


def _by_class_body(value: float) -> float:
    class Factors:
        factor = FACTOR

    return value * Factors.factor


@dataclass
class Record:
    """Its factor is no field."""

    value: float = 1.0

    def __post_init__(self) -> None:
        self.factor = 1.0

    def scaled(self, value: float) -> float:
        return value * self.factor


class Pair(NamedTuple):
    value: float = 1.0

    def scaled(self, value: float) -> float:
        return value * 2


class Choice(Enum):
    ONE = 1

    def scaled(self, value: float) -> float:
        return value * 2


@functools.singledispatch
def _by_kind(value: Any) -> Any:
    return value


class Table(dict[str, float]):
    factor = 1.0


class Double:
    def scaled(self, value: float) -> float:
        return value * 2


class Triple(Double):
    def scaled(self, value: float) -> float:
        return value * 3


class Heir(Double):
    """Its base may change, and what setting its factor does."""

    factor = property(lambda self: 1.0, lambda self, value: None)


settings_of_ones_own = types.ModuleType("settings_of_ones_own")
RECORD, TABLE, PLAIN, PAIR = Record(), Table(), {"factor": 1.0}, Pair()
GET = PLAIN.get
SCALED = functools.partial(_by_keyword)
ARRAY, TENSOR, CHOSEN = np.ones(2), torch.ones(2), {1.0}

CHANGES: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "an attribute of a function": (
        _by_attribute,
        lambda: setattr(_by_attribute, "factor", 2.0),
    ),
    "an attribute of a module": (
        lambda value: value * settings_of_ones_own.factor,
        lambda: setattr(settings_of_ones_own, "factor", 2.0),
    ),
    "an attribute of a module that is handed on": (
        lambda value: value * getattr(settings_of_ones_own, "fac" + "tor"),
        lambda: setattr(settings_of_ones_own, "factor", 3.0),
    ),
    "what a bound method of a dictionary holds": (
        lambda value: value * GET("factor"),
        lambda: PLAIN.update(factor=2.0),
    ),
    "a number in an array": (
        lambda value: value * ARRAY[1],
        lambda: ARRAY.__setitem__(1, 2.0),
    ),
    "a number in a tensor": (
        lambda value: value * TENSOR[1],
        lambda: TENSOR.__setitem__(1, 2.0),
    ),
    "a member of a set": (
        lambda value: value in CHOSEN,
        lambda: (CHOSEN.clear(), CHOSEN.add(2.0)),
    ),
    "the base of a class": (
        lambda value: Heir().scaled(value),
        lambda: setattr(Heir, "__bases__", (Triple,)),
    ),
    "what a property does when it is set": (
        lambda value: setattr(Heir(), "factor", value),
        lambda: setattr(Heir, "factor", Heir.factor.setter(lambda self, value: vars(self).clear())),
    ),
    "an attribute that is no field": (RECORD.scaled, lambda: setattr(RECORD, "factor", 2.0)),
    "an attribute of a dictionary": (
        lambda value: value * TABLE.factor,
        lambda: setattr(TABLE, "factor", 2.0),
    ),
    "an attribute of a partial": (
        lambda value: SCALED(value, factor=vars(SCALED).get("factor", 1.0)),
        lambda: setattr(SCALED, "factor", 2.0),
    ),
    "a method of a named tuple": (
        PAIR.scaled,
        lambda: setattr(Pair, "scaled", lambda self, value: value),
    ),
    "a method of an enumeration": (
        lambda value: Choice.ONE.scaled(value),
        lambda: setattr(Choice, "scaled", lambda self, value: value),
    ),
    "a registered function": (
        _by_kind,
        lambda: _by_kind.register(float, lambda value: 2 * value),
    ),
    "a keyword's default": (
        _by_keyword,
        lambda: (_by_keyword.__kwdefaults__ or {}).update(factor=2.0),
    ),
    "a default": (
        _by_default := lambda value, factor=1.0: value * factor,
        lambda: setattr(_by_default, "__defaults__", (2.0,)),
    ),
    "a global value in the body of a class": (
        _by_class_body,
        lambda: globals().update(FACTOR=2.5),
    ),
    "an object that took a name of torch": (
        _wrapper := Halved(torch.softmax, 0.5),
        lambda: setattr(_wrapper, "share", 0.25),
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_function_of_ones_own_is_another_after_a_change_of_what_it_reads(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "FACTOR", FACTOR)  # the cases change what this file has
    monkeypatch.setattr(_by_attribute, "factor", 1.0, raising=False)
    monkeypatch.setattr(settings_of_ones_own, "factor", 1.0, raising=False)
    function, change = CHANGES[case]
    before = digest_of_code(function)
    assert digest_of_code(function) == before, "an unchanged one is recognised"
    change()
    assert digest_of_code(function) != before


def test_what_a_library_wraps_around_a_function_of_ones_own_counts() -> None:
    wrapped = [torch.vmap(_by_keyword, in_dims=(dim,)) for dim in (0, 1, 0)]
    first, second, third = map(digest_of_code, wrapped)
    assert first == third != second
    plain = torch.no_grad()(_by_keyword)
    with torch.no_grad():
        inside = digest_of_code(plain)
    assert digest_of_code(plain) == inside


def test_names_and_kinds_of_arguments_count() -> None:
    functions = [lambda a, b: a - b, lambda b, a: b - a, lambda a, *, b: a - b]
    assert len({digest_of_code(function) for function in functions}) == 3


def _maker(rows: list[int], shift: int) -> Callable[[], list[int]]:
    def inner() -> list[int]:
        return [row + shift for row in rows]

    return inner


@pytest.mark.parametrize("name", ["rows", "shift"])
def test_an_argument_that_an_inner_function_reads_is_no_global_of_that_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest_of_code(_maker)
    monkeypatch.setitem(globals(), name, [3])
    assert digest_of_code(_maker) == before
    monkeypatch.setitem(globals(), "_maker_rows", [3])
    read = types.FunctionType(compile("_maker_rows", "own", "eval"), globals())
    first = digest_of_code(read)
    monkeypatch.setitem(globals(), "_maker_rows", [4])
    assert digest_of_code(read) != first, "a global that is read counts"


def test_a_value_in_thousands_of_levels_is_refused() -> None:
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(UnknownCode, match="too many"):
        digest_of_code(lambda: value)


def test_a_stored_result_of_ones_own_function_is_read_again(
    llama: HookedModel, pairs: PromptPairs, tmp_path: Any
) -> None:
    def counting(path: Path) -> Callable[..., Effects]:
        def method(model: Any, pairs: Any) -> Effects:
            with path.open("a") as file:
                file.write("x")
            return of_values(1.0)

        return method

    with open_run("mine", {}, root=tmp_path) as run:
        for _ in range(2):  # another object of the same code
            computed(run, llama, pairs, counting(tmp_path / "calls"))
    assert (tmp_path / "calls").read_text() == "x"


class Drawing:
    """A method's object with a state that is no attribute."""

    __slots__ = ("random",)

    def drawn(self, model: Any, pairs: Any) -> Effects:
        return of_values(1.0)


class Scaling:
    """A method's object with all its state in attributes."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, model: Any, pairs: Any) -> Effects:
        return of_values(self.factor)


def test_objects_are_told_apart_by_their_attributes(
    llama: HookedModel, pairs: PromptPairs, tmp_path: Any
) -> None:
    with open_run("mine", {}, root=tmp_path) as run:
        found = [computed(run, llama, pairs, Scaling(factor)) for factor in (1.0, 2.0, 1.0)]
        found += [computed(run, llama, pairs, Scaling(3.0).__call__)]
    assert found == [1.0, 2.0, 1.0, 3.0]


def test_a_function_that_nobody_could_recognise_is_refused(
    llama: HookedModel, pairs: PromptPairs, tmp_path: Any
) -> None:
    numbers, drawn = iter([1.0, 2.0]), random.Random(0)

    with open_run("mine", {}, root=tmp_path) as run:
        with pytest.raises(RunError, match=r"refers to something .*list_iterator.*as a setting"):
            computed(run, llama, pairs, lambda m, p: of_values(next(numbers)))
        with pytest.raises(RunError, match=r"of random\.Random"):
            computed(run, llama, pairs, lambda m, p: of_values(drawn.random()))
        with pytest.raises(RunError, match=r"of .*Drawing.*run\.save"):
            computed(run, llama, pairs, Drawing().drawn)
    assert run.names == ()


def test_a_method_of_the_package_is_known_by_its_name(llama: HookedModel) -> None:
    from arith_lens.runs.manifest import method_identity

    assert method_identity(al.mlp_probe) == {"method": "arith_lens.probes.reading.mlp_probe"}


def test_a_module_of_ones_own_is_known_by_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imported where a function is defined, or while it runs."""
    monkeypatch.syspath_prepend(tmp_path)
    helper = tmp_path / "own_helper_of_a_metric.py"
    helper.write_text("def score(x):\n    return x\n")
    module = importlib.import_module("own_helper_of_a_metric")

    def outside(x: float) -> float:
        return module.score(x)

    def inside(x: float) -> float:
        import own_helper_of_a_metric as known  # pyright: ignore[reportMissingImports]

        return known.score(x)

    before = digest_of_code(outside), digest_of_code(inside)
    assert before == (digest_of_code(outside), digest_of_code(inside))
    helper.write_text("def score(x):\n    return 1000 * x\n")
    after = digest_of_code(outside), digest_of_code(inside)
    assert before[0] != after[0] and before[1] != after[1]
