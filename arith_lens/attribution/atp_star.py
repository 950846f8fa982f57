"""AtP* (Kramár et al., 2024) for outputs as senders: GradDrop.

AtP* also computes the softmax again for queries and keys as senders. Our senders are outputs of
heads and MLPs, whose change is exact, so that this part has nothing to correct.
"""

import torch

from arith_lens.attribution.graph import Batch, Gate, Scores, names_of


def atp_star(batch: Batch) -> Scores:
    """The mean of the absolute scores, each with the gradient through one layer dropped.

    Two paths that cancel at the reference run no longer do if one of their layers is dropped. The
    scores have no sign. The layer of the component itself is not among those dropped, since
    nothing would remain of its score.
    """
    gates = {name: Gate() for layer in batch.layers for name in names_of(layer)}
    counterfactual = batch.counterfactual()
    reference = batch.forward(batch.pairs.reference, gates=gates)
    parts: list[Scores] = []
    for dropped in batch.layers:
        for name in names_of(dropped):
            gates[name].value = 0.0
        last = dropped == batch.layers[-1]
        gradient = batch.gradient(reference, reference, counterfactual, keep=not last)
        parts.append(batch.scores(gradient, reference, counterfactual))
        for name in names_of(dropped):
            gates[name].value = 1.0
    others = max(1, len(parts) - 1)
    heads, mlps = (
        torch.stack([getattr(part, name).abs() for part in parts]).sum(0) / others
        for name in ("heads", "mlps")
    )
    return Scores(parts[0].logit, heads, mlps)
