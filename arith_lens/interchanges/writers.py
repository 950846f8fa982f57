"""Who writes what an interchange exchanges, and who reads it: heads and MLPs at END.

A component is held: it keeps the output that it has in the base run, while everything else
changes. Held in the source run, it writes nothing of what is new there. Held after the exchange,
it does not react to it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.components import Component, Head, as_components, check_components, mlp_out_name
from arith_lens.components import z_name as head_name
from arith_lens.effects import Effects
from arith_lens.interchanges.pairs import InterchangePairs
from arith_lens.interchanges.sites import Site, heads_and_mlps
from arith_lens.interchanges.spaces import swapped
from arith_lens.model import EndRuns, HookedLike, record

BATCH = 64
"""The number of pairs that run together."""
Edits = dict[int, dict[str, Any]]


@dataclass(frozen=True, eq=False)
class _Runs:
    """Both runs of a batch of pairs at END, and the outputs of components in the base run."""

    base: EndRuns
    source: EndRuns
    outputs: Mapping[str, Tensor]
    """By hook name, END's output in the base run."""
    expected: Int[Tensor, " pair"]
    values: Int[Tensor, "pair base_source=2"]

    def held(self, components: Iterable[Component]) -> Edits:
        """The edits that hold components at the base run's outputs."""
        edits: Edits = {}
        heads: dict[int, list[int]] = {}
        for one in components:
            if isinstance(one, Head):
                heads.setdefault(one.layer, []).append(one.index)
            else:
                own = self.outputs[mlp_out_name(one.layer)]
                edits.setdefault(one.layer, {})["mlp_out"] = _Constant(own)
        for layer, indices in heads.items():
            z = self.outputs[head_name(layer)]
            edits.setdefault(layer, {})["z"] = _HeldHeads(z, tuple(indices))
        return edits

    def answers(self, streams: Float[Tensor, "state pair d_model"]) -> Bool[Tensor, "state pair"]:
        """Whether the likeliest token is the expected one."""
        return self.base.logits(streams).argmax(-1).cpu() == self.expected


@dataclass(frozen=True, eq=False)
class _Constant:
    value: Float[Tensor, "pair d_model"]

    def __call__(self, activation: Float[Tensor, "state pair d_model"]) -> Tensor:
        return self.value.to(activation).expand_as(activation)


@dataclass(frozen=True, eq=False)
class _HeldHeads:
    z: Float[Tensor, "pair n_heads d_head"]
    indices: tuple[int, ...]

    def __call__(self, activation: Float[Tensor, "state pair width"]) -> Tensor:
        changed = activation.clone()
        d_head = self.z.shape[-1]
        for index in self.indices:
            changed[..., index * d_head : (index + 1) * d_head] = self.z[:, index]
        return changed


def _runs(model: HookedLike, pairs: InterchangePairs) -> Iterator[_Runs]:
    layers = range(int(model.cfg.n_layers))
    names = [name(layer) for layer in layers for name in (head_name, mlp_out_name)]
    for start in range(0, len(pairs), BATCH):
        batch = pairs[start : start + BATCH]
        mask = batch.pairs.attention_mask
        base, source = (
            EndRuns.of(model, tokens, mask)
            for tokens in (batch.pairs.reference, batch.pairs.counterfactual)
        )
        own = record(model, batch.pairs.reference, names, attention_mask=mask, positions=-1)
        outputs = {name: value[:, -1] for name, value in own.items()}
        yield _Runs(base, source, outputs, batch.expected, batch.values)


def _checked(
    model: HookedLike, components: Any, site: Site, *, after: bool
) -> tuple[Component, ...]:
    chosen = heads_and_mlps(as_components(components))
    check_components(chosen, int(model.cfg.n_layers), int(model.cfg.n_heads))
    wrong = [one for one in chosen if (one.layer > site.layer) is not after]
    if wrong:
        side = "after" if after else "up to"
        raise ValueError(
            f"expected components of layers {side} that of {site}, found {wrong[0]}; choose others"
        )
    return chosen


@torch.no_grad()
def writers(
    model: HookedLike,
    pairs: InterchangePairs,
    site: Site,
    direction: Float[Tensor, "width 1"],
    components: Any,
) -> Effects:
    """How much of the change along a direction disappears if one component is held.

    The source problem runs with the component at its output of the base run, at END. The number is
    the loss of the projection at the site, from the base's value towards the source's, divided by
    its mean change over all pairs: 1 if the component alone writes it.

    Args:
        pairs: of `interchange_pairs`.
        direction: of length 1, such as one of `Interchange.bases`.
        components: heads and MLPs of layers up to the site's.

    Returns:
        The share of each component and pair, [component pair].
    """
    chosen = _checked(model, components, site, after=False)
    losses, changes = [], []
    for runs in _runs(model, pairs):
        point = site.layer + 1
        base, source = runs.base.streams[point], runs.source.streams[point]
        along = direction[:, 0].to(source)
        sign = (runs.values[:, 1] - runs.values[:, 0]).sign().to(source)
        changes.append(sign * ((source - base) @ along))
        lost = [sign * ((source - _held_stream(runs, [one], point)) @ along) for one in chosen]
        losses.append(torch.stack(lost))
    shares = torch.cat(losses, dim=1) / torch.cat(changes).mean()
    return _effects(shares, "component", [str(one) for one in chosen], pairs, "share of the change")


def _held_stream(
    runs: _Runs, components: Sequence[Component], point: int
) -> Float[Tensor, "pair d_model"]:
    """END's stream of the source run at the entry of a layer, with components held."""
    if not components:
        return runs.source.streams[point]
    start = min(one.layer for one in components)
    streams = runs.source.streams[start][None]
    return runs.source.advance(streams, start, stop=point, edits=runs.held(components))[0]


@torch.no_grad()
def without_writers(
    model: HookedLike, pairs: InterchangePairs, site: Site, sets: Mapping[str, Sequence[Component]]
) -> Effects:
    """Whether the answer is the expected one if the whole site is exchanged, with components held.

    The components of a set are held at END in the source run, before the site is read there.

    Args:
        pairs: of `interchange_pairs`.
        sets: by name, components of layers up to the site's; an empty one holds nothing.

    Returns:
        1 or 0 for each set and pair, [set pair].
    """
    for components in sets.values():
        _checked(model, components, site, after=False)
    point = site.layer + 1
    parts = []
    for runs in _runs(model, pairs):
        streams = torch.stack([_held_stream(runs, one, point) for one in sets.values()])
        parts.append(runs.answers(runs.base.advance(streams, point)).float())
    return _effects(torch.cat(parts, dim=1), "set", list(sets), pairs, "interchange_accuracy")


@torch.no_grad()
def readers(
    model: HookedLike,
    pairs: InterchangePairs,
    site: Site,
    basis: Float[Tensor, "width k"],
    components: Any,
) -> Effects:
    """Whether the answer is the expected one if a subspace is exchanged, with one component held.

    Args:
        pairs: of `interchange_pairs`.
        basis: the subspace, such as one of `Interchange.bases`.
        components: heads and MLPs of layers after the site's, which are held one at a time.

    Returns:
        1 or 0 for each component and pair, [component pair].
    """
    chosen = _checked(model, components, site, after=True)
    parts = []
    for runs in _runs(model, pairs):
        point = site.layer + 1
        stream = swapped(runs.base.streams[point], runs.source.streams[point], basis)[None]
        right = [
            runs.answers(runs.base.advance(stream, point, edits=runs.held([one])))[0]
            for one in chosen
        ]
        parts.append(torch.stack(right).float())
    names = [str(one) for one in chosen]
    return _effects(torch.cat(parts, dim=1), "component", names, pairs, "interchange_accuracy")


@torch.no_grad()
def projections(
    model: HookedLike, pairs: InterchangePairs, site: Site, direction: Float[Tensor, "width 1"]
) -> Float[Tensor, "side=2 pair"]:
    """The base's and the source's projection on a direction at END."""
    parts = []
    for runs in _runs(model, pairs):
        both = torch.stack([one.streams[site.layer + 1] for one in (runs.base, runs.source)])
        parts.append((both @ direction[:, 0].to(both)).cpu())
    return torch.cat(parts, dim=1)


def _effects(
    values: Float[Tensor, "part pair"],
    axis: str,
    names: Sequence[str],
    pairs: InterchangePairs,
    metric: str,
) -> Effects:
    labels = {axis: tuple(names)}
    return Effects(values.cpu(), (axis,), metric=metric, labels=labels, **pairs.pairs.units)
