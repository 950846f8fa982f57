"""Which data are prepared or studied."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from experiments.configs.shared import Keep, PooledSampleSettings


@dataclass(frozen=True)
class TemplateConfig:
    """What do the paper's templates become under a tokenizer? (Figures 8 and 10)

    For each template, the table has an example prompt, its counterfactual, the number of their
    tokens, the number of problems with a one-token answer, the number of distinct prompts, the
    number of null words (in stories: other words) that keep the tokens aligned, and the token of C.
    Loads only a tokenizer, never weights. Prints `fig8` or `fig10`, and saves it as CSV and HTML.
    """

    figure: Literal["8", "10"] = "8"
    """8: the operations' own templates; 10: the stories of addition."""
    tokenizers: tuple[str, ...] = ("reference",)
    """A shipped model's name, a Hugging Face id, or a folder that holds a tokenizer."""
    operands: tuple[int, int] = (1, 9)
    """The smallest and the largest number for A and B."""
    answer_token: Literal["whole", "first", "last"] = "whole"
    """The token after END: C, or the first or last token of a longer C."""
    seed: int = 0
    """The seed of the examples."""


@dataclass(frozen=True)
class TemplateOptions:
    """Where the table goes."""

    out: Path | None = None
    """The folder for the files; by default figures/<tokenizer>."""


@dataclass(frozen=True)
class SplitConfig:
    """Which training questions are test questions? Train parts without them, and the counts.

    Compares each question of the train parts of word problems with every test set, and prints how
    many are left out and why. Saves
    `<root>/training_splits/<form>.jsonl` and `<form>_counts.csv`.
    """

    data_dir: Path | None = None
    """Holds gsm8k/, svamp/, addsub/, singleeq/, mmlu/ and csqa/ as published; else the hub."""
    names: tuple[str, ...] = ("gsm8k", "svamp", "addsub", "singleeq")
    """Benchmarks whose train parts are used."""
    form: Literal["solution", "answer"] = "solution"
    """The published solutions, or only the answers."""
    mawps: Literal["refuse", "decontaminate"] = "refuse"
    """Whether the remaining questions of MAWPS may be used."""
    examples: int = 2
    """Pairs of a training and a test question to print for each test set and rule."""


@dataclass(frozen=True)
class StudyConfig(PooledSampleSettings):
    """What do minutes of computing show of a model? All experiments without a finished run.

    These are the runs that `figures/report.py` shows, without fine-tuning, which takes an hour, and
    benchmarks, which need data. If an experiment fails, the others are computed nevertheless, and
    the command exits with its name.
    """

    data_dir: Path | None = None
    """Holds gsm8k/, svamp/ and mmlu/; by default the closed world's sets."""
    pairs: Path | None = None
    """Prompts of your own, instead of the templates: only the experiments that can use them run."""
    keep: Keep = "correct"
    """Which of your own prompts: those that the model answers right, or all."""
