"""Hooks that patch, ablate, scale and freeze components, and that copy their outputs.

Digests of hooks tell a run which interventions are the same.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from inspect import unwrap
from types import FunctionType
from typing import Any, Literal, TypeAlias
from uuid import uuid4

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from arith_lens.activations import Positions, check_positions, keep_activation, position_mask
from arith_lens.components import (
    Activations,
    Heads,
    Mlps,
    NamedHook,
    as_heads,
    as_mlps,
    mlp_out_name,
    z_name,
)
from arith_lens.options import check_choice


@dataclass(frozen=True, eq=False)
class Edit:
    """A hook that changes the output of some heads, or of one MLP, at some positions."""

    change: Callable[[Tensor], Tensor]
    """A function from the activation to its replacement, of a shape that broadcasts."""
    heads: tuple[int, ...] | None = None
    """Heads of the layer. None: all heads, or an activation without a head axis."""
    positions: Positions = None
    """The positions in the prompt."""
    neurons: tuple[int, ...] | None = None
    """Neurons of the layer, for an activation [batch pos d_mlp]. None: all entries."""

    def __post_init__(self) -> None:
        check_positions(self.positions)

    @property
    def is_uniform(self) -> bool:
        """Whether the hook acts on every prompt and position in the same way."""
        value = getattr(self.change, "keywords", {}).get("value")
        return self.positions is None and (value is None or value.shape[:2] == (1, 1))

    @property
    def is_tokenwise(self) -> bool:
        """Whether a token's change depends on this token alone, not on its place in the prompt."""
        return self.is_uniform

    def __repr__(self) -> str:
        """Without tensors: TransformerLens writes every hook that it adds into a string."""
        named = f"heads={self.heads}" if self.neurons is None else f"neurons={self.neurons}"
        return f"Edit({named})"

    def __call__(
        self, activation: Float[Tensor, "batch pos *rest"], hook: Any = None
    ) -> Float[Tensor, "batch pos *rest"]:
        chosen = position_mask(self.positions, activation)
        chosen = chosen.reshape(*chosen.shape, *[1] * (activation.ndim - 2))
        if self.heads is not None:
            chosen = chosen & _mask(self.heads, activation, -2, "head")[:, None]
        if self.neurons is not None:
            chosen = chosen & _mask(self.neurons, activation, -1, "neuron")
        return torch.where(chosen, self.change(activation), activation)


def heads_by_layer(heads: Heads) -> dict[int, tuple[int, ...]]:
    """The indices of the heads of each layer. Raises TypeError if a value is not a head."""
    layers: dict[int, list[int]] = defaultdict(list)
    for head in as_heads(heads):
        layers[head.layer].append(head.index)
    return {layer: tuple(indices) for layer, indices in layers.items()}


def layers_of_mlps(mlps: Mlps) -> list[int]:
    """The layers of the MLPs. Raises TypeError if a value is no MLP, ValueError below layer 0."""
    return [mlp.layer for mlp in as_mlps(mlps)]


def replacement(
    source: Activations,
    name: str,
    ndim: int,
    heads: tuple[int, ...] = (),
    neurons: tuple[int, ...] = (),
) -> Callable[[Tensor], Tensor]:
    """The change that replaces an activation by `source[name]`, after a check of its shape."""
    if not isinstance(source, Mapping):
        raise TypeError(
            f"expected activations by hook name, found {type(source).__name__}; record(model, "
            f"tokens, [{name!r}]) gives them"
        )
    if name not in source:
        raise KeyError(
            f"expected {name} in the source, found {sorted(source)}; record it with "
            f"record(model, tokens, [{name!r}])"
        )
    value = source[name]
    if value.ndim not in (ndim, ndim - 2):
        width = "d_mlp" if neurons else "d_model"
        axes = "[batch pos n_heads d_head]" if ndim == 4 else f"[batch pos {width}]"
        raise ValueError(
            f"expected {name} as {axes}, or without batch and pos, found {list(value.shape)}"
        )
    if heads and max(heads) >= value.shape[-2]:
        raise IndexError(
            f"expected heads from 0 to {value.shape[-2] - 1}, found {max(heads)} at {name}; the "
            f"model has {value.shape[-2]} heads a layer"
        )
    if neurons and max(neurons) >= value.shape[-1]:
        raise IndexError(
            f"expected neurons from 0 to {value.shape[-1] - 1}, found {max(neurons)} at {name}; "
            f"the MLP has {value.shape[-1]} neurons"
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


def _mask(
    indices: tuple[int, ...], activation: Float[Tensor, "batch pos *rest"], axis: int, what: str
) -> Bool[Tensor, " index"]:
    """Which heads or neurons of an activation are named."""
    n = activation.shape[axis]
    if max(indices) >= n:
        raise IndexError(
            f"expected {what}s from 0 to {n - 1} in each layer, found {max(indices)}; "
            f"{what}s are written layer.index"
        )
    chosen = torch.zeros(n, dtype=torch.bool, device=activation.device)
    chosen[list(indices)] = True
    return chosen


def patch_heads(
    heads: Heads, source: Activations, *, positions: Positions = None
) -> list[NamedHook]:
    """Replace the outputs of heads by those recorded in `source`.

    Hook lists compose with `+`; if two change the same head, the later one wins.
    `patch_heads(every_head, reference) + patch_heads([sender], counterfactual)` freezes all heads,
    and then gives one sender its output of the other prompt.

    Args:
        heads: the heads to patch. Heads of one layer share one hook.
        source: z by hook name, [#batch #pos n_heads d_head] or [n_heads d_head], for their layers.
        positions: the positions to patch. `source` is read at the same positions unless it has only
            one.

    Raises:
        KeyError: `source` lacks a layer.
        IndexError: `source` does not have a head.
    """
    return [
        (z_name(layer), Edit(replacement(source, z_name(layer), 4, indices), indices, positions))
        for layer, indices in heads_by_layer(heads).items()
    ]


def patch_mlps(mlps: Mlps, source: Activations, *, positions: Positions = None) -> list[NamedHook]:
    """Replace what MLPs add to the residual stream by what is recorded in `source`.

    Args:
        mlps: the MLPs, or their layers.
        source: mlp_out by hook name, [#batch #pos d_model] or [d_model].
        positions: the positions to patch.

    Raises:
        KeyError: `source` lacks a layer.
    """
    return [
        (mlp_out_name(layer), Edit(replacement(source, mlp_out_name(layer), 3), None, positions))
        for layer in layers_of_mlps(mlps)
    ]


def freeze(
    layers: Any,
    source: Activations,
    *,
    heads: bool = True,
    mlps: bool = True,
    positions: Positions = None,
) -> list[NamedHook]:
    """Freeze every head and every MLP of some layers at the run in `source`.

    Args:
        layers: a model (all its layers), or the layers. Hooks in a later list change some of them.
        source: z and mlp_out of these layers, by hook name.
        heads: whether to freeze the heads.
        mlps: whether to freeze the MLPs.
        positions: the positions to freeze.
    """
    chosen = layers_of_mlps(range(layers.cfg.n_layers) if hasattr(layers, "cfg") else layers)
    held = [z_name(layer) for layer in chosen if heads]
    hooks: list[NamedHook] = [
        (name, Edit(replacement(source, name, 4), None, positions)) for name in held
    ]
    return hooks + (patch_mlps(chosen, source, positions=positions) if mlps else [])


def capture(
    names: Iterable[str], into: dict[str, Tensor], positions: Positions = None
) -> list[NamedHook]:
    """Copy activations into the dictionary `into`, at some positions.

    This is the only hook with an effect outside the model. At the end of a list it copies the
    result of the hooks before it. Under `generate`, each step overwrites the previous one.

    Args:
        names: the hook names.
        into: the dictionary that gets the copies, by hook name.
        positions: the positions to copy.
    """
    check_positions(positions)
    return [
        (name, partial(keep_activation, name=name, into=into, positions=positions))
        for name in names
    ]


Ablation: TypeAlias = Literal["mean", "zero", "resample"]
"""The replacement of a component's output: its mean over counterfactual prompts, zero, or its
output on another prompt, drawn at random."""


def ablate_heads(
    heads: Heads,
    source: Activations | None = None,
    *,
    ablation: Ablation = "mean",
    positions: Positions = None,
    seed: int = 0,
) -> list[NamedHook]:
    """Replace the outputs of heads at every position, BOS and padding included.

    `knock_out` and `knockout_hooks` do not change BOS. So their numbers differ from those of these
    hooks, which do not know the tokens.

    Args:
        heads: the heads to ablate.
        source: for `mean`, the means (see `counterfactual_means`), [n_heads d_head] or
            [1 #pos n_heads d_head], the same for all prompts. For `resample`, a counterfactual run
            of the same length; for each row, one of its rows is drawn. For `zero`, nothing.
        ablation: the replacement of the heads' output.
        positions: the positions to change. None: all.
        seed: the seed of the draw in `resample`.

    Raises:
        ValueError: the ablation is unknown, its source is missing, or the source for `mean` has
            several prompts. (A run of one prompt cannot be told from a mean.) If each prompt has
            its own mean, give the means, one row per prompt, to `patch_heads`.
        TypeError: a value is not a head, or not positions.
        KeyError, IndexError: as in `patch_heads`.
    """
    heads = as_heads(heads)
    if ablation == "zero":
        return _change_heads(heads, torch.zeros_like, positions)
    names = [z_name(layer) for layer in heads_by_layer(heads)]
    return patch_heads(heads, stand_in(source, names, ablation, seed), positions=positions)


def ablate_mlps(
    mlps: Mlps,
    source: Activations | None = None,
    *,
    ablation: Ablation = "mean",
    positions: Positions = None,
    seed: int = 0,
) -> list[NamedHook]:
    """Replace what MLPs add at every position. Arguments and errors as in `ablate_heads`, with
    mlp_out in place of z."""
    layers = layers_of_mlps(mlps)
    if ablation == "zero":
        return _change_mlps(layers, torch.zeros_like, positions)
    names = [mlp_out_name(layer) for layer in layers]
    return patch_mlps(layers, stand_in(source, names, ablation, seed), positions=positions)


def scale_heads(heads: Heads, factor: float, *, positions: Positions = None) -> list[NamedHook]:
    """Multiply the output of heads by `factor`: 0 removes it, 1 changes nothing, 2 doubles it."""
    return _change_heads(heads, partial(torch.mul, other=factor), positions)


def scale_mlps(mlps: Mlps, factor: float, *, positions: Positions = None) -> list[NamedHook]:
    """Multiply what MLPs add to the residual stream by `factor`."""
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


def stand_in(
    source: Activations | None, names: Sequence[str], ablation: str, seed: int
) -> Activations:
    """The replacements of the components' outputs, by hook name."""
    check_choice("ablation", ablation, ("mean", "zero", "resample"))
    if source is None:
        raise ValueError(
            f"expected activations to take for ablation={ablation!r}, found none; give the means "
            "over counterfactual prompts, al.counterfactual_means(model, pairs, heads), or choose "
            "ablation='zero'"
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
    """Raise ValueError for a run of several prompts, which would be patched without a mean."""
    for name in names:
        value = means.get(name) if isinstance(means, Mapping) else None
        if value is not None and value.ndim in (3, 4) and len(value) != 1:
            raise ValueError(
                f"expected for ablation='mean' one mean for all prompts, found {name} of "
                f"{len(value)} prompts {list(value.shape)}; average them over the prompts, "
                "as al.counterfactual_means(model, pairs, heads) does, or put each row's own value "
                "in place with patch_heads or patch_mlps"
            )


def hooks_digest(hooks: Iterable[NamedHook]) -> str | None:
    """A SHA-256 of the hooks and their contents; None for no hooks.

    The hooks of this package have the same digest in every process. Nobody can tell what another
    function computes, so its digest is always new: nothing computed with it is used again.
    """
    listed = list(hooks)
    if not listed:
        return None
    digest = hashlib.sha256()
    for name, function in listed:
        digest.update(repr(name).encode())
        _feed(digest, function)
    return digest.hexdigest()


def has_identity(hook: NamedHook) -> bool:
    """Whether the digest of the hook is the same whenever it is computed."""
    return hooks_digest([hook]) == hooks_digest([hook])


def describe_hooks(hooks: Iterable[NamedHook]) -> list[str]:
    """One line per hook, for people."""
    return [f"{name}: {function!r:.120}" for name, function in hooks]


def _feed(digest: Any, value: Any) -> None:
    digest.update(f"{type(value).__qualname__}(".encode())
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().double().numpy().tobytes())
    elif value is None or isinstance(value, str | int | float | bool | slice | torch.dtype):
        digest.update(repr(value).encode())
    elif isinstance(value, Mapping):
        _feed(digest, [(key, value[key]) for key in value])
    elif isinstance(value, list | tuple):
        for item in value:
            _feed(digest, item)
    elif isinstance(value, partial):
        _feed(digest, [value.func, value.args, value.keywords])
    elif is_dataclass(value) and _is_known(type(value)):
        # fields that are not printed hold the state of one forward, not what the hook is
        _feed(digest, [getattr(value, field.name) for field in fields(value) if field.repr])
    elif isinstance(value, FunctionType) and _is_known(value):
        digest.update(f"{value.__module__}.{value.__qualname__}".encode())
        _feed(digest, [cell.cell_contents for cell in unwrap(value).__closure__ or ()])
    elif getattr(torch, name := getattr(value, "__name__", ""), None) is value:
        digest.update(name.encode())
    else:
        digest.update(uuid4().bytes)
    digest.update(b")")


def _is_known(value: Any) -> bool:
    return value.__module__.split(".")[0] == "arith_lens"
