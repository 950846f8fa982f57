"""Which conclusions hold under every lens? A card for each model: lens by conclusion.

Reads a run of `experiments lenses`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from textwrap import shorten
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting.widths import is_narrow
from figures.common import Options, chosen_run
from figures.exhibit import Exhibit, Settings, chart_of, text_table_of
from figures.tables import lenses as numbers
from figures.tables.conclusions import ANSWER, CONCLUSIONS, Conclusion, Verdict, in_words
from figures.tables.table import QuestionTable, keys_of, number_of, records, select
from figures.views.words import display_name

METRIC_NAMES = {
    "relative_logit": "raw logit",
    "digit_contrast": "contrast",
    "interchange": "C' less C",
    ANSWER: "answer",
}
SHORTEST = 26
"""Letters of a conclusion in a column of a paper."""
METHODS = ("relp", "eap_ig", "ig_activations", "(atp)")
"""Names of methods in sentences, for which a reader sees others."""
SIGNS: Mapping[str, int] = {"holds": 1, "opposite": -1}


def exhibits(options: Options) -> list[Exhibit]:
    """The card as a picture, and with its numbers and words as a table.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "lenses")

    def decided() -> QuestionTable:
        whole = numbers.table(run)
        return replace(whole, rows=tuple(one for one in whole.rows if one.keys["conclusion"]))

    title = "Which conclusions hold under every lens?"
    of_chart = {"name": "lenses", "title": title, "caption": _caption, "notes": _notes}
    chart = chart_of(decided, [run], draw=_draw, **of_chart)
    words = text_table_of(
        decided,
        [run],
        name="lenses_in_words",
        title=f"Conclusions in words: {run.config['model']}",
        caption=lambda _: "Which sentences may be said without naming their lens.",
        notes=_notes,
        cells=lambda rows: DataFrame(list(_cells(rows))).fillna(""),
        printed=lambda rows: "\n".join(_printed(rows)),
    )
    return [chart, words]


def verdicts_of(rows: DataFrame, conclusion: Conclusion) -> dict[str, Verdict]:
    """The verdict of each lens, over all operations, by the lens's name."""
    own = select(rows, conclusion=conclusion.key, operation=numbers.ALL)
    return {lens_name(one.counterfactual, one.metric): one.verdict for one in records(own)}


def lens_name(counterfactual: str, metric: str) -> str:
    """A lens in two words; where the answer is read, its counterfactual alone."""
    if metric == ANSWER:
        return counterfactual
    return f"{counterfactual}, {METRIC_NAMES[metric]}"


def _everywhere(rows: DataFrame) -> tuple[list[str], int]:
    """The conclusions that hold under all lenses, and how many were decided."""
    everywhere, n = [], 0
    for conclusion in CONCLUSIONS:
        known = [verdict for verdict in verdicts_of(rows, conclusion).values() if verdict]
        n += bool(known)
        if known and {*known} == {"holds"}:
            about = [METRIC_NAMES[one] for one in conclusion.metrics]
            only = f" (it is about the {', '.join(about)} alone)" * bool(about)
            everywhere.append(f"{short(conclusion)}{only}")
    return everywhere, n


def _caption(rows: DataFrame) -> str:
    """Which conclusions hold under all lenses, and which only under some."""
    everywhere, n = _everywhere(rows)
    return (
        f"Of {n} conclusions, {len(everywhere)} hold under every lens that they are about. A cell "
        "is the number of operations in which a conclusion holds under one lens, less those in "
        "which the opposite does. Whole 95% intervals over problems decide. Under all lenses: "
        f"{'; '.join(everywhere) or 'none'}."
    )


def _notes(rows: DataFrame, settings: Settings) -> list[str]:
    missing = {one.reason for one in records(rows) if one.conclusion and one.reason}
    grey = f" Grey: {'; '.join(sorted(missing))}." * bool(missing)
    return [
        f"Model: {settings['model']}. Whole 95% intervals over problems decide in each operation. "
        f"White: undecided, or operations differ.{grey}"
    ]


def _draw(rows: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A panel of conclusions with a metric, and one of those that read the answer."""
    counterfactuals = keys_of(rows, "counterfactual")
    metrics = [name for name in keys_of(rows, "metric") if name != ANSWER]
    of_metrics = [one for one in CONCLUSIONS if one.metrics != (ANSWER,)]
    of_answers = [one for one in CONCLUSIONS if one.metrics == (ANSWER,)]
    groups = {
        counterfactual: {METRIC_NAMES[metric]: (counterfactual, metric) for metric in metrics}
        for counterfactual in counterfactuals
    }
    answers = {"": {counterfactual: (counterfactual, ANSWER) for counterfactual in counterfactuals}}
    everywhere, n_decided = _everywhere(rows)
    finding = f"Every lens agrees with {len(everywhere)} of {n_decided} conclusions"
    parts = [
        _panel(rows, "What depends on a metric", of_metrics, groups),
        _panel(rows, "What reads the likeliest token", of_answers, answers),
    ]
    parts[0] = replace(parts[0], heading=finding)
    n = max(1, len([one for one in keys_of(rows, "operation") if one != numbers.ALL]))
    return plotting.matrix_panels(
        parts,
        colour_title="operations for, less those against"
        if is_narrow()
        else "operations in which it holds, less those in which the opposite does",
        limit=n,
        names="all",
        notes=notes,
    )


def _panel(
    rows: DataFrame,
    title: str,
    conclusions: Sequence[Conclusion],
    groups: Mapping[str, Mapping[str, tuple[str, str]]],
) -> plotting.Matrix:
    """Conclusions by lens.

    Args:
        groups: by a group's name, and a column's name: counterfactual and metric.
    """
    columns = [
        plotting.Columns(
            name,
            tuple(lenses),
            np.array([[_net(rows, one, *lens) for lens in lenses.values()] for one in conclusions]),
        )
        for name, lenses in groups.items()
    ]
    letters = SHORTEST if is_narrow() else 100
    names = tuple(
        plotting.plain(shorten(short(one), letters, placeholder=" …")) for one in conclusions
    )
    return plotting.Matrix(plotting.plain(title), names, tuple(columns))


def short(conclusion: Conclusion) -> str:
    """The sentence of a conclusion up to its colon."""
    words = conclusion.sentence.partition(":")[0].rstrip(".").replace("`", "").split(" ")
    return " ".join(
        word.replace(word.strip("()"), display_name(word.strip("()"))) if word in METHODS else word
        for word in words
    )


def _net(rows: DataFrame, conclusion: Conclusion, counterfactual: str, metric: str) -> float:
    """The operations in which it holds, less those in which the opposite does; NaN without any."""
    keys = {"conclusion": conclusion.key, "counterfactual": counterfactual, "metric": metric}
    verdicts = [
        one.verdict
        for one in records(select(rows, **keys))
        if one.operation != numbers.ALL and one.verdict
    ]
    return float(sum(SIGNS.get(one, 0) for one in verdicts)) if verdicts else float("nan")


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
