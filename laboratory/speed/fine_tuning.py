"""What does a training step cost when chosen heads are tuned, all weights, or LoRA's adapters?

Times steps of each method on a random LLaMA, interleaved, beside the operations that each needs at
least; and measures peak memory. Nothing is downloaded.
"""

import gc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import torch
import tyro
from torch import Tensor

from arith_lens.fine_tuning import TuningSettings
from arith_lens.fine_tuning.training import Example, collate, trainer_for
from laboratory.speed.fine_tuning_plan import (
    METHODS,
    STEP_SHAPES,
    least_flops,
    plan_rows,
    prepared_model,
)
from laboratory.speed.measure import (
    Rows,
    Timing,
    in_process,
    markdown,
    print_and_save,
    require_gpu,
    resident,
    timed,
)
from laboratory.speed.path_patching import Sections
from laboratory.speed.shapes import Shape


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
        return least_flops(self.method, self.shape, self.lora_rank)


def tuner_of(
    method: str,
    shape: Shape,
    device: str = "cpu",
    dtype: str = "float32",
    *,
    recompute: bool = False,
) -> Tuner:
    """A `prepared_model` with its Trainer, optimizer and batch.

    Args:
        dtype: bfloat16 trains as `fine_tune(..., bf16=True)` does.
        recompute: gradient checkpointing.
    """
    settings = TuningSettings(
        batch_size=shape.n_pairs,
        bf16=dtype == "bfloat16",
        gradient_checkpointing=recompute,
        epochs=1,
        save_every=0,
        log_every=10**6,
    )
    prepared = prepared_model(method, shape, device, settings)
    size = (shape.n_pairs, shape.n_tokens)
    rows = torch.randint(4, shape.d_vocab, size, generator=torch.Generator().manual_seed(1))
    examples = [Example(tuple(row), shape.n_tokens * 3 // 4) for row in rows.tolist()]
    with TemporaryDirectory() as folder:
        trainer = trainer_for(
            prepared, examples, settings, Path(folder), device=device, progress=False
        )
    trainer.model.train()
    trainer.create_optimizer()
    if recompute:
        trainer.model.gradient_checkpointing_enable({"use_reentrant": False})
    batch = {name: value.to(device) for name, value in collate(examples).items()}
    return Tuner(method, shape, trainer, batch, prepared.lora_rank)


@dataclass(frozen=True)
class StepConfig:
    """What to measure, and on what."""

    parts: tuple[Literal["speed", "memory"], ...] = ("speed", "memory")
    """Speed: a step of each method; memory: peaks."""
    size: Literal["tiny", "bench", "llama-7b"] = "bench"
    """The model's shape; llama-7b needs a GPU."""
    rows: int = 8
    """Examples per step."""
    device: str = "cpu"
    """Such as cuda."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights when speed is measured."""
    repeats: int = 7
    """Steps of each method after one that warms up; medians count."""

    @property
    def shape(self) -> Shape:
        """With as many rows."""
        return replace(STEP_SHAPES[self.size], n_pairs=self.rows)


def speed_fine_tuning(
    config: Annotated[StepConfig, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
) -> None:
    """What does a training step cost when chosen heads are tuned, all weights, or LoRA's adapters?

    Args:
        config: what to measure; the same configuration again replaces what it measured before.
        root: where runs are saved: a report, and each table as CSV.
        dry_run: print what would be run and about how much memory it takes, and stop.
    """
    if dry_run:
        print(f"{', '.join(config.parts)} of {', '.join(METHODS)}: {config.shape}")
        print(f"\nMemory of a step, {config.dtype}, planned from shapes, in GiB:\n")
        print(markdown(plan_rows(config.shape, config.dtype)))
        return
    require_gpu(config.device)
    print_and_save("speed_fine_tuning", config, root, measured(config))


def measured(config: StepConfig) -> Sections:
    """Speed, then memory."""
    if "speed" in config.parts:
        yield "speed", f"Speed: {config.shape}", timing_rows(config)
    if "memory" in config.parts:
        yield "memory", "Memory", memory_rows(config)


def timing_rows(config: StepConfig) -> Rows:
    """One row per method. On a GPU, whose memory they would share, one after the other."""
    about: dict[str, dict[str, Any]] = {}
    timings: dict[str, dict[str, Timing]] = {}
    groups = [METHODS] if config.device == "cpu" else [(method,) for method in METHODS]
    for group in groups:
        try:
            tuners = {
                one: tuner_of(one, config.shape, config.device, config.dtype) for one in group
            }
            timings |= _timed(tuners, config)
            about |= {
                name: {"n_tuned": one.n_tuned, "flops": one.flops, "state_bytes": one.state_bytes}
                for name, one in tuners.items()
            }
        except torch.cuda.OutOfMemoryError:
            about |= {name: {} for name in group}
        tuners = {}
        gc.collect()  # a Trainer refers to itself, and to a model
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return method_rows(about, timings, config.rows, torch.device(config.device))


def _timed(tuners: Mapping[str, Tuner], config: StepConfig) -> dict[str, dict[str, Timing]]:
    parts = {}
    for name, tuner in tuners.items():
        parts[name, "gradients"] = tuner.gradients
        parts[name, "update"] = tuner.update
    device = torch.device(config.device)
    timings = timed(parts, repeats=config.repeats, budget=float("inf"), device=device)
    return {
        name: {part: timings[name, part] for part in ("gradients", "update")} for name in tuners
    }


def method_rows(
    about: Mapping[str, Mapping[str, Any]],
    timings: Mapping[str, Mapping[str, Timing]],
    n_rows: int,
    device: torch.device,
) -> Rows:
    """One row per method; ratios refer to full fine-tuning, and are empty where it does not fit."""
    spent = {
        name: {part: timing.spent(device) for part, timing in parts.items()}
        for name, parts in timings.items()
    }
    rows: Rows = []
    for name, facts in about.items():
        row = {"method": name, **facts, "remark": "" if name in spent else "does not fit"}
        if name in spent:
            row["samples_per_second"] = n_rows / sum(spent[name].values())
            row |= {f"{part}_seconds": seconds for part, seconds in spent[name].items()}
        if name in spent and "full" in spent:
            row["ratio"] = sum(spent["full"].values()) / sum(spent[name].values())
            row["bound"] = about["full"]["flops"] / facts["flops"]
        rows.append(row)
    return rows


def memory_of(
    method: str, shape: Shape, device: str, dtype: str, recompute: bool
) -> dict[str, int | str | None]:
    """Two steps; the second, with the optimizer's state in place, is watched.

    `peak_bytes` is all of the process's growth since before the model was made (on a GPU what
    was allocated), `step_bytes` what the second step took beyond what stays between two steps.
    """
    torch.set_num_threads(1)
    place = torch.device(device)
    tuner_of(method, STEP_SHAPES["tiny"], device, dtype).gradients()  # loads libraries
    empty = resident(place, reset=True)
    try:
        tuner = tuner_of(method, shape, device, dtype, recompute=recompute)
        for _ in range(2):
            between = resident(place, reset=True)
            tuner.gradients()
            tuner.update()
        peak = resident(place)
    except torch.cuda.OutOfMemoryError:
        return {"remark": "does not fit"}
    if peak is None or between is None or empty is None:
        return {"state_bytes": tuner.state_bytes, "remark": "not measured: needs Linux"}
    before = 0 if place.type == "cuda" else empty
    sizes = {"peak_bytes": peak - before, "step_bytes": peak - between}
    return {**sizes, "state_bytes": tuner.state_bytes, "remark": ""}


def memory_rows(config: StepConfig) -> Rows:
    """One row per method, dtype and gradient checkpointing, each in a process of its own."""
    dtypes = ("float32", "bfloat16") if config.dtype == "float32" else (config.dtype,)
    return [
        {
            "method": method,
            "dtype": dtype,
            "recompute": "yes" if recompute else "no",
            **in_process(memory_of, method, config.shape, config.device, dtype, recompute),
        }
        for dtype in dtypes
        for recompute in (False, True)
        for method in METHODS
    ]
