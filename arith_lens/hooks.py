"""Interventions as values: each function returns a list of named hooks; lists compose with `+`.

Hooks of one hook point run in the order of the list, each on what the one before left, so that
where two touch one head the later wins. A hook never writes into the tensor it is given, holds no
state, and knows no model: the same list works in `run_with_hooks`, `hooks()` and `generate`, on a
`HookedModel` and on a bare TransformerBridge.

    freeze(model, reference, mlps=False) + patch_heads([sender], counterfactual, positions=-1)

freezes every head, then lets one sender see the other prompt at END: the paper's path patching.

Positions are the prompt's (`activations.Positions`). While generating with a cache, a step after
the first holds one new token: hooks without positions (zero, scale, a source of one position, such
as a mean) act on every step; hooks with positions belong to the prompt, and `HookedModel.generate`
wants `hook_steps="prompt"` for them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.activations import Positions, keep_activation, position_mask
from arith_lens.components import Activations, Head, Mlp, NamedHook, mlp_out_name, z_name

Ablation: TypeAlias = Literal["mean", "zero", "resample"]
"""What stands in for a component's output: its mean over counterfactual prompts, nothing, or its
output on another prompt drawn at random."""


@dataclass(frozen=True, eq=False)
class Edit:
    """A hook that changes what some heads (or one MLP) put out at some positions, and nothing else.

    Attributes:
        change: from the activation to what shall stand in its place, of a shape that broadcasts
        heads: heads of the layer; None where the activation has no head axis, or for all heads
        positions: where in the prompt
    """

    change: Callable[[Tensor], Tensor]
    heads: tuple[int, ...] | None = None
    positions: Positions = None

    def __repr__(self) -> str:
        """Without tensors: TransformerLens writes down each hook it adds, once a run."""
        return f"Edit(heads={self.heads})"

    def __call__(
        self, activation: Float[Tensor, "batch pos *rest"], hook: Any = None
    ) -> Float[Tensor, "batch pos *rest"]:
        chosen = position_mask(self.positions, activation)
        chosen = chosen.reshape(*chosen.shape, *[1] * (activation.ndim - 2))
        if self.heads is not None:
            chosen = chosen & _head_mask(self.heads, activation)
        return torch.where(chosen, self.change(activation), activation)


def patch_heads(
    heads: Iterable[Head], source: Activations, *, positions: Positions = None
) -> list[NamedHook]:
    """Make `heads` output what they output in the run recorded in `source`.

    Hook lists compose with `+`, and where two touch one head the later wins:
    `patch_heads(every_head, reference) + patch_heads([sender], counterfactual)` freezes the heads,
    then lets one sender see the other prompt.

    Args:
        heads: the heads to patch; of one layer they share one hook
        source: by hook name, z [#batch #pos n_heads d_head] or [n_heads d_head], for their layers
        positions: where; `source` is read at the same positions unless it holds only one

    Raises:
        KeyError: `source` lacks a layer
        IndexError: a head that `source` does not have
    """
    return [
        (z_name(layer), Edit(_replacement(source, z_name(layer), 4, indices), indices, positions))
        for layer, indices in _by_layer(heads).items()
    ]


def patch_mlps(
    mlps: Iterable[Mlp | int], source: Activations, *, positions: Positions = None
) -> list[NamedHook]:
    """Make `mlps` (or the MLPs of these layers) add what they added in the run in `source`.

    `source` holds mlp_out [#batch #pos d_model] or [d_model] by hook name. Raises KeyError where it
    lacks a layer.
    """
    return [
        (mlp_out_name(layer), Edit(_replacement(source, mlp_out_name(layer), 3), None, positions))
        for layer in _layers(mlps)
    ]


def ablate_heads(
    heads: Iterable[Head],
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
            [#batch #pos n_heads d_head]; for `resample`, a counterfactual run of the same length,
            from whose rows one is drawn for each row; for `zero`, nothing
        ablation: what stands in for the heads' output
        positions: where; the paper's knockout spares BOS and padding: give a mask
        seed: of the draw in `resample`

    Raises:
        ValueError: the ablation is unknown, or its source is missing
        KeyError, IndexError: as `patch_heads`
    """
    heads = list(heads)
    if ablation == "zero":
        return _change_heads(heads, torch.zeros_like, positions)
    names = [z_name(layer) for layer in _by_layer(heads)]
    return patch_heads(heads, _stand_in(source, names, ablation, seed), positions=positions)


def ablate_mlps(
    mlps: Iterable[Mlp | int],
    source: Activations | None = None,
    *,
    ablation: Ablation = "mean",
    positions: Positions = None,
    seed: int = 0,
) -> list[NamedHook]:
    """Take `mlps` out; arguments and errors as `ablate_heads`, with mlp_out in place of z."""
    layers = _layers(mlps)
    if ablation == "zero":
        return _change_mlps(layers, torch.zeros_like, positions)
    names = [mlp_out_name(layer) for layer in layers]
    return patch_mlps(layers, _stand_in(source, names, ablation, seed), positions=positions)


def scale_heads(
    heads: Iterable[Head], factor: float, *, positions: Positions = None
) -> list[NamedHook]:
    """Multiply what `heads` put out by `factor`: 0 silences, 1 changes nothing, 2 doubles."""
    return _change_heads(heads, partial(torch.mul, other=factor), positions)


def scale_mlps(
    mlps: Iterable[Mlp | int], factor: float, *, positions: Positions = None
) -> list[NamedHook]:
    """Multiply what `mlps` add to the residual stream by `factor`."""
    return _change_mlps(mlps, partial(torch.mul, other=factor), positions)


def freeze(
    layers: Any,
    source: Activations,
    *,
    heads: bool = True,
    mlps: bool = True,
    positions: Positions = None,
) -> list[NamedHook]:
    """Hold every head and every MLP of `layers` at the run in `source`.

    Args:
        layers: a model (all its layers), or the layers; a later list lifts some of them
        source: z and mlp_out of these layers, by hook name
        heads: hold the heads
        mlps: hold the MLPs
        positions: where
    """
    chosen = _layers(range(layers.cfg.n_layers) if hasattr(layers, "cfg") else layers)
    held = [z_name(layer) for layer in chosen if heads]
    hooks: list[NamedHook] = [
        (name, Edit(_replacement(source, name, 4), None, positions)) for name in held
    ]
    return hooks + (patch_mlps(chosen, source, positions=positions) if mlps else [])


def capture(
    names: Iterable[str], into: dict[str, Tensor], positions: Positions = None
) -> list[NamedHook]:
    """Copy the activations called `names` into the dictionary `into`, at `positions` alone.

    The one hook with an effect outside the model. Put last in a sum, it sees what the hooks before
    it left; under `generate` each step overwrites the one before.
    """
    return [
        (name, partial(keep_activation, name=name, into=into, positions=positions))
        for name in names
    ]


def _change_heads(
    heads: Iterable[Head], change: Callable[[Tensor], Tensor], positions: Positions
) -> list[NamedHook]:
    return [
        (z_name(layer), Edit(change, indices, positions))
        for layer, indices in _by_layer(heads).items()
    ]


def _change_mlps(
    mlps: Iterable[Mlp | int], change: Callable[[Tensor], Tensor], positions: Positions
) -> list[NamedHook]:
    return [(mlp_out_name(layer), Edit(change, None, positions)) for layer in _layers(mlps)]


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
        return source
    rows = {len(source[name]) for name in names if name in source}
    generator = torch.Generator().manual_seed(seed)
    order = {n: torch.randint(n, (n,), generator=generator) for n in sorted(rows)}
    return {
        name: source[name][order[len(source[name])].to(source[name].device)]
        for name in names
        if name in source
    }


def _by_layer(heads: Iterable[Head]) -> dict[int, tuple[int, ...]]:
    layers: dict[int, list[int]] = defaultdict(list)
    for head in heads:
        layers[head.layer].append(head.index)
    return {layer: tuple(indices) for layer, indices in layers.items()}


def _layers(mlps: Iterable[Mlp | int]) -> list[int]:
    return [mlp.layer if isinstance(mlp, Mlp) else mlp for mlp in mlps]


def _replacement(
    source: Activations, name: str, ndim: int, heads: tuple[int, ...] = ()
) -> Callable[[Tensor], Tensor]:
    """The change that puts `source[name]` in place, once its shape has been found right."""
    if name not in source:
        raise KeyError(
            f"expected {name} in the source, found {sorted(source)}; record it with "
            f"record(model, tokens, [{name!r}])"
        )
    value = source[name]
    if value.ndim not in (ndim, ndim - 2):
        axes = "[batch pos n_heads d_head]" if ndim == 4 else "[batch pos d_model]"
        raise ValueError(
            f"expected {name} as {axes}, or without batch and pos, found {list(value.shape)}"
        )
    if heads and max(heads) >= value.shape[-2]:
        raise IndexError(
            f"expected heads from 0 to {value.shape[-2] - 1}, found {max(heads)} at {name}; the "
            f"model has {value.shape[-2]} heads a layer"
        )
    return partial(_put, value=value.reshape(*[1] * (ndim - value.ndim), *value.shape), name=name)


def _put(
    activation: Float[Tensor, "batch pos *rest"],
    *,
    value: Float[Tensor, "value_batch value_pos *rest"],
    name: str,
) -> Float[Tensor, "value_batch value_pos *rest"]:
    for axis, what in ((0, "prompts"), (1, "positions")):
        if value.shape[axis] not in (1, activation.shape[axis]):
            raise ValueError(
                f"{name}: expected a source of {activation.shape[axis]} {what} (or of one, used "
                f"for all), found {value.shape[axis]}; record it on prompts aligned with these, "
                "and while generating use one position (a mean), or hook_steps='prompt'"
            )
    return value.to(activation)


def _head_mask(
    heads: tuple[int, ...], activation: Float[Tensor, "batch pos n_heads d_head"]
) -> Tensor:
    n_heads = activation.shape[-2]
    if max(heads) >= n_heads:
        raise IndexError(
            f"expected heads from 0 to {n_heads - 1} in each layer, found {max(heads)}; "
            "heads are written layer.index"
        )
    chosen = torch.zeros(n_heads, 1, dtype=torch.bool, device=activation.device)
    chosen[list(heads)] = True
    return chosen
