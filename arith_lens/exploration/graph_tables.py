"""The tables of measured edges that the explorer draws as a circuit, and of single prompts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from arith_lens.components import Component, every_component
from arith_lens.edges import edge_effects
from arith_lens.effects import ComponentEffects, Effects
from arith_lens.explorer_page import Tables
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs

if TYPE_CHECKING:
    from pandas import DataFrame

N_HEADS, N_MLPS = 5, 2
"""The strongest heads and MLPs whose inputs a typed prompt shows, in less than a second."""
N_PAGE_HEADS, N_PAGE_MLPS = 7, 2
"""The strongest heads and MLPs whose inputs a page shows."""
N_EDGES = 200
"""The most edges of a page: those whose interval excludes 0 first."""
ALL_TOKENS = "all tokens"
"""The role where prompts have neither roles nor one length: a sender acts at all tokens."""
EDGE = ["receiver", "input", "sender", "role"]
"""The columns that name an edge."""


def strongest(effects: Effects, k: int) -> list[Any]:
    """The k strongest components; none if the metric left out all pairs."""
    return [] if effects.per_pair.isnan().all() else effects.top(k)


def receivers_of(
    effects: ComponentEffects, heads: int = N_HEADS, mlps: int = N_MLPS
) -> list[Component]:
    """The heads and MLPs whose inputs are drawn: the strongest that have something before them."""
    return [*strongest(effects.heads, heads), *strongest(effects.mlps, mlps)]


def edge_tables(
    model: HookedLike,
    pairs: PromptPairs,
    receivers: Sequence[Component],
    metric: str,
    sample: Int[Tensor, " prompt"],
) -> Tables:
    """The measured edges into some parts, with the role of the token at which the sender writes.

    Args:
        receivers: heads and MLPs, whose output at END changes the answer.
        metric: of `path_patch`.
        sample: those of `pairs` whose own edges are in a table too; their order is that of the
            table `prompts`.

    Returns:
        The table `edges`: the strongest edges, whether the 95% interval of each excludes 0
        (`certain`), and the number of all that were measured. Edges of a single problem have no
        intervals, and all of them are certain. `prompt_edges`: the effects of these edges on each
        prompt that is shown.

    Raises:
        ValueError: as in `edge_effects`.
    """
    have_columns = pairs.spans is not None or len({*pairs.lengths.tolist()}) == 1
    positions = "each" if have_columns else "all"
    edges = edge_effects(
        model, pairs, receivers, positions=positions, metric=metric, progress=False
    )
    table = edges.to_dataframe().reset_index(drop=True).rename(columns={"position": "role"})
    if "role" not in table:
        table = table.assign(role=ALL_TOKENS)
    table = table.assign(role=table["role"].astype(str))
    if pairs.spans is None:
        table = table.assign(role=table["role"].replace(str(int(pairs.lengths[0]) - 1), "END"))
    strongest = _strongest(table, single=len({*pairs.problem}) == 1)
    columns = [*EDGE, "mean", "ci_low", "ci_high", "certain"]
    measured = len(table["mean"].dropna())
    return {
        "edges": strongest[columns].assign(metric=metric, measured=measured),
        "prompt_edges": _of_prompts(edges, strongest, sample),
    }


def _strongest(table: "DataFrame", *, single: bool) -> Any:
    """The edges that a page has, with the number of each as its index."""
    certain: Any = (table["ci_low"] > 0) | (table["ci_high"] < 0)
    named: Any = table.assign(certain=True if single else certain, size=table["mean"].abs())
    ordered = named.dropna(subset=["mean"]).sort_values(["certain", "size"], ascending=False)
    return ordered.head(N_EDGES)


def _of_prompts(edges: Effects, table: Any, sample: Int[Tensor, " prompt"]) -> "DataFrame":
    """The effects of the edges of a table on single prompts: one row per edge and prompt."""
    from pandas import DataFrame

    values = edges.per_pair.flatten(0, -2)[torch.from_numpy(table.index.to_numpy().copy())][
        :, sample
    ]
    repeated = np.repeat(np.arange(len(table)), len(sample))
    named = table[EDGE].iloc[repeated].reset_index(drop=True)
    return DataFrame(
        named.assign(
            prompt=np.tile(np.arange(len(sample)), len(table)), value=values.flatten().numpy()
        )
    )


def prompt_effects(effects: ComponentEffects, sample: Int[Tensor, " prompt"]) -> "DataFrame":
    """The effects on single prompts: one row per component and prompt."""
    from pandas import DataFrame

    heads, mlps = (part.per_pair[..., sample] for part in (effects.heads, effects.mlps))
    n_layers, n_heads = heads.shape[:2]
    names = list(map(str, every_component(n_layers, n_heads)))
    n = len(sample)
    return DataFrame(
        {
            "component": np.repeat(np.array(names, dtype=object), n),
            "prompt": np.tile(np.arange(n), len(names)),
            "value": torch.cat([heads.flatten(0, 1), mlps]).flatten().numpy(),
        }
    )
