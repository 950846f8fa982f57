"""Attribution of nodes by Hanna et al.: `eap`, from github.com/hannamw/EAP-IG.

The code sums over pairs and tokens and wants a GPU, so that two texts of it are replaced. A third
replacement mends its scores of MLPs.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from laboratory.authors.exchange import Result, Scores, Task, result_of

METHOD, PACKAGE, DISTRIBUTION = "eap_ig", "eap", "eap"
HERE = {
    "device='cuda'": "device='cpu'",
    "activation_difference[:, :, fwd_index], grads,": (
        "activation_difference[:, -1:, fwd_index], grads[:, -1:],"
    ),
}
"""On a CPU, and at the last token alone."""
MENDED = {
    "bwd_hooks.append((node.in_hook, partial(gradient_hook": (
        "bwd_hooks.append((node.out_hook, partial(gradient_hook"
    )
}
"""The gradient at an MLP's output, which its change is of, in place of that at its input."""
STEPS = 5
METHODS = {
    "atp": "get_scores_eap",
    "clean_corrupted": "get_scores_clean_corrupted",
    "eap_ig": "get_scores_eap_ig",
    "ig_activations": "get_scores_ig_activations",
}


def module_with(replacements: Mapping[str, str]) -> Any:
    """`eap.attribute_node` with some texts replaced.

    Raises:
        ValueError: the code does not have one of the texts.
    """
    spec = find_spec("eap.attribute_node")
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    for text, other in replacements.items():
        if text not in source:
            raise ValueError(f"expected {text!r} in {spec.name}, found none; take commit 795f560")
        source = source.replace(text, other)
    module: Any = ModuleType(spec.name)
    module.__package__ = PACKAGE
    exec(compile(source, spec.origin, "exec"), module.__dict__)
    return module


def results(task: Task, version: str) -> Iterator[Result]:
    """Four methods, as they are and with the line for MLPs changed."""
    graphs: Any = importlib.import_module("eap.graph")
    wanted = {"use_attn_result": True, "use_split_qkv_input": True, "use_hook_mlp_in": True}
    model = task.hooked(wanted)
    for replacements, change in ((HERE, ""), (HERE | MENDED, "gradient at the MLPs' outputs")):
        module = module_with(replacements)
        module.tokenize_plus = lambda _, tokens: (
            tokens,
            torch.ones_like(tokens),
            torch.full(tokens.shape[:1], tokens.shape[1]),
            tokens.shape[1],
        )
        graph = graphs.Graph.from_model(model)
        for method, name in METHODS.items():
            function = getattr(module, name)
            options = {"steps": STEPS} if "_ig" in name else {}
            compute = partial(function, model, graph, quiet=True, **options)
            code = f"EAP-IG, {name.removeprefix('get_scores_')}"
            timing = partial(_summed, compute, task)
            one = result_of(method, code, timing, task, version=version, change=change)
            yield replace(one, scores=one.scores and _per_pair(compute, graph, task))


def _answers(logits: Tensor, _: Any, __: Any, answer: Tensor) -> Tensor:
    return logits[torch.arange(len(answer)), -1, answer].sum()


def _summed(compute: Callable[..., Tensor], task: Task) -> Scores:
    batch = (task.reference, task.counterfactual, task.answer)
    return {"all": compute(dataloader=[batch], metric=_answers)}


def _per_pair(compute: Callable[..., Tensor], graph: Any, task: Task) -> Scores:
    """One call for each pair: their scores are of a batch."""
    pairs = zip(task.reference, task.counterfactual, task.answer, strict=True)
    batches = ([part[None] for part in pair] for pair in pairs)
    rows = torch.stack(
        [compute(dataloader=[batch], metric=_answers).detach() for batch in batches], dim=-1
    )
    layers, heads = range(graph.cfg["n_layers"]), range(graph.cfg["n_heads"])

    def row(name: str) -> Tensor:
        index = graph.forward_index(graph.nodes[name], attn_slice=False)
        return rows[index]

    return {
        "heads": torch.stack([torch.stack([row(f"a{i}.h{j}") for j in heads]) for i in layers]),
        "mlps": torch.stack([row(f"m{i}") for i in layers]),
    }
