"""Claims about which heads and MLPs the answer depends on, and where they are (section 5.1).

Some are about one operation, others about what operations, powers and word problems have in common
(Appendices D and E). `figures.tables.map_statistics` makes their numbers.
"""

from collections.abc import Iterable
from functools import partial

from arith_lens.operations import FOUR
from experiments import results
from figures.claims.claim import Measure, Measurement
from figures.claims.estimates import finding_of, measured, of_rows
from figures.claims.evidence import HEADS_EXPERIMENT, Evidence, NotMeasured
from figures.tables import map_statistics as statistics
from figures.tables import null_words
from figures.tables.number import Number
from figures.tables.table import Row
from figures.verdicts import Finding, Within

NO_KEY = "key heads (an effect below -5%)"


def _of_maps(measure: str, missing: str = NO_KEY) -> Measure:
    """Measures a statistic of each operation's map."""

    def per_operation(evidence: Evidence, rule: Within) -> Measurement:
        rows = statistics.map_rows(measure, evidence.runs(HEADS_EXPERIMENT))
        return of_rows(rows, FOUR, rule, missing=missing)

    return per_operation


strongest_head = _of_maps(statistics.STRONGEST, "heads")
sparse_effect = _of_maps(statistics.SHARE_OF_FEW)
middle_layers = _of_maps(statistics.SHARE_IN_MIDDLE)
no_early_key_heads = _of_maps(statistics.N_EARLY)
mlps_before = _of_maps(statistics.MLPS_BEFORE, "an MLP below its first key head")
mlps_after = _of_maps(statistics.MLPS_AFTER)


def few_key_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The share of heads that are key in each operation; beside it, of those key in any of them."""
    per_operation = _of_maps(statistics.SHARE_OF_KEY)(evidence, rule)
    rows = statistics.any_rows(evidence.runs(HEADS_EXPERIMENT))
    in_any = finding_of(rows, statistics.SHARE_IN_ANY, "in any of the operations")
    return Measurement((*per_operation.findings, *([in_any] if in_any else [])), per_operation.note)


def via_mlps(evidence: Evidence, rule: Within) -> Measurement:
    """What the direct effects leave of the effects via MLPs."""
    rows = statistics.path_rows(evidence.runs("which_paths"))
    return of_rows(rows, FOUR, rule, missing="heads")


def null_word_does_not_matter(evidence: Evidence, rule: Within) -> Measurement:
    """How many more of the strongest heads two halves of the words share than random halves do."""
    findings = word_findings(null_words.null_word_rows(evidence.run(HEADS_EXPERIMENT)), rule)
    if not findings:
        raise NotMeasured("no operation has pairs with several words, or its pairs are not stored")
    return Measurement(findings, "Counts without intervals.")


def word_findings(rows: Iterable[Row], rule: Within) -> tuple[Finding, ...]:
    """For each operation the difference of the counts, then the largest change of an effect."""
    by_operation: dict[str, dict[str, Number]] = {}
    for row in rows:
        by_operation.setdefault(row.keys["operation"], {})[row.measure] = row.number
    less = [
        Finding(
            f"{name}, of ten heads, words less random halves",
            Number(
                numbers[null_words.IN_COMMON].value - numbers[null_words.OF_RANDOM_HALVES].value,
                unit="ratio",
            ),
            rule,
        )
        for name, numbers in by_operation.items()
    ]
    changes = [
        Finding(f"{name}, largest change of an effect", numbers[null_words.LARGEST_CHANGE])
        for name, numbers in by_operation.items()
    ]
    return (*less, *changes)


def shared_key_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The share of key heads that all operations have; beside it, two measures of two."""
    number = partial(finding_of, [*statistics.shared_rows(evidence.runs(HEADS_EXPERIMENT))])
    return measured(
        number(statistics.IN_ALL, "key in all four, of those key in any", rule),
        number(statistics.IN_TWO, "overlap of two (Jaccard)"),
        number(statistics.RANKS, "rank correlation of all heads' effects in two"),
        missing=f"no {NO_KEY}",
    )


def addition_like_subtraction(evidence: Evidence, rule: Within) -> Measurement:
    """The overlap of two operations' key heads."""
    runs = evidence.runs(HEADS_EXPERIMENT)
    both = {name: runs[name] for name in ("addition", "subtraction")}
    number = partial(finding_of, [*statistics.shared_rows(both)])
    return measured(
        number(statistics.IN_TWO, "overlap of the key heads (Jaccard)", rule),
        number(statistics.RANKS, "rank correlation of all heads' effects"),
        missing=f"no {NO_KEY}",
    )


def more_heads_for_products(evidence: Evidence, rule: Within) -> Measurement:
    """How many more key heads products and quotients have."""
    rows = [*statistics.more_heads_rows(evidence.runs(HEADS_EXPERIMENT))]
    title = "the smaller number of × and ÷ less the larger of + and −"
    more = finding_of(rows, statistics.MORE_HEADS, title, rule)
    counts = ", ".join(
        f"{row.keys['operation']} {row.number.value:.0f}"
        for row in rows
        if row.measure == statistics.KEY_HEADS
    )
    return measured(more, missing=f"no {NO_KEY}", note=f"Key heads: {counts}.")


def wording_title(name: str) -> str:
    """The title of a wording: exponentiation-0 is `2 ^ 3`, exponentiation-1 is `2 to the power`."""
    kind, _, number = name.rpartition("-")
    return f"{kind}, wording {int(number) + 1}"


def powers_share_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The share of the key heads of powers that others have too."""
    run = evidence.run("do_powers_use_them")
    rows = statistics.power_rows(run, evidence.runs(HEADS_EXPERIMENT))
    wordings = results.KNOCKOUT_CURVES.labels(run)
    return of_rows(rows, wordings, rule, missing=NO_KEY, title=wording_title)


def word_problems_share_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The share of the strongest heads in common."""
    rows = [*statistics.word_problem_rows(evidence.run("do_word_problems_use_them"))]
    chance = next(row for row in rows if row.measure == statistics.BY_CHANCE)
    title = f"of {chance.keys['heads']}"
    number = finding_of(rows, statistics.TOP_IN_COMMON, title, rule)
    return measured(number, missing="no heads", note=f"By chance {chance.number.value:.1%}.")
