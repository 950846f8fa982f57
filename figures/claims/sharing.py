"""Claims about heads that serve several operations, powers and word problems (5.1, D, E)."""

from arith_lens.effects import Effects, key_heads
from arith_lens.knockout.outcomes import drop
from arith_lens.operations import FOUR
from arith_lens.runs import Run
from experiments import results
from figures.claims import effect_maps
from figures.claims.claim import Claim, Measurement, Number, Within
from figures.claims.controls import change_over_draws, control_numbers
from figures.claims.effect_maps import EXPERIMENT, NO_KEY, effects_of
from figures.claims.estimate import estimate, per_operation, required
from figures.claims.evidence import Evidence, NotMeasured

POWERS = "do_powers_use_them"
WORDS = "do_word_problems_use_them"


def _heads(evidence: Evidence, names: tuple[str, ...] = FOUR) -> list[Effects]:
    effects = effects_of(evidence)
    return [effects[name].heads for name in names]


def optional(number: Number | None) -> tuple[Number, ...]:
    return () if number is None else (number,)


def _shared(evidence: Evidence) -> Measurement:
    heads = _heads(evidence)
    title = "key in all four, of those key in any"
    all_four = estimate(title, effect_maps.key_in_all, *heads, rule=Within(above=0.5))
    overlap = estimate("overlap of two (Jaccard)", effect_maps.mean_overlap, *heads, unit="ratio")
    title = "rank correlation of all heads' effects in two"
    ranks = estimate(title, effect_maps.rank_correlation, *heads, unit="ratio")
    return Measurement((required(all_four, f"no {NO_KEY}"), *optional(overlap), *optional(ranks)))


def _alike(evidence: Evidence) -> Measurement:
    heads = _heads(evidence, ("addition", "subtraction"))
    title = "overlap of the key heads (Jaccard)"
    overlap = estimate(title, effect_maps.key_in_all, *heads, unit="ratio", rule=Within(above=0.8))
    title = "rank correlation of all heads' effects"
    ranks = estimate(title, effect_maps.rank_correlation, *heads, unit="ratio")
    return Measurement((required(overlap, f"no {NO_KEY}"), *optional(ranks)))


def _more(evidence: Evidence) -> Measurement:
    heads = _heads(evidence)
    title = "the smaller number of × and ÷ less the larger of + and −"
    number = estimate(title, effect_maps.how_many_more, *heads, unit="count", rule=Within(above=0))
    counts = ", ".join(
        f"{name} {len(key_heads(effects))}" for name, effects in zip(FOUR, heads, strict=True)
    )
    return Measurement((required(number, f"no {NO_KEY}"),), f"Key heads: {counts}.")


def _wordings(run: Run) -> list[str]:
    """The wordings of powers, such as exponentiation-0."""
    return [*results.CURVES.labels(run)]


def _title(name: str) -> str:
    """The title of a wording: exponentiation-0 is `2 ^ 3`, exponentiation-1 is `2 to the power`."""
    kind, _, number = name.rpartition("-")
    return f"{kind}, wording {int(number) + 1}"


def _powers_share(evidence: Evidence) -> Measurement:
    run = evidence.run(POWERS)
    four = _heads(evidence)

    def share(power, *four) -> float:
        key = effect_maps.below_threshold(power)
        others = sum(effect_maps.below_threshold(effects).astype(int) for effects in four) > 0
        return float((key & others).sum() / key.sum()) if key.any() else effect_maps.NAN

    numbers = {
        _title(name): estimate(
            _title(name), share, results.MAP.load(run, name).heads, *four, rule=Within(above=0.5)
        )
        for name in _wordings(run)
    }
    return per_operation(numbers, missing=NO_KEY)


def _powers_need(evidence: Evidence) -> Measurement:
    run = evidence.run(POWERS)
    numbers: dict[str, Number | None] = {}
    beside: list[Number] = []
    for name in _wordings(run):
        curves = results.CURVES.load(run, name)
        curve = curves["effect"]
        k = curve.ks[-1]
        change = curve.drop(k).accuracy if k else None
        title = _title(name)
        numbers[title] = change and Number(
            f"{title} ({k} heads)", change.relative, *change.relative_ci, "%", Within(below=-0.6)
        )
        draws = results.controls_at(curves, k) if k else {}
        changes = {kind: change_over_draws(curve.at(0), after) for kind, after in draws.items()}
        beside += control_numbers(f"{title}, without {k} heads", changes)
    measurement = per_operation(numbers, missing=NO_KEY)
    return Measurement((*measurement.numbers, *beside), measurement.note)


def _words_share(evidence: Evidence) -> Measurement:
    run = evidence.run(WORDS)
    both = [
        results.POOLED_MAP.load(run).heads,
        results.MAP.load(run, "word_problems").heads,
    ]
    k = int(run.config["heads"])
    rule = Within(above=0.5)
    number = estimate(
        f"of {k} heads", lambda a, b: effect_maps.top_overlap(a, b, k), *both, rule=rule
    )
    chance = k / both[0].mean().numel()
    return Measurement((required(number, "no heads"),), f"By chance {chance:.1%}.")


def _knocked(run: Run, heads: str, prompts: str, rule: Within) -> Number:
    """The relative loss of accuracy on some prompts without some heads."""
    before, after = (results.OUTCOMES.load(run, label, prompts) for label in ("none", heads))
    change = drop(before, after).accuracy
    n = len(results.OUTCOMES.facts(run, heads, prompts)["heads"])
    title = f"{prompts.replace('_', ' ')}, without {n} heads"
    return Number(title, change.relative, *change.relative_ci, "%", rule)


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


def _words_need(evidence: Evidence) -> Measurement:
    run, on = evidence.run(WORDS), "word_problems"
    return Measurement((_knocked(run, on, on, Within(below=-0.6)), *_controls(run, on)))


def _overlap_needed(evidence: Evidence) -> Measurement:
    run = evidence.run(WORDS)
    rule = Within(below=-0.5)
    if not results.OUTCOMES.facts(run, "overlap", "generated")["heads"]:
        raise NotMeasured("the two kinds of prompt have no strongest head in common")
    kinds = ("generated", "word_problems")
    numbers = [_knocked(run, "overlap", on, rule) for on in kinds]
    return Measurement((*numbers, *(number for on in kinds for number in _controls(run, on))))


CLAIMS = (
    Claim(
        key="shared_key_heads",
        group="sharing",
        statement="The four operations share their key heads.",
        section="D",
        paper="key heads could be shared across the four tasks; no value",
        rule="Of the heads that are key in any operation, more than half are key in all four (the "
        "half is ours).",
        experiments=(EXPERIMENT,),
        measure=_shared,
    ),
    Claim(
        key="addition_like_subtraction",
        group="sharing",
        statement="Addition and subtraction have almost the same key heads.",
        section="D",
        paper="almost the same, with other magnitudes; no value",
        rule="The key heads of both are more than 80% of those of either (the 80% is ours).",
        experiments=(EXPERIMENT,),
        measure=_alike,
    ),
    Claim(
        key="more_heads_for_products",
        group="sharing",
        statement="Multiplication and division have more key heads than addition and subtraction.",
        section="D",
        paper="a greater number of key heads; no value",
        rule="Both multiplication and division have more key heads than both others.",
        experiments=(EXPERIMENT,),
        measure=_more,
    ),
    Claim(
        key="powers_share_heads",
        group="sharing",
        statement="Powers use key heads of the four operations.",
        section="D, Table 3",
        paper="five key heads in both wordings, 12.22, 13.11 and 11.8 among them",
        rule="In each wording that has key heads, more than half of them are key heads of some of "
        "the four operations too (the half is ours; 3 of the paper's 5 are in its Table 4).",
        experiments=(POWERS, EXPERIMENT),
        measure=_powers_share,
    ),
    Claim(
        key="powers_need_heads",
        group="sharing",
        statement="Without their key heads powers are answered wrong.",
        section="D, Table 3",
        paper="-66% and -62% of the accuracy: over 60%",
        rule="In each wording that has key heads, knocking them out loses over 60% of the "
        "accuracy.",
        experiments=(POWERS,),
        measure=_powers_need,
    ),
    Claim(
        key="word_problems_share_heads",
        group="sharing",
        statement="Word problems and bare calculations have most of their strongest heads in "
        "common.",
        section="E, Table 4",
        paper="6 of 10 (GSM8K)",
        rule="More than half of as many strongest heads of either kind are the same (the half is "
        "ours).",
        experiments=(WORDS,),
        measure=_words_share,
    ),
    Claim(
        key="word_problems_need_heads",
        group="sharing",
        statement="Word problems need their own strongest heads.",
        section="E, Table 4",
        paper="-65% of the accuracy on GSM8K",
        rule="Knocking out the strongest heads of word problems loses over 60% of the accuracy on "
        "them (what Appendix D calls a significant loss).",
        experiments=(WORDS,),
        measure=_words_need,
    ),
    Claim(
        key="common_heads_matter_in_both",
        group="sharing",
        statement="The heads that both kinds of prompt have in common are needed in both.",
        section="E, Table 4",
        paper="-56% on generated prompts and -52% on GSM8K, without 6 heads",
        rule="Knocking out the common heads loses more than half of the accuracy on either kind.",
        experiments=(WORDS,),
        measure=_overlap_needed,
    ),
)
