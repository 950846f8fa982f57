"""Take components out, or turn them up and down: knockout as hooks (paper, section 4.2)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from arith_lens.activations import Positions
from arith_lens.components import (
    Activations,
    Heads,
    Mlps,
    NamedHook,
    as_heads,
    mlp_out_name,
    z_name,
)
from arith_lens.hooks.edits import Edit, heads_by_layer, layers_of_mlps
from arith_lens.hooks.patching import patch_heads, patch_mlps

Ablation: TypeAlias = Literal["mean", "zero", "resample"]
"""What stands in for a component's output: its mean over counterfactual prompts, nothing, or its
output on another prompt drawn at random."""


def ablate_heads(
    heads: Heads,
    source: Activations | None = None,
    *,
    ablation: Ablation = "mean",
    positions: Positions = None,
    seed: int = 0,
) -> list[NamedHook]:
    """Take `heads` out: knockout as in the paper's Section 4 (its choice: the mean).

    Args:
        heads: the heads to take out
        source: for `mean`, the means themselves (see `mean_activations`), [n_heads d_head] or
            [1 #pos n_heads d_head], one for all prompts; for `resample`, a counterfactual run of
            the same length, from whose rows one is drawn for each row; for `zero`, nothing
        ablation: what stands in for the heads' output
        positions: where; the paper's knockout spares BOS and padding: give a mask
        seed: of the draw in `resample`

    Raises:
        ValueError: the ablation is unknown, its source is missing, or what is given for `mean`
            holds several prompts. (A run of one prompt cannot be told from a mean.) Where each
            prompt has a mean of its own, give the means, a row a prompt, to `patch_heads`.
        KeyError, IndexError: as `patch_heads`
    """
    heads = as_heads(heads)
    if ablation == "zero":
        return _change_heads(heads, torch.zeros_like, positions)
    names = [z_name(layer) for layer in heads_by_layer(heads)]
    return patch_heads(heads, _stand_in(source, names, ablation, seed), positions=positions)


def ablate_mlps(
    mlps: Mlps,
    source: Activations | None = None,
    *,
    ablation: Ablation = "mean",
    positions: Positions = None,
    seed: int = 0,
) -> list[NamedHook]:
    """Take `mlps` out; arguments and errors as `ablate_heads`, with mlp_out in place of z."""
    layers = layers_of_mlps(mlps)
    if ablation == "zero":
        return _change_mlps(layers, torch.zeros_like, positions)
    names = [mlp_out_name(layer) for layer in layers]
    return patch_mlps(layers, _stand_in(source, names, ablation, seed), positions=positions)


def scale_heads(heads: Heads, factor: float, *, positions: Positions = None) -> list[NamedHook]:
    """Multiply what `heads` put out by `factor`: 0 silences, 1 changes nothing, 2 doubles."""
    return _change_heads(heads, partial(torch.mul, other=factor), positions)


def scale_mlps(mlps: Mlps, factor: float, *, positions: Positions = None) -> list[NamedHook]:
    """Multiply what `mlps` add to the residual stream by `factor`."""
    return _change_mlps(mlps, partial(torch.mul, other=factor), positions)


def _change_heads(
    heads: Heads, change: Callable[[Tensor], Tensor], positions: Positions
) -> list[NamedHook]:
    return [
        (z_name(layer), Edit(change, indices, positions))
        for layer, indices in heads_by_layer(heads).items()
    ]


def _change_mlps(
    mlps: Mlps, change: Callable[[Tensor], Tensor], positions: Positions
) -> list[NamedHook]:
    return [(mlp_out_name(layer), Edit(change, None, positions)) for layer in layers_of_mlps(mlps)]


def _stand_in(
    source: Activations | None, names: Sequence[str], ablation: str, seed: int
) -> Activations:
    """What the components put out instead, by hook name."""
    if ablation not in ("mean", "resample"):
        raise ValueError(f"expected ablation 'mean', 'zero' or 'resample', found {ablation!r}")
    if source is None:
        raise ValueError(
            f"expected activations to take for ablation={ablation!r}, found none; give the means "
            "over counterfactual prompts (mean_activations), or choose ablation='zero'"
        )
    if ablation == "mean":
        _refuse_runs(source, names)
        return source
    rows = {len(source[name]) for name in names if name in source}
    generator = torch.Generator().manual_seed(seed)
    order = {n: torch.randint(n, (n,), generator=generator) for n in sorted(rows)}
    return {
        name: source[name][order[len(source[name])].to(source[name].device)]
        for name in names
        if name in source
    }


def _refuse_runs(means: Activations, names: Sequence[str]) -> None:
    """A run of several prompts would be patched as it is, unaveraged, and nobody would notice."""
    for name in names:
        value = means.get(name) if isinstance(means, Mapping) else None
        if value is not None and value.ndim in (3, 4) and len(value) != 1:
            raise ValueError(
                f"expected for ablation='mean' one mean for all prompts, found {name} of "
                f"{len(value)} prompts {list(value.shape)}; average them with mean_activations, or "
                "put each row's own value in place with patch_heads or patch_mlps"
            )
