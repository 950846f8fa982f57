"""What does one neuron do? Rules beside nulls that can fail, and how few neurons suffice.

Reads a run of `experiments neurons`.
"""

from collections.abc import Iterator
from functools import partial

from pandas import DataFrame

from figures.common import chosen_run
from figures.exhibit import Table, text_table_of
from figures.options import TableOptions
from figures.tables import neurons as numbers
from figures.tables.table import keys_of, number_of, records, select

RANKINGS = {
    "gradient": "by a gradient",
    "direct": "by direct effect",
    "via_mlps": "by effect via MLPs",
}


def neurons(options: TableOptions) -> list[Table]:
    """Which neurons follow rules, and how few neurons keep the answer.

    Reads a run of `experiments neurons` (by its settings, or `--run PATH`) without loading a model.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "neurons")
    table = text_table_of(
        partial(numbers.table, run),
        [run],
        name="neurons",
        title=f"Neurons that follow rules, and few that keep the answer: {run.config['model']}",
        caption="A rule is chosen on problems with half of the values of A and B, and scored on "
        "problems with the other half. A neuron follows it if its AUC exceeds the 99% point with "
        "permuted digits and that of untrained models, with false discoveries controlled at 5%. A "
        "class is the neurons of one rule; its null is random neurons of the same layers and "
        "sizes of effect. Kept at END: all other neurons have the activations of a problem with "
        "other operands; 90% of C's lead over the other digits is kept, on problems that did not "
        "rank the neurons.",
        cells=lambda rows: DataFrame(list(_cells(rows))),
    )
    return [table]


def _cells(table: DataFrame) -> Iterator[dict[str, str]]:
    """One line per family, the published rule, each class, and the fewest neurons that suffice."""
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
    total = select(table, measure=numbers.FAITHFUL).k.max()
    for one in records(select(table, measure=numbers.ENOUGH)):
        yield {
            "what": f"kept at END, {RANKINGS[one.ranking]}",
            "result": f"{one.value:.0f} of {total:.0f} neurons keep 90% of the answer",
            "null": "",
        }
