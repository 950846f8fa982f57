"""A model's answers without some of its components, per pair, and the loss of accuracy."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isnan
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.arrays import Arrays, joined_arrays
from arith_lens.components import Component, parse_component
from arith_lens.effects import Effects
from arith_lens.intervals import change_interval
from arith_lens.statistics import HasUnits, chosen_units, resampled_means

if TYPE_CHECKING:
    from pandas import DataFrame


OUTCOME_MEASURES = ("correct", "probability")


@dataclass(frozen=True)
class Outcomes(HasUnits):
    """Whether each pair's reference prompt is answered with C, and the probability of C."""

    correct: Bool[Tensor, " pair"]
    """Whether the most likely token of the vocabulary is C."""
    probability: Float[Tensor, " pair"]
    """p(C), over the vocabulary."""
    top: Int[Tensor, "pair rank"]
    """The most likely tokens, best first."""
    components: tuple[Component, ...]
    """The components that were knocked out; none is the baseline."""
    ablation: str
    """`mean`, `zero`, `resample` or `counterfactual`."""
    positions: str
    """`all` (except BOS and padding) or `end`."""
    means: str
    """The kind of mean: `template`, `role`, `all_tokens`, `given`; else the ablation, or `none`."""
    template: tuple[str, ...] | None = None
    """The template of each pair. Means give all templates the same weight."""
    cluster: Int[Tensor, " pair"] | None = None
    """The reference prompt of each pair, by number."""
    problem: tuple[str, ...] | None = None
    """The problem of each pair. Errors and intervals count problems."""
    computed: Bool[Tensor, " pair"] | None = None
    """Whether C needs a calculation (`Problem.computed`); None if unknown."""
    counterfactual_answer: Int[Tensor, " pair"] | None = None
    """C': the answer of the counterfactual whose outputs replace those of the components (of the
    donor with `resample`, else of the pair); -1 if it has none, or the reference's."""
    correct_before: Bool[Tensor, " pair"] | None = None
    """Whether the untouched model answers C; None in results of earlier versions."""

    @property
    def before(self) -> float:
        """The accuracy of the untouched model on these pairs, as `accuracy`; NaN if unknown.

        1 for pairs that were filtered for right answers (`keep_correct`).
        """
        if self.correct_before is None:
            return float("nan")
        right = self.correct_before.float()[None]
        return float(Effects(right, ("measure",), "correct", **self.units).mean())

    @property
    def answers_other(self) -> Float[Tensor, " pair"]:
        """1 where the most likely token is C', else 0; NaN where there is no C'."""
        if self.counterfactual_answer is None:
            return torch.full_like(self.probability, float("nan"))
        other = self.counterfactual_answer
        return (self.top[:, 0] == other).float().masked_fill(other < 0, float("nan"))

    def other_share(self) -> float:
        """The share of pairs answered with C', of those that have one. Templates have equal weight.

        With `ablation="counterfactual"` it is what `metric="answers_other"` of `path_patch` is for
        one component: how often these components carry the other problem's answer over.
        """
        return float(self._others().mean())

    def _others(self) -> Effects:
        return Effects(self.answers_other, (), "answers C'", **self.units)

    @property
    def n_pairs(self) -> int:
        """The number of pairs."""
        return len(self.correct)

    def effects(self) -> Effects:
        """Both measures as Effects, [measure pair]."""
        return Effects(
            per_pair=torch.stack([self.correct.float(), self.probability.float()]),
            axes=("measure",),
            metric="after knockout",
            **self.units,
            labels={"measure": OUTCOME_MEASURES},
        )

    def accuracy(self) -> float:
        """The share of pairs answered with C: the mean per template, then over templates."""
        return float(self.effects().mean()[0])

    def mean_probability(self) -> float:
        """The mean of p(C). Templates have equal weight."""
        return float(self.effects().mean()[1])

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """Wilson's interval of `accuracy`, over problems (`arith_lens.intervals.share_interval`).

        It has a width even if all answers are right.
        """
        correct = self.correct.float()[None]
        low, high = Effects(correct, ("measure",), "correct", **self.units).ci(
            level, method="share"
        )
        return float(low), float(high)

    def select(self, mask: Bool[Tensor, " pair"] | Int[Tensor, " chosen"] | slice) -> "Outcomes":
        """The outcomes of some of the pairs, such as `outcomes.select(outcomes.computed)`."""
        return select_pairs(self, mask)

    def to_dataframe(self) -> "DataFrame":
        """One row per pair."""
        from pandas import DataFrame

        columns = {"correct": self.correct, "probability": self.probability, "top": self.top[:, 0]}
        if bool(self.answers_other.isfinite().any()):
            columns["answers_other"] = self.answers_other
        known = {**columns, **self.units, "computed": self.computed}
        return DataFrame(
            {
                name: values.numpy() if isinstance(values, Tensor) else list(values)
                for name, values in known.items()
                if values is not None
            }
        )

    def to_arrays(self) -> Arrays:
        """The arrays for a file; `from_arrays` reads them."""
        return stored("outcomes", self, {"components": [*map(str, self.components)]})

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Outcomes":
        """Read `to_arrays` back. Raises ValueError for another kind of result."""
        fields, header = read_back("outcomes", arrays)
        return cls(components=tuple(map(parse_component, header["components"])), **fields)

    def __repr__(self) -> str:
        return (
            f"Outcomes({self.accuracy():.1%} right ({self._range()}), mean p(C) "
            f"{self.mean_probability():.3f}, {self._other_text()}{self.n_pairs} pairs, without "
            f"{components_text(self.components)}, ablation {self.ablation}, "
            f"positions {self.positions}, means {self.means})"
        )

    def _range(self) -> str:
        """The interval of the accuracy, and the accuracy of the untouched model, in words."""
        before = "" if isnan(self.before) else f"; {self.before:.1%} before"
        return range_text(self.ci()) + before

    def _other_text(self) -> str:
        """The share of C' for a line of text; empty if no pair has one."""
        n = int(self.answers_other.isfinite().sum())
        if not n:
            return ""
        of = "" if n == self.n_pairs else f" of the {n} that have one"
        return f"answered C' {self.other_share():.1%}{of}, "

    def _repr_html_(self) -> str:
        from arith_lens.plotting import render

        rows = {
            "right": f"{self.accuracy():.1%} ({self._range()})",
            "mean p(C)": f"{self.mean_probability():.3f}",
            "pairs": f"{self.n_pairs}",
            "without": components_text(self.components),
            "ablation": f"{self.ablation}; positions {self.positions}; means {self.means}",
        }
        return render(_TABLE, rows=rows)


_TABLE = """<table>
{% for name, text in rows.items() %}<tr><th>{{ name }}</th><td>{{ text }}</td></tr>{% endfor %}
</table>"""


TOKENS = ("top", "computed", "counterfactual_answer", "correct_before")
SETTING = ("ablation", "positions", "means")


def stored(kind: str, result: Any, header: Mapping[str, Any]) -> Arrays:
    """The arrays of a result that is made of knockouts: its measures, its settings and a header."""
    known = {name: getattr(result, name, None) for name in TOKENS}
    tensors = {name: tensor for name, tensor in known.items() if tensor is not None}
    settings = {name: getattr(result, name) for name in SETTING}
    measures = result.effects().to_arrays()
    return joined_arrays(kind, {"measures": measures}, tensors, {**header, **settings})


def read_back(
    kind: str, arrays: Arrays, second: str = "probability"
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """The fields that `stored` wrote, and the header. `second` is the field of the second measure.

    Raises:
        ValueError: the arrays are another kind of result.
    """
    arrays.require(kind)
    measures = Effects.from_arrays(arrays.part("measures"))
    correct, value = measures.per_pair
    tensors = {name: arrays.tensors[name] for name in TOKENS if name in arrays.tensors}
    settings = {name: arrays.header[name] for name in SETTING}
    fields = {"correct": correct.bool(), second: value, **measures.units, **tensors, **settings}
    return fields, arrays.header


def select_pairs(result: Any, mask: Bool[Tensor, " pair"] | Int[Tensor, " chosen"] | slice) -> Any:
    """The same outcomes or curve on some of the pairs."""
    rows = torch.arange(result.n_pairs)[mask]
    labels = {name: getattr(result, name, None) for name in TOKENS[1:]}
    return replace(
        result,
        correct=result.correct[..., rows],
        probability=result.probability[..., rows],
        top=result.top[..., rows, :],
        **chosen_units(result.units, rows),
        **{name: label[rows] for name, label in labels.items() if label is not None},
    )


def components_text(components: tuple[Component, ...]) -> str:
    """The components in words; only the first ones if there are many."""
    named = ", ".join(str(component) for component in components[:6])
    more = f" and {len(components) - 6} more" if len(components) > 6 else ""
    return named + more or "nothing"


def range_text(ends: tuple[float, float], form: str = ".1%") -> str:
    """An interval in words; NaN where a single problem gives none."""
    low, high = ends
    return "one problem, no interval" if isnan(low) else f"{low:{form}} to {high:{form}}"


N_RESAMPLES = 1000


@dataclass(frozen=True)
class OutcomeChange:
    """The change from `before` to `after`: the difference, and its share of `before`."""

    before: float
    after: float
    absolute: float
    absolute_ci: tuple[float, float]
    relative: float
    relative_ci: tuple[float, float]

    def __str__(self) -> str:
        low, high = self.absolute_ci
        relative = "no relative change, since nothing was right before"
        if not isnan(self.relative):
            between = range_text(self.relative_ci, "+.1%")
            relative = f"{self.relative:+.1%} relative ({between})"
        return (
            f"{self.before:.1%} to {self.after:.1%}: {100 * self.absolute:+.1f} points "
            f"({range_text((100 * low, 100 * high), '+.1f')}), {relative}"
        )


@dataclass(frozen=True)
class Drop:
    """The change by a knockout. Negative numbers are losses."""

    accuracy: OutcomeChange
    probability: OutcomeChange

    def __str__(self) -> str:
        return f"accuracy {self.accuracy}; p(C) {self.probability}"


def drop(before: Outcomes, after: Outcomes, *, level: float = 0.95, seed: int = 0) -> Drop:
    """The change from one knockout (or none) to another, on the same pairs.

    Both outcomes of a problem count together, so the difficulty of a problem cancels. Intervals are
    over problems: that of accuracy is `arith_lens.intervals.change_interval`, that of p(C) a
    bootstrap. The relative change is of the means, its interval that of the change divided by the
    accuracy before; it is NaN if nothing was right before.

    Args:
        before, after: the outcomes to compare.

    Raises:
        ValueError: the outcomes are of different pairs.
    """
    _check_paired(before, after)
    stacked = torch.stack([before.effects().per_pair, after.effects().per_pair])
    both = Effects(stacked, ("run", "measure"), "", **before.units)
    draws = resampled_means(both.sample(), slice(None), N_RESAMPLES, seed).unflatten(0, (2, 2))
    mean = both.mean().double()
    accuracy, probability = (
        _change(mean[:, measure], draws[:, measure], level) for measure in (0, 1)
    )
    answers = Effects(stacked[:, 0], ("run",), "correct", **before.units)
    low, high = change_interval(answers.sample(), level=level)
    was = accuracy.before or float("nan")
    relative = low / was, high / was
    return Drop(replace(accuracy, absolute_ci=(low, high), relative_ci=relative), probability)


def _change(
    mean: Float[Tensor, "run=2"], draws: Float[Tensor, "run=2 resample"], level: float
) -> OutcomeChange:
    tail = (1 - level) / 2
    ends = torch.tensor([tail, 1 - tail], dtype=torch.float64)
    before, after = mean.tolist()

    def interval(values: Float[Tensor, " resample"]) -> tuple[float, float]:
        low, high = values.nanquantile(ends).tolist()
        return low, high

    return OutcomeChange(
        before=before,
        after=after,
        absolute=after - before,
        absolute_ci=interval(draws[1] - draws[0]),
        relative=(after - before) / before if before else float("nan"),
        relative_ci=interval((draws[1] - draws[0]) / draws[0]),
    )


def _check_paired(before: Outcomes, after: Outcomes) -> None:
    same = before.n_pairs == after.n_pairs and before.template == after.template
    same = same and before.problem == after.problem
    if same and before.cluster is not None and after.cluster is not None:
        same = torch.equal(before.cluster, after.cluster)
    if not same:
        raise ValueError(
            f"expected outcomes of the same pairs, found {before.n_pairs} and {after.n_pairs} "
            "pairs, or other prompts; knock out on one set of pairs"
        )
