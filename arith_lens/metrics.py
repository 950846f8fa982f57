"""What is read from the logits at END, and how a patched reading is set against the unpatched one.

Each metric reads a number m from a `Readout`. An effect is m of the patched run less m of the
reference run; some metrics divide that by m of the reference run, or by what replacing the whole
prompt changes. Logits are raw, as the model puts them out: a ratio of centred or folded logits is
another number.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

SMALL_TOTAL = 0.1
"""A smaller change by the whole counterfactual prompt is no measure for shares of it."""


@dataclass(frozen=True)
class Readout:
    """The logits at END that a metric may read; None for what was not read."""

    answer: Float[Tensor, "*row pair"]
    foil: Float[Tensor, "*row pair"] | None = None
    log_total: Float[Tensor, "*row pair"] | None = None
    """The logarithm of the sum of exp(logit) over the vocabulary."""
    others: Float[Tensor, "*row pair"] | None = None
    """The mean logit of the candidates that are not the answer."""

    def unpatched(self) -> "Readout":
        """Row 0 of a sweep's readout."""
        return self._each(itemgetter(0))

    def detached(self) -> "Readout":
        """The same values, through which no gradient passes."""
        return self._each(Tensor.detach)

    @staticmethod
    def stack(rows: Sequence["Readout"]) -> "Readout":
        """Readouts of one row each as one of all rows."""
        names = [name for name, values in vars(rows[0]).items() if values is not None]
        return Readout(**{name: torch.stack([vars(row)[name] for row in rows]) for name in names})

    def _each(self, function: Callable[[Tensor], Tensor]) -> "Readout":
        """A function of each value that was read."""
        known = {name: values for name, values in vars(self).items() if values is not None}
        return Readout(**{name: function(values) for name, values in known.items()})


def read_logits(
    logits: Float[Tensor, "pair d_vocab"],
    answer: Int[Tensor, " pair"],
    foil: Int[Tensor, " pair"] | None = None,
    candidates: Int[Tensor, " candidate"] | None = None,
) -> Readout:
    """Everything a metric may read, in float32, from whole rows of logits at END."""
    logits = logits.float()
    rows = torch.arange(len(logits), device=logits.device)
    answer = answer.to(logits.device)
    others = None
    if candidates is not None:
        of_candidates = logits[:, candidates.to(logits.device)]
        others = mean_of_others(of_candidates, candidates, answer)
    return Readout(
        answer=logits[rows, answer],
        foil=None if foil is None else logits[rows, foil.to(logits.device)],
        log_total=logits.logsumexp(-1),
        others=others,
    )


def mean_of_others(
    logits: Float[Tensor, "*row pair candidate"],
    candidates: Int[Tensor, " candidate"],
    answer: Int[Tensor, " pair"],
) -> Float[Tensor, "*row pair"]:
    """The mean logit of the candidates that are not the pair's answer."""
    other = candidates.to(logits.device) != answer.to(logits.device)[:, None]
    return (logits * other).sum(-1) / other.sum(-1)


@dataclass(frozen=True)
class Metric:
    """One number per pair and run, and how effects on it are expressed."""

    value: Callable[[Readout], Float[Tensor, "*row pair"]]
    reads: Literal["vocabulary", "foil", "candidates"] | None = None
    """What a readout must hold beside the answer's logit."""
    share_of: Literal["reference", "total"] | None = None
    """What the change is divided by: m of the reference run, or the change by the counterfactual
    run; None: by nothing."""

    def effect(
        self, patched: Readout, reference: Readout, counterfactual: Readout | None = None
    ) -> Float[Tensor, "*row pair"]:
        """The effect of each row and pair; NaN, that is left out, where no share can be stated.

        Args:
            counterfactual: for a share of the total, of the run on the counterfactual prompts
        """
        origin = self.value(reference)
        change = self.value(patched) - origin
        if self.share_of == "reference":
            return (change / origin).masked_fill(origin <= 0, float("nan"))
        if self.share_of == "total":
            assert counterfactual is not None, "a share of the total needs the counterfactual run"
            total = self.value(counterfactual) - origin
            return (change / total).masked_fill(total.abs() < SMALL_TOTAL, float("nan"))
        return change


def _answer(readout: Readout) -> Float[Tensor, "*row pair"]:
    return readout.answer


def _logprob(readout: Readout) -> Float[Tensor, "*row pair"]:
    assert readout.log_total is not None, "a metric over the vocabulary needs log_total"
    return readout.answer - readout.log_total


def _probability(readout: Readout) -> Float[Tensor, "*row pair"]:
    return _logprob(readout).exp()


def _over_foil(readout: Readout) -> Float[Tensor, "*row pair"]:
    assert readout.foil is not None, "logit_difference needs the foil's logit"
    return readout.answer - readout.foil


def _over_others(readout: Readout) -> Float[Tensor, "*row pair"]:
    assert readout.others is not None, "digit_contrast needs the candidates' logits"
    return readout.answer - readout.others


METRICS: Mapping[str, Metric] = {
    "relative_logit": Metric(_answer, share_of="reference"),
    "logit": Metric(_answer),
    "logprob": Metric(_logprob, "vocabulary"),
    "probability": Metric(_probability, "vocabulary"),
    "logit_difference": Metric(_over_foil, "foil"),
    "digit_contrast": Metric(_over_others, "candidates"),
    "share_of_total": Metric(_answer, share_of="total"),
    "share_of_total_contrast": Metric(_over_others, "candidates", "total"),
    "share_of_total_probability": Metric(_probability, "vocabulary", "total"),
}
"""By name. `relative_logit` is the paper's (Algorithm 1): (logit_p - logit_o) / logit_o of the
answer, NaN where logit_o is not positive. `logprob` is in nats. `digit_contrast` is the logit of
the answer less the mean logit of the other candidates, so that a rise of all of them does not move
it. A share of the total is 0 for no change and 1 for as much as the whole counterfactual prompt
changes, NaN where that is less than `SMALL_TOTAL`."""


def get_metric(
    name: str, foil: Int[Tensor, " pair"] | None = None, candidates: Sequence[int] | None = None
) -> Metric:
    """The metric called `name`.

    Raises:
        ValueError: an unknown name; a foil that is missing, or a foil or candidates that the metric
            does not read.
    """
    if name not in METRICS:
        raise ValueError(f"expected a metric among {', '.join(METRICS)}, found {name!r}")
    if (METRICS[name].reads == "foil") != (foil is not None):
        raise ValueError(
            f"expected a foil with logit_difference and with no other metric, found {name!r} "
            f"{'without one' if foil is None else 'with one'}; give foil=, one token per pair, or "
            "choose the metric that fits"
        )
    if candidates is not None and METRICS[name].reads != "candidates":
        raise ValueError(
            f"expected candidates with a metric that reads them, found the metric {name!r}; leave "
            "candidates out, or choose digit_contrast"
        )
    return METRICS[name]


def logit_tolerance(dtype: torch.dtype) -> float:
    """How far two ways to one logit of a model of this dtype may differ, as a share of the largest:
    more is no rounding."""
    return {torch.bfloat16: 5e-2, torch.float16: 1e-2}.get(dtype, 1e-4)
