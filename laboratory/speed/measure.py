"""How the laboratory measures, and on what.

It describes the machine, takes times and peak memory, and keeps tables of the results. It measures
on random LLaMAs of some shapes, and on random prompts.
"""

import copy
import ctypes
import gc
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from unittest.mock import patch

import psutil
import torch
from jaxtyping import Int
from torch import Tensor

from arith_lens import HookedModel, PromptPairs, load_model
from arith_lens.arrays import Arrays
from arith_lens.components import Component, every_component
from arith_lens.runs import Run, installed, open_run

if TYPE_CHECKING:
    from pandas import DataFrame

GIB = 2**30
PACKAGES = ("torch", "transformers", "transformer-lens", "nnsight", "numpy")
Name = TypeVar("Name", bound=Hashable)


def machine(device: str) -> dict[str, Any]:
    """Processor, memory, GPU, versions, threads, date."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": processor(),
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpu": torch.cuda.get_device_name(device) if device.startswith("cuda") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: installed(name) for name in PACKAGES},
        "threads": torch.get_num_threads(),
    }


def machine_text(facts: dict[str, Any]) -> str:
    """The same in two lines."""
    versions = [f"{name} {number}" for name, number in facts["versions"].items() if number]
    gpu = f"{facts['gpu']}; " if facts["gpu"] else ""
    return (
        f"{facts['date']}; {gpu}{facts['processor']}, {facts['cores']} cores, "
        f"{facts['memory_bytes'] / GIB:.0f} GiB, {facts['threads']} threads;\n"
        f"Python {facts['python']}, {', '.join(versions)}"
    )


def processor() -> str:
    """Its name as Linux tells it, or what Python knows."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())


def require_gpu(device: str) -> None:
    """Exit with a message where the device is a GPU that this PyTorch cannot use."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit(
            f"expected a GPU for --device {device}, found none that this PyTorch can use; "
            "install its CUDA build, or take --device cpu"
        )


def require_memory(needed: int, free: int, option: str, cure: str) -> None:
    """Exit with a message if the weights that an option names do not fit in memory."""
    if needed > free:
        sys.exit(
            f"expected memory for the weights of {option} ({needed / GIB:.0f} GiB), found "
            f"{free / GIB:.0f} GiB free; {cure}"
        )


@dataclass(frozen=True)
class Usage:
    """Seconds since some start: of the clock, of all busy cores, and of this process."""

    clock: float
    busy: float
    own: float

    @classmethod
    def now(cls) -> "Usage":
        cores, own = psutil.cpu_times(), os.times()
        idle = cores.idle + getattr(cores, "iowait", 0.0)
        guests = getattr(cores, "guest", 0.0) + getattr(cores, "guest_nice", 0.0)  # counted twice
        return cls(time.perf_counter(), sum(cores) - idle - guests, sum(own[:4]))

    def others(self) -> float:
        """How many cores other processes kept busy since then, on average."""
        now = Usage.now()
        busy, own = now.busy - self.busy, now.own - self.own
        return max(0.0, busy - own) / max(now.clock - self.clock, 1e-9)


def meanwhile(others: float) -> str:
    """What `Usage.others` says, as a sentence of a report."""
    return f"Other processes kept {others:.2f} cores busy meanwhile."


@dataclass(frozen=True)
class Timing:
    """Medians of a method's rounds, and what it computed."""

    seconds: float
    """By the clock."""
    cpu: float
    """Processor time of all threads: other work on the machine disturbs it less than the clock."""
    rounds: int
    result: Tensor
    spreads: tuple[float, float] = (0.0, 0.0)
    """Between the quartiles of the rounds, as a share of the median: of the clock, of `cpu`."""

    def spent(self, device: torch.device) -> float:
        """What ratios and exponents are of: processor time, or the clock where a GPU works."""
        return self.cpu if device.type == "cpu" else self.seconds

    def spread(self, device: torch.device) -> float:
        """Of what `spent` is the median of."""
        return self.spreads[device.type == "cpu"]


def timed(
    methods: Mapping[Name, Callable[[], Tensor]],
    *,
    repeats: int,
    budget: int | float,
    device: torch.device,
) -> dict[Name, Timing]:
    """Run every method once per round, until it has run `repeats` times or for `budget` seconds.

    Rounds weigh on all methods alike. A method's first run warms it up and does not count, unless
    it alone used up the budget.
    """
    runs: dict[Name, list[tuple[float, float]]] = {name: [] for name in methods}
    results: dict[Name, Tensor] = {}
    for _ in range(1 + repeats):
        for name, compute in methods.items():
            if not runs[name] or sum(seconds for seconds, _ in runs[name]) < budget:
                results[name], seconds, busy = once(compute, device)
                runs[name].append((seconds, busy))
    return {name: _medians(runs[name][1:] or runs[name], results[name]) for name in methods}


def once(compute: Callable[[], Tensor], device: torch.device) -> tuple[Tensor, float, float]:
    """The result, seconds by the clock, and seconds of the processor."""
    finish(device)
    start, busy = time.perf_counter(), time.process_time()
    result = compute()
    finish(device)
    return result, time.perf_counter() - start, time.process_time() - busy


def finish(device: torch.device) -> None:
    """Wait for the work of a GPU: calls return before it is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _medians(runs: list[tuple[float, float]], result: Tensor) -> Timing:
    clock, busy = zip(*runs, strict=True)
    return Timing(median(clock), median(busy), len(runs), result, (_spread(clock), _spread(busy)))


def _spread(values: tuple[float, ...]) -> float:
    if len(values) < 2:
        return 0.0
    low, _, high = quantiles(values, n=4)
    return (high - low) / median(values)


def resident(device: torch.device, *, reset: bool = False) -> int | None:
    """The peak since the last reset, which makes it what is resident now; None if not known.

    On a CPU it is the peak of the process's resident memory (Linux), on a GPU what torch allocated.
    """
    finish(device)
    if device.type == "cuda":
        if reset:
            torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.max_memory_allocated(device)
    resetting, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    if not resetting.exists():
        return None
    if reset:
        gc.collect()
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)  # glibc keeps what was freed
        resetting.write_text("5")  # resets the peak: proc(5), clear_refs
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def peak_beyond(before: int | None, device: torch.device) -> int | None:
    """The peak since the last reset above what was resident then; None where it is not known."""
    peak = resident(device)
    return None if peak is None or before is None else peak - before


MMAP_THRESHOLD = "65536"
"""Bytes from which glibc hands freed memory back at once; else holes in its heap count as used."""

Cell: TypeAlias = str | int | float | None
"""None where nothing was measured."""


def in_process(job: Any) -> dict[str, Cell]:
    """Measure a job (a dataclass with `measure()`) in a process of its own.

    Raises:
        RuntimeError: the process failed.
    """
    fresh = multiprocessing.get_context("spawn")
    with (
        patch.dict(os.environ, MALLOC_MMAP_THRESHOLD_=MMAP_THRESHOLD),
        ProcessPoolExecutor(1, mp_context=fresh) as process,
    ):
        try:
            return process.submit(job.measure).result()
        except Exception as error:
            raise RuntimeError(f"memory of {job} could not be measured: {error}") from error


@dataclass(frozen=True)
class Column:
    """How a column is printed: its name in the rows, a format, and what numbers are times."""

    name: str
    form: str = ""
    scale: int | float = 1

    def written(self, value: Cell) -> str:
        """Nothing is written for None."""
        if value is None:
            return ""
        return format(value if isinstance(value, str) else self.scale * value, self.form)


@dataclass(frozen=True)
class SpeedTable:
    """Rows of text and numbers: stored in a run, and printed. A row may lack a column."""

    rows: Sequence[Mapping[str, Cell]]

    def to_arrays(self) -> Arrays:
        """The rows, in the header."""
        return Arrays({}, {"kind": "table", "rows": [*map(dict, self.rows)]})

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "SpeedTable":
        """Read `to_arrays` back. Raises ValueError if the arrays are of another kind."""
        arrays.require("table")
        return cls(arrays.header["rows"])

    def to_dataframe(self) -> "DataFrame":
        """One row per measurement."""
        from pandas import DataFrame

        return DataFrame(list(self.rows), dtype=object)

    def markdown(self, columns: Mapping[str, Column]) -> str:
        """Some columns, by their headings."""
        from pandas import DataFrame

        cells = DataFrame(
            {title: column.written(row.get(column.name)) for title, column in columns.items()}
            for row in self.rows
        )
        return cells.to_markdown(index=False, disable_numparse=True, stralign=None)


def print_and_save(
    experiment: str, config: Any, root: Path, lines: Callable[[Run, dict[str, Any]], Iterable[str]]
) -> None:
    """Open the run of a configuration, print each line as it is measured, and save the report.

    Args:
        experiment: the run's experiment.
        config: what is measured, with the device.
        root: the folder of all runs.
        lines: measures, with the run and the machine's facts.
    """
    facts = machine(config.device)
    with open_run(experiment, config, root=root) as run:
        report = []
        for line in lines(run, facts):
            print(line, flush=True)
            report.append(line)
        (run.path / "report.md").write_text("\n".join(report) + "\n", encoding="utf-8")
    print(f"saved in {run.path}")


@dataclass(frozen=True)
class Shape:
    """A LLaMA, and how many prompt pairs of how many tokens."""

    n_layers: int
    d_model: int
    n_heads: int
    d_mlp: int
    d_vocab: int
    n_pairs: int
    n_tokens: int
    n_kv_heads: int | None = None
    """Fewer where queries are grouped; then it is a Mistral."""

    def __str__(self) -> str:
        grouped = "" if self.n_kv_heads is None else f" ({self.n_kv_heads} of keys and values)"
        return (
            f"{self.n_layers} layers, d_model {self.d_model}, {self.n_heads} heads{grouped}, "
            f"d_mlp {self.d_mlp}, vocabulary {self.d_vocab:,}; {self.n_pairs} pairs of "
            f"{self.n_tokens} tokens"
        )


SHAPES = {
    "tiny": Shape(12, 128, 8, 352, 640, n_pairs=32, n_tokens=16),
    "middle": Shape(8, 512, 16, 1376, 32_000, n_pairs=8, n_tokens=16),
    "wide": Shape(2, 4096, 32, 11_008, 32_000, n_pairs=2, n_tokens=12),
    "llama-7b": Shape(32, 4096, 32, 11_008, 32_000, n_pairs=8, n_tokens=16),
    "llama-13b": Shape(40, 5120, 40, 13_824, 32_000, n_pairs=8, n_tokens=16),
    "mistral-7b": Shape(32, 4096, 32, 14_336, 32_000, n_pairs=8, n_tokens=16, n_kv_heads=8),
}
"""The shipped reference model; a model that a CPU patches in seconds; two layers of LLaMA2-7B, at
its full width; all of its 32; LLaMA2-13B and Mistral-7B."""


@dataclass(frozen=True)
class Setting:
    """One random model, as Transformers has it and as this package loads it, and its prompts."""

    shape: Shape
    raw: Any
    model: HookedModel
    """Shares its weights with `raw`, and nothing else: a bridge changes what it wraps."""
    pairs: PromptPairs
    reference: Int[Tensor, "pair pos"]
    counterfactual: Int[Tensor, "pair pos"]
    answer: Int[Tensor, " pair"]

    @property
    def device(self) -> torch.device:
        return self.reference.device

    def first_pair(self) -> "Setting":
        """The same model with one pair."""
        return replace(
            self,
            pairs=self.pairs[:1],
            reference=self.reference[:1],
            counterfactual=self.counterfactual[:1],
            answer=self.answer[:1],
        )

    @property
    def senders(self) -> list[Component]:
        """Every head, then every MLP."""
        shape = self.shape
        return every_component(shape.n_layers, shape.n_heads)


def setting_of(
    shape: Shape, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
) -> Setting:
    """A random model and random prompts on a device; on "meta", their shapes alone."""
    raw = random_llama(shape, device, dtype)
    pairs = random_token_pairs(shape)
    return Setting(
        shape=shape,
        raw=raw,
        model=load_model((twin(raw), any_tokenizer())),
        pairs=pairs,
        reference=pairs.reference.to(device),
        counterfactual=pairs.counterfactual.to(device),
        answer=pairs.answer.to(device),
    )


def random_llama(shape: Shape, device: str | torch.device, dtype: torch.dtype) -> Any:
    """A Transformers LLaMA (Mistral, where queries are grouped) with random weights."""
    from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig

    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": shape.d_vocab,
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_mlp,
        "num_hidden_layers": shape.n_layers,
        "num_attention_heads": shape.n_heads,
    }
    config = LlamaConfig(**sizes)
    if shape.n_kv_heads is not None:
        config = MistralConfig(**sizes, num_key_value_heads=shape.n_kv_heads)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def weights_bytes(size: str, dtype: str) -> int:
    """What the weights of a shape take in a dtype."""
    weights = random_llama(SHAPES[size], "meta", getattr(torch, dtype)).parameters()
    return sum(weight.nbytes for weight in weights)


def twin(model: Any) -> Any:
    """A copy that shares the weights."""
    return copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})


def any_tokenizer() -> Any:
    """Prompts are random tokens, but a model needs a tokenizer."""
    from transformers import LlamaTokenizer

    return LlamaTokenizer(vocab={"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3}, merges=[])


def random_token_pairs(shape: Shape) -> PromptPairs:
    """References, and counterfactuals with about a quarter of the tokens exchanged."""
    generator = torch.Generator().manual_seed(1)
    size = (shape.n_pairs, shape.n_tokens)
    reference, other = torch.randint(4, shape.d_vocab, (2, *size), generator=generator)
    replaced = torch.rand(size, generator=generator) < 0.25
    replaced[:, shape.n_tokens // 2] = True  # else a short pair may have none
    answer = torch.randint(4, shape.d_vocab, size[:1], generator=generator)
    return PromptPairs.from_tokens(reference, torch.where(replaced, other, reference), answer)
