"""Do the methods find circuits that are known? The exam of every method on built models."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import arith_lens as al
from arith_lens.attribution import ATTRIBUTION_METHODS, UnsupportedRule
from arith_lens.attribution.rules import hold_norm_scales
from arith_lens.built import BUILT_NAMES
from arith_lens.components import every_component
from arith_lens.effects import HEAD_AXES, MLP_AXES
from arith_lens.runs import Run, open_run
from experiments.built_carries import CARRY_MODELS, save_carries
from experiments.command import exit_on_user_error
from experiments.configs.effects import ExamConfig
from experiments.results import (
    BUILT_EDGES,
    BUILT_EFFECTS,
    BUILT_SWAPS,
    BUILT_TRUTH,
    EXACT,
)
from experiments.settings import RESULTS, patch_and_store

PATHS_VALUES = ("via_mlps", "direct", "total")
HELD_NORMS = "atp_held_norms"
"""One gradient that does not pass what norms divide by."""
KNOCKOUTS = {"knock-out-mean": "mean", "knock-out-zero": "zero"}
"""By method, what stands in for the component that is knocked out alone."""
METRIC = "logit"
DIAL = {"table": "via_mlps", "query_composition": "total"}
"""The models of the curves, and their paths: through neurons, and through attention too."""


@dataclass(frozen=True)
class ExamModel:
    """One model of the exam, and the settings of its run."""

    model: str
    """Its name in this project's runs."""
    built: str
    """Its name in `BUILT_NAMES`."""
    dial: float | None
    """Beta and G; None: the model's own."""
    n: int
    steps: int
    seed: int


def exam_models(config: ExamConfig) -> list[ExamModel]:
    """All models, then those of the dial."""
    shared = {"n": config.n, "steps": config.steps, "seed": config.seed}
    names = config.models or BUILT_NAMES
    plain = [ExamModel(f"built-{name}", name, None, **shared) for name in names]
    dialled = [
        ExamModel(f"built-{name}-{value:g}", name, value, **shared)
        for name in DIAL
        for value in config.dial
    ]
    return [*plain, *dialled]


def do_they_find_known_circuits(
    config: ExamConfig,
    *,
    root: Path = RESULTS,
    dry_run: bool = False,
    again: bool = False,
) -> None:
    """Do the methods find circuits that are known? Every method on every built model (`make exam`).

    On each built model (`al.built_model`), and on two of them for rising sharpness of attention and
    neurons, the effects of all components are computed by each method, exact or approximate, and
    stored beside the closed form. On models that add two digits, the carry is exchanged. One run
    per model under results/do_they_find_known_circuits/, which `python -m figures exam` shows.

    Args:
        config: which models and pairs.
        root: the folder of all runs.
        dry_run: print the names of the models, compute nothing.
        again: compute stored results again.
    """
    for paper in exam_models(config):
        if dry_run:
            print(paper.model)
            continue
        with exit_on_user_error():
            made = al.built_model(
                paper.built, n=paper.n, seed=paper.seed, beta=paper.dial, sharpness=paper.dial
            )
            name = "do_they_find_known_circuits"
            run = open_run(name, paper, model=made.model, root=root, again=again)
        with run:
            _save_exam(run, made, paper)
        print(paper.model)


def _save_exam(run: Run, made: al.BuiltModel, paper: ExamModel) -> None:
    """The closed form and every method's effects; of a dial's model, on the paths of its curve."""
    model, pairs, truth = made
    if paper.built in CARRY_MODELS:
        save_carries(run, paper.built, paper.seed)
        return
    circuit = {
        "heads": sorted(map(str, truth.heads)),
        "mlps": sorted(map(str, truth.mlps)),
        "edges": sorted(map(str, truth.edges)),
    }
    for paths in PATHS_VALUES if paper.dial is None else (DIAL[paper.built],):
        settings: dict[str, Any] = {"paths": paths, "metric": METRIC, "progress": False}
        expected = truth.effects(paths=paths, metric=METRIC)
        BUILT_TRUTH.save(run, expected, paths, pairs=pairs, **circuit)
        patch_and_store(run, model, pairs, BUILT_EFFECTS, paths, EXACT, **settings)
        for method in ATTRIBUTION_METHODS:
            name = BUILT_EFFECTS.name(paths, method)
            own = {"method": method, "steps": paper.steps, "name": name}
            try:
                al.attribute(model, pairs, run=run, **settings, **own)
            except UnsupportedRule as error:
                print(f"{paper.model}: {method} is left out: {error}")
        with hold_norm_scales(model):  # a hook that no run can store: computed each time
            held = al.attribute(model, pairs, method="atp", **settings)
        BUILT_EFFECTS.save(run, held, paths, HELD_NORMS, pairs=pairs)
    if paper.dial is not None:
        return
    _save_shapes(run, paper)
    copying = [one.head for one in truth.circuit.heads]
    al.mediators(
        model, pairs, copying, metric=METRIC, run=run, name=BUILT_EDGES.name(), progress=False
    )
    for method, ablation in KNOCKOUTS.items():
        if BUILT_EFFECTS.is_in(run, method, EXACT):
            continue
        expected, measured = knocked_out(made, ablation)
        BUILT_TRUTH.save(run, expected, method, pairs=pairs, **circuit)
        BUILT_EFFECTS.save(run, measured, method, EXACT, pairs=pairs)


SHAPE_MODELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "table": ("table", {"n_layers": 2}),
    "thermometer": ("thermometer", {"n_layers": 2}),
    "clock": ("clock", {"frequencies": (1, 2)}),
    "rotated": ("table", {"n_layers": 2, "rotation": 0}),
}
"""The models whose digits have a known shape: their digits are brought to END in layer 0, and used
after it."""
EXAM_SHAPES: Mapping[str, Mapping[str, Any]] = {
    "line": {"kind": "polynomial", "k": 1},
    "polynomial_4": {"kind": "polynomial", "k": 4},
    "waves_10_5": {"kind": "fourier", "periods": (10, 5)},
    "helix_10": {"kind": "helix", "periods": (10,)},
}
"""The shapes that are fitted to each, with at most four directions for nine values."""
EXAM_CONTROLS = ("pca", "labels", "span", "means", "stream", "unseen")


def _save_shapes(run: Run, paper: ExamModel) -> None:
    """Swaps of A at END in a model that has a shape by construction."""
    if paper.built not in SHAPE_MODELS:
        return
    name, variant = SHAPE_MODELS[paper.built]
    made = al.built_model(name, seed=paper.seed, **variant)
    for shape, settings in EXAM_SHAPES.items():
        if not BUILT_SWAPS.is_in(run, shape):
            space = al.number_subspace(made.model, made.pairs, 0, "end", "a", **settings)
            swaps = al.swap_values(made.model, made.pairs, space, controls=EXAM_CONTROLS)
            BUILT_SWAPS.save(run, swaps, shape)


def knocked_out(
    made: al.BuiltModel, ablation: str
) -> tuple[al.ComponentEffects, al.ComponentEffects]:
    """The change of p(C) without each component: by the closed form, and by `knock_out`."""
    model, pairs, truth = made
    layers = truth.n_layers
    components = every_component(layers, truth.n_heads)
    before = truth.probability(truth.logits())
    closed = [
        truth.probability(truth.knocked_out(one, ablation=ablation)) - before for one in components
    ]
    settings: dict[str, Any] = {"ablation": ablation, "progress": False}
    plain = al.knock_out(model, pairs, (), **settings).probability
    measured = [
        al.knock_out(model, pairs, one, **settings).probability - plain for one in components
    ]

    def effects(values: list[Tensor]) -> al.ComponentEffects:
        rows, n_heads = torch.stack(values).float(), layers * truth.n_heads
        heads = rows[:n_heads].unflatten(0, (layers, truth.n_heads))
        common: dict[str, Any] = {"metric": "probability", "paths": ablation, **pairs.units}
        return al.ComponentEffects(
            al.Effects(heads, HEAD_AXES, **common),
            al.Effects(rows[n_heads:], MLP_AXES, **common),
            plain,
        )

    return effects(closed), effects(measured)
