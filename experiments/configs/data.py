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
class Gsm8kConfig:
    """How many of GSM8K's questions become prompt pairs? (the paper's Appendix E)

    In each tokenizer, split and mode, the words that ask for a number are replaced at the same
    number of tokens. The table has the number of questions where that works, and why it does not in
    the others. With a model, it also has the share that the model answers right. Saves
    `<root>/convert_gsm8k/conversions.csv`.
    """

    data_dir: Path
    """Holds gsm8k/train.jsonl and gsm8k/test.jsonl, and a folder for each tokenizer."""
    tokenizers: tuple[str, ...] = ("llama2", "mistral", "llama3")
    """Folders in <data-dir>/tokenizers, or paths of folders."""
    model: str | None = None
    """A model that also answers them, with its own tokenizer: an id or a directory."""
    modes: tuple[str, ...] = ("question", "equation")
    """Where the prompt ends: after the question, or before the solution's last result."""
    splits: tuple[str, ...] = ("train", "test")
    """Files to read."""
    seed: int = 0
    """The seed of the draw among replacements."""
    examples: int = 0
    """Conversions to print for each row of the table."""


@dataclass(frozen=True)
class WorldConfig:
    """Which words make the closed world's word problems calculations? (the paper's Appendix E)

    Its problems become pairs by replacing the words that ask, the words that say what to
    calculate, the things that are counted, "has", or several of these. For each model, family and
    choice, the table has the number of converted problems, the share that the model answers right,
    and among these the share whose counterfactual is still answered with C. If nothing is left to
    calculate, this share should fall to that of the most frequent C ("constant"). Saves
    `<root>/convert_world/conversions.csv`.
    """

    models: tuple[str, ...] = ("reference", "reference-mistral")
    """Reference models, by name or directory."""
    families: tuple[str, ...] = ()
    """Families of word problems; by default the world's four."""
    changes: tuple[str, ...] = (
        *("question", "operators", "referents", "operators+referents"),
        *("question+operators+referents", "question+operators+referents+possession"),
    )
    """The parts to reword, joined by +."""
    split: str = "test"
    """Which of the world's problems to convert."""
    seed: int = 0
    """The seed of the draw among replacements."""
    examples: int = 0
    """Pairs to print for each row of the table."""


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
