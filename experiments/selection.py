"""What experiments and figures choose alike: operands, folders of trainings, random items."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch

T = TypeVar("T")

LARGEST_OPERAND: Mapping[str, int] = {"multiplication": 19, "division": 99}
"""The operations where most answers of single digits equal an operand. Their computed problems
have operands up to these numbers."""


OWN_PAIRS = "pairs"
"""The name of the pairs of a file whose rows name no templates."""

TRAININGS_FOLDER = Path("results") / "train_reference"
"""The folder of other trainings of the shipped models' recipes."""


def some_questions(tasks: Sequence[str], limit: int, seed: int) -> list[int]:
    """At most `limit` random questions of each task, by index; 0: all.

    Args:
        limit: how many of each task.
    """
    by_task: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        by_task.setdefault(task, []).append(index)
    return sorted(index for of_task in by_task.values() for index in some_of(of_task, limit, seed))


def some_of(items: list[T], limit: int, seed: int) -> list[T]:
    """`limit` random items in their order; all if there are no more, or if `limit` is 0."""
    if not limit or len(items) <= limit:
        return items
    generator = torch.Generator().manual_seed(seed)
    sampled = torch.randperm(len(items), generator=generator)[:limit].sort().values
    return [items[i] for i in sampled.tolist()]
