"""Statistics of maps of effects: how strong heads are, how few, where, and what maps share.

Each is a function of maps of mean effects, [layer head] of heads and [layer] of MLPs, and is NaN if
there is no key head. The functions whose names end in `rows` make rows of them, each with an
interval over problems. Their keys: operation (or the wording of a power); heads, in words.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from arith_lens.effects import KEY, ComponentEffects, Effects, key_heads
from arith_lens.runs import Run
from experiments import results
from figures.tables.number import Number, Unit
from figures.tables.resampled import NAN, resampled_number, statistic_rows
from figures.tables.table import Row, interval_numbers, row


def below_threshold(heads: np.ndarray) -> np.ndarray:
    """Which heads are key heads of a sample or resample: their effect is below the paper's -5%.

    `arith_lens.effects.key_heads` also tests whether an effect differs from zero. Claims need no
    such test, because the resamples show how sure a number is.
    """
    return heads < KEY["relative_logit"]


def share_via_mlps(direct: np.ndarray, via: np.ndarray) -> float:
    """What the direct effects leave of the effects via MLPs, as a share."""
    return float(1 - direct.sum() / via.sum())


def share_of_key(heads: np.ndarray) -> float:
    """The share of heads that are key heads."""
    key = below_threshold(heads)
    return float(key.mean()) if key.any() else NAN


def share_of_few(heads: np.ndarray, few: float = 0.05) -> float:
    """The share of the summed negative effects that the strongest 5% of the heads have."""
    ranked = np.sort(np.nan_to_num(heads).ravel())
    away = ranked[ranked < 0].sum()
    return float(ranked[: int(few * ranked.size)].sum() / away) if away else NAN


def share_in_middle(heads: np.ndarray) -> float:
    """The share of the key heads' summed effect that is in the middle half of the layers."""
    key = np.where(below_threshold(heads), heads, 0.0)
    layers = np.arange(len(heads))
    middle = (layers >= len(heads) / 4) & (layers < 3 * len(heads) / 4)
    return float(key[middle].sum() / key.sum()) if key.any() else NAN


def n_early(heads: np.ndarray, until: float = 12 / 32) -> float:
    """The number of key heads in the first layers, up to a share of the depth."""
    key = below_threshold(heads)
    early = np.arange(len(heads)) < until * len(heads)
    return float(key[early].sum()) if key.any() else NAN


def first_key_layer(heads: np.ndarray) -> int | None:
    """The lowest layer that has a key head."""
    layers = np.flatnonzero(below_threshold(heads).any(1))
    return int(layers[0]) if len(layers) else None


def largest_before(heads: np.ndarray, mlps: np.ndarray) -> float:
    """The largest effect, whatever its sign, of the MLPs below the first key head."""
    first = first_key_layer(heads)
    return float(np.abs(mlps[:first]).max()) if first else NAN


def mean_after(heads: np.ndarray, mlps: np.ndarray) -> float:
    """The mean effect, whatever its sign, of the MLPs from the first key head's layer on."""
    first = first_key_layer(heads)
    return NAN if first is None else float(np.abs(mlps[first:]).mean())


def key_in_all(*maps: np.ndarray) -> float:
    """The number of heads that are key in all maps, divided by those that are key in any."""
    keys = np.stack([below_threshold(effects) for effects in maps])
    some = keys.any(0).sum()
    return float(keys.all(0).sum() / some) if some else NAN


def share_in_any(*maps: np.ndarray) -> float:
    """The share of heads that are key heads in any of the maps."""
    key = np.any([below_threshold(effects) for effects in maps], axis=0)
    return float(key.mean()) if key.any() else NAN


def mean_overlap(*maps: np.ndarray) -> float:
    """The Jaccard overlap of the key heads of two maps, mean over the pairs with key heads."""
    overlaps = [key_in_all(a, b) for i, a in enumerate(maps) for b in maps[i + 1 :]]
    return float(np.nanmean(overlaps)) if not np.isnan(overlaps).all() else NAN


def rank_correlation(*maps: np.ndarray) -> float:
    """Spearman's correlation of all heads' effects, mean over the pairs of maps."""
    ranks = [np.argsort(np.argsort(effects.ravel())) for effects in maps]
    between = np.asarray(np.corrcoef(ranks))[np.triu_indices(len(ranks), 1)]
    return float(between.mean())


def how_many_more(plus: np.ndarray, minus: np.ndarray, *others: np.ndarray) -> float:
    """The smallest number of key heads in the other operations, less the larger of + and -."""
    counts = [int(below_threshold(effects).sum()) for effects in (plus, minus, *others)]
    return float(min(counts[2:]) - max(counts[:2])) if any(counts) else NAN


def top_overlap(a: np.ndarray, b: np.ndarray, k: int) -> float:
    """The share of the k strongest heads that two maps have in common."""
    strongest = [
        {*np.argsort(np.nan_to_num(effects, nan=np.inf).ravel())[:k]} for effects in (a, b)
    ]
    return len(strongest[0] & strongest[1]) / k


STRONGEST, SHARE_OF_KEY, SHARE_OF_FEW = (
    "strongest effect",
    "share of heads that are key heads",
    "share of the effect in the strongest 5% of the heads",
)
SHARE_IN_MIDDLE, N_EARLY = "share of the key heads' effect in the middle layers", "early key heads"
MLPS_BEFORE, MLPS_AFTER = (
    "largest effect of an MLP before the key heads",
    "mean effect of the MLPs from the key heads on",
)
STATISTICS: Mapping[str, tuple[Callable[..., float], Unit, Literal["heads", "heads and MLPs"]]] = {
    SHARE_OF_KEY: (share_of_key, "share", "heads"),
    SHARE_OF_FEW: (share_of_few, "share", "heads"),
    SHARE_IN_MIDDLE: (share_in_middle, "share", "heads"),
    N_EARLY: (n_early, "count", "heads"),
    MLPS_BEFORE: (largest_before, "relative", "heads and MLPs"),
    MLPS_AFTER: (mean_after, "relative", "heads and MLPs"),
}
"""The statistics of one operation's map: the function, its unit, and what it reads."""
VIA_MLPS = "share of the effect that is gone on the direct path"
SHARE_IN_ANY = "share of heads that are key heads of any operation"
IN_ALL, IN_TWO = "heads key in all, of those key in any", "overlap of the key heads of two"
RANKS, MORE_HEADS = "rank correlation of all heads in two", "more key heads in × and ÷"
KEY_HEADS, IN_FOUR = "key heads", "share of key heads that other operations have too"
TOP_IN_COMMON, BY_CHANCE = "share of the strongest heads in common", "share by chance"


def loaded(runs: Mapping[str, Run]) -> dict[str, ComponentEffects]:
    """The map of each operation, from its run of `which_heads`."""
    return {name: results.MAP.load(run, name) for name, run in runs.items()}


def map_rows(measure: str, runs: Mapping[str, Run]) -> Iterator[Row]:
    """One of `STATISTICS` of each operation.

    Args:
        measure: its name, or `STRONGEST`.
        runs: the run of `which_heads` of each operation.
    """
    maps = loaded(runs)
    if measure == STRONGEST:
        return _strongest_rows(maps)
    statistic, unit, reads = STATISTICS[measure]
    samples = {
        name: (effects.heads,) if reads == "heads" else (effects.heads, effects.mlps)
        for name, effects in maps.items()
    }
    return statistic_rows(measure, statistic, samples, unit=unit)


def _strongest_rows(maps: Mapping[str, ComponentEffects]) -> Iterator[Row]:
    """The strongest head of each operation, with the mean and the interval that its map has."""
    for name, effects in maps.items():
        for head in effects.heads.top(1):
            (number,) = interval_numbers(effects.heads[str(head)], "relative")
            number = replace(number, freedom=max(1, (number.n or 2) - 1))
            yield row(STRONGEST, number, operation=name, heads=f"head {head}")


def path_rows(runs: Mapping[str, Run]) -> Iterator[Row]:
    """What the direct path leaves of the effects of the heads that `which_paths` measured."""
    samples, heads = {}, {}
    for name, run in runs.items():
        both = [
            results.PATH_EFFECTS.load(run, name, paths).heads for paths in ("direct", "via_mlps")
        ]
        has_value = ~both[0].per_pair.isnan().all(-1)
        heads[name] = f"{int(has_value.sum())} heads"
        samples[name] = tuple(
            Effects(e.per_pair[has_value], ("sender",), e.metric, **e.units) for e in both
        )
    return statistic_rows(VIA_MLPS, share_via_mlps, samples, heads, unit="relative")


def any_rows(runs: Mapping[str, Run]) -> Iterator[Row]:
    """The share of heads that are key heads of any operation."""
    heads = [effects.heads for effects in loaded(runs).values()]
    number = resampled_number(share_in_any, *heads)
    if number is not None:
        yield row(SHARE_IN_ANY, number, operation=", ".join(runs))


def shared_rows(runs: Mapping[str, Run]) -> Iterator[Row]:
    """What the maps of some operations share, and how many key heads each has."""
    maps = loaded(runs)
    heads = [effects.heads for effects in maps.values()]
    names = ", ".join(maps)
    shared: Mapping[str, tuple[Callable[..., float], Unit]] = {
        IN_ALL: (key_in_all, "share"),
        IN_TWO: (mean_overlap, "ratio"),
        RANKS: (rank_correlation, "correlation"),
    }
    for measure, (statistic, unit) in shared.items():
        number = resampled_number(statistic, *heads, unit=unit)
        if number is not None:
            yield row(measure, number, operation=names)


def more_heads_rows(runs: Mapping[str, Run]) -> Iterator[Row]:
    """How many more key heads products and quotients have, and the key heads of each operation."""
    heads = [effects.heads for effects in loaded(runs).values()]
    number = resampled_number(how_many_more, *heads, unit="count")
    if number is not None:
        yield row(MORE_HEADS, number, operation=", ".join(runs))
    for name, effects in zip(runs, heads, strict=True):
        yield row(KEY_HEADS, Number(len(key_heads(effects)), unit="count"), operation=name)


def power_rows(power_run: Run, runs: Mapping[str, Run]) -> Iterator[Row]:
    """The share of the key heads of powers that one of the four operations has too, per wording."""
    four = [effects.heads for effects in loaded(runs).values()]

    def share(power: np.ndarray, *four: np.ndarray) -> float:
        key = below_threshold(power)
        others = sum(below_threshold(effects).astype(int) for effects in four) > 0
        return float((key & others).sum() / key.sum()) if key.any() else NAN

    for wording in results.KNOCKOUT_CURVES.labels(power_run):
        heads = results.MAP.load(power_run, wording).heads
        number = resampled_number(share, heads, *four)
        if number is not None:
            yield row(IN_FOUR, number, operation=wording)


def word_problem_rows(run: Run) -> Iterator[Row]:
    """The share of strongest heads in both kinds of prompts, and the share by chance."""
    both = [results.POOLED_MAP.load(run).heads, results.MAP.load(run, "word_problems").heads]
    k = int(run.config["heads"])
    heads = f"{k} heads"
    number = resampled_number(lambda a, b: top_overlap(a, b, k), *both)
    if number is not None:
        yield row(TOP_IN_COMMON, number, heads=heads)
    yield row(BY_CHANCE, Number(k / both[0].mean().numel()), heads=heads)
