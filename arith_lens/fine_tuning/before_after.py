"""Effects of the heads before and after tuning, in one call."""

from typing import Any

from arith_lens.effects import BeforeAfter
from arith_lens.fine_tuning.delta import Delta
from arith_lens.fine_tuning.result import TuningResult
from arith_lens.model import load_model
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import path_patch


def effects_before_after(
    tuned: Any, pairs: PromptPairs, *, base: Any = None, **options: Any
) -> BeforeAfter:
    """`path_patch` on the base and on the tuned model, one after the other.

    Args:
        tuned: a TuningResult, a Delta, or a checkpoint as `load_model` takes it
        base: what to load as the base, needed where it was a model in memory, and beside a
            checkpoint, which does not say what it was tuned from
        options: of `path_patch`

    Raises:
        ValueError: a checkpoint without a base, or a base that is not what was tuned
    """
    knows_base = isinstance(tuned, TuningResult | Delta)
    if base is None and not knows_base:
        raise ValueError(
            f"expected the base of {tuned}, found none, and a checkpoint does not say it; give "
            "base="
        )
    before = path_patch(load_model(base or tuned.base), pairs, **options)
    after = tuned.model(base) if knows_base else tuned
    return BeforeAfter(before, path_patch(load_model(after), pairs, **options))
