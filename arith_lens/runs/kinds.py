"""Which class reads each kind of result; it is imported when a result of the kind is read."""

from importlib import import_module
from typing import Any

from arith_lens.arrays import Arrays
from arith_lens.runs.files import RunError, listed

CLASSES = {
    "answers": ("answers", "Answers"),
    "attention_patterns": ("attention.prompts", "Patterns"),
    "before_after": ("effects.before_after", "BeforeAfter"),
    "component_effects": ("effects", "ComponentEffects"),
    "effects": ("effects", "Effects"),
    "evaluation": ("evaluation", "EvaluationResult"),
    "greedy_mask": ("knockout.masking", "GreedyMask"),
    "knockout_curve": ("knockout", "KnockoutCurve"),
    "knockout_curves": ("knockout.curves", "KnockoutCurves"),
    "mediation": ("mediation", "Mediation"),
    "next_tokens": ("next_tokens", "NextTokens"),
    "outcomes": ("knockout", "Outcomes"),
}
"""By kind: the module within arith_lens, and the class in it."""


def read_result(arrays: Arrays) -> Any:
    """The result in `arrays`. Raises RunError for a kind of no class of this package."""
    kind = arrays.header["kind"]
    if kind not in CLASSES:
        raise RunError(
            f"expected a result of a kind among {listed(CLASSES)}, found a result of kind "
            f"{kind!r}; read it with the from_arrays of its class, from load_arrays"
        )
    module, name = CLASSES[kind]
    return getattr(import_module(f"arith_lens.{module}"), name).from_arrays(arrays)
