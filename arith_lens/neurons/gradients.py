"""The effect of each neuron by one gradient, as a ranking to compare the exact effects with."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.components import Mlp, Mlps, as_mlps, check_components, neurons_name
from arith_lens.effects import Effects
from arith_lens.metrics import METRICS, Targets, read_logits
from arith_lens.model import HookedLike, n_neurons, record
from arith_lens.pairs import PromptPairs, candidate_tokens, check_pairs

BATCH = 32


def neuron_gradients(model: HookedLike, pairs: PromptPairs, mlps: Mlps) -> Effects:
    """What one gradient estimates for each neuron at END: gradient times change of the activation.

    The gradient is of C's logit less the mean of the other digits' logits, in the reference run,
    with all paths open (attribution patching).

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        mlps: the MLPs.

    Returns:
        [mlp neuron pair], in logits.

    Raises:
        ValueError: no MLP, MLPs of unequal widths, or an MLP that is not neurons times W_out.
        IndexError: the model does not have an MLP.
    """
    chosen = as_mlps(mlps)
    check_components(chosen, int(model.cfg.n_layers), int(model.cfg.n_heads))
    widths = {n_neurons(model, mlp.layer) for mlp in chosen}
    if len(widths) != 1:
        raise ValueError(f"expected MLPs of one width, found {sorted(widths)}; take each alone")
    check_pairs(model, pairs)
    candidates = torch.tensor(candidate_tokens(model, pairs.answer.tolist()))
    parts = [_of_batch(model, batch, chosen, candidates) for batch in pairs.batches(BATCH)]
    labels = {"mlp": tuple(map(str, chosen))}
    values = torch.cat(parts, dim=-1)
    return Effects(
        values, ("mlp", "neuron"), "digit_contrast", "total", **pairs.units, labels=labels
    )


def _of_batch(
    model: HookedLike, pairs: PromptPairs, mlps: Sequence[Mlp], candidates: Tensor
) -> Float[Tensor, "mlp neuron pair"]:
    names = [neurons_name(mlp.layer) for mlp in mlps]
    mask = pairs.attention_mask.to(model.cfg.device)
    shared: dict[str, Any] = {"attention_mask": mask, "positions": -1}
    other = record(model, pairs.counterfactual, names, **shared)
    leaves: dict[str, Tensor] = {}

    def leaf(activation: Tensor, hook: Any = None, *, name: str) -> Tensor:
        leaves[name] = activation.detach().requires_grad_()
        return leaves[name] + (activation - activation.detach())

    hooks = [
        (name, lambda activation, hook=None, name=name: leaf(activation, name=name))
        for name in names
    ]
    with torch.enable_grad():
        logits = model.run_with_hooks(
            pairs.reference.to(model.cfg.device), fwd_hooks=hooks, attention_mask=mask
        )[:, -1]
        metric = METRICS["digit_contrast"]
        targets = Targets.of(pairs, metric.reads, candidates=candidates)
        total = metric.value(read_logits(logits, targets)).sum()
        gradients = torch.autograd.grad(total, [leaves[name] for name in names])
    changes = (
        gradient[:, -1] * (other[name][:, -1] - leaves[name][:, -1].detach())
        for name, gradient in zip(names, gradients, strict=True)
    )
    return torch.stack([change.float().T.cpu() for change in changes])
