"""The same experiment written with composable hooks: general, slow, and what the sweep must equal.

Run the reference, hold what must stay, let one sender put out at END what it put out in the
counterfactual run. One forward a sender.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import (
    Activations,
    Component,
    Head,
    NamedHook,
    mlp_out_name,
    z_name,
)
from arith_lens.hooks import freeze, patch_heads, patch_mlps
from arith_lens.metrics import Readout, read_logits
from arith_lens.model import HookedLike, record
from arith_lens.pairs import PromptPairs

Paths: TypeAlias = Literal["via_mlps", "direct", "total"]
"""What may carry the change: MLPs but no other head (Appendix B), nothing but the residual stream
(Algorithm 1 to the letter), or everything (activation patching)."""


Interventions: TypeAlias = Iterable[list[NamedHook]]
"""Lists of hooks, a forward each; the first leaves the reference run as it is."""


def patched_readouts(
    model: HookedLike,
    pairs: PromptPairs,
    senders: Sequence[Component],
    *,
    paths: Paths,
    foil: Int[Tensor, "pair"] | None = None,
) -> Readout:
    """The logits at END, unpatched in row 0, then with each sender patched, [row pair]."""

    def interventions(reference: Activations, counterfactual: Activations) -> Interventions:
        held = held_hooks(range(len(model.blocks)), reference, paths)
        return [held, *(held + sender_hooks(sender, counterfactual) for sender in senders)]

    return readouts_of(model, pairs, interventions, foil=foil)


@torch.no_grad()
def readouts_of(
    model: HookedLike,
    pairs: PromptPairs,
    interventions: Callable[[Activations, Activations], Interventions],
    *,
    foil: Int[Tensor, "pair"] | None = None,
) -> Readout:
    """The logits at END of the reference prompts under each list of hooks, [row pair].

    `interventions` makes them from z and MLP outputs of both runs, the counterfactual's at END.
    """
    layers = range(len(model.blocks))
    device = torch.device(model.cfg.device)
    tokens, mask = pairs.reference.to(device), pairs.attention_mask.to(device)
    names = [name(layer) for layer in layers for name in (z_name, mlp_out_name)]
    try:
        reference = record(model, tokens, names, attention_mask=mask)
    except KeyError as error:
        architecture = getattr(model.cfg, "architecture", "this model")
        raise ValueError(
            f"expected attention heads and an MLP in every layer, found that {architecture} lacks "
            f"one of their hook points ({error.args[0]}); path patching cannot be done on it"
        ) from error
    counterfactual = record(model, pairs.counterfactual, names, attention_mask=mask, positions=-1)
    rows = []
    for hooks in interventions(reference, counterfactual):
        logits = model.run_with_hooks(
            tokens, fwd_hooks=hooks, attention_mask=mask, logits_to_keep=1
        )
        rows.append(read_logits(logits[:, -1], pairs.answer, foil))
    return _stack(rows)


def held_hooks(layers: Sequence[int], reference: Activations, paths: Paths) -> list[NamedHook]:
    """What stays at the reference run under this meaning of paths."""
    if paths == "total":
        return []
    return freeze(layers, reference, heads=True, mlps=paths == "direct")


def sender_hooks(sender: Component, counterfactual: Activations) -> list[NamedHook]:
    """The sender's counterfactual output at END; `counterfactual` may hold END alone."""
    if isinstance(sender, Head):
        return patch_heads([sender], counterfactual, positions=-1)
    return patch_mlps([sender], counterfactual, positions=-1)


def _stack(rows: Sequence[Readout]) -> Readout:
    def stacked(values: Sequence[Float[Tensor, "pair"] | None]) -> Tensor | None:
        present = [value for value in values if value is not None]
        return torch.stack(present) if present else None

    return Readout(
        answer=torch.stack([row.answer for row in rows]),
        foil=stacked([row.foil for row in rows]),
        log_total=stacked([row.log_total for row in rows]),
    )
