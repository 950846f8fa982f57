"""Prompts with answers as training examples. The loss is on the answer's tokens and EOS alone."""

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler

from arith_lens.pairs.tokens import tokens_after

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
            raise FileNotFoundError(f"expected a JSONL file of prompts and answers at {path}")
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
        return json.loads(line)
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
        tokenizer: the model's tokenizer.
        rows: (prompt, answer) of each row.
        max_length: the largest number of tokens of a row; None: no limit.
        end_with_eos: whether to add EOS after the answer.

    Raises:
        ValueError: the tokenizer has no EOS, or a row is longer than `max_length`.
    """
    end = tokenizer.eos_token_id
    if end is None and end_with_eos:
        raise ValueError("expected a tokenizer with an EOS token, which ends each answer")
    prompts = tokenizer([prompt for prompt, _ in rows])["input_ids"]
    both = tokenizer([prompt + answer for prompt, answer in rows])["input_ids"]
    examples = []
    for i, ((prompt, _), ids, ids_of_both) in enumerate(zip(rows, prompts, both, strict=True)):
        if not tokens_after(ids, ids_of_both):
            ids = tokenizer(prompt.rstrip(" "))["input_ids"]
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
    longest = max(len(example.input_ids) for example in examples)
    ids = torch.zeros(len(examples), longest, dtype=torch.long)
    labels = torch.full_like(ids, IGNORED)
    mask = torch.zeros_like(ids)
    for row, example in enumerate(examples):
        n = len(example.input_ids)
        ids[row, :n] = torch.tensor(example.input_ids)
        mask[row, :n] = 1
        labels[row, example.n_prompt : n] = ids[row, example.n_prompt : n]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


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
