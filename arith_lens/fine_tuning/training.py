"""Training on answers: examples in tokens, and the Trainer of `transformers`.

An example is a prompt with its answer. The loss is on the answer's tokens and EOS alone, and logits
are computed at these positions only.

Checkpoints contain the trained parameters only. A checkpoint is used only if its
`trainer_state.json`, which is written last, can be read. So a process that was killed while it
wrote a checkpoint continues from the previous one.
"""

import hashlib
import json
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Sampler

from arith_lens.fine_tuning.methods import Prepared, TuningSettings
from arith_lens.model import token_rows
from arith_lens.pairs import tokens_after
from arith_lens.untrusted import parse_json

IGNORED = -100  # the label that Transformers' losses ignore


@dataclass(frozen=True)
class Example:
    """One tokenized prompt with its answer."""

    input_ids: tuple[int, ...]
    n_prompt: int
    """The number of tokens without loss."""


def read_dataset(dataset: Any) -> list[tuple[str, str]]:
    """(prompt, answer) of each row.

    Args:
        dataset: mappings with `prompt` and `answer`, a `datasets.Dataset` with these columns, or
            the path of a JSONL file of such objects.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a line is not JSON, there are no rows, or a row lacks text in a column.
        TypeError: the dataset does not consist of rows, such as a DatasetDict of splits.
    """
    if isinstance(dataset, str | Path):
        path = Path(dataset)
        if not path.is_file():
            raise FileNotFoundError(
                f"expected a JSONL file of prompts and answers, found none at {path}"
            )
        with path.open(encoding="utf-8") as lines:
            dataset = [_parsed(line, n, path) for n, line in enumerate(lines, 1) if line.strip()]
    if isinstance(dataset, Mapping) or not isinstance(dataset, Iterable):
        names = f" of {', '.join(map(str, dataset))}" if isinstance(dataset, Mapping) else ""
        raise TypeError(
            "expected rows of prompts and answers, or the path of a JSONL file, found a "
            f"{type(dataset).__name__}{names}; of several splits give one"
        )
    rows = list(dataset)
    if not rows:
        raise ValueError("expected at least one prompt with its answer, found an empty set")
    for i, row in enumerate(rows):
        content = sorted(row) if isinstance(row, Mapping) else type(row).__name__
        if not isinstance(row, Mapping) or not {"prompt", "answer"} <= row.keys():
            raise ValueError(f"expected columns prompt and answer, found {content} in row {i}")
        if not all(isinstance(row[k], str) and row[k].strip() for k in ("prompt", "answer")):
            raise ValueError(f"expected text as prompt and answer, found {dict(row)} in row {i}")
    return [(row["prompt"], row["answer"]) for row in rows]


def _parsed(line: str, number: int, path: Path) -> Any:
    try:
        return parse_json(line)
    except ValueError as error:
        raise ValueError(
            f"expected a JSON object in line {number} of {path}, found {line.strip()[:60]!r} "
            f"({error}); write one object with prompt and answer a line"
        ) from error


def tokenized_examples(
    tokenizer: Any,
    rows: Sequence[tuple[str, str]],
    *,
    max_length: int | None,
    end_with_eos: bool = True,
) -> list[Example]:
    """The rows in tokens.

    The answer follows the prompt directly, and its tokens are those after END, the prompt's last
    token. A final space of the prompt is END if it is a token of its own. If the tokenizer joins it
    to the answer, it belongs to the answer, as in `answer_questions`.

    Args:
        rows: (prompt, answer) of each row.
        max_length: the largest number of tokens of a row; None: no limit.
        end_with_eos: whether to add EOS after the answer.

    Raises:
        ValueError: the tokenizer has no EOS, or a row is longer than `max_length`.
    """
    end = tokenizer.eos_token_id
    if end is None and end_with_eos:
        raise ValueError(
            "expected a tokenizer with an EOS token, which ends each answer, found none; give it "
            "one, or end_with_eos=False"
        )
    prompts = token_rows(tokenizer, [prompt for prompt, _ in rows])
    both = token_rows(tokenizer, [prompt + answer for prompt, answer in rows])
    examples = []
    for i, ((prompt, _), ids, ids_of_both) in enumerate(zip(rows, prompts, both, strict=True)):
        if not tokens_after(ids, ids_of_both):
            (ids,) = token_rows(tokenizer, [prompt.rstrip(" ")])
        if not tokens_after(ids, ids_of_both):
            raise ValueError(
                f"expected the tokens of prompt {i} to begin those of prompt + answer, found that "
                f"the tokenizer joins them: {prompt[-30:]!r}; put a space between the two"
            )
        if end_with_eos and ids_of_both[-1] != end:
            ids_of_both = [*ids_of_both, end]
        if max_length is not None and len(ids_of_both) > max_length:
            raise ValueError(
                f"expected at most {max_length} tokens, found {len(ids_of_both)} in row {i}, whose "
                "answer would be cut off; raise max_length, or leave the row out"
            )
        examples.append(Example(tuple(ids_of_both), len(ids)))
    return examples


def dataset_hash(rows: Sequence[tuple[str, str]]) -> str:
    """SHA-256 of the rows, in order."""
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def collate(examples: Sequence[Example]) -> dict[str, Tensor]:
    """A batch padded on the right: `input_ids`, `attention_mask`, `labels`, Int[batch pos]."""
    ids = pad_sequence([torch.tensor(one.input_ids) for one in examples], batch_first=True)
    position = torch.arange(ids.shape[1])
    in_text = position < torch.tensor([[len(one.input_ids)] for one in examples])
    in_prompt = position < torch.tensor([[one.n_prompt] for one in examples])
    labels = ids.masked_fill(~in_text | in_prompt, IGNORED)
    return {"input_ids": ids, "attention_mask": in_text.long(), "labels": labels}


def filled(examples: Sequence[Example], batch_size: int) -> list[Example]:
    """The examples, with examples without loss added up to a whole number of batches.

    Several processes need equal numbers of batches, and accelerate would repeat examples.
    """
    silent = Example(examples[0].input_ids[:1], 1)
    return [*examples, *[silent] * (-len(examples) % batch_size)]


class ByLength(Sampler[int]):
    """A sampler that puts examples of similar length together.

    Examples are shuffled, sorted by length within groups of 50 batches, and the batches are
    shuffled again. The order depends only on the seed and the epoch. Unlike the Trainer's own
    order, it does not use the global random state, so a resumed run continues with it; and it is
    cut by the whole batch, so it is the same for any number of processes.
    """

    def __init__(
        self, lengths: Sequence[int], batch_size: int, seed: int, n_silent: int = 0
    ) -> None:
        """`n_silent` examples after those with `lengths` end each epoch."""
        self.lengths, self.batch_size, self.seed = lengths, batch_size, seed
        self.n_silent = n_silent
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths) + self.n_silent

    def __iter__(self) -> Iterator[int]:
        rng = random.Random(f"{self.seed} {self.epoch}")
        order = list(range(len(self.lengths)))
        rng.shuffle(order)
        stretch = 50 * self.batch_size
        batches = []
        for start in range(0, len(order), stretch):
            near = sorted(order[start : start + stretch], key=lambda i: -self.lengths[i])
            batches += [near[i : i + self.batch_size] for i in range(0, len(near), self.batch_size)]
        last = batches.pop() if len(batches[-1]) < self.batch_size else []
        rng.shuffle(batches)
        silent = range(len(order), len(self))
        return iter([i for batch in [*batches, last, silent] for i in batch])


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
    return {f"{kind}_checkpointing": True, f"{kind}_checkpointing_kwargs": {"use_reentrant": False}}


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
            weights = gathered or {
                name: weight.detach().cpu().contiguous()
                for name, weight in _trained_parameters(self.model).items()
            }
            save_file(weights, to / WEIGHTS)

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
