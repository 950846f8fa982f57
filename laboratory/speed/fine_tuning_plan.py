"""What a training step needs, by method: the least operations, and about how much memory.

Operations are matrix products alone, two per multiplication and addition, with attention's scores
regardless of causality, as libraries compute them. The forward is the same for all methods. In the
backward, inputs' gradients flow from the loss down to the lowest trained matrix and no further, and
weights have gradients only where they are trained. No implementation can do without these.

Memory is planned without the memory: `saved_tensor_bytes` runs the forward on tensors without
contents, and sums what autograd keeps for the backward. The rest is arithmetic. Of the twelve peaks
that `make bench-finetune` measured (see docs/performance.md) this gives 97% to 114%.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from arith_lens import Head, Mlp
from arith_lens.fine_tuning import TuningSettings, prepare
from arith_lens.fine_tuning.methods import Prepared
from laboratory.speed.measure import GIB, Rows
from laboratory.speed.shapes import Shape, random_llama

METHODS = ("full", "lora", "precise")
STEP_SHAPES = {
    "tiny": Shape(4, 64, 4, 176, 640, n_pairs=4, n_tokens=16),
    "bench": Shape(8, 1024, 16, 2816, 32_000, n_pairs=8, n_tokens=64),
    "llama-7b": Shape(32, 4096, 32, 11_008, 32_000, n_pairs=8, n_tokens=64),
}
"""To try; what a CPU trains in seconds; LLaMA2-7B, for a GPU."""
CARDS = (16, 24, 32, 40, 48, 80, 141)
"""Memory that GPUs are sold with, in GB; they have about as many GiB."""
USABLE = 0.95
"""Share of it: the rest goes to the context, and is lost between allocations."""


def upper_heads(shape: Shape) -> list[Head]:
    """A 32nd of all heads, as the paper tunes, spread over the upper half of the layers."""
    half = shape.n_layers // 2
    count = max(half, shape.n_layers * shape.n_heads // 32)
    return sorted(Head(half + i % half, i % shape.n_heads) for i in range(count))


def prepared_model(method: str, shape: Shape, device: str, settings: TuningSettings) -> Prepared:
    """A random model prepared as `fine_tune` does.

    With `bf16` full fine-tuning keeps float32 weights, and the others bfloat16 ones with float32
    slices or adapters.
    """
    weights = torch.bfloat16 if settings.bf16 and method != "full" else torch.float32
    heads = [] if method == "full" else upper_heads(shape)
    return prepare(random_llama(shape, device, weights), method, heads, [], settings)


@dataclass(frozen=True)
class StepFlops:
    """FLOPs of one step: its forward, its inputs' gradients and its weights' gradients."""

    forward: int
    inputs: int
    weights: int

    @property
    def total(self) -> int:
        return self.forward + self.inputs + self.weights


def full_work(shape: Shape) -> StepFlops:
    """Every matrix is trained, and the embeddings below the first layer."""
    linear = _per_element(shape) * (shape.n_layers * _layer(shape) + _head(shape))
    scores = shape.n_layers * _product(shape)
    return StepFlops(linear + 2 * scores, linear + 4 * scores, linear)


def precise_work(shape: Shape, heads: Sequence[Head], mlps: Sequence[Mlp] = ()) -> StepFlops:
    """Chosen heads' slices of four matrices, and MLPs whole.

    In the lowest tuned layer the gradient goes through W_O and attention to Q, K and V, whose
    inputs want none; where an MLP alone is tuned there, it goes through the MLP's last matrix.
    """
    lowest = min(component.layer for component in (*heads, *mlps))
    above = shape.n_layers - 1 - lowest
    through = above * _layer(shape) + _head(shape) + shape.d_model * shape.d_mlp
    scores = above * _product(shape)
    if any(head.layer == lowest for head in heads):
        through += 2 * shape.d_model * shape.d_mlp + shape.d_model**2
        scores += _product(shape)
    d_head = shape.d_model // shape.n_heads
    tuned = len(set(heads)) * 4 * d_head * shape.d_model
    tuned += len(set(mlps)) * 3 * shape.d_model * shape.d_mlp
    per = _per_element(shape)
    return StepFlops(full_work(shape).forward, per * through + 4 * scores, per * tuned)


def lora_work(shape: Shape, rank: int) -> StepFlops:
    """Adapters of all four attention matrices in every layer; the embeddings want no gradient."""
    adapters = shape.n_layers * 4 * 2 * rank * shape.d_model
    first = 3 * shape.d_model**2 + 3 * rank * shape.d_model  # Q, K, V of layer 0 and their A
    whole, per = full_work(shape), _per_element(shape)
    return StepFlops(
        whole.forward + per * adapters, whole.inputs + per * (adapters - first), per * adapters
    )


def least_flops(method: str, shape: Shape, lora_rank: int | None) -> int:
    """The bound of a method's step."""
    if lora_rank is not None:
        return lora_work(shape, lora_rank).total
    return (full_work(shape) if method == "full" else precise_work(shape, upper_heads(shape))).total


def _per_element(shape: Shape) -> int:
    """Of one number of a matrix, for all tokens."""
    return 2 * shape.n_pairs * shape.n_tokens


def _layer(shape: Shape) -> int:
    return 4 * shape.d_model**2 + 3 * shape.d_model * shape.d_mlp


def _head(shape: Shape) -> int:
    return shape.d_model * shape.d_vocab


def _product(shape: Shape) -> int:
    """One of attention's products, such as scores from queries and keys."""
    return 2 * shape.n_pairs * shape.n_tokens**2 * shape.d_model


@dataclass(frozen=True)
class Need:
    """Bytes of a training step."""

    weights: int
    trained: int  # of the weights that are trained; as much their gradients, twice it AdamW's state
    saved: int  # by autograd, from the forward to the backward
    logits: int  # in float32

    @property
    def peak(self) -> int:
        """At most. The loss's backward has two more tensors of the logits' size; AdamW on a GPU
        one more of the trained weights' size, when nothing else is kept."""
        return self.weights + 3 * self.trained + max(self.saved + 2 * self.logits, self.trained)


def plan_rows(shape: Shape, dtype: str) -> Rows:
    """One row per method, with gradient checkpointing and without, in GiB; and the GPU that fits,
    in GB (None: none)."""
    rows: Rows = []
    for recompute in (False, True):
        for method in METHODS:
            need = needed(method, shape, dtype, recompute=recompute)
            parts = {
                "weights": need.weights,
                "gradients": need.trained,
                "optimizer state": 2 * need.trained,
                "stored for the backward": need.saved,
                "peak, about": need.peak,
            }
            own = {"method": method, "gradient checkpointing": "yes" if recompute else "no"}
            sizes = {name: size / GIB for name, size in parts.items()}
            rows.append({**own, **sizes, "GPU of": fitting_card(need.peak)})
    return rows


def fitting_card(peak: int) -> int | None:
    """The smallest GPU in which a peak fits, in GB."""
    return next((size for size in CARDS if peak <= USABLE * size * GIB), None)


@cache
def needed(method: str, shape: Shape, dtype: str, *, recompute: bool = False) -> Need:
    """What a step of `tuner_of` with the same arguments takes."""
    half = dtype == "bfloat16"
    with _without_contents(method) as device:
        model = prepared_model(method, shape, device, TuningSettings(bf16=half)).model.train()
        if recompute:
            model.gradient_checkpointing_enable({"use_reentrant": False})
            if method == "lora":
                model.enable_input_require_grads()
        parameters = [*model.parameters()]
        with torch.autocast("cpu", torch.bfloat16, enabled=half and method == "full"):
            saved_bytes = saved_tensor_bytes(model, shape, device)
    return Need(
        sum(weight.nbytes for weight in parameters),
        sum(weight.nbytes for weight in parameters if weight.requires_grad),
        saved_bytes,
        4 * shape.n_pairs * shape.n_tokens * shape.d_vocab,
    )


def saved_tensor_bytes(model: Any, shape: Shape, device: str) -> int:
    """What autograd keeps of a batch for the backward, the weights themselves left out."""
    own = {weight.untyped_storage()._cdata for weight in model.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}

    def save_tensor(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            storages[storage._cdata] = storage  # held, so that no other takes its place
        return tensor

    ids = torch.zeros(shape.n_pairs, shape.n_tokens, dtype=torch.long, device=device)
    # the mask depends on what the batch holds, which is nothing; rows of one length have none
    no_mask = patch("transformers.models.llama.modeling_llama.create_causal_mask", _no_mask)
    with torch.autograd.graph.saved_tensors_hooks(save_tensor, lambda tensor: tensor), no_mask:
        model(input_ids=ids, labels=ids, use_cache=False)
    return sum(storage.nbytes() for storage in storages.values())


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
