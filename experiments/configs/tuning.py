"""What is tuned, and what is asked of tuned models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from experiments.configs.shared import Dtype, ExperimentOptions

WORLD_DEFAULTS: Mapping[str, Any] = {
    "rates": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    **{"examples": 4000, "epochs": 1, "batch": 32, "questions": 500},
    **{"heads": 3, "several": (1, 2, 3, 5, 6, 12)},
}
"""Settings for models of 96 heads: 3 heads correspond to 32 of LLaMA2-7B's 1,024."""

PAPER_DEFAULTS: Mapping[str, Any] = {
    "rates": (2e-5,),
    **{"examples": 0, "epochs": 2, "batch": 128, "questions": 0},
    **{"heads": 32, "several": (8, 16, 32, 48, 64)},
}
"""Settings of section 5.3 and Table 2."""

SHORT_ANSWERS: Mapping[str, Any] = {
    "rates": (1e-4, 1e-3),
    **{"examples": 0, "epochs": 1, "batch": 8, "questions": 300},
    **{"heads": 7, "several": (2, 7)},
}
"""Settings for a pretrained model of some hundred million parameters on a CPU."""


@dataclass(frozen=True)
class TuningConfig:
    """Does tuning the heads that calculate help?"""

    model: str = "reference"
    """A shipped model's name, a Hugging Face id, or a directory."""
    data_dir: Path | None = None
    """The folder of the benchmarks, for the paper's data with its settings by default. If not
    given, the closed world's data with settings of its size."""
    form: Literal["solution", "answer"] = "solution"
    """On the benchmarks: learn written solutions and take the paper's questions; or learn numbers
    alone, choose rates on problems that are held out, and take short questions."""
    rates: tuple[float, ...] = ()
    """Learning rates to try, the same for all methods; with written solutions only one."""
    examples: int | None = None
    """Word problems per training, drawn with its seed; 0 takes all."""
    epochs: int | None = None
    """Passes over the examples."""
    batch: int | None = None
    """Examples per step."""
    questions: int | None = None
    """Questions of each task of the closed world, or test questions of each benchmark (of MMLU, of
    each subject); 0 takes all."""
    heads: int | None = None
    """Heads of Table 1, about 3% of them."""
    several: tuple[int, ...] = ()
    """Heads of Table 2."""
    which_heads: tuple[str, ...] = ()
    """The heads to tune, such as 12.22 13.11, the most important first; by path patching of the
    four operations if not given."""
    which_mlps: tuple[int, ...] = ()
    """The layers of the MLPs to tune, the most important first."""
    mlps: int = 3
    """MLPs beside the heads in Table 2."""
    more: tuple[int, ...] = (0, 1, 2, 3, 6, -1)
    """MLPs of Table 5; -1 is all."""
    n: int | None = None
    """Distinct reference prompts per operation for finding heads; all if not given."""
    seed: int = 0
    """The seed of the sampling and of the first training."""
    dtype: Dtype = None
    """The precision for answering. With bfloat16 it is used for tuning too; else tuning is in
    float32. If not given, float32 on a CPU, and on a GPU the checkpoint's own (benchmarks:
    bfloat16)."""
    device: str | None = None
    """Such as cuda:1; the GPU if there is one."""
    tasks: tuple[str, ...] = ()
    """Benchmarks, by their names in `al.evaluate` (such as mmlu_philosophy); the paper's six if not
    given."""
    shots: dict[str, int] = field(default_factory=dict)
    """Worked examples by benchmark, such as gsm8k 5; those of published results if not given."""
    max_new_tokens: int | None = None
    """Of a written answer; what the benchmark says, mostly 256, if not given."""

    @classmethod
    def filled(cls, settings: Mapping[str, Any], n_layers: int | None) -> dict[str, Any]:
        """The defaults that depend on the data and on the model's number of layers."""
        if settings.get("data_dir") is None:
            defaults = dict(WORLD_DEFAULTS)
        elif settings.get("form", "solution") == "solution":
            from arith_lens.paper import BENCHMARKS  # imports PyTorch

            defaults = {**PAPER_DEFAULTS, "tasks": BENCHMARKS}
        else:
            defaults = dict(SHORT_ANSWERS)
        return defaults | {"more": counts_of_mlps(cls.more, n_layers)}


def counts_of_mlps(counts: Sequence[int], n_layers: int | None) -> tuple[int, ...]:
    """The counts that a model can have; -1 is all. None: its number of layers is not known."""
    if n_layers is None:
        return tuple(counts)
    return tuple(dict.fromkeys(n_layers if n < 0 else n for n in counts if n <= n_layers))


@dataclass(frozen=True)
class TrainingBudget:
    """Memory and disk of a training; they change results only by rounding."""

    micro_batch: int | None = None
    """Examples at once on one device; 8 on the benchmarks, else the whole batch, if not given."""
    recompute: bool | None = None
    """Gradient checkpointing; on the benchmarks on a GPU if not given."""
    save_every: int | None = None
    """Steps that a killed training may lose; 20 on the benchmarks, else 100, if not given."""
    keep_checkpoints: bool = False
    """Keep the whole models that full tuning and LoRA leave, which are as large as the model, once
    their answers are saved. The slices of precise tuning are always kept."""
    weights: bool = False
    """At the chosen rates, train again where answers are stored without the weights, as in a run
    that was copied without them."""


@dataclass(frozen=True)
class TrainingOptions(ExperimentOptions):
    """Which trainings are done, and how."""

    table: Literal[1, 2, 5] = 1
    """Which table; all tables of a configuration share a run."""
    seeds: int = 5
    """Trainings at each chosen rate, with the one of the grid; more can be added later."""
    processes: int | None = None
    """Trainings at a time, each with one thread. If not given, 1 on a GPU and on the benchmarks,
    else one per core, at most 4."""
    room: Annotated[TrainingBudget, tyro.conf.arg(name="")] = TrainingBudget()
    """Memory and disk."""


@dataclass(frozen=True)
class TuneConfig:
    """Tune chosen heads and MLPs on your own prompts and answers, on one process or several.

        python -m experiments tune --data train.jsonl --heads 12.22 13.11 --output tuned
        accelerate launch --multi_gpu --num_processes 2 -m experiments tune --data train.jsonl ...

    The same settings give the same losses on any number of processes, within rounding.
    """

    data: str
    """JSONL of objects with `prompt` and `answer`."""
    output: str
    """A folder for the delta or the checkpoint; a stopped tuning continues from it."""
    model: str = "reference"
    """`reference`, a directory or a hub id."""
    method: Literal["precise", "full", "lora", "random"] = "precise"
    heads: tuple[str, ...] = ()
    """Such as 12.22 13.11."""
    mlps: tuple[int, ...] = ()
    """Their layers."""
    learning_rate: float = 2e-5
    batch_size: int = 128
    """Of all processes together."""
    micro_batch: int | None = None
    """Examples at once on one device."""
    epochs: float = 2
    max_steps: int | None = None
    """Stop after so many steps, instead of after the epochs."""
    save_every: int = 100
    """Steps between checkpoints; 0: none."""
    log_every: int = 10
    bf16: bool = False
    gradient_checkpointing: bool = False
    seed: int = 0
    device: str | None = None


@dataclass(frozen=True)
class TuneOptions:
    """Whether to tune."""

    dry_run: bool = False
    """Print what would be done, and stop."""
