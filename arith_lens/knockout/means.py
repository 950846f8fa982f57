"""What replaces the output of a component, and at which tokens.

The replacement is a mean over counterfactual prompts, zero, or the output on another prompt. A mean
is put where it was taken. If pairs have templates, there is one mean per template and position:
prompts of one template, length and layout are aligned. Other pairs share END, and the roles that
they know. So there is one mean for END, one for each known role, and one for all other tokens.
"""

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

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
from arith_lens.options import check_choice
from arith_lens.pairs import PromptPairs, check_pairs


def tokens_that_count(
    pairs: PromptPairs, tokenizer: Any, side: str = "reference"
) -> Bool[Tensor, "pair pos"]:
    """Every token of the references (or of the counterfactuals) but padding and the BOS.

    At BOS heads have an output that is large and the same in every prompt. So BOS is neither part
    of a mean nor knocked out. Where the tokenizer puts no BOS in front, the first token is a token
    like any other.
    """
    bos = getattr(tokenizer, "bos_token_id", None)
    tokens, mask = pairs.sides[side == "counterfactual"]
    return mask & (tokens != (-1 if bos is None else bos))


def chosen_positions(
    pairs: PromptPairs, positions: str, tokenizer: Any
) -> Bool[Tensor, "pair pos"]:
    """The positions at which components are knocked out.

    Raises:
        ValueError: `positions` is neither `all` nor `end`.
    """
    check_choice("positions", positions, POSITIONS)
    if positions == "all":
        return tokens_that_count(pairs, tokenizer)
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


MEANS = ("template", "role", "all_tokens")
Means: TypeAlias = str | Activations | None
"""`template`: one mean per template and position. `role`: one for END, one for each role that the
pairs know, one for all other tokens. `all_tokens`: a single one over all tokens, also put at END.
Or vectors by hook name, from `counterfactual_means`. None: `default_means`."""


def default_means(pairs: PromptPairs) -> str:
    """`template` if pairs have templates and prompts of one length, else `role`."""
    return "role" if pairs.template is None or pairs.counterparts is not None else "template"


@dataclass(frozen=True, eq=False)
class MeanVectors(Mapping[str, Tensor]):
    """One mean per component by hook name, and the tokens it is taken over and may be put at."""

    vectors: Activations
    positions: str
    """`all` tokens but BOS and padding, or `end`."""

    def __getitem__(self, name: str) -> Tensor:
        return self.vectors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.vectors)

    def __len__(self) -> int:
        return len(self.vectors)


POSITIONS = ("all", "end")
ABLATIONS = ("mean", "zero", "resample", "counterfactual")
"""What replaces outputs: a mean over counterfactual prompts, nothing, the output on the
counterfactual of another aligned pair, or on the pair's own counterfactual."""
BATCH = 64


@dataclass(frozen=True)
class Replacements:
    """The replacements of the outputs of knocked-out components, for any of the pairs."""

    kind: str
    """One of `MEANS`, `given`, `none` (nothing is out), or the ablation."""
    values: Activations
    """By hook name [place ...]; for means alone."""
    place: Int[Tensor, "pair pos"]
    """The row of `values` for each token."""
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
        place = self.place[rows][:, -int(pairs.lengths[rows].max()) :]
        return {name: _put(self.values[name], place) for name in names}

    def groups(self, rows: Int[Tensor, " row"]) -> Int[Tensor, " row"]:
        """For each of some pairs, a number; pairs with one number have the same replacements."""
        if self.donor is not None:
            return rows
        return self.place[rows].unique(dim=0, return_inverse=True)[1]


def _put(
    values: Float[Tensor, "place ..."], place: Int[Tensor, "row pos"]
) -> Float[Tensor, "row_or_1 pos_or_1 *rest"]:
    """Each token's row of the values."""
    return values[None] if len(values) == 1 else values[place.to(values.device)]


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
    positions: str,
    means: Means,
    seed: int,
) -> Replacements:
    """The replacements for some components. Raises the errors of `knock_out`."""
    check_choice("ablation", ablation, ABLATIONS)
    if ablation != "mean" and means is not None:
        raise ValueError(f"expected means= with ablation='mean' alone, found {ablation!r}")
    names = hook_names(components)
    alone = torch.zeros_like(pairs.reference)
    if not names:
        return Replacements("none", {}, alone)
    if ablation == "zero":
        return Replacements("zero", {}, alone)
    if pairs.counterparts is not None and ablation != "mean":
        raise ValueError(
            "expected ablation='mean' or 'zero' of prompts of unequal lengths, found "
            f"{ablation!r}, whose outputs stand at tokens of another prompt; give one of these"
        )
    if ablation == "resample":
        return Replacements("resample", {}, alone, _donors(pairs, seed))
    if ablation == "counterfactual":
        return Replacements("counterfactual", {}, alone, torch.arange(len(pairs)))
    if isinstance(means, Mapping):
        vectors = given_vectors(means, names, positions)
        return Replacements("given", {name: one[0] for name, one in vectors.items()}, alone)
    kind = means or default_means(pairs)
    check_choice("means (or vectors by hook name)", kind, MEANS)
    if pairs.counterparts is not None and (kind == "template" or positions == "all"):
        _require_places(pairs, kind)
    place = _places(pairs, kind)
    return Replacements(kind, _means(model, pairs, names, place), place)


def _places(pairs: PromptPairs, kind: str) -> Int[Tensor, "pair pos"]:
    """For each token, the number of its place. Tokens of one place share a mean."""
    place = torch.zeros_like(pairs.reference)
    if kind == "all_tokens":
        return place
    if kind == "template":
        groups, width = aligned_groups(pairs), place.shape[1]
        place = groups[:, None] * width + torch.arange(width)
    else:
        for number, role in enumerate(pairs.spans or (), start=1):
            place = place.masked_fill(pairs.role_mask(role), number)
        place[:, -1] = 1 + len(pairs.roles)  # END, which every prompt has
    _warn_of_single_prompts(place[:, -1], kind)
    return place


def _require_places(pairs: PromptPairs, kind: str) -> None:
    """Raise ValueError if pairs of unequal lengths have no mean for some of their places."""
    if kind == "template":
        raise ValueError(
            "expected means='role' or 'all_tokens' of prompts of unequal lengths, found "
            "'template'; give one of these"
        )
    known = pairs.counterparts
    assert known is not None
    for role in (pairs.spans or {}) if kind == "role" else ():
        at = pairs.role_mask(role)
        if bool(at.any()) and not bool((at & (known >= 0)).any()):
            raise ValueError(
                f"expected the span {role!r} in some counterfactual, since its mean replaces "
                f"outputs at its tokens, found none; name it there, or give positions='end'"
            )


def counterfactual_means(
    model: HookedLike,
    pairs: PromptPairs,
    components: Components | None = None,
    *,
    positions: str = "all",
) -> MeanVectors:
    """One vector per component: its mean output over the counterfactual prompts.

    Use the vectors to knock out components on other text, at the same positions:
    `knock_out(..., means=)`, `knockout_hooks`, `ablate_heads`.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the pairs whose counterfactuals are averaged.
        components: heads, MLPs and neurons; None: all heads and MLPs.
        positions: `"all"`: over all tokens of all prompts but BOS and padding, with equal weight;
            `"end"`: over END alone. What a component writes at END can be far from what it writes
            elsewhere.

    Returns:
        By hook name, [n_heads d_head], [d_mlp] and [d_model], for the layers of `components`.

    Raises:
        ValueError: `positions` is neither `all` nor `end`.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, "addition", n=9)
        >>> means = al.counterfactual_means(model, pairs, ["5.5"], positions="end")
        >>> hooks = al.knockout_hooks(model, ["5.5"], means, positions="end")
    """
    if components is None:
        components = every_component(int(model.cfg.n_layers), int(model.cfg.n_heads))
    check_pairs(model, pairs, unequal=True)
    check_choice("positions", positions, POSITIONS)
    names = hook_names(as_components(components, neurons=True))
    place = torch.zeros_like(pairs.reference)
    place[:, -1] = int(positions == "end")
    means = _means(model, pairs, names, place)
    return MeanVectors({name: value[-1] for name, value in means.items()}, positions)


def _means(
    model: HookedLike, pairs: PromptPairs, names: list[str], place: Int[Tensor, "pair pos"]
) -> dict[str, Tensor]:
    """By hook name [place ...], over the tokens that count and END; 0 if a place has no token.

    A token of a counterfactual of another length has the place of the token that it stands for.
    """
    counted = tokens_that_count(pairs, model.tokenizer, "counterfactual")
    counted[:, -1] = True  # also where END is BOS
    if pairs.counterparts is not None:
        row, column = (pairs.counterparts >= 0).nonzero(as_tuple=True)
        own = torch.zeros_like(pairs.counterfactual)
        own[row, pairs.counterparts[row, column]] = place[row, column]
        place = own
    n_places = int(place.max()) + 1
    totals: dict[str, Tensor] = {}
    for rows in torch.arange(len(pairs)).split(BATCH):
        batch = pairs[rows]
        recorded = record(model, batch.counterfactual, names, attention_mask=batch.sides[1][1])
        for name, value in recorded.items():
            of_batch = counted[rows].to(value.device)
            if name not in totals:
                totals[name] = value.new_zeros(n_places, *value.shape[2:], dtype=torch.float32)
            at = place[rows].to(value.device)[of_batch]
            totals[name].index_add_(0, at, value[of_batch].float())
    n_tokens = place[counted].bincount(minlength=n_places).clamp(min=1)
    return {
        name: total / n_tokens.to(total.device).reshape(-1, *[1] * (total.ndim - 1))
        for name, total in totals.items()
    }


def _warn_of_single_prompts(end: Int[Tensor, " pair"], kind: str) -> None:
    """Warn if a mean is made of a single prompt. Prompts with one number at END share means."""
    sizes = end.unique(return_counts=True)[1]
    if int(sizes.min()) == 1:
        cure = ", or means='role'" if kind == "template" and len(end) > 1 else ""
        warn_caller(
            "expected two prompts or more in all groups of aligned prompts (template, length, "
            f"places of named tokens), found one in {int((sizes == 1).sum())} of {len(sizes)}, "
            f"whose 'mean' is its own counterfactual output; give more pairs{cure}"
        )


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


def given_vectors(means: Activations, names: Iterable[str], positions: str) -> dict[str, Tensor]:
    """The user's vectors for some hook names, as [1 1 ...]. Raises the errors of `knock_out`."""
    if isinstance(means, MeanVectors) and means.positions != positions:
        raise ValueError(
            f"expected means over the positions {positions!r} where they are put, found means over "
            f"{means.positions!r}; counterfactual_means(..., positions={positions!r}) gives them"
        )
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
