"""What does one neuron do? Exact effects, rules with nulls, classes, and the smallest sets."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

import arith_lens as al
from arith_lens.components import Neuron, every_mlp
from arith_lens.knockout import halves
from arith_lens.neurons import (
    ClassKnockouts,
    HeuristicMatches,
    NeuronMaps,
    class_knockouts,
    grid_of,
    neuron_gradients,
    precision_at_k,
    scoring_cells,
    untrained_model,
)
from arith_lens.runs import Run
from experiments.configs.states import NeuronConfig
from experiments.results import (
    CLASS_KNOCKOUTS,
    HEURISTIC_MATCHES,
    NEURON_CURVE,
    NEURON_EFFECTS,
    NEURON_SCORES,
)
from experiments.settings import Experiment

OPERATION = "addition"
TRAINED, UNTRAINED, NOISE = "trained", "untrained-{}", "noise"
REMOVAL, PUBLISHED = "removal", "precision"
RANKINGS = ("direct", "via_mlps", "gradient")
CURVE_METRIC = "digit_contrast"
FRACTIONS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7)


def compute(run: Run, model: al.HookedModel, config: NeuronConfig) -> None:
    """Effects and sets first, then maps, rules and classes."""
    _save_effects(run, model, config)
    operands = chosen_operands(config)
    if not CLASS_KNOCKOUTS.is_in(run, OPERATION):
        maps = al.neuron_maps(model, OPERATION, operands)
        matches = _save_matches(run, model, maps, config)
        _save_classes(run, model, maps, matches, config)


def chosen_operands(config: NeuronConfig) -> list[int]:
    """The values of A and B."""
    return sorted(random.Random(config.seed).sample(range(10, 100), config.values))


def _save_effects(run: Run, model: al.HookedModel, config: NeuronConfig) -> None:
    """The rankings of one half of the problems, and their first neurons kept alone on the other."""
    first, second = sampled_halves(model, config)
    mlps = every_mlp(model.n_layers)
    for paths in ("direct", "via_mlps"):
        name = NEURON_EFFECTS.name(OPERATION, paths)
        al.neuron_effects(model, first, mlps, paths=paths, metric=CURVE_METRIC, run=run, name=name)
    if not NEURON_EFFECTS.is_in(run, OPERATION, "gradient"):
        gradients = neuron_gradients(model, first, mlps)
        NEURON_EFFECTS.save(run, gradients, OPERATION, "gradient", pairs=first)
    for ranking in RANKINGS:
        effects = NEURON_EFFECTS.load(run, OPERATION, ranking)
        al.circuit_curve(
            model,
            second,
            ranked(effects),
            among="neurons",
            metric=CURVE_METRIC,
            ablation="counterfactual",
            positions="end",
            fractions=FRACTIONS,
            run=run,
            name=NEURON_CURVE.name(OPERATION, ranking),
        )


def sampled_halves(
    model: al.HookedModel, config: NeuronConfig, keep: str = "correct"
) -> tuple[al.PromptPairs, al.PromptPairs]:
    """Two-digit sums whose counterfactual has other operands, in two halves of the problems."""
    pairs = al.sample_pairs(
        model,
        OPERATION,
        config.drawn,
        seed=config.seed,
        operands=range(10, 100),
        templates=[f"{OPERATION}/0"],
        answer_token="first",
        counterfactual="operands",
        keep=keep,
    )
    first, second = halves(pairs, config.seed)
    return first, second


def ranked(effects: al.Effects) -> list[Neuron]:
    """All neurons, the most negative mean effect first."""
    means = effects.mean()
    return [one for one in effects.top(means.numel()) if isinstance(one, Neuron)]


def _save_matches(
    run: Run, model: al.HookedModel, maps: NeuronMaps, config: NeuronConfig
) -> HeuristicMatches:
    """The rules of the trained model and of the untrained ones, and the published score of all."""
    operands, null = list(maps.operands), []
    for seed in range(config.untrained):
        label = UNTRAINED.format(seed)
        if not HEURISTIC_MATCHES.is_in(run, label):
            fresh = al.neuron_maps(untrained_model(model, seed), OPERATION, operands)
            _save_scores(run, precision_at_k(fresh), maps, PUBLISHED, label)
            matches = al.match_heuristics(fresh, permutations=0, seed=config.seed)
            HEURISTIC_MATCHES.save(run, matches, label)
        null.append(HEURISTIC_MATCHES.load(run, label))
    if not HEURISTIC_MATCHES.is_in(run, TRAINED):
        generator = torch.Generator().manual_seed(config.seed)
        noise = torch.randn(maps.values.shape, generator=generator)
        noise[:, :, ~maps.cells] = float("nan")
        for values, label in ((noise, NOISE), (maps.values, TRAINED)):
            _save_scores(run, precision_at_k(replace(maps, values=values)), maps, PUBLISHED, label)
        effects = al.neuron_maps(model, OPERATION, operands, read="effect")
        _save_scores(run, effects.flat().abs().mean(1), maps, REMOVAL, TRAINED)
        matches = al.match_heuristics(
            maps, null=null, permutations=config.permutations, seed=config.seed
        )
        HEURISTIC_MATCHES.save(run, matches, TRAINED)
    return HEURISTIC_MATCHES.load(run, TRAINED)


def _save_scores(
    run: Run, values: Float[Tensor, " neuron"], maps: NeuronMaps, what: str, label: str
) -> None:
    """One number for each neuron."""
    per_neuron = values.reshape(len(maps.mlps), -1)[..., None]
    labels = {"mlp": tuple(map(str, maps.mlps))}
    scores = al.Effects(per_neuron, ("mlp", "neuron"), what, labels=labels)
    NEURON_SCORES.save(run, scores, what, label)


def _save_classes(
    run: Run,
    model: al.HookedModel,
    maps: NeuronMaps,
    matches: HeuristicMatches,
    config: NeuronConfig,
) -> None:
    """The largest classes, knocked out on problems whose values chose no rule."""
    classes = largest_classes(matches, config.classes)
    if not classes:
        empty = ClassKnockouts((), torch.zeros(0), torch.zeros(0, config.draws), (), ())
        CLASS_KNOCKOUTS.save(run, empty, OPERATION)
        return
    pairs = _scoring_pairs(model, maps, config)
    selected = _selected(maps, pairs, [*classes])
    usable = {
        name: neurons
        for name, neurons in classes.items()
        if 5 <= int(selected[name].sum()) <= len(pairs) - 5
    }
    sizes = NEURON_SCORES.load(run, REMOVAL, TRAINED).per_pair[..., 0].flatten().tolist()
    if not usable:
        empty = ClassKnockouts((), torch.zeros(0), torch.zeros(0, config.draws), (), ())
        CLASS_KNOCKOUTS.save(run, empty, OPERATION)
        return
    result = class_knockouts(
        model,
        pairs,
        usable,
        selected,
        dict(zip(maps.neurons, sizes, strict=True)),
        n=config.draws,
        seed=config.seed,
    )
    CLASS_KNOCKOUTS.save(run, result, OPERATION, pairs=pairs)


def largest_classes(matches: HeuristicMatches, n: int) -> dict[str, list[Neuron]]:
    """The neurons of each rule that two neurons or more follow, the largest class first.

    A neuron is in the class of its best family alone.
    """
    inside, classes = matches.implements(), {}
    for index, neuron in enumerate(matches.neurons):
        if bool(inside[:, index].any()):
            above = (matches.auc - matches.null)[:, index].masked_fill(~inside[:, index], -1)
            family = int(above.argmax())
            rule = matches.rules[family][int(matches.best[family, index])]
            classes.setdefault(rule, []).append(neuron)
    large = [(rule, own) for rule, own in classes.items() if len(own) >= 2]
    return dict(sorted(large, key=lambda item: -len(item[1]))[:n])


def _scoring_pairs(model: al.HookedModel, maps: NeuronMaps, config: NeuronConfig) -> al.PromptPairs:
    """Random problems whose values of A and B chose no rule, that the model answers right."""
    a, b = held_out_operands(maps, config.seed)
    pairs = al.sample_pairs(
        model,
        OPERATION,
        operands=list(maps.operands),
        templates=[f"{OPERATION}/0"],
        answer_token="first",
        counterfactual="operands",
        keep="all",
        seed=config.seed,
    )
    numbers = [tuple(map(int, problem.split(" + "))) for problem in pairs.problem or ()]
    pairs = pairs.filter([x in a and y in b for x, y in numbers])
    order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(config.seed))
    return pairs[order[: config.drawn]]


def held_out_operands(maps: NeuronMaps, seed: int) -> tuple[set[int], set[int]]:
    """The values of A, and of B, that choose no rule."""
    score = scoring_cells(maps, seed=seed)
    grid = grid_of(maps)
    return {*grid.a[score].tolist()}, {*grid.b[score].tolist()}


def _selected(
    maps: NeuronMaps, pairs: al.PromptPairs, names: Sequence[str]
) -> Mapping[str, Bool[Tensor, " pair"]]:
    """Which pairs each rule selects."""
    grid, selected = grid_of(maps), {}
    operands = zip(grid.a.tolist(), grid.b.tolist(), strict=True)
    cells = {f"{a} + {b}": cell for cell, (a, b) in enumerate(operands)}
    rows = torch.tensor([cells[problem] for problem in pairs.problem or ()])
    for family in al.HEURISTICS.values():
        selected |= {name: chosen[rows] for name, chosen in family(grid) if name in names}
    return selected


def _plan(model: al.HookedModel, config: NeuronConfig) -> str:
    """How many prompts run."""
    n_maps = (1 + config.untrained) * config.values**2 + config.values**2
    return (
        f"{n_maps} prompts for maps of {config.values} values of A and B, {config.untrained} "
        f"untrained models among them; {config.classes} classes, each with "
        f"{config.draws} random sets, on {config.drawn} pairs at END alone"
    )


main = Experiment("neurons", NeuronConfig, compute, _plan, figure="neurons")
