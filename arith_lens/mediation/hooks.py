"""The same rows by composable hooks: one forward each, for any model that has the hook points."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import Activations
from arith_lens.hooks import freeze, patch_heads, patch_mlps
from arith_lens.mediation.rows import rows_of
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching.hook_engine import Interventions, readouts_of
from arith_lens.path_patching.question import Question, effects_of


@dataclass(frozen=True)
class MediationHooks:
    """A forward a row, over all positions."""

    model: HookedLike
    question: Question

    def __call__(
        self, pairs: PromptPairs, foil: Int[Tensor, "pair"] | None
    ) -> Float[Tensor, "row pair"]:
        rows = rows_of(self.question.senders)

        def interventions(reference: Activations, counterfactual: Activations) -> Interventions:
            layers = range(self.question.n_layers)
            held = freeze(layers, reference, mlps=False)
            yield held
            for row in rows:
                frozen = [layer for layer in layers if not row.frees(layer)]
                patched = patch_heads([row.head], counterfactual, positions=-1)
                yield held + patch_mlps(frozen, reference) + patched

        readout = readouts_of(self.model, pairs, interventions, foil=foil)
        return effects_of(readout, self.question.metric, [*map(str, rows)])

    def notes(self) -> dict[str, Any]:
        return {}
