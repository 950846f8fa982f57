"""Which number each prompt holds, and at which token it is read."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.interchanges import Site, check_sites
from arith_lens.interchanges.runs import role_columns
from arith_lens.model import HookedLike, record
from arith_lens.operations import OPERATIONS
from arith_lens.pairs import PromptPairs, Role, check_kinds, check_pairs

DIGITS: Mapping[str, tuple[int, int]] = {
    "a_ones": (0, 1),
    "a_tens": (0, 10),
    "b_ones": (1, 1),
    "b_tens": (1, 10),
}
"""Values that are one digit of an operand: which operand, and the digit's size."""
VALUES = ("a", "b", "answer", *DIGITS)


def check_value(model: HookedLike, pairs: Any, value: str) -> None:
    """Check that the pairs have the value.

    Raises:
        TypeError: no PromptPairs.
        ValueError: an unknown value, or pairs without operands.
    """
    check_kinds(model, pairs)
    check_pairs(model, pairs)
    if value not in VALUES:
        listed = ", ".join(map(repr, VALUES))
        raise ValueError(f"expected value among {listed}, found {value!r}; choose one")
    if pairs.operands is None or pairs.operation is None:
        raise ValueError(
            "expected pairs that know their operands and operation, found pairs from bare tokens "
            "or of own prompts; take sample_pairs, or give each row template, a and b "
            "(PromptPairs.from_rows)"
        )


def values_of(pairs: PromptPairs, value: str) -> Int[Tensor, " pair"]:
    """The value in each pair's reference prompt. The answer is C, not its first token."""
    operands = pairs.operands
    assert operands is not None
    if value == "answer":
        return torch.tensor([_result(*problem) for problem in _problems(pairs)])
    if value in DIGITS:
        which, size = DIGITS[value]
        return operands[:, which] // size % 10
    return operands[:, "ab".index(value)].clone()


def rests_of(pairs: PromptPairs, value: str) -> list[tuple[Any, ...]]:
    """All that two problems have in common if only the value differs."""
    templates = pairs.template or ("",) * len(pairs)
    lengths = pairs.lengths.tolist()
    rows = []
    for (operation, a, b), template, n_tokens in zip(
        _problems(pairs), templates, lengths, strict=True
    ):
        other: tuple[int, ...] = () if value == "answer" else (b if value[0] == "a" else a,)
        if value in DIGITS:
            which, size = DIGITS[value]
            number = (a, b)[which]
            other = (*other, number - number // size % 10 * size)
        rows.append((template, n_tokens, "" if value == "answer" else operation, *other))
    return rows


def with_value(operation: str, a: int, b: int, value: str, number: int) -> int | None:
    """The result of the problem if the value were another number; None if it has none."""
    if value == "answer":
        return number
    operands = [a, b]
    if value in DIGITS:
        which, size = DIGITS[value]
        operands[which] += (number - operands[which] // size % 10) * size
    else:
        operands["ab".index(value)] = number
    exact = OPERATIONS[operation].exact(*operands)
    return _result(operation, *operands) if exact else None


def answer_tokens(pairs: PromptPairs) -> dict[tuple[Any, ...], int]:
    """The token of each result, by template, number of tokens and result."""
    templates = pairs.template or ("",) * len(pairs)
    keys = zip(templates, pairs.lengths.tolist(), values_of(pairs, "answer").tolist(), strict=True)
    return dict(zip(keys, pairs.answer.tolist(), strict=True))


def _result(operation: str, a: int, b: int) -> int:
    result = OPERATIONS[operation].value(a, b)
    assert result is not None
    return int(result)


def _problems(pairs: PromptPairs) -> list[tuple[str, int, int]]:
    assert pairs.operation is not None and pairs.operands is not None
    rows = zip(pairs.operation, pairs.operands.tolist(), strict=True)
    return [(operation, a, b) for operation, (a, b) in rows]


def site_of(model: HookedLike, pairs: PromptPairs, layer: int, at: Role | str, value: str) -> Site:
    """The place in the stream, one token.

    Raises:
        IndexError: the model does not have it.
        ValueError: the number is several tokens there, or one token holds several digits.
    """
    if not isinstance(layer, int) or isinstance(layer, bool):
        raise ValueError(f"expected a layer as a whole number, found {layer!r}; count from 0")
    site = Site(layer, at)
    if not site.is_end:
        site = Site(layer, at, token_of(pairs, site.role, value))
    check_sites([site], int(model.cfg.n_layers), int(model.cfg.n_heads))
    return site


def token_of(pairs: PromptPairs, role: str, value: str) -> int:
    """Which of a role's tokens holds the value, counted from its last (-1).

    Raises:
        ValueError: several tokens where one is needed, or one where a digit needs its own.
    """
    n_tokens = role_columns(pairs, Site(0, role)).shape[1]
    own = {str(Role.OPERAND_A): "a", str(Role.OPERAND_B): "b"}.get(role)
    if value in DIGITS and own == value[0]:
        which, size = DIGITS[value]
        assert pairs.operands is not None
        n_digits = len(str(int(pairs.operands[:, which].max())))
        if n_tokens != n_digits:
            raise ValueError(
                f"expected one token per digit of {role}, found {n_tokens} tokens for {n_digits} "
                f"digits; take value={value[0]!r}, or another tokenizer"
            )
        return -1 if size == 1 else -2
    if n_tokens != 1:
        raise ValueError(
            f"expected a number of one token at {role}, found {n_tokens} tokens; take operands of "
            "one token, one digit of it such as value='a_ones', or at='end'"
        )
    return -1


def states_of(
    model: HookedLike, pairs: PromptPairs, names: Sequence[str], site: Site
) -> Float[Tensor, "pair name ..."]:
    """Activations of the reference prompts at a site, in float64."""
    parts = []
    for batch in pairs.batches(256):
        known = record(model, batch.reference, names, attention_mask=batch.attention_mask)
        row, column = torch.arange(len(batch)), columns_at(batch, site)
        parts.append(torch.stack([known[name][row, column].double().cpu() for name in names], 1))
    return torch.cat(parts)


def columns_at(pairs: PromptPairs, site: Site) -> Int[Tensor, " pair"]:
    """The column of a site's one token."""
    if site.is_end:
        return torch.full((len(pairs),), pairs.reference.shape[1] - 1)
    return role_columns(pairs, site)[:, 0]


def class_means(
    rows: Float[Tensor, "pair ..."],
    values: Int[Tensor, " pair"],
    classes: Int[Tensor, " value"],
    rests: Sequence[tuple[Any, ...]] = (),
) -> Float[Tensor, "value ..."]:
    """The mean of the pairs with each value, as it would be if all had the same of everything else.

    In sums of one digit, a large A comes with a small B, so that plain means of A hold B as well.
    So one sum is fitted to the values and one to each combination of everything else, in float64,
    and problems are compared that differ in the value alone. Where each value comes with everything
    else equally often, these are the plain means.

    Args:
        classes: the values that get a mean.
        rests: everything else of each, from `rests_of`; empty: plain means.
    """
    own = (values[:, None] == classes).double()
    others = [_indicators(rests)[:, 1:]] if rests else []
    design = torch.cat([own, *others], dim=1)
    states = rows.double().flatten(1)
    effects = torch.linalg.lstsq(design, states, driver="gelsd").solution[: len(classes)]
    effects = effects + (states - own @ effects).mean(0)
    return effects.unflatten(1, rows.shape[1:])


def _indicators(names: Sequence[Any]) -> Float[Tensor, "pair name"]:
    """One column for each name, 1 where a pair has it."""
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    numbers = torch.tensor([known[name] for name in names])
    return torch.nn.functional.one_hot(numbers, len(known)).double()
