"""What a training step would take of memory, by method, without the memory: shapes alone are run.

`kept_bytes` runs the forward on tensors without contents, and sums what autograd keeps for the
backward. The rest is arithmetic. Of the twelve peaks that `make bench-finetune` measured (see
docs/performance.md) this gives 97% to 114%.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from arith_lens.fine_tuning.methods import Settings, prepare
from experiments.benchmark.shapes import Shape, random_llama
from experiments.benchmark.table import Cell, Column, Table
from experiments.benchmark_fine_tuning.steps import METHODS, upper_heads

GIB = 2**30
CARDS = (16, 24, 32, 40, 48, 80, 141)
"""Memory that GPUs are sold with, in GB; they have about as many GiB."""
USABLE = 0.95
"""Share of it: the rest goes to the context, and is lost between allocations."""
COLUMNS = {
    "method": Column("method"),
    "gradient checkpointing": Column("recompute"),
    "weights, GiB": Column("weights", ",.1f", 1 / GIB),
    "gradients": Column("gradients", ",.1f", 1 / GIB),
    "optimizer state": Column("state", ",.1f", 1 / GIB),
    "kept for the backward": Column("kept", ",.1f", 1 / GIB),
    "peak, about": Column("peak", ",.1f", 1 / GIB),
    "": Column("remark"),
}


@dataclass(frozen=True)
class Need:
    """Bytes of a training step."""

    weights: int
    trained: int  # of the weights that are trained; as much their gradients, twice it AdamW's state
    kept: int  # by autograd, from the forward to the backward
    logits: int  # in float32

    @property
    def peak(self) -> int:
        """At most. The loss's backward has two more tensors of the logits' size; AdamW on a GPU
        one more of the trained weights' size, when nothing else is kept."""
        return self.weights + 3 * self.trained + max(self.kept + 2 * self.logits, self.trained)


def plan_table(shape: Shape, dtype: str, available: int | None = None) -> Table:
    """A row a method, with gradient checkpointing and without.

    Args:
        available: bytes of the GPU that there is; None: says which size would do.
    """
    rows: list[dict[str, Cell]] = []
    for recompute in (False, True):
        for method in METHODS:
            need = needed(method, shape, dtype, recompute=recompute)
            rows.append(
                {
                    "method": method,
                    "recompute": "yes" if recompute else "no",
                    "weights": need.weights,
                    "gradients": need.trained,
                    "state": 2 * need.trained,
                    "kept": need.kept,
                    "peak": need.peak,
                    "remark": fitting(need.peak, available),
                }
            )
    return Table(rows)


def fitting(peak: int, available: int | None) -> str:
    """Where it fits, in words."""
    if available is None:
        card = next((size for size in CARDS if peak <= USABLE * size * GIB), None)
        most = f"does not fit a GPU of {CARDS[-1]} GB"
        return most if card is None else f"wants a GPU of {card} GB"
    lacks = peak - USABLE * available
    there = f"{available / GIB:.0f} GiB"
    return f"fits in {there}" if lacks <= 0 else f"does not fit in {there}: {lacks / GIB:.1f} short"


@cache
def needed(method: str, shape: Shape, dtype: str, *, recompute: bool = False) -> Need:
    """What a step of `steps.tuner_of` with the same arguments takes."""
    half = dtype == "bfloat16"
    weights = torch.bfloat16 if half and method != "full" else torch.float32
    with _without_contents(method) as device:
        heads = [] if method == "full" else upper_heads(shape)
        plain = random_llama(shape, device, weights)
        model = prepare(plain, method, heads, [], Settings(bf16=half)).model.train()
        if recompute:
            model.gradient_checkpointing_enable({"use_reentrant": False})
            if method == "lora":
                model.enable_input_require_grads()
        parameters = [*model.parameters()]
        autocast = torch.autocast("cpu", torch.bfloat16, enabled=half and method == "full")
        with autocast:
            kept = kept_bytes(model, shape, device)
    return Need(
        sum(weight.nbytes for weight in parameters),
        sum(weight.nbytes for weight in parameters if weight.requires_grad),
        kept,
        4 * shape.n_pairs * shape.n_tokens * shape.d_vocab,
    )


def kept_bytes(model: Any, shape: Shape, device: str) -> int:
    """What autograd keeps of a batch for the backward, the weights themselves left out."""
    own = {weight.untyped_storage()._cdata for weight in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage  # held, so that no other takes its place
        return tensor

    ids = torch.zeros(shape.n_pairs, shape.n_tokens, dtype=torch.long, device=device)
    with ExitStack() as stack:
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor))
        # the mask depends on what the batch holds, which is nothing; rows of one length have none
        stack.enter_context(
            patch("transformers.models.llama.modeling_llama.create_causal_mask", _no_mask)
        )
        model(input_ids=ids, labels=ids, use_cache=False)
    return sum(storage.nbytes() for storage in kept.values())


def _no_mask(**_: Any) -> None: ...


@contextmanager
def _without_contents(method: str) -> Iterator[str]:
    """Tensors made inside have shapes and nothing else; gives the device to make them on.

    peft refuses to move fake tensors, so LoRA is on the meta device, whose attention also keeps
    its weights: a few percent too much.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    with nullcontext() if method == "lora" else FakeTensorMode():
        yield "meta" if method == "lora" else "cpu"
