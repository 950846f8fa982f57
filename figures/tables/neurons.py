"""The table `neurons`: what single neurons do, beside nulls that can fail.

Keys: kind (see `KINDS`); family of rules; neurons, whose they are ("trained", "untrained" or
"noise"); class, the rule that its neurons follow; ranking ("direct", "via_mlps" or "gradient") of
the neurons that are kept alone, and k, how many they are.
"""

from collections.abc import Iterator

import numpy as np
import torch

from arith_lens.components import Mlp
from arith_lens.effects import Effects
from arith_lens.neurons.matching import PRECISION
from arith_lens.runs import Run
from arith_lens.statistics import resampled_means
from experiments import results
from experiments.neurons import (
    NOISE,
    OPERATION,
    PUBLISHED,
    RANKINGS,
    REMOVAL,
    TRAINED,
    UNTRAINED,
)
from figures.tables.number import PROBLEMS, Number, over_draws
from figures.tables.table import QuestionTable, Row, n_problems, row

KINDS = ("rule", "published", "class", "overlap", "kept")
"""Neurons that follow rules; the published rule; knockouts of classes; the strongest neurons by
direct effects and by effects via MLPs; neurons kept alone."""
FOLLOW = "neurons that follow a rule"
AUC, NULL = "largest AUC", "99% of untrained neurons have less"
EFFECT_SHARE = "share of the sizes of effects of neurons that follow a rule"
PASS = f"neurons with a precision of {PRECISION} or more"
DIFFERENCE, RANDOM = "loss on related less loss on other problems", "the same for random neurons"
P, SIGNIFICANT = "p after Holm", "classes with p below 5%"
OVERLAP = "strongest 1% in early layers that both have in common"
FAITHFUL, ENOUGH = "faithfulness", "neurons from which on faithfulness is 90%"
ANY, EVERY = "any", "all"
EARLY, STRONGEST, ENOUGH_FAITH, LEVEL = 0.75, 0.01, 0.9, 0.05
N_RESAMPLES = 200


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `neurons`. Raises RunError if it is damaged."""
    rows = [*_rule_rows(run), *_published_rows(run), *_class_rows(run)]
    rows += [*_overlap_rows(run), *_kept_rows(run)]
    return QuestionTable.of("neurons", str(run.config["model"]), rows)


def _rule_rows(run: Run) -> Iterator[Row]:
    """How many neurons follow a rule of each family, and of any."""
    matches = results.HEURISTIC_MATCHES.load(run, TRAINED)
    inside = matches.implements()
    for index, family in enumerate(matches.families):
        keys = {"kind": "rule", "family": family}
        yield row(FOLLOW, _share(inside[index]), **keys)
        yield row(AUC, Number(float(matches.auc[index].max())), **keys)
        if not bool(matches.untrained[index].isnan()):
            yield row(NULL, Number(float(matches.untrained[index])), **keys)
    any_rule = inside.any(0)
    yield row(FOLLOW, _share(any_rule), kind="rule", family=ANY)
    sizes = results.NEURON_SCORES.load(run, REMOVAL, TRAINED).per_pair.flatten()
    share = Number(float(sizes[any_rule].sum() / sizes.sum()))
    yield row(EFFECT_SHARE, share, kind="rule", family=ANY)


def _share(chosen: torch.Tensor) -> Number:
    return Number(float(chosen.float().mean()), n=len(chosen))


def _published_rows(run: Run) -> Iterator[Row]:
    """How many neurons pass the published rule, trained, untrained and noise."""
    for label in (TRAINED, NOISE):
        yield row(PASS, _passing(run, label), kind="published", neurons=label)
    seeds = range(int(run.config["untrained"]))
    shares = [_passing(run, UNTRAINED.format(seed)).value for seed in seeds]
    if shares:
        number = over_draws(shares, unit="share", what="untrained models")
        yield row(PASS, number, kind="published", neurons="untrained")


def _passing(run: Run, label: str) -> Number:
    scores = results.NEURON_SCORES.load(run, PUBLISHED, label).per_pair.flatten()
    return _share(scores >= PRECISION)


def _class_rows(run: Run) -> Iterator[Row]:
    """The knockout of each class, and its null."""
    knockouts = results.CLASS_KNOCKOUTS.load(run, OPERATION)
    holm = knockouts.holm() if knockouts.classes else torch.zeros(0)
    for index, name in enumerate(knockouts.classes):
        keys = {"kind": "class", "class": name}
        difference = Number(float(knockouts.difference[index]), unit="logit")
        yield row(DIFFERENCE, difference, **keys)
        null = over_draws(knockouts.null[index].numpy(), unit="logit", what="random sets")
        yield row(RANDOM, null, **keys)
        yield row(P, Number(float(holm[index]), n=knockouts.n_related[index], unit="p"), **keys)
        count = Number(knockouts.n_neurons[index], unit="count")
        yield row("neurons", count, **keys)
    if knockouts.classes:
        yield row(SIGNIFICANT, _share(holm < LEVEL), kind="class", **{"class": EVERY})


def _overlap_rows(run: Run) -> Iterator[Row]:
    """What the strongest neurons of early MLPs by both kinds of effects have in common."""
    both = [results.NEURON_EFFECTS.load(run, OPERATION, paths) for paths in RANKINGS[:2]]
    layers = [Mlp.parse(name).layer for name in (both[0].labels or {})["mlp"]]
    early = [i for i, layer in enumerate(layers) if layer < EARLY * len(layers)]
    means = [effects.mean()[early].flatten() for effects in both]
    draws = [_draws(effects, early) for effects in both]
    sampled = [_in_common(*pair) for pair in zip(*draws, strict=True)]
    low, high = np.quantile(sampled, [0.025, 0.975])
    number = Number(
        _in_common(*means), float(low), float(high), PROBLEMS, n_problems(both[0]), "share"
    )
    yield row(OVERLAP, number, kind="overlap")


def _draws(effects: Effects, early: list[int]) -> torch.Tensor:
    """The mean effects of early neurons in resamples of the problems, [resample neuron]."""
    own = Effects(
        effects.per_pair[early].flatten(0, 1), ("neuron",), effects.metric, **effects.units
    )
    return resampled_means(own.sample(), slice(None), N_RESAMPLES, 0).T


def _in_common(first: torch.Tensor, second: torch.Tensor) -> float:
    """The share of the strongest of the first that are among the strongest of the second."""
    n = max(1, round(STRONGEST * len(first)))
    strongest = [{*means.abs().topk(n).indices.tolist()} for means in (first, second)]
    return len(strongest[0] & strongest[1]) / n


def _kept_rows(run: Run) -> Iterator[Row]:
    """The faithfulness of the first neurons of each ranking, and how many are enough."""
    for ranking in RANKINGS:
        curve = results.NEURON_CURVE.load(run, OPERATION, ranking)
        n = n_problems(curve.effects())
        keys = {"kind": "kept", "ranking": ranking}
        for one in curve.to_dataframe().to_dict("records"):
            ends = one["faithfulness_low"], one["faithfulness_high"]
            number = Number(one["faithfulness"], *ends, PROBLEMS, n, "relative")
            yield row(FAITHFUL, number, **keys, k=int(one["size"]))
        enough = [
            k for k, f in zip(curve.sizes, curve.faithfulness(), strict=True) if f >= ENOUGH_FAITH
        ]
        yield row(ENOUGH, Number(min(enough), unit="count", n=n), **keys)
