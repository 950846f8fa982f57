"""What a model answered, question by question, and how two such results differ."""

import json
import zlib
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from arith_lens.arrays import Arrays

if TYPE_CHECKING:
    from pandas import DataFrame

KIND = "answers"
N_RESAMPLES = 10_000


@dataclass(frozen=True, eq=False)
class Answers:
    """One entry a question, in the order they were given."""

    correct: Bool[Tensor, "question"]
    said: tuple[str, ...]  # the start of what the model wrote, or the letter it chose
    expected: tuple[str, ...]
    task: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.correct)

    @property
    def accuracy(self) -> float:
        """Share of the questions answered right, between 0 and 1."""
        return float(self.correct.double().mean())

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """Wilson's interval of the accuracy, questions being independent draws."""
        n, share = len(self), self.accuracy
        z = NormalDist().inv_cdf((1 + level) / 2)
        centre = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        return max(0.0, centre - half), min(1.0, centre + half)

    def by_task(self) -> "dict[str, Answers]":
        """The answers of each task."""
        return {
            name: self.select([t == name for t in self.task]) for name in dict.fromkeys(self.task)
        }

    def select(self, mask: list[bool]) -> "Answers":
        """The questions whose `mask` is True."""
        rows = [i for i, keep in enumerate(mask) if keep]
        return Answers(
            self.correct[torch.tensor(rows, dtype=torch.long)],
            *(tuple(texts[i] for i in rows) for texts in (self.said, self.expected, self.task)),
        )

    def change_to(self, after: "Answers") -> "Change":
        """How the same questions are answered in `after`: a comparison in pairs.

        Raises:
            ValueError: `after` is of other questions.
        """
        if self.expected != after.expected or self.task != after.task:
            raise ValueError(
                f"expected answers to the same questions in the same order, found {len(self)} and "
                f"{len(after)} whose expected answers differ; ask both the same list"
            )
        lost, gained = self.correct & ~after.correct, ~self.correct & after.correct
        return Change(self.accuracy, after.accuracy, int(lost.sum()), int(gained.sum()), len(self))

    def __str__(self) -> str:
        lines = []
        for name, answers in self.by_task().items():
            low, high = answers.ci()
            right = f"{int(answers.correct.sum())} of {len(answers)}"
            lines.append(f"{name}: {right} right, {answers.accuracy:.1%} ({low:.1%} to {high:.1%})")
        return "\n".join(lines)

    def to_arrays(self) -> Arrays:
        """For a file; `from_arrays` gives the same answers back. Texts, which repeat themselves,
        are packed: zlib of JSON, as bytes."""
        told = json.dumps({name: getattr(self, name) for name in _TEXTS})
        packed = torch.frombuffer(bytearray(zlib.compress(told.encode())), dtype=torch.uint8)
        return Arrays({"correct": self.correct, "texts": packed}, {"kind": KIND})

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Answers":
        """What `to_arrays` gave. Raises ValueError for another kind of result, and for
        an earlier version's."""
        arrays.require(KIND)
        if "texts" not in arrays.tensors:
            raise ValueError("expected answers with packed texts, found none: an earlier version "
                             "wrote them. Run the experiment again")  # fmt: skip
        told = json.loads(zlib.decompress(arrays.tensors["texts"].numpy().tobytes()))
        return cls(arrays.tensors["correct"], *(tuple(told[name]) for name in _TEXTS))

    def to_dataframe(self) -> "DataFrame":
        """A row a question: task, expected, said, correct."""
        from pandas import DataFrame

        columns = {name: list(getattr(self, name)) for name in reversed(_TEXTS)}
        return DataFrame({**columns, "correct": self.correct.tolist()})


_TEXTS = ("said", "expected", "task")


@dataclass(frozen=True)
class Change:
    """The same questions answered twice. Accuracies and differences are shares, 0.1 = 10 points."""

    before: float
    after: float
    lost: int  # right before, wrong after
    gained: int
    n_questions: int

    @property
    def difference(self) -> float:
        """after - before."""
        return self.after - self.before

    @property
    def relative(self) -> float:
        """The difference as a share of what was right before; NaN where nothing was."""
        return self.difference / self.before if self.before else float("nan")

    def ci(self, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
        """Bootstrap interval of the difference; questions are drawn, each with both answers."""
        n = self.n_questions
        shares = [self.lost / n, self.gained / n, (n - self.lost - self.gained) / n]
        drawn = np.random.default_rng(seed).multinomial(n, shares, size=N_RESAMPLES)
        low, high = np.quantile((drawn[:, 1] - drawn[:, 0]) / n, [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)

    @property
    def p_value(self) -> float:
        """Exact two-sided McNemar test: were as many gained as lost?"""
        from scipy.stats import binomtest

        changed = self.lost + self.gained
        return float(binomtest(self.gained, changed).pvalue) if changed else 1.0

    def __str__(self) -> str:
        low, high = self.ci()
        return (
            f"{self.before:.1%} -> {self.after:.1%}: {100 * self.difference:+.1f} points "
            f"({100 * low:+.1f} to {100 * high:+.1f}), {self.relative:+.0%} relative; "
            f"{self.lost} lost, {self.gained} gained, p = {self.p_value:.2g}"
        )
