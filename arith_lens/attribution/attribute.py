"""`attribute`: the effects of all components, approximated by a few forwards and backwards."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.attribution.graph import GradientBatch, ScoreMethod, weights_without_gradient
from arith_lens.attribution.methods import ATTRIBUTION_METHODS, UNSIGNED
from arith_lens.effects import ComponentEffects
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching.engines import PatchSettings, patch_settings
from arith_lens.path_patching.patch import (
    by_shards,
    component_effects,
    n_left_out,
    numerics,
    operation_name,
    patching_details,
    shard_size,
    warn_of_ratios,
)
from arith_lens.runs import ResultSlot, Run


def attribute(
    model: HookedLike,
    pairs: PromptPairs,
    *,
    method: str = "relp",
    paths: str = "via_mlps",
    metric: str = "relative_logit",
    foil: Int[Tensor, " pair"] | None = None,
    candidates: Sequence[int] | None = None,
    steps: int = 5,
    batch_size: int | None = None,
    run: Run | None = None,
    name: str | None = None,
    progress: bool = True,
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
        metric: one of `metrics.METRICS`.
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
        RunError: the run is not open or was opened with another model; or the disk refuses.
    """
    if method not in ATTRIBUTION_METHODS:
        raise ValueError(
            f"expected a method among {', '.join(ATTRIBUTION_METHODS)}, found {method!r}"
        )
    if steps < 1:
        raise ValueError(f"expected at least one step, found {steps}")
    patching = patch_settings(
        model, None, paths=paths, metric=metric, foil=foil, pairs=pairs, candidates=candidates
    )
    size = shard_size(batch_size)
    settings = {"paths": paths, "metric": metric, "steps": steps, "shard_size": size}
    identity = settings | patching_details(patching, foil) | {"method": f"attribute {method}"}
    name = name or f"{method}-{operation_name(pairs)}"
    slot = ResultSlot.of(run, name, model, pairs, **identity)
    if (arrays := slot.stored(progress=progress)) is not None:
        return ComponentEffects.from_arrays(arrays)
    compute = GradientEngine(model, patching, ATTRIBUTION_METHODS[method], steps)
    values, notes = by_shards(
        compute, pairs, foil, size, slot=slot, progress=progress, title="attribution"
    )
    warn_of_ratios(values[0], metric)
    effects = component_effects(values, values[:0], pairs, patching)
    computation = {
        "method": method,
        "signed": method not in UNSIGNED,
        **settings,
        "n_pairs": len(pairs),
        **numerics(model),
        **notes,
    }
    return slot.save(ComponentEffects(*effects, values[0], n_left_out(values), computation))


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

    def notes(self) -> dict[str, Any]:
        return dict(self.counts)
