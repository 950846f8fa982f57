"""Does tuning the heads that calculate help, and what does it cost elsewhere?

Here is what is tuned: rows of Tables 1, 2 and 5, and the choice of rates. `plan` fills in the
settings and prints them, `training` does a training, `__main__` is the command.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import isnan
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch

from arith_lens.answers import Answers
from arith_lens.arrays import Arrays

if TYPE_CHECKING:
    from pandas import DataFrame

Method: TypeAlias = Literal["full", "precise", "lora", "random"]
VALIDATION = "validation/"
"""The prefix of the tasks that rates are chosen on."""


@dataclass(frozen=True)
class Tuned:
    """What a row of a table tunes. LoRA has as many parameters as these heads."""

    method: Method
    heads: int = 0
    mlps: int = 0

    @property
    def name(self) -> str:
        return "full" if self.method == "full" else f"{self.method}-{self.heads}-{self.mlps}"


@dataclass(frozen=True)
class Training:
    """One training of a row."""

    tuned: Tuned
    rate: float
    seed: int

    @property
    def name(self) -> str:
        """The name of its answers in a run."""
        return f"{self.tuned.name}-rate-{rate_name(self.rate)}-seed-{self.seed}"


def rate_name(rate: float) -> str:
    """A rate as part of a name, which may hold no dots: 0.003 is 0p003."""
    return f"{rate:g}".replace(".", "p")


@dataclass(frozen=True)
class Sizes:
    """How many heads and MLPs the tables tune, in proportion to the paper's."""

    heads: int
    """Heads of Table 1."""
    several: tuple[int, ...]
    """Heads of Table 2."""
    mlps: int
    """MLPs beside `heads` in Table 2."""
    more: tuple[int, ...]
    """MLPs of Table 5."""


def rows(table: Literal[1, 2, 5], sizes: Sizes) -> tuple[Tuned, ...]:
    """The rows of a table, in the paper's order."""
    if table == 1:
        methods: tuple[Method, ...] = ("precise", "lora", "random")
        return (Tuned("full"), *(Tuned(method, sizes.heads) for method in methods))
    if table == 2:
        alone = (Tuned("precise", heads) for heads in sizes.several)
        return (*alone, Tuned("precise", sizes.heads, sizes.mlps))
    return tuple(Tuned("precise", sizes.heads, mlps) for mlps in sizes.more)


def validation_accuracy(answers: Answers) -> float:
    """The share of validation questions that are answered right; NaN if there are none."""
    chosen = [task.startswith(VALIDATION) for task in answers.task]
    return answers.select(chosen).accuracy


def grid(tuned: Iterable[Tuned], rates: Iterable[float], seed: int) -> list[Training]:
    """One training per row and rate, in the order of the rows."""
    rates = tuple(rates)
    return [Training(row, rate, seed) for row in dict.fromkeys(tuned) for rate in rates]


def repeats(chosen: Mapping[Tuned, float], seeds: Iterable[int]) -> list[Training]:
    """More trainings of each row at its rate, one per seed."""
    seeds = tuple(seeds)
    return [Training(row, rate, seed) for row, rate in chosen.items() for seed in seeds]


@dataclass(frozen=True)
class Chosen:
    """The trainings of a table: each row has the rate with the best validation accuracy."""

    validation: Mapping[Tuned, Mapping[float, float]]
    """The accuracy of each row by rate, all with one seed."""

    @property
    def rates(self) -> dict[Tuned, float]:
        """The chosen rate of each row; if rates are equally good, the smallest.

        Raises:
            ValueError: there are several rates, and no validation questions to choose one.
        """
        for row, accuracies in self.validation.items():
            if len(accuracies) > 1 and any(isnan(accuracy) for accuracy in accuracies.values()):
                raise ValueError(
                    f"expected validation questions to choose a rate on, found none for {row.name} "
                    f"at {', '.join(f'{rate:g}' for rate in accuracies)}; train at one rate"
                )
        return {
            row: max(accuracies, key=lambda rate: (accuracies[rate], -rate))
            for row, accuracies in self.validation.items()
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Chosen":
        """What `to_arrays` has written."""
        header, accuracy = arrays.header, arrays.tensors["validation_accuracy"].tolist()
        rows = (Tuned(row["method"], row["heads"], row["mlps"]) for row in header["rows"])
        by_rate = (
            dict(zip(*row, strict=True)) for row in zip(header["rates"], accuracy, strict=True)
        )
        return cls(dict(zip(rows, by_rate, strict=True)))

    def to_arrays(self) -> Arrays:
        """The rows with their chosen rates and all rates are in the header."""
        rows = [{**asdict(row), "rate": rate} for row, rate in self.rates.items()]
        accuracy = [[*accuracies.values()] for accuracies in self.validation.values()]
        rates = [[*accuracies] for accuracies in self.validation.values()]
        header = {"kind": "chosen_rates", "rows": rows, "rates": rates}
        return Arrays({"validation_accuracy": torch.tensor(accuracy)}, header)

    def to_dataframe(self) -> "DataFrame":
        """One row per setting and rate: method, heads, mlps, rate, validation_accuracy, chosen."""
        from pandas import DataFrame

        return DataFrame(
            {**asdict(row), "rate": rate, "validation_accuracy": accuracy, "chosen": rate == best}
            for (row, best) in self.rates.items()
            for rate, accuracy in self.validation[row].items()
        )
