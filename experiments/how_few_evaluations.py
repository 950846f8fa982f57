"""How few evaluations find the same heads? Races and screening against the full computation.

For each operation the exact effects of all components on all pairs are computed, and approximated.
Then races (`path_patch(until=)`) are repeated on these numbers, each with another order of the
pairs: for all components, and for those that an approximation on the first pairs keeps. Saves a run
under results/how_few_evaluations/, and prints a table.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import torch
from jaxtyping import Float, Int
from pandas import DataFrame
from torch import Tensor
from tqdm import tqdm

import arith_lens as al
from arith_lens.components import Component, every_component
from arith_lens.path_patching.fewer_evaluations import (
    Goal,
    Race,
    Screening,
    balanced_order,
    race,
    round_sizes,
)
from arith_lens.runs import Run
from arith_lens.statistics import strata_of
from experiments.command import continue_after_part
from experiments.results import MAP, RACES, SCREENING_EFFECTS
from experiments.settings import Experiment, SampleSettings, fitting_engine, operation_pairs

GOALS = ("threshold", "top10")
RACE_MEASURES = ("evaluations", "same components", "all intervals hold")


@dataclass(frozen=True)
class Config(SampleSettings):
    """How few evaluations find the same heads? Races and screening against all evaluations."""

    repeats: int = 200
    """Races per operation and goal."""
    method: str = "relp"
    """The approximation that screens."""
    kept: int = 24
    """Components that screening keeps."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """The effects of each operation, and the races on them."""
    for operation, pairs in operation_pairs(model, config):
        with continue_after_part():
            name, engine = MAP.name(operation), fitting_engine(model)
            exact = al.path_patch(model, pairs, run=run, name=name, engine=engine)
            screen = SCREENING_EFFECTS.name(operation)
            rough = al.attribute(model, pairs, method=config.method, run=run, name=screen)
            for goal in GOALS:
                for n_screened in (None, config.kept):
                    outcomes = races(exact, goal, config.repeats, config.seed, rough, n_screened)
                    RACES.save(run, outcomes, operation, goal, "screened" if n_screened else "all")


def races(
    exact: al.ComponentEffects,
    until: str | float,
    repeats: int,
    seed: int = 0,
    rough: al.ComponentEffects | None = None,
    n_screened: int | None = None,
) -> al.Effects:
    """Races on effects that are known, each with an order of the pairs of its own.

    Args:
        exact: the effects of all components on all pairs.
        until: the goal.
        repeats: how many races.
        seed: of the first race; the next ones have the next seeds.
        rough: approximate effects on the same pairs. Those on the pairs of a race's first round
            screen the components.
        n_screened: how many components screening keeps; None: no screening.

    Returns:
        `RACE_MEASURES` of each race: the share of the evaluations that it needed, and whether it
        ended with the components of the full computation, and with intervals that all hold.
    """
    goal = Goal.of(until, exact.heads.metric)
    values, expected = _rows(exact), _chosen(exact, goal)
    means = torch.cat([exact.heads.mean().flatten(), exact.mlps.mean()]).double()
    strata = strata_of(exact.heads.template, exact.heads.n_pairs)
    n_layers, n_heads, _ = exact.heads.per_pair.shape
    everything = every_component(n_layers, n_heads)
    rows = []
    for number in tqdm(range(seed, seed + repeats), desc=f"races until {until}", leave=False):
        among = list(range(len(values)))
        if rough is not None and n_screened is not None:
            first = round_sizes(len(strata), int(strata.max()) + 1)[0]
            pairs = balanced_order(strata, number)[:first]
            heads, mlps = rough.heads.select(pairs), rough.mlps.select(pairs)
            some = replace(rough, heads=heads, mlps=mlps)
            chosen = Screening.of(some, everything, n_screened, seed=number).components
            among = [everything.index(one) for one in chosen]
        own = values[among]

        def look_up(
            some: Sequence[int], pairs: Int[Tensor, "chosen"], _: int, own: Tensor = own
        ) -> Float[Tensor, "some chosen"]:
            return own[torch.tensor(some)[:, None], pairs]

        outcome = race(look_up, len(among), strata, goal, seed=number)
        low, high = outcome.interval
        holds = (low <= means[among] + 1e-6) & (means[among] <= high + 1e-6)
        same = _chosen(_filled(exact, outcome, among), goal) == expected
        rows.append([outcome.evaluations / values.numel(), float(same), float(holds.all())])
    return al.Effects(
        torch.tensor(rows).T, ("measure",), "of races", labels={"measure": RACE_MEASURES}
    )


def _rows(effects: al.ComponentEffects) -> Float[Tensor, "component pair"]:
    return torch.cat([effects.heads.per_pair.flatten(0, 1), effects.mlps.per_pair])


def _filled(exact: al.ComponentEffects, outcome: Race, among: Sequence[int]) -> al.ComponentEffects:
    """The effects that a race computed, the others NaN."""
    values = torch.full_like(_rows(exact), float("nan"))
    values[list(among)] = outcome.values.to(values)
    n_heads = exact.heads.per_pair[..., 0].numel()
    heads = values[:n_heads].reshape(exact.heads.per_pair.shape)
    return replace(
        exact,
        heads=replace(exact.heads, per_pair=heads, held_norm=None),
        mlps=replace(exact.mlps, per_pair=values[n_heads:], held_norm=None),
    )


def _chosen(effects: al.ComponentEffects, goal: Goal) -> set[Component]:
    """The key heads, or the k components with the most negative means."""
    return {*(al.key_heads(effects, goal.line) if goal.k is None else effects.top(goal.k))}


def _plan(model: al.HookedModel, config: Config) -> str:
    return (
        f"{len(config.operations)} operations, each: a path patching and an approximation of every "
        f"component; {4 * config.repeats} races on their numbers"
    )


def report(run: Run) -> None:
    """One row per operation, goal and kind of race, with means in percent."""
    rows = []
    for operation, goal, kind in product(run.config["operations"], GOALS, ("all", "screened")):
        means = RACES.load(run, operation, goal, kind).mean().tolist()
        shares = {name: f"{mean:.1%}" for name, mean in zip(RACE_MEASURES, means, strict=True)}
        rows.append({"operation": operation, "until": goal, "components": kind} | shares)
    print(DataFrame(rows).to_string(index=False))


main = Experiment("how_few_evaluations", Config, compute, _plan, report)
