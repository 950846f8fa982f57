"""How does a model represent a number: as a line, as waves, or as a table?"""

from collections.abc import Iterator, Mapping
from typing import Any

import arith_lens as al
from arith_lens.numbers import mediation_overlap, number_products
from arith_lens.pairs import Role
from arith_lens.runs import Run
from experiments.configs.states import NumbersConfig
from experiments.estimates import matrix_rate, time_text
from experiments.results import NUMBER_OVERLAP, NUMBER_PRODUCTS, NUMBER_SPECTRUM, NUMBER_SWAPS
from experiments.settings import Experiment

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
SUBJECTS: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "addition": ("addition", "a", {}),
    "multiplication": ("multiplication", "a", {}),
    "division": ("division", "a", {}),
    "ones": (
        "addition",
        "a_ones",
        {"operands": range(10, 40), "answer_token": "last", "counterfactual": "operands"},
    ),
    "tens": (
        "addition",
        "a_tens",
        {
            "operands": [10 * t + o for t in range(1, 9) for o in (0, 4, 7)],
            "answer_token": "first",
            "counterfactual": "operands",
        },
    ),
    "long_multiplication": (
        "multiplication",
        "a",
        {"answer_token": "first", "counterfactual": "operands"},
    ),
}
"""By name, the operation, the number that is swapped, and the problems: of one-digit numbers and
answers; the ones digit of A and of the sum; the tens digit of both; the first digit of longer
products."""
WHOLE_GRIDS = ("ones", "tens")
"""Subjects of all sums below 100 of a grid of operands, in one wording."""
MAIN = "addition"
"""The subject with all tests; others have A alone, and fewer layers."""
PRODUCT_SHAPES = (WAVES_10, LINE, HELIX)
"""The shapes whose products are tested at END."""
OVERLAP_SHAPES = (LINE, HELIX)
"""The shapes that are compared with the directions that decide the answer."""
CONTROLS = ("pca", "polynomial", "labels", "span", "means", "stream", "unseen")


def compute(run: Run, model: al.HookedModel, config: NumbersConfig) -> None:
    """Spectra and products first, then the swaps of each subject, place and shape."""
    for subject in config.subjects:
        pairs = sampled_pairs(model, subject, config)
        if subject == MAIN:
            _save_means(run, model, pairs, config)
        for value, place, layer, name in tests_of(model.n_layers, subject, config):
            _save_test(run, model, pairs, (subject, value, place, str(layer), name), config)


def _save_means(
    run: Run, model: al.HookedModel, pairs: al.PromptPairs, config: NumbersConfig
) -> None:
    """What class means say without any swap."""
    for value, of, place in SPECTRA:
        if not NUMBER_SPECTRUM.is_in(run, value, of, place):
            spectrum = al.number_spectrum(model, pairs, of, role_of(value, place), value)
            NUMBER_SPECTRUM.save(run, spectrum, value, of, place)
    for name in () if config.waves_alone else PRODUCT_SHAPES:
        if not NUMBER_PRODUCTS.is_in(run, name):
            NUMBER_PRODUCTS.save(run, number_products(model, pairs, **SHAPES[name]), name)


Parts = tuple[str, str, str, str, str]
"""Subject, value, place, layer and shape of a test."""


def _save_test(
    run: Run, model: al.HookedModel, pairs: al.PromptPairs, parts: Parts, config: NumbersConfig
) -> None:
    """Swaps of one place and shape; in the main subject at END also the overlap."""
    subject, value, place, layer, name = parts
    chosen = {str(one) for one in _late(model.n_layers)[2::2]}
    main = (subject, value, place) == (MAIN, "a", END)
    compares = main and layer in chosen and name in OVERLAP_SHAPES
    lacks_overlap = compares and not NUMBER_OVERLAP.is_in(run, value, layer, name)
    if NUMBER_SWAPS.is_in(run, *parts) and not lacks_overlap:
        return
    space = al.number_subspace(
        model, pairs, int(layer), role_of(value, place), value, seed=config.seed, **SHAPES[name]
    )
    if not NUMBER_SWAPS.is_in(run, *parts):
        at_end = place == END
        swaps = al.swap_values(
            model,
            pairs,
            space,
            controls=("labels",) if config.waves_alone else CONTROLS,
            n=config.swaps if at_end else config.operand_swaps,
            permutations=config.permutations if at_end else config.operand_permutations,
            seed=config.seed,
        )
        NUMBER_SWAPS.save(run, swaps, *parts)
    if lacks_overlap:
        overlap = mediation_overlap(model, pairs, space, n=config.swaps, seed=config.seed)
        NUMBER_OVERLAP.save(run, overlap, value, layer, name)


def role_of(value: str, place: str) -> Role | str:
    """Where a value is read."""
    if place == END:
        return END
    return Role.OPERAND_A if value[0] == "a" else Role.OPERAND_B


def sampled_pairs(model: al.HookedModel, subject: str, config: NumbersConfig) -> al.PromptPairs:
    """The problems of a subject that the model answers right."""
    operation, _, problems = SUBJECTS[subject]
    whole = subject in WHOLE_GRIDS
    pairs = al.sample_pairs(
        model,
        operation,
        config.n,
        seed=config.seed,
        templates=[f"{operation}/0"] if whole else config.templates,
        shots=config.shots,
        exemplars=config.exemplars,
        **problems,
    )
    assert pairs.operands is not None
    return pairs.filter((pairs.operands.sum(1) < 100).tolist()) if whole else pairs


SPECTRA = (
    ("a", "stream", END),
    ("answer", "stream", END),
    ("a", "stream", OPERAND),
    ("a", "W_E", OPERAND),
    ("answer", "W_U", END),
)
"""Value, source and place of each spectrum."""


def tests_of(
    n_layers: int, subject: str, config: NumbersConfig
) -> Iterator[tuple[str, str, int, str]]:
    """Value, place, layer and shape of each test, the most telling ones first."""
    late = _late(n_layers)
    early = sorted({0, n_layers // 4} & {*range(max(1, n_layers - 1))})
    _, value, _ = SUBJECTS[subject]
    main = subject == MAIN
    operands = ("a", "b") if main else (value,)
    tests = [(one, OPERAND, layer, name) for one in operands for layer in early for name in SHAPES]
    ends = late if main else late[2::2]
    tests += [(value, END, layer, name) for name in AT_END for layer in ends]
    if main:
        tests += [("answer", END, layer, name) for layer in late[2::2] for name in (LINE, HELIX)]
    if config.waves_alone:
        tests = [(value, OPERAND, 0, name) for name in (WAVES_10, WAVES_5, WAVES_2)]
    yield from tests


def _late(n_layers: int) -> range:
    """The layers in which END is tested."""
    return range(max(0, n_layers // 2 - 1), n_layers)


def _plan(model: al.HookedModel, config: NumbersConfig) -> str:
    """The cost, of which each swap has about 15 controls and its permutations twice."""
    rate = matrix_rate(model)
    per_token = 2 * sum(weight.numel() for weight in model.bridge.parameters())
    tokens = 0
    tests = [one for name in config.subjects for one in tests_of(model.n_layers, name, config)]
    for _, place, _, _ in tests:
        at_end = place == END
        n, permutations = (
            (config.swaps, config.permutations)
            if at_end
            else (config.operand_swaps, config.operand_permutations)
        )
        tokens += n * (15 + 2 * permutations) * (1 if at_end else 12)
    return f"tokens: {tokens}, at most {time_text(tokens * per_token, rate)}"


main = Experiment("numbers", NumbersConfig, compute, _plan, figure="numbers")
