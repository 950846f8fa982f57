"""Statistics of maps of mean effects, [layer head] and [layer]; NaN if there is no key head."""

import numpy as np

from arith_lens.effects import KEY, ComponentEffects
from experiments import results
from figures.claims.evidence import Evidence

EXPERIMENT = "which_heads"
NO_KEY = "key heads (an effect below -5%)"
NAN = float("nan")


def stored_effects(evidence: Evidence) -> dict[str, ComponentEffects]:
    """The effects of every component, by operation."""
    return {name: results.MAP.load(run, name) for name, run in evidence.runs(EXPERIMENT).items()}


def below_threshold(heads: np.ndarray) -> np.ndarray:
    """Which heads are key heads of a sample or resample: their effect is below the paper's -5%.

    `arith_lens.effects.key_heads` also tests whether an effect differs from zero. Claims need no
    such test, because the resamples show how sure a number is.
    """
    return heads < KEY["relative_logit"]


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


def mean_by_loss(heads: np.ndarray, values: np.ndarray) -> float:
    """The mean of `values`, weighted by how much each head takes away."""
    size = np.clip(-heads, 0, None)
    return float((size * values).sum() / size.sum())
