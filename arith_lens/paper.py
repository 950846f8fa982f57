"""What the paper reports of its models: targets to compare with, never fixtures.

Zhang et al., "Interpreting and Improving Large Language Models in Arithmetic Calculation", ICML
2024 (arXiv 2409.01659). Effects are relative changes of the answer's logit (-0.14 is -14%);
accuracies of Tables 1, 2 and 5 are percentages, as printed there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from arith_lens.components import Head
from arith_lens.operations import OPERATIONS


def _heads(text: str) -> tuple[Head, ...]:
    return tuple(Head.parse(word) for word in text.split())


BENCHMARKS: tuple[str, ...] = ("gsm8k", "addsub", "singleeq", "svamp", "mmlu", "csqa")
"""The columns of Table 1: four of mathematics, two generic (which CSQA is open: the paper cites
Saha et al., 2018, and CommonsenseQA is what such tables usually mean)."""


@dataclass(frozen=True)
class PaperTuning:
    """One row of Tables 1, 2 or 5: what was tuned, how fast, and the accuracies after it."""

    table: int
    method: str  # "full" or "precise"
    heads: int  # the strongest so many; 0 with "full"
    mlps: int
    samples_per_second: int  # on eight A100 80GB
    parameters: float  # tuned, as rounded in the table
    accuracy: Mapping[str, float]  # by benchmark, in percent


def _tuning(
    table: int, tuned: tuple[str, int, int], speed: int, billions: float, *accuracies: float
) -> PaperTuning:
    names = BENCHMARKS if table == 1 else ("gsm8k", "mmlu")
    accuracy = dict(zip(names, accuracies, strict=True))
    return PaperTuning(table, *tuned, speed, billions * 1e9, accuracy)


def _before(*accuracies: float) -> dict[str, float]:
    return dict(zip(BENCHMARKS, accuracies, strict=True))


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
    before: Mapping[str, float] = field(default_factory=dict)  # Table 1: percent, untuned
    tunings: tuple[PaperTuning, ...] = ()  # Tables 1, 2 and 5, in their order

    def reported(self, operation: str) -> tuple[str, tuple[Head, ...]]:
        """Where the paper names key heads for an operation, and which; () if it names none.

        A name that is not an operation, such as the mean over the operations, has the key heads.
        """
        field = OPERATIONS[operation].paper_heads if operation in OPERATIONS else "key_heads"
        if not field:
            return "", ()
        source = "Table 3, exponentiation" if field == "exponent_heads" else self.source
        return source, getattr(self, field)


PAPER_MODELS = (
    PaperModel(
        name="LLaMA2-7B",
        marks=("llama2", "7b"),
        key_heads=_heads("12.22 13.11 16.0 15.26 18.26 18.24 30.31 14.27 22.25 11.8"),
        source="Table 4",
        effects={Head(12, 22): -0.14},
        key_layers=(12, 17),
        key_mlps_after=17,
        exponent_heads=_heads("11.8 12.22 13.11 14.2 15.15"),
        before=_before(14.6, 30.5, 65.4, 34.7, 46.0, 59.8),
        tunings=(
            _tuning(1, ("full", 0, 0), 15, 6.7, 24.6, 53.7, 68.2, 50.3, 40.5, 54.0),
            _tuning(1, ("precise", 32, 0), 50, 0.07, 27.4, 50.6, 69.7, 55.8, 46.4, 59.6),
            _tuning(2, ("precise", 8, 0), 58, 0.017, 25.4, 45.1),
            _tuning(2, ("precise", 16, 0), 52, 0.033, 26.5, 45.8),
            _tuning(2, ("precise", 32, 0), 50, 0.067, 27.4, 46.4),
            _tuning(2, ("precise", 48, 0), 46, 0.101, 27.4, 46.4),
            _tuning(2, ("precise", 64, 0), 40, 0.134, 27.3, 45.5),
            _tuning(2, ("precise", 32, 3), 31, 0.473, 28.0, 45.2),
            _tuning(5, ("precise", 32, 0), 50, 0.067, 27.4, 46.4),
            _tuning(5, ("precise", 32, 1), 44, 0.202, 27.5, 46.0),
            _tuning(5, ("precise", 32, 2), 38, 0.338, 27.7, 45.7),
            _tuning(5, ("precise", 32, 3), 31, 0.473, 28.0, 45.2),
            _tuning(5, ("precise", 32, 6), 26, 0.879, 28.2, 44.9),
            _tuning(5, ("precise", 32, 32), 19, 4.396, 29.2, 43.9),
        ),
    ),
    PaperModel(
        name="LLaMA2-13B",
        marks=("llama2", "13b"),
        key_heads=_heads("16.4 18.31"),
        source="Appendix C",
        before=_before(28.7, 33.7, 76.6, 45.7, 54.8, 67.3),
        tunings=(
            _tuning(1, ("full", 0, 0), 8, 13.0, 44.6, 62.2, 79.8, 62.8, 50.2, 62.0),
            _tuning(1, ("precise", 32, 0), 34, 0.08, 46.3, 61.1, 82.2, 66.6, 55.0, 67.2),
        ),
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
    return next(
        (model for model in PAPER_MODELS if all(mark in plain for mark in model.marks)), None
    )
