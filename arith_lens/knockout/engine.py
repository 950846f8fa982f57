"""The knockout engine: it runs the pairs in shards, and each shard under every variant."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.components import (
    Activations,
    Component,
    Components,
    NamedHook,
    Neuron,
    as_components,
    check_components,
    mlp_out_name,
    neurons_name,
    z_name,
)
from arith_lens.knockout.means import Replacements, chosen_positions, narrowed, replacements
from arith_lens.knockout.settings import Knockout
from arith_lens.knockout.tree_walk import (
    Stage,
    TreeForward,
    Variant,
    n_forwards,
    stages_of,
    tree_forward,
)
from arith_lens.memory import free_bytes, in_chunks
from arith_lens.metrics import logit_tolerance
from arith_lens.model import (
    HookedLike,
    PlainLayer,
    check_neurons,
    n_neurons,
    plain_layers,
    require_finite,
    run_layers,
    state_digest,
)
from arith_lens.pairs import NO_ANSWER, PromptPairs, check_pairs
from arith_lens.runs import ResultSlot

N_TOP = 5


@dataclass(frozen=True, eq=False)
class StackedEdit:
    """A hook for a stack of states. Each state has other components out."""

    where: Bool[Tensor, "state pair pos *slot"]
    """What is replaced in each state."""
    value: Float[Tensor, "value_pair value_pos *rest"]
    """The replacement, for every pair."""

    def __repr__(self) -> str:
        """Without tensors: TransformerLens writes every hook that it adds into a string."""
        return f"StackedEdit({len(self.where)} states)"

    def __call__(
        self, activation: Float[Tensor, "state_pair pos *rest"], hook: Any = None
    ) -> Float[Tensor, "state_pair pos *rest"]:
        stacked = activation.unflatten(0, self.where.shape[:2])
        where, value = self.where.to(activation.device), self.value.to(activation)
        return torch.where(where, value, stacked).flatten(0, 1)


@dataclass(frozen=True, eq=False)
class Batch:
    """Pairs that run together, without common padding."""

    pairs: PromptPairs
    chosen: Bool[Tensor, "pair pos"]
    """The positions at which components are replaced."""
    values: Callable[[list[str]], Activations]
    """A function that returns the replacements by hook name."""
    fast: TreeForward | None
    """The fast way to run the pairs; None: hooks."""

    @property
    def n_rows(self) -> int:
        """The number of rows that a layer computes for each state."""
        return len(self.fast.tree.pos) if self.fast else self.pairs.reference.numel()


@torch.no_grad()
def run_variants(
    model: HookedLike,
    batch: Batch,
    variants: Sequence[Variant],
    states_at_once: int,
    read: Callable[[Float[Tensor, "state pair d_vocab"]], Tensor],
) -> Float[Tensor, "what variant pair"]:
    """What is read of the model's logits at END under each variant.

    Args:
        batch: the pairs, which run at once.
        variants: the sets of components that are knocked out.
        states_at_once: the number of states of all pairs that go through the model together.
    """
    stages, ending = stages_of(variants, int(model.cfg.n_layers), int(model.cfg.n_heads))
    if batch.fast is not None:
        return batch.fast.run(stages, batch.values, states_at_once, read)[:, ending]
    pairs, stream = batch.pairs, torch.empty(0)
    for stage in stages:
        last = stage is stages[-1]
        replacements = batch.values(stage.hook_names)
        done = []
        for states in torch.arange(len(stage.parent)).split(states_at_once):
            n_states = len(states)
            below = None
            if stage.start > 0:
                below = stream[stage.parent[states].to(stream.device)].flatten(0, 1)
            after = run_layers(
                model,
                pairs.reference.repeat(n_states, 1),
                start=stage.start,
                stop=None if last else stage.stop,
                stream=below,
                attention_mask=pairs.attention_mask.repeat(n_states, 1),
                fwd_hooks=_hooks(model, stage, states, replacements, batch.chosen),
            ).unflatten(0, (n_states, len(pairs)))
            done.append(read(after[:, :, -1]) if last else after)
        stream = torch.cat(done, dim=1 if last else 0)
    return stream[:, ending]


def fast_agrees(model: HookedLike, batch: Batch, variant: Variant, fast: TreeForward) -> bool:
    """Whether the fast forward of a batch gives the same logits as hooks."""

    def of_vocabulary(logits: Float[Tensor, "state pair d_vocab"]) -> Tensor:
        return logits.float().movedim(-1, 0)

    computed, expected = (
        run_variants(model, replace(batch, fast=forward), [variant], 1, of_vocabulary)
        for forward in (fast, None)
    )
    allowed = logit_tolerance(fast.inputs.stream.dtype)
    return float((computed - expected).abs().max()) <= allowed * float(expected.abs().max())


def reading(
    logits: Float[Tensor, "state pair d_vocab"],
    rows: Int[Tensor, " pair"],
    *,
    answer: Int[Tensor, " all_pairs"],
) -> Float[Tensor, "what state pair"]:
    """Whether the most likely token is C, p(C) over the vocabulary, and the most likely tokens.

    The values are on the CPU in double precision, which holds token ids exactly.
    """
    target = answer[rows].to(logits.device).expand(logits.shape[:2])[..., None]
    logprob = logits.float().log_softmax(-1)
    top = logprob.topk(min(N_TOP, logits.shape[-1]), dim=-1).indices
    correct = logprob.argmax(-1, keepdim=True) == target
    parts = [correct, logprob.gather(-1, target).exp(), top]
    return torch.cat([part.double() for part in parts], dim=-1).movedim(-1, 0).cpu()


def _hooks(
    model: HookedLike,
    stage: Stage,
    states: Int[Tensor, " state"],
    values: Activations,
    chosen: Bool[Tensor, "pair pos"],
) -> list[NamedHook]:
    """The hooks of one stage for a stack of states. Each state has its own components out."""

    def of_neurons() -> Bool[Tensor, "state d_mlp"]:
        return stage.neurons_out(states, n_neurons(model, stage.start))

    where = chosen[None, :, :, None]
    parts = {
        z_name(stage.start): lambda: (where & stage.heads[states][:, None, None])[..., None],
        neurons_name(stage.start): lambda: where & of_neurons()[:, None, None],
        mlp_out_name(stage.start): lambda: where & stage.mlp[states][:, None, None],
    }
    return [(name, StackedEdit(parts[name](), value)) for name, value in values.items()]


SHARD = 64
"""The number of pairs that run together and are stored together."""
TOKENS_AT_ONCE = {"cpu": 2048, "cuda": 32768}
"""The number of tokens in one forward. On a CPU, 6,900 were a quarter slower than 1,700 in one
rough measurement."""


@dataclass(frozen=True)
class KnockoutEngine:
    """One model, some pairs and their replacements. It runs any set of the named components."""

    model: HookedLike
    pairs: PromptPairs
    replacements: Replacements
    chosen: Bool[Tensor, "pair pos"]
    """The positions at which components are replaced."""
    layers: Sequence[PlainLayer] | None = None
    """The model's plain layers, if they compute the same as hooks; None: hooks are used."""

    def __call__(
        self,
        variants: Sequence[Variant],
        *,
        slot: ResultSlot | None = None,
        progress: bool = True,
        read: Callable[[Tensor, Tensor], Tensor] | None = None,
        **part: Any,
    ) -> Float[Tensor, "what variant pair"]:
        """What is read of every variant and pair.

        Args:
            variants: the sets of components that are knocked out.
            slot: stores finished shards; None: nothing is stored.
            read: from the logits [state pair d_vocab] and the numbers of the pairs, what is read
                [what state pair]; None: `reading`.
            part: names the part of the slot's result that these variants are.

        Raises:
            FloatingPointError: the model's logits are not finite; such a shard is not stored.
        """
        fitting = self._fitting(variants)
        like_lengths = torch.argsort(self.pairs.lengths, stable=True)  # together
        shards = like_lengths.split(SHARD)

        read = read or partial(reading, answer=self.pairs.answer)

        def values_of_shard(index: int) -> Arrays:
            rows = shards[index]
            compute = partial(self._compute, variants, rows, read)
            values, _ = in_chunks(compute, len(rows), min(len(rows), fitting))
            if not bool(values.isfinite().all()):
                self._refuse(rows[(~values.isfinite()).any(0).any(0)][:1])
            return Arrays({"values": values}, {})

        slot = slot or ResultSlot(None, "", {}, self.pairs)
        parts = slot.shards(
            values_of_shard, len(shards), title="knockout", progress=progress, **part
        )
        sorted_by_length = torch.cat([part.tensors["values"] for part in parts], dim=-1)
        done = torch.empty_like(sorted_by_length)
        done[:, :, like_lengths] = sorted_by_length
        return done

    @property
    def other_answers(self) -> Int[Tensor, " pair"]:
        """C' of the counterfactual whose outputs replace those of a pair: its own, or that of its
        donor; -1 if that is C."""
        pairs, donor = self.pairs, self.replacements.donor
        other = pairs.counterfactual_answer if donor is None else pairs.counterfactual_answer[donor]
        return other.masked_fill(other == pairs.answer, NO_ANSWER)

    def forwards(self, variants: Sequence[Variant]) -> float:
        """The cost of the variants, in whole forwards of the pairs."""
        return n_forwards(variants, int(self.model.cfg.n_layers), int(self.model.cfg.n_heads))

    def select(self, rows: Int[Tensor, " row"]) -> "KnockoutEngine":
        """The engine of some of the pairs, with the replacements that are made of all pairs.

        Raises:
            ValueError: replacements are the outputs on other pairs (`resample`).
        """
        if self.replacements.kind == "resample":
            raise ValueError("expected another ablation, found resample, which needs all pairs")
        own = None if self.replacements.donor is None else torch.arange(len(rows))
        place = self.replacements.place[rows]
        replacements = replace(self.replacements, place=place, donor=own)
        chosen = self.chosen[rows]
        return replace(self, pairs=self.pairs[rows], replacements=replacements, chosen=chosen)

    def _refuse(self, rows: Tensor) -> NoReturn:
        """Raise an error that names the layer in which the model is not finite, or the knockout."""
        batch = narrowed(self.pairs[rows])
        require_finite(self.model, batch.reference, attention_mask=batch.attention_mask)
        raise FloatingPointError(
            "expected finite logits, found NaN or infinity under a knockout; load the model in "
            "float32 or bfloat16 (float16 overflows), and check its weights and the means"
        )

    def _compute(
        self,
        variants: Sequence[Variant],
        rows: Int[Tensor, " row"],
        read: Callable[[Tensor, Tensor], Tensor],
        part: slice,
    ) -> Float[Tensor, "what variant computed"]:
        """What is read of some of the rows."""
        batch, device = self.batch(rows[part]), torch.device(self.model.cfg.device)
        budget = TOKENS_AT_ONCE.get(device.type, TOKENS_AT_ONCE["cuda"])
        # by the size of all rows: if they are halved, half as much runs at once
        n_rows = batch.n_rows * len(rows) / len(batch.pairs)
        states_at_once = max(1, int(budget / n_rows))
        return run_variants(
            self.model, batch, variants, states_at_once, lambda logits: read(logits, rows[part])
        )

    def batch(self, rows: Int[Tensor, " row"]) -> "Batch":
        """Some of the pairs, that run together."""
        pairs = narrowed(self.pairs[rows])
        chosen = self.chosen[rows][:, -pairs.reference.shape[1] :]

        def values(names: list[str]) -> Activations:
            return self.replacements.of(self.model, self.pairs, rows, names)

        fast = None
        if self.layers is not None:
            groups = self.replacements.groups(rows)
            fast = tree_forward(self.model, self.layers, pairs, chosen, groups)
        return Batch(pairs, chosen, values, fast)

    def _fitting(self, variants: Sequence[Variant]) -> int:
        """The number of pairs whose states of all variants fit in half of the free memory."""
        cfg = self.model.cfg
        n_states = 2 * (len({frozenset(variant) for variant in variants}) + 1)  # below and above
        bytes_of_one = n_states * int(self.pairs.lengths.max()) * int(cfg.d_model) * 4
        return max(1, int(free_bytes(torch.device(cfg.device)) // 2 // bytes_of_one))


def engine_of(
    model: HookedLike, pairs: PromptPairs, components: Components, knockout: Knockout
) -> KnockoutEngine:
    """The engine for knocking out any of `components`. Raises the errors of `knock_out`."""
    checked = checked_components(model, components)
    if not len(pairs):
        raise ValueError("expected pairs to knock out on, found none")
    check_pairs(model, pairs, unequal=True)
    where = chosen_positions(pairs, knockout.positions, model.tokenizer)
    how = {"means": knockout.means, "seed": knockout.seed}
    replacing = replacements(model, pairs, checked, **knockout.question, **how)
    engine = KnockoutEngine(model, pairs, replacing, where)
    layers = plain_layers(model)
    if layers is not None and any(
        isinstance(one, Neuron) and layers[one.layer].w_out is None for one in checked
    ):
        layers = None
    fast = replace(engine, layers=layers)
    return fast if layers is not None and _agrees(fast, frozenset(checked)) else engine


CERTIFICATES: dict[str, bool] = {}
"""Which engines of this process agree with hooks, by what decides it."""


def _agrees(engine: KnockoutEngine, variant: Variant) -> bool:
    """Whether plain layers and hooks give the same logits for a longest and a shortest pair.

    It is computed once in a process for the same model, pairs, components and replacements.
    """
    key = _certificate_key(engine, variant)
    if key not in CERTIFICATES:
        lengths = engine.pairs.lengths
        batch = engine.batch(torch.stack([lengths.argmax(), lengths.argmin()]).unique())
        CERTIFICATES[key] = batch.fast is not None and fast_agrees(
            engine.model, batch, variant, batch.fast
        )
    return CERTIFICATES[key]


def _certificate_key(engine: KnockoutEngine, variant: Variant) -> str:
    """Everything that decides what `_agrees` compares, in one text. No hook is active there."""
    replacements, pairs = engine.replacements, engine.pairs
    replacement_values = replacements.values if replacements.kind == "given" else {}
    tensors = [pairs.reference, pairs.counterfactual, pairs.attention_mask, engine.chosen]
    tensors += [replacements.place, replacements.donor, *replacement_values.values()]
    known = [state_digest(engine.model), *sorted(map(str, variant))]
    known += [replacements.kind, *replacement_values]
    known += [
        f"{tuple(tensor.shape)} {tensor_digest(tensor)}" for tensor in tensors if tensor is not None
    ]
    return " ".join(known)


def tensor_digest(values: Tensor) -> str:
    """SHA-256 of a tensor's bytes."""
    flat = values.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()


def checked_components(model: HookedLike, components: Components) -> tuple[Component, ...]:
    """The components in the same order.

    Raises:
        TypeError: a value does not name a component.
        IndexError: the model does not have a component.
        ValueError: a component is given twice; or a neuron of an MLP without one W_out.
    """
    checked = tuple(as_components(components, neurons=True))
    check_components(checked, int(model.cfg.n_layers), int(model.cfg.n_heads))
    check_neurons(model, checked)
    if len({*checked}) != len(checked):
        twice = next(component for component in checked if checked.count(component) > 1)
        raise ValueError(f"expected each component once, found {twice} several times")
    return checked
