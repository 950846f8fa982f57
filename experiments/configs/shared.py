"""Settings that experiments share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from arith_lens.operations import FOUR, OperationName

Engine: TypeAlias = Literal["auto", "sweep", "hooks"]

Dtype: TypeAlias = Literal["float32", "bfloat16", "float16"] | None

Metric: TypeAlias = Literal[
    "relative_logit",
    "logit",
    "logprob",
    "probability",
    "digit_contrast",
    "share_of_total",
    "share_of_total_contrast",
    "share_of_total_probability",
]

Keep: TypeAlias = Literal["correct", "all"]

Operation: TypeAlias = OperationName

Problems: TypeAlias = Literal["any", "computed"]


RESULTS = Path("results")
"""The folder of all runs, unless the user names another one."""


@dataclass(frozen=True)
class RunOptions:
    """Where an experiment's run goes, and what is done about it."""

    root: Path = RESULTS
    """The folder of all runs."""
    dry_run: bool = False
    """Print what it would cost, and stop; no weights are loaded."""
    again: bool = False
    """Compute stored results again; without it, finished results are used, and stopped ones are
    continued."""


@dataclass(frozen=True)
class ExperimentOptions(RunOptions):
    """Where an experiment's run goes, and what is done about it."""

    rehearse: bool = False
    """Print what it would cost, compute and draw all in small on the model reference, and store
    nothing."""


@dataclass(frozen=True)
class ToolOptions:
    """Where results go."""

    root: Path = RESULTS
    """The folder of all results."""
    dry_run: bool = False
    """Print what would be done, and stop."""


@dataclass(frozen=True)
class ModelSettings:
    """Which model, and how it is loaded."""

    model: str = "reference"
    """A shipped model's name, a Hugging Face id, or a directory."""
    dtype: Dtype = None
    """By default the checkpoint's own on a GPU, and float32 on a CPU."""
    device: str | None = None
    """Such as cuda:1; the GPU if there is one."""


@dataclass(frozen=True)
class PromptSettings(ModelSettings):
    """How prompts are worded, and what stands before them."""

    templates: tuple[str, ...] = ("operation",)
    """The operation's own (Figure 8), "symbols" (`3 + 5 = `), "all" (with the stories of addition,
    Figure 10), or names."""
    shots: int = 0
    """Solved examples before each prompt."""
    exemplars: Literal["same", "mixed"] = "same"
    """Examples of the prompt's operation, or of the four operations in turn."""
    exemplar_sets: int = 1
    """How many sets of examples are drawn; each prompt stands after each of them."""


@dataclass(frozen=True)
class PooledSampleSettings(PromptSettings):
    """Prompts of the four operations together."""

    n: int | None = None
    """Distinct reference prompts per operation and set of examples, before the filter; by
    default all."""
    seed: int = 0
    """The seed of the sampling and of all random draws."""


@dataclass(frozen=True)
class SampleSettings(PooledSampleSettings):
    """Prompts of each operation."""

    operations: tuple[Operation, ...] = FOUR
    """The operations to use."""
    problems: Problems = "any"
    """"computed": problems whose answer cannot be copied from the prompt. Multiplication and
    division then have larger operands, and the answer's last token is read."""


@dataclass(frozen=True)
class OperandSettings(SampleSettings):
    """Prompts of each operation, of numbers of any size."""

    operands: tuple[int, int] = (1, 9)
    """First and last number that A and B are taken from."""
    answer_token: Literal["whole", "first", "last"] = "whole"
    """What the token after END says: C, or the first or last token of a longer C."""

    @property
    def numbers(self) -> dict[str, Any]:
        """Which problems there are, and what of their answer is read, for `sampled_operation`."""
        first, last = self.operands
        operands = range(first, last + 1)
        of_answer = {"answer_token": self.answer_token, "problems": self.problems}
        return {"operands": operands, **of_answer}
