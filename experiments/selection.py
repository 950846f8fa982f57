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

STUDY_NAMES = (
    *("which_heads", "which_paths", "which_counterfactual", "do_copies_decide"),
    *("are_they_needed", "do_they_suffice", "what_comes_instead", "what_else_breaks"),
    *("do_powers_use_them", "do_word_problems_use_them", "where_do_they_look"),
    *("what_do_mlps_add", "which_mlps_carry_them", "what_does_each_part_do"),
    *("like_a_computer", "what_the_calculation_does"),
)
"""The experiments of the whole study, which takes minutes; see `experiments/study.py`."""


TRAININGS_FOLDER = Path("results") / "train_reference"
"""The folder of other trainings of the shipped models' recipes."""


def training_folder(model: str, seed: int) -> Path:
    """The folder of another training of a shipped model's recipe."""
    return TRAININGS_FOLDER / f"{model}-{seed}"


def some_questions(tasks: Sequence[str], limit: int, seed: int) -> list[int]:
    """At most `limit` random questions of each task, by index; 0: all.

    Args:
        tasks: the task of each question.
        limit: how many of each task.
        seed: the seed of the draw.
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
    drawn = torch.randperm(len(items), generator=generator)[:limit].sort().values
    return [items[i] for i in drawn.tolist()]
