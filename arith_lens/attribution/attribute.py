"""`attribute`: the effects of all components, approximated by a few forwards and backwards.

Each method makes one score per component from gradients of a batch.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.attribution.graph import (
    EMBEDDING_LAYER,
    Gate,
    GradientBatch,
    ScoreMethod,
    Scores,
    mean_of,
    names_of,
    weights_without_gradient,
)
from arith_lens.attribution.rules import (
    act_over_input,
    halve_gated_products,
    hold_norm_scales,
    soften_softmax,
    split_attention_products,
)
from arith_lens.effects import ComponentEffects
from arith_lens.methods import (
    Computation,
    MetricTokenOptions,
    MetricTokens,
    Notes,
    Storage,
    StorageOptions,
    shard_size,
)
from arith_lens.metrics import MetricFunction
from arith_lens.model import HookedLike
from arith_lens.options import check_choice, refuse_unknown_options, value_object
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import (
    PatchSettings,
    component_effects,
    operation_name,
    patch_settings,
    patching_details,
)
from arith_lens.runs import Run


def atp(batch: GradientBatch) -> Scores:
    """Attribution patching (Nanda, 2023): the first-order approximation at the reference run.

    The change of the output, times the gradient at the reference run.
    """
    counterfactual, reference = batch.runs()
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
    counterfactual, reference = batch.runs(both_graphs=True)
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
    counterfactual, reference = batch.runs(streams=True)
    gradients = [batch.gradient(reference, reference, counterfactual)]
    start, end = (run.streams[EMBEDDING_LAYER] for run in (counterfactual, reference))
    for step in range(1, batch.steps):
        run = batch.between(start + (step / batch.steps) * (end - start))
        gradients.append(batch.gradient(run, reference, counterfactual))
    return batch.scores(mean_of(gradients), reference, counterfactual)


def ig_activations(batch: GradientBatch) -> Scores:
    """Integrated gradients over each layer's own outputs (Marks et al., 2024).

    Per layer the heads move together, and then the MLP, from their outputs in the counterfactual
    run to those in the reference run, at the points of `eap_ig`. All else is as in the reference
    run on these paths. That run is computed once for all layers; the others are computed from their
    layer on.
    """
    counterfactual, reference = batch.runs(streams=True)
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
    counterfactual, reference = batch.runs(gates=gates)
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
WITH_STEPS = ("eap_ig", "ig_activations")
"""The methods that take gradients at several points."""

UNSIGNED = frozenset({"atp_star"})
"""Methods whose scores are magnitudes."""


class AttributionOptions(MetricTokenOptions, StorageOptions, total=False):
    """The options of `attribute`."""


def attribute(
    model: HookedLike,
    pairs: PromptPairs,
    *,
    method: str = "relp",
    paths: str = "via_mlps",
    metric: str | MetricFunction = "relative_logit",
    steps: int = 5,
    run: Run | None = None,
    progress: bool = True,
    **options: Unpack[AttributionOptions],
) -> ComponentEffects:
    """Approximate the effect of giving each component its counterfactual output at END.

    The result has the sign, the unit and the statistics of `path_patch` with the same `paths` and
    `metric`, which computes the exact effects. All heads and MLPs are computed at once.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        method: one of `ATTRIBUTION_METHODS`: `"atp"`, `"atp_star"`, `"clean_corrupted"`,
            `"eap_ig"`, `"ig_activations"`, `"relp"`, `"attn_lrp"` or `"gim"`. Scores of
            `"atp_star"` have no sign: they are magnitudes.
        paths: the paths that the gradient takes. `"via_mlps"`: the residual stream and MLPs, with
            all other heads frozen. `"direct"`: the residual stream alone. `"total"`: all paths.
        metric: one of `metrics.METRICS` with a gradient (`answers_other` has none), or a function,
            as in `path_patch`.
        foil: for `logit_difference`, one token per pair.
        candidates: for `digit_contrast`, the tokens whose mean logit is compared with the answer's.
        steps: the number of points of `"eap_ig"` and `"ig_activations"`.
        batch_size: the number of pairs in a shard.
        run: an open run, which stores the result and each finished shard.
        name: the name of the result in the run. The default is the method and the operation.
        progress: whether to show a progress bar.

    Returns:
        One effect per pair, for heads [layer head pair] and for MLPs [layer pair], on the CPU.
        `computation` has the method, and the forwards and backwards of a shard.

    Raises:
        UnsupportedRule: a backward rule of the method does not fit the model; the message names
            the model and the reason.
        FloatingPointError: an activation is NaN or infinite; the message names its layer.
        ValueError: method, paths, metric, foil or a number is not valid, or there are no pairs.
        RunError: the run is not open or was opened with another model; or the disk is not writable.
        TypeError: an option does not exist.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols", counterfactual="operands")
        >>> approximate = al.attribute(model, pairs, method="relp", progress=False)
        >>> approximate.heads.per_pair.shape       # as path_patch returns: [layer head pair]
        torch.Size([12, 8, 6])
    """
    refuse_unknown_options(attribute, options, MetricTokens, Storage)
    tokens, storage = value_object(MetricTokens, options), value_object(Storage, options)
    check_choice("a method", method, ATTRIBUTION_METHODS)
    if steps < 1:
        raise ValueError(f"expected at least one step, found {steps}")
    patching = patch_settings(model, None, paths=paths, metric=metric, pairs=pairs, **vars(tokens))
    how = {"method": method, "signed": method not in UNSIGNED}

    def result(values: Tensor, computation: Notes) -> ComponentEffects:
        return component_effects(values, pairs, patching, how | computation)

    computation = Computation(
        title="attribution",
        make_engine=lambda: GradientEngine(model, patching, ATTRIBUTION_METHODS[method], steps),
        result=result,
        read=ComponentEffects.from_arrays,
        settings={"paths": paths, "metric": patching.metric}
        | ({"steps": steps} if method in WITH_STEPS else {}),
        identity=patching_details(patching, tokens.foil, run) | {"method": f"attribute {method}"},
        foil=tokens.foil,
        shard_size=shard_size(storage.batch_size),
    )
    name = storage.name or f"{method}-{operation_name(pairs)}"
    return computation.run(model, pairs, run=run, name=name, progress=progress)


@dataclass(frozen=True)
class GradientEngine:
    """Computes the scores of a shard of pairs."""

    model: HookedLike
    patching: PatchSettings
    method: ScoreMethod
    steps: int
    counts: dict[str, int] = field(default_factory=dict)
    """Forwards and backwards of the last batch."""

    def __call__(
        self, pairs: PromptPairs, foil: Int[Tensor, " pair"] | None
    ) -> Float[Tensor, "row pair"]:
        batch = GradientBatch(self.model, pairs, self.patching, foil, self.steps)
        with torch.enable_grad(), weights_without_gradient(self.model):
            scores = self.method(batch)
        self.counts.update(batch.counts)
        return scores.rows().detach()

    def notes(self) -> Notes:
        return dict(self.counts)
