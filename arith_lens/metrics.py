"""What is read from the logits at END, and how a patched reading is set against the unpatched one.

Each metric takes two `Readout`s, patched and reference, and gives one number per pair: the effect.
Logits are raw, as the model puts them out: a ratio of centred or folded logits is another number.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Readout:
    """The logits at END that a metric may read; None for what was not asked for.

    `log_total` is the logarithm of the sum of exp(logit) over the vocabulary.
    """

    answer: Float[Tensor, "*row pair"]
    foil: Float[Tensor, "*row pair"] | None = None
    log_total: Float[Tensor, "*row pair"] | None = None

    def unpatched(self) -> "Readout":
        """Row 0 of a sweep's readout."""
        return Readout(
            answer=self.answer[0],
            foil=None if self.foil is None else self.foil[0],
            log_total=None if self.log_total is None else self.log_total[0],
        )


def read_logits(
    logits: Float[Tensor, "pair d_vocab"],
    answer: Int[Tensor, "pair"],
    foil: Int[Tensor, "pair"] | None = None,
) -> Readout:
    """Everything a metric may read, in float32, from whole rows of logits at END."""
    logits = logits.float()
    rows = torch.arange(len(logits), device=logits.device)
    return Readout(
        answer=logits[rows, answer.to(logits.device)],
        foil=None if foil is None else logits[rows, foil.to(logits.device)],
        log_total=logits.logsumexp(-1),
    )


def relative_logit(patched: Readout, reference: Readout) -> Float[Tensor, "*row pair"]:
    """(logit_p - logit_o) / logit_o of the answer: the paper's metric (Algorithm 1).

    NaN, that is left out, where logit_o is not positive: the ratio's sign would mean nothing.
    """
    origin = reference.answer
    return ((patched.answer - origin) / origin).masked_fill(origin <= 0, float("nan"))


def logit(patched: Readout, reference: Readout) -> Float[Tensor, "*row pair"]:
    """Change of the answer's logit."""
    return patched.answer - reference.answer


def logprob(patched: Readout, reference: Readout) -> Float[Tensor, "*row pair"]:
    """Change of the answer's log-probability, in nats."""
    return _logprob(patched) - _logprob(reference)


def probability(patched: Readout, reference: Readout) -> Float[Tensor, "*row pair"]:
    """Change of the answer's probability."""
    return _logprob(patched).exp() - _logprob(reference).exp()


def logit_difference(patched: Readout, reference: Readout) -> Float[Tensor, "*row pair"]:
    """Change of logit(answer) - logit(foil)."""
    return _over_foil(patched) - _over_foil(reference)


@dataclass(frozen=True)
class Metric:
    """A metric's function, and what a readout must hold for it."""

    effect: Callable[[Readout, Readout], Tensor]
    needs_vocabulary: bool = False
    needs_foil: bool = False


METRICS: Mapping[str, Metric] = {
    "relative_logit": Metric(relative_logit),
    "logit": Metric(logit),
    "logprob": Metric(logprob, needs_vocabulary=True),
    "probability": Metric(probability, needs_vocabulary=True),
    "logit_difference": Metric(logit_difference, needs_foil=True),
}


def get_metric(name: str, foil: Int[Tensor, "pair"] | None = None) -> Metric:
    """The metric called `name`. Raises ValueError for an unknown one, or a foil amiss."""
    if name not in METRICS:
        raise ValueError(f"expected a metric among {', '.join(METRICS)}, found {name!r}")
    if METRICS[name].needs_foil != (foil is not None):
        raise ValueError(
            f"expected a foil with logit_difference and with no other metric, found {name!r} "
            f"{'without one' if foil is None else 'with one'}; give foil=, one token a pair, or "
            "choose the metric that fits"
        )
    return METRICS[name]


def _logprob(readout: Readout) -> Float[Tensor, "*row pair"]:
    assert readout.log_total is not None, "a metric over the vocabulary needs log_total"
    return readout.answer - readout.log_total


def _over_foil(readout: Readout) -> Float[Tensor, "*row pair"]:
    assert readout.foil is not None, "logit_difference needs the foil's logit"
    return readout.answer - readout.foil


def logit_tolerance(dtype: torch.dtype) -> float:
    """How far two ways to one logit of a model of this dtype may differ, as a share of the largest:
    more is no rounding."""
    return {torch.bfloat16: 5e-2, torch.float16: 1e-2}.get(dtype, 1e-4)
