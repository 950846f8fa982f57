"""The comparison: a random model, the scores of this project, those of others, one row for each."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from arith_lens import HookedModel, PromptPairs, attribute, load_model
from arith_lens.attribution import ATTRIBUTION_METHODS
from arith_lens.attribution.rules import (
    halve_gated_products,
    hold_attention_weights,
    hold_norm_scales,
    soften_softmax,
    split_attention_products,
)
from experiments.command import exit_on_user_error
from laboratory.authors.exchange import Result, Scores, Task, load_results, timed
from laboratory.speed.measure import Shape, any_tokenizer, random_llama, random_token_pairs, twin

if TYPE_CHECKING:
    from pandas import DataFrame

SHAPE = Shape(8, 256, 16, 688, 1000, n_pairs=8, n_tokens=16)
SCALE = 3.0
"""By how much weights are larger than Transformers draws them: attention then differs by token."""
RULES: Mapping[str, Callable[[HookedModel], AbstractContextManager[None]]] = {
    "norms": hold_norm_scales,
    "attention": split_attention_products,
    "products": halve_gated_products,
    "softmax": partial(soften_softmax, temperature=2.0),
    "weights": hold_attention_weights,
}
"""As docs/attribution.md names them."""
ROOT = Path(__file__).parents[2]


def random_model(shape: Shape) -> Any:
    """A LLaMA whose heads tell in the logits, and whose norms have weights."""
    hf = random_llama(shape, "cpu", torch.float32)
    for name, weight in hf.named_parameters():
        if "norm" in name:
            weight.data.uniform_(0.5, 1.5)
        else:
            weight.data.mul_(SCALE)
    return hf


def task_of(hf: Any, pairs: PromptPairs, folder: Path, rounds: int) -> Task:
    """Write the model and the prompts for the other side."""
    task = Task(folder, pairs.reference, pairs.counterfactual, pairs.answer, rounds)
    task.write(hf)
    return task


def own_scores(model: HookedModel, pairs: PromptPairs, method: str) -> Scores:
    """The scores of this project over all paths.

    Args:
        model: the model.
        pairs: the prompts.
        method: a method of attribution, rules of `RULES` for the gradient, or both: `"relp"`,
            `"attention, products"`, `"relp, weights"`.
    """
    first, *rest = method.split(", ")
    name, rules = (first, rest) if first in ATTRIBUTION_METHODS else ("atp", [first, *rest])
    with ExitStack() as stack:
        for rule in rules:
            stack.enter_context(RULES[rule](model))
        options: dict[str, Any] = {"paths": "total", "metric": "logit", "progress": False}
        effects = attribute(model, pairs, method=name, **options)
    return {"heads": effects.heads.per_pair, "mlps": effects.mlps.per_pair}


def their_results(adapter: str, path: str, task: Task) -> list[Result]:
    """What one code of others computes in a process of its own.

    Args:
        adapter: a module of `laboratory.authors`.
        path: folders in front of the installed packages, as in `PYTHONPATH`.
        task: the model and the prompts.
    """
    file = task.folder / "results.safetensors"
    command = [sys.executable, "-m", "laboratory.authors"]
    command += [adapter, str(task.folder), str(file), str(task.rounds)]
    environment = os.environ | {
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
        "HF_HUB_OFFLINE": "1",
    }
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if ended.returncode != 0:
        last = ended.stderr.strip().rpartition("\n")[2]
        raise RuntimeError(f"expected results of {adapter}, found {last}; run its module alone")
    return load_results(file)


def compared(one: Result, ours: Scores, seconds: float) -> dict[str, Any]:
    """One row: the largest difference of heads and of MLPs, our largest score, and correlations."""
    row = facts(one) | {"seconds": seconds, "their_seconds": one.seconds}
    for part, own in ours.items():
        other = (one.scores or {})[part]
        if own.shape != other.shape:
            raise ValueError(f"expected scores of {[*own.shape]}, found {[*other.shape]} of {part}")
        row[f"{part}_difference"] = float((own - other).abs().max())
        row[f"{part}_largest"] = float(own.abs().max())
        row[f"{part}_r"] = float(np.corrcoef(own.flatten(), other.flatten())[0, 1])
    return row


def facts(one: Result) -> dict[str, Any]:
    """Whose code, and how it was run."""
    names = ("method", "code", "version", "change", "missing")
    return {name: getattr(one, name) for name in names}


def rows(
    model: HookedModel, pairs: PromptPairs, task: Task, others: Sequence[Result]
) -> Iterator[dict[str, Any]]:
    """A row for each result of others; each method here is computed and timed once."""
    own: dict[str, tuple[Scores, float]] = {}
    for one in others:
        if one.scores is None:
            yield facts(one)
            continue
        if one.method not in own:
            own[one.method] = timed(partial(own_scores, model, pairs, one.method), task.rounds)
        yield compared(one, *own[one.method])


def compare_attribution(
    *,
    eap_ig: tuple[str, ...] = ("",),
    lxt: tuple[str, ...] = ("",),
    relp: tuple[str, ...] = ("",),
    gim: tuple[str, ...] = ("",),
    rounds: int = 3,
    threads: int = 1,
    file: Path = Path("laboratory") / "authors" / "scores.csv",
) -> None:
    """Compare the scores of `attribute` with those of the authors' own code, on a random LLaMA.

    Each code of others runs in a process of its own. Its folders stand in front of the installed
    packages, so that another TransformerLens than this project's can be used. What is not
    installed, and what fails, has a row that says so.

    Args:
        eap_ig: folders with EAP-IG (its `src`) and TransformerLens 2.16.1, joined by ":".
        lxt: the checkout of lxt; several paths are run one after another.
        relp: the folder `TransformerLens` of RelP's checkout.
        gim: folders with gim-explain (and TransformerLens 2.16.1), such as two versions of it.
        rounds: how often each method is timed.
        threads: of PyTorch, on both sides.
        file: the CSV file that is written.
    """
    import pandas as pd

    torch.set_num_threads(threads)
    paths = {"plain": ("",), "eap_ig": eap_ig, "lxt": lxt, "relp": relp, "gim": gim}
    hf, pairs = random_model(SHAPE), random_token_pairs(SHAPE)
    with exit_on_user_error(), TemporaryDirectory() as folder:
        task = task_of(twin(hf), pairs, Path(folder), rounds)
        model = load_model((hf, any_tokenizer()))
        others = [
            one
            for adapter, own in paths.items()
            for path in own
            for one in their_results(adapter, path, task)
        ]
        table: DataFrame = pd.DataFrame(rows(model, pairs, task, others))
    table.to_csv(file, index=False, float_format="%.3g")
    print(table.to_string())
