"""Pairs in shards, each run under every variant; memory decides how much goes at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.components import (
    Activations,
    Component,
    Components,
    as_components,
    check_components,
)
from arith_lens.knockout.means import Means, StandIns, narrowed, stand_ins
from arith_lens.knockout.positions import chosen_positions
from arith_lens.knockout.stages import Variant, n_forwards
from arith_lens.knockout.tree_walk import TreeWalk, tree_walk
from arith_lens.knockout.variants import run_variants, walk_agrees
from arith_lens.memory import free_bytes, in_chunks
from arith_lens.model import HookedLike, PlainLayer, plain_layers, require_finite
from arith_lens.pairs import PromptPairs, check_pairs
from arith_lens.runs import ResultSlot

SHARD = 64
"""Pairs that are run together, and kept together in a run."""
TOKENS_AT_ONCE = {"cpu": 2048, "cuda": 32768}
"""Tokens in one forward. On a CPU 6,900 were a quarter slower than 1,700, in one rough run."""


@dataclass(frozen=True, eq=False)
class Shard:
    """Pairs that are run together, without common padding."""

    pairs: PromptPairs
    chosen: Bool[Tensor, "pair pos"]
    values: Callable[[list[str]], Activations]
    """What stands in, by hook name."""
    walk: TreeWalk | None
    """The fast way to run them; None: by hooks."""

    @property
    def n_rows(self) -> int:
        """How many rows a layer computes for each state."""
        return len(self.walk.tree.pos) if self.walk else self.pairs.reference.numel()


@dataclass(frozen=True)
class KnockoutEngine:
    """One model, some pairs, and what stands in: ready for any set of the named components."""

    model: HookedLike
    pairs: PromptPairs
    stand_ins: StandIns
    chosen: Bool[Tensor, "pair pos"]
    layers: Sequence[PlainLayer] | None = None
    """The model's plain layers, where they compute the same; None: it is run with hooks."""

    def __call__(
        self,
        variants: Sequence[Variant],
        *,
        slot: ResultSlot | None = None,
        progress: bool = True,
        **part: Any,
    ) -> Float[Tensor, "what variant pair"]:
        """The `variants.reading` of every variant and pair.

        Args:
            slot: keeps shards as they finish; None: nothing is kept.
            part: which part of the slot's result these variants are.

        Raises:
            FloatingPointError: the model's logits are not finite; no such shard is kept.
        """
        fitting = self._fitting(variants)
        like_lengths = torch.argsort(self.pairs.lengths, stable=True)  # together
        shards = like_lengths.split(SHARD)

        def one(index: int) -> Arrays:
            rows = shards[index]
            chunk = min(len(rows), fitting)
            values, _ = in_chunks(self._compute(variants, rows), len(rows), chunk)
            if not bool(values.isfinite().all()):
                self._refuse(rows[(~values.isfinite()).any(0).any(0)][:1])
            return Arrays({"values": values}, {})

        slot = slot or ResultSlot(None, "", {}, self.pairs)
        parts = slot.shards(one, len(shards), title="knockout", progress=progress, **part)
        sorted_by_length = torch.cat([part.tensors["values"] for part in parts], dim=-1)
        done = torch.empty_like(sorted_by_length)
        done[:, :, like_lengths] = sorted_by_length
        return done

    def forwards(self, variants: Sequence[Variant]) -> float:
        """What the variants cost, in whole forwards of the pairs."""
        return n_forwards(variants, int(self.model.cfg.n_layers), int(self.model.cfg.n_heads))

    def _refuse(self, rows: Tensor) -> NoReturn:
        """Name the layer where the model itself is not finite, or else blame the knockout."""
        batch = narrowed(self.pairs[rows])
        require_finite(self.model, batch.reference, attention_mask=batch.attention_mask)
        raise FloatingPointError(
            "expected finite logits, found NaN or infinity under a knockout; load the model in "
            "float32 or bfloat16 (float16 overflows), and check its weights and the means"
        )

    def _compute(
        self, variants: Sequence[Variant], rows: Tensor
    ) -> Callable[[slice], Float[Tensor, "what variant row"]]:
        device = torch.device(self.model.cfg.device)
        budget = TOKENS_AT_ONCE.get(device.type, TOKENS_AT_ONCE["cuda"])

        def compute(part: slice) -> Tensor:
            shard = self.shard(rows[part])
            # of the whole shard, so that halving it for want of memory halves what is run at once
            n_rows = shard.n_rows * len(rows) / len(shard.pairs)
            states_at_once = max(1, int(budget / n_rows))
            settings = (shard.values, shard.chosen, states_at_once, shard.walk)
            return run_variants(self.model, shard.pairs, variants, *settings)

        return compute

    def shard(self, rows: Int[Tensor, "row"]) -> "Shard":
        """Some of the pairs, ready to be run."""
        pairs = narrowed(self.pairs[rows])
        chosen = self.chosen[rows][:, -pairs.reference.shape[1] :]

        def values(names: list[str]) -> Activations:
            return self.stand_ins.of(self.model, self.pairs, rows, names)

        walk = None
        if self.layers is not None:
            group = rows if self.stand_ins.donor is not None else self.stand_ins.group[rows]
            walk = tree_walk(self.model, self.layers, pairs, chosen, group)
        return Shard(pairs, chosen, values, walk)

    def _fitting(self, variants: Sequence[Variant]) -> int:
        """How many pairs' states, of all variants, half of the free memory holds."""
        cfg = self.model.cfg
        n_states = 2 * (len({frozenset(variant) for variant in variants}) + 1)  # below and above
        bytes_of_one = n_states * int(self.pairs.lengths.max()) * int(cfg.d_model) * 4
        return max(1, int(free_bytes(torch.device(cfg.device)) // 2 // bytes_of_one))


def engine_of(
    model: HookedLike,
    pairs: PromptPairs,
    components: Components,
    *,
    ablation: str,
    positions: str,
    means: Means,
    seed: int,
) -> KnockoutEngine:
    """The engine for knocking out any of `components`. Errors as `knock_out`."""
    checked = checked_components(model, components)
    if not len(pairs):
        raise ValueError("expected pairs to knock out on, found none")
    check_pairs(model, pairs)
    where = chosen_positions(pairs, positions, model.tokenizer)
    standing = stand_ins(model, pairs, checked, ablation=ablation, means=means, seed=seed)
    engine = KnockoutEngine(model, pairs, standing, where)
    layers = plain_layers(model)
    fast = replace(engine, layers=layers)
    return fast if layers is not None and _agrees(fast, frozenset(checked)) else engine


def _agrees(engine: KnockoutEngine, variant: Variant) -> bool:
    """Whether plain layers give a longest and a shortest pair the logits that hooks give them."""
    lengths = engine.pairs.lengths
    shard = engine.shard(torch.stack([lengths.argmax(), lengths.argmin()]).unique())
    if shard.walk is None:
        return False
    settings = (shard.values, shard.chosen, shard.walk)
    return walk_agrees(engine.model, shard.pairs, variant, *settings)


def checked_components(model: HookedLike, components: Components) -> tuple[Component, ...]:
    """The components in order. Raises TypeError, IndexError or ValueError (one given twice)."""
    checked = tuple(as_components(components))
    check_components(checked, int(model.cfg.n_layers), int(model.cfg.n_heads))
    if len({*checked}) != len(checked):
        twice = next(one for one in checked if checked.count(one) > 1)
        raise ValueError(f"expected each component once, found {twice} several times")
    return checked
