"""Which parts of a model's state are read or exchanged."""

from dataclasses import dataclass
from pathlib import Path

from experiments.configs.shared import Keep, ModelSettings, SampleSettings


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

    For each operation: maps on several paths and metrics, with other operands, and one map with a
    word for the operator; of each head what it looks at, writes, is fed by and acts through; of
    each MLP what it reads and writes, and its strongest neurons; the residual stream by token; and
    the answers without every set of the ten strongest heads. Saves a run under
    results/what_does_each_part_do/, which `python -m figures explorer` shows.
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
