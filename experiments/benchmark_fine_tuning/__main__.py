"""What does a training step cost when chosen heads are tuned, all weights, or LoRA's adapters?

Times steps of each method on a random LLaMA, interleaved, beside the operations that each needs at
least; what the Trainer adds; peak memory. Prints tables in Markdown and keeps them in a run under
results/benchmark_fine_tuning/. Nothing is downloaded.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

import torch
import tyro

import arith_lens as al
from arith_lens.runs import Run
from experiments.benchmark.machine import Usage, described, machine
from experiments.benchmark.shapes import Shape
from experiments.benchmark.table import Cell, Column, Table
from experiments.benchmark.timing import Timing, timed
from experiments.benchmark_fine_tuning.memory import memory_table
from experiments.benchmark_fine_tuning.plan import COLUMNS, plan_table
from experiments.benchmark_fine_tuning.steps import (
    METHODS,
    SHAPES,
    Tuner,
    does_not_fit,
    let_go,
    memory_of,
    told,
    trainer_steps,
    tuner_of,
)

SPEED = {
    "method": Column("method"),
    "trained": Column("n_tuned", ",.0f"),
    "GFLOP at least": Column("flops", ",.4g", 1e-9),
    "samples a second": Column("samples_per_second", ".3g"),
    "ratio to full": Column("ratio", ".2f"),
    "bound": Column("bound", ".2f"),
    "share of the bound": Column("share", ".0%"),
    "without the optimizer": Column("gradient_share", ".0%"),
    "spread": Column("spread", ".0%"),
    "optimizer state, MB": Column("state_bytes", ",.1f", 1e-6),
    "": Column("remark"),
}
MEMORY = {
    "method": Column("method"),
    "weights": Column("dtype"),
    "gradient checkpointing": Column("recompute"),
    "peak, MB": Column("peak_bytes", ",.0f", 1e-6),
    "of it the step's own": Column("step_bytes", ",.0f", 1e-6),
    "optimizer state": Column("state_bytes", ",.1f", 1e-6),
    "": Column("remark"),
}


@dataclass(frozen=True)
class Config:
    """What to measure, and on what."""

    parts: tuple[Literal["speed", "trainer", "memory"], ...] = ("speed", "trainer", "memory")
    """Speed: a bare step of each method; trainer: what the Trainer adds; memory: peaks."""
    size: Literal["tiny", "bench", "llama-7b"] = "bench"
    """The model's shape; llama-7b wants a GPU."""
    rows: int = 8
    """Examples a step."""
    device: str = "cpu"
    """Such as cuda."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights when speed is measured."""
    repeats: int = 7
    """Steps of each method after one that warms up; medians count."""


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
) -> None:
    """Measure, print, save.

    Args:
        config: what to measure; the same configuration again replaces what it measured before.
        root: where runs are kept.
        dry_run: print what would be run and about how much memory it takes, and stop.
    """
    shape = replace(SHAPES[config.size], n_pairs=config.rows)
    if dry_run:
        print(f"{', '.join(config.parts)} of {', '.join(METHODS)}: {told(shape)}")
        print(f"\nMemory of a step, {config.dtype}, planned from shapes:\n")
        print(plan_table(shape, config.dtype, memory_of(config.device)).markdown(COLUMNS))
        return
    if config.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit(
            f"expected a GPU for --device {config.device}, found none that this PyTorch can use; "
            "install its CUDA build, or take --device cpu"
        )
    facts = machine(config.device)
    with al.open_run("benchmark_fine_tuning", config, root=root) as run:
        lines = []
        for line in measured(config, shape, run, facts):
            print(line, flush=True)
            lines.append(line)
        (run.path / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"saved in {run.path}")


def measured(config: Config, shape: Shape, run: Run, facts: dict[str, Any]) -> Iterator[str]:
    """Measure part by part, save each, and say what was found."""
    yield f"# Fine-tuning, measured\n\n{described(facts)}; {config.dtype} on {config.device}"
    yield f"\n{told(shape)}"
    if "speed" in config.parts:
        usage = Usage.now()
        table = speed(config, shape)
        others = usage.others()
        run.save("speed", table, **facts, shape=shape, others_cores=others)
        yield f"\n## Speed\n\nOther processes kept {others:.2f} cores busy meanwhile.\n"
        yield table.markdown(SPEED)
    if "trainer" in config.parts:
        bare, whole = overhead(config, shape)
        run.save("trainer", Table([{"bare": bare, "trainer": whole}]), **facts, shape=shape)
        let_go()
        yield f"\n## The Trainer\n\nA precise step: bare {bare:.3g} s, of the Trainer {whole:.3g} s"
    if "memory" in config.parts:
        dtypes = ("float32", "bfloat16") if config.dtype == "float32" else (config.dtype,)
        table = memory_table(config.size, config.rows, config.device, dtypes)
        run.save("memory", table, **facts, shape=shape)
        yield "\n## Memory\n"
        yield table.markdown(MEMORY)


def speed(config: Config, shape: Shape) -> Table:
    """A row a method. On a GPU, whose memory they would share, one after the other."""
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
        let_go()
    return compared(about, timings, shape.n_pairs, torch.device(config.device))


def _timed(tuners: Mapping[str, Tuner], config: Config) -> dict[str, tuple[Timing, Timing]]:
    parts = {}
    for name, tuner in tuners.items():
        parts[name, "gradients"] = tuner.gradients
        parts[name, "update"] = tuner.update
    device = torch.device(config.device)
    found = timed(parts, repeats=config.repeats, budget=float("inf"), device=device)
    return {name: (found[name, "gradients"], found[name, "update"]) for name in tuners}


def compared(
    about: Mapping[str, Mapping[str, Cell]],
    timings: Mapping[str, tuple[Timing, Timing]],
    n_rows: int,
    device: torch.device,
) -> Table:
    """A row a method; ratios refer to full fine-tuning, and are empty where it does not fit."""
    steps = {name: sum(part.spent(device) for part in both) for name, both in timings.items()}
    rows: list[dict[str, Cell]] = []
    for name, facts in about.items():
        row: dict[str, Cell] = {"method": name, **dict.fromkeys(MEASURED)}
        if name not in timings:
            rows.append(row | {"remark": does_not_fit(device)})
            continue
        gradients, update = timings[name]
        row |= {
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
    return Table(rows)


MEASURED = (
    *("n_tuned", "flops", "state_bytes", "samples_per_second", "gradient_seconds"),
    *("update_seconds", "spread", "ratio", "bound", "share", "gradient_share", "remark"),
)


def overhead(config: Config, shape: Shape) -> tuple[float, float]:
    """Seconds of a precise step, bare and as the Trainer runs it: medians."""
    tuner = tuner_of("precise", shape, config.device, config.dtype, n_steps=config.repeats + 3)
    gradients, update = _timed({"precise": tuner}, config)["precise"]
    device = torch.device(config.device)
    return gradients.spent(device) + update.spent(device), median(trainer_steps(tuner))


if __name__ == "__main__":
    tyro.cli(main, prog="python -m experiments benchmark_fine_tuning", description=__doc__)
