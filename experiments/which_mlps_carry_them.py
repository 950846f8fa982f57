"""Which MLPs carry the key heads' effects? From the probes of Figure 6 to a cause.

For each operation, the heads with the strongest effects: each is patched while one MLP at a time
stays as it was, and while one alone may answer. Beside it, what each MLP writes: its cosine with
the unembedding of each number. Saves a run under
results/which_mlps_carry_them/, which `figures/carriers.py` draws.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

import arith_lens as al
from arith_lens.mediation import mediation_flops
from arith_lens.path_patching.trunk import trunk_of
from arith_lens.problems import FOUR
from arith_lens.runs import Run
from experiments.command import command, parts_said
from experiments.strongest import by_effect
from experiments.which_heads import BEFORE_FILTER, Dtype, Operation, loaded_model, said_plainly
from experiments.which_paths import samples


@dataclass(frozen=True)
class Config:
    """Which MLPs carry the key heads' effects?"""

    model: str = "reference"
    """A shipped model's name, a Hugging Face id, or a directory."""
    operations: tuple[Operation, ...] = FOUR
    """The calculations to look at."""
    n: int | None = None
    """Distinct reference prompts an operation, before the filter; all there are if not given."""
    seed: int = 0
    """Of the sampling."""
    top: int = 5
    """Heads an operation, the strongest via MLPs."""
    metric: Literal["relative_logit", "logit", "logprob", "probability"] = "relative_logit"
    """What is read from the logits."""
    keep: Literal["correct", "all"] = "correct"
    """Look at the prompts that the model answers right, or at all."""
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
        dry_run: print what it would cost, and stop.
        again: compute anew what an earlier run of this configuration has saved.
    """
    model = loaded_model(config, weights=not dry_run)
    with said_plainly():
        trunk_of(model)  # mediation is by the sweep alone
    if dry_run:
        middle = [al.Head(model.n_layers // 2, i) for i in range(min(config.top, model.n_heads))]
        for operation, pairs in samples(model, replace(config, keep="all"), config.operations):
            flops = mediation_flops(model, pairs, middle)
            print(f"{operation}: {al.plan(model, pairs)}, to find the heads{BEFORE_FILTER}")
            print(f"  then about {flops:.3g} FLOPs for {len(middle)} heads of a middle layer")
        return
    with said_plainly():
        opened = al.open_run("which_mlps_carry_them", config, model=model, root=root, again=again)
    with opened as run:
        saved = () if again else run.names
        missing = [name for name in config.operations if f"{name}-writes" not in saved]
        for operation, pairs in samples(model, config, missing):
            with parts_said():
                compute(run, operation, model, pairs, config)
    if run.finished:
        report(run)


def compute(
    run: Run, operation: str, model: al.HookedModel, pairs: al.PromptPairs, config: Config
) -> None:
    """The strongest heads, what carries their effects, and what the MLPs write."""
    asked: dict[str, Any] = {"metric": config.metric, "run": run}
    effects = al.path_patch(model, pairs, name=f"{operation}-effects", **asked)
    al.mediators(model, pairs, by_effect(effects, config.top), name=operation, **asked)
    run.save(f"{operation}-writes", lambda: al.mlp_probe(model, pairs, read="write"), pairs=pairs)


def report(run: Run) -> None:
    """Print each head's effect, what of it is direct, and the MLPs that carry most."""
    print(f"{run.config['model']}, {run.config['metric']}")
    show = "{:+.1%}".format if run.config["metric"] == "relative_logit" else "{:+.3g}".format
    for operation in run.config["operations"]:
        found = al.Mediation.from_arrays(run.load_arrays(operation))
        print(f"\n{operation}: {len(found.logit)} pairs")
        whole, direct = found.via_mlps.mean(), found.direct.mean()
        carried, left = found.carried.mean(), found.interaction.mean()
        for index, head in enumerate(found.heads):
            most = carried[index].argsort()[:4].tolist()
            shown = ", ".join(f"MLP {k} {show(carried[index, k])}" for k in most)
            print(
                f"  {head!s:>6}: {show(whole[index])} via MLPs, {show(direct[index])} direct; lost "
                f"when held, {shown}; all with the direct sum to "
                f"{show(whole[index] - left[index, 0])}"
            )
    print(f"\nsaved in {run.path}")


if __name__ == "__main__":
    command(main, "which_mlps_carry_them", __doc__, shares=True)
