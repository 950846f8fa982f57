"""The plan of a table: default settings, data, and the plan in words."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

import arith_lens as al
from arith_lens.fine_tuning import TuningSettings, n_elements, pieces_of, prepare
from arith_lens.fine_tuning.pieces import layout_of
from arith_lens.model import find_checkpoint, read_config
from arith_lens.paper import BENCHMARKS
from experiments.configs.tuning import (
    PAPER_DEFAULTS,
    TrainingBudget,
    TuningConfig,
    counts_of_mlps,
)
from experiments.does_tuning_help import TuningMethod, TuningRow
from experiments.does_tuning_help.studies import Benchmarks, ShortAnswers, Study, World

BENCHMARK_OPTIONS = ("tasks", "shots", "max_new_tokens")
"""Options that only benchmarks have."""
LATER_OPTIONS: Mapping[str, Any] = {"form": "solution", "which_heads": (), "which_mlps": ()}
"""Options with their defaults. At the default they are no part of a run's identity, since stored
runs are older than they."""


@dataclass(frozen=True)
class TuningPlan:
    """A configuration with all its defaults filled in."""

    config: TuningConfig
    study: Study
    recipe: TuningSettings
    """The settings of all trainings, less rate and seed."""
    keep_checkpoints: bool
    dtype: str = "float32"
    """The precision for answering."""

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that decide the results of this study."""
        settings = vars(self.config)
        left_out = {name for name, default in LATER_OPTIONS.items() if settings[name] == default}
        left_out |= set() if self.config.data_dir is not None else {*BENCHMARK_OPTIONS}
        return {k: v for k, v in settings.items() if k not in left_out}

    def with_dtype(self, dtype: torch.dtype) -> "TuningPlan":
        """The plan with a model's precision; bfloat16 is used for tuning too."""
        recipe = replace(self.recipe, bf16=dtype == torch.bfloat16)
        return replace(self, recipe=recipe, dtype=str(dtype).removeprefix("torch."))


def planned(config: TuningConfig, n_layers: int, room: TrainingBudget | None = None) -> TuningPlan:
    """The plan of a configuration; its defaults are the paper's on benchmarks, else small ones.

    Raises:
        ValueError: several rates on the benchmarks, or options of benchmarks without data_dir.
    """
    room = room or TrainingBudget()
    in_world = config.data_dir is None
    defaults = TuningConfig.filled(vars(config), n_layers) | {"tasks": ()}
    open_ = {name: value for name, value in defaults.items() if getattr(config, name) in (None, ())}
    filled: Any = replace(config, **open_, more=counts_of_mlps(config.more, n_layers))
    study = _study(filled)
    is_large = isinstance(study, Benchmarks) and on_gpu(filled.device)
    if isinstance(study, Benchmarks):
        filled = replace(filled, tasks=study.names)
    if is_large:
        filled = replace(filled, dtype=filled.dtype or "bfloat16")
    settings: dict[str, Any] = {
        "micro_batch": None if in_world else fitting_micro_batch(filled.batch),
        "recompute": is_large,
        "save_every": 100 if in_world else 20,
    }
    settings |= {name: value for name, value in vars(room).items() if value is not None}
    recipe = TuningSettings(
        epochs=filled.epochs,
        batch_size=filled.batch,
        micro_batch=settings["micro_batch"],
        bf16=filled.dtype == "bfloat16",
        gradient_checkpointing=settings["recompute"],
        save_every=settings["save_every"],
        end_with_eos=study.end_with_eos,
    )
    return TuningPlan(filled, study, recipe, room.keep_checkpoints or in_world)


def _study(config: Any) -> Study:
    """The data and questions of a configuration whose defaults are filled in."""
    unused = ", ".join(name for name in BENCHMARK_OPTIONS if getattr(config, name))
    if config.data_dir is None:
        if unused:
            raise ValueError(
                f"expected --data-dir, the benchmarks' folders, with {unused}, found none: the "
                "closed world's questions are asked in one way"
            )
        if config.form != "solution":
            raise ValueError("expected --data-dir, the benchmarks' folders, with --form answer")
        return World(config.examples, config.questions)
    if config.form == "answer":
        if unused:
            raise ValueError(f"expected --form solution with {unused}, found answer")
        return ShortAnswers(config.data_dir, config.examples, config.questions)
    if len(config.rates) > 1:
        raise ValueError(
            f"expected one rate on the benchmarks (the paper's is {PAPER_DEFAULTS['rates'][0]:g}), "
            f"found {config.rates}: no part of theirs is held out to choose a rate on"
        )
    return Benchmarks(
        config.data_dir,
        config.examples,
        config.questions,
        config.tasks or BENCHMARKS,
        shots=config.shots,
        max_new_tokens=config.max_new_tokens,
    )


def table_rows(table: Literal[1, 2, 5], config: Any) -> tuple[TuningRow, ...]:
    """The rows of a table, in the paper's order, for a configuration with its defaults."""
    if table == 1:
        methods: tuple[TuningMethod, ...] = ("precise", "lora", "random")
        return (TuningRow("full"), *(TuningRow(method, config.heads) for method in methods))
    if table == 2:
        alone = (TuningRow("precise", heads) for heads in config.several)
        return (*alone, TuningRow("precise", config.heads, config.mlps))
    return tuple(TuningRow("precise", config.heads, mlps) for mlps in config.more)


def check_named_components(config: TuningConfig, tuned: Sequence[TuningRow]) -> None:
    """Refuse fewer named heads or MLPs than a row tunes. Raises ValueError."""
    largest = {
        "which_heads": max(row.heads for row in tuned),
        "which_mlps": max(row.mlps for row in tuned),
    }
    for name, count in largest.items():
        if config.which_heads and len(getattr(config, name)) < count:
            raise ValueError(
                f"expected --{name.replace('_', '-')} with at least {count}, as many as a row "
                f"tunes, found {len(getattr(config, name))}"
            )


def fitting_micro_batch(batch: int, most: int = 8) -> int:
    """The largest divisor of a batch that is at most `most`."""
    return next(size for size in range(min(batch, most), 0, -1) if batch % size == 0)


def on_gpu(device: str | None) -> bool:
    """Whether the model will be on a GPU."""
    return str(device).startswith("cuda") if device else torch.cuda.is_available()


def empty_hf_model(source: str) -> Any:
    """The model's shape, without its weights: `config.json` is all that is read.

    Raises:
        as `find_checkpoint`.
    """
    from transformers import AutoModelForCausalLM

    config = read_config(find_checkpoint(source, weights=False))
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def trainings_text(
    tuned: Sequence[TuningRow], table: int, plan: TuningPlan, seeds: int, empty: Any
) -> str:
    """The trainings of a table, in words.

    Args:
        tuned, table: the rows, and which table they are of.
        seeds: trainings at the chosen rate.
        empty: the model on the meta device.
    """
    config, recipe = plan.config, plan.recipe
    layout, total = layout_of(empty), sum(weight.numel() for weight in empty.parameters())
    rates = len(config.rates)
    several = rates > 1
    count = len(tuned) * (rates + (1 + several) * (seeds - 1))
    times = f"{rates} rates and, at the two that are chosen, {seeds - 1} further seeds" * several
    times = times or f"{seeds} seed{'s' * (seeds > 1)}"
    lines = [
        f"{config.model}: {layout.n_layers} layers of {layout.n_heads} heads, {total:,} parameters",
        f"table {table}: {len(tuned)} rows, each at {times}: "
        f"{'at most ' * several}{count} trainings",
    ]
    for row in tuned:
        count, rank = parameter_count(empty, row)
        ranked = f", rank {rank}" if rank else ""
        lines.append(f"  {row.name}: {count:,} parameters ({count / total:.1%}){ranked}")
    n_examples = len(plan.study.tuning_set(0))
    steps = -(-n_examples // recipe.batch_size) * recipe.epochs
    in_parts = recipe.micro_batch not in (None, recipe.batch_size)
    again = ", activations computed again in the backward" * recipe.gradient_checkpointing
    dtype = config.dtype or ("the checkpoint's own" if on_gpu(config.device) else "float32")
    lines += [
        f"a training: {n_examples:,} examples, {recipe.epochs} epoch{'s' * (recipe.epochs > 1)}, "
        f"{recipe.batch_size} a step{f' ({recipe.micro_batch} at once)' * in_parts}: {steps:,} "
        f"steps, a checkpoint every {recipe.save_every}",
        f"AdamW, rate {' or '.join(f'{rate:g}' for rate in config.rates)}, warm-up "
        f"{recipe.warmup:.0%}, then {recipe.schedule} to 0; weight decay "
        f"{recipe.weight_decay:g}; gradients clipped at {recipe.max_grad_norm:g}, those of "
        "heads' slices times heads by tuned heads of the layer",
        f"weights in {'bfloat16, what is tuned in float32' if recipe.bf16 else 'float32'}{again}; "
        f"answers in {dtype}",
        *plan.study.described(),
    ]
    return "\n".join(lines)


def parameter_count(empty: Any, row: TuningRow) -> tuple[int, int | None]:
    """How many parameters a row trains, and LoRA's rank.

    The heads and MLPs are not known before path patching. With grouped queries, heads of one group
    share a key and a value; then this is the largest possible number.
    """
    if row.method == "full":
        return sum(weight.numel() for weight in empty.parameters()), None
    layout = layout_of(empty)
    size = layout.n_heads // layout.n_kv_heads
    heads = sorted(
        (al.Head(layer, i) for layer in range(layout.n_layers) for i in range(layout.n_heads)),
        key=lambda head: (head.index % size, head),
    )[: row.heads]
    mlps = [al.Mlp(layer) for layer in range(row.mlps)]
    if row.method != "lora":
        return n_elements(empty, pieces_of(empty, heads, mlps)), None
    adapted = prepare(copy.deepcopy(empty), "lora", heads, mlps, TuningSettings())
    trained = (w.numel() for w in adapted.model.parameters() if w.requires_grad)
    return sum(trained), adapted.lora_rank
