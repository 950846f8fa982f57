"""What a path patching is asked to compute, checked before anything runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import (
    Component,
    Components,
    Head,
    as_components,
    check_components,
    every_head,
    every_mlp,
)
from arith_lens.metrics import METRICS, Readout, get_metric
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs, check_pairs
from arith_lens.path_patching.hook_engine import Paths
from arith_lens.path_patching.prefixes import own_tokens
from arith_lens.path_patching.sweep import Senders


@dataclass(frozen=True)
class Question:
    """Whose output is patched, over which paths it may act, and how the logits are read."""

    components: tuple[Component, ...]
    """The senders in the order of the sweep's rows."""
    paths: Paths
    metric: str
    n_layers: int
    n_heads: int
    own_tokens: int | None = None
    """How many tokens at the end of each prompt are recorded for it alone; None: all of them."""

    @property
    def senders(self) -> Senders:
        return Senders.of(self.components, self.n_layers)

    @property
    def reads_vocabulary(self) -> bool:
        return METRICS[self.metric].needs_vocabulary

    @property
    def reads_foil(self) -> bool:
        return METRICS[self.metric].needs_foil

    def effects(self, readout: Readout) -> Float[Tensor, "row pair"]:
        """Row 0: the unpatched logit of the answer; then each sender's effect.

        Raises FloatingPointError where a patched logit is not finite.
        """
        return effects_of(readout, self.metric, [f"with {who} patched" for who in self.components])


def effects_of(readout: Readout, metric: str, rows: Sequence[str]) -> Float[Tensor, "row pair"]:
    """Row 0: the unpatched logit of the answer; then the effect of each of the other `rows`.

    Raises FloatingPointError where a logit is not finite, naming its row.
    """
    broken = (~readout.answer.isfinite()).any(-1).nonzero().flatten().tolist()
    if broken:
        where = ["in the reference run", *rows][broken[0]]
        raise FloatingPointError(
            f"expected finite logits, found NaN or infinity {where}; load the model in a wider "
            "dtype (bfloat16 or float32), and check its weights"
        )
    changes = METRICS[metric].effect(readout, readout.unpatched())
    return torch.cat([readout.answer[:1], changes[1:]])


def ask(
    model: HookedLike,
    senders: Components | None,
    *,
    paths: str,
    metric: str,
    foil: Int[Tensor, "foil"] | None,
    pairs: PromptPairs,
) -> Question:
    """The question, once it makes sense for this model. Raises as `path_patch` does."""
    n_layers, n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)
    if paths not in get_args(Paths):
        raise ValueError(f"expected paths among {', '.join(get_args(Paths))}, found {paths!r}")
    get_metric(metric, foil)
    if not len(pairs):
        raise ValueError("expected at least one pair, found none; sample more, or filter less")
    if foil is not None and len(foil) != len(pairs):
        raise ValueError(f"expected one foil for each of {len(pairs)} pairs, found {len(foil)}")
    check_pairs(model, pairs)
    chosen = _in_order(senders, n_layers, n_heads)
    return Question(chosen, cast(Paths, paths), metric, n_layers, n_heads, own_tokens(model, pairs))


def _in_order(senders: Components | None, n_layers: int, n_heads: int) -> tuple[Component, ...]:
    """Layer by layer, heads before the MLP, each once."""
    if senders is None:
        chosen: list[Component] = [*every_head(n_layers, n_heads), *every_mlp(n_layers)]
    else:
        chosen = list(dict.fromkeys(as_components(senders)))
    if not chosen:
        raise ValueError(
            "expected senders such as Head(12, 22) or Mlp(12), found none; leave senders out to "
            "patch every component"
        )
    check_components(chosen, n_layers, n_heads)
    return tuple(sorted(chosen, key=_place))


def _place(sender: Component) -> tuple[int, int, int]:
    if isinstance(sender, Head):
        return (sender.layer, 0, sender.index)
    return (sender.layer, 1, 0)
