"""Which MLPs carry the key heads' effects? A causal test of what the probes of Figure 6 show.

For each operation, each of the strongest heads is patched while one MLP at a time is frozen, and
while only one MLP may react. The run also has the cosine of what each MLP writes with the
unembedding of each number. Saves a run under results/which_mlps_carry_them/, which
`python -m figures carriers` draws.
"""

from dataclasses import dataclass
from typing import Any

import arith_lens as al
from arith_lens.mediation import mediation_flops
from arith_lens.path_patching.sweep import trunk_of
from arith_lens.runs import Run
from experiments.command import continue_after_part, exit_on_user_error
from experiments.results import MAP, MEDIATION, WRITES
from experiments.settings import (
    BEFORE_FILTER,
    Experiment,
    Keep,
    Metric,
    SampleSettings,
    operation_pairs,
    strongest_heads,
)


@dataclass(frozen=True)
class Config(SampleSettings):
    """Which MLPs carry the key heads' effects?"""

    top: int = 5
    """Heads per operation, the strongest via MLPs."""
    metric: Metric = "relative_logit"
    """What is read from the logits."""
    keep: Keep = "correct"
    """Use the prompts that the model answers right, or all."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """For each operation: the strongest heads, the MLPs that carry them, what the MLPs write."""
    with exit_on_user_error():
        trunk_of(model)  # mediation needs the sweep
    settings: dict[str, Any] = {"metric": config.metric, "run": run}
    for operation, pairs in operation_pairs(model, config, keep=config.keep):
        with continue_after_part():
            effects = al.path_patch(model, pairs, name=MAP.name(operation), **settings)
            heads = strongest_heads(effects, config.top)
            al.mediators(model, pairs, heads, name=MEDIATION.name(operation), **settings)
            WRITES.compute(run, al.mlp_probe, model, pairs, operation, read="write")


def _plan(model: al.HookedModel, config: Config) -> str:
    with exit_on_user_error():
        trunk_of(model)
    middle = [al.Head(model.n_layers // 2, i) for i in range(min(config.top, model.n_heads))]
    lines = []
    for operation, pairs in operation_pairs(model, config, keep="all"):
        flops = mediation_flops(model, pairs, middle)
        lines += [
            f"{operation}: {al.plan(model, pairs)}, to find the heads{BEFORE_FILTER}",
            f"  then about {flops:.3g} FLOPs for {len(middle)} heads of a middle layer",
        ]
    return "\n".join(lines)


def report(run: Run) -> None:
    """Print each head's effect, its direct effect, and the MLPs that carry most."""
    print(f"{run.config['model']}, {run.config['metric']}")
    show = "{:+.1%}".format if run.config["metric"] == "relative_logit" else "{:+.3g}".format
    for operation in run.config["operations"]:
        mediation = MEDIATION.load(run, operation)
        print(f"\n{operation}: {len(mediation.logit)} pairs")
        totals, direct = mediation.via_mlps.mean(), mediation.direct.mean()
        carried, interactions = mediation.carried.mean(), mediation.interaction.mean()
        for index, head in enumerate(mediation.heads):
            most = carried[index].argsort()[:4].tolist()
            strongest = ", ".join(f"MLP {k} {show(carried[index, k])}" for k in most)
            print(
                f"  {head!s:>6}: {show(totals[index])} via MLPs, {show(direct[index])} direct; "
                f"lost when held, {strongest}; all with the direct sum to "
                f"{show(totals[index] - interactions[index, 0])}"
            )


main = Experiment(
    "which_mlps_carry_them", Config, compute, _plan, report, figure="carriers", shares=True
)
