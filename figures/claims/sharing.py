"""Claims about heads that serve several operations, powers and word problems (5.1, D, E)."""

from arith_lens.effects import Effects, key_heads
from arith_lens.knockout.outcomes import drop
from arith_lens.operations import FOUR
from arith_lens.runs import Run
from experiments import results
from figures.claims import effect_maps
from figures.claims.changes import change_over_draws, control_numbers, relative_loss
from figures.claims.claim import Measurement, Number, Within
from figures.claims.effect_maps import NO_KEY, stored_effects
from figures.claims.estimate import estimate, measured, per_operation
from figures.claims.evidence import Evidence, NotMeasured

POWERS_EXPERIMENT = "do_powers_use_them"
WORD_PROBLEMS_EXPERIMENT = "do_word_problems_use_them"


def _heads(evidence: Evidence, names: tuple[str, ...] = FOUR) -> list[Effects]:
    effects = stored_effects(evidence)
    return [effects[name].heads for name in names]


def shared_key_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The share of key heads that all operations have; beside it, two measures of two."""
    heads = _heads(evidence)
    title = "key in all four, of those key in any"
    all_four = estimate(title, effect_maps.key_in_all, *heads, rule=rule)
    overlap = estimate("overlap of two (Jaccard)", effect_maps.mean_overlap, *heads, unit="ratio")
    title = "rank correlation of all heads' effects in two"
    ranks = estimate(title, effect_maps.rank_correlation, *heads, unit="ratio")
    return measured(all_four, overlap, ranks, missing=f"no {NO_KEY}")


def addition_like_subtraction(evidence: Evidence, rule: Within) -> Measurement:
    """The overlap of two operations' key heads."""
    heads = _heads(evidence, ("addition", "subtraction"))
    title = "overlap of the key heads (Jaccard)"
    overlap = estimate(title, effect_maps.key_in_all, *heads, unit="ratio", rule=rule)
    title = "rank correlation of all heads' effects"
    ranks = estimate(title, effect_maps.rank_correlation, *heads, unit="ratio")
    return measured(overlap, ranks, missing=f"no {NO_KEY}")


def more_heads_for_products(evidence: Evidence, rule: Within) -> Measurement:
    """How many more key heads products and quotients have."""
    heads = _heads(evidence)
    title = "the smaller number of × and ÷ less the larger of + and −"
    number = estimate(title, effect_maps.how_many_more, *heads, unit="count", rule=rule)
    counts = ", ".join(
        f"{name} {len(key_heads(effects))}" for name, effects in zip(FOUR, heads, strict=True)
    )
    return measured(number, missing=f"no {NO_KEY}", note=f"Key heads: {counts}.")


def _title(name: str) -> str:
    """The title of a wording: exponentiation-0 is `2 ^ 3`, exponentiation-1 is `2 to the power`."""
    kind, _, number = name.rpartition("-")
    return f"{kind}, wording {int(number) + 1}"


def powers_share_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The share of the key heads of powers that others have too."""
    run = evidence.run(POWERS_EXPERIMENT)
    four = _heads(evidence)

    def share(power, *four) -> float:
        key = effect_maps.below_threshold(power)
        others = sum(effect_maps.below_threshold(effects).astype(int) for effects in four) > 0
        return float((key & others).sum() / key.sum()) if key.any() else effect_maps.NAN

    numbers = {
        _title(name): estimate(
            _title(name), share, results.MAP.load(run, name).heads, *four, rule=rule
        )
        for name in results.KNOCKOUT_CURVES.labels(run)
    }
    return per_operation(numbers, missing=NO_KEY)


def powers_need_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The relative loss without the key heads of powers."""
    run = evidence.run(POWERS_EXPERIMENT)
    numbers: dict[str, Number | None] = {}
    other_numbers: list[Number] = []
    for name in results.KNOCKOUT_CURVES.labels(run):
        curves = results.KNOCKOUT_CURVES.load(run, name)
        curve = curves["effect"]
        k = curve.ks[-1]
        change = curve.drop(k).accuracy if k else None
        title = _title(name)
        numbers[title] = change and relative_loss(f"{title} ({k} heads)", change, rule)
        draws = results.controls_at(curves, k) if k else {}
        changes = {kind: change_over_draws(curve.at(0), after) for kind, after in draws.items()}
        other_numbers += control_numbers(f"{title}, without {k} heads", changes)
    return per_operation(numbers, other_numbers, missing=NO_KEY)


def word_problems_share_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The share of the strongest heads in common."""
    run = evidence.run(WORD_PROBLEMS_EXPERIMENT)
    both = [
        results.POOLED_MAP.load(run).heads,
        results.MAP.load(run, "word_problems").heads,
    ]
    k = int(run.config["heads"])
    number = estimate(
        f"of {k} heads", lambda a, b: effect_maps.top_overlap(a, b, k), *both, rule=rule
    )
    chance = k / both[0].mean().numel()
    return measured(number, missing="no heads", note=f"By chance {chance:.1%}.")


def _knocked(run: Run, heads: str, prompts: str, rule: Within) -> Number:
    """The relative loss of accuracy on some prompts without some heads."""
    before, after = (results.OUTCOMES.load(run, label, prompts) for label in ("none", heads))
    change = drop(before, after).accuracy
    n = len(results.OUTCOMES.facts(run, heads, prompts)["heads"])
    return relative_loss(f"{prompts.replace('_', ' ')}, without {n} heads", change, rule)


def _controls(run: Run, prompts: str) -> list[Number]:
    """The change of accuracy on some prompts without control heads, in points."""
    before = results.OUTCOMES.load(run, "none", prompts)
    changes = {
        kind: change_over_draws(before, after)
        for kind, after in results.control_outcomes(run, prompts).items()
    }
    return control_numbers(
        f"{prompts.replace('_', ' ')}, without {run.config['heads']} heads", changes
    )


def word_problems_need_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The relative loss without the strongest heads of word problems."""
    run, on = evidence.run(WORD_PROBLEMS_EXPERIMENT), "word_problems"
    return Measurement((_knocked(run, on, on, rule), *_controls(run, on)))


def common_heads_matter_in_both(evidence: Evidence, rule: Within) -> Measurement:
    """The relative loss on both kinds without the heads in common."""
    run = evidence.run(WORD_PROBLEMS_EXPERIMENT)
    if not results.OUTCOMES.facts(run, "overlap", "generated")["heads"]:
        raise NotMeasured("the two kinds of prompt have no strongest head in common")
    kinds = ("generated", "word_problems")
    numbers = [_knocked(run, "overlap", on, rule) for on in kinds]
    return Measurement((*numbers, *(number for on in kinds for number in _controls(run, on))))
