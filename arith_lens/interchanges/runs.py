"""What sites hold in the base run and in the source run, and what follows from other values."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.components import (
    Head,
    Mlp,
    Neuron,
    mlp_out_name,
    neurons_name,
    resid_post_name,
    z_name,
)
from arith_lens.interchanges.sites import AnySite, Site
from arith_lens.model import EndRuns, HookedLike, check_writes, record, run_layers, weights_loaded
from arith_lens.pairs import PromptPairs
from arith_lens.tensor_parallel import full_weight

LOGITS_AT_ONCE = 2**22
"""The number of logits in memory at once."""


def site_name(site: AnySite) -> str:
    """The hook name of a site's activation."""
    if isinstance(site, Site):
        return resid_post_name(site.layer)
    if isinstance(site, Neuron):
        return neurons_name(site.layer)
    return z_name(site.layer) if isinstance(site, Head) else mlp_out_name(site.layer)


Tail: TypeAlias = Callable[[Tensor], Tensor]
"""The function from a site's values, [state pair width], to the logits at END, [state pair
d_vocab]."""


@dataclass(frozen=True, eq=False)
class SiteRuns:
    """One site of a batch of pairs."""

    base: Float[Tensor, "pair width"]
    """The site's value in the base run."""
    source: Float[Tensor, "pair width"]
    """Its value in the source run."""
    logits: Tail
    """The logits at END of the base run, with other values at the site."""
    d_vocab: int

    @torch.no_grad()
    def answers(self, values: Float[Tensor, "state pair width"]) -> Int[Tensor, "state pair"]:
        """The likeliest token at END, on the CPU."""
        at_once = max(1, LOGITS_AT_ONCE // (self.d_vocab * max(1, len(self.base))))
        return torch.cat([self.logits(part).argmax(-1).cpu() for part in values.split(at_once)])


def site_runs(
    model: HookedLike, pairs: PromptPairs, sites: Sequence[AnySite], *, batch_size: int
) -> Iterator[tuple[SiteRuns, ...]]:
    """Run both prompts of some pairs, batch by batch; one `SiteRuns` per site.

    Raises:
        UnsupportedEndRuns: a site is at END, and the model cannot be run at END alone.
        ValueError: the role of a site has no token, or unequal numbers of them.
    """
    for batch in pairs.batches(batch_size):
        yield _of_batch(model, batch, sites)


def _of_batch(
    model: HookedLike, pairs: PromptPairs, sites: Sequence[AnySite]
) -> tuple[SiteRuns, ...]:
    outputs = [mlp_out_name(site.layer) for site in sites if isinstance(site, Neuron)]
    names = list(dict.fromkeys([*map(site_name, sites), *outputs]))
    base, source = (
        record(model, tokens, names, attention_mask=mask) for tokens, mask in pairs.sides
    )
    needs_end = any(not isinstance(site, Site) or site.is_end for site in sites)
    ends = EndRuns.of(model, pairs.reference, pairs.attention_mask) if needs_end else None
    d_vocab = int(model.cfg.d_vocab)
    made = []
    for site in sites:
        name = site_name(site)
        if isinstance(site, Site) and not site.is_end:
            columns = role_columns(pairs, site).to(base[name].device)
            row = torch.arange(len(pairs), device=columns.device)[:, None]
            tail: Tail = partial(_role_logits, model, pairs, site, base[name], columns)
            own = base[name][row, columns].flatten(1)
            other = pairs.at_counterparts(source[name])[row, columns].flatten(1)
        else:
            assert ends is not None
            own, other = (_at_end(run[name], site) for run in (base, source))
            tail = partial(_end_logits, ends, site)
            if isinstance(site, Neuron):
                tail = partial(_neuron_logits, ends, site, own, _row_of(model, site, base, source))
        made.append(SiteRuns(own, other, tail, d_vocab))
    return tuple(made)


def _at_end(activation: Tensor, site: AnySite) -> Float[Tensor, "pair width"]:
    end = activation[:, -1]
    if isinstance(site, Neuron):
        return end[:, [site.index]]
    return end[:, site.index] if isinstance(site, Head) else end


def _row_of(
    model: HookedLike, neuron: Neuron, base: Mapping[str, Tensor], source: Mapping[str, Tensor]
) -> Float[Tensor, " d_model"]:
    """What a neuron of activation 1 writes. Raises ValueError as `check_writes`."""
    block = model.blocks[neuron.layer]
    with weights_loaded(block):
        w_out = full_weight(block.mlp.W_out.detach())
    before, after = (run[neurons_name(neuron.layer)][:, -1] for run in (base, source))
    own, other = (run[mlp_out_name(neuron.layer)][:, -1] for run in (base, source))
    by_neurons, size = (after - before).to(w_out) @ w_out, float(own.float().norm())
    check_writes(by_neurons, other - own, Mlp(neuron.layer), rounded=size)
    return w_out[neuron.index]


def _neuron_logits(
    ends: EndRuns,
    neuron: Neuron,
    own: Float[Tensor, "pair 1"],
    row: Float[Tensor, " d_model"],
    values: Float[Tensor, "state pair 1"],
) -> Float[Tensor, "state pair d_vocab"]:
    """Run the neuron's layer and those after it at END alone."""
    stream = ends.streams[neuron.layer].expand(len(values), -1, -1)
    change = (values - own) * row.to(own)
    edits = {neuron.layer: {"mlp_out": lambda written: written + change.to(written)}}
    return ends.logits(ends.advance(stream, neuron.layer, edits=edits))


def _end_logits(
    ends: EndRuns, site: AnySite, values: Float[Tensor, "state pair width"]
) -> Float[Tensor, "state pair d_vocab"]:
    """Run the layers after the site at END alone."""
    if isinstance(site, Site):
        return ends.logits(ends.advance(values, site.layer + 1))
    stream = ends.streams[site.layer].expand(len(values), -1, -1)

    def edit(activation: Tensor) -> Tensor:
        if not isinstance(site, Head):
            return values
        changed = activation.clone()
        width = values.shape[-1]
        changed[..., site.index * width : (site.index + 1) * width] = values
        return changed

    edits = {site.layer: {"z" if isinstance(site, Head) else "mlp_out": edit}}
    return ends.logits(ends.advance(stream, site.layer, edits=edits))


def role_columns(pairs: PromptPairs, site: Site) -> Int[Tensor, "pair token"]:
    """The columns of a site's tokens.

    Raises:
        ValueError: the role has no token, unequal numbers of tokens, or not the one that is named.
    """
    at: Bool[Tensor, "pair pos"] = pairs.role_mask(site.role)
    counts = at.sum(1)
    n_tokens = int(counts[0])
    needed = 1 if site.token is None else (site.token + 1 if site.token >= 0 else -site.token)
    if not bool((counts == n_tokens).all()) or n_tokens < needed:
        listed = ", ".join(map(str, counts.unique().tolist()))
        raise ValueError(
            f"expected the same number of tokens of {site.at} in every prompt, {needed} at least, "
            f"found {listed}; give operands of one number of digits, or another token"
        )
    columns = at.nonzero()[:, 1].view(len(at), n_tokens)
    columns = columns if site.token is None else columns[:, [site.token]]
    pairs.require_counterparts(torch.zeros_like(at).scatter(1, columns, True), str(site))
    return columns


@torch.no_grad()
def _role_logits(
    model: HookedLike,
    pairs: PromptPairs,
    site: Site,
    stream: Float[Tensor, "pair pos d_model"],
    columns: Int[Tensor, "pair token"],
    values: Float[Tensor, "state pair width"],
) -> Float[Tensor, "state pair d_vocab"]:
    """Run all tokens from the layer after the site on."""
    row = torch.arange(len(pairs), device=columns.device)[:, None]
    logits = []
    for state in values:
        changed = stream.clone()
        changed[row, columns] = state.unflatten(1, (columns.shape[1], -1))
        options = {"start": site.layer + 1, "stream": changed}
        out = run_layers(model, pairs.reference, attention_mask=pairs.attention_mask, **options)
        logits.append(out[:, -1])
    return torch.stack(logits)
