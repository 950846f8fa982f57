"""What does a training step cost when chosen heads are tuned, all weights, or LoRA's adapters?

Times steps of each method on a random LLaMA, interleaved, beside the operations that each needs at
least; what the Trainer adds; peak memory. Prints tables in Markdown and saves them in a run under
results/speed_fine_tuning/. Nothing is downloaded.
"""

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import torch
import tyro
from torch import Tensor

from arith_lens.fine_tuning import TuningSettings
from arith_lens.fine_tuning.training import Example, collate, trainer_for
from arith_lens.runs import Run
from laboratory.speed.fine_tuning_plan import (
    METHODS,
    PLAN_COLUMNS,
    STEP_SHAPES,
    full_work,
    in_words,
    lora_work,
    plan_table,
    precise_work,
    prepared_model,
    upper_heads,
)
from laboratory.speed.measure import (
    GIB,
    Cell,
    Column,
    Shape,
    SpeedTable,
    Timing,
    Usage,
    finish,
    in_process,
    machine_text,
    meanwhile,
    print_and_save,
    require_gpu,
    resident,
    timed,
)


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
            return lora_work(self.shape, self.lora_rank).total
        if self.method == "full":
            return full_work(self.shape).total
        return precise_work(self.shape, upper_heads(self.shape)).total


def tuner_of(
    method: str,
    shape: Shape,
    device: str = "cpu",
    dtype: str = "float32",
    *,
    recompute: bool = False,
    n_steps: int = 1,
) -> Tuner:
    """A `prepared_model` with its Trainer, optimizer and batch.

    Args:
        dtype: bfloat16 trains as `fine_tune(..., bf16=True)` does.
        recompute: gradient checkpointing.
        n_steps: of data for the Trainer.
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


def free_memory() -> None:
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
    return "does not fit" + (f" in {memory / GIB:.0f} GiB" if memory else "")


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


SPEED_COLUMNS = {
    "method": Column("method"),
    "trained": Column("n_tuned", ",.0f"),
    "GFLOP at least": Column("flops", ",.4g", 1e-9),
    "samples per second": Column("samples_per_second", ".3g"),
    "ratio to full": Column("ratio", ".2f"),
    "bound": Column("bound", ".2f"),
    "share of the bound": Column("share", ".0%"),
    "without the optimizer": Column("gradient_share", ".0%"),
    "spread": Column("spread", ".0%"),
    "optimizer state, MB": Column("state_bytes", ",.1f", 1e-6),
    "": Column("remark"),
}
MEMORY_COLUMNS = {
    "method": Column("method"),
    "weights": Column("dtype"),
    "gradient checkpointing": Column("recompute"),
    "peak, MB": Column("peak_bytes", ",.0f", 1e-6),
    "of it the step's own": Column("step_bytes", ",.0f", 1e-6),
    "optimizer state": Column("state_bytes", ",.1f", 1e-6),
    "": Column("remark"),
}


@dataclass(frozen=True)
class StepConfig:
    """What to measure, and on what."""

    parts: tuple[Literal["speed", "trainer", "memory"], ...] = ("speed", "trainer", "memory")
    """Speed: a bare step of each method; trainer: what the Trainer adds; memory: peaks."""
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


def speed_fine_tuning(
    config: Annotated[StepConfig, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
) -> None:
    """What does a training step cost when chosen heads are tuned, all weights, or LoRA's adapters?

    Args:
        config: what to measure; the same configuration again replaces what it measured before.
        root: where runs are saved.
        dry_run: print what would be run and about how much memory it takes, and stop.
    """
    shape = replace(STEP_SHAPES[config.size], n_pairs=config.rows)
    if dry_run:
        print(f"{', '.join(config.parts)} of {', '.join(METHODS)}: {in_words(shape)}")
        print(f"\nMemory of a step, {config.dtype}, planned from shapes:\n")
        print(plan_table(shape, config.dtype, memory_of(config.device)).markdown(PLAN_COLUMNS))
        return
    require_gpu(config.device)
    print_and_save("speed_fine_tuning", config, root, partial(measured_parts, config, shape))


def measured_parts(
    config: StepConfig, shape: Shape, run: Run, facts: dict[str, Any]
) -> Iterator[str]:
    """Measure part by part, save each, and report it."""
    yield f"# Fine-tuning, measured\n\n{machine_text(facts)}; {config.dtype} on {config.device}"
    yield f"\n{in_words(shape)}"
    if "speed" in config.parts:
        usage = Usage.now()
        table = timing_table(config, shape)
        others = usage.others()
        run.save("speed", table, **facts, shape=shape, others_cores=others)
        yield f"\n## Speed\n\n{meanwhile(others)}\n"
        yield table.markdown(SPEED_COLUMNS)
    if "trainer" in config.parts:
        bare, trainer = overhead(config, shape)
        run.save("trainer", SpeedTable([{"bare": bare, "trainer": trainer}]), **facts, shape=shape)
        free_memory()
        yield "\n## The Trainer\n"
        yield f"A precise step: bare {bare:.3g} s, of the Trainer {trainer:.3g} s"
    if "memory" in config.parts:
        dtypes = ("float32", "bfloat16") if config.dtype == "float32" else (config.dtype,)
        table = memory_table(config.size, config.rows, config.device, dtypes)
        run.save("memory", table, **facts, shape=shape)
        yield "\n## Memory\n"
        yield table.markdown(MEMORY_COLUMNS)


def timing_table(config: StepConfig, shape: Shape) -> SpeedTable:
    """One row per method. On a GPU, whose memory they would share, one after the other."""
    about: dict[str, dict[str, Cell]] = {}
    timings: dict[str, tuple[Timing, Timing]] = {}
    groups = [METHODS] if config.device == "cpu" else [(method,) for method in METHODS]
    for group in groups:
        try:
            tuners = {name: tuner_of(name, shape, config.device, config.dtype) for name in group}
            timings |= _timed(tuners, config)
            for name, tuner in tuners.items():
                about[name] = {
                    "n_tuned": tuner.n_tuned,
                    "flops": tuner.flops,
                    "state_bytes": tuner.state_bytes,
                }
        except torch.cuda.OutOfMemoryError:
            about |= {name: {} for name in group}
        tuners = {}
        free_memory()
    return method_table(about, timings, shape.n_pairs, torch.device(config.device))


def _timed(tuners: Mapping[str, Tuner], config: StepConfig) -> dict[str, tuple[Timing, Timing]]:
    parts = {}
    for name, tuner in tuners.items():
        parts[name, "gradients"] = tuner.gradients
        parts[name, "update"] = tuner.update
    device = torch.device(config.device)
    timings = timed(parts, repeats=config.repeats, budget=float("inf"), device=device)
    return {name: (timings[name, "gradients"], timings[name, "update"]) for name in tuners}


def method_table(
    about: Mapping[str, Mapping[str, Cell]],
    timings: Mapping[str, tuple[Timing, Timing]],
    n_rows: int,
    device: torch.device,
) -> SpeedTable:
    """One row per method; ratios refer to full fine-tuning, and are empty where it does not fit."""
    steps = {name: sum(part.spent(device) for part in both) for name, both in timings.items()}
    rows: list[dict[str, Cell]] = []
    for name, facts in about.items():
        if name not in timings:
            rows.append({"method": name, "remark": does_not_fit(device)})
            continue
        gradients, update = timings[name]
        row: dict[str, Cell] = {
            "method": name,
            **facts,
            "samples_per_second": n_rows / steps[name],
            "gradient_seconds": gradients.spent(device),
            "update_seconds": update.spent(device),
            "spread": gradients.spread(device),
            "remark": "",
        }
        if "full" in timings:
            bound = float(about["full"]["flops"] or 0) / float(facts["flops"] or 1)
            ratio = steps["full"] / steps[name]
            alone = timings["full"][0].spent(device) / gradients.spent(device)
            row |= {"ratio": ratio, "bound": bound, "share": ratio / bound}
            row |= {"gradient_share": alone / bound}
        rows.append(row)
    return SpeedTable(rows)


def overhead(config: StepConfig, shape: Shape) -> tuple[float, float]:
    """Seconds of a precise step, bare and as the Trainer runs it: medians."""
    tuner = tuner_of("precise", shape, config.device, config.dtype, n_steps=config.repeats + 3)
    gradients, update = _timed({"precise": tuner}, config)["precise"]
    device = torch.device(config.device)
    return gradients.spent(device) + update.spent(device), median(trainer_steps(tuner))


@dataclass(frozen=True)
class TrainingMemoryJob:
    """One measurement of memory: a method, and how it trains."""

    method: str
    size: str
    rows: int
    device: str
    dtype: str
    recompute: bool

    def measure(self) -> dict[str, Cell]:
        """Two steps; the second, with the optimizer's state in place, is watched.

        `peak_bytes` is all of the process's growth since before the model was made (on a GPU what
        was allocated), `step_bytes` what the second step took beyond what stays between two steps.
        """
        torch.set_num_threads(1)
        device = torch.device(self.device)
        tiny = STEP_SHAPES["tiny"]
        tuner_of(self.method, tiny, self.device, self.dtype).gradients()  # loads libraries
        empty = resident(device, reset=True)
        shape = replace(STEP_SHAPES[self.size], n_pairs=self.rows)
        sizes: dict[str, Cell] = dict.fromkeys(("peak_bytes", "step_bytes", "state_bytes"))
        try:
            tuner = tuner_of(self.method, shape, self.device, self.dtype, recompute=self.recompute)
            for _ in range(2):
                between = resident(device, reset=True)
                tuner.gradients()
                tuner.update()
            peak = resident(device)
        except torch.cuda.OutOfMemoryError:
            return sizes | {"remark": does_not_fit(device)}
        sizes["state_bytes"] = tuner.state_bytes
        if peak is None or between is None or empty is None:
            return sizes | {"remark": "not measured: needs Linux"}
        before = 0 if device.type == "cuda" else empty
        return sizes | {"peak_bytes": peak - before, "step_bytes": peak - between, "remark": ""}


def memory_table(size: str, rows: int, device: str, dtypes: Sequence[str]) -> SpeedTable:
    """One row per method, dtype and gradient checkpointing, each in a process of its own.

    Bytes; None where they are not known.
    """
    jobs = [
        TrainingMemoryJob(method, size, rows, device, dtype, recompute)
        for dtype in dtypes
        for recompute in (False, True)
        for method in METHODS
    ]
    return SpeedTable(
        [
            {**vars(job), "recompute": "yes" if job.recompute else "no", **in_process(job)}
            for job in jobs
        ]
    )
