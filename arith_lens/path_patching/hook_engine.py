"""Path patching with composable hooks: general and slow. The sweep must give the same numbers.

Run the reference prompt, freeze what must not change, and give one sender at END the output that it
had in the counterfactual run. This takes one forward per sender.
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
"""The paths on which a change may reach the logits: through MLPs but no other head (Appendix B),
through the residual stream alone (Algorithm 1 to the letter), or all (activation patching)."""


Interventions: TypeAlias = Iterable[list[NamedHook]]
"""Lists of hooks, one per forward. The first one does not change the reference run."""


def patched_readouts(
    model: HookedLike,
    pairs: PromptPairs,
    senders: Sequence[Component],
    *,
    paths: Paths,
    foil: Int[Tensor, "pair"] | None = None,
) -> Readout:
    """The logits at END [row pair]: unpatched in row 0, then with each sender patched."""

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

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts.
        interventions: makes the lists of hooks from z and MLP outputs of the reference run (at all
            positions) and of the counterfactual run (at END).
        foil: a second token per pair whose logit is read.

    Raises:
        ValueError: a layer has no attention heads or no MLP.
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
    """Hooks that freeze, at the reference run, what these paths do not let change."""
    if paths == "total":
        return []
    return freeze(layers, reference, heads=True, mlps=paths == "direct")


def sender_hooks(sender: Component, counterfactual: Activations) -> list[NamedHook]:
    """Hooks that give the sender its counterfactual output at END.

    `counterfactual` may contain END alone.
    """
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
