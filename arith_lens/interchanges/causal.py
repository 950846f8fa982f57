"""Causal models: what a calculation would do if one of its intermediate values were another.

A causal model has variables, and computes each of them from the operands and from the variables
before it (Geiger et al., 2021). To set a variable is to compute everything after it from the new
value. What a language model answers under an interchange is compared with that.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from arith_lens.operations import OPERATIONS
from arith_lens.problems import Problem

ANSWER = "answer"
PLACES = ("ones", "tens", "hundreds")
"""The places of a number, from the right."""


@dataclass(frozen=True)
class CausalModel:
    """A hypothesis on how an answer is calculated."""

    operation: str
    name: str
    variables: tuple[str, ...]
    """The intermediate values, in the order in which they are computed."""
    places: Mapping[str, str | None]
    """For each variable, the place of the digits that decide it; None: the whole numbers."""
    equations: Callable[[int, int, Mapping[str, int]], dict[str, int]] = field(repr=False)

    def run(self, a: int, b: int, set: Mapping[str, int] | None = None) -> dict[str, int]:
        """All variables and the answer of one problem.

        Args:
            set: variables that get a value, whatever the operands are.

        Returns:
            The value of each variable, and of `answer`, which may be negative under `set`.

        Raises:
            KeyError: the model does not have a variable that `set` names.
            ValueError: an operand is negative, or has more digits than the model has places.
        """
        fixed = dict(set or {})
        self.check(*fixed)
        if min(a, b) < 0 or max(a, b) >= 10 ** len(PLACES):
            raise ValueError(
                f"expected operands from 0 to {10 ** len(PLACES) - 1}, found {a} and {b}; the "
                f"model has the places {', '.join(PLACES)}"
            )
        return self.equations(a, b, fixed)

    def check(self, *variables: str) -> None:
        """Raise KeyError if this model does not have a variable of this name."""
        for variable in variables:
            if variable not in self.variables:
                raise KeyError(
                    f"expected a variable of {self} among {', '.join(self.variables)}, found "
                    f"{variable!r}; choose one of them"
                )

    def __str__(self) -> str:
        return f"{self.operation}, {self.name}"


def causal_model(operation: str = "addition", name: str | None = None) -> CausalModel:
    """A causal model of addition or of subtraction (not in the paper).

    - `"carry"`, in addition: digits are added place by place; the variables are `ones_carry` and
      `tens_carry`, 0 or 1. In subtraction it is `"borrow"`, with `ones_borrow` and `tens_borrow`.
    - `"no_carry"` (`"no_borrow"`): the same without passing anything on. The variables are the
      digits `ones` and `tens`. It answers wrongly wherever there is a carry.
    - `"magnitude"`: the answer is one number, the variable `sum` (`difference`).

    Args:
        operation: `addition` or `subtraction`.
        name: one of the names above. None: `carry`, or `borrow` in subtraction.

    Raises:
        ValueError: another operation or name.
    """
    known = [key for key in CAUSAL_MODELS if key[0] == operation]
    key = (operation, name) if name is not None else (known[0] if known else (operation, ""))
    if key not in CAUSAL_MODELS:
        listed = ", ".join(" ".join(one) for one in known or CAUSAL_MODELS)
        raise ValueError(
            f"expected a causal model among {listed}, found {operation!r} {name!r}; choose one"
        )
    return CAUSAL_MODELS[key]


def _digits(number: int) -> list[int]:
    return [number // 10**place % 10 for place in range(len(PLACES))]


def _by_places(a: int, b: int, fixed: Mapping[str, int], sign: int, name: str) -> dict[str, int]:
    """Place by place, with a carry of 1 to the next place where the digits leave 0 to 9."""
    values: dict[str, int] = {}
    answer, carry = 0, 0
    for place, (x, y) in enumerate(zip(_digits(a), _digits(b), strict=True)):
        total = x + sign * (y + carry)
        variable = f"{PLACES[place]}_{name}"
        carry = int(not 0 <= total <= 9)
        if place < len(PLACES) - 1:
            carry = values[variable] = fixed.get(variable, carry)
            answer += total % 10 * 10**place
        else:
            answer += total * 10**place
    return {**values, ANSWER: answer}


def _carried(a: int, b: int, fixed: Mapping[str, int]) -> dict[str, int]:
    return _by_places(a, b, fixed, 1, "carry")


def _borrowed(a: int, b: int, fixed: Mapping[str, int]) -> dict[str, int]:
    return _by_places(a, b, fixed, -1, "borrow")


def _alone(a: int, b: int, fixed: Mapping[str, int], sign: int) -> dict[str, int]:
    """The digits of each place, without what the place before passes on."""
    digits = [(x + sign * y) % 10 for x, y in zip(_digits(a), _digits(b), strict=True)]
    values = {place: fixed.get(place, digit) for place, digit in zip(PLACES, digits, strict=True)}
    answer = sum(values[place] * 10**power for power, place in enumerate(PLACES))
    return {**values, ANSWER: answer}


def _added(a: int, b: int, fixed: Mapping[str, int]) -> dict[str, int]:
    return _alone(a, b, fixed, 1)


def _subtracted(a: int, b: int, fixed: Mapping[str, int]) -> dict[str, int]:
    return _alone(a, b, fixed, -1)


def _sum(a: int, b: int, fixed: Mapping[str, int]) -> dict[str, int]:
    total = fixed.get("sum", a + b)
    return {"sum": total, ANSWER: total}


def _difference(a: int, b: int, fixed: Mapping[str, int]) -> dict[str, int]:
    difference = fixed.get("difference", a - b)
    return {"difference": difference, ANSWER: difference}


def _model(
    operation: str,
    name: str,
    equations: Callable[[int, int, Mapping[str, int]], dict[str, int]],
    places: Mapping[str, str | None],
) -> CausalModel:
    assert operation in OPERATIONS
    return CausalModel(operation, name, tuple(places), places, equations)


CAUSAL_MODELS: Mapping[tuple[str, str], CausalModel] = {
    (model.operation, model.name): model
    for model in (
        _model("addition", "carry", _carried, {"ones_carry": "ones", "tens_carry": "tens"}),
        _model("addition", "no_carry", _added, {place: place for place in PLACES}),
        _model("addition", "magnitude", _sum, {"sum": None}),
        _model("subtraction", "borrow", _borrowed, {"ones_borrow": "ones", "tens_borrow": "tens"}),
        _model("subtraction", "no_borrow", _subtracted, {place: place for place in PLACES}),
        _model("subtraction", "magnitude", _difference, {"difference": None}),
    )
}
"""By operation and name. The first of an operation is its default."""


def problem_values(model: CausalModel, problem: Problem) -> dict[str, int]:
    """The variables and the answer of a problem."""
    return model.run(problem.a, problem.b)
