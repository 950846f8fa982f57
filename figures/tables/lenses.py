"""The table `lenses`: which conclusions hold under every counterfactual and metric?

Keys: conclusion (see `CONCLUSIONS`; empty for rows that decide none); counterfactual; metric
("answer" where the likeliest token is read, whatever the metric); operation ("all" has the mean
over operations and their range); verdict ("holds", "opposite" or "not decided"); reason, why there
is no number; part, order, k and method, of the numbers that the conclusions are made from.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import isnan, nan
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.effects import ComponentEffects, Effects
from arith_lens.mediation import Mediation
from arith_lens.metrics import METRICS
from arith_lens.runs import Run
from arith_lens.statistics import mean_over_strata, resampled_means
from experiments import results
from experiments.circuit import selected
from experiments.lenses import (
    EVERYTHING,
    LAST_MLP,
    MATCHED,
    METHODS,
    N_MEDIATED,
    N_NEEDED,
    NOTHING,
    RANDOM,
    TESTS,
    graded_pairs,
    keys,
)
from figures.tables.conclusions import ANSWER, CONCLUSIONS, Conclusion, Verdict, lens_verdict
from figures.tables.number import PROBLEMS, Number, Unit, over_draws
from figures.tables.table import QuestionTable, Row, interval_numbers, n_problems, row

N_RESAMPLES = 1000
PAPERS_LENS = ("word", "relative_logit")
SHARE, LINE = 0.05, -0.05
"""A share of the whole prompt's effect; the paper's line."""
ACCURACY, OTHER = "accuracy", "answers C'"
EFFECT, HELD = "effect", "effect, norm held"
ALL = "all"
NO_OTHER = "no counterfactual has an answer of its own"
THE_LENS_ITSELF = "this is the lens that others are compared with"
NOT_COMPUTED = "the run has no such result"

Draws = Float[np.ndarray, "component draw"]
"""Means of components, the estimate first, then those of resamples."""


@dataclass(frozen=True)
class Lens:
    """The stored results of one operation, counterfactual and metric. Each is read once."""

    run: Run
    operation: str
    counterfactual: str
    metric: str
    others: dict[tuple[str, str, str], "Lens"] = field(default_factory=dict, compare=False)
    """All lenses of a table, which share what they have read."""

    def of(self, operation: str, counterfactual: str, metric: str) -> "Lens":
        """Another lens of the same table."""
        key = operation, counterfactual, metric
        return self.others.setdefault(key, Lens(self.run, *key, self.others))

    @property
    def key(self) -> tuple[str, str, str]:
        """The parts of results' names."""
        return self.operation, self.counterfactual, self.metric

    @cached_property
    def effects(self) -> ComponentEffects:
        """The exact effects of all components on all pairs."""
        return results.NODES.load(self.run, *self.key)

    @cached_property
    def head_draws(self) -> Draws:
        """Head means, the strongest the most negative."""
        return self.draws[:-1] * _sign(self.effects.heads)

    @cached_property
    def draws(self) -> Draws:
        """Head means, and last the whole prompt's effect."""
        heads = self.effects.heads
        return _sampled(torch.cat([heads.per_pair.flatten(0, 1), self.whole()[None]]), heads)

    @cached_property
    def grades(self) -> dict[tuple[str, str], np.ndarray | None]:
        """The correlations of methods, by method and part; each is computed once."""
        return {}

    @cached_property
    def mediation(self) -> Mediation:
        """The MLPs that carry the strongest heads' effects."""
        return results.LENS_MEDIATION.load(self.run, *self.key)

    def outcomes(self, test: str) -> Effects:
        """What is answered in one of `TESTS`, [measure set pair]."""
        name = self.operation, self.counterfactual, test.replace(" ", "-")
        return results.LENS_KEPT.load(self.run, *name)

    def exchange(self, metric: str = "digit_contrast") -> Effects:
        """Nothing, the last MLP or everything exchanged, [measure set pair]."""
        name = self.operation, self.counterfactual, metric
        return results.PROMPT_EXCHANGE.load(self.run, *name)

    def whole(self) -> Float[Tensor, " pair"]:
        """The whole prompt's effect on the metric, for each pair."""
        if METRICS[self.metric].share_of == "total":
            return torch.ones(self.effects.heads.n_pairs)
        raw = METRICS[self.metric].share_of == "reference"
        own = self.exchange("logit" if raw else self.metric)
        before, after = (own.per_pair[-1, _set(own, name)] for name in (NOTHING, EVERYTHING))
        return (after - before) / (before if raw else 1)


def _set(answers: Effects, name: str) -> int:
    return (answers.labels or {})["set"].index(name)


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `lenses`: conclusions first, then what they are made from.

    Raises:
        RunError: the run is damaged.
    """
    rows: list[Row] = []
    first = Lens(run, "", "", "")
    for conclusion in CONCLUSIONS:
        metrics = conclusion.metrics or tuple(run.config["metrics"])
        for counterfactual in run.config["counterfactuals"]:
            for metric in metrics:
                if metric in (ANSWER, *run.config["metrics"]):
                    rows += _lens_rows(first, conclusion, counterfactual, metric)
    for key in keys(run.config):
        rows += _number_rows(first.of(*key), is_first=key[-1] == run.config["metrics"][0])
    return QuestionTable.of("lenses", str(run.config["model"]), rows)


def _lens_rows(
    first: Lens, conclusion: Conclusion, counterfactual: str, metric: str
) -> Iterator[Row]:
    """One conclusion under one lens: a row for each operation, and one for all together."""
    about = {"conclusion": conclusion.key, "counterfactual": counterfactual, "metric": metric}
    numbers: list[Number] = []
    verdicts: list[Verdict] = []
    reasons: list[str] = []
    for operation in first.run.config["operations"]:
        number, reason = _decided(conclusion, first.of(operation, counterfactual, metric))
        numbers.append(number)
        verdicts.append(conclusion.verdict(number))
        reasons.append(reason)
        own = {"operation": operation, "verdict": verdicts[-1], "reason": reason}
        yield row(conclusion.measure, number, **about, **own)
    values = [number.value for number in numbers if not isnan(number.value)]
    together = Number(nan, unit=conclusion.unit)
    if values:
        together = over_draws(values, unit=conclusion.unit, what="operations")
    own = {"operation": ALL, "verdict": lens_verdict(verdicts)}
    reason = "" if values else next(filter(None, reasons), "")
    yield row(conclusion.measure, together, **about, **own, reason=reason)


def _decided(conclusion: Conclusion, lens: Lens) -> tuple[Number, str]:
    """The number that decides a conclusion, or NaN and why there is none."""
    run, missing = lens.run, Number(nan, unit=conclusion.unit)
    stored = results.LENS_KEPT.name(lens.operation, lens.counterfactual, "exchanged")
    if stored not in run.names:
        return missing, NOT_COMPUTED
    if lens.metric != ANSWER and not results.NODES.is_in(run, *lens.key):
        return missing, NO_OTHER
    if conclusion.key == "same_heads":
        if (lens.counterfactual, lens.metric) == PAPERS_LENS:
            return missing, THE_LENS_ITSELF
        if not results.NODES.is_in(run, lens.operation, *PAPERS_LENS):
            return missing, NOT_COMPUTED
    number = _MEASURES[conclusion.key](lens)
    if isnan(number.value):
        reads_other = conclusion.key in ("last_mlp_other", "five_exchange")
        return missing, NO_OTHER if reads_other else NOT_COMPUTED
    return replace(number, unit=conclusion.unit), ""


def _number(draws: Float[np.ndarray, " draw"], n: int) -> Number:
    """The estimate, which is the first draw, with the 95% interval of the others."""
    if isnan(draws[0]):
        return Number(nan)
    low, high = np.nanquantile(draws[1:], [0.025, 0.975])
    return Number(float(draws[0]), float(low), float(high), PROBLEMS, n)


def _sampled(values: Float[Tensor, "component pair"], like: Effects) -> Draws:
    """Means of components on all pairs that have all values, then those of resamples.

    Calls with effects on the same pairs draw the same problems.
    """
    finite = values.double().masked_fill(values.isnan().any(0), nan)
    if bool(finite.isnan().all()):
        return np.full((len(values), 2), nan)
    sample = replace(like.sample(), values=finite)
    means = mean_over_strata(finite, sample.strata)[:, None]
    sampled = resampled_means(sample, slice(None), N_RESAMPLES, 0)
    return torch.cat([means, sampled], dim=1).numpy()


def _sign(effects: Effects) -> int:
    """-1 if effects grow with the counterfactual, so that the strongest is the most negative."""
    return -1 if METRICS[effects.metric].share_of == "total" else 1


def _few_heads(lens: Lens) -> Number:
    heads = lens.effects.heads
    return _number((lens.draws[:-1] / lens.draws[-1] >= SHARE).mean(0), n_problems(heads))


def _few_beyond_line(lens: Lens) -> Number:
    effects = lens.effects
    return _number((lens.head_draws < LINE).mean(0), n_problems(effects.heads))


def _late_heads(lens: Lens) -> Number:
    effects = lens.effects
    n_layers, n_heads, _ = effects.heads.per_pair.shape
    strongest = np.argsort(lens.head_draws, axis=0, kind="stable")[:N_MEDIATED]
    depth = (strongest // n_heads) / (n_layers - 1)
    return _number(depth.mean(0), n_problems(effects.heads))


def _same_heads(lens: Lens) -> Number:
    papers = lens.of(lens.operation, *PAPERS_LENS)
    ours, theirs = (
        np.argsort(one.head_draws, axis=0, kind="stable")[:N_MEDIATED] for one in (lens, papers)
    )
    return _number((ours[:, None] == theirs[None]).any(1).mean(0), n_problems(lens.effects.heads))


def _last_mlp_effect(lens: Lens) -> Number:
    mlps = lens.effects.mlps
    if mlps.held_norm is None:
        return Number(nan)
    sampled = _sampled(torch.stack([mlps.held_norm[-1], lens.whole()]), mlps)
    return _number(sampled[0] / sampled[1], n_problems(mlps))


def _exchanged(answers: Effects, measure: int, *sets: str) -> Number:
    """A measure of one set; of two, that of the first less that of the second."""
    if len(sets) == 1:
        own = answers.measure((answers.labels or {})["measure"][measure])
        return interval_numbers(own, "share")[_set(answers, *sets)]
    values = torch.stack([answers.per_pair[measure, _set(answers, name)] for name in sets])
    sampled = _sampled(values, answers)
    return _number(sampled[0] - sampled[1], n_problems(answers))


def _needed(lens: Lens) -> Number:
    answers = lens.outcomes("knocked out")
    names = (answers.labels or {})["set"]
    matched = [i for i, name in enumerate(names) if name.startswith(f"{MATCHED}-{lens.metric}-")]
    strongest = _set(answers, f"{lens.metric} {N_NEEDED}")
    right = answers.per_pair[0]
    sampled = _sampled(torch.stack([right[matched].mean(0), right[strongest]]), answers)
    return _number(sampled[0] - sampled[1], n_problems(answers))


def _mediated_share(share: Callable[[Draws, Draws, Draws], np.ndarray]) -> Callable[[Lens], Number]:
    """A share of the five strongest heads' summed effects, from the sums via all MLPs, without any,
    and [mlp draw] with one MLP held or alone."""

    def number(lens: Lens) -> Number:
        mediation = lens.mediation
        parts = (
            mediation.via_mlps.per_pair.sum(0)[None],
            mediation.direct.per_pair.sum(0)[None],
            mediation.mediated.per_pair.sum(0),
            mediation.mediated_alone.per_pair.sum(0),
        )
        sampled = _sampled(torch.cat(parts), mediation.direct)
        n_mlps = len(parts[2])
        total, direct = sampled[0], sampled[1]
        held, alone = sampled[2 : 2 + n_mlps], sampled[2 + n_mlps :]
        shares = share(direct / total, held / total, alone / total)
        return _number(shares, n_problems(mediation.direct))

    return number


def _correlation(method: str, part: str, less: str = "") -> Callable[[Lens], Number]:
    """Pearson's correlation of a method's mean effects with the exact ones; or of two methods, how
    much larger that of the first is."""

    def number(lens: Lens) -> Number:
        sampled = [_correlation_draws(lens, one, part) for one in (method, less) if one]
        if any(one is None for one in sampled):
            return Number(nan)
        values: Any = sampled[0] if len(sampled) == 1 else sampled[0] - sampled[1]  # pyright: ignore
        return _number(values, n_problems(_graded(lens).heads))

    return number


def _graded(lens: Lens) -> ComponentEffects:
    """The exact effects on the pairs on which attribution is graded."""
    effects = lens.effects
    return selected(effects, graded_pairs(effects.heads.n_pairs, lens.run.config))


def _correlation_draws(lens: Lens, method: str, part: str) -> np.ndarray | None:
    if (method, part) in lens.grades:
        return lens.grades[method, part]
    if not results.LENS_SCORES.is_in(lens.run, *lens.key, method):
        return None
    scores = results.LENS_SCORES.load(lens.run, *lens.key, method)
    sides = [getattr(one, part).per_pair.flatten(0, -2) for one in (scores, _graded(lens))]
    sampled = _sampled(torch.cat(sides), getattr(_graded(lens), part))
    a, b = (side - side.mean(0) for side in np.split(sampled, 2))
    lens.grades[method, part] = (a * b).sum(0) / np.sqrt((a**2).sum(0) * (b**2).sum(0))
    return lens.grades[method, part]


_MEASURES: Mapping[str, Callable[[Lens], Number]] = {
    "few_heads": _few_heads,
    "few_beyond_line": _few_beyond_line,
    "late_heads": _late_heads,
    "same_heads": _same_heads,
    "last_mlp_effect": _last_mlp_effect,
    "last_mlp_answer": lambda lens: _exchanged(lens.exchange(), 0, LAST_MLP),
    "last_mlp_other": lambda lens: _exchanged(lens.exchange(), 1, LAST_MLP),
    "needed": _needed,
    "five_suffice": lambda lens: _exchanged(lens.outcomes("kept"), 0, f"{lens.metric} 5"),
    "fourteen_suffice": lambda lens: _exchanged(lens.outcomes("kept"), 0, f"{lens.metric} 14"),
    "five_exchange": lambda lens: _exchanged(lens.outcomes("exchanged"), 1, f"{lens.metric} 5"),
    "via_mlps": _mediated_share(lambda direct, held, alone: 1 - direct),
    "no_single_mlp": _mediated_share(lambda direct, held, alone: alone.max(0)),
    "last_mlp_carries": _mediated_share(lambda direct, held, alone: held[-1]),
    "atp_sign": _correlation("atp", "mlps"),
    "relp_mlps": _correlation("relp", "mlps"),
    "relp_heads": _correlation("relp", "heads"),
    "atp_heads": _correlation("atp", "heads"),
    "relp_over_eap_ig": _correlation("relp", "heads", "eap_ig"),
    "ig_best": _correlation("ig_activations", "heads", "relp"),
}
"""The number of each conclusion."""


def _number_rows(lens: Lens, *, is_first: bool) -> Iterator[Row]:
    """What the conclusions of one lens are made from; what no metric decides, with the first."""
    about = {
        "conclusion": "",
        "counterfactual": lens.counterfactual,
        "operation": lens.operation,
    }
    rows: list[Row] = []
    done = results.LENS_KEPT.name(lens.operation, lens.counterfactual, "exchanged")
    if done not in lens.run.names:
        return
    if is_first:
        rows += [replace(one, keys={"metric": ANSWER, **one.keys}) for one in _answer_rows(lens)]
    if results.NODES.is_in(lens.run, *lens.key):
        rows += [replace(one, keys={"metric": lens.metric, **one.keys}) for one in _own_rows(lens)]
    for one in rows:
        yield replace(one, keys={**about, **one.keys})


def _answer_rows(lens: Lens) -> Iterator[Row]:
    """The last MLP and the whole prompt exchanged; heads by chance in each test."""
    answers = lens.exchange()
    for index, measure in enumerate((ACCURACY, OTHER)):
        own = answers.measure((answers.labels or {})["measure"][index])
        for name, number in zip(
            (answers.labels or {})["set"], interval_numbers(own, "share"), strict=True
        ):
            if not isnan(number.value):
                yield row(measure, number, part=f"{name} exchanged")
    for test in TESTS:
        yield from _test_rows(lens.outcomes(test), test, RANDOM)


def _own_rows(lens: Lens) -> Iterator[Row]:
    """The last MLP, the strongest heads, the tests of heads, and the grades of attribution."""
    unit: Unit = "relative" if METRICS[lens.metric].share_of else "logit"
    effects = lens.effects
    mlps = effects.mlps
    yield row(EFFECT, interval_numbers(mlps, unit)[-1], part=LAST_MLP)
    if mlps.held_norm is not None:
        yield row(HELD, interval_numbers(mlps.without_norm_scale(), unit)[-1], part=LAST_MLP)
    sampled = _sampled(lens.whole()[None], mlps)
    whole = replace(_number(sampled[0], n_problems(mlps)), unit=unit)
    yield row(EFFECT, whole, part=EVERYTHING)
    heads, (_, n_heads, _) = interval_numbers(effects.heads, unit), effects.heads.per_pair.shape
    for rank, head in enumerate(effects.heads.top(N_NEEDED), start=1):
        number = heads[head.layer * n_heads + head.index]  # pyright: ignore[reportAttributeAccessIssue]
        yield row(EFFECT, number, part=str(head), rank=rank)
    for test in TESTS:
        yield from _test_rows(lens.outcomes(test), test, lens.metric)
    for method, part in product(METHODS, ("heads", "mlps")):
        number = _correlation(method, part)(lens)
        if not isnan(number.value):
            grade = replace(number, unit="correlation")
            yield row("pearson", grade, method=method, part=part.replace("mlps", "MLPs"))


def _test_rows(answers: Effects, test: str, order: str) -> Iterator[Row]:
    """Accuracy, and the share that answers C', by the number of heads; chance's mean over draws."""
    names = (answers.labels or {})["set"]
    for index, measure in enumerate((ACCURACY, OTHER)):
        own = answers.measure((answers.labels or {})["measure"][index])
        by_set = dict(zip(names, interval_numbers(own, "share"), strict=True))
        if any(isnan(number.value) for number in by_set.values()):
            continue
        sampled: dict[tuple[str, int], list[float]] = {}
        for name, number in by_set.items():
            of, _, k = name.rpartition(" ")
            if of == order:
                yield row(measure, number, part=f"heads {test}", order=order, k=int(k))
            elif of.startswith((f"{order}-", f"{MATCHED}-{order}-")):
                kind = MATCHED if of.startswith(MATCHED) else order
                sampled.setdefault((kind, int(k)), []).append(number.value)
        for (kind, k), values in sampled.items():
            yield row(
                measure, over_draws(values, unit="share"), part=f"heads {test}", order=kind, k=k
            )
