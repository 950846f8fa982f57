"""GIM by its authors: the package `gim-explain`, on Transformers and on TransformerLens."""

import importlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from laboratory.authors.exchange import (
    Result,
    Task,
    hooked_scores,
    llama_scores,
    result_of,
)

METHOD, PACKAGE, DISTRIBUTION = "gim", "gim", "gim-explain"
WHOLE = "norms, softmax, attention, products"
"""The rules of GIM."""


def results(task: Task, version: str) -> Iterator[Result]:
    """On Transformers and on TransformerLens, beside GIM here and beside the rules that apply."""
    gim: Any = importlib.import_module("gim")
    products = ", products" if find_spec("gim.context.mlp") else ""  # since release 0.1.4
    fused, eager, hooked = task.llama("sdpa"), task.llama("eager"), task.hooked()
    for code, compute, model, rules in (
        ("Transformers, fused attention", llama_scores, fused, "attention"),
        ("Transformers, eager attention", llama_scores, eager, ""),
        ("TransformerLens", hooked_scores, hooked, "norms, softmax, attention"),
    ):
        scores = partial(compute, model, task, partial(gim.GIM, model))
        one = result_of("gim", f"gim on {code}", scores, task, version=version)
        yield one
        if one.scores and rules + products != WHOLE:
            yield replace(one, method=rules + products)
