"""Path patching with composable hooks: general and slow. The sweep must give the same numbers.

Run the reference prompt, freeze what must not change, and give one sender at END the output that it
had in the counterfactual run. This takes one forward per sender.
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
"""The paths on which a change may reach the logits: through MLPs but no other head (Appendix B),
through the residual stream alone (Algorithm 1 to the letter), or all (activation patching)."""


Interventions: TypeAlias = Iterable[list[NamedHook]]
"""Lists of hooks, one per forward. The first one does not change the reference run."""


@torch.no_grad()
def readouts_of(
    model: HookedLike,
    pairs: PromptPairs,
    interventions: Callable[[Activations, Activations], Interventions],
    *,
    foil: Int[Tensor, " pair"] | None = None,
    candidates: Int[Tensor, " candidate"] | None = None,
    total: bool = False,
) -> tuple[Readout, Readout | None]:
    """The logits at END of the reference prompts under each list of hooks, [row pair]; and, for
    `total`, those of the counterfactual prompts without any, [pair].

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts.
        interventions: makes the lists of hooks from z and MLP outputs of the reference run (at all
            positions) and of the counterfactual run (at END).
        foil: a second token per pair whose logit is read.
        candidates: tokens whose mean logit is read.
        total: whether the counterfactual prompts are read too.

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

    def read(tokens: Int[Tensor, "pair pos"], hooks: list[NamedHook]) -> Readout:
        logits = model.run_with_hooks(
            tokens, fwd_hooks=hooks, attention_mask=mask, logits_to_keep=1
        )
        return read_logits(logits[:, -1], pairs.answer, foil, candidates)

    rows = [read(tokens, hooks) for hooks in interventions(reference, counterfactual)]
    return Readout.stack(rows), read(pairs.counterfactual.to(device), []) if total else None


def patch_one_by_one(
    senders: Sequence[Component],
    paths: Paths,
    layers: Sequence[int],
    reference: Activations,
    counterfactual: Activations,
) -> Interventions:
    """What these paths do not let change is frozen; then one sender at a time is patched at END.

    Args:
        senders: the components to patch.
        paths: the paths on which a change may reach the logits.
        layers: all layers.
        reference: the reference run, to which components are frozen.
        counterfactual: the counterfactual run at END.
    """
    held: list[NamedHook] = []
    if paths != "total":
        held = freeze(layers, reference, heads=True, mlps=paths == "direct")
    yield held
    for sender in senders:
        patch: Callable[..., list[NamedHook]] = (
            patch_heads if isinstance(sender, Head) else patch_mlps
        )
        yield held + patch([sender], counterfactual, positions=-1)
