"""Does path patching hold at seven billion parameters: time, matrix rate, memory?

Figure 2's work, four operations of as many pairs, on random weights of LLaMA2-7B's shape (or
another), in half precision. Prints planned and measured time, the share of the device's own rate of
matrix products, planned and measured memory, where a shard's time goes, and with --profile its
kernels; keeps them in a run under results/benchmark_scale/. Nothing is downloaded.

On a GPU: python -m experiments benchmark_scale --device cuda
On Linux MALLOC_MMAP_THRESHOLD_=65536 (`make bench-scale` sets it) has freed memory handed back at
once; else what glibc keeps counts as used.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import psutil
import torch
import tyro

import arith_lens as al
from arith_lens.runs import Run
from experiments.benchmark.machine import Usage, described, machine
from experiments.benchmark.rivals import sweep_flops
from experiments.benchmark.shapes import SHAPES, random_pairs, setting_of
from experiments.benchmark_scale import weights, work

Size = Literal["tiny", "middle", "wide", "llama-7b", "llama-13b", "mistral-7b"]
GIB = 2**30


@dataclass(frozen=True)
class Config:
    """What to measure, and on what."""

    size: Size = "llama-7b"
    """The shape; the small ones are there to try the command."""
    n: int | None = None
    """Pairs an operation; 1000 on a GPU, 1 on a CPU."""
    operations: int = 4
    """How many times as many: the paper has four operations."""
    tokens: int = 16
    """Of a prompt."""
    device: str = "cpu"
    """Such as cuda."""
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Of the weights."""
    place: weights.Place = "made"
    """Weights made in memory; loaded from a checkpoint on "disk"; or left there, with "offload"."""
    threads: int = 0
    """0 leaves torch's choice."""
    profile: bool = False
    """Print in which kernels a shard's time goes, too."""

    @property
    def n_pairs(self) -> int:
        """All of them."""
        each = self.n or (1000 if self.device.startswith("cuda") else 1)
        return each * self.operations


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
) -> None:
    """Measure, print, save.

    Args:
        config: what to measure; the same configuration again replaces what it measured before.
        root: where runs are kept, and a checkpoint of random weights (benchmark_scale/weights/).
        dry_run: print the plan, and stop; no weights are made.
    """
    shape = replace(SHAPES[config.size], n_pairs=config.n_pairs, n_tokens=config.tokens)
    if dry_run:
        print(*_announced(config, shape), sep="\n")
        return
    _refuse_what_cannot_be(config)
    if config.threads:
        torch.set_num_threads(config.threads)
    with al.open_run("benchmark_scale", config, root=root) as run:
        lines = []
        for line in _measured(config, shape, run, root / "benchmark_scale" / "weights"):
            print(line, flush=True)
            lines.append(line)
        (run.path / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"saved in {run.path}")


def _measured(config: Config, shape: Any, run: Run, folder: Path) -> Iterator[str]:
    facts, usage = machine(config.device), Usage.now()
    yield f"# {config.size}, {config.dtype} on {config.device}\n\n{described(facts)}\n{shape}"
    loaded = weights.load(
        config.size,
        config.place,
        device=config.device,
        dtype=config.dtype,
        folder=folder / f"{config.size}-{config.dtype}",
    )
    size = loaded.weights_bytes
    yield f"\nweights: {size / GIB:.2f} GiB, {config.place}{_load_peak(loaded)}"
    pairs = random_pairs(shape)
    done = work.patched(loaded.model, pairs)
    yield (
        f"path patching of {len(pairs)} pairs: {done.seconds:.1f} s, {done.flops / 1e12:.3g} "
        f"TFLOP, {done.seconds / len(pairs):.3g} s a pair\n"
        f"the device's matrix products: {done.rate / 1e12:.3g} TFLOP/s; the sweep reaches "
        f"{done.share:.0%} of that, its certificate included\n"
        f"memory beside the model: {_or_unknown(done.peak_bytes)}, planned "
        f"{done.planned_bytes / GIB:.2f} GiB; {done.chunk_sizes} pairs at once"
    )
    shard = pairs[:64]
    table = work.parts(loaded.model, shard, done.rate)
    others = usage.others()
    run.save("parts", table, **facts, shape=shape, work=done, weights_bytes=size,
             load_peak_bytes=loaded.peak_bytes, others_cores=others)  # fmt: skip
    yield f"\n{table.markdown(work.PARTS)}"
    yield f"\nOther processes kept {others:.2f} cores busy meanwhile."
    if config.profile:
        yield f"\n```\n{work.profile(loaded.model, shard)}\n```"


def _load_peak(loaded: weights.Loaded) -> str:
    if loaded.peak_bytes is None:
        return ""
    ratio = loaded.peak_bytes / loaded.weights_bytes
    return f"; at most {loaded.peak_bytes / GIB:.2f} GiB while loading, {ratio:.2f} x the weights"


def _or_unknown(size: int | None) -> str:
    return "not measured (needs Linux)" if size is None else f"{size / GIB:.2f} GiB at most"


def _announced(config: Config, shape: Any) -> Iterator[str]:
    """What would be run; no weights are made."""
    flops = sweep_flops(setting_of(shape, "meta", getattr(torch, config.dtype))) / 1e12
    size = weights.weights_bytes(config.size, config.dtype)
    yield f"{config.size}: {shape}"
    yield f"weights: {size / GIB:.2f} GiB in {config.dtype}, {config.place} for {config.device}"
    yield f"{flops:.4g} TFLOP, {flops / shape.n_pairs:.3g} a pair"


def _refuse_what_cannot_be(config: Config) -> None:
    """Stop before the work where there is no such GPU, or a model does not fit in memory."""
    if config.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit(
            f"expected a GPU for --device {config.device}, found none that this PyTorch can use; "
            "install its CUDA build, or take --device cpu"
        )
    needed, free = weights.weights_bytes(config.size, config.dtype), _free(config.device)
    if config.place != "offload" and needed > free:
        sys.exit(
            f"expected memory for the weights of --size {config.size} ({needed / GIB:.0f} GiB), "
            f"found {free / GIB:.0f} GiB free on {config.device}; take --place offload, "
            "or a smaller shape"
        )


def _free(device: str) -> int:
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available


if __name__ == "__main__":
    tyro.cli(main, prog="python -m experiments benchmark_scale", description=__doc__)
