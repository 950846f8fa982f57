"""Prompts as a tree: tokens with the same prefix are one node, and attention over such nodes.

What a layer puts out at a token depends on the token and those before it alone. The prompts of one
template begin alike, so that a shard of them has about a third as many nodes as tokens.
"""

from dataclasses import dataclass

import torch
from einops import rearrange, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Branches:
    """The prompts whose own nodes begin at one column; before it they share another's."""

    prompts: Int[Tensor, "branch"]
    start: int
    nodes: slice
    """Their nodes, prompt after prompt, from column `start` to the last."""


@dataclass(frozen=True, eq=False)
class PrefixTree:
    """The nodes of a batch of prompts that are padded on the left."""

    node: Int[Tensor, "pair pos"]
    """The node of each token; at padding some node or other."""
    prompt: Int[Tensor, "node"]
    """For each node, a prompt that it belongs to."""
    pos: Int[Tensor, "node"]
    """For each node, its column."""
    branches: tuple[Branches, ...]

    @property
    def ends(self) -> Int[Tensor, "pair"]:
        """The node of each prompt's END."""
        return self.node[:, -1]

    def to(self, device: torch.device) -> "PrefixTree":
        """The same tree, its tensors on `device`."""
        branches = tuple(
            Branches(one.prompts.to(device), one.start, one.nodes) for one in self.branches
        )
        node, prompt, pos = (part.to(device) for part in (self.node, self.prompt, self.pos))
        return PrefixTree(node, prompt, pos, branches)


def prefix_tree(
    tokens: Int[Tensor, "pair pos"], mask: Bool[Tensor, "pair pos"], group: Int[Tensor, "pair"]
) -> PrefixTree:
    """The tree of the prompts. Only prompts of one group and one length share nodes.

    Args:
        mask: False at padding, which is on the left
        group: prompts that are treated alike, for instance with the same means
    """
    width = tokens.shape[1]
    first = (width - mask.sum(1)).tolist()
    numbers: dict[tuple[int, int], int] = {}
    roots: dict[tuple[int, int], int] = {}
    paths: list[list[int]] = []
    starts: dict[int, list[int]] = {}  # column: the prompts whose own nodes begin there
    for prompt, (row, label) in enumerate(zip(tokens.tolist(), group.tolist(), strict=True)):
        parent = roots.setdefault((first[prompt], label), -1 - len(roots))
        path, n_known = [], len(numbers)
        for token in row[first[prompt] :]:
            parent = numbers.setdefault((parent, token), len(numbers))
            path.append(parent)
        paths.append(path)
        if n_own := len(numbers) - n_known:
            starts.setdefault(width - n_own, []).append(prompt)
    return _in_branches(paths, starts, width)


def _in_branches(paths: list[list[int]], starts: dict[int, list[int]], width: int) -> PrefixTree:
    """Number the nodes anew, so that those of each branch are together."""
    branches, order, n_nodes = [], [], 0
    prompt_of, pos_of = [], []
    for start, prompts in sorted(starts.items()):
        n_own = width - start
        nodes = slice(n_nodes, n_nodes + n_own * len(prompts))
        branches.append(Branches(torch.tensor(prompts), start, nodes))
        n_nodes = nodes.stop
        for prompt in prompts:
            order += paths[prompt][-n_own:]
            prompt_of += [prompt] * n_own
            pos_of += range(start, width)
    number = torch.empty(n_nodes, dtype=torch.long)
    number[torch.tensor(order)] = torch.arange(n_nodes)
    node = torch.stack([number[[path[0]] * (width - len(path)) + path] for path in paths])
    return PrefixTree(node, torch.tensor(prompt_of), torch.tensor(pos_of), tuple(branches))


@dataclass(frozen=True, eq=False)
class TreeAttention:
    """Attention of every node to its prefix."""

    tree: PrefixTree
    mask: Float[Tensor, "rows 1 pos pos"]
    """What a layer adds to the scores of the prompts' tokens; `rows` may be 1."""

    def __call__(
        self,
        query: Float[Tensor, "state n_heads node d_head"],
        key: Float[Tensor, "state n_kv node d_head"],
        value: Float[Tensor, "state n_kv node d_head"],
        *,
        scaling: float,
        softcap: float | None = None,
    ) -> Float[Tensor, "state node n_heads d_head"]:
        n_heads, n_kv, parts = query.shape[1], key.shape[1], []
        for branch in self.tree.branches:
            n_rows = len(branch.prompts)
            known = self.tree.node[branch.prompts].flatten()
            keys, values = (
                rearrange(
                    x.index_select(2, known),
                    "state kv (row pos) d_head -> state kv row pos d_head",
                    row=n_rows,
                )
                for x in (key, value)
            )
            rows = rearrange(  # queries that share keys: one matrix
                query[:, :, branch.nodes],
                "state (kv group) (row node) d_head -> state kv row (group node) d_head",
                kv=n_kv,
                row=n_rows,
            )
            scores = _capped(rows @ keys.mT, scaling, softcap)
            mask = self.mask.expand(len(self.tree.node), -1, -1, -1)[branch.prompts]
            spread = scores.unflatten(3, (n_heads // n_kv, -1))
            spread += mask[:, :, branch.start :]
            z = rearrange(
                _softmax(scores) @ values,
                "state kv row (group node) d_head -> state (row node) (kv group) d_head",
                group=n_heads // n_kv,
            )
            parts.append(z)
        return torch.cat(parts, dim=1)


@dataclass(frozen=True, eq=False)
class EndAttention:
    """Attention of END alone, with keys and values of the tokens before it that are known."""

    tree: PrefixTree
    mask: Float[Tensor, "rows 1 pos pos"]
    keys: Float[Tensor, "known n_kv node d_head"]
    """`known` is 1 where all states share them, else one of each state."""
    values: Float[Tensor, "known n_kv node d_head"]

    def __call__(
        self,
        query: Float[Tensor, "state n_heads pair d_head"],
        key: Float[Tensor, "state n_kv pair d_head"],
        value: Float[Tensor, "state n_kv pair d_head"],
        *,
        scaling: float,
        softcap: float | None = None,
    ) -> Float[Tensor, "state pair n_heads d_head"]:
        n_known, n_kv, n_pairs = len(self.keys), key.shape[1], key.shape[2]
        n_group = query.shape[1] // n_kv
        before = self.tree.node[:, :-1].flatten()
        keys, values = (
            rearrange(
                x.index_select(2, before),
                "known kv (pair pos) d_head -> known kv pair pos d_head",
                pair=n_pairs,
            )
            for x in (self.keys, self.values)
        )
        rows = rearrange(  # all that reads the same keys is one matrix
            query,
            "(known state) (kv group) pair d_head -> known kv pair (state group) d_head",
            known=n_known,
            kv=n_kv,
        )
        own, own_value = (
            repeat(
                x,
                "(known state) kv pair d_head -> known kv pair (state group) d_head",
                known=n_known,
                group=n_group,
            )
            for x in (key, value)
        )
        scores = torch.cat([rows @ keys.mT, (rows * own).sum(-1, keepdim=True)], dim=-1)
        mask = self.mask[:, :, -1:].expand(n_pairs, -1, -1, -1)[:, 0]
        weights = _softmax(_capped(scores, scaling, softcap) + mask)
        z = weights[..., :-1] @ values + weights[..., -1:] * own_value
        return rearrange(
            z,
            "known kv pair (state group) d_head -> (known state) pair (kv group) d_head",
            group=n_group,
        )


def _capped(scores: Tensor, scaling: float, softcap: float | None) -> Tensor:
    scores *= scaling
    return scores if softcap is None else (scores / softcap).tanh() * softcap


def _softmax(scores: Tensor) -> Tensor:
    return scores.softmax(-1, dtype=torch.float32).to(scores.dtype)
