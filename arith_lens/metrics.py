"""What is read from the logits at END, and how a patched reading is set against the unpatched one.

Each metric reads a number m from a `Readout`. An effect is m of the patched run less m of the
reference run; some metrics divide that by m of the reference run, or by what replacing the whole
prompt changes. Logits are raw, as the model puts them out: a ratio of centred or folded logits is
another number.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.options import check_choice
from arith_lens.pairs import NO_ANSWER, PromptPairs

SMALL_TOTAL = 0.1
"""A smaller change by the whole counterfactual prompt is too small to compute shares of it."""


@dataclass(frozen=True)
class Readout:
    """The logits at END that a metric may read; None for what was not read."""

    answer: Float[Tensor, "*row pair"]
    foil: Float[Tensor, "*row pair"] | None = None
    log_total: Float[Tensor, "*row pair"] | None = None
    """The logarithm of the sum of exp(logit) over the vocabulary."""
    others: Float[Tensor, "*row pair"] | None = None
    """The mean logit of the candidates that are not the answer."""
    other_answer: Float[Tensor, "*row pair"] | None = None
    """The logit of the counterfactual's answer, C'; that of C where there is none."""
    answers_other: Float[Tensor, "*row pair"] | None = None
    """1 where the likeliest token is C', else 0; NaN where there is no C', or C' is C."""
    own: Float[Tensor, "*row pair"] | None = None
    """The values of a function of the user's."""

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


Reads: TypeAlias = Literal[
    "vocabulary", "foil", "candidates", "other answer", "likeliest", "function"
]
"""What a metric reads beside the answer's logit."""

MetricFunction: TypeAlias = Callable[[Tensor, PromptPairs], Tensor] | Callable[[Tensor], Tensor]
"""A metric of the user's: from logits at END [row d_vocab], and the pairs of these rows if it takes
a second argument, one number per row. It is called with the logits of one run at a time."""


def n_arguments(function: MetricFunction) -> int:
    """How many of logits and pairs a metric function takes: 2, or 1. Raises ValueError: neither."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of code that is not Python's
        return 2
    for n in (2, 1):
        with suppress(TypeError):
            signature.bind(*[None] * n)
            return n
    raise ValueError(
        "expected a metric function of logits [row d_vocab], or of logits and pairs, found "
        f"{function!r:.80} with the arguments {signature}; give the others their values, as "
        "functools.partial does"
    )


@dataclass(frozen=True)
class Targets:
    """What is read of the logits of some pairs at END."""

    answer: Int[Tensor, " pair"]
    foil: Int[Tensor, " pair"] | None = None
    candidates: Int[Tensor, " candidate"] | None = None
    """Tokens whose mean logit is read, without the answer's; None: no mean."""
    other_answer: Int[Tensor, " pair"] | None = None
    """C', or C where there is none; None: nothing is read of it."""
    vocabulary: bool = False
    """Whether the logarithm of the sum over the vocabulary is read."""
    likeliest: bool = False
    """Whether it is read if the likeliest token is C'."""
    function: Callable[[Float[Tensor, "pair d_vocab"]], Float[Tensor, " pair"]] | None = None
    """A function of whole rows of logits."""

    @classmethod
    def of(
        cls,
        pairs: PromptPairs,
        reads: Reads | None = None,
        *,
        foil: Int[Tensor, " pair"] | None = None,
        candidates: Int[Tensor, " candidate"] | None = None,
        function: MetricFunction | None = None,
    ) -> "Targets":
        """What a metric that reads this needs of some pairs."""
        other = None
        if reads in ("other answer", "likeliest"):
            known = pairs.counterfactual_answer != NO_ANSWER
            other = torch.where(known, pairs.counterfactual_answer, pairs.answer)
        return cls(
            pairs.answer,
            foil,
            candidates,
            other,
            vocabulary=reads == "vocabulary",
            likeliest=reads == "likeliest",
            function=function and partial(_values_of, function, pairs),
        )

    def is_other(self, likeliest: Int[Tensor, "*row pair"]) -> Float[Tensor, "*row pair"] | None:
        """`Readout.answers_other` by the likeliest tokens; None if it is not read."""
        if not self.likeliest or self.other_answer is None:
            return None
        other, answer = (part.to(likeliest.device) for part in (self.other_answer, self.answer))
        return (likeliest == other).float().masked_fill(other == answer, float("nan"))


def _values_of(
    function: Any, pairs: PromptPairs, logits: Float[Tensor, "row d_vocab"]
) -> Float[Tensor, " row"]:
    """The values of a metric function for the logits of one run."""
    values = function(*(logits, pairs)[: n_arguments(function)])
    if not isinstance(values, Tensor) or values.shape != logits.shape[:1]:
        shape = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(
            f"expected a metric function that returns one number per row of logits, "
            f"[{len(logits)}], found {shape}; reduce over the vocabulary alone"
        )
    return values.float()


def read_logits(logits: Float[Tensor, "pair d_vocab"], targets: Targets) -> Readout:
    """Everything a metric may read, in float32, from whole rows of logits at END."""
    logits = logits.float()

    def of(tokens: Int[Tensor, " pair"] | None) -> Float[Tensor, " pair"] | None:
        if tokens is None:
            return None
        return logits.gather(-1, tokens.to(logits.device)[:, None])[:, 0]

    answer, others = of(targets.answer), None
    assert answer is not None
    if targets.candidates is not None:
        of_candidates = logits[:, targets.candidates.to(logits.device)]
        others = mean_of_others(of_candidates, targets.candidates, targets.answer)
    return Readout(
        answer=answer,
        foil=of(targets.foil),
        log_total=logits.logsumexp(-1),
        others=others,
        other_answer=of(targets.other_answer),
        answers_other=targets.is_other(logits.argmax(-1)),
        own=None if targets.function is None else targets.function(logits),
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
    reads: Reads | None = None
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
            small = total.abs() < SMALL_TOTAL
            # by 1 where it is small, so that these pairs have no infinite gradient
            return (change / total.masked_fill(small, 1)).masked_fill(small, float("nan"))
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


def _over_answer(readout: Readout) -> Float[Tensor, "*row pair"]:
    assert readout.other_answer is not None, "interchange needs the logit of the other answer"
    return readout.other_answer - readout.answer


def _answers_other(readout: Readout) -> Float[Tensor, "*row pair"]:
    assert readout.answers_other is not None, "answers_other needs the likeliest token"
    return readout.answers_other


def _own(readout: Readout) -> Float[Tensor, "*row pair"]:
    assert readout.own is not None, "a metric of one's own needs its values"
    return readout.own


OWN_METRIC = Metric(_own, "function")
"""A function of the user's (`MetricFunction`)."""
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
    "interchange": Metric(_over_answer, "other answer", "total"),
    "answers_other": Metric(_answers_other, "likeliest"),
}
"""By name. `relative_logit` is the paper's (Algorithm 1): (logit_p - logit_o) / logit_o of the
answer, NaN where logit_o is not positive. `logprob` is in nats. `digit_contrast` is the logit of
the answer less the mean logit of the other candidates, so that a rise of all of them does not move
it. A share of the total is 0 for no change and 1 for as much as the whole counterfactual prompt
changes, NaN where that is less than `SMALL_TOTAL`. `interchange` is such a share of the logit of
the counterfactual's answer C' less that of C. `answers_other` is 1 where the patched run answers
with C' and the reference run does not. Both are NaN where the counterfactual has no answer."""


def get_metric(
    name: str, foil: Int[Tensor, " pair"] | None = None, candidates: Sequence[int] | None = None
) -> Metric:
    """The metric called `name`.

    Raises:
        ValueError: an unknown name; a foil that is missing, or a foil or candidates that the metric
            does not read.
    """
    check_choice("a metric", name, METRICS)
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
