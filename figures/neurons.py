"""What does one neuron do? Rules beside nulls that can fail, and how few neurons suffice.

Reads a run of `experiments neurons`.
"""

from collections.abc import Iterator, Sequence

from pandas import DataFrame

from arith_lens import plotting
from figures.common import Options, chosen_run
from figures.exhibit import Exhibit, Settings, chart_of, text_table_of
from figures.tables import neurons as numbers
from figures.tables.table import QuestionTable, has, keys_of, number_of, records, select, value
from figures.views.lines import line

RANKING_LINES = {
    "gradient": ("by a gradient", plotting.COLOURS["control"], "dash"),
    "direct": ("by direct effect", plotting.COLOURS["control"], "solid"),
    "via_mlps": ("by effect via MLPs", plotting.DARK, "solid"),
}


def neurons(options: Options) -> list[Exhibit]:
    """Which neurons follow rules, and how few neurons keep the answer.

    Reads a run of `experiments neurons` (by its settings, or `--run PATH`) and draws it without
    loading a model.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "neurons")

    def table() -> QuestionTable:
        return numbers.table(run)

    rules = text_table_of(
        table,
        [run],
        name="neurons-rules",
        title=f"Neurons that follow rules: {run.config['model']}",
        caption=rules_caption,
        notes=_rules_notes,
        cells=lambda rows: DataFrame(list(_cells(rows))),
    )
    kept = chart_of(
        table,
        [run],
        name="neurons",
        title="How few neurons keep the answer?",
        caption=kept_caption,
        notes=_kept_notes,
        draw=_draw,
    )
    return [rules, kept]


def rules_caption(table: DataFrame) -> str:
    """How many neurons follow a rule, and how many pass the published one."""
    rule = select(table, measure=numbers.FOLLOW)
    any_rule = value(rule, family=numbers.ANY)
    effects = value(table, measure=numbers.EFFECT_SHARE)
    passing = select(table, measure=numbers.PASS)
    shares = ", ".join(f"{one.neurons} {one.value:.0%}" for one in records(passing))
    classes = ""
    if has(table, measure=numbers.SIGNIFICANT):
        share = value(table, measure=numbers.SIGNIFICANT)
        classes = f" Of the classes that were knocked out, {share:.0%} have p below 5%."
    return (
        f"Whether more neurons follow a rule than the nulls allow. Here {any_rule:.1%} of the "
        f"neurons do, with {effects:.0%} of the sizes of all effects. The published rule calls "
        f"these shares heuristics: {shares}.{classes}"
    )


def _rules_notes(table: DataFrame, settings: Settings) -> list[str]:
    return [
        "A rule is chosen on problems with half of the values of A and B, and scored on problems "
        "with the other half. A neuron follows it if its AUC exceeds the 99% point with permuted "
        "digits and that of untrained models, with false discoveries controlled at 5%.",
        f"Model: {settings['model']}; two-digit addition, {settings['values']} values of A and B; "
        f"{settings['untrained']} untrained models; {settings['permutations']} permutations. A "
        "class is the neurons of one rule; its null is random neurons of the same layers and sizes "
        "of effect.",
    ]


def _cells(table: DataFrame) -> Iterator[dict[str, str]]:
    """One line per family, then the published rule, then one per class."""
    for family in keys_of(table, "family"):
        own = select(table, family=family)
        texts = {one.measure: str(number_of(one)) for one in records(own)}
        yield {
            "what": "any rule" if family == numbers.ANY else family,
            "result": f"{texts[numbers.FOLLOW]} of the neurons",
            "null": f"AUC of 99% of untrained neurons is below {texts[numbers.NULL]}"
            if numbers.NULL in texts
            else "",
        }
    passing = select(table, measure=numbers.PASS)
    texts = {one.neurons: str(number_of(one)) for one in records(passing)}
    yield {
        "what": "published rule",
        "result": f"{texts['trained']} of the neurons",
        "null": "; ".join(
            f"{name}: {texts[name]}" for name in ("untrained", "noise") if name in texts
        ),
    }
    tested = select(table, measure=numbers.P)
    for name in keys_of(tested, "class") if len(tested) else ():
        own = {
            one.measure: number_of(one) for one in records(DataFrame(table[table["class"] == name]))
        }
        yield {
            "what": f"knockout of {own['neurons']} neurons: {name}",
            "result": f"{own[numbers.DIFFERENCE]} logits, p {own[numbers.P]}",
            "null": str(own[numbers.RANDOM]),
        }


def kept_caption(table: DataFrame) -> str:
    """How many neurons are enough in each ranking, in each model."""
    findings, overlaps = [], []
    for model in keys_of(table, "model"):
        own = select(table, model=model)
        enough = {one.ranking: one.value for one in records(select(own, measure=numbers.ENOUGH))}
        counts = ", ".join(f"{RANKING_LINES[name][0]} {k:.0f}" for name, k in enough.items())
        total = select(own, measure=numbers.FAITHFUL).k.max()
        findings.append(f"of {total:.0f} neurons of `{model}`, {counts}")
        overlaps.append(str(number_of(records(select(own, measure=numbers.OVERLAP))[0])))
    return (
        f"The fewest neurons tried that keep 90% of the answer are, {'; '.join(findings)}. A line "
        "is one ranking of neurons, kept at END while all others have the activations of a problem "
        "with other operands (metric: C's lead over the other digits). Bands are 95% intervals "
        "over problems; the strongest 1% by direct effect and by effect via MLPs share "
        f"{' and '.join(overlaps)}."
    )


def _kept_notes(table: DataFrame, settings: Settings) -> list[str]:
    n = select(table, measure=numbers.FAITHFUL).n.max()
    return [
        "Two-digit addition. At END all other neurons have the activations of a problem with other "
        "operands; %: of C's lead over the other digits. Ranked on one half of the problems, kept "
        f"on the other; bands: 95% intervals over {n:.0f} problems.",
    ]


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """Faithfulness over the number of neurons, a panel for each model, a line for each ranking."""
    rows = select(table, measure=numbers.FAITHFUL)
    panels = []
    for model in keys_of(rows, "model"):
        of_model = select(rows, model=model)
        lines = [
            line(select(of_model, ranking=ranking), name, colour, dash=dash)
            for ranking, (name, colour, dash) in RANKING_LINES.items()
        ]
        enough = value(table, model=model, measure=numbers.ENOUGH, ranking="via_mlps")
        title = f"{plotting.plain(model)}: {enough:.0f} neurons keep 90%"
        panels.append(plotting.CurvePanel(title, tuple(lines)))
    return plotting.curve_panels(
        panels,
        x_title=f"neurons kept at END (of {rows.k.max():.0f})",
        unit="%",
        notes=notes,
        across=2,
        panel=(300, 170),
    )
