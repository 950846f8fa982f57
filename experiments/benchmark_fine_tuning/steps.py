"""One training step of each method, by the library's own preparation, Trainer and optimizer."""

import gc
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from arith_lens import Head
from arith_lens.fine_tuning.examples import Example, collate
from arith_lens.fine_tuning.methods import Settings, prepare
from arith_lens.fine_tuning.training import trainer_for
from experiments.benchmark.shapes import Shape, random_llama
from experiments.benchmark.timing import finish
from experiments.benchmark_fine_tuning import flops

METHODS = ("full", "lora", "precise")
SHAPES = {
    "tiny": Shape(4, 64, 4, 176, 640, n_pairs=4, n_tokens=16),
    "bench": Shape(8, 1024, 16, 2816, 32_000, n_pairs=8, n_tokens=64),
    "llama-7b": Shape(32, 4096, 32, 11_008, 32_000, n_pairs=8, n_tokens=64),
}
"""Rows are called pairs there. To try; what a CPU trains in seconds; LLaMA2-7B, for a GPU."""


def told(shape: Shape) -> str:
    return (
        f"{shape.n_layers} layers, d_model {shape.d_model}, {shape.n_heads} heads, d_mlp "
        f"{shape.d_mlp}, vocabulary {shape.d_vocab:,}; {shape.n_pairs} rows of {shape.n_tokens} "
        "tokens"
    )


def upper_heads(shape: Shape) -> list[Head]:
    """A 32nd of all heads, as the paper tunes, spread over the upper half of the layers."""
    half = shape.n_layers // 2
    count = max(half, shape.n_layers * shape.n_heads // 32)
    return sorted(Head(half + i % half, i % shape.n_heads) for i in range(count))


@dataclass(frozen=True, eq=False)
class Tuner:
    """A model ready to be trained, and one batch."""

    method: str
    shape: Shape
    trainer: Any
    batch: dict[str, Tensor]
    lora_rank: int | None

    def gradients(self) -> Tensor:
        """Forward and backward; returns the loss."""
        with self.trainer.accelerator.autocast():
            loss = self.trainer.model(**self.batch).loss
        loss.backward()
        return loss.detach()

    def update(self) -> Tensor:
        """Clip, AdamW, and drop the gradients; returns their norm."""
        norm = torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.trainer.optimizer.step()
        self.trainer.optimizer.zero_grad()
        return norm.detach()

    @property
    def trained(self) -> list[torch.nn.Parameter]:
        return [weight for weight in self.trainer.model.parameters() if weight.requires_grad]

    @property
    def n_tuned(self) -> int:
        return sum(weight.numel() for weight in self.trained)

    @property
    def state_bytes(self) -> int:
        """Of the optimizer, after a step."""
        state = self.trainer.optimizer.state.values()
        return sum(value.nbytes for of in state for value in of.values() if torch.is_tensor(value))

    @property
    def flops(self) -> int:
        """The bound: what a step needs at least."""
        if self.lora_rank is not None:
            return flops.lora(self.shape, self.lora_rank).total
        if self.method == "full":
            return flops.full(self.shape).total
        return flops.precise(self.shape, upper_heads(self.shape)).total


def tuner_of(
    method: str,
    shape: Shape,
    device: str = "cpu",
    dtype: str = "float32",
    *,
    recompute: bool = False,
    n_steps: int = 1,
) -> Tuner:
    """A random model prepared as `fine_tune` does.

    Args:
        dtype: with bfloat16 full fine-tuning keeps float32 weights, and the others bfloat16 ones
            with float32 slices or adapters, as `fine_tune(..., bf16=True)` does
        recompute: gradient checkpointing
        n_steps: of data for the Trainer
    """
    half = dtype == "bfloat16"
    weights = torch.bfloat16 if half and method != "full" else torch.float32
    heads = [] if method == "full" else upper_heads(shape)
    settings = Settings(
        batch_size=shape.n_pairs,
        bf16=half,
        gradient_checkpointing=recompute,
        epochs=1,
        save_every=0,
        log_every=10**6,
    )
    prepared = prepare(random_llama(shape, device, weights), method, heads, [], settings)
    examples = random_examples(shape, n_steps)
    with TemporaryDirectory() as folder:
        trainer = trainer_for(
            prepared, examples, settings, Path(folder), device=device, progress=False
        )
    trainer.model.train()
    trainer.create_optimizer()
    if recompute:
        trainer.model.gradient_checkpointing_enable({"use_reentrant": False})
    batch = {name: value.to(device) for name, value in collate(examples[: shape.n_pairs]).items()}
    return Tuner(method, shape, trainer, batch, prepared.lora_rank)


def let_go() -> None:
    """Free what is no longer referred to: a Trainer refers to itself, and to a model."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def memory_of(device: str | torch.device) -> int | None:
    """Bytes of a GPU; None for a CPU, and where there is no GPU."""
    if torch.device(device).type != "cuda" or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_properties(device).total_memory


def does_not_fit(device: str | torch.device) -> str:
    """In how much."""
    memory = memory_of(device)
    return "does not fit" + (f" in {memory / 2**30:.0f} GiB" if memory else "")


def random_examples(shape: Shape, n_steps: int) -> list[Example]:
    """Rows of equal length, whose last quarter is the answer."""
    size = (n_steps * shape.n_pairs, shape.n_tokens)
    rows = torch.randint(4, shape.d_vocab, size, generator=torch.Generator().manual_seed(1))
    return [Example(tuple(row), shape.n_tokens * 3 // 4) for row in rows.tolist()]


def trainer_steps(tuner: Tuner) -> list[float]:
    """Seconds of each step (of the processor, or the clock on a GPU) when the Trainer runs them."""
    from transformers import TrainerCallback

    device = torch.device(tuner.trainer.args.device)
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    begun: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            finish(device)
            begun.append(clock())

    tuner.trainer.add_callback(Clock())
    tuner.trainer.train()
    return [after - before for before, after in pairwise(begun[1:])]  # the first warms up
