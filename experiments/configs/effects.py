"""What the effects of heads, MLPs and edges are measured on, and how."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from experiments.configs.shared import (
    Engine,
    Keep,
    Metric,
    OperandSettings,
    SampleSettings,
)


@dataclass(frozen=True)
class MapConfig(OperandSettings):
    """Which heads does the answer depend on? Path patching from every head and MLP to the logits.

    For each operation, there are prompts with a calculation and the same prompts without it. One
    component at a time gets its output on the latter; the effect is the change of the right
    answer's logit (the paper's Figures 2, 12 and 15). Saves a run under results/which_heads/, which
    `python -m figures fig2` draws.
    """

    counterfactual: Literal["word", "operands", "operator"] = "word"
    """What the counterfactual changes: the operator to a null word, A and B, or the operation."""
    draws: int = 1
    """Counterfactuals drawn for each reference prompt."""
    paths: Literal["via_mlps", "direct", "total"] = "via_mlps"
    """What may react to a change: only MLPs (Appendix B), nothing (Algorithm 1), or everything."""
    metric: Metric = "relative_logit"
    """What is read from the logits."""
    keep: Keep = "correct"
    """Use the prompts that the model answers right, or all."""
    pairs: Path | None = None
    """Prompts of your own (reference, counterfactual, answer), instead of the templates: JSONL, or
    a table if the name ends in .csv."""
    engine: Engine = "auto"
    """"sweep", fast, for most families; "hooks", a forward for each component, for all;
    "auto": the sweep where it fits the model, else hooks."""


@dataclass(frozen=True)
class PathsConfig(SampleSettings):
    """On which paths do the strongest heads act? Direct, through MLPs, through later heads.

    For each operation, the heads with the strongest effects via MLPs, and their effect on the
    answer's logit if nothing else may react (direct, Algorithm 1), if MLPs may react (Appendix B),
    and if everything may (total, activation patching by hooks). Saves a run under
    results/which_paths/, which `python -m figures paths` shows.
    """

    top: int = 5
    """Heads per operation, the strongest via MLPs."""
    metric: Metric = "relative_logit"
    """What is read from the logits."""
    keep: Keep = "correct"
    """Use the prompts that the model answers right, or all."""


@dataclass(frozen=True)
class ExamConfig:
    """Do the methods find circuits that are known? Every method on every built model (`make exam`).

    On each built model (`al.built_model`), and on two of them for rising sharpness of attention and
    neurons, the effects of all components are computed by each method, exact or approximate, and
    stored beside the closed form. On models that add two digits, the carry is exchanged. One run
    per model under results/do_they_find_known_circuits/, which `python -m figures exam` shows.
    """

    models: tuple[str, ...] = ()
    """Built models; by default all."""
    dial: tuple[float, ...] = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    """The values of beta and of G, together, for the curves."""
    n: int = 24
    """Pairs per model."""
    steps: int = 5
    """Points of the methods that integrate."""
    seed: int = 0
    """The seed of the choice of pairs."""

    @classmethod
    def filled(cls, settings: Mapping[str, Any], n_layers: int | None) -> dict[str, Any]:
        """The defaults that depend on the model: a run is of one value of the dial."""
        return {"dial": settings.get("dial")}


Counterfactual: TypeAlias = Literal["word", "operator", "operands"]


@dataclass(frozen=True)
class CircuitConfig(SampleSettings):
    """Which circuit answers? The strongest heads and MLPs, and who writes what they read.

    For each operation, counterfactual and metric, the effects of all components are measured, and
    those of all edges into the strongest ones. The problems are split in two halves. The receivers
    and the smallest graph with most of the effect are chosen on one half. On the other half this
    graph is kept alone, beside random graphs of the same size. Saves a run under results/circuit/,
    which `python -m figures circuit` draws.
    """

    counterfactuals: tuple[Counterfactual, ...] = ("operands",)
    """What the counterfactuals change; each is a question of its own."""
    metrics: tuple[Metric, ...] = ("digit_contrast",)
    """What is read from the logits; each is a question of its own."""
    drawn: int = 108
    """Pairs per operation and counterfactual; 0: all."""
    heads: int = 5
    """Heads that receive, the strongest of the first half of the problems."""
    mlps: int = 3
    """MLPs that receive, the strongest of the first half."""
    which_heads: tuple[str, ...] = ()
    """Name the heads that receive instead, such as 5.5 4.3."""
    by_role: bool = True
    """Measure the edges for the tokens of each role, too: the picture shows where senders write."""
    steps: int = 5
    """Points of EAP-IG, whose edge scores are graded; 0: no scores are computed."""
    share: float = 0.8
    """The tested graph has the fewest edges with this share of the sizes of all."""
    kept_on: int = 36
    """Pairs of the second half on which graphs are kept alone; 0: all."""
    controls: int = 20
    """Random graphs, each with as many heads in each layer as the graph, and its MLPs."""
    measure: Metric = "digit_contrast"
    """What is read when a graph is kept alone."""
    keep: Keep = "correct"
    """Use the prompts that the model answers right, or all."""
