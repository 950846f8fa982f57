"""Are the key heads needed? Accuracy as more and more heads are knocked out (the paper's Figure 3).

For each operation heads go in the order of their effect on the answer's logit, found by path
patching on the same prompts; then in two kinds of control orders: any heads at random, and other
heads of the same layers. Beside them stand knockout at END alone, and iterative masking, which
picks each next head by what its knockout costs. Saves a run under results/are_they_needed/, which
`figures/fig3.py` draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

import arith_lens as al
from arith_lens.knockout import (
    KnockoutCurves,
    knockout_curves,
    mask_greedily,
    matched_order,
    random_order,
)
from arith_lens.problems import FOUR
from arith_lens.runs import Run
from experiments.command import command, parts_said
from experiments.which_heads import Dtype, Operation, fitting_engine, loaded_model, said_plainly


@dataclass(frozen=True)
class Config:
    """Are the key heads needed? Accuracy without the first k heads of several orders."""

    model: str = "reference"
    """A shipped model's name, a Hugging Face id, or a directory."""
    operations: tuple[Operation, ...] = FOUR
    """The calculations to look at."""
    n: int | None = None
    """Distinct reference prompts an operation, before the filter; all there are if not given."""
    seed: int = 0
    """Of the sampling, and the first of the control orders."""
    most: int | None = None
    """Knock out up to so many heads; a quarter of all if not given."""
    controls: int = 10
    """Control orders of each kind."""
    candidates: int = 24
    """Heads that iterative masking chooses from, the strongest by effect; 0 leaves it out."""
    masked: int = 12
    """Heads that it takes out."""
    search_every: int = 3
    """It chooses on every third pair, so that its curve, over all pairs, is hardly flattered."""
    ablation: Literal["mean", "zero", "resample"] = "mean"
    """What stands in for a head's output; the paper's is the mean over counterfactuals."""
    dtype: Dtype = None
    """The checkpoint's own on a GPU, float32 on a CPU, if not given."""
    device: str | None = None
    """Such as cuda:1; the GPU if there is one."""


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
    again: bool = False,
) -> None:
    """Compute, save and print.

    Args:
        config: what to compute.
        root: where runs are kept.
        dry_run: print what would be computed, and stop.
        again: compute anew what an earlier run of this configuration has saved.
    """
    model = loaded_model(config, weights=not dry_run)
    if dry_run:
        print(_plan(model, config))
        return
    with said_plainly():
        opened = al.open_run("are_they_needed", config, model=model, root=root, again=again)
    with opened as run:
        for operation in config.operations:
            if again or operation not in run.names:
                with said_plainly():
                    pairs = al.sample_pairs(model, operation, n=config.n, seed=config.seed)
                with parts_said():
                    compute(run, operation, model, pairs, config)
    if run.finished:
        report(run)


def compute(
    run: Run, operation: str, model: al.HookedModel, pairs: al.PromptPairs, config: Config
) -> None:
    """A curve for each order, by name: `effect`, `random 0`, `matched 0`, `END`, `iterative`."""
    effects = al.path_patch(
        model, pairs, run=run, name=f"{operation}-effects", engine=fitting_engine(model)
    )
    shape = (model.n_layers, model.n_heads)
    order = [head for head in effects.heads.top(shape[0] * shape[1]) if isinstance(head, al.Head)]
    most = most_heads(config, *shape)
    controls: dict[str, Sequence[al.Head]] = {}
    for seed in range(config.seed, config.seed + config.controls):
        controls[f"random {seed}"] = random_order(*shape, seed)
        controls[f"matched {seed}"] = matched_order(order[:most], *shape, seed)
    kept: dict[str, Any] = {"run": run, "name": operation}  # in parts, until all is saved as one
    kept |= {"ablation": config.ablation, "seed": config.seed}
    settings: dict[str, Any] = kept | {"saves": False}
    ks = range(most + 1)
    curves = {
        "effect": al.knockout_curve(model, pairs, order, ks=ks, **settings),
        "END": al.knockout_curve(model, pairs, order, ks=ks, positions="end", **settings),
        **knockout_curves(model, pairs, controls, ks=control_ks(most), **settings),
    }
    if candidates := order[: config.candidates]:
        n = min(most, len(candidates), config.masked)
        search = pairs[:: config.search_every]
        found = mask_greedily(model, search, candidates, n=n, **kept)
        along = al.knockout_curve(model, pairs, found.order, ks=range(n + 1), **settings)
        curves["iterative"] = replace(along, n_forwards=found.n_forwards)
    run.save(operation, KnockoutCurves(curves), pairs=pairs)


def control_ks(most: int) -> tuple[int, ...]:
    """Where control curves are computed: their course is smooth, and there are twenty of them."""
    return tuple(k for k in range(most + 1) if k <= 2 or k % 4 == 0 or k == most)


def most_heads(config: Config, n_layers: int, n_heads: int) -> int:
    """How many heads the curves go up to."""
    return n_layers * n_heads // 4 if config.most is None else config.most


def _plan(model: al.HookedModel, config: Config) -> str:
    """What would be computed, in words."""
    most = most_heads(config, model.n_layers, model.n_heads)
    left = max(config.candidates - min(most, config.masked), 0)
    tried = sum(range(config.candidates, left, -1))
    controls = 2 * config.controls * (len(control_ks(most)) - 1)
    return (
        f"{len(config.operations)} operations, each: a path patching of every head; {2 * most} "
        f"knockouts of 1 to {most} of {model.n_layers * model.n_heads} heads by effect, {controls} "
        f"in control orders, {tried} for iterative masking. A knockout costs at most one forward "
        "of the pairs; layers below its lowest head are not computed."
    )


def report(run: Run) -> None:
    """Print, for each operation, what the key heads' loss costs beside that of other heads."""
    for operation in run.config["operations"]:
        curves = KnockoutCurves.from_arrays(run.load_arrays(operation))
        key = al.key_heads(run.load(f"{operation}-effects"))
        effect, facts = curves["effect"], run.facts(operation)
        print(f"\n{operation}: {facts['distinct']} references, right at k=0 by the filter")
        for k in sorted({len(key), 4, 8, 12, effect.ks[-1]} & {*effect.ks} - {0}):
            named = " (the key heads)" if k == len(key) else ""
            print(f"  {k} head{'s' * (k > 1)} out{named}: {effect.drop(k).accuracy}")
            for control in ("random", "matched") if k in control_ks(effect.ks[-1]) else ():
                others = [curve.drop(k).accuracy.after for curve in curves.starting(control)]
                print(f"    {control:>8}: {_spread(others)}")
        print(f"  END alone, {effect.ks[-1]} out: {curves['END'].drop(effect.ks[-1]).accuracy}")
        if "iterative" in curves:
            _print_iterative(curves["iterative"], effect)
    print(f"\nsaved in {run.path}")


def _spread(shares: Sequence[float]) -> str:
    return (
        f"{sum(shares) / len(shares):.1%} right on average, {min(shares):.1%} to {max(shares):.1%} "
        f"over {len(shares)} orders"
    )


def _print_iterative(iterative: al.KnockoutCurve, effect: al.KnockoutCurve) -> None:
    first = ", ".join(map(str, iterative.order[:8]))
    print(f"  iterative masking takes {first}, ...: {iterative.n_forwards:.0f} forwards")
    for share in (0.5, 0.2):
        needed = [heads_until(curve, share) for curve in (iterative, effect)]
        print(f"    heads until accuracy is below {share:.0%}: {needed[0]}; by effect {needed[1]}")


def heads_until(curve: al.KnockoutCurve, share: float) -> int | None:
    """The smallest k at which accuracy is below `share`; None where it never is."""
    below = (curve.accuracy() < share).nonzero().flatten().tolist()
    return curve.ks[below[0]] if below else None


if __name__ == "__main__":
    command(main, "are_they_needed", __doc__, shares=True)
