"""`swap_values`: exchange a number's subspace between two problems, and write unseen values."""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.effects import Effects
from arith_lens.interchanges import SiteRuns, site_runs, swapped
from arith_lens.model import HookedLike
from arith_lens.numbers.result import LABELS, OWN, UNSEEN, UNSEEN_LABELS, WHOLE, Swaps
from arith_lens.numbers.shapes import principal_directions
from arith_lens.numbers.subspace import NumberSpace, check_space
from arith_lens.numbers.values import answer_tokens, rests_of, values_of, with_value
from arith_lens.options import check_choice
from arith_lens.pairs import PromptPairs

CONTROLS = {
    "pca": "PCA",
    "polynomial": "polynomial",
    "labels": LABELS,
    "span": "random in the span",
    "means": "all class means",
    "stream": "random (cannot fail)",
    "unseen": UNSEEN,
}
"""The controls, with the name that the result gives them."""
RANDOM = (LABELS, UNSEEN_LABELS, CONTROLS["span"], CONTROLS["stream"])
"""The controls with a random part, of which there are several draws."""
DRAWS = 20
"""Random subspaces of each kind."""
BATCH = 64
"""The number of swaps that run together."""


@dataclass(frozen=True)
class SwapTest:
    """Problems that run, and the answers that follow the value that they get."""

    rows: list[int]
    """The destination of each swap, as a row of the tested pairs."""
    sources: list[int]
    """The source; the destination again where a value is written."""
    numbers: list[int]
    """The value that each gets."""
    expected: list[int]
    """The token that answers it."""


def swap_values(
    model: HookedLike,
    pairs: PromptPairs,
    space: NumberSpace,
    *,
    controls: Sequence[str] = ("pca", "labels", "span", "unseen"),
    n: int = 300,
    seed: int = 0,
    permutations: int = 99,
) -> Swaps:
    """Swap a number between two problems inside a subspace, and read the answer (not in the paper).

    Destination and source are problems of one wording that differ in this value alone, both of the
    half that was not fitted. At the place of the subspace h becomes h + (h_source - h) Q Qᵀ, and
    everything after it is computed again. A swap counts if the answer is that of the source's value
    with the destination's other operand.

    **Unseen values** are the test that only a shape can pass. One value v is left out of the fit,
    W (B(v) - B(a)) is added to a problem with the value a, and the answer must be that of v.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the pairs that `space` was fitted on; the other half of their problems is tested.
        space: of `number_subspace`.
        controls: names of `arith_lens.numbers.CONTROLS`. `"pca"` and `"polynomial"` have the same
            number of directions; `"labels"` is the same fit with permuted values; `"span"` are
            random directions among the class means, `"means"` all of them; `"stream"` are random
            directions of the whole stream, which cannot fail; `"unseen"` is the test above. The
            whole vector is always swapped.
        n: the most swaps, and the most tests of unseen values.
        seed: of all draws.
        permutations: how many permutations of the labels.

    Returns:
        The accuracy of each space, with intervals over problems and p-values of permuted labels.
        PCA has neither labels nor unseen values.

    Raises:
        ValueError: an unknown control; another model or other pairs than those of the subspace; no
            problems that differ in the value alone.
        UnsupportedEndRuns: the place is END, and the model cannot be run at END alone.
    """
    check_space(model, pairs, space)
    _check_request(controls, n, permutations)
    tested = pairs[~space.is_fitted(pairs)]
    rng = random.Random(seed)
    swaps = swap_tests(tested, space, n, rng)
    plan = _Plan.of(space, controls, permutations, seed)
    with torch.no_grad():
        right = _swapped_answers(model, tested, space, swaps, plan)
        shares = {name: of_draws.float().mean(0) for name, of_draws in right.items()}
        test = swaps
        if "unseen" in controls and space.shape.kind != "pca":
            written = unseen_tests(pairs, tested, space, n, rng)
            more = _written_answers(model, tested, space, written, plan)
            n_swaps, n_written = len(swaps.rows), len(written.rows)
            shares = {
                **{name: _padded(row, 0, n_written) for name, row in shares.items()},
                **{name: _padded(of.float().mean(0), n_swaps, 0) for name, of in more.items()},
            }
            right |= more
            test = SwapTest(swaps.rows + written.rows, [], [], [])
    names = [name for name in (UNSEEN, OWN, WHOLE) if name in shares]
    names += [name for name in shares if name not in names]
    effects = Effects(
        torch.stack([shares[name] for name in names]),
        ("space",),
        metric="interchange_accuracy",
        labels={"space": tuple(names)},
        **tested[test.rows].units,
    )
    draws = {name: of_draws for name, of_draws in right.items() if name in RANDOM}
    return Swaps(effects, draws, _computation(space, swaps, permutations, seed))


def _check_request(controls: Sequence[str], n: int, permutations: int) -> None:
    for name in controls:
        check_choice("controls", name, CONTROLS)
    for number, what in ((n, "n swaps"), (permutations, "permutations")):
        if not isinstance(number, int) or number < 1:
            raise ValueError(f"expected {what} of at least 1, found {number!r}; give n=300")


def _padded(row: Float[Tensor, " swap"], before: int, after: int) -> Float[Tensor, " all"]:
    nan = float("nan")
    return torch.cat([torch.full((before,), nan), row, torch.full((after,), nan)])


def _computation(
    space: NumberSpace, swaps: SwapTest, permutations: int, seed: int
) -> dict[str, Any]:
    return {
        "shape": str(space.shape),
        "kind": space.shape.kind,
        "site": str(space.site),
        "value": space.value,
        "k": space.k,
        "values": space.values.tolist(),
        "n_swaps": len(swaps.rows),
        "permutations": permutations,
        "seed": seed,
    }


def swap_tests(tested: PromptPairs, space: NumberSpace, n: int, rng: random.Random) -> SwapTest:
    """Pairs of problems that differ in the value alone, and in the answer's token."""
    numbers, answers = values_of(tested, space.value).tolist(), tested.answer.tolist()
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row, rest in enumerate(rests_of(tested, space.value)):
        groups[rest].append(row)
    candidates = [
        (row, source)
        for rows in groups.values()
        for row in rows
        for source in rows
        if numbers[row] != numbers[source] and answers[row] != answers[source]
    ]
    if not candidates:
        raise ValueError(
            f"expected problems of one wording that differ in {space.value} alone and have "
            f"another answer, found none among {len(tested)} pairs that were not fitted; draw more "
            "pairs of fewer operands"
        )
    rng.shuffle(candidates)
    rows, sources = (list(part) for part in zip(*candidates[:n], strict=True))
    own = ([items[i] for i in sources] for items in (numbers, answers))
    return SwapTest(rows, sources, *own)


def unseen_tests(
    pairs: PromptPairs, tested: PromptPairs, space: NumberSpace, n: int, rng: random.Random
) -> SwapTest:
    """Problems, and values that are written into them, whose answers the pairs know."""
    tokens, known = answer_tokens(pairs), {*space.values.tolist()}
    numbers, answers = values_of(tested, space.value).tolist(), tested.answer.tolist()
    templates = tested.template or ("",) * len(tested)
    assert tested.operands is not None and tested.operation is not None
    candidates = []
    for row, (a, b) in enumerate(tested.operands.tolist()):
        place = (templates[row], int(tested.lengths[row]))
        for number in sorted(known - {numbers[row]}) if numbers[row] in known else ():
            result = with_value(tested.operation[row], a, b, space.value, number)
            token = tokens.get((*place, result))
            if token is not None and token != answers[row]:
                candidates.append((row, number, token))
    if not candidates:
        raise ValueError(
            f"expected problems whose {space.value} can have another value with a known answer, "
            "found none; draw more pairs"
        )
    rng.shuffle(candidates)
    rows, targets, expected = (list(part) for part in zip(*candidates[:n], strict=True))
    return SwapTest(rows, rows, targets, expected)


@dataclass(frozen=True)
class _Plan:
    """What is swapped beside the subspace, and the permutations of its labels."""

    bases: dict[str, list[Float[Tensor, "width k"]]]
    """By name, the draws of each space."""
    orders: list[Int[Tensor, " value"]]
    """By permutation, which value's label each value gets."""

    @classmethod
    def of(
        cls, space: NumberSpace, controls: Sequence[str], permutations: int, seed: int
    ) -> "_Plan":
        """The spaces, fitted on the same class means."""
        generator = torch.Generator().manual_seed(seed)
        values, means, k = space.values, space.means, space.k
        bases = {OWN: [space.basis]}
        span = principal_directions(means, len(values) - 1)
        for name in controls:
            if name == "pca":
                bases[CONTROLS[name]] = [principal_directions(means, k)]
            elif name == "polynomial":
                shape = replace(space.shape, kind="polynomial", k=k)
                bases[CONTROLS[name]] = [shape.basis(values, means)]
            elif name == "means":
                bases[CONTROLS[name]] = [span]
            elif name in ("span", "stream"):
                inside = span if name == "span" else torch.eye(len(span), dtype=span.dtype)
                bases[CONTROLS[name]] = [
                    torch.linalg.qr(inside @ _normal(inside.shape[1], k, generator))[0]
                    for _ in range(DRAWS)
                ]
        orders = []
        if "labels" in controls and space.shape.kind != "pca":
            while len(orders) < permutations:
                order = torch.randperm(len(values), generator=generator)
                if not torch.equal(order, torch.arange(len(values))):
                    orders.append(order)
            bases[CONTROLS["labels"]] = [
                space.shape.basis(values[order], means) for order in orders
            ]
        return cls(bases, orders)


def _normal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64)


def swap_runs(
    model: HookedLike, tested: PromptPairs, space: NumberSpace, test: SwapTest
) -> Iterator[tuple[slice, SiteRuns]]:
    """Base and source of the swaps at the place, batch by batch, each with its rows."""
    base, source = tested[test.rows], tested[test.sources]
    both = replace(base, counterfactual=source.reference, counterfactual_answer=source.answer)
    start = 0
    for (runs,) in site_runs(model, both, [space.site], batch_size=BATCH):
        rows = slice(start, start + len(runs.base))
        start = rows.stop
        yield rows, runs


def _swapped_answers(
    model: HookedLike, tested: PromptPairs, space: NumberSpace, test: SwapTest, plan: _Plan
) -> dict[str, Bool[Tensor, "draw swap"]]:
    """Whether each swap follows, by space and draw."""
    expected = torch.tensor(test.expected)
    rights: dict[str, list[Tensor]] = defaultdict(list)
    for rows, runs in swap_runs(model, tested, space, test):
        for name, bases in {WHOLE: [None], **plan.bases}.items():
            states = (swapped(runs.base, runs.source, basis) for basis in bases)
            rights[name].append(_right(runs, states, expected[rows]))
    return {name: torch.cat(parts, dim=1) for name, parts in rights.items()}


def _right(
    runs: SiteRuns, states: Iterator[Tensor], expected: Int[Tensor, " swap"]
) -> Bool[Tensor, "draw swap"]:
    return runs.answers(torch.stack([*states])) == expected


def _written_answers(
    model: HookedLike, tested: PromptPairs, space: NumberSpace, test: SwapTest, plan: _Plan
) -> dict[str, Bool[Tensor, "draw swap"]]:
    """Whether each value that was left out of the fit follows; the same with permuted labels."""
    numbers = values_of(tested, space.value)[test.rows]
    targets, expected = torch.tensor(test.numbers), torch.tensor(test.expected)
    orders = [torch.arange(len(space.values)), *plan.orders]
    steps = [unseen_steps(space, order) for order in orders]
    index = {int(value): i for i, value in enumerate(space.values)}
    parts = []
    for rows, runs in swap_runs(model, tested, space, test):
        places = [
            (index[int(a)], index[int(v)])
            for a, v in zip(numbers[rows], targets[rows], strict=True)
        ]
        own, other = (torch.tensor(column) for column in zip(*places, strict=True))
        states = (runs.base + step[other, own].to(runs.base) for step in steps)
        parts.append(_right(runs, states, expected[rows]))
    right = torch.cat(parts, dim=1)
    return {UNSEEN: right[:1]} | ({UNSEEN_LABELS: right[1:]} if plan.orders else {})


def unseen_steps(
    space: NumberSpace, order: Int[Tensor, " value"]
) -> Float[Tensor, "unseen own width"]:
    """W (B(v) - B(a)) for each value v, left out of the fit, and each value a.

    Args:
        order: the index of the value whose label each value gets.
    """
    labels, means = space.values[order], space.means
    terms = space.shape.terms(labels)
    steps = []
    for unseen in range(len(labels)):
        seen = torch.arange(len(labels)) != unseen
        weights = space.shape.weights(labels[seen], means[seen])
        steps.append((terms[unseen] - terms) @ weights[1:])
    return torch.stack(steps)
