"""Runs of invented effects, for the figures to draw."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from arith_lens.effects import ComponentEffects, Effects
from arith_lens.knockout import KnockoutCurves
from arith_lens.runs import Run, open_run
from arith_lens.statistics import Units
from experiments import results

OPERATIONS = ("addition", "subtraction", "multiplication", "division")


def make_effects(operation: str, n_layers: int, n_heads: int) -> ComponentEffects:
    generator = torch.Generator().manual_seed(len(operation))
    n_pairs = 18
    heads = torch.randn(n_layers, n_heads, n_pairs, generator=generator) / 200
    heads[4, 6] -= 0.15
    heads[5, 1] -= 0.08
    heads[7, 2] += 0.09
    mlps = torch.randn(n_layers, n_pairs, generator=generator) / 20
    shared = {
        "metric": "relative_logit",
        "paths": "via_mlps",
        "template": tuple(f"{operation}/{i % 3}" for i in range(n_pairs)),
        "cluster": torch.arange(n_pairs),
        "problem": tuple(f"problem {i // 3}" for i in range(n_pairs)),
    }
    return ComponentEffects(
        heads=Effects(heads, axes=("layer", "head"), **shared),
        mlps=Effects(mlps, axes=("layer",), **shared),
        logit=torch.full((n_pairs,), 9.0),
    )


class MadePairs:
    """The least that a run asks of pairs."""

    reference = counterfactual = torch.arange(18 * 4).reshape(18, 4)
    answer = torch.arange(18)
    counterfactual_answer = torch.full((18,), -1)
    attention_mask = torch.ones(18, 4, dtype=torch.bool)
    computed = torch.arange(18) % 2 == 0
    reference_text = counterparts = None
    n_distinct = 18
    selection = None
    units = Units(template=None, cluster=None, problem=None)

    def to_jsonl(self, path: Path) -> None:
        raise AssertionError("pairs without text have no such file")


@contextmanager
def made_run(experiment: str, config: Mapping[str, object], root: Path) -> Iterator[Run]:
    """A run to fill; the tables of its results are empty.

    No figure and no claim reads them, and the intervals in them take most of the time.
    """
    from pandas import DataFrame

    with pytest.MonkeyPatch.context() as patched:
        for kind in (ComponentEffects, Effects, KnockoutCurves):
            patched.setattr(kind, "to_dataframe", lambda _: DataFrame())
        with open_run(experiment, dict(config), root=root) as run:
            yield run


def shard_files(run: Run, name: str) -> list[Path]:
    """The finished shards of a result that is not whole."""
    folder = run.store.folder_of(run.manifest["unfinished"][name])
    return sorted(folder.glob("shards/*/0*.safetensors"))


def make_run(root: Path, model: str, n_layers: int = 12, n_heads: int = 8, **config) -> Run:
    usual = {"paths": "via_mlps", "metric": "relative_logit", "keep": "correct", "seed": 0}
    config = {**usual, "model": model, **config}
    with made_run("which_heads", config, root) as run:
        for operation in OPERATIONS:
            effects = make_effects(operation, n_layers, n_heads)
            results.MAP.save(run, effects, operation, pairs=MadePairs())
    return run
