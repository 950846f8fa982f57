"""Claims about where key heads look, and what MLPs read and write (section 5.2).

Where heads look: Figures 5, 7 and 16, from `figures.tables.attention_statistics`. What MLPs read
and write, layer by layer: Figures 6, 13 and 14, from `figures.tables.layer_statistics`.
"""

from collections.abc import Iterable

from arith_lens.attention import Patterns
from arith_lens.operations import FOUR
from arith_lens.runs import Run
from experiments import results
from figures.claims.claim import Measure, Measurement
from figures.claims.estimates import finding_of, measured, of_rows
from figures.claims.evidence import PROBES_EXPERIMENT, Evidence, NotMeasured
from figures.claims.heads import NO_KEY
from figures.tables import attention_statistics as attention
from figures.tables import layer_statistics as layers
from figures.tables.number import Number
from figures.tables.table import Row
from figures.verdicts import Finding, Within

ATTENTION_EXPERIMENT = "where_do_they_look"


def _of_looks(measure: str) -> Measure:
    """Measures a statistic of the mean weights of each operation's key heads."""

    def per_operation(evidence: Evidence, rule: Within) -> Measurement:
        rows = attention.look_rows(measure, evidence.runs(ATTENTION_EXPERIMENT))
        return of_rows(rows, FOUR, rule, missing=NO_KEY)

    return per_operation


looks_at_calculation = _of_looks(attention.ON_CALCULATION)
little_elsewhere = _of_looks(attention.ELSEWHERE)


def two_kinds_of_heads(evidence: Evidence, rule: Within) -> Measurement:
    """How many heads look at the operands, at the operator, and at neither."""
    kinds: dict[str, list[str]] = {kind: [] for kind in attention.KINDS}
    for row in attention.kind_rows(evidence.runs(ATTENTION_EXPERIMENT)):
        kinds[row.keys["kind"]].append(f"{row.keys['heads']} ({row.keys['operation']})")
    if not any(kinds.values()):
        raise NotMeasured(f"no operation has {NO_KEY}")
    counted = [
        Finding(f"{kind} heads", Number(len(heads), unit="count"), rule)
        for kind, heads in kinds.items()
        if kind != "other"
    ]
    named = "; ".join(f"{kind}: {', '.join(heads) or 'none'}" for kind, heads in kinds.items())
    return Measurement(
        (*counted, Finding("neither", Number(len(kinds["other"]), unit="count"))), f"{named}."
    )


def _patterns(evidence: Evidence, result: str, kind: str) -> Patterns:
    """Whole patterns of the strongest heads of one kind on a few prompts."""
    run = evidence.run(ATTENTION_EXPERIMENT)
    patterns = results.PATTERNS.load(run, result)
    of_kind = {
        head
        for name in FOUR
        for head, own in results.ROLE_ATTENTION.facts(run, name)["kinds"].items()
        if own == kind
    }
    if not of_kind.issuperset(patterns.heads):  # where there are none, the run has the strongest
        raise NotMeasured(f"no strong head of {evidence.model} is an {kind} head")
    return patterns


def _in_prompts(rows: Iterable[Row], rule: Within, heads: str) -> Measurement:
    """The number of each prompt; the note has the heads."""
    rows = [*rows]
    findings = [Finding(f"“{row.keys['prompt'].strip()}”", row.number, rule) for row in rows]
    names = rows[0].keys["heads"]
    return Measurement(tuple(findings), f"{heads} {names}; single prompts, no intervals.")


def numbers_in_other_formats(evidence: Evidence, rule: Within) -> Measurement:
    """The weight on digits in each prompt of another format."""
    patterns = _patterns(evidence, "formats", "operand")
    return _in_prompts(attention.digit_rows(patterns), rule, "Heads")


def operator_words(evidence: Evidence, rule: Within) -> Measurement:
    """The weight on the word of the operation in each sentence."""
    patterns = _patterns(evidence, "words", "operator")
    return _in_prompts(attention.word_rows(patterns), rule, "Head")


def _curves_run(evidence: Evidence) -> Run:
    """The run of the curves.

    Raises:
        NotMeasured: there is no run, or an operation of it has no problem that must be computed.
    """
    run = evidence.run(PROBES_EXPERIMENT)
    for name in layers.without_computed(run):
        raise NotMeasured(f"{name}: no problem is known to have a C that is neither A nor B")
    return run


def _of_curves(measure: str) -> Measure:
    """Measures a statistic of each operation's curve."""

    def per_operation(evidence: Evidence, rule: Within) -> Measurement:
        rows = layers.curve_rows(measure, _curves_run(evidence))
        return of_rows(rows, FOUR, rule, missing="a curve that rises")

    return per_operation


operands_absent_early = _of_curves(layers.SHARE_EARLY)
answer_rises = _of_curves(layers.ANSWER_CHANGE)
others_fall = _of_curves(layers.OTHERS_CHANGE)


def operands_rise_and_fall(evidence: Evidence, rule: Within) -> Measurement:
    """The smaller turn of the operands' curve; beside it, that of the curve less other digits."""
    run = _curves_run(evidence)
    less = [
        Finding(f"{row.keys['operation']} less {layers.LESS}", row.number)
        for row in layers.smaller_turns_less_others(run)
    ]
    rows = layers.curve_rows(layers.SMALLER_TURN, run)
    return of_rows(rows, FOUR, rule, less, missing="a curve")


def turning_layers_agree(evidence: Evidence, rule: Within) -> Measurement:
    """How far apart the two curves turn; the note has the layers."""
    rows = [*layers.turn_rows(_curves_run(evidence))]
    turns = {
        (row.measure, row.keys["operation"], row.keys["less"]): f"{row.number.value:.0f}"
        for row in rows
    }

    def turns_text(less: str) -> str:
        both = {name: (layers.READ_TURN, layers.WRITE_TURN) for name in FOUR}
        return ", ".join(
            f"{name} " + " and ".join(turns.get((one, name, less), "None") for one in measures)
            for name, measures in both.items()
        )

    apart = (row for row in rows if row.measure == layers.TURNS_APART)
    measurement = of_rows(apart, FOUR, rule, missing="an inflection of both curves")
    plain, less = turns_text(""), turns_text(layers.LESS)
    note = f"They turn at layers: {plain}; less other digits: {less}. {measurement.note}"
    return Measurement(measurement.findings, note.strip())


def _sums(run: Run) -> tuple[dict[str, Number], str]:
    """The numbers of the sums whose A, B, C and C±1 all differ, by name; and what a note says."""
    numbers = {row.measure: row.number for row in layers.sum_rows(run)}
    n = numbers[layers.APART].value
    if not n:
        raise NotMeasured("no sum has different A, B, C and C±1, so none tells them apart")
    layer = numbers.get(layers.FROM_LAYER)
    start = "never" if layer is None else f"from layer {layer.value:.0f} on"
    return numbers, f"Of {n:.0f} sums whose A, B, C and C±1 differ. C wins for good {start}."


def operands_first(evidence: Evidence, rule: Within) -> Measurement:
    """The largest share of A or B before C wins."""
    run = evidence.run(PROBES_EXPERIMENT)
    numbers, note = _sums(run)
    rows = layers.winner_rows(layers.OPERANDS_FIRST, run)
    number = finding_of(rows, layers.OPERANDS_FIRST, "A or B written most", rule)
    by_chance = numbers[layers.BY_CHANCE].value
    return measured(number, missing="no layer", note=f"By chance {by_chance:.0%}. {note}")


def neighbours_between(evidence: Evidence, rule: Within) -> Measurement:
    """The share of C±1 between the operands' layers and C's."""
    run = evidence.run(PROBES_EXPERIMENT)
    _, note = _sums(run)
    before = finding_of(
        layers.winner_rows(layers.OPERANDS_FIRST, run), layers.OPERANDS_FIRST, "before"
    )
    if before is None or before.number.value <= 0.5:
        raise NotMeasured(
            "A or B are written most in no more than half of the sums in any layer before C: "
            "nothing stands between"
        )
    rows = layers.winner_rows(layers.BETWEEN, run)
    number = finding_of(rows, layers.BETWEEN, "C±1 written most, less chance", rule)
    missing = "no layer is between the operands' and C's"
    return measured(number, missing=missing, note=note)


def answer_last(evidence: Evidence, rule: Within) -> Measurement:
    """How many layers C comes after the others."""
    run = evidence.run(PROBES_EXPERIMENT)
    _, note = _sums(run)
    rows = layers.winner_rows(layers.ANSWER_AFTER, run)
    title = "layers from the others' best one to C's"
    number = finding_of(rows, layers.ANSWER_AFTER, title, rule)
    return measured(number, missing="no layer", note=note)
