"""What replaces the output of a component, and at which tokens.

The replacement is a mean over counterfactual prompts, zero, or the output on another prompt. If
pairs have templates, there is one mean per template and position: prompts of one template, length
and layout are aligned. For other text there is one vector per component.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.caller_warnings import warn_caller
from arith_lens.components import (
    Activations,
    Component,
    Components,
    Head,
    Mlp,
    Neuron,
    as_components,
    every_component,
    in_forward_order,
    mlp_out_name,
    neurons_name,
    z_name,
)
from arith_lens.model import HookedLike, record
from arith_lens.pairs import PromptPairs, check_pairs


def tokens_that_count(pairs: PromptPairs, tokenizer: Any) -> Bool[Tensor, "pair pos"]:
    """Every token but padding and BOS (if a prompt begins with the tokenizer's BOS).

    At BOS heads have an output that is large and the same in every prompt. So BOS is neither part
    of a mean nor knocked out.
    """
    mask = pairs.attention_mask
    bos = getattr(tokenizer, "bos_token_id", None)
    if bos is None:
        return mask.clone()
    first = mask & (mask.cumsum(1) == 1)
    return mask & ~(first & (pairs.reference == bos))


def chosen_positions(
    pairs: PromptPairs, positions: str, tokenizer: Any
) -> Bool[Tensor, "pair pos"]:
    """The positions at which components are knocked out.

    Raises:
        ValueError: `positions` is neither `all` nor `end`.
    """
    if positions == "all":
        return tokens_that_count(pairs, tokenizer)
    if positions != "end":
        raise ValueError(f"expected positions 'all' or 'end', found {positions!r}")
    end = torch.zeros_like(pairs.attention_mask)
    end[:, -1] = True
    return end


def aligned_groups(pairs: PromptPairs) -> Int[Tensor, " pair"]:
    """For each pair, the number of its group of aligned pairs.

    Prompts are aligned if they have the same template, the same length and, if roles are known, the
    same columns of roles. "3 plus 15" and "13 plus 5" are not aligned.
    """
    layouts = pairs.lengths[:, None]
    if pairs.spans is not None:
        layouts = torch.cat([layouts, *pairs.spans.values()], dim=1)
    templates = pairs.template or ("",) * len(pairs)
    keys = list(zip(templates, map(tuple, layouts.tolist()), strict=True))
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return torch.tensor([numbers[key] for key in keys])


Means: TypeAlias = Literal["template", "vector"] | Activations | None
"""`template`: one mean per template and position; `vector`: one per component; or vectors by hook
name, from `counterfactual_means`. None: `template` if pairs have templates, else `vector`."""

ABLATIONS = ("mean", "zero", "resample", "counterfactual")
"""What replaces outputs: a mean over counterfactual prompts, nothing, the output on the
counterfactual of another aligned pair, or on the pair's own counterfactual."""
BATCH = 64


@dataclass(frozen=True)
class Replacements:
    """The replacements of the outputs of knocked-out components, for any of the pairs."""

    kind: str
    """`template`, `vector`, `given`, `none` (nothing is out), or the ablation."""
    values: Activations
    """By hook name [group pos ...], with columns aligned at END; for means alone."""
    group: Int[Tensor, " pair"]
    """The row of `values` for each pair."""
    donor: Int[Tensor, " pair"] | None = None
    """For `resample`, `counterfactual`: the pair whose counterfactual run gives the replacement."""

    def of(
        self, model: HookedLike, pairs: PromptPairs, rows: Int[Tensor, " row"], names: list[str]
    ) -> Activations:
        """The replacements for some of the pairs, by hook name.

        Args:
            model: the model, which runs the counterfactuals of donors.
            pairs: all pairs.
            rows: the pairs to use.
            names: the hook names.

        Returns:
            By hook name [row pos ...], with dimensions of size 1 where all are equal. The columns
            are those of the rows without common padding.
        """
        if self.kind == "zero":
            return {name: torch.zeros(1, 1, 1, *[1] * name.endswith("hook_z")) for name in names}
        if self.donor is not None:
            donors = narrowed(pairs[self.donor[rows]])
            mask = donors.attention_mask
            return record(model, donors.counterfactual, names, attention_mask=mask)
        width = int(pairs.lengths[rows].max())
        group = self.group[rows]
        return {
            name: self.values[name][group.to(self.values[name].device)][:, -width:]
            for name in names
        }


def narrowed(pairs: PromptPairs) -> PromptPairs:
    """The pairs without the columns that are padding in all of them; spans are dropped."""
    used = slice(-int(pairs.lengths.max()), None)
    return PromptPairs(
        reference=pairs.reference[:, used],
        counterfactual=pairs.counterfactual[:, used],
        answer=pairs.answer,
        attention_mask=pairs.attention_mask[:, used],
    )


_NAMES = {Head: z_name, Neuron: neurons_name, Mlp: mlp_out_name}


def hook_names(components: Iterable[Component]) -> list[str]:
    """The hook points at which these components are knocked out, in the order of the forward."""
    points = (_NAMES[type(one)](one.layer) for one in in_forward_order(components))
    return list(dict.fromkeys(points))


def replacements(
    model: HookedLike,
    pairs: PromptPairs,
    components: Iterable[Component],
    *,
    ablation: str,
    means: Means,
    seed: int,
) -> Replacements:
    """The replacements for some components. Raises the errors of `knock_out`."""
    if ablation not in ABLATIONS:
        raise ValueError(f"expected ablation among {', '.join(ABLATIONS)}, found {ablation!r}")
    if ablation != "mean" and means is not None:
        raise ValueError(f"expected means= with ablation='mean' alone, found {ablation!r}")
    names = hook_names(components)
    alone = torch.zeros(len(pairs), dtype=torch.long)
    if not names:
        return Replacements("none", {}, alone)
    if ablation == "zero":
        return Replacements("zero", {}, alone)
    if ablation == "resample":
        return Replacements("resample", {}, alone, _donors(pairs, seed))
    if ablation == "counterfactual":
        return Replacements("counterfactual", {}, alone, torch.arange(len(pairs)))
    if isinstance(means, Mapping):
        return Replacements("given", given_vectors(means, names), alone)
    kind = means or ("template" if pairs.template is not None else "vector")
    if kind == "vector":
        vectors = _means(model, pairs, names, alone, over_positions=True)
        return Replacements("vector", vectors, alone)
    if kind != "template":
        raise ValueError(
            f"expected means 'template', 'vector' or vectors by hook name, found {means!r}"
        )
    groups = _groups(pairs)
    return Replacements("template", _means(model, pairs, names, groups), groups)


def counterfactual_means(
    model: HookedLike, pairs: PromptPairs, components: Components | None = None
) -> dict[str, Tensor]:
    """One vector per component: its mean output over the counterfactual prompts.

    The mean is over all tokens of all prompts but BOS and padding, with equal weight. Use the
    vectors to knock out components on other text: `knock_out(..., means=)`, `knockout_hooks`,
    `ablate_heads`.

    Returns:
        By hook name, [n_heads d_head], [d_mlp] and [d_model], for the layers of `components` (None:
        all heads and MLPs).
    """
    if components is None:
        components = every_component(int(model.cfg.n_layers), int(model.cfg.n_heads))
    check_pairs(model, pairs)
    alone = torch.zeros(len(pairs), dtype=torch.long)
    names = hook_names(as_components(components, neurons=True))
    means = _means(model, pairs, names, alone, over_positions=True)
    return {name: value[0, 0] for name, value in means.items()}


def _means(
    model: HookedLike,
    pairs: PromptPairs,
    names: list[str],
    groups: Int[Tensor, " pair"],
    *,
    over_positions: bool = False,
) -> dict[str, Tensor]:
    """By hook name, [group pos ...], or [1 1 ...] over positions; 0 if there is no token."""
    counted = tokens_that_count(pairs, model.tokenizer)
    totals: dict[str, Tensor] = {}
    for rows in torch.arange(len(pairs)).split(BATCH):
        batch = pairs[rows]
        recorded = record(model, batch.counterfactual, names, attention_mask=batch.attention_mask)
        for name, value in recorded.items():
            sums = _sums(value, counted[rows], groups[rows], int(groups.max()) + 1)
            totals[name] = totals[name] + sums if name in totals else sums
    n_tokens = torch.zeros(int(groups.max()) + 1, counted.shape[1])
    n_tokens.index_add_(0, groups, counted.float())
    means = {}
    for name, total in totals.items():
        number = n_tokens.to(total.device).reshape(*n_tokens.shape, *[1] * (total.ndim - 2))
        if over_positions:
            total, number = total.sum((0, 1), keepdim=True), number.sum((0, 1), keepdim=True)
        means[name] = total / number.clamp(min=1)
    return means


def _sums(
    value: Float[Tensor, "row pos *rest"],
    counted: Bool[Tensor, "row pos"],
    groups: Int[Tensor, " row"],
    n_groups: int,
) -> Float[Tensor, "group pos *rest"]:
    counts = counted.to(value.device).reshape(*counted.shape, *[1] * (value.ndim - 2))
    total = value.new_zeros(n_groups, *value.shape[1:], dtype=torch.float32)
    return total.index_add_(0, groups.to(value.device), torch.where(counts, value.float(), 0.0))


def _groups(pairs: PromptPairs) -> Int[Tensor, " pair"]:
    """The groups to average over. Warns if a group has a single prompt."""
    groups = aligned_groups(pairs)
    sizes = groups.bincount()
    if int(sizes.min()) == 1:
        warn_caller(
            "expected two prompts or more in all groups of aligned prompts (template, length, "
            f"positions of the operands), found one in {int((sizes == 1).sum())} of {len(sizes)}, "
            "whose 'mean' is its own counterfactual output; give more pairs, or means='vector'",
        )
    return groups


class NoAlignedPrompt(ValueError):
    """A pair has no other prompt from which `resample` could take an output."""


def _donors(pairs: PromptPairs, seed: int) -> Int[Tensor, " pair"]:
    """For each pair, another pair of its group with another reference prompt."""
    rng = random.Random(seed)
    groups, references = aligned_groups(pairs).tolist(), pairs.cluster.tolist()
    members: dict[int, list[int]] = {}
    for pair, group in enumerate(groups):
        members.setdefault(group, []).append(pair)
    donors = []
    for pair, group in enumerate(groups):
        others = [other for other in members[group] if references[other] != references[pair]]
        if not others:
            raise NoAlignedPrompt(
                f"expected for ablation='resample' another prompt aligned with pair {pair}, found "
                "none (same template, length and places of the operands, other reference); give "
                "more pairs, or use ablation='mean'"
            )
        donors.append(rng.choice(others))
    return torch.tensor(donors)


def given_vectors(means: Activations, names: Iterable[str]) -> dict[str, Tensor]:
    """The user's vectors for some hook names, as [1 1 ...]. Raises the errors of `knock_out`."""
    return {name: _given_vector(means, name) for name in names}


def _given_vector(means: Activations, name: str) -> Float[Tensor, "1 1 *rest"]:
    """One of the user's vectors, as [1 1 ...]."""
    if name not in means:
        raise KeyError(
            f"expected {name} in the means, found {sorted(means)}; "
            "counterfactual_means(model, pairs, components) gives all that is needed"
        )
    value, ndim = means[name], 2 if name.endswith("hook_z") else 1
    if value.ndim == ndim:
        return value[None, None]
    if value.ndim == ndim + 2 and value.shape[:2] == (1, 1):
        return value
    raise ValueError(
        f"expected {name} as one vector per component, "
        f"{'[n_heads d_head]' if ndim == 2 else '[d_model]'}, found {list(value.shape)}; means of "
        "positions fit the prompts they were made from alone: counterfactual_means gives vectors"
    )
