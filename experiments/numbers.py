"""How does a model represent a number: as a line, as waves, or as a table?

A number is swapped between two problems inside a subspace, at the tokens of the operands and at
END, layer by layer. The subspace is that of a shape: a line, waves of a period, a helix, a
polynomial. Beside it are PCA with as many directions, permuted labels, and random directions. The
first test is of unseen values, which were left out of the fit. Spectra show which frequencies the
class means have. Saves a run under results/numbers/, which `python -m figures numbers` draws.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import arith_lens as al
from arith_lens.pairs import Role
from arith_lens.runs import Run
from experiments.estimates import matrix_rate, time_text
from experiments.results import NUMBER_SPECTRUM, NUMBER_SWAPS
from experiments.settings import Experiment, Operation, PromptSettings

LINE, WAVES_10, WAVES_5, WAVES_2, HELIX, CUBIC = (
    "line",
    "waves_10",
    "waves_5",
    "waves_2",
    "helix_10",
    "polynomial_3",
)
SHAPES: Mapping[str, dict[str, Any]] = {
    LINE: {"kind": "polynomial", "k": 1},
    WAVES_10: {"kind": "fourier", "periods": (10,)},
    WAVES_5: {"kind": "fourier", "periods": (5,)},
    WAVES_2: {"kind": "fourier", "periods": (2,)},
    HELIX: {"kind": "helix", "periods": (10,)},
    CUBIC: {"kind": "polynomial", "k": 3},
}
"""By name, what `al.number_subspace` fits; at most three directions, because a digit of one-digit
sums has eight values."""
AT_END = (LINE, HELIX, WAVES_10, CUBIC)
"""The shapes that are fitted at END."""
END, OPERAND = "end", "operand"
ROLES = {"a": Role.OPERAND_A, "b": Role.OPERAND_B}
CONTROLS = ("pca", "polynomial", "labels", "span", "means", "stream", "unseen")


@dataclass(frozen=True)
class NumbersConfig(PromptSettings):
    """Is a number a line, a wave, or a table?"""

    operation: Operation = "addition"
    """The operation, with operands from 1 to 9 and one-digit answers."""
    n: int | None = None
    """Problems before the filter; by default all."""
    swaps: int = 150
    """Swaps, and tests of unseen values, for each place and shape at END."""
    operand_swaps: int = 80
    """The same at the tokens of operands, where all tokens are computed again."""
    permutations: int = 39
    """Permutations of the labels at END."""
    operand_permutations: int = 19
    """The same at the tokens of operands."""
    seed: int = 0
    """The seed of all draws."""


def compute(run: Run, model: al.HookedModel, config: NumbersConfig) -> None:
    """Spectra first, then the swaps of each value, place and shape."""
    pairs = al.sample_pairs(
        model,
        config.operation,
        config.n,
        seed=config.seed,
        templates=config.templates,
        shots=config.shots,
        exemplars=config.exemplars,
    )
    for value, of, place in SPECTRA:
        if not NUMBER_SPECTRUM.is_in(run, value, of, place):
            at = ROLES[value] if place == OPERAND else END
            NUMBER_SPECTRUM.save(
                run, al.number_spectrum(model, pairs, of, at, value), value, of, place
            )
    for value, place, layer, name in tests_of(model.n_layers):
        if NUMBER_SWAPS.is_in(run, value, place, str(layer), name):
            continue
        at = ROLES[value] if place == OPERAND else END
        space = al.number_subspace(model, pairs, layer, at, value, seed=config.seed, **SHAPES[name])
        at_end = place == END
        swaps = al.swap_values(
            model,
            pairs,
            space,
            controls=CONTROLS,
            n=config.swaps if at_end else config.operand_swaps,
            permutations=config.permutations if at_end else config.operand_permutations,
            seed=config.seed,
        )
        NUMBER_SWAPS.save(run, swaps, value, place, str(layer), name)


SPECTRA = (
    ("a", "stream", END),
    ("answer", "stream", END),
    ("a", "stream", OPERAND),
    ("a", "W_E", OPERAND),
    ("answer", "W_U", END),
)
"""Value, source and place of each spectrum."""


def tests_of(n_layers: int) -> Iterator[tuple[str, str, int, str]]:
    """Value, place, layer and shape of each test, the most telling ones first."""
    late = range(max(0, n_layers // 2 - 1), n_layers)
    early = sorted({0, n_layers // 4} & {*range(max(1, n_layers - 1))})
    for value in ("a", "b"):
        yield from ((value, OPERAND, layer, name) for layer in early for name in SHAPES)
    yield from (("a", END, layer, name) for name in AT_END for layer in late)
    yield from (("answer", END, layer, name) for layer in late[2::2] for name in (LINE, HELIX))


def _plan(model: al.HookedModel, config: NumbersConfig) -> str:
    """The cost, of which each swap has about 15 controls and its permutations twice."""
    rate = matrix_rate(model)
    per_token = 2 * sum(weight.numel() for weight in model.bridge.parameters())
    tokens = 0
    for _, place, _, _ in tests_of(model.n_layers):
        at_end = place == END
        n, permutations = (
            (config.swaps, config.permutations)
            if at_end
            else (config.operand_swaps, config.operand_permutations)
        )
        tokens += n * (15 + 2 * permutations) * (1 if at_end else 12)
    return f"tokens: {tokens}, at most {time_text(tokens * per_token, rate)}"


main = Experiment("numbers", NumbersConfig, compute, _plan, figure="numbers")
