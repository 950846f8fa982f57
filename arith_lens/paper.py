"""What the paper reports of its models' components: targets to compare with, never fixtures.

Zhang et al., "Interpreting and Improving Large Language Models in Arithmetic Calculation", ICML
2024 (arXiv 2409.01659). Effects are relative changes of the answer's logit (-0.14 is -14%).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from arith_lens.components import Head


def _heads(text: str) -> tuple[Head, ...]:
    return tuple(Head.parse(word) for word in text.split())


@dataclass(frozen=True)
class PaperModel:
    """One model of the paper; what the paper does not report of it is empty."""

    name: str
    marks: tuple[str, ...]  # all of them stand in the model's id, lower case, without - and _
    key_heads: tuple[Head, ...]  # those named, most effective first where the order is given
    source: str  # where the paper says so
    effects: Mapping[Head, float] = field(default_factory=dict)
    key_layers: tuple[int, int] | None = None  # where most key heads are, both ends included
    key_mlps_after: int | None = None  # MLPs count after this layer, at about ±10%
    exponent_heads: tuple[Head, ...] = ()  # Table 3

    def reported(self, operation: str) -> tuple[str, tuple[Head, ...]]:
        """Where the paper names key heads for an operation, and which; () where it names none."""
        if operation == "exponentiation":
            return "Table 3, exponentiation", self.exponent_heads
        return self.source, self.key_heads


MODELS = (
    PaperModel(
        name="LLaMA2-7B",
        marks=("llama2", "7b"),
        key_heads=_heads("12.22 13.11 16.0 15.26 18.26 18.24 30.31 14.27 22.25 11.8"),
        source="Table 4",
        effects={Head(12, 22): -0.14},
        key_layers=(12, 17),
        key_mlps_after=17,
        exponent_heads=_heads("11.8 12.22 13.11 14.2 15.15"),
    ),
    PaperModel(
        name="LLaMA2-13B",
        marks=("llama2", "13b"),
        key_heads=_heads("16.4 18.31"),
        source="Appendix C",
    ),
    PaperModel(name="Mistral-7B", marks=("mistral", "7b"), key_heads=(), source="Figure 12"),
)

_OTHER_MODELS = ("chat", "instruct", "code")  # tuned further, so not the paper's


def paper_model(name: str) -> PaperModel | None:
    """The paper's model that a hub id or a directory's name means; None for any other.

    `meta-llama/Llama-2-7b-hf` is LLaMA2-7B; chat and instruct models are not the paper's.
    """
    plain = PurePosixPath(name.replace("\\", "/")).name.lower().replace("-", "").replace("_", "")
    if any(word in plain for word in _OTHER_MODELS):
        return None
    return next((model for model in MODELS if all(mark in plain for mark in model.marks)), None)
