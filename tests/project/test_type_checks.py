"""While tests run, calls with other types or shapes than the signature's are refused."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from beartype import beartype
from jaxtyping import Float
from support.type_checks import check_types
from torch import Tensor

if TYPE_CHECKING:
    from pandas import DataFrame


def added(a: Float[Tensor, "row column"], b: "Float[Tensor, ' column']") -> Float[Tensor, " row"]:
    return (a + b).sum(1) if a.max() < 9 else a


def yielded(a: Float[Tensor, " row"], b: Float[Tensor, " row"]) -> Iterator[int]:
    yield len(a + b)


def counted(n: int, table: "DataFrame | None" = None) -> int:
    return n


def inner(sizes: list[int]) -> list[Any]:
    """The sums of vectors of these sizes, each by a function of its own."""

    def made(size: int) -> Callable[..., Tensor]:
        def total(a: Float[Tensor, " row"], b: Float[Tensor, " row"]) -> Float[Tensor, ""]:
            return a[:size].sum() + b[:size].sum()

        return check_types(total, beartype)

    ones = torch.ones(4)
    return [float(made(size)(ones, ones)) for size in sizes] + [made(1)]


class Rows:
    def __init__(self, rows: Any) -> None:
        self.rows = rows

    @property
    def first(self) -> Float[Tensor, " column"]:
        return self.rows[0]


@dataclass
class Two:
    a: Float[Tensor, " row"]
    b: Float[Tensor, " row"]


def refused(call: Callable[..., Any], *arguments: Any) -> bool:
    try:
        return call(*arguments) is None
    except Exception as error:
        return "violates type hint" in str(error) or "Type-check error" in str(error)


@pytest.mark.parametrize(
    ("shapes", "right"),
    [(((2, 3), (3,)), True), (((2, 3), (2,)), False), (((2,), (2,)), False)],
)
def test_a_dimension_has_one_size_in_a_call(shapes: Any, right: bool) -> None:
    call = check_types(added, beartype)
    assert refused(call, *map(torch.zeros, shapes)) is not right


def test_what_is_returned_is_checked_and_each_call_has_its_own_sizes() -> None:
    call = check_types(added, beartype)
    assert call(torch.zeros(2, 3), torch.zeros(3)).shape == (2,)
    assert call(torch.zeros(4, 5), torch.zeros(5)).shape == (4,)
    assert refused(call, torch.full((2, 3), 10.0), torch.zeros(3))


def test_dataclasses_properties_generators_and_inner_functions_are_checked() -> None:
    def two(a: Tensor, b: Tensor) -> Any:
        return checked(a, b)

    checked = check_types(Two, beartype)
    assert not refused(two, torch.zeros(2), torch.zeros(2))
    assert refused(two, torch.zeros(2), torch.zeros(3))
    first: Any = check_types(Rows.first, beartype)
    assert refused(lambda: first.fget(Rows([torch.zeros(2, 2)])))
    assert not refused(lambda: first.fget(Rows(torch.zeros(2, 2))))
    numbers = check_types(yielded, beartype)
    assert [*numbers(torch.zeros(2), torch.zeros(2))] == [2]
    assert refused(numbers, torch.zeros(2), torch.zeros(3))
    *sums, last = inner([1, 2, 3])
    assert sums == [2.0, 4.0, 6.0] and refused(last, torch.zeros(2), torch.zeros(3))


def test_what_only_type_checkers_import_is_any_and_the_rest_is_checked() -> None:
    call = check_types(counted, beartype)
    assert call(3, "a table") == 3 and refused(call, "3")
