"""Which parts of a model's state are read or exchanged."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from experiments.configs.shared import Keep, ModelSettings, PromptSettings, SampleSettings


@dataclass(frozen=True)
class LookConfig(SampleSettings):
    """Where do the key heads look? Attention from END to operands, operator and everything else.

    For each operation, the attention of the heads with the strongest effects and of random other
    heads, on all pairs; then whole patterns on prompts of other formats, and on one sentence with
    each operation's word. Saves a run under results/where_do_they_look/, which
    `figures/attention.py` draws.
    """

    top: int = 10
    """Heads per operation, the strongest by effect; more if there are more key heads."""
    shown: int = 4
    """Heads of each kind whose patterns are shown."""
    blank: bool = True
    """Whether the blank token before B is a role of its own."""


@dataclass(frozen=True)
class ExplorationConfig(SampleSettings):
    """What does each head and each MLP do? Everything that the explorer shows, for every part.

    For each operation: maps on several paths and metrics, and for one more counterfactual; of each
    head what it looks at, writes, is fed by and acts through; of each MLP what it reads and writes,
    and its strongest neurons; and the answers without every set of the ten strongest heads. Saves a
    run under results/what_does_each_part_do/, which `python -m figures explorer` shows.
    """

    keep: Keep = "correct"
    """Use the prompts that the model answers right, or all."""
    pairs: Path | None = None
    """Prompts of your own (reference, counterfactual, answer), instead of the templates: JSONL, or
    a table if the name ends in .csv."""


@dataclass(frozen=True)
class AddConfig(SampleSettings):
    """What do MLPs read, and what do they add? Cosines with the numbers' columns of W_U, by layer.

    At END: the operands in what each MLP reads, the answer in what it writes, which digit each
    layer writes most, and the model's answer if it ended at this layer. Saves a run under
    results/what_do_mlps_add/, which `figures/probes.py` draws.
    """

    final_norm: bool = False
    """Send what is read and written through the final norm first; the paper does not."""


@dataclass(frozen=True)
class SumsConfig(ModelSettings):
    """Does the model add like a computer? Which digit each layer's MLP writes most (Figure 17).

    The paper's sum, and sums with a carry, of whose answer the model writes the first or the last
    digit. Saves a run under results/like_a_computer/, which `figures/probes.py` compares with the
    column addition of a computer.
    """


@dataclass(frozen=True)
class CarryConfig(ModelSettings):
    """Where does a model keep the carry of a sum, and is it one direction?

    Interchanges at END, layer by layer: the whole residual stream, the difference of means between
    problems with and without a carry, everything but this direction, and controls. The layer is
    chosen on problems of its own. There, the direction is tested in wordings and on digits that it
    was not fitted to, with sources of other tens, at each sum of the tens, and in larger sums; a
    gradient search looks for a better one; components are held to see who writes it and who reads
    it. Where the model answers too few sums right, only the share of right answers is measured.
    Saves a run under results/carry/, which `python -m figures carry` draws.
    """

    n: int = 400
    """Pairs for each test, half of them to fit and half to test."""
    seed: int = 0
    """The seed of all draws."""
    subjects: tuple[str, ...] = ("ones_carry", "tens_carry", "borrow")
    """The variables."""
    template: int = 0
    """The wording of all tests but that of other wordings: 0 to 8 of Figure 8."""
    head_layers: tuple[int, ...] = (6, 7, 8)
    """The layers whose two strongest heads are held."""
    random_pairs: int = 20
    """Draws of two other heads of these layers."""
    problems: int = 4000
    """Sums below 100 that are answered to find the errors."""
    context_pairs: int = 1400
    """Pairs for the tests of each sum of the tens digits."""
    shots: int = 0
    """Solved examples before each problem."""
    layers_alone: bool = False
    """Only the layers of each variable, without the tests at one layer: for a large model."""


@dataclass(frozen=True)
class NeuronConfig(ModelSettings):
    """What does one neuron do? Exact effects, rules with nulls, classes, and the smallest sets.

    Maps of all neurons over two-digit additions are compared with rules, beside permuted digits and
    untrained models. Classes of neurons with one rule are knocked out. Neurons are ranked by their
    exact effects and by a gradient, and the first ones of each ranking are kept alone. Saves a run
    under results/neurons/, which `python -m figures neurons` draws.
    """

    values: int = 30
    """How many of the values from 10 to 99 are operands of the maps."""
    untrained: int = 20
    """Untrained models, each with another seed."""
    permutations: int = 20
    """Permutations of the operands' digits."""
    classes: int = 8
    """The largest classes are knocked out; each has two neurons or more."""
    draws: int = 1000
    """Random sets of each class."""
    drawn: int = 64
    """Pairs on which neurons are ranked or kept alone, half each; and pairs for the classes."""
    seed: int = 0
    """The seed of all draws."""


Subject: TypeAlias = Literal[
    "addition", "multiplication", "division", "ones", "tens", "long_multiplication"
]


@dataclass(frozen=True)
class NumbersConfig(PromptSettings):
    """How does a model represent a number: as a line, as waves, or as a table?

    A number is swapped between two problems inside a subspace, at the tokens of the operands and at
    END, layer by layer. The subspace is that of a shape: a line, waves of a period, a helix, a
    polynomial. Beside it are PCA with as many directions, permuted labels, and random directions.
    The first test is of unseen values, which were left out of the fit. Spectra show which
    frequencies the class means have; products, where A and B are joined; overlaps, whether the
    directions of a shape decide the answer. Saves a run under results/numbers/, which `python -m
    figures numbers` draws.
    """

    subjects: tuple[Subject, ...] = ("addition", "multiplication", "division", "ones", "tens")
    """Which numbers of which problems. "addition", "multiplication" and "division": A of one-digit
    numbers and answers. "ones": the ones digit of A, of 10 to 39, and of the sum. "tens": the tens
    digit of both, of sums below 100. "long_multiplication": A, and the first digit of longer
    products."""
    waves_alone: bool = False
    """Only waves at A's token, in layer 0, beside permuted labels: for a large model."""
    n: int | None = None
    """Problems before the filter; by default all."""
    swaps: int = 150
    """Swaps, and tests of unseen values, for each place and shape at END."""
    operand_swaps: int = 80
    """The same at the tokens of operands, where all tokens are computed again."""
    permutations: int = 39
    """Permutations of the labels at END."""
    operand_permutations: int = 19
    """The same at the tokens of operands."""
    seed: int = 0
    """The seed of all draws."""
