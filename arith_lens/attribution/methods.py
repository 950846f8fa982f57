"""The methods of attribution. Each makes one score per component from gradients of a batch."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial

import torch

from arith_lens.attribution.graph import (
    EMBEDDING_LAYER,
    Gate,
    GradientBatch,
    ScoreMethod,
    Scores,
    mean_of,
    names_of,
)
from arith_lens.attribution.rules import (
    act_over_input,
    halve_gated_products,
    hold_norm_scales,
    soften_softmax,
    split_attention_products,
)
from arith_lens.model import HookedLike


def atp(batch: GradientBatch) -> Scores:
    """Attribution patching (Nanda, 2023): the first-order approximation at the reference run.

    The change of the output, times the gradient at the reference run.
    """
    counterfactual, reference = batch.counterfactual(), batch.reference()
    gradient = batch.gradient(reference, reference, counterfactual)
    return batch.scores(gradient, reference, counterfactual)


def with_rules(*rules: Callable[[HookedLike], AbstractContextManager[None]]) -> ScoreMethod:
    """`atp` with the gradients of some backward rules; the first rule is the outermost."""

    def method(batch: GradientBatch) -> Scores:
        with ExitStack() as stack:
            for rule in rules:
                stack.enter_context(rule(batch.model))
            return atp(batch)

    return method


def clean_corrupted(batch: GradientBatch) -> Scores:
    """Change of the output, times the mean of the gradients of both runs."""
    reference, counterfactual = batch.reference(), batch.forward(batch.pairs.counterfactual)
    gradients = [
        batch.gradient(run, reference, counterfactual) for run in (reference, counterfactual)
    ]
    return batch.scores(mean_of(gradients), reference, counterfactual)


def eap_ig(batch: GradientBatch) -> Scores:
    """Integrated gradients over the inputs (Hanna et al., 2024), for components in place of edges.

    Change of the output, times the mean gradient between both prompts' embeddings. The points are
    the shares 1/m to m/m of the way from the counterfactual's embeddings to the reference's, so the
    reference run is one of them.
    """
    counterfactual, reference = batch.counterfactual(), batch.reference()
    gradients = [batch.gradient(reference, reference, counterfactual)]
    start, end = (run.streams[EMBEDDING_LAYER] for run in (counterfactual, reference))
    for step in range(1, batch.steps):
        between = start + (step / batch.steps) * (end - start)
        run = batch.forward(batch.pairs.reference, embeddings=between)
        gradients.append(batch.gradient(run, reference, counterfactual))
    return batch.scores(mean_of(gradients), reference, counterfactual)


def ig_activations(batch: GradientBatch) -> Scores:
    """Integrated gradients over each layer's own outputs (Hanna et al., 2024).

    Per layer the heads move together, and then the MLP, from their outputs in the counterfactual
    run to those in the reference run, at the points of `eap_ig`. All else is as in the reference
    run on these paths. That run is computed once for all layers; the others are computed from their
    layer on.
    """
    counterfactual, reference = batch.counterfactual(), batch.reference()
    first = batch.gradient(reference, reference, counterfactual)
    mean = {}
    for name, end in reference.outputs.items():
        start, gradients = counterfactual.outputs[name], [{name: first[name]}]
        for step in range(1, batch.steps):
            run = batch.moved(reference, name, start + (step / batch.steps) * (end - start))
            gradients.append(batch.gradient(run, reference, counterfactual))
        mean |= mean_of(gradients)
    return batch.scores(mean, reference, counterfactual)


def atp_star(batch: GradientBatch) -> Scores:
    """AtP* (Kramár et al., 2024) for outputs as senders: GradDrop.

    It is the mean of the absolute scores, each with the gradient through one layer dropped. Two
    paths that cancel at the reference run no longer do if one of their layers is dropped. The
    scores have no sign. The layer of the component itself is not among those dropped, since nothing
    would remain of its score.

    AtP* also computes the softmax again for queries and keys as senders. Our senders are outputs of
    heads and MLPs, whose change is exact, so that this part has nothing to correct.
    """
    gates = {name: Gate() for layer in batch.layers for name in names_of(layer)}
    counterfactual = batch.counterfactual()
    reference = batch.forward(batch.pairs.reference, gates=gates)
    parts: list[Scores] = []
    for dropped in batch.layers:
        for name in names_of(dropped):
            gates[name].value = 0.0
        last = dropped == batch.layers[-1]
        gradient = batch.gradient(reference, reference, counterfactual, retain_graph=not last)
        parts.append(batch.scores(gradient, reference, counterfactual))
        for name in names_of(dropped):
            gates[name].value = 1.0
    others = max(1, len(parts) - 1)
    heads, mlps = (
        torch.stack([getattr(part, name).abs() for part in parts]).sum(0) / others
        for name in ("heads", "mlps")
    )
    return Scores(parts[0].logit, heads, mlps)


RELEVANCE = (hold_norm_scales, act_over_input, halve_gated_products)
"""The rules of relevance: norm scales held, act(x) / x for act'(x), gated products halved."""
TEMPERATURE = 2.0
"""Of GIM's softmax in the backward; the published value."""

ATTRIBUTION_METHODS: Mapping[str, ScoreMethod] = {
    "atp": atp,
    "atp_star": atp_star,
    "clean_corrupted": clean_corrupted,
    "eap_ig": eap_ig,
    "ig_activations": ig_activations,
    "relp": with_rules(*RELEVANCE),
    "attn_lrp": with_rules(split_attention_products, *RELEVANCE),
    "gim": with_rules(
        hold_norm_scales,
        partial(soften_softmax, temperature=TEMPERATURE),
        split_attention_products,
        halve_gated_products,
    ),
}
"""By name. `relp` is RelP (Jafari et al., 2025). `attn_lrp` is AttnLRP (Achtibat et al., 2024) in
its form of gradient times input, with the uniform rule for the products of attention. `gim` is GIM
(gradient interaction modifications, 2025): a softened softmax, and all products' gradients split.
"""

UNSIGNED = frozenset({"atp_star"})
"""Methods whose scores are magnitudes."""
