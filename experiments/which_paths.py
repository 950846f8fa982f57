"""On which paths do the strongest heads act? Direct, through MLPs, through later heads.

For each operation, the heads with the strongest effects via MLPs: their effect on the answer's
logit where nothing but the residual stream carries it (direct, Algorithm 1), where MLPs do too
(Appendix B), and where everything does (total, activation patching by hooks). Saves a run under
results/which_paths/, which `figures/paths.py` shows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

import arith_lens as al
from arith_lens.problems import FOUR
from experiments.command import command, parts_said
from experiments.which_heads import (
    BEFORE_FILTER,
    Operation,
    fitting_engine,
    loaded_model,
    said_plainly,
)

MEANINGS: tuple[dict[str, Any], ...] = (
    {"paths": "via_mlps"},
    {"paths": "direct"},
    {"paths": "total", "engine": "hooks"},
)


@dataclass(frozen=True)
class Config:
    """On which paths do the strongest heads act? Direct, through MLPs, through later heads."""

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
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """The checkpoint's own on a GPU, float32 on a CPU, if not given."""
    device: str | None = None
    """Such as cuda:1; the GPU if there is one."""


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
) -> None:
    """Compute and save.

    Args:
        config: what to compute.
        root: where runs are kept.
        dry_run: print what it would cost, and stop.
    """
    model = loaded_model(config, weights=not dry_run)
    engine = fitting_engine(model)
    meanings = [{"engine": engine, **meaning} for meaning in MEANINGS]
    if dry_run:
        for operation, pairs in samples(model, replace(config, keep="all"), config.operations):
            some = [al.Head(0, index) for index in range(min(config.top, model.n_heads))]
            for meaning in meanings:
                cost = al.plan(model, pairs, senders=some, metric=config.metric, **meaning)
                print(f"{operation}, {meaning['paths']}: {cost}{BEFORE_FILTER}")
        return
    with said_plainly():
        opened = al.open_run("which_paths", config, model=model, root=root)
    with opened as run:
        missing = [name for name in config.operations if f"{name}-total" not in run.names]
        for operation, pairs in samples(model, config, missing):
            heads = None  # every head, of which the strongest are then asked again
            with parts_said():
                for meaning in meanings:
                    asked: dict[str, Any] = {"senders": heads, "metric": config.metric, **meaning}
                    name = f"{operation}-{meaning['paths']}"
                    effects = al.path_patch(model, pairs, run=run, name=name, **asked)
                    heads = heads or effects.heads.top(config.top)
    print(f"saved in {run.path}")


def samples(
    model: al.HookedModel, config: Any, operations: tuple[str, ...] | list[str]
) -> Iterator[tuple[str, al.PromptPairs]]:
    """Each operation's name and pairs, as many and as kept as a configuration says."""
    for operation in operations:
        with said_plainly():
            pairs = al.sample_pairs(
                model, operation, n=config.n, seed=config.seed, keep=config.keep
            )
        yield operation, pairs


if __name__ == "__main__":
    command(main, "which_paths", __doc__, shares=True)
