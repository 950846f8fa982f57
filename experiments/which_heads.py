"""Which heads does the answer depend on? Path patching from every head and MLP to the logits."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pandas import DataFrame
from torch import Tensor

import arith_lens as al
from arith_lens.effects import KEY
from arith_lens.paper import PaperModel, paper_model
from arith_lens.runs import Run
from experiments.command import continue_after_part
from experiments.configs.effects import MapConfig, PathsConfig
from experiments.results import MAP, PATH_EFFECTS
from experiments.settings import (
    Experiment,
    file_pairs,
    fitting_engine,
    operation_pairs,
    patch_and_store,
    plan_maps,
    sampled_operation,
    save_maps,
)

DRAW_OPTIONS = ("counterfactual", "draws", "keep")
"""Settings that say which pairs are drawn, in the words of `sampled_operation`."""
N_ROWS = 12
"""How many key heads are printed."""


def compute(run: Run, model: al.HookedModel, config: MapConfig) -> None:
    """The effects of every head and MLP, for each operation."""
    save_maps(run, model, sampled_pairs(model, config), **_settings(model, config))


def _plan(model: al.HookedModel, config: MapConfig) -> str:
    sampled = sampled_pairs(model, replace(config, keep="all"))
    return plan_maps(model, sampled, **_settings(model, config))


def _settings(model: al.HookedModel, config: MapConfig) -> dict[str, Any]:
    """The settings of path patching."""
    engine = config.engine
    if engine == "auto":
        engine = fitting_engine(model, config.paths)
    return {"paths": config.paths, "metric": config.metric, "engine": engine}


def sampled_pairs(model: al.HookedModel, config: MapConfig) -> Iterator[tuple[str, al.PromptPairs]]:
    """Each operation's name and pairs; the name is "pairs" if a file of prompts has none."""
    if config.pairs is None:
        options = config.numbers | {name: getattr(config, name) for name in DRAW_OPTIONS}
        for operation in config.operations:
            yield operation, sampled_operation(model, operation, config, **options)
        return
    yield from file_pairs(model, config.pairs, keep=config.keep)


def report(run: Run) -> None:
    """Print the key heads of each operation, then the heads that are key in all."""
    print(f"{run.config['model']}, paths {run.config['paths']}, {run.config['metric']}")
    key = {}
    for name in MAP.labels(run):
        effects, facts = MAP.load(run, name), MAP.facts(run, name)
        if effects.heads.metric in KEY:
            key[name] = al.key_heads(effects)
        print(f"\n{name}: {_sample_text(facts, effects)}")
        computed = run.computed(MAP.name(name))
        _print_heads("all pairs", effects.heads)
        if computed is not None and computed.any():
            _print_heads(f"{int(computed.sum())} not copied", effects.heads.select(computed))
        _print_table(effects, computed)
    if not key:
        print(
            f"\nno key heads: the threshold ({KEY['relative_logit']:.0%}) is for relative_logit, "
            f"and the metric of this run is {run.config['metric']}"
        )
    if len(key) > 1:
        shared = set.intersection(*map(set, key.values()))
        print(f"\nkey in all {len(key)}: {', '.join(map(str, sorted(shared))) or 'none'}")
    _print_paper(paper_model(run.config["model"]), MAP.labels(run))


def _sample_text(facts: Mapping[str, Any], effects: al.ComponentEffects) -> str:
    """How many pairs there are, how the filter chose them, and why others are left out."""
    chosen, n_pairs = facts["selection"], facts["pairs"]
    text = f"{facts['distinct']} different prompts, {n_pairs} pairs"
    if chosen:
        text += (
            f"; mean p(C) {chosen['mean_probability']:.1%}; counterfactuals still answered C "
            f"{chosen['counterfactual_correct']:.1%}"
        )
    sampled = chosen["n_drawn"] if chosen else n_pairs
    why = {"answered wrong": sampled - n_pairs}
    if effects.heads.metric == "relative_logit":
        why["logit not positive"] = effects.n_left_out
    shares = ", ".join(f"{count} {reason} ({count / sampled:.1%})" for reason, count in why.items())
    return f"{text}\n  left out of {sampled} pairs: {shares}"


def _print_heads(of: str, effects: al.Effects) -> None:
    """Print the key heads, their share of all heads, and their layers."""
    if effects.metric not in KEY:
        return
    means, heads = effects.mean(), al.key_heads(effects)
    layers = sorted({head.layer for head in heads})
    where = f"; layers {layers[0]} to {layers[-1]}" if len(layers) > 1 else ""
    share = f"{len(heads)} of {means.numel()} heads ({len(heads) / means.numel():.1%}){where}"
    names = ", ".join(map(str, heads[:N_ROWS])) + ", ..." * (len(heads) > N_ROWS)
    print(f"  {of:>14}: {share}: {names or 'none'}")
    if heads:
        by_key = sum(means[head.layer, head.index] for head in heads) / means[means < 0].sum()
        print(f"  {'':>14}  {by_key:.0%} of the sum of all negative effects of heads")


def _print_table(effects: al.ComponentEffects, computed: Tensor | None) -> None:
    """Print the key heads (or the strongest) with intervals, tests, and copied answers apart."""
    heads = effects.heads
    chosen = al.key_heads(effects)[:N_ROWS] if heads.metric in KEY else heads.top(5)
    if not chosen:
        return
    show = "{:+.1%}".format if heads.metric in KEY else "{:+.3g}".format
    means, (low, high), (q, _) = heads.mean(), heads.ci(), effects.q_values()
    sides = None
    if computed is not None and computed.any() and not computed.all():
        sides = al.contrast(heads, computed).set_index("head")
    rows = []
    for head in chosen:
        at = (head.layer, head.index)  # pyright: ignore[reportAttributeAccessIssue]
        row = {"head": str(head), "effect": show(means[at])}
        row |= {"95% interval": f"{show(low[at])} to {show(high[at])}", "q-value": f"{q[at]:.1g}"}
        if sides is not None:
            side = sides.loc[str(head)].drop(["layer", "index"]).map(show)
            row |= {"not copied": side["mean_in"], "copied": side["mean_out"]}
            row["difference"] = f"{side['difference']} ({side['ci_low']} to {side['ci_high']})"
        rows.append(row)
    print(DataFrame(rows).to_string(index=False))


def _print_paper(paper: PaperModel | None, operations: Collection[str]) -> None:
    """Print the paper's findings about its models: key heads, some with effects, and layers."""
    if paper is None:
        return
    for source, heads in dict.fromkeys(map(paper.reported, operations)):
        effects = paper.effects if heads == paper.key_heads else {}
        named = [f"{h} {effects[h]:+.1%}" if h in effects else str(h) for h in heads]
        if named:
            print(f"\nthe paper, {paper.name} ({source}): {', '.join(named)}")
    if paper.key_layers and paper.key_mlps_after:
        first, last = paper.key_layers
        print(
            f"  mostly in layers {first} to {last}; MLPs 0 to {paper.key_mlps_after - 1} about 0, "
            f"after layer {paper.key_mlps_after} about ±10% (section 5.1)"
        )


main = Experiment(
    "which_heads",
    MapConfig,
    compute,
    _plan,
    report,
    figure="fig2",
    inputs=lambda config: () if config.pairs is None else (config.pairs,),
    shares=True,
)


PATHS_SETTINGS: tuple[dict[str, Any], ...] = (
    {"paths": "via_mlps"},
    {"paths": "direct"},
    {"paths": "total", "engine": "hooks"},
)


def _save_paths(run: Run, model: al.HookedModel, config: PathsConfig) -> None:
    """The map of each operation, then its strongest heads on the other kinds of paths."""
    shared = {"metric": config.metric, "engine": fitting_engine(model)}
    for operation, pairs in operation_pairs(model, config, keep=config.keep):
        heads = None  # first every head, then the strongest ones
        with continue_after_part():
            for meaning in PATHS_SETTINGS:
                settings = {"senders": heads, **shared, **meaning}
                name = operation, meaning["paths"]
                effects = patch_and_store(run, model, pairs, PATH_EFFECTS, *name, **settings)
                heads = heads or effects.heads.top(config.top)


def _plan_paths(model: al.HookedModel, config: PathsConfig) -> str:
    some = [al.Head(0, index) for index in range(min(config.top, model.n_heads))]
    shared = {"senders": some, "metric": config.metric, "engine": fitting_engine(model)}
    return "\n".join(
        plan_maps(model, [(f"{operation}, {meaning['paths']}", pairs)], **(shared | meaning))
        for operation, pairs in operation_pairs(model, config, keep="all")
        for meaning in PATHS_SETTINGS
    )


which_paths = Experiment(
    "which_paths", PathsConfig, _save_paths, _plan_paths, figure="paths", shares=True
)
