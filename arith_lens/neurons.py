"""Which neurons of an MLP write the answer: the direct effect of each neuron at END."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.components import (
    Mlp,
    Mlps,
    as_mlps,
    check_components,
    mlp_out_name,
    resid_post_name,
)
from arith_lens.effects import Effects
from arith_lens.metrics import METRICS, Targets
from arith_lens.model import HookedLike, record, weights_loaded
from arith_lens.pairs import PromptPairs, check_pairs
from arith_lens.path_patching import Trunk, trunk_of

BATCH = 32
NEURONS_AT_ONCE = 512


@torch.no_grad()
def neuron_effects(model: HookedLike, pairs: PromptPairs, mlps: Mlps) -> Effects:
    """The effect on C's logit of giving one neuron at END its counterfactual activation (not in
    the paper).

    Only the direct path to the logits is open: everything else is held at the reference run, and
    the final norm divides by the reference run's scale. So effects of an MLP's neurons sum to
    `path_patch(paths="direct").mlps.without_norm_scale()` of this MLP.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        mlps: the MLPs.

    Returns:
        Relative changes of C's logit, [mlp neuron pair]. NaN for pairs whose logit is not positive.

    Raises:
        ValueError: no MLP is given, or the MLP is not neurons times W_out (such as a mixture of
            experts); or the model does not fit the sweep of `path_patch`.
        IndexError: the model does not have an MLP.
    """
    chosen = as_mlps(mlps)
    if not chosen:
        raise ValueError("expected MLPs, found none; see effects.mlps.top(3)")
    check_pairs(model, pairs)
    check_components(chosen, int(model.cfg.n_layers), int(model.cfg.n_heads))
    for mlp in chosen:
        _require_neurons(model, mlp)
    trunk = trunk_of(model, advice="use path_patch with engine='hooks', which patches whole MLPs")
    parts = [_effects(model, trunk, batch, chosen) for batch in pairs.batches(BATCH)]
    return Effects(
        torch.cat(parts, dim=-1),
        ("mlp", "neuron"),
        "relative_logit",
        "direct, norm scale held",
        **pairs.units,
        labels={"mlp": tuple(map(str, chosen))},
    )


def _effects(
    model: HookedLike, trunk: Trunk, pairs: PromptPairs, mlps: Sequence[Mlp]
) -> Float[Tensor, "mlp neuron pair"]:
    last = resid_post_name(int(model.cfg.n_layers) - 1)
    names = [last, *(name(mlp.layer) for mlp in mlps for name in (neurons_name, mlp_out_name))]
    runs = [
        record(model, tokens, names, attention_mask=pairs.attention_mask, positions=-1)
        for tokens in (pairs.reference, pairs.counterfactual)
    ]
    end = runs[0][last][:, -1].float()
    targets = Targets(pairs.answer)
    reference = trunk.read(end[None], targets).unpatched()
    effects = []
    for mlp in mlps:
        before, after = (run[neurons_name(mlp.layer)][:, -1].float() for run in runs)
        with weights_loaded(model.blocks[mlp.layer]):
            w_out = model.blocks[mlp.layer].mlp.W_out.float()
        change = [run[mlp_out_name(mlp.layer)][:, -1].float() for run in runs]
        _check_neurons((after - before) @ w_out, change[1] - change[0], mlp)
        rows = []
        for part in torch.arange(len(w_out)).split(NEURONS_AT_ONCE):
            written = (after - before)[:, part].T[..., None] * w_out[part][:, None]
            readout = trunk.read(end + written, targets, scale_of=end)
            rows.append(METRICS["relative_logit"].effect(readout, reference).cpu())
        effects.append(torch.cat(rows))
    return torch.stack(effects)


def neurons_name(layer: int) -> str:
    """The hook name of what the neurons put out, [batch pos d_mlp]."""
    return f"blocks.{layer}.mlp.hook_post"


def _require_neurons(model: HookedLike, mlp: Mlp) -> None:
    """Raise ValueError for an MLP without one matrix that its neurons are multiplied by."""
    module = model.blocks[mlp.layer].mlp
    with weights_loaded(module):
        matrix = getattr(module, "W_out", None)
    if not isinstance(matrix, Tensor):
        raise ValueError(
            f"expected an MLP that writes its neurons times W_out, found {mlp} without one W_out "
            "for all tokens (a mixture of experts has one for each expert); use path_patch, which "
            "patches whole MLPs"
        )


def _check_neurons(by_neurons: Tensor, mlp_change: Tensor, mlp: Mlp) -> None:
    error = float((by_neurons - mlp_change).norm())
    if error > 1e-3 * float(mlp_change.norm()) + 1e-6:
        raise ValueError(
            f"expected an MLP that writes its neurons times W_out, found that {mlp} differs from "
            f"that by {error:.3g}; use path_patch, which patches whole MLPs"
        )
