"""Does tuning the heads that calculate help, and what does it cost elsewhere?

Here is what is tuned (rows of Tables 1, 2 and 5), what each question is for, and how rates are
chosen. `studies` has the data to tune on and the questions, `plan` fills in the settings and prints
them, `__main__` is the command and does the trainings.

Validation word problems choose a rate for mathematics. Where a rate may lose little elsewhere, half
of the generic questions measure this loss. The other half reports it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from math import isnan
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch

from arith_lens.answers import Answers
from arith_lens.arrays import Arrays
from arith_lens.paper import BENCHMARKS
from arith_lens.reference.edits import PROBLEM_FAMILIES

if TYPE_CHECKING:
    from pandas import DataFrame

TuningMethod: TypeAlias = Literal["full", "precise", "lora", "random"]
Criterion: TypeAlias = Literal["mathematics", "little_loss"]
"""What a rate is chosen for: the best validation accuracy of all rates, or the best of those that
lose little elsewhere."""
MOST_LOST = 0.02
"""The largest loss on generic tasks that counts as little: two points."""


@dataclass(frozen=True)
class TuningRow:
    """What a row of a table tunes. LoRA has as many parameters as these heads."""

    method: TuningMethod
    heads: int = 0
    mlps: int = 0

    @property
    def name(self) -> str:
        return "full" if self.method == "full" else f"{self.method}-{self.heads}-{self.mlps}"


@dataclass(frozen=True)
class Training:
    """One training of a row."""

    tuned: TuningRow
    rate: float
    seed: int

    @property
    def name(self) -> str:
        """The name of its answers in a run."""
        rate = f"{self.rate:g}".replace(".", "p")  # a name may hold no dots: 0.003 is 0p003
        return f"{self.tuned.name}-rate-{rate}-seed-{self.seed}"

    @property
    def facts(self) -> dict[str, Any]:
        """Its settings, among the facts of its answers."""
        return {**asdict(self.tuned), "rate": self.rate, "seed": self.seed}


VALIDATION = "validation/"
"""The prefix of the tasks that rates are chosen on."""
MATHEMATICS = (*PROBLEM_FAMILIES, *BENCHMARKS[:4])
"""The tasks that are word problems, in the closed world and in the benchmarks."""


def validation(answers: Answers) -> list[bool]:
    """Which questions are word problems for choosing a rate."""
    return [task.startswith(VALIDATION) for task in answers.task]


def is_mathematics(answers: Answers) -> list[bool]:
    """Which questions are of mathematics, without those that rates were chosen on."""
    return [task.split("/")[0] in MATHEMATICS for task in answers.task]


def generic(answers: Answers) -> list[bool]:
    """Which questions are of the other tasks."""
    return [
        not math and not chooses
        for math, chooses in zip(is_mathematics(answers), validation(answers), strict=True)
    ]


def generic_to_choose(answers: Answers) -> list[bool]:
    """Which generic questions measure the loss at each rate: the first of each task, the third, …

    None do where no question is for validation: then no rate is chosen.
    """
    chooses, seen, half = any(validation(answers)), Counter(), []
    for task, is_generic in zip(answers.task, generic(answers), strict=True):
        half.append(chooses and is_generic and seen[task] % 2 == 0)
        seen[task] += 1
    return half


def generic_to_report(answers: Answers) -> list[bool]:
    """Which generic questions tables and figures show: those that choose no rate."""
    return [
        is_generic and not chooses
        for is_generic, chooses in zip(generic(answers), generic_to_choose(answers), strict=True)
    ]


def validation_accuracy(answers: Answers) -> float:
    """The share of validation questions that are answered right; NaN if there are none."""
    return answers.select(validation(answers)).accuracy


def generic_change(before: Answers, after: Answers) -> float:
    """The change of accuracy on the generic questions that choose; NaN if there are none."""
    half = generic_to_choose(before)
    return after.select(half).accuracy - before.select(half).accuracy


def grid(tuned: Iterable[TuningRow], rates: Iterable[float], seed: int) -> list[Training]:
    """One training per row and rate, in the order of the rows."""
    rates = tuple(rates)
    return [Training(row, rate, seed) for row in dict.fromkeys(tuned) for rate in rates]


def repeats(chosen: Iterable[Mapping[TuningRow, float]], seeds: Iterable[int]) -> list[Training]:
    """More trainings of each row at each of its chosen rates, one per seed."""
    seeds = tuple(seeds)
    settings = dict.fromkeys(setting for rates in chosen for setting in rates.items())
    return [Training(row, rate, seed) for row, rate in settings for seed in seeds]


Rates: TypeAlias = Mapping[float, float]
"""One number per rate."""


@dataclass(frozen=True)
class SelectedRates:
    """The trainings of a table, and the rates that are chosen for each of its rows."""

    validation: Mapping[TuningRow, Rates]
    """The validation accuracy of each row by rate, all with one seed."""
    generic: Mapping[TuningRow, Rates] = field(default_factory=dict)
    """The change of accuracy on the generic questions that choose, of the same trainings. Empty if
    there are no such questions; then no rate is chosen for little loss."""

    @property
    def rates(self) -> dict[TuningRow, float]:
        """The rate of each row with the best validation accuracy; of equals, the smallest.

        Raises:
            ValueError: there are several rates, and no validation questions to choose one.
        """
        for row, accuracies in self.validation.items():
            if len(accuracies) > 1 and any(isnan(accuracy) for accuracy in accuracies.values()):
                raise ValueError(
                    f"expected validation questions to choose a rate on, found none for {row.name} "
                    f"at {', '.join(f'{rate:g}' for rate in accuracies)}; train at one rate"
                )
        return {row: _best(accuracies) for row, accuracies in self.validation.items()}

    @property
    def rates_with_little_loss(self) -> dict[TuningRow, float]:
        """The best rate of each row among those that lose at most `MOST_LOST` elsewhere.

        A row that loses more at every rate is left out.
        """
        allowed = {
            row: {
                rate: self.validation[row][rate]
                for rate, change in changes.items()
                if change >= -MOST_LOST
            }
            for row, changes in self.generic.items()
        }
        return {row: _best(accuracies) for row, accuracies in allowed.items() if accuracies}

    def rates_for(self, criterion: Criterion) -> dict[TuningRow, float]:
        """The rates that are chosen for one of the two purposes."""
        return self.rates if criterion == "mathematics" else self.rates_with_little_loss

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """The purposes that rates are chosen for."""
        return ("mathematics", "little_loss") if self.generic else ("mathematics",)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "SelectedRates":
        """What `to_arrays` has written."""
        rows = [
            TuningRow(row["method"], row["heads"], row["mlps"]) for row in arrays.header["rows"]
        ]

        def by_rate(name: str) -> dict[TuningRow, Rates]:
            numbers = arrays.tensors[name].tolist()
            rates = (
                dict(zip(*row, strict=True))
                for row in zip(arrays.header["rates"], numbers, strict=True)
            )
            return dict(zip(rows, rates, strict=True))

        generic = by_rate("generic_change") if "generic_change" in arrays.tensors else {}
        return cls(by_rate("validation_accuracy"), generic)

    def to_arrays(self) -> Arrays:
        """The rows with their chosen rates and all rates are in the header."""
        rows = [{**asdict(row), "rate": rate} for row, rate in self.rates.items()]
        rates = [[*accuracies] for accuracies in self.validation.values()]
        numbers = {"validation_accuracy": self.validation, "generic_change": self.generic}
        tensors = {
            name: torch.tensor([[*row.values()] for row in by_row.values()], dtype=torch.float64)
            for name, by_row in numbers.items()
            if by_row
        }
        return Arrays(tensors, {"kind": "chosen_rates", "rows": rows, "rates": rates})

    def to_dataframe(self) -> "DataFrame":
        """One row per setting and rate: what was tuned, the rate, both numbers, both choices."""
        from pandas import DataFrame

        return DataFrame(
            {
                **asdict(row),
                "rate": rate,
                "validation_accuracy": accuracy,
                "generic_change": self.generic.get(row, {}).get(rate),
                **{name: self.rates_for(name).get(row) == rate for name in self.criteria},
            }
            for row, accuracies in self.validation.items()
            for rate, accuracy in accuracies.items()
        )


def _best(accuracies: Rates) -> float:
    return max(accuracies, key=lambda rate: (accuracies[rate], -rate))
