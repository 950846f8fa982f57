"""The Trainer of `transformers`, adapted to precise fine-tuning.

Checkpoints contain the trained parameters only. A checkpoint is used only if its
`trainer_state.json`, which is written last, can be read. So a process that was killed while it
wrote a checkpoint continues from the previous one.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor

from arith_lens.fine_tuning.examples import IGNORED, ByLength, Example, collate, filled
from arith_lens.fine_tuning.methods import Prepared, TuningSettings


def n_processes() -> int:
    """The number of processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_sharded() -> bool:
    """Whether `accelerate launch --use_fsdp` shards the parameters over the processes."""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() in ("1", "true")


def refuse_sharded(method: str, device: str) -> None:
    """Raise ValueError for FSDP unless it is full fine-tuning on a GPU.

    Other methods write slices into whole matrices, and need gradients and optimizer state for a few
    percent of the weights only. Without a GPU, accelerate ignores `--use_fsdp` without a message.
    """
    if is_sharded() and method != "full":
        raise ValueError(
            f"expected method 'full' under FSDP, found {method!r}; start the others without "
            "--use_fsdp, data parallel"
        )
    if is_sharded() and device == "cpu":
        raise ValueError(
            "expected GPUs under FSDP, found the CPU, where accelerate shards nothing; start "
            "without --use_fsdp"
        )


def whole_state(trainer: Any) -> dict[str, Any] | None:
    """The tuned weights, gathered by the first process; None if every process has all of them."""
    if not trainer.is_fsdp_enabled:
        return None
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return get_model_state_dict(trainer.model_wrapped, options=options)


WEIGHTS = "model.safetensors"


def train(
    prepared: Prepared,
    examples: list[Example],
    settings: TuningSettings,
    folder: Path,
    *,
    device: str | None,
    progress: bool,
) -> Any:
    """Train, from the last complete checkpoint in `folder` if there is one. Returns the Trainer."""
    trainer = trainer_for(prepared, examples, settings, folder, device=device, progress=progress)
    checkpoint = last_checkpoint(folder)
    trainer.outcome = trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
    return trainer


def trainer_for(
    prepared: Prepared,
    examples: list[Example],
    settings: TuningSettings,
    folder: Path,
    *,
    device: str | None,
    progress: bool,
) -> Any:
    """The Trainer, before its first step."""
    from transformers import PrinterCallback, set_seed

    set_seed(settings.seed)
    lengths = [len(example.input_ids) for example in examples]
    if n_processes() > 1:
        examples = filled(examples, settings.batch_size)
    trainer = _trainer_class()(
        prepared.model,
        _arguments(prepared.model, settings, folder, device=device, progress=progress),
        train_dataset=examples,
        data_collator=collate,
    )
    trainer.remove_callback(PrinterCallback)  # it prints if there is no bar
    trainer.rates = prepared.rates or {}
    n_silent = len(examples) - len(lengths)
    trainer.sampler = ByLength(lengths, settings.batch_size, settings.seed, n_silent)
    return trainer


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint; None if there is none."""
    complete = [path for path in folder.glob("checkpoint-*") if _is_whole(path)]
    return max(complete, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def _is_whole(checkpoint: Path) -> bool:
    try:
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return (checkpoint / WEIGHTS).is_file()


def _arguments(
    model: Any, settings: TuningSettings, folder: Path, *, device: str | None, progress: bool
) -> Any:
    from transformers import TrainingArguments

    processes = n_processes()
    micro = settings.micro_batch or max(1, settings.batch_size // processes)
    if settings.batch_size % (micro * processes):
        raise ValueError(
            f"expected batch_size to be a multiple of micro_batch x processes, found "
            f"{settings.batch_size} and {micro} x {processes}"
        )
    return TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=settings.batch_size // (micro * processes),
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps or -1,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.schedule,
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        bf16=settings.bf16 and next(iter(model.parameters())).dtype == torch.float32,
        max_grad_norm=settings.max_grad_norm,
        optim="adamw_torch",
        seed=settings.seed,
        **_recomputing(settings),
        save_strategy="steps" if settings.save_every else "no",
        save_steps=settings.save_every or 500,
        save_total_limit=2,
        logging_steps=settings.log_every,
        logging_nan_inf_filter=False,
        disable_tqdm=not progress,
        report_to="none",
        use_cpu=device == "cpu",
        dataloader_pin_memory=device != "cpu",
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,
    )


def _recomputing(settings: TuningSettings) -> dict[str, Any]:
    """The argument for gradient checkpointing in this version of Transformers."""
    from transformers import TrainingArguments

    if not settings.gradient_checkpointing:
        return {}
    known = {field.name for field in fields(TrainingArguments)}
    kind = "activation" if "activation_checkpointing" in known else "gradient"
    return {
        f"{kind}_checkpointing": True,
        f"{kind}_checkpointing_kwargs": {"use_reentrant": False},
    }


@contextmanager
def answer_logits(
    hf_model: Any, labels: Int[Tensor, "batch pos"]
) -> Iterator[Int[Tensor, "1 answers"]]:
    """Within the context, the model computes logits only where a label follows.

    Most positions belong to prompts and padding, which have no loss. With a large vocabulary their
    logits cost more than all layers. The model's own code computes the loss, so its caps and
    factors apply.

    Args:
        hf_model: a causal language model of Transformers.
        labels: the label of each position, `IGNORED` where it has no loss.

    Yields:
        The labels that belong to these logits, to be passed in place of `labels`.
    """
    followed = torch.zeros_like(labels, dtype=torch.bool)
    followed[:, :-1] = labels[:, 1:] != IGNORED
    # models pair each logit with the next label, so one more position is needed at the end
    no_label = labels.new_full((1,), IGNORED)
    chosen = torch.cat([no_label, labels[:, 1:][followed[:, :-1]]])[None]

    def choose(_: Any, inputs: tuple[Float[Tensor, "batch pos d_model"], ...]) -> Any:
        stream, *others = inputs
        return (torch.cat([stream[followed], stream[-1:, -1]])[None], *others)

    handle = hf_model.get_output_embeddings().register_forward_pre_hook(choose)
    try:
        yield chosen
    finally:
        handle.remove()


def _trainer_class() -> Any:
    from transformers import Trainer

    class TuningTrainer(Trainer):
        rates: dict[str, float]
        sampler: ByLength
        outcome: Any

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return self.sampler

        def compute_loss(
            self, model: Any, inputs: dict[str, Any], *options: Any, **named: Any
        ) -> Any:
            if self.args.n_gpu > 1:  # torch's DataParallel splits the batch and its labels by rows
                return super().compute_loss(model, inputs, *options, **named)
            with answer_logits(self.model, inputs["labels"]) as labels:
                return super().compute_loss(model, inputs | {"labels": labels}, *options, **named)

        def create_optimizer(self, model: Any = None) -> Any:
            optimizer = super().create_optimizer(model)
            if self.rates:
                _split_groups(optimizer, _trained_parameters(self.model), self.rates)
            return optimizer

        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            gathered = whole_state(self)  # by all processes together
            if not self.args.should_save:
                return
            to = Path(output_dir or str(self.args.output_dir))
            to.mkdir(parents=True, exist_ok=True)
            save_file(gathered or trained_of(self.model), to / WEIGHTS)

        def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
            if self.is_fsdp_enabled:  # FSDP stores its own shards beside the weights
                super()._load_from_checkpoint(resume_from_checkpoint, model)
                return
            saved = load_file(Path(resume_from_checkpoint) / WEIGHTS)
            parameters = _trained_parameters(self.model if model is None else model)
            if saved.keys() != parameters.keys():
                raise ValueError(
                    f"expected the {len(parameters)} trained parameters in "
                    f"{resume_from_checkpoint}, found {len(saved)} others; give another "
                    "output folder"
                )
            for name, value in saved.items():
                parameters[name].data.copy_(value)

    return TuningTrainer


def trained_of(model: Any) -> dict[str, Any]:
    """Copies of the parameters that are trained, by name."""
    return {
        name: weight.detach().cpu().contiguous()
        for name, weight in _trained_parameters(model).items()
    }


def _trained_parameters(model: Any) -> dict[str, Any]:
    model = getattr(model, "module", model)
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _split_groups(optimizer: Any, names: dict[str, Any], rates: dict[str, float]) -> None:
    """Make one parameter group per factor of the rate. The schedule uses the groups' rates."""
    factor = {id(weight): rates.get(name, 1.0) for name, weight in names.items()}
    groups = list(optimizer.param_groups)
    optimizer.param_groups.clear()
    for group in groups:
        for scale in sorted({factor[id(p)] for p in group["params"]}):
            chosen = [p for p in group["params"] if factor[id(p)] == scale]
            optimizer.add_param_group({**group, "params": chosen, "lr": group["lr"] * scale})
