"""Where heads attend: attention from END, summed by role, and the patterns of single prompts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.components import Head, Heads, as_heads, check_components, pattern_name
from arith_lens.effects import Effects
from arith_lens.model import HookedLike, record
from arith_lens.pairs import PromptPairs, Role, check_pairs, encode, pieces, tokenizer_of
from arith_lens.views import View, attention_heads

if TYPE_CHECKING:
    from pandas import DataFrame


ATTENTION_ROLES = tuple(
    str(role)
    for role in (Role.BOS, Role.OPERAND_A, Role.OPERATOR, Role.OPERAND_B, Role.OTHER, Role.END)
)
"""The roles in the order of a sum: BOS, A, the operator, B, other words, END itself. Examples, if
there are any, come after BOS."""

BLANK = "blank before B"
"""A token without letters right before B. Tokenizers that split words put one before a number."""

Masks = Mapping[str, Bool[Tensor, "pair pos"]]
"""Which tokens are of each kind."""

Groups = Mapping[str, Bool[Tensor, "pair pos"] | Sequence[int]]
"""Groups of tokens by name: masks, or positions in each prompt."""
REST = "the rest"
"""All tokens that no group has."""

BATCH = 64


def attention_by_role(
    model: HookedLike,
    pairs: PromptPairs,
    heads: Heads,
    *,
    blank: bool = False,
    groups: Groups | None = None,
) -> Effects:
    """The attention of each head from END to the tokens of each role (the paper, section 5.2).

    The reference prompts run. A role's weight is the sum over its tokens; nothing is renormalised.
    The weights of all roles, with BOS, sum to 1 for each head. Only with attention sinks (gpt-oss)
    they sum to less: a head's softmax then has one more score, and what it takes is on no token. A
    large weight on a token does not show that the head uses it: path patching shows that.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts, with the roles of their tokens.
        heads: the heads to look at.
        blank: whether the blank token before B is a role of its own, `BLANK`, and not one of the
            other words.
        groups: groups of tokens of your own in place of roles, by name (not in the paper): a mask
            [pair pos], or a list of positions, counted in each prompt from its first token (0) or
            from END (-1). All other tokens are the group `the rest`.

    Returns:
        Weights between 0 and 1, [head role pair]; with groups, [head group pair].

    Raises:
        ValueError: the pairs have no roles, or no head is given; or groups share a token, or are
            neither masks nor positions.
        IndexError: the model does not have a head.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols", counterfactual="operands")
        >>> looks = al.attention_by_role(model, pairs, ["5.5"])
        >>> looks.per_pair.shape                   # [head role pair]
        torch.Size([1, 6, 6])
    """
    if groups is not None:
        masks = _group_masks(pairs, groups)
        return attention_to(model, pairs, heads, lambda _: masks, axis="group")
    kinds = partial(_roles_and_blank, tokenizer_of(model)) if blank else _roles
    return attention_to(model, pairs, heads, kinds, axis="role")


@torch.no_grad()
def attention_to(
    model: HookedLike,
    pairs: PromptPairs,
    heads: Heads,
    kinds: Callable[[PromptPairs], Masks],
    *,
    axis: str,
) -> Effects:
    """The attention of each head from END to your own kinds of tokens.

    Each token should be of exactly one kind. Only END's rows are kept, so a full pattern is in
    memory for one layer at a time.

    Args:
        heads: the heads to look at.
        kinds: returns, for the pairs, a mask of the tokens of each kind, by name.
        axis: the name of the axis of kinds.
    """
    chosen = as_heads(heads)
    if not chosen:
        raise ValueError("expected heads to look at, found none; see key_heads(effects.heads)")
    check_pairs(model, pairs)
    check_components(chosen, int(model.cfg.n_layers), int(model.cfg.n_heads))
    names = sorted({pattern_name(head.layer) for head in chosen})
    masks = kinds(pairs)
    columns = torch.stack([*masks.values()])
    parts = []
    for rows in torch.arange(len(pairs)).split(BATCH):
        batch = pairs[rows]
        mask = batch.attention_mask
        recorded = record(model, batch.reference, names, attention_mask=mask, positions=-1)
        of_heads = [recorded[pattern_name(head.layer)][:, head.index, 0] for head in chosen]
        weights = torch.stack(of_heads).float()
        of_kinds = columns[:, rows].to(weights)
        sums = einsum(weights, of_kinds, "head pair key, kind pair key -> head kind pair")
        parts.append(sums.cpu())
    return Effects(
        per_pair=torch.cat(parts, dim=-1),
        axes=("head", axis),
        metric="attention weight from END",
        **pairs.units,
        labels={"head": tuple(map(str, chosen)), axis: tuple(masks)},
    )


def _group_masks(pairs: PromptPairs, groups: Groups) -> Masks:
    """The masks of groups, and of all tokens that no group has."""
    if not groups or REST in groups:
        raise ValueError(
            f"expected groups of tokens by name, none called {REST!r}, found {[*groups]}; that "
            "name is for all other tokens"
        )
    masks = {name: _mask_of(pairs, name, group) for name, group in groups.items()}
    counts = torch.stack([*masks.values()]).sum(0)
    if bool((counts > 1).any()):
        pair, column = (counts > 1).nonzero()[0].tolist()
        names = [name for name, mask in masks.items() if mask[pair, column]]
        raise ValueError(
            f"expected each token in one group, found {' and '.join(names)} at column {column} of "
            f"pair {pair}; take it out of one of them"
        )
    return {**masks, REST: pairs.attention_mask & (counts == 0)}


def _mask_of(
    pairs: PromptPairs, name: str, group: Bool[Tensor, "pair pos"] | Sequence[int]
) -> Bool[Tensor, "pair pos"]:
    """A group as a mask, without padding."""
    mask = pairs.attention_mask
    if isinstance(group, Tensor):
        if group.dtype != torch.bool or group.shape != mask.shape:
            raise ValueError(
                f"expected the group {name!r} as a mask of {list(mask.shape)} booleans, found "
                f"{list(group.shape)} of {group.dtype}; or give a list of positions"
            )
        return group & mask
    chosen = torch.zeros_like(mask)
    for position in group:
        chosen |= pairs.position_mask(position)
    return chosen


def _roles(pairs: PromptPairs) -> Masks:
    names = list(ATTENTION_ROLES)
    if pairs.examples is not None:
        names.insert(1, str(Role.EXAMPLES))
    own = [str(name) for name in pairs.roles if name not in [*Role]]
    masks = {name: pairs.role_mask(name) for name in [*names, *own]}
    return {name: mask for name, mask in masks.items() if not own or bool(mask.any())}


def _roles_and_blank(tokenizer: Any, pairs: PromptPairs) -> Masks:
    """The roles, with the blank token before B taken out of the other words."""
    masks = _roles(pairs)
    texts = pieces(tokenizer, pairs.reference.tolist())
    blanks = [token for token, text in texts.items() if not text.strip(" ▁Ġ")]
    is_blank = torch.isin(pairs.reference, torch.tensor(blanks, dtype=pairs.reference.dtype))
    before_b = torch.zeros_like(masks[Role.OPERAND_B])
    before_b[:, :-1] = masks[Role.OPERAND_B][:, 1:]
    other = masks[Role.OTHER]
    blank = other & before_b & is_blank
    parts: dict[str, Bool[Tensor, "pair pos"]] = {}
    for name, mask in masks.items():
        if name == Role.OPERAND_B:
            parts[BLANK] = blank
        parts[name] = mask & ~blank
    return parts


MAJORITY = 0.5


def kinds_of(looks: Effects) -> dict[str, str]:
    """Each head's kind: "operand", "operator" or "other".

    The paper sorts its heads by eye. The rule here uses the mean weight on everything but BOS. If
    at least half of it is on A and B together, the head is an operand head. If at least half of it
    is on the operator, it is an operator head. Else it is neither. BOS is left out because idle
    heads attend to it.

    Args:
        looks: the result of `attention_by_role`.

    Raises:
        ValueError: the effects are of another kind.
    """
    heads, roles = _axes(looks)
    mean = looks.mean()
    weight = {role: mean[:, roles.index(role)] for role in roles}
    free = sum(weight[role] for role in roles if role != Role.BOS)
    shares: Any = {
        "operand": (weight[Role.OPERAND_A] + weight[Role.OPERAND_B]) / free,
        "operator": weight[Role.OPERATOR] / free,
    }
    return {
        head: next((kind for kind in shares if float(shares[kind][i]) >= MAJORITY), "other")
        for i, head in enumerate(heads)
    }


def most_looked_at(looks: Effects) -> Effects:
    """1 for the role with the largest weight in a pair, else 0 (the characteristic of section 4.2).

    BOS is a role like any other here. The mean is the share of pairs in which a role is first.
    """
    _axes(looks)
    best = looks.per_pair.argmax(1, keepdim=True)
    first = torch.zeros_like(looks.per_pair).scatter(1, best, 1.0)
    return Effects(
        first,
        looks.axes,
        "share of prompts in which this role has the largest weight",
        **looks.units,
        labels=looks.labels,
    )


def _axes(looks: Effects) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if looks.axes != ("head", "role") or looks.labels is None:
        raise ValueError(f"expected the result of attention_by_role, found {looks!r}")
    return looks.labels["head"], looks.labels["role"]


KIND = "attention_patterns"


@dataclass(frozen=True, eq=False)
class Patterns:
    """The attention patterns of some heads on some prompts. Prompts may differ in length."""

    prompts: tuple[str, ...]
    heads: tuple[str, ...]
    tokens: tuple[tuple[str, ...], ...]
    """The tokens of each prompt, as the tokenizer writes them."""
    weights: tuple[Float[Tensor, "head _ _"], ...]
    """For each prompt, the weights [head query key]; rows sum to 1."""

    def view(self, index: int) -> View:
        """One prompt's patterns as circuitsvis draws them.

        Raises:
            ValueError: there are more than 64 heads.
        """
        return attention_heads(
            self.weights[index].numpy(), self.tokens[index], self.heads, title=self.prompts[index]
        )

    def to_arrays(self) -> Arrays:
        """The arrays for a file; `from_arrays` reads them."""
        tensors = {f"weights.{i}": weight for i, weight in enumerate(self.weights)}
        header = {
            "kind": KIND,
            "prompts": list(self.prompts),
            "heads": list(self.heads),
            "tokens": [list(row) for row in self.tokens],
        }
        return Arrays(tensors, header)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Patterns":
        """Read `to_arrays` back. Raises ValueError for another kind of result."""
        arrays.require(KIND)
        header = arrays.header
        return cls(
            prompts=tuple(header["prompts"]),
            heads=tuple(header["heads"]),
            tokens=tuple(tuple(row) for row in header["tokens"]),
            weights=tuple(arrays.tensors[f"weights.{i}"] for i in range(len(header["prompts"]))),
        )

    def to_dataframe(self) -> "DataFrame":
        """One row per prompt, head and token, with the weight from END."""
        from pandas import DataFrame

        names = ["prompt", "head", "layer", "index", "position", "token", "from_END"]
        rows = [
            (prompt, head, *astuple(Head.parse(head)), at, token, float(weight))
            for prompt, tokens, weights in zip(self.prompts, self.tokens, self.weights, strict=True)
            for head, row in zip(self.heads, weights[:, -1], strict=True)
            for at, (token, weight) in enumerate(zip(tokens, row, strict=True))
        ]
        return DataFrame(rows, columns=names)


def attention_view(model: HookedLike, prompt: str, heads: Heads) -> View:
    """A clickable view of the patterns of some heads on one prompt.

    It shows itself in a notebook; `.save(path)` writes an HTML file.

    Raises:
        ValueError: as in `patterns_of`, or there are more than 64 heads.
        IndexError: as in `patterns_of`.
    """
    return patterns_of(model, prompt, heads).view(0)


@torch.no_grad()
def patterns_of(model: HookedLike, prompts: Sequence[str] | str, heads: Heads) -> Patterns:
    """The full attention patterns of some heads on a few prompts, one prompt at a time.

    Args:
        model: HookedModel or TransformerBridge.
        prompts: one prompt or several.
        heads: the heads to look at.

    Raises:
        ValueError: there is no prompt, an empty prompt, or no head.
        IndexError: the model does not have a head.
    """
    texts = (prompts,) if isinstance(prompts, str) else tuple(prompts)
    chosen = as_heads(heads)
    if not texts or not all(texts) or not chosen:
        raise ValueError(
            f"expected prompts with text and heads, found {len(texts)} prompts, "
            f"{sum(not text for text in texts)} of them empty, and {len(chosen)} heads"
        )
    check_components(chosen, int(model.cfg.n_layers), int(model.cfg.n_heads))
    tokenizer = tokenizer_of(model)
    rows = [list(prompt.ids) for prompt in encode(tokenizer, texts)]
    texts_of_tokens = pieces(tokenizer, rows)
    names = sorted({pattern_name(head.layer) for head in chosen})
    weights = []
    for row in rows:
        tokens = torch.tensor([row])
        recorded = record(model, tokens, names, attention_mask=torch.ones_like(tokens))
        layers = [recorded[pattern_name(head.layer)][0, head.index] for head in chosen]
        weights.append(torch.stack(layers).float().cpu())
    return Patterns(
        prompts=texts,
        heads=tuple(map(str, chosen)),
        tokens=tuple(tuple(texts_of_tokens[i] for i in row) for row in rows),
        weights=tuple(weights),
    )
