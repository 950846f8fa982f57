"""Claims about how often the answer is right after the model was changed.

Key heads are knocked out (section 5.1, Appendices D and E), or the strongest heads alone are tuned
(section 5.3, Tables 1 and 5). Beside a knockout there are two kinds of control heads: heads drawn
from all heads of the model, and heads of the same layers as the heads that the claim is about,
drawn from all heads but these.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pandas import DataFrame

from arith_lens.answers import Answers
from arith_lens.runs import Run
from experiments import results
from experiments.does_tuning_help import Criterion, TuningMethod, generic, is_mathematics
from figures.claims.claim import Measure, Measurement
from figures.claims.estimates import per_operation
from figures.claims.evidence import Evidence, NotMeasured
from figures.claims.heads import NO_KEY, wording_title
from figures.tables import knockout, next_tokens, powers, transfer, word_problems
from figures.tables.answers import BEFORE, CHANGE, RELATIVE_CHANGE
from figures.tables.number import Number, Unit
from figures.tables.table import Key, QuestionTable, Row, number_of, records, select
from figures.tables.tuning_gains import GAIN, SPEED_RATIO, UNTUNED
from figures.verdicts import Finding, Within

KNOCKOUT_EXPERIMENT, TRANSFER_EXPERIMENT = "are_they_needed", "what_else_breaks"
POWERS_EXPERIMENT, WORD_PROBLEMS_EXPERIMENT = "do_powers_use_them", "do_word_problems_use_them"
INSTEAD_EXPERIMENT = "what_comes_instead"
LITTLE_LOST = Within(above=-0.05)
"""A loss on generated prompts that is negligible, where word problems lose more."""
LITTLE_LOSS = "at the best rate that loses at most 2 points elsewhere"
FULL = "full 0 0"
"""The base of Table 1: full tuning, as a method with its numbers of heads and MLPs."""
RATES: Mapping[Criterion, str] = {"mathematics": "", "little_loss": f", {LITTLE_LOSS}"}
"""What a learning rate is chosen for; the first one decides."""
OF_TABLE_4 = 10
"""How many heads the paper knocks out in Table 4; reported beside the key heads."""
OF_GREEDY = 4
"""How many heads a greedy order is compared at with the order by effect."""
HEAD_SET_NAMES = {"key-in-some": "key heads of any operation", "strongest": "strongest heads"}
"""Sets of heads; the first one decides."""
CONTROL_NAMES = {"random": "random of all heads", "same layers": "random of the same layers"}


def control_numbers(
    of: str, controls: Mapping[str, tuple[Number, int]], random: Within | None = None
) -> list[Finding]:
    """The change of accuracy in points for each kind of control, with how many draws it has.

    Args:
        of: what the number is of, before the kind of control.
        controls: the change, and the number of draws, by the order of control heads.
        random: the rule of heads drawn from all heads, if they decide something.
    """
    return [
        Finding(
            f"{of}, {CONTROL_NAMES[order]}, {draws} draws",
            number,
            random if order == "random" else None,
        )
        for order, (number, draws) in controls.items()
    ]


def control_findings(of: Callable[[Row], str], rows: Iterable[Row]) -> list[Finding]:
    """`control_numbers` of the rows of control heads, which `of` names."""
    return [
        finding
        for row in rows
        for finding in control_numbers(
            of(row), {row.keys["knocked_out"]: (row.number, row.keys["draws"])}
        )
    ]


def _is_control(row: Row) -> bool:
    return row.keys.get("knocked_out") in CONTROL_NAMES


def key_heads_needed(evidence: Evidence, rule: Within) -> Measurement:
    """The relative loss without the key heads; beside it, without as many as in Table 4."""
    losses: dict[str, Finding | None] = {}
    others: list[Finding] = []
    for name, run in evidence.runs(KNOCKOUT_EXPERIMENT).items():
        table = evidence.table(knockout, run)
        by_k = {
            int(row.keys["k"]): row.number
            for row in table.select(RELATIVE_CHANGE, operation=name, order="effect")
        }
        k = int(table.number(knockout.KEY_HEADS, operation=name).value)
        losses[name] = Finding(f"{name} ({_heads(k, 'key')})", by_k[k], rule) if k else None
        if OF_TABLE_4 in by_k:
            text = _heads(OF_TABLE_4, "strongest")
            others.append(Finding(f"{name} ({text})", by_k[OF_TABLE_4]))
        others += _greedy(table, name)
    return per_operation(losses, others, missing=NO_KEY)


def _greedy(table: QuestionTable, name: str) -> list[Finding]:
    """The accuracy without few heads: those that cost most when they are chosen one by one, and
    the strongest ones."""
    right = {
        order: row.number
        for order in ("iterative", "effect")
        for row in table.select("accuracy", operation=name, order=order, k=OF_GREEDY)
        if row.keys["components"] == "heads"
    }
    if len(right) < 2:
        return []
    titles = {"iterative": "chosen greedily", "effect": "strongest"}
    return [
        Finding(f"{name}, right without {OF_GREEDY} heads {titles[order]}", number)
        for order, number in right.items()
    ]


def _heads(k: int, kind: str = "") -> str:
    """`3 key heads`."""
    return f"{k} {kind} head{'s' * (k > 1)}".replace("  ", " ")


def random_heads_not_needed(evidence: Evidence, rule: Within) -> Measurement:
    """The change without as many random heads, and without ten; beside it, without other sets.

    The numbers of heads drawn from all heads decide. If as many heads as there are key heads were
    not tried, the next larger number is taken.
    """
    others: list[Finding] = []
    findings: dict[str, Finding | None] = {}
    for name, run in evidence.runs(KNOCKOUT_EXPERIMENT).items():
        table = evidence.table(knockout, run)
        n_key = table.number(knockout.KEY_HEADS, operation=name).value
        findings[name] = None
        if not n_key:
            continue
        changes = [*table.select(CHANGE, operation=name)]
        tried = {row.keys["k"] for row in changes if row.keys["order"] == "random"}
        k = min((k for k in tried if k >= n_key), default=None)
        if k is None:
            raise NotMeasured(f"{name}: no random order goes as far as {n_key:.0f} heads")
        at_k = {row.keys["order"]: row for row in changes if row.keys["k"] == k}
        strongest = at_k.pop("effect", None)
        controls = {order: (row.number, row.keys["draws"]) for order, row in at_k.items()}
        findings[name], *beside = control_numbers(f"{name} ({_heads(k)})", controls, rule)
        if strongest:
            title = f"{name} ({_heads(k, 'strongest')})"
            beside.append(Finding(title, strongest.number))
        others += [*beside, *_many_random(table, name, rule if k != OF_TABLE_4 else None)]
    return per_operation(findings, others, missing=NO_KEY)


def _many_random(table: QuestionTable, name: str, rule: Within | None) -> list[Finding]:
    """The change without as many random heads as in Table 4: mean over the draws, worst draw."""
    keys = {"operation": name, "components": "heads", "order": "random", "k": OF_TABLE_4}
    changes, right = ([*table.select(measure, **keys)] for measure in (CHANGE, "accuracy"))
    whole = [*table.select("accuracy", **{**keys, "order": "effect", "k": 0})]
    if not (changes and right and whole) or right[0].number.low is None:
        return []
    title = f"{name} ({_heads(OF_TABLE_4)})"
    draws = changes[0].keys["draws"]
    worst = Number(right[0].number.low - whole[0].number.value, unit="points")
    mean = control_numbers(title, {"random": (changes[0].number, draws)}, rule)
    return [*mean, Finding(f"{title}, the worst of {draws} draws", worst)]


def transfer_to_word_problems(evidence: Evidence, rule: Within) -> Measurement:
    """The relative change on word problems, without each set of heads."""
    findings, before = _elsewhere(evidence, is_mathematics, "relative", rule)
    return Measurement(findings, f"Before: {before.value:.1%} right.")


def generic_unchanged(evidence: Evidence, rule: Within) -> Measurement:
    """The change in points on generic tasks, without each set of heads."""
    return Measurement(_elsewhere(evidence, generic, "points", rule)[0])


def _elsewhere(
    evidence: Evidence, questions: Callable[[Answers], list[bool]], unit: Unit, rule: Within
) -> tuple[tuple[Finding, ...], Number]:
    """The change on some questions without each set of heads, and without control heads.

    Also the accuracy before.
    """
    run = evidence.run(TRANSFER_EXPERIMENT)
    rows = [*transfer.changes_on(run, questions, unit, [*HEAD_SET_NAMES])]
    before = [row.number for row in rows if row.measure == BEFORE]
    changes = {row.keys["knocked_out"]: row.number for row in rows if row.measure == CHANGE}
    findings = []
    for name, of_set in zip(HEAD_SET_NAMES, (rule, None), strict=True):
        n_heads = len(results.ANSWERS.facts(run, name)["heads"])
        if not n_heads:
            raise NotMeasured(f"no operation has {NO_KEY}, so nothing was knocked out")
        title = f"{HEAD_SET_NAMES[name]} ({n_heads})"
        if transfer.SETS[name] not in changes:
            n = sum(number.n or 0 for number in before)
            raise NotMeasured(f"{title}: none of {n} questions was answered right before")
        findings.append(Finding(title, changes[transfer.SETS[name]], of_set))
    of_controls = filter(_is_control, rows)
    controls = control_findings(lambda _: f"{n_heads} control heads", of_controls)
    return (*findings, *controls), before[0]


def powers_need_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The relative loss without the key heads of powers."""
    run = evidence.run(POWERS_EXPERIMENT)
    names = results.KNOCKOUT_CURVES.labels(run)
    losses: dict[str, Finding | None] = {wording_title(name): None for name in names}
    rows = [*powers.loss_rows(run)]
    for row in rows:
        if not _is_control(row):
            title = wording_title(row.keys["wording"])
            losses[title] = Finding(f"{title} ({row.keys['k']} heads)", row.number, rule)

    def title_of(row: Row) -> str:
        return f"{wording_title(row.keys['wording'])}, without {row.keys['k']} heads"

    controls = control_findings(title_of, filter(_is_control, rows))
    return per_operation(losses, controls, missing=NO_KEY)


def _on_prompts(run: Run, heads: str, kinds: Iterable[str], rule: Within) -> tuple[Finding, ...]:
    """The relative loss on each kind of prompts without some heads, then without control heads."""
    titles = {word_problems.PROMPTS[kind]: kind.replace("_", " ") for kind in kinds}

    def title_of(row: Row) -> str:
        return f"{titles[row.keys['prompts']]}, without {row.keys['k']} heads"

    rows = [*word_problems.loss_rows(run, heads, kinds)]
    losses = [Finding(title_of(row), row.number, rule) for row in rows if not _is_control(row)]
    return (*losses, *control_findings(title_of, filter(_is_control, rows)))


def word_problems_need_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The relative loss without the strongest heads of word problems."""
    run = evidence.run(WORD_PROBLEMS_EXPERIMENT)
    return Measurement(_on_prompts(run, "word_problems", ("word_problems",), rule))


def common_heads_matter_in_both(evidence: Evidence, rule: Within) -> Measurement:
    """The relative loss on both kinds without the heads in common."""
    run = evidence.run(WORD_PROBLEMS_EXPERIMENT)
    if not results.OUTCOMES.facts(run, "overlap", "generated")["heads"]:
        raise NotMeasured("the two kinds of prompt have no strongest head in common")
    return Measurement(_on_prompts(run, "overlap", ("generated", "word_problems"), rule))


def word_problems_have_heads_of_their_own(evidence: Evidence, rule: Within) -> Measurement:
    """The relative loss on both kinds without the heads of word problems alone."""
    run, heads = evidence.run(WORD_PROBLEMS_EXPERIMENT), "word_problems_only"
    if not results.OUTCOMES.facts(run, heads, "generated")["heads"]:
        raise NotMeasured("all strongest heads of word problems are those of bare calculations")
    of_words = _on_prompts(run, heads, ("word_problems",), rule)
    return Measurement((*of_words, *_on_prompts(run, heads, ("generated",), LITTLE_LOST)))


def numbers_come_instead(evidence: Evidence, rule: Within) -> Measurement:
    """How often the likeliest token is a number after the knockout; beside it, how often right."""
    run = evidence.run(INSTEAD_EXPERIMENT)
    return Measurement(instead_findings(next_tokens.instead_table(run).rows, rule))


def instead_findings(rows: Iterable[Row], rule: Within) -> tuple[Finding, ...]:
    """The shares after the knockout, by kind of prompt: a number, then the right one."""
    after = [row for row in rows if row.keys.get("when") == "after"]
    titles = {next_tokens.A_NUMBER: "a number", next_tokens.RIGHT: "right"}
    return tuple(
        Finding(
            f"{row.keys['kind'].replace('_', ' ')}, {title}",
            row.number,
            rule if measure == next_tokens.A_NUMBER else None,
        )
        for measure, title in titles.items()
        for row in after
        if row.measure == measure
    )


def _gain(
    rows: DataFrame, criterion: str = "mathematics", **keys: Key
) -> Iterator[tuple[Any, Number]]:
    """The rows of gains at the rates that were chosen for a purpose, with their numbers."""
    for one in records(select(rows, measure=GAIN, chosen_for=criterion, **keys)):
        yield one, number_of(one)


def _first(gains: Iterator[tuple[Any, Number]], what: str) -> tuple[Any, Number]:
    """The first gain. Raises NotMeasured if there is none."""
    for gain in gains:
        return gain
    raise NotMeasured(f"the table has no gain of {what}, or fewer than two questions of its kind")


def _seeds(one: Any) -> str:
    return f"{one.draws:.0f} seeds; interval over questions and seeds."


def _gain_of(method: TuningMethod, title: str) -> Measure:
    """Measures what a method of Table 1 gains on a group of tasks.

    Beside it stand the gain at the other rate, and that of random heads if heads are tuned.
    """

    def measure(evidence: Evidence, rule: Within) -> Measurement:
        rows, keys = evidence.tuning(1), {"group": title, "compared_with": UNTUNED}
        first, number = _first(_gain(rows, method=method, **keys), method)
        findings = [Finding(title, number, rule)]
        for _, beside in _gain(rows, "little_loss", method=method, **keys):
            findings.append(Finding(f"{title}, {LITTLE_LOSS}", beside))
        for one, control in _gain(rows, method="random", **keys):
            if method == "precise":
                name = f"{title}, {CONTROL_NAMES['random']}, {one.draws:.0f} seeds"
                findings.append(Finding(name, control))
        return Measurement(tuple(findings), _seeds(first))

    return measure


tuning_few_heads_gains = _gain_of("precise", "word problems")
no_generic_loss = _gain_of("precise", "generic tasks")
full_tuning_loses = _gain_of("full", "generic tasks")


def as_much_as_full(evidence: Evidence, rule: Within) -> Measurement:
    """The gain less that of full tuning; beside it, both gains, and all three at another rate."""
    rows, keys = evidence.tuning(1), {"group": "word problems"}
    first, _ = _first(_gain(rows, compared_with=FULL, **keys), "precise less full tuning")
    findings: list[Finding] = []
    for criterion, words in RATES.items():
        for _, less in _gain(rows, criterion, compared_with=FULL, **keys):
            decides = rule if criterion == "mathematics" else None
            findings.append(Finding(f"precise less full, word problems{words}", less, decides))
            for method in ("precise", "full"):
                for one, number in _gain(
                    rows, criterion, compared_with=UNTUNED, method=method, **keys
                ):
                    findings.append(Finding(f"{method} (rate {one.rate:g}){words}", number))
    return Measurement(tuple(findings), _seeds(first))


def tuning_is_faster(evidence: Evidence, rule: Within) -> Measurement:
    """The ratio of the training examples per second."""
    ratios = select(
        evidence.tuning(1), measure=SPEED_RATIO, chosen_for="mathematics", compared_with=FULL
    )
    if ratios.empty:
        raise NotMeasured("the table lacks full tuning or that of the strongest heads")
    return Measurement(
        (Finding("examples a second, precise / full", number_of(records(ratios)[0]), rule),),
        "Trainings ran side by side; make bench-finetune times them alone.",
    )


def more_mlps_trade(evidence: Evidence, rule: Within) -> Measurement:
    """What MLPs add to the gain in word problems, and take from generic tasks.

    Beside it, the same at the other rate.
    """
    rows = evidence.tuning(5)
    findings: list[Finding] = []
    rates: list[str] = []
    for criterion, words in RATES.items():
        rate = {
            int(one.n_mlps): one.rate
            for one, _ in _gain(rows, criterion, method="precise", compared_with=UNTUNED)
        }
        gains = [*_gain(rows, criterion)]
        for one, number in (gain for gain in gains if gain[0].compared_with != UNTUNED):
            bounds = rule if one.group == "word problems" else Within(below=0)
            label = f"{one.n_mlps:.0f} MLPs less {min(rate)}, {one.group}{words}"
            findings.append(Finding(label, number, bounds if criterion == "mathematics" else None))
        of_rows = ", ".join(f"{n} MLPs {rate[n]:g}" for n in sorted(rate))
        rates += [f"Rates{words}: {of_rows}."] * bool(rate)
    if not findings:
        raise NotMeasured("table 5 has one number of MLPs, or lacks a row at its chosen rate")
    return Measurement(tuple(findings), " ".join(rates))


def more_heads_level_off(evidence: Evidence, rule: Within) -> Measurement:
    """The gain in word problems with more heads than the paper's share of 1/32, less that with it.

    Table 2 has one row with MLPs; it has this share of the heads.
    """
    gains = [
        (one, number)
        for one, number in _gain(evidence.tuning(2), group="word problems", n_mlps=0)
        if one.compared_with != UNTUNED and one.n_heads > int(one.compared_with.split()[1])
    ]
    if not gains:
        raise NotMeasured("table 2 has no row with more heads than 1/32 of them")
    findings = [
        Finding(
            f"{one.n_heads:.0f} heads less {one.compared_with.split()[1]}, word problems",
            number,
            rule,
        )
        for one, number in sorted(gains, key=lambda gain: gain[0].n_heads)
    ]
    return Measurement(tuple(findings))
