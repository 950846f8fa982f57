"""A model's answers, question by question, and the difference of two results, also over seeds."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from arith_lens.arrays import Arrays

if TYPE_CHECKING:
    from pandas import DataFrame

KIND = "answers"


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers to some questions. Each field has one entry per question, in order."""

    correct: Bool[Tensor, " question"]
    """Whether the answer is right."""
    said: tuple[str, ...]
    """The beginning of the text that the model wrote, or the letter that it chose."""
    expected: tuple[str, ...]
    """The right answer."""
    task: tuple[str, ...]
    """The name of the question's task."""

    def __len__(self) -> int:
        return len(self.correct)

    @property
    def accuracy(self) -> float:
        """The share of right answers, between 0 and 1."""
        return float(self.correct.double().mean())

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """Wilson's interval of the accuracy. Questions are independent draws."""
        return _wilson(int(self.correct.sum()), len(self), level)

    @property
    def score(self) -> str:
        """The number and the share of right answers, with its interval, in words."""
        low, high = self.ci()
        counts = f"{int(self.correct.sum())} of {len(self)} right"
        return f"{counts}, {self.accuracy:.1%} ({low:.1%} to {high:.1%})"

    def by_task(self) -> "dict[str, Answers]":
        """The answers of each task."""
        return {
            name: self.select([t == name for t in self.task]) for name in dict.fromkeys(self.task)
        }

    def __add__(self, other: "Answers") -> "Answers":
        """The questions of both, one after the other."""
        return Answers(
            torch.cat([self.correct, other.correct]),
            self.said + other.said,
            self.expected + other.expected,
            self.task + other.task,
        )

    def select(self, mask: list[bool]) -> "Answers":
        """The questions whose `mask` is True."""
        rows = [i for i, is_chosen in enumerate(mask) if is_chosen]
        return Answers(
            self.correct[torch.tensor(rows, dtype=torch.long)],
            *(tuple(texts[i] for i in rows) for texts in (self.said, self.expected, self.task)),
        )

    def change_to(self, after: "Answers") -> "AccuracyChange":
        """Compare with other answers to the same questions, question by question.

        Raises:
            ValueError: `after` has other questions.
        """
        _require_same_questions(self, after)
        lost, gained = self.correct & ~after.correct, ~self.correct & after.correct
        return AccuracyChange(
            self.accuracy, after.accuracy, int(lost.sum()), int(gained.sum()), len(self)
        )

    def __str__(self) -> str:
        tasks = self.by_task().items()
        return "\n".join(f"{name}: {answers.score}" for name, answers in tasks)

    def to_arrays(self) -> Arrays:
        """The arrays for a file; `from_arrays` reads them. Texts are compressed: zlib of JSON."""
        texts = json.dumps({name: getattr(self, name) for name in _TEXTS})
        packed = torch.frombuffer(bytearray(zlib.compress(texts.encode())), dtype=torch.uint8)
        return Arrays({"correct": self.correct, "texts": packed}, {"kind": KIND})

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Answers":
        """Read the arrays of `to_arrays`.

        Raises:
            ValueError: the result is of another kind, or of an earlier version.
        """
        arrays.require(KIND)
        if "texts" not in arrays.tensors:
            raise ValueError("expected answers with packed texts, found none: an earlier version "
                             "wrote them. Run the experiment again")  # fmt: skip
        texts = json.loads(zlib.decompress(arrays.tensors["texts"].numpy().tobytes()))
        return cls(arrays.tensors["correct"], *(tuple(texts[name]) for name in _TEXTS))

    def to_dataframe(self) -> "DataFrame":
        """One row per question: task, expected, said, correct."""
        from pandas import DataFrame

        columns = {name: list(getattr(self, name)) for name in reversed(_TEXTS)}
        return DataFrame({**columns, "correct": self.correct.tolist()})


_TEXTS = ("said", "expected", "task")


def _wilson(n_right: int, n: int, level: float) -> tuple[float, float]:
    """Wilson's interval of a share of independent questions."""
    from scipy.stats import binomtest

    interval = binomtest(n_right, n).proportion_ci(level, "wilson")
    return float(interval.low), float(interval.high)


def _require_same_questions(one: Answers, other: Answers) -> None:
    if one.expected != other.expected or one.task != other.task:
        raise ValueError(
            f"expected answers to the same questions in the same order, found {len(one)} and "
            f"{len(other)} whose expected answers differ; ask both the same list"
        )


@dataclass(frozen=True)
class AccuracyChange:
    """The same questions answered twice. Values are shares: 0.1 is 10 points."""

    before: float
    """The accuracy before."""
    after: float
    """The accuracy after."""
    lost: int
    """The number of questions that were right before and are wrong after."""
    gained: int
    """The number of questions that were wrong before and are right after."""
    n_questions: int

    @property
    def difference(self) -> float:
        """after - before."""
        return self.after - self.before

    @property
    def relative(self) -> float:
        """The difference as a share of the accuracy before; NaN if that is 0."""
        return self.difference / self.before if self.before else float("nan")

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """The interval of the difference, over questions, each with both answers.

        It is made from Wilson's intervals of the gained and of the lost share, with the correlation
        that they have as parts of one whole. So answers that all stay the same are no certainty.
        """
        gained, lost = self.gained / self.n_questions, self.lost / self.n_questions
        gained_low, gained_high = _wilson(self.gained, self.n_questions, level)
        lost_low, lost_high = _wilson(self.lost, self.n_questions, level)
        alike = -sqrt(gained * lost / ((1 - gained) * (1 - lost))) if gained + lost < 1 else -1.0

        def reach(of_gained: float, of_lost: float) -> float:
            squares = of_gained**2 + of_lost**2 - 2 * alike * of_gained * of_lost
            return sqrt(max(squares, 0.0))

        return (
            self.difference - reach(gained - gained_low, lost_high - lost),
            self.difference + reach(gained_high - gained, lost - lost_low),
        )

    @property
    def p_value(self) -> float:
        """Exact two-sided McNemar test of whether equally many questions are gained and lost."""
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


@dataclass(frozen=True)
class OverSeeds:
    """A mean over questions and seeds, with errors from the draws of both.

    For a change of accuracy, values are shares: 0.1 is 10 points.
    """

    per_seed: tuple[float, ...]
    """The mean over questions, one per seed."""
    question_error: float
    """The standard error of the mean over draws of questions."""
    n_questions: int

    @property
    def mean(self) -> float:
        return fmean(self.per_seed)

    @property
    def seed_error(self) -> float:
        """The standard error of the mean over draws of seeds; 0 for a single seed."""
        n = len(self.per_seed)
        return stdev(self.per_seed) / sqrt(n) if n > 1 else 0.0

    @property
    def freedom(self) -> float:
        """Satterthwaite's degrees of freedom; few if most of the error comes from a few seeds."""
        questions, seeds = self.question_error**2, self.seed_error**2
        if not seeds:
            return inf
        return (questions + seeds) ** 2 / (seeds**2 / (len(self.per_seed) - 1))

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """The interval of the mean over questions and seeds, by Student's t.

        The variance is the sum of both variances. With one seed, the interval is over questions
        alone. Where all answers changed alike, or none did, this is no certainty: each end is then
        as far as that of Wilson's interval of none of the questions, with Student's t.
        """
        from scipy.special import stdtrit

        error = sqrt(self.question_error**2 + self.seed_error**2)
        half = float(stdtrit(self.freedom, (1 + level) / 2)) * error
        if not error:
            square = float(stdtrit(self.n_questions - 1, (1 + level) / 2)) ** 2
            half = square / (self.n_questions + square)
        return self.mean - half, self.mean + half


def over_seeds(values: Float[Tensor, "seed question"]) -> OverSeeds:
    """The mean of numbers over seeds and questions, with its errors.

    Raises:
        ValueError: there is no seed, or there are fewer than two questions.
    """
    n_seeds, n_questions = values.shape
    if n_seeds < 1 or n_questions < 2:
        raise ValueError(
            f"expected numbers of at least one seed for at least two questions, found {n_seeds} "
            f"and {n_questions}"
        )
    values = values.double()
    error = float(values.mean(0).std() / sqrt(n_questions))
    return OverSeeds(tuple(values.mean(1).tolist()), error, n_questions)


def changes_by_question(
    before: Answers | Sequence[Answers], after: Sequence[Answers]
) -> Float[Tensor, "seed question"]:
    """1 if a question is right only after training, -1 if it is right only before, else 0.

    Args:
        before: the answers before training: one result for all seeds, or one per seed.
        after: the answers after training, one result per seed.

    Raises:
        ValueError: the questions differ, there is no seed, or the numbers of seeds differ.
    """
    if not after:
        raise ValueError("expected answers of at least one seed, found none")
    befores = [before] * len(after) if isinstance(before, Answers) else before
    changes = []
    for first, other in zip(befores, after, strict=True):
        _require_same_questions(first, other)
        changes.append(other.correct.double() - first.correct.double())
    return torch.stack(changes)


def change_over_seeds(
    before: Answers | Sequence[Answers],
    after: Sequence[Answers],
    chosen: Sequence[bool] | None = None,
) -> OverSeeds:
    """The change of accuracy by training, question by question.

    Args:
        before, after: as in `changes_by_question`.
        chosen: a mask of the questions to use; None: all.

    Raises:
        ValueError: there are fewer than two questions; or as in `changes_by_question`.
    """
    every = changes_by_question(before, after)
    return over_seeds(every if chosen is None else every[:, torch.tensor([*chosen])])
