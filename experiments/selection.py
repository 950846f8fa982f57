"""The paper's settings, and how those of a run differ from them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from arith_lens.operations import FOUR
from arith_lens.runs import Run

T = TypeVar("T")

PAPER_SETTINGS: Mapping[str, Any] = {
    "paths": "via_mlps",
    "metric": "relative_logit",
    "counterfactual": "word",
    "templates": ["operation"],
    "problems": "any",
    "operands": [1, 9],
    "answer_token": "whole",
    "ablation": "mean",
    "final_norm": False,
}
"""They apply to every experiment whose configuration has such a field."""

LARGEST_OPERAND: Mapping[str, int] = {"multiplication": 19, "division": 99}
"""The operations where most answers of single digits equal an operand. Their computed problems
have operands up to these numbers."""


TRAININGS_FOLDER = Path("results") / "train_reference"
"""The folder of other trainings of the shipped models' recipes."""


def training_folder(model: str, seed: int) -> Path:
    """The folder of another training of a shipped model's recipe."""
    return TRAININGS_FOLDER / f"{model}-{seed}"


@dataclass(frozen=True)
class SharedSettings:
    """The settings that runs must share to be shown together; by default the paper's.

    Fields that an experiment does not have are ignored.
    """

    n: int | None = None
    """Distinct reference prompts per operation; None: all."""
    operations: tuple[str, ...] = FOUR
    """The operations; a run with more than the paper's four is accepted too."""
    pairs: Path | None = None
    """A file of prompts, instead of the templates."""
    keep: str = "correct"
    """Which prompts are used."""
    weights: str | None = None
    """The digest of the checkpoint's weights; None: of any."""
    problems: str = "any"
    """"computed": only problems whose answer cannot be copied from the prompt."""

    def differences(self, run: Run) -> dict[str, Any]:
        """The settings of a run that differ from these, by name."""
        config = run.config
        own = {
            **PAPER_SETTINGS,
            "n": self.n,
            "pairs": self.pairs and str(self.pairs),
            "keep": self.keep,
            "problems": self.problems,
        }
        settings = {
            name: config.get(name, PAPER_SETTINGS.get(name, value)) for name, value in own.items()
        }
        other = {name: settings[name] for name, value in own.items() if settings[name] != value}
        operations = set(config.get("operations", self.operations))
        further = operations - set(self.operations) if self.operations != FOUR else ()
        if further or set(self.operations) - operations:
            other["operations"] = config["operations"]
        if len({self.weights, weights_of(run)} - {None}) > 1:
            other["other weights"] = "than the runs before it"
        return other


def weights_of(run: Run) -> str | None:
    """The digest of the model's weights; None if the run does not have it."""
    return (run.manifest["provenance"].get("model") or {}).get("weights_sha256")


def settings_text(differences: Mapping[str, Any]) -> str:
    """Settings in words: `n 9, operations addition division`."""
    return ", ".join(f"{name} {_text(value, ' ')}" for name, value in differences.items())


def suffix(run: Run) -> str:
    """The ending of the names of a run's files: `-n9-addition`; "" for the paper's settings."""
    parts = []
    for name, value in SharedSettings().differences(run).items():
        text = Path(value).stem if name == "pairs" else _text(value, "-")
        parts.append(
            text if name in ("operations", "pairs") else f"{name}{'-' * (name != 'n')}{text}"
        )
    return "".join("-" + re.sub(r"[^\w-]", "_", part) for part in parts)


def _text(value: Any, between: str) -> str:
    return between.join(map(str, value)) if isinstance(value, list | tuple) else str(value)


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
