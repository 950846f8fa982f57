"""The table of measured edges that the explorer draws as a circuit."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arith_lens.components import Component
from arith_lens.edges import edge_effects
from arith_lens.effects import ComponentEffects
from arith_lens.explorer_page import Tables
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs

if TYPE_CHECKING:
    from pandas import DataFrame

N_HEADS, N_MLPS = 5, 2
"""The strongest heads and MLPs whose inputs a page shows."""
N_EDGES = 150
"""The most edges of a page."""
ALL_TOKENS = "all tokens"
"""The role where prompts have neither roles nor one length: a sender acts at all tokens."""
COLUMNS = ("receiver", "input", "sender", "role", "mean", "ci_low", "ci_high", "certain")


def receivers_of(effects: ComponentEffects) -> list[Component]:
    """The heads and MLPs whose inputs are drawn: the strongest that have something before them."""
    heads: list[Component] = [*effects.heads.top(N_HEADS)]
    return [*heads, *effects.mlps.top(N_MLPS)]


def edge_tables(
    model: HookedLike, pairs: PromptPairs, receivers: Sequence[Component], metric: str
) -> Tables:
    """The measured edges into some parts, with the role of the token at which the sender writes.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts.
        receivers: heads and MLPs, whose output at END changes the answer.
        metric: of `path_patch`.

    Returns:
        The table `edges`: the strongest edges, whether the 95% interval of each excludes 0
        (`certain`), and the number of all that were measured. Edges of a single problem have no
        intervals, and all of them are certain.

    Raises:
        ValueError: as in `edge_effects`.
    """
    have_columns = pairs.spans is not None or len({*pairs.lengths.tolist()}) == 1
    positions = "each" if have_columns else "all"
    edges = edge_effects(
        model, pairs, receivers, positions=positions, metric=metric, progress=False
    )
    table: Any = edges.to_dataframe().dropna(subset=["mean"])
    return {"edges": _strongest(table, pairs).assign(metric=metric, measured=len(table))}


def _strongest(table: Any, pairs: PromptPairs) -> "DataFrame":
    table = table.rename(columns={"position": "role"})
    if "role" not in table:
        table = table.assign(role=ALL_TOKENS)
    certain = (table["ci_low"] > 0) | (table["ci_high"] < 0)
    if len({*pairs.problem}) == 1:
        certain = True
    table = table.assign(role=table["role"].astype(str), certain=certain)
    strongest = table.reindex(table["mean"].abs().sort_values(ascending=False).index)
    return strongest.head(N_EDGES)[list(COLUMNS)].reset_index(drop=True)
