"""The same experiment written with composable hooks: general, slow, and what the sweep must equal.

Run the reference, hold what must stay, let one sender put out at END what it put out in the
counterfactual run. One forward a sender.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias

import torch
from jaxtyping import Int
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
    candidates: Int[Tensor, "candidate"] | None = None,
    total: bool = False,
) -> tuple[Readout, Readout | None]:
    """The logits at END, unpatched in row 0, then with each sender patched, [row pair]; and, for
    `total`, those of the counterfactual prompts, [pair].
    """

    def interventions(reference: Activations, counterfactual: Activations) -> Interventions:
        held = held_hooks(range(len(model.blocks)), reference, paths)
        return [held, *(held + sender_hooks(sender, counterfactual) for sender in senders)]

    return readouts_of(model, pairs, interventions, foil=foil, candidates=candidates, total=total)


@torch.no_grad()
def readouts_of(
    model: HookedLike,
    pairs: PromptPairs,
    interventions: Callable[[Activations, Activations], Interventions],
    *,
    foil: Int[Tensor, "pair"] | None = None,
    candidates: Int[Tensor, "candidate"] | None = None,
    total: bool = False,
) -> tuple[Readout, Readout | None]:
    """The logits at END of the reference prompts under each list of hooks, [row pair]; and, for
    `total`, those of the counterfactual prompts without any, [pair].

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

    def read(tokens: Int[Tensor, "pair pos"], hooks: list[NamedHook]) -> Readout:
        logits = model.run_with_hooks(
            tokens, fwd_hooks=hooks, attention_mask=mask, logits_to_keep=1
        )
        return read_logits(logits[:, -1], pairs.answer, foil, candidates)

    rows = [read(tokens, hooks) for hooks in interventions(reference, counterfactual)]
    return Readout.stack(rows), read(pairs.counterfactual.to(device), []) if total else None


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
