"""Are the key heads needed? Accuracy as more and more heads are knocked out (Figure 3)."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import arith_lens as al
from arith_lens.components import Component, every_mlp
from arith_lens.knockout import (
    KnockoutCurves,
    NoAlignedPrompt,
    knockout_curves,
    mask_greedily,
    matched_order,
    random_order,
)
from arith_lens.runs import Run
from experiments.command import continue_after_part
from experiments.configs.answers import KnockoutConfig
from experiments.results import (
    CONTROL_CURVES,
    GREEDY_MASK,
    KNOCKOUT_CURVE,
    KNOCKOUT_CURVES,
    MAP,
    MLP_CONTROL_CURVES,
    controls_at,
)
from experiments.settings import Experiment, operation_maps, operation_pairs, strongest_heads


def compute(run: Run, model: al.HookedModel, config: KnockoutConfig) -> None:
    """The curves of each operation."""
    for operation, pairs in operation_pairs(model, config):
        with continue_after_part():
            compute_curves(run, operation, model, pairs, config)


def compute_curves(
    run: Run, operation: str, model: al.HookedModel, pairs: al.PromptPairs, config: KnockoutConfig
) -> None:
    """A curve for each order, by name.

    They are `effect`, `END`, the name of the second ablation, `iterative`, `MLPs`, and the
    controls' names.
    """
    (effects,) = operation_maps(run, model, {operation: pairs}).values()
    shape = (model.n_layers, model.n_heads)
    first = [al.Head.parse(name) for name in config.heads]
    by_effect = strongest_heads(effects, shape[0] * shape[1])
    order = [*first, *(head for head in by_effect if head not in first)]
    most = most_heads(config, *shape)
    settings: dict[str, Any] = {"run": run, "seed": config.seed}
    settings |= {"ablation": config.ablation, "means": config.means}
    ks = range(most + 1)

    def curve(kind: str, order: Sequence[Component], **options: Any) -> al.KnockoutCurve:
        name = KNOCKOUT_CURVE.name(operation, kind)
        return al.knockout_curve(model, pairs, order, name=name, **(settings | options))

    curves = {"effect": curve("effect", order, ks=ks)}
    curves["END"] = curve("END", order, ks=ks, positions="end")
    if (kind := config.second_ablation) not in (None, config.ablation):
        try:
            curves[kind] = curve(kind, order, ks=ks, ablation=kind)
        except NoAlignedPrompt as error:
            print(f"{operation}: no curve of {kind}: {error}")
    name = CONTROL_CURVES.name(operation)
    controls, ks_of_controls = control_orders(
        order, control_ks(most, len(al.key_heads(effects))), *shape, config
    )
    curves |= knockout_curves(model, pairs, controls, ks=ks_of_controls, name=name, **settings)
    if candidates := order[: config.candidates]:
        n = min(most, len(candidates), config.masked)
        search = pairs[:: config.search_every]
        name = GREEDY_MASK.name(operation)
        mask = mask_greedily(model, search, candidates, n=n, name=name, **settings)
        along = curve("iterative", [head for head in mask.order if isinstance(head, al.Head)],
                      ks=range(n + 1))  # fmt: skip
        curves["iterative"] = replace(along, n_forwards=mask.n_forwards)
    if config.mlps:
        curves["MLPs"] = curve(
            "MLPs", effects.mlps.top(model.n_layers), ks=range(model.n_layers + 1)
        )
        random_mlps = random_mlp_orders(model.n_layers, config)
        name, ks = MLP_CONTROL_CURVES.name(operation), control_ks(model.n_layers)
        curves |= knockout_curves(model, pairs, random_mlps, ks=ks, name=name, **settings)
    KNOCKOUT_CURVES.save(run, KnockoutCurves(curves), operation, pairs=pairs)


def random_mlp_orders(n_layers: int, config: KnockoutConfig) -> dict[str, Sequence[al.Mlp]]:
    """Orders of all MLPs by name, such as `MLPs random 0`."""
    orders: dict[str, Sequence[al.Mlp]] = {}
    for seed in range(config.seed, config.seed + config.controls):
        mlps = every_mlp(n_layers)
        random.Random(seed).shuffle(mlps)
        orders[f"MLPs random {seed}"] = mlps
    return orders


def control_ks(most: int, n_key: int = 0) -> tuple[int, ...]:
    """The numbers of heads at which controls are computed: few, because their curves are smooth.

    The number of key heads is one of them, and 10, the number of heads in the paper's Table 4.
    """
    chosen = {1, 2, 4, 6, 10, *range(16, most, 8), n_key, most}
    return tuple(sorted(k for k in chosen if 0 < k <= most))


def control_orders(
    order: Sequence[al.Head], ks: Sequence[int], n_layers: int, n_heads: int, config: Any
) -> tuple[dict[str, Sequence[al.Head]], dict[str, Sequence[int]]]:
    """The control orders by name, and the numbers of heads of each.

    `random 0` is an order of all heads. `matched 4 0` is a set: four heads of the same layers as
    the strongest four, drawn from all heads but these four. Each number of heads has sets of its
    own, because each leaves other heads to draw from. `config` has `seed` and `controls`.
    """
    orders: dict[str, Sequence[al.Head]] = {}
    of_orders: dict[str, Sequence[int]] = {}
    for seed in range(config.seed, config.seed + config.controls):
        orders[f"random {seed}"] = random_order(n_layers, n_heads, seed)
        of_orders[f"random {seed}"] = ks
        for k in ks:
            if 2 * k <= n_layers * n_heads:  # else there are fewer other heads than these
                orders[f"matched {k} {seed}"] = matched_order(order[:k], n_layers, n_heads, seed)
                of_orders[f"matched {k} {seed}"] = (k,)
    return orders, of_orders


def most_heads(config: KnockoutConfig, n_layers: int, n_heads: int) -> int:
    """How many heads the curves go up to."""
    return n_layers * n_heads // 4 if config.most is None else config.most


def _plan(model: al.HookedModel, config: KnockoutConfig) -> str:
    """The computation in words."""
    most = most_heads(config, model.n_layers, model.n_heads)
    left = max(config.candidates - min(most, config.masked), 0)
    tried = sum(range(config.candidates, left, -1))
    controls = 2 * config.controls * len(control_ks(most))
    by_effect = (2 + bool(config.second_ablation)) * most
    layers = model.n_layers
    of_mlps = config.mlps * (layers + config.controls * len(control_ks(layers)))
    return (
        f"{len(config.operations)} operations, each: a path patching of every head; {by_effect} "
        f"knockouts of 1 to {most} of {layers * model.n_heads} heads by effect, {controls} "
        f"of control heads, {tried} for iterative masking, {of_mlps} of MLPs. A knockout "
        "costs at most one forward of the pairs; layers below its lowest head are not computed."
    )


def report(run: Run) -> None:
    """For each operation, print what a knockout of key heads and of other heads costs."""
    for operation in run.config["operations"]:
        curves = KNOCKOUT_CURVES.load(run, operation)
        key = al.key_heads(MAP.load(run, operation))
        effect, facts = curves["effect"], KNOCKOUT_CURVES.facts(run, operation)
        size = f"{facts['distinct']} references of {facts.get('problems')} problems"
        print(f"\n{operation}: {size}; the filter keeps those that are right at k=0")
        for k in sorted({len(key), 4, 8, 12, effect.ks[-1]} & {*effect.ks} - {0}):
            is_key = k == len(key) and not run.config.get("heads")
            named = " (the key heads)" * is_key
            print(f"  without {k} head{'s' * (k > 1)}{named}: {effect.drop(k).accuracy}")
            for control, others in controls_at(curves, k).items():
                print(f"    {control:>8}: {_spread([float(one.accuracy()) for one in others])}")
        k = effect.ks[-1]
        print(f"  without {k} heads, at END alone: {curves['END'].drop(k).accuracy}")
        kind = run.config["second_ablation"]
        if kind and kind in curves:
            print(f"  without {k} heads, {kind}: {curves[kind].drop(k).accuracy}")
        if "MLPs" in curves:
            _print_mlps(curves)
        if "iterative" in curves:
            _print_iterative(curves["iterative"], effect)


def _print_mlps(curves: KnockoutCurves) -> None:
    mlps, controls = curves["MLPs"], curves.starting("MLPs random ")
    for k in sorted({*mlps.ks} & {*controls[0].ks}):
        others = _spread([float(curve.at(k).accuracy()) for curve in controls])
        print(f"  without {k} MLP{'s' * (k > 1)}: {mlps.drop(k).accuracy}; at random {others}")


def _spread(shares: Sequence[float]) -> str:
    return (
        f"{sum(shares) / len(shares):.1%} right on average, {min(shares):.1%} to {max(shares):.1%} "
        f"over {len(shares)} draws"
    )


def _print_iterative(iterative: al.KnockoutCurve, effect: al.KnockoutCurve) -> None:
    first = ", ".join(map(str, iterative.order[:8]))
    print(f"  iterative masking chooses {first}, ...: {iterative.n_forwards:.0f} forwards")
    for share in (0.5, 0.2):
        needed = [heads_until(curve, share) for curve in (iterative, effect)]
        print(f"    heads until accuracy is below {share:.0%}: {needed[0]}; by effect {needed[1]}")


def heads_until(curve: al.KnockoutCurve, share: float) -> int | None:
    """The smallest k at which accuracy is below `share`; None where it never is."""
    below = (curve.accuracy() < share).nonzero().flatten().tolist()
    return curve.ks[below[0]] if below else None


main = Experiment(
    "are_they_needed", KnockoutConfig, compute, _plan, report, figure="fig3", shares=True
)
