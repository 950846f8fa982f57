"""The operations: one row for each, with all that the project must know of it.

A new operation is one more row in `OPERATIONS`. A row that lacks something, or that contradicts
itself or another row, raises a ValueError when this module is imported.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from fractions import Fraction
from string import Formatter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

Value: TypeAlias = int | Fraction | None

WORD_KINDS: Mapping[str, str] = {
    "symbol": "symbol",
    "infix": "infix",
    "noun": "noun",
    "question noun": "noun",
    "exponent": "exponent",
}
"""For each slot of a pattern: the slot whose words can replace its own. The noun of a question
("sum") can be replaced by any noun ("subtraction")."""


@dataclass(frozen=True)
class Pattern:
    """One sentence that asks for a calculation; the answer comes next."""

    text: str
    """The sentence, with the fields {A}, {op} and {B}. A trailing space belongs to it."""
    slot: str
    """Which of the operation's words {op} is: a key of `WORD_KINDS`."""


# Figure 8 prints "equals to" twice; the second is read "is equal to", after the paper's Figure 9.
FIGURE_8 = (
    Pattern("{A} {op} {B} = ", "symbol"),
    Pattern("{A} {op} {B} equals to ", "infix"),
    Pattern("The {op} of {A} and {B} is ", "noun"),
    Pattern("The {op} of {A} and {B} equals to ", "noun"),
    Pattern("The {op} of {A} and {B} is equal to ", "noun"),
    Pattern("Q: How much is {A} {op} {B}? A: ", "infix"),
    Pattern("Q: What is {A} {op} {B}? A: ", "infix"),
    Pattern("Q: What is the result of {A} {op} {B}? A: ", "infix"),
    Pattern("Q: What is the {op} of {A} and {B}? A: ", "question noun"),
)
"""The paper's nine sentences (Figure 8, Appendix A)."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation: A operation B = C."""

    name: str
    """What arguments, results and files call it: `"multiplication"`."""
    symbol: str
    """How prompts write it: `"*"`."""
    sign: str
    """How figures write it: `"×"`."""
    words: Mapping[str, tuple[str, ...]]
    """For each slot but `"symbol"`: words that ask for this operation. The first one is the word of
    the operation's own prompts. All of them can replace the word of another operation: there are
    several, so that one has the right number of tokens."""
    value: Callable[[int, int], Value]
    """The exact result of A and B, which may be negative or a fraction; None if there is none."""
    exact: Callable[[int, int], bool]
    """Whether the result is a non-negative integer. Only such problems are asked."""
    counterfactuals: tuple[str, ...]
    """The operations that can replace it where the counterfactual is another operator. Their order
    is part of the seeded draw."""
    patterns: tuple[Pattern, ...] = FIGURE_8
    """The sentences that ask for it."""
    default: bool = False
    """Whether experiments and figures look at it if no operations are named."""
    paper_heads: Literal["", "key_heads", "exponent_heads"] = ""
    """Which field of `PaperModel` holds its key heads; "" if the paper does not study it."""

    def __post_init__(self) -> None:
        optional = ("default", "paper_heads")
        for field in fields(self):
            if field.name not in optional and not getattr(self, field.name):
                raise self._error(f"a value for {field.name}", "none")
        if not (self.name.isidentifier() and self.name.islower()):
            raise self._error("a name of small letters, digits and _", f"{self.name!r}")
        for pattern in self.patterns:
            self._check_pattern(pattern)
        for slot, words in self.words.items():
            if slot not in WORD_KINDS or not words:
                raise self._error(
                    f"words for some of {', '.join(WORD_KINDS)}", f"{slot}: {words!r}"
                )
        self._check_results()

    def _check_pattern(self, pattern: Pattern) -> None:
        names = sorted(name for _, name, _, _ in Formatter().parse(pattern.text) if name)
        if names != ["A", "B", "op"]:
            raise self._error("the fields {A}, {op} and {B}, once each", repr(pattern.text))
        if not (
            pattern.slot in WORD_KINDS and self.requests(pattern.slot) and self.word(pattern.slot)
        ):
            raise self._error(f"a word for the slot {pattern.slot!r}", f"none in {pattern.text!r}")

    def _check_results(self) -> None:
        """Try the operands 0 to 9: an exact result must be a non-negative integer."""
        problems = [(a, b) for a in range(10) for b in range(10) if self.exact(a, b)]
        if not problems:
            raise self._error("a problem with operands from 0 to 9 that is exact", "none")
        for a, b in problems:
            value = self.value(a, b)
            if value is None or value < 0 or value != int(value):
                raise self._error(f"an exact result of {a} and {b}", str(value))

    def _error(self, expected: str, actual: str) -> ValueError:
        return ValueError(
            f"operation {self.name!r}: expected {expected}, found {actual}; correct its row"
        )

    def word(self, slot: str) -> str:
        """The word, or the symbol, that its own prompts have in a slot; "" if there is none."""
        return self.symbol if slot == "symbol" else next(iter(self.words.get(slot, ())), "")

    def requests(self, slot: str) -> tuple[str, ...]:
        """What asks for this operation in a slot of any operation's prompt; may be empty."""
        part = WORD_KINDS[slot]
        return (self.symbol,) if part == "symbol" else self.words.get(part, ())


def operations_by_name(*rows: Operation) -> Mapping[str, Operation]:
    """The rows by their names.

    Raises:
        ValueError: Two rows share a name, symbol, sign or word, or a counterfactual is unknown.
    """
    by_name = {row.name: row for row in rows}
    for quality in ("name", "symbol", "sign"):
        values = [getattr(row, quality) for row in rows]
        if len({*values}) < len(values):
            raise ValueError(f"expected another {quality} in each row, found {values}; change one")
    for row in rows:
        unknown = [name for name in row.counterfactuals if name not in by_name or name == row.name]
        if unknown:
            raise ValueError(
                f"operation {row.name!r}: expected the names of other operations as "
                f"counterfactuals, found {', '.join(unknown)}; correct its row"
            )
        for slot in {pattern.slot for pattern in row.patterns}:
            _check_words(slot, [row, *(by_name[name] for name in row.counterfactuals)])
    return MappingProxyType(by_name)


def _check_words(slot: str, rows: list[Operation]) -> None:
    """Two operations that can replace each other in a slot must have different words there."""
    owners: dict[str, str] = {}
    for row in rows:
        for word in row.requests(slot):
            if owners.setdefault(word, row.name) != row.name:
                raise ValueError(
                    f"expected one operation for the word {word!r}, found {owners[word]} and "
                    f"{row.name}; correct one of their rows"
                )


OPERATIONS: Mapping[str, Operation] = operations_by_name(
    Operation(
        name="addition",
        symbol="+",
        sign="+",
        words={
            "infix": ("plus", "added to"),
            "noun": ("addition", "sum", "total"),
            "question noun": ("sum",),
        },
        value=lambda a, b: a + b,
        exact=lambda a, b: a + b >= 0,
        counterfactuals=("subtraction", "multiplication", "division", "exponentiation"),
        default=True,
        paper_heads="key_heads",
    ),
    Operation(
        name="subtraction",
        symbol="-",
        sign="−",
        words={
            "infix": ("minus", "less"),
            "noun": ("difference", "subtraction", "gap", "excess", "margin"),
            "question noun": ("difference",),
        },
        value=lambda a, b: a - b,
        exact=lambda a, b: a >= b,
        counterfactuals=("addition", "multiplication", "division", "exponentiation"),
        default=True,
        paper_heads="key_heads",
    ),
    Operation(
        name="multiplication",
        symbol="*",
        sign="×",
        words={
            "infix": ("times", "multiplied by"),
            "noun": ("product", "multiplication"),
            "question noun": ("product",),
        },
        value=lambda a, b: a * b,
        exact=lambda a, b: a * b >= 0,
        counterfactuals=("addition", "subtraction", "division", "exponentiation"),
        default=True,
        paper_heads="key_heads",
    ),
    Operation(
        name="division",
        symbol="/",
        sign="÷",
        words={
            "infix": ("over", "divided by"),
            "noun": ("ratio", "quotient", "division"),
            "question noun": ("ratio",),
        },
        value=lambda a, b: Fraction(a, b) if b else None,
        exact=lambda a, b: b != 0 and a % b == 0 and a // b >= 0,
        counterfactuals=("addition", "subtraction", "multiplication", "exponentiation"),
        default=True,
        paper_heads="key_heads",
    ),
    Operation(
        name="exponentiation",
        symbol="^",
        sign="^",
        words={"exponent": ("power",)},
        value=lambda a, b: Fraction(a) ** b if a or b >= 0 else None,
        exact=lambda a, b: b >= 0 and (a >= 0 or b % 2 == 0),
        counterfactuals=("addition", "subtraction", "multiplication", "division"),
        patterns=(
            Pattern("{A} {op} {B} = ", "symbol"),
            Pattern("{A} to the {op} of {B} equals ", "exponent"),
        ),
        paper_heads="exponent_heads",
    ),
    Operation(
        name="modulo",
        symbol="%",
        sign="mod",
        words={
            "infix": ("mod", "modulo"),
            "noun": ("remainder", "residue"),
            "question noun": ("remainder",),
        },
        value=lambda a, b: a % b if b else None,
        exact=lambda a, b: a >= 0 and b > 0,
        counterfactuals=("addition", "subtraction", "multiplication", "division"),
    ),
)
"""All operations, by name."""

FOUR: tuple[str, ...] = tuple(name for name, row in OPERATIONS.items() if row.default)
"""The operations that experiments and figures look at if none are named: the paper's four."""

IN_PAPER: tuple[str, ...] = tuple(name for name, row in OPERATIONS.items() if row.paper_heads)
"""The operations that the paper studies."""

if TYPE_CHECKING:
    OperationName: TypeAlias = str
else:
    OperationName: Any = Literal[tuple(OPERATIONS)]
"""The type of an operation's name. A command line lists the names that it accepts."""


def operation_of(name: str) -> Operation:
    """The row of an operation. Raises ValueError, which lists the names, if there is none."""
    if name not in OPERATIONS:
        rows = OPERATIONS.values()
        by_symbol = {symbol: row.name for row in rows for symbol in (row.symbol, row.sign)}
        near = get_close_matches(str(name).lower(), OPERATIONS, n=1)
        meant = by_symbol.get(name) or (near[0] if near else None)
        raise ValueError(
            f"expected an operation of {', '.join(OPERATIONS)}, found {name!r}; "
            + (f"did you mean {meant!r}?" if meant else "choose one")
        )
    return OPERATIONS[name]
