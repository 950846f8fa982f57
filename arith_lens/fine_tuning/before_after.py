"""Effects of the heads before and after tuning, in one call."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arith_lens.effects import ComponentEffects, compare
from arith_lens.fine_tuning.result import TuningResult
from arith_lens.model import load_model
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import path_patch

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class BeforeAfter:
    """Effects on the same pairs."""

    before: ComponentEffects
    after: ComponentEffects

    def to_dataframe(self) -> "DataFrame":
        """`effects.compare` of the heads: a row a head."""
        return compare(self.before.heads, self.after.heads)


def effects_before_after(
    result: TuningResult, pairs: PromptPairs, *, base: Any = None, **options: Any
) -> BeforeAfter:
    """`path_patch` on the base and on the tuned model.

    Args:
        base: what to load as the base, needed where it was a model in memory
        options: of `path_patch`
    """
    before = path_patch(load_model(base or result.base), pairs, **options)
    return BeforeAfter(before, path_patch(load_model(result.model(base)), pairs, **options))
