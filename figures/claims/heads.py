"""Claims about which heads and MLPs the answer depends on, and where they are (section 5.1).

Some are about one operation, others about what operations, powers and word problems have in common
(Appendices D and E). Each number is a statistic of maps of mean effects, [layer head] of heads and
[layer] of MLPs. A statistic is NaN if there is no key head.
"""

import numpy as np

from arith_lens.effects import KEY, ComponentEffects, Effects, key_heads
from arith_lens.operations import FOUR
from experiments import results
from figures.claims.claim import Measurement
from figures.claims.estimates import estimate, measured, of_each, per_operation
from figures.claims.evidence import HEADS_EXPERIMENT, Evidence
from figures.verdicts import Within

NO_KEY = "key heads (an effect below -5%)"
NAN = float("nan")


def below_threshold(heads: np.ndarray) -> np.ndarray:
    """Which heads are key heads of a sample or resample: their effect is below the paper's -5%.

    `arith_lens.effects.key_heads` also tests whether an effect differs from zero. Claims need no
    such test, because the resamples show how sure a number is.
    """
    return heads < KEY["relative_logit"]


def strongest(heads: np.ndarray) -> float:
    """The most negative effect."""
    return float(np.nanmin(heads))


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


def mean_by_loss(heads: np.ndarray, values: np.ndarray) -> float:
    """The mean of `values`, weighted by how much each head takes away."""
    size = np.clip(-heads, 0, None)
    return float((size * values).sum() / size.sum())


def maps_by_operation(evidence: Evidence) -> dict[str, ComponentEffects]:
    """The effects of every component, by operation."""
    runs = evidence.runs(HEADS_EXPERIMENT)
    return {name: results.MAP.load(run, name) for name, run in runs.items()}


def _heads(evidence: Evidence) -> dict[str, tuple[Effects]]:
    return {name: (effects.heads,) for name, effects in maps_by_operation(evidence).items()}


def _with_strongest(evidence: Evidence) -> dict[str, tuple[Effects]]:
    """The effects of heads; the name of each operation with that of its strongest head."""
    of_operations = _heads(evidence).items()
    return {f"{name} (head {heads.top(1)[0]})": (heads,) for name, (heads,) in of_operations}


def _heads_and_mlps(evidence: Evidence) -> dict[str, tuple[Effects, Effects]]:
    return {
        name: (effects.heads, effects.mlps) for name, effects in maps_by_operation(evidence).items()
    }


def _direct_and_via_mlps(evidence: Evidence) -> dict[str, tuple[Effects, ...]]:
    """The effects of the heads that were measured on both kinds of paths."""
    parts = {}
    for name, run in evidence.runs("which_paths").items():
        both = [
            results.PATH_EFFECTS.load(run, name, paths).heads for paths in ("direct", "via_mlps")
        ]
        measured = ~both[0].per_pair.isnan().all(-1)
        parts[f"{name} ({int(measured.sum())} heads)"] = tuple(
            Effects(e.per_pair[measured], ("sender",), e.metric, **e.units) for e in both
        )
    return parts


strongest_head = of_each(_with_strongest, strongest, "heads", "relative")
sparse_effect = of_each(_heads, share_of_few, NO_KEY)
middle_layers = of_each(_heads, share_in_middle, NO_KEY)
no_early_key_heads = of_each(_heads, n_early, NO_KEY, "count")
mlps_before = of_each(
    _heads_and_mlps, largest_before, "an MLP below its first key head", "relative"
)
mlps_after = of_each(_heads_and_mlps, mean_after, NO_KEY, "relative")
via_mlps = of_each(_direct_and_via_mlps, share_via_mlps, "heads", "relative")


def _heads_of(evidence: Evidence, *names: str) -> list[Effects]:
    effects = maps_by_operation(evidence)
    return [effects[name].heads for name in names or FOUR]


def few_key_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The share of heads that are key in each operation; beside it, of those key in any of them."""
    of_each_operation = of_each(_heads, share_of_key, NO_KEY)(evidence, rule)
    in_any = estimate("in any of the operations", share_in_any, *_heads_of(evidence))
    findings = (*of_each_operation.findings, *([in_any] if in_any else []))
    return Measurement(findings, of_each_operation.note)


def shared_key_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The share of key heads that all operations have; beside it, two measures of two."""
    heads = _heads_of(evidence)
    title = "key in all four, of those key in any"
    all_four = estimate(title, key_in_all, *heads, rule=rule)
    overlap = estimate("overlap of two (Jaccard)", mean_overlap, *heads, unit="ratio")
    title = "rank correlation of all heads' effects in two"
    ranks = estimate(title, rank_correlation, *heads, unit="correlation")
    return measured(all_four, overlap, ranks, missing=f"no {NO_KEY}")


def addition_like_subtraction(evidence: Evidence, rule: Within) -> Measurement:
    """The overlap of two operations' key heads."""
    heads = _heads_of(evidence, "addition", "subtraction")
    title = "overlap of the key heads (Jaccard)"
    overlap = estimate(title, key_in_all, *heads, unit="ratio", rule=rule)
    title = "rank correlation of all heads' effects"
    ranks = estimate(title, rank_correlation, *heads, unit="correlation")
    return measured(overlap, ranks, missing=f"no {NO_KEY}")


def more_heads_for_products(evidence: Evidence, rule: Within) -> Measurement:
    """How many more key heads products and quotients have."""
    heads = _heads_of(evidence)
    title = "the smaller number of × and ÷ less the larger of + and −"
    number = estimate(title, how_many_more, *heads, unit="count", rule=rule)
    counts = ", ".join(
        f"{name} {len(key_heads(effects))}" for name, effects in zip(FOUR, heads, strict=True)
    )
    return measured(number, missing=f"no {NO_KEY}", note=f"Key heads: {counts}.")


def wording_title(name: str) -> str:
    """The title of a wording: exponentiation-0 is `2 ^ 3`, exponentiation-1 is `2 to the power`."""
    kind, _, number = name.rpartition("-")
    return f"{kind}, wording {int(number) + 1}"


def powers_share_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The share of the key heads of powers that others have too."""
    run = evidence.run("do_powers_use_them")
    four = _heads_of(evidence)

    def share(power, *four) -> float:
        key = below_threshold(power)
        others = sum(below_threshold(effects).astype(int) for effects in four) > 0
        return float((key & others).sum() / key.sum()) if key.any() else NAN

    numbers = {
        wording_title(name): estimate(
            wording_title(name), share, results.MAP.load(run, name).heads, *four, rule=rule
        )
        for name in results.KNOCKOUT_CURVES.labels(run)
    }
    return per_operation(numbers, missing=NO_KEY)


def word_problems_share_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The share of the strongest heads in common."""
    run = evidence.run("do_word_problems_use_them")
    both = [
        results.POOLED_MAP.load(run).heads,
        results.MAP.load(run, "word_problems").heads,
    ]
    k = int(run.config["heads"])
    number = estimate(f"of {k} heads", lambda a, b: top_overlap(a, b, k), *both, rule=rule)
    chance = k / both[0].mean().numel()
    return measured(number, missing="no heads", note=f"By chance {chance:.1%}.")
