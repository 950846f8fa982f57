"""Where do the key heads look? Attention from END to operands, operator and everything else.

For each operation, the heads with the strongest effects, on all pairs, with random other heads as a
control; then whole patterns on prompts of other formats, and on one sentence with each operation's
word. Saves a run under results/where_do_they_look/, which `figures/fig5.py`, `fig7.py` and
`fig16.py` draw.
"""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro

import arith_lens as al
from arith_lens.attention import kinds_of, most_looked_at, patterns_of
from arith_lens.components import every_head
from arith_lens.effects import Effects
from arith_lens.knockout import random_order
from arith_lens.problems import FOUR
from arith_lens.runs import Run
from arith_lens.templates import TEMPLATES
from experiments.command import command
from experiments.strongest import by_effect
from experiments.what_comes_instead import KINDS as FORMATS
from experiments.which_heads import (
    BEFORE_FILTER,
    Dtype,
    Operation,
    fitting_engine,
    loaded_model,
    said_plainly,
)

OPERANDS = (8, 2)
"""One sentence for every operation's word: 8 plus 2, 8 minus 2, 8 times 2, 8 over 2."""


@dataclass(frozen=True)
class Config:
    """Where do the key heads look?"""

    model: str = "reference"
    """A shipped model's name, a Hugging Face id, or a directory."""
    operations: tuple[Operation, ...] = FOUR
    """The calculations to look at."""
    n: int | None = None
    """Distinct reference prompts an operation; all there are if not given."""
    seed: int = 0
    """Of the sampling, and of the random heads."""
    top: int = 10
    """Heads an operation, the strongest by effect; more where more are key heads."""
    shown: int = 4
    """Heads of each kind whose patterns are shown."""
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
    keep = "all" if dry_run else "correct"
    with said_plainly():
        samples = {
            name: al.sample_pairs(model, name, n=config.n, seed=config.seed, keep=keep)
            for name in config.operations
        }
    if dry_run:
        for name, pairs in samples.items():
            cost = al.plan(model, pairs, engine=fitting_engine(model))
            print(f"{name}: {cost}; then two forwards of the references{BEFORE_FILTER}")
        return
    with said_plainly():
        opened = al.open_run("where_do_they_look", config, model=model, root=root, again=again)
    with opened as run:
        for name, pairs in samples.items():
            if again or f"{name}-random" not in run.names:
                _look(run, name, model, pairs, config)
        if again or "all" not in run.names:
            _show(run, model, config)
    report(run)


def _look(
    run: Run, name: str, model: al.HookedModel, pairs: al.PromptPairs, config: Config
) -> None:
    """The strongest heads of an operation, and as many others at random."""
    effects = al.path_patch(
        model, pairs, run=run, name=f"{name}-effects", engine=fitting_engine(model)
    )
    key = [head for head in al.key_heads(effects) if isinstance(head, al.Head)]
    heads = by_effect(effects, max(config.top, len(key)))
    looks = al.attention_by_role(model, pairs, heads)
    facts = {"key": [str(head) for head in key], "kinds": kinds_of(looks)}
    run.save(name, looks, pairs=pairs, **facts)
    order = random_order(model.n_layers, model.n_heads, config.seed)
    others = [head for head in order if head not in heads][: len(heads)]
    run.save(f"{name}-random", al.attention_by_role(model, pairs, others), pairs=pairs)


def _show(run: Run, model: al.HookedModel, config: Config) -> None:
    """Patterns of operand heads on other formats, and of operator heads on operation words."""
    rng = random.Random(config.seed)
    formats = [draw(rng)[0] for draw in FORMATS.values()]
    run.save("formats", patterns_of(model, formats, _of_kind(run, "operand", config)))
    words = [TEMPLATES[name][1].render(*OPERANDS)[0] for name in config.operations]
    run.save("words", patterns_of(model, words, _of_kind(run, "operator", config)))
    run.save("all", patterns_of(model, words[0], every_head(model.n_layers, model.n_heads)))


def _of_kind(run: Run, kind: str, config: Config) -> list[al.Head]:
    """Heads of one kind in some operation, strongest effect first; the strongest of all if none."""
    found: dict[str, float] = {}
    every: dict[str, float] = {}
    for name in config.operations:
        means = run.load(f"{name}-effects").heads.mean()
        for text, own in run.facts(name)["kinds"].items():
            head = al.Head(*map(int, text.split(".")))
            effect = float(means[head.layer, head.index])
            every[text] = min(every.get(text, 0.0), effect)
            if own == kind:
                found[text] = min(found.get(text, 0.0), effect)
    ranked = sorted(found or every, key=(found or every).__getitem__)[: config.shown]
    return [al.Head(*map(int, text.split("."))) for text in ranked]


def report(run: Run) -> None:
    """Print each head's mean weight on each role, its kind, and what it looks at most often."""
    print(run.config["model"])
    for name in run.config["operations"]:
        looks, control = (
            Effects.from_arrays(run.load_arrays(f"{name}{x}")) for x in ("", "-random")
        )
        facts, effects = run.facts(name), run.load(f"{name}-effects").heads.mean()
        assert looks.labels is not None
        roles = looks.labels["role"]
        print(f"\n{name}: {facts['distinct']} distinct references; key heads: "
              f"{', '.join(facts['key']) or 'none'}")  # fmt: skip
        print(f"    head  effect  {''.join(f'{role:>11}' for role in roles)}  kind      most often")
        best = most_looked_at(looks).mean()
        for i, text in enumerate(looks.labels["head"]):
            layer, index = map(int, text.split("."))
            first = int(best[i].argmax())
            print(
                f"  {text:>6} {float(effects[layer, index]):+7.1%}  {_row(looks.mean()[i])}  "
                f"{facts['kinds'][text]:<9} {roles[first]} ({float(best[i, first]):.0%})"
            )
        print(f"  others at random {_row(control.mean().mean(0))}")
    print(f"\nsaved in {run.path}")


def _row(weights: torch.Tensor) -> str:
    return "".join(f"{float(weight):>11.1%}" for weight in weights)


if __name__ == "__main__":
    command(main, "where_do_they_look", __doc__, shares=False)
