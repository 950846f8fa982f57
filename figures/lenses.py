"""Which conclusions hold under every lens?

Reads a run of `experiments lenses`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pandas import DataFrame

from figures.common import chosen_run
from figures.exhibit import Table, text_table_of
from figures.options import TableOptions
from figures.tables import lenses as numbers
from figures.tables.conclusions import ANSWER, CONCLUSIONS, Conclusion, Verdict, in_words
from figures.tables.table import QuestionTable, number_of, records, select

METRIC_NAMES = {
    "relative_logit": "raw logit",
    "digit_contrast": "contrast",
    "interchange": "C' less C",
    ANSWER: "answer",
}


def exhibits(options: TableOptions) -> list[Table]:
    """Each conclusion in words, with the number of each lens.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "lenses")

    def decided() -> QuestionTable:
        whole = numbers.table(run)
        return replace(whole, rows=tuple(one for one in whole.rows if one.keys["conclusion"]))

    table = text_table_of(
        decided,
        [run],
        name="lenses",
        title=f"Which conclusions hold under every lens? {run.config['model']}",
        caption="A sentence that holds under every lens may be said without naming one. Whole 95% "
        "intervals over problems decide in each operation; a dash: a lens without a number.",
        cells=lambda rows: DataFrame(list(_cells(rows))).fillna(""),
        printed=lambda rows: "\n".join(_printed(rows)),
    )
    return [table]


def verdicts_of(rows: DataFrame, conclusion: Conclusion) -> dict[str, Verdict]:
    """The verdict of each lens, over all operations, by the lens's name."""
    own = select(rows, conclusion=conclusion.key, operation=numbers.ALL)
    return {lens_name(one.counterfactual, one.metric): one.verdict for one in records(own)}


def lens_name(counterfactual: str, metric: str) -> str:
    """A lens in two words; where the answer is read, its counterfactual alone."""
    if metric == ANSWER:
        return counterfactual
    return f"{counterfactual}, {METRIC_NAMES[metric]}"


def _cells(rows: DataFrame) -> Iterator[dict[str, str]]:
    """One line per conclusion: in words, and each lens's mean over operations with its range."""
    for conclusion in CONCLUSIONS:
        line = {
            "conclusion": conclusion.sentence.replace("`", ""),
            "in words": in_words(verdicts_of(rows, conclusion)),
            "holds if": f"{conclusion.measure} is {conclusion.side} {conclusion.line:g}",
        }
        own = select(rows, conclusion=conclusion.key, operation=numbers.ALL)
        yield line | {lens_name(one.counterfactual, one.metric): _text(one) for one in records(own)}


def _text(one: Any) -> str:
    return f"{one.verdict}: {number_of(one)}" if one.verdict else f"- ({one.reason})"


def _printed(rows: DataFrame) -> Iterator[str]:
    for conclusion in CONCLUSIONS:
        yield f"{conclusion.sentence}\n  {in_words(verdicts_of(rows, conclusion))}"
