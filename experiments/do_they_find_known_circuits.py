"""Do the methods find circuits that are known? Every method on every built model (`make exam`).

On each built model (`al.built_model`), and on two of them for rising sharpness of attention and
neurons, the effects of all components are computed by each method, exact or approximate, and
stored beside the closed form. One run per model under results/do_they_find_known_circuits/, which
`figures/exam.py` shows.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from torch import Tensor

import arith_lens as al
from arith_lens.attribution import ATTRIBUTION_METHODS, UnsupportedRule
from arith_lens.attribution.rules import hold_norm_scales
from arith_lens.built import BUILT_NAMES
from arith_lens.components import every_component
from arith_lens.effects import HEAD_AXES, MLP_AXES
from arith_lens.runs import Run, open_run
from experiments.command import exit_on_user_error
from experiments.how_few_evaluations import RACE_MEASURES, races
from experiments.results import BUILT_EDGES, BUILT_EFFECTS, BUILT_TRUTH, EXACT, RACES
from experiments.settings import RESULTS, fitting_engine

PATHS_VALUES = ("via_mlps", "direct", "total")
HELD_NORMS = "atp_held_norms"
"""One gradient that does not pass what norms divide by."""
KNOCKOUTS = {"knock-out-mean": "mean", "knock-out-zero": "zero"}
"""By method, what stands in for the component that is knocked out alone."""
METRIC = "logit"
REPEATS = 200
"""Races per model."""
DIAL = {"table": "via_mlps", "query_composition": "total"}
"""The models of the curves, and their paths: through neurons, and through attention too."""


@dataclass(frozen=True)
class Config:
    """Do the methods find circuits that are known?"""

    models: tuple[str, ...] = tuple(BUILT_NAMES)
    """The built models."""
    dial: tuple[float, ...] = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    """The values of beta and of G, together, for the curves."""
    n: int = 24
    """Pairs per model."""
    steps: int = 5
    """Points of the methods that integrate."""
    seed: int = 0
    """The seed of the choice of pairs."""


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


def papers(config: Config) -> list[ExamModel]:
    """All models, then those of the dial."""
    shared = {"n": config.n, "steps": config.steps, "seed": config.seed}
    plain = [ExamModel(f"built-{name}", name, None, **shared) for name in config.models]
    dialled = [
        ExamModel(f"built-{name}-{value:g}", name, value, **shared)
        for name in DIAL
        for value in config.dial
    ]
    return [*plain, *dialled]


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    root: Path = RESULTS,
    dry_run: bool = False,
    again: bool = False,
) -> None:
    """Compute what is missing, and save one run per model.

    Args:
        config: which models and pairs.
        root: the folder of all runs.
        dry_run: print the names of the models, compute nothing.
        again: compute stored results again.
    """
    for paper in papers(config):
        if dry_run:
            print(paper.model)
            continue
        with exit_on_user_error():
            made = al.built_model(
                paper.built, n=paper.n, seed=paper.seed, beta=paper.dial, sharpness=paper.dial
            )
            name = __name__.rpartition(".")[2]
            run = open_run(name, paper, model=made.model, root=root, again=again)
        with run:
            compute(run, made, paper)
        print(paper.model)


def compute(run: Run, made: al.BuiltModel, paper: ExamModel) -> None:
    """The closed form and every method's effects; of a dial's model, on the paths of its curve."""
    model, pairs, truth = made
    circuit = {
        "heads": sorted(map(str, truth.heads)),
        "mlps": sorted(map(str, truth.mlps)),
        "edges": sorted(map(str, truth.edges)),
    }
    for paths in PATHS_VALUES if paper.dial is None else (DIAL[paper.built],):
        settings: dict[str, Any] = {"paths": paths, "metric": METRIC, "progress": False}
        expected = truth.effects(paths=paths, metric=METRIC)
        BUILT_TRUTH.save(run, expected, paths, pairs=pairs, **circuit)
        exact = {
            "run": run,
            "name": BUILT_EFFECTS.name(paths, EXACT),
            "engine": fitting_engine(model, paths),
        }
        al.path_patch(model, pairs, **settings, **exact)
        for method in ATTRIBUTION_METHODS:
            own = {
                "method": method,
                "steps": paper.steps,
                "name": BUILT_EFFECTS.name(paths, method),
            }
            try:
                al.attribute(model, pairs, run=run, **settings, **own)
            except UnsupportedRule as error:
                print(f"{paper.model}: {method} is left out: {error}")
        with hold_norm_scales(model):  # a hook that no run can store: computed each time
            held = al.attribute(model, pairs, method="atp", **settings)
        BUILT_EFFECTS.save(run, held, paths, HELD_NORMS, pairs=pairs)
    if paper.dial is not None:
        return
    race_on(run, paper)
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


def race_on(run: Run, paper: ExamModel) -> None:
    """Races for the components beyond half of the strongest mean effect, if there are any."""
    exact = BUILT_EFFECTS.load(run, "via_mlps", EXACT)
    line = float(min(exact.heads.mean().min(), exact.mlps.mean().min())) / 2
    if line < 0:
        if not RACES.is_in(run, paper.built, "line", "all"):
            outcomes = races(exact, line, REPEATS, paper.seed)
            RACES.save(run, outcomes, paper.built, "line", "all")
        means = RACES.load(run, paper.built, "line", "all").mean().tolist()
        strongest_text = ", ".join(
            f"{name} {100 * mean:.1f}%" for name, mean in zip(RACE_MEASURES, means, strict=True)
        )
        print(f"{paper.model}: races: {strongest_text}")


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
