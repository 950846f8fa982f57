"""The closed-form effects of a built model's components, and its circuit."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.built.circuit import Circuit, Edge, Outputs, Replaced, run
from arith_lens.components import (
    Component,
    Components,
    Head,
    Mlp,
    as_components,
    check_components,
    every_head,
    every_mlp,
)
from arith_lens.effects import HEAD_AXES, MLP_AXES, ComponentEffects, Effects
from arith_lens.metrics import Readout, get_metric, mean_of_others
from arith_lens.pairs import PromptPairs

DIGITS = torch.arange(10)


@dataclass(frozen=True, eq=False)
class Truth:
    """What is true of a built model on its pairs, from the circuit's equations in float64.

    Nothing here runs the model or a method of this package.
    """

    circuit: Circuit
    pairs: PromptPairs
    n_heads: int
    """The number of heads in each layer, those included that do nothing."""
    changed: frozenset[str]
    """The parts of the prompt in which X_c differs: `a`, `operator`, `b`."""

    @property
    def n_layers(self) -> int:
        return len(self.circuit.mlps)

    @property
    def edges(self) -> frozenset[Edge]:
        """Who reads whom on the way from a changed part of the prompt to the logits."""
        return frozenset(edge for edge in self.circuit.edges if edge.carries & self.changed)

    @property
    def heads(self) -> frozenset[Head]:
        """The heads of the circuit: those that carry a changed part of the prompt."""
        return frozenset(one for one in self._members() if isinstance(one, Head))

    @property
    def mlps(self) -> frozenset[Mlp]:
        """The MLPs of the circuit."""
        return frozenset(one for one in self._members() if isinstance(one, Mlp))

    def _members(self) -> set[Component]:
        return {edge.sender for edge in self.edges}

    def logits(self, *, counterfactual: bool = False) -> Float[Tensor, "pair token"]:
        """The logits at END of the reference prompts, or of the counterfactual ones."""
        return self._runs[counterfactual][0]

    def patched(
        self, components: Components, *, paths: str = "via_mlps", mlps: Iterable[int] | None = None
    ) -> Float[Tensor, "pair token"]:
        """The logits at END if components get their counterfactual output at END, all together.

        Args:
            components: heads and MLPs.
            paths: `"via_mlps"`, `"direct"` or `"total"`, as in `path_patch`.
            mlps: the layers whose MLPs are computed again; None: as `paths` says.

        Raises:
            ValueError: another name of paths.
        """
        if paths not in ("via_mlps", "direct", "total"):
            raise ValueError(f"expected paths via_mlps, direct or total, found {paths!r}")
        senders = self._checked(components)
        frozen = [] if paths == "total" else [copy_head.head for copy_head in self.circuit.heads]
        if mlps is not None:
            frozen += [mlp for mlp in every_mlp(self.n_layers) if mlp.layer not in {*mlps}]
        elif paths == "direct":
            frozen += every_mlp(self.n_layers)
        (_, reference), (_, counterfactual) = self._runs
        everywhere = torch.ones_like(self.pairs.attention_mask)
        end = torch.zeros_like(everywhere)
        end[:, -1] = True
        replaced: dict[Component, Any] = {
            component: (reference[component], everywhere) for component in frozen
        }
        for component in senders:
            if component in reference:
                stream = counterfactual[component].clone()
                if component in frozen:
                    stream[:, :-1] = reference[component][:, :-1]
                replaced[component] = (stream, everywhere if component in frozen else end)
        return self._run(self.pairs.reference, replaced)[0]

    def effects(
        self, *, paths: str = "via_mlps", metric: str = "relative_logit"
    ) -> ComponentEffects:
        """The effect of each head and each MLP, as `path_patch` returns it.

        Raises:
            ValueError: another name of paths; an unknown metric, or one that needs a foil.
        """
        units: dict[str, Any] = {"metric": metric, "paths": paths, **self.pairs.units}

        def values(components: Iterable[Component]) -> list[Tensor]:
            return [self.effect(component, paths=paths, metric=metric) for component in components]

        heads = torch.stack(values(every_head(self.n_layers, self.n_heads)))
        mlps = torch.stack(values(every_mlp(self.n_layers)))
        answer = self.logits().gather(1, self.pairs.answer[:, None])[:, 0]
        return ComponentEffects(
            Effects(heads.unflatten(0, (self.n_layers, self.n_heads)), HEAD_AXES, **units),
            Effects(mlps, MLP_AXES, **units),
            answer,
            computation={"engine": "closed form", "paths": paths, "metric": metric},
        )

    def effect(
        self,
        components: Components,
        *,
        paths: str = "via_mlps",
        metric: str = "relative_logit",
        mlps: Iterable[int] | None = None,
    ) -> Float[Tensor, " pair"]:
        """The effect of patching components together; arguments as in `patched`."""
        runs = [
            self.patched(components, paths=paths, mlps=mlps),
            *(run[0] for run in self._runs),
        ]
        return get_metric(metric).effect(*map(self._read, runs))

    def _read(self, logits: Float[Tensor, "pair token"]) -> Readout:
        """What metrics read. In float64, unlike the logits that methods read."""
        answer = self.pairs.answer
        return Readout(
            answer=logits.gather(1, answer[:, None])[:, 0],
            log_total=logits.logsumexp(-1),
            others=mean_of_others(logits[:, DIGITS], DIGITS, answer),
        )

    def knocked_out(
        self,
        components: Components,
        *,
        ablation: str = "mean",
        positions: str = "all",
    ) -> Float[Tensor, "pair token"]:
        """The logits at END without components, as in `knock_out`.

        Args:
            components: heads and MLPs.
            ablation: `"mean"`, over the counterfactual prompts of the same length, or `"zero"`.
            positions: `"all"`: every token but BOS and padding; or `"end"`.
        """
        mask = self.pairs.attention_mask
        where = mask & (mask.cumsum(1) > 1)
        if positions == "end":
            where = torch.zeros_like(mask)
            where[:, -1] = True
        outputs = self._runs[True][1]
        replaced = {}
        for component in self._checked(components):
            if component in outputs:
                value = torch.zeros_like(outputs[component])
                if ablation == "mean":
                    value = _mean_of_lengths(outputs[component], self.pairs.lengths)
                replaced[component] = (value, where)
        return self._run(self.pairs.reference, replaced)[0]

    def kept_only(
        self, components: Components, *, among: str = "heads", ablation: str = "mean"
    ) -> Float[Tensor, "pair token"]:
        """The logits at END if all heads, all MLPs or both (`"all"`) but these are knocked out."""
        chosen = {*self._checked(components)}
        pool: list[Component] = []
        pool += [] if among == "mlps" else every_head(self.n_layers, self.n_heads)
        pool += [] if among == "heads" else every_mlp(self.n_layers)
        return self.knocked_out([one for one in pool if one not in chosen], ablation=ablation)

    def probability(self, logits: Float[Tensor, "pair token"]) -> Float[Tensor, " pair"]:
        """p(C) of each pair, between 0 and 1."""
        return logits.softmax(-1).gather(1, self.pairs.answer[:, None])[:, 0]

    def _checked(self, components: Components) -> list[Component]:
        chosen = as_components(components)
        check_components(chosen, self.n_layers, self.n_heads)
        return chosen

    @cached_property
    def _runs(self) -> tuple[tuple[Tensor, Outputs], tuple[Tensor, Outputs]]:
        """Logits and outputs of the reference prompts and of the counterfactual ones."""
        return self._run(self.pairs.reference), self._run(self.pairs.counterfactual)

    def _run(
        self, tokens: Int[Tensor, "pair pos"], replaced: Replaced | None = None
    ) -> tuple[Tensor, Outputs]:
        return run(self.circuit, tokens, self.pairs.attention_mask, replaced)


def _mean_of_lengths(
    output: Float[Tensor, "pair pos channel"], lengths: Int[Tensor, " pair"]
) -> Float[Tensor, "pair pos channel"]:
    """For each pair, the mean over the pairs of its length."""
    same = (lengths[:, None] == lengths).double()
    return torch.einsum("pq, qtc -> ptc", same / same.sum(1, keepdim=True), output)
