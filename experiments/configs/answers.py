"""Which answers are read, and what is knocked out."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from experiments.configs.shared import (
    Keep,
    ModelSettings,
    OperandSettings,
    PooledSampleSettings,
)


@dataclass(frozen=True)
class KnockoutConfig(OperandSettings):
    """Are the key heads needed? Accuracy as more and more heads are knocked out (Figure 3).

    For each operation, heads are knocked out in the order of their effect on the answer's logit,
    which path patching measures on the same prompts. There are two kinds of control: heads drawn
    from all heads, and for the strongest k heads other heads of the same layers, drawn from all
    heads but these k. Further curves are a knockout at END alone, one with outputs of a
    counterfactual in place of means, and iterative masking, which picks each next head by what its
    knockout costs. MLPs are knocked out too, in the order of their effect and at random. Saves a
    run under results/are_they_needed/, which `python -m figures fig3` draws.
    """

    heads: tuple[str, ...] = ()
    """Heads to knock out first, such as 5.5, in this order; by default in the order of effect."""
    most: int | None = None
    """Knock out up to so many heads; by default a quarter of all."""
    controls: int = 20
    """Draws of each kind of control."""
    candidates: int = 24
    """Heads that iterative masking chooses from, the strongest by effect; 0 leaves it out."""
    masked: int = 12
    """Heads that iterative masking takes out."""
    search_every: int = 3
    """Iterative masking chooses on every third pair; its curve is over all pairs."""
    ablation: Literal["mean", "zero", "resample"] = "mean"
    """What replaces a head's output; in the paper it is the mean over counterfactuals."""
    means: Literal["template", "role", "all_tokens"] | None = None
    """Over which tokens a mean is taken, as in `al.knock_out`; None: per template and position."""
    second_ablation: Literal["mean", "zero", "resample"] | None = "resample"
    """What replaces it in one further curve; None leaves it out."""
    mlps: bool = True
    """Whether MLPs are knocked out too."""


@dataclass(frozen=True)
class CalculationConfig(ModelSettings):
    """What does the model say with the calculation, and without it? (Figure 9.)

    The likeliest next tokens of reference and counterfactual prompts: the four operations,
    two-digit sums whose answer lacks its last digit, and stories of objects. Saves a run under
    results/what_the_calculation_does/, which `figures/next_tokens.py` draws.
    """

    n: int | None = None
    """Distinct reference prompts of each kind, before the filter; by default all problems of one
    digit in each wording, and 200 two-digit sums."""
    seed: int = 0
    """The seed of the sampling."""
    k: int = 5
    """How many next tokens."""
    keep: Keep = "correct"
    """Use the prompts that the model answers right (if a kind has any), or all."""


@dataclass(frozen=True)
class InsteadConfig(PooledSampleSettings):
    """What does the model say without its key heads? Next tokens before and after (Figure 4).

    Word problems, multi-digit integers, time spans and decimals: none of these prompts was used to
    choose the heads. These are the strongest by mean effect over the four operations; each is
    replaced by one vector, its mean over the counterfactuals. So are as many random heads, several
    times. Saves a run under results/what_comes_instead/, which `figures/next_tokens.py` draws.
    """

    heads: int = 10
    """How many heads to knock out: the strongest by mean effect over the four operations."""
    prompts: int = 300
    """Prompts of each kind."""
    controls: int = 20
    """Random draws of as many heads, which are knocked out in the same way."""


@dataclass(frozen=True)
class TransferConfig(PooledSampleSettings):
    """What else breaks without the key heads? Word problems and generic tasks, before and after.

    The paper's transfer (section 5.1: SVAMP) and control (Appendix E: MMLU humanities). Without
    `--data-dir`, the questions are the closed world's: unseen word problems and generic tasks.
    Heads are chosen by their mean effect over the four operations and replaced by one vector, their
    mean over the counterfactuals, at every token but BOS, generated ones too. Other sets are every
    head that is key in some operation, and two kinds of control: heads drawn from all heads, and
    heads of the same layers as the strongest ones, drawn from all heads but these. Saves a run
    under results/what_else_breaks/, which `figures/tasks.py` prints.
    """

    data_dir: Path | None = None
    """Holds gsm8k/, svamp/ and mmlu/; by default the closed world's sets."""
    heads: int = 10
    """How many of the strongest heads are knocked out."""
    controls: int = 20
    """Control sets of each kind, of as many heads."""
    limit: int = 150
    """Questions of each task, drawn at random; 0 takes all."""
    control_limit: int = 30
    """As many of these questions of each task are answered without control heads; 0 takes all."""
    benchmark_shots: int = 5
    """Examples in front of a question of MMLU."""


@dataclass(frozen=True)
class BenchmarksConfig(PooledSampleSettings):
    """How good is a model at benchmarks, as it is and without its key heads?

    GSM8K, AddSub, SingleEq, SVAMP, MMLU and CommonsenseQA through the lm-evaluation-harness, from
    the published files under `--data-dir` or from the hub. A shipped model without `--data-dir`
    gets its closed world's tasks. The model answers as it is; without the heads of the most
    negative mean effect over the four operations (each replaced by one vector, its mean over the
    counterfactuals, at every token but BOS); and without control heads, as many drawn from all
    heads, and as many of the same layers drawn from all heads but these. Saves a run under
    results/how_good_is_it/, question by question, which `figures/tasks.py` prints. A killed run can
    be continued.
    """

    tasks: tuple[str, ...] = ()
    """Names of `al.evaluate`; by default the six benchmarks, or the closed world's tasks."""
    data_dir: Path | None = None
    """Holds gsm8k/, svamp/, addsub/, singleeq/, mmlu/ and csqa/; by default the hub."""
    limit: int | None = None
    """The first so many questions of each task, and of each subject of MMLU."""
    benchmark_shots: dict[str, int] = field(default_factory=dict)
    """Worked examples by task, such as gsm8k 5; by default as published results have them."""
    max_new_tokens: int | None = None
    """Of a written answer; by default what the task says, mostly 256."""
    heads: int = 10
    """How many heads are knocked out; 0: only the model as it is."""
    controls: int = 20
    """Control sets of each kind, of as many heads."""
    control_limit: int | None = 30
    """The first so many questions of each task that are answered without control heads, if fewer
    than `limit`; None: as many as without the strongest heads."""
    batch_size: int | None = None
    """Prompts per batch, at most."""


@dataclass(frozen=True)
class PowersConfig(ModelSettings):
    """Do powers use the same heads? Key heads of exponentiation, and their knockout (Table 3).

    For each of the two wordings ("2 ^ 3 = " and "2 to the power of 3 equals "): the heads whose
    effect is below -5%, what knocking them out costs, what as many control heads cost (drawn from
    all heads, and from the other heads of the same layers), and which of the heads are key heads of
    the four operations too. Saves a run under results/do_powers_use_them/, which
    `figures/shared_heads.py` prints.
    """

    controls: int = 20
    """Draws of each kind of control: of all heads, and of the same layers."""
    draws: int = 3
    """Counterfactuals drawn for each reference prompt: there are only 20 of each wording."""
    seed: int = 0
    """The seed of the sampling, and of the first random order."""


@dataclass(frozen=True)
class WordProblemsConfig(PooledSampleSettings):
    """Do word problems use the same heads? Key heads of both kinds of prompt, crosswise (Table 4).

    The ten strongest heads on the generated prompts (four operations) and on word problems; what a
    knockout of each set, of their overlap and of the rest costs on both kinds of prompt; what as
    many control heads cost; and where each head looks from END. With `--data-dir`, the word
    problems are rewritten ones of GSM8K; else they are the closed world's; `--n` limits them too.
    Saves a run under results/do_word_problems_use_them/, which `figures/shared_heads.py` prints.
    """

    data_dir: Path | None = None
    """Holds gsm8k/test.jsonl; by default the closed world's word problems."""
    heads: int = 10
    """Heads per set."""
    controls: int = 20
    """Control sets of each kind to compare with."""
    most: int = 400
    """Pairs of each kind for knockouts, at most; effects use all pairs."""
