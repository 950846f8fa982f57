"""Transfer, benchmarks and carrying: other tasks before and after a knockout of heads."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from pandas import DataFrame

from arith_lens.paper import paper_model
from experiments import results
from experiments.benchmarks import PLAIN
from figures.common import chosen_run, has_tables_alone
from figures.exhibit import Table, text_table_of
from figures.options import TableOptions
from figures.tables import benchmarks as benchmark_numbers
from figures.tables import carrying as carrying_numbers
from figures.tables import transfer as transfer_numbers
from figures.tables.answers import AFTER, ALL, BEFORE, CHANGE, HEADS, P_VALUE, RELATIVE_CHANGE
from figures.tables.table import has, records, select, value
from figures.tables.tuning import DOUBTFUL, PAPERS_BEFORE, TRAININGS
from figures.views.words import components_text, interval_text, range_text, share_text

CONTROL_NAMES = {"random": "random heads", "same layers": "random heads, same layers"}
Texts = dict[str, str]


def _part_name(group: str, task: str) -> str:
    """The name of a group or task in a printed table."""
    return f"all {group}" if task == ALL else task


def _control_texts(changes: DataFrame, before: str = "") -> Texts:
    """The changes without each kind of control heads, by the titles of their columns."""
    return {
        before + title: range_text(one)
        for kind, title in CONTROL_NAMES.items()
        for one in records(select(changes, knocked_out=kind))
    }


HEAD_SET_NAMES = {
    "key": "key heads (mean of + − × ÷)",
    "key in any operation": "key in any operation",
    "strongest": "strongest",
}


def transfer(options: TableOptions) -> list[Table]:
    """Transfer and control: word problems and generic tasks, before and after a knockout.

    Reads a run of `experiments what_else_breaks`, without loading a model; prints the table and
    writes it as HTML and its numbers as CSV.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "what_else_breaks")
    return [
        text_table_of(
            lambda: transfer_numbers.table(run),
            [run],
            name="transfer",
            title=f"Transfer and control of a knockout, {run.config['model']}",
            caption=lambda _: (
                "Word problems that were not used to find the heads should fall with them, "
                "generic tasks should not. In the paper SVAMP falls by two thirds, MMLU hardly."
            ),
            notes=_transfer_notes,
            cells=_transfer_cells,
        )
    ]


def _transfer_cells(rows: DataFrame) -> DataFrame:
    """One row per group and task, with every knockout."""
    return DataFrame(
        {
            "task": _part_name(before.group, before.task),
            "questions": f"{before.n:.0f}",
            "before": share_text(before),
            **_knockout_texts(rows, select(rows, group=before.group, task=before.task)),
        }
        for before in records(select(rows, measure=BEFORE))
    )


def _knockout_texts(rows: DataFrame, of_part: DataFrame) -> Texts:
    """One task without each set of heads."""
    text = {}
    for name, title in HEAD_SET_NAMES.items():
        of_set = select(of_part, knocked_out=name)
        (change,) = records(select(of_set, measure=CHANGE))
        n_heads = value(rows, measure=HEADS, knocked_out=name)
        text[f"{title} ({n_heads:.0f})"] = (
            f"{value(of_set, measure=AFTER):.1%}: {interval_text(change)}"
        ) + "".join(
            f", {one.value:+.0%}" for one in records(select(of_set, measure=RELATIVE_CHANGE))
        )
    return text | _control_texts(select(of_part, measure=CHANGE))


def _transfer_notes(rows: DataFrame, config: Mapping[str, Any]) -> list[str]:
    """How to read the table, and the paper's numbers."""
    named = "; ".join(
        f"{title}: {components_text(select(rows, knocked_out=name)) or 'none'}"
        for name, title in HEAD_SET_NAMES.items()
    )
    lines = [
        "Accuracy after: difference in points [95% interval, questions paired], and the relative "
        f"change. Random heads: {config['controls']} draws of {config['heads']} from all "
        "heads; same layers: as many draws, each with the layers of the strongest heads, from all "
        "heads but these. Difference in points, mean (range), on "
        f"{config.get('control_limit') or 'all'} questions of each task.",
        f"{named}. Each replaced by one vector, its mean over the counterfactuals of the four "
        "operations, at every token but BOS.",
    ]
    if config["data_dir"] is None:
        lines.append(
            "The closed world's word problems and generic tasks stand in for SVAMP, GSM8K and MMLU."
        )
    paper = paper_model(config["model"])
    if paper is not None and paper.name == "LLaMA2-7B":
        lines.append(
            "The paper, LLaMA2-7B: SVAMP 34.7 to 11.8 (-66%), MMLU humanities 42.9 to 42.6."
        )
    return lines


def benchmarks(options: TableOptions) -> list[Table]:
    """Benchmarks before and after a knockout: accuracy, its interval, the paired change.

    Reads a run of `experiments how_good_is_it`, without loading a model; prints the table and
    writes it as HTML and its numbers as CSV.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "how_good_is_it")
    is_stored = not has_tables_alone(run)
    harness = results.EVALUATION.load(run, PLAIN).settings["harness"] if is_stored else ""
    return [
        text_table_of(
            lambda: benchmark_numbers.table(run),
            [run],
            name="benchmarks",
            title=f"Benchmarks, {run.config['model']}",
            caption=lambda _: (
                "Mathematics should fall without the key heads, other tasks hardly, and neither "
                "without random heads."
            ),
            notes=partial(_benchmark_notes, harness=harness),
            cells=_benchmark_cells,
        )
    ]


def _benchmark_cells(rows: DataFrame) -> DataFrame:
    """The groups, and the tasks that are in no group. The CSV has all tasks."""
    return DataFrame(
        _benchmark_texts(rows, before) for before in records(select(rows, measure=BEFORE, task=ALL))
    )


def _benchmark_texts(rows: DataFrame, before: Any) -> Texts:
    """One task."""
    of_task = select(rows, group=before.group, task=ALL)
    doubts = value(of_task, measure=DOUBTFUL)
    (shots,) = records(select(of_task, measure=benchmark_numbers.SHOTS))
    several = "" if shots.low == shots.high else f" to {shots.high:.0f}"
    cells = {
        "task": before.group,
        "shots": f"{shots.low:.0f}{several}",
        "questions": f"{before.n:.0f}" + (f" ({doubts:.0f} doubtful)" if doubts else ""),
        "as it is": share_text(before),
    }
    changes = select(of_task, measure=CHANGE)
    for change in records(select(changes, knocked_out="strongest")):
        n_heads = value(rows, measure=HEADS)
        after, p = (value(of_task, measure=measure) for measure in (AFTER, P_VALUE))
        cells[f"without {n_heads:.0f} strongest"] = (
            f"{after:.1%}: {interval_text(change)}, p = {p:.2g}"
        )
    return cells | _control_texts(changes)


def _benchmark_notes(rows: DataFrame, config: Mapping[str, Any], *, harness: str) -> list[str]:
    """How to read the table, and the paper's numbers."""
    limit = config["limit"]
    lines = [
        "Accuracy with Wilson's 95% interval; after a knockout: the difference in points [95% "
        "interval, questions paired], and McNemar's exact test.",
        f"Asked by {harness}; " * bool(harness)
        + ("all questions." if limit is None else f"the first {limit} questions of each task."),
    ]
    if has(rows, measure=HEADS):
        lines.append(f"Strongest: {components_text(rows)}.")
    if config["controls"] and config["heads"]:
        few = config["control_limit"]
        lines.append(
            f"Random heads: {config['controls']} draws of {config['heads']} from all "
            "heads; same layers: as many draws, each with the layers of the strongest heads, from "
            "all heads but these. Difference in points, mean (range)"
            + (f", on the first {few} questions of each task." if few else ".")
        )
    paper, papers = paper_model(config["model"]), select(rows, measure=PAPERS_BEFORE)
    if paper is not None and paper.before:
        accuracies = [f"{one.group} {100 * one.value:.1f}" for one in records(papers)]
        lines.append(f"The paper's Table 1, {paper.name} as it is: {', '.join(accuracies)}.")
    return lines


def carrying(options: TableOptions) -> list[Table]:
    """Negative transfer: what a knockout of the tuned heads costs, before and after tuning.

    Reads a run of `experiments do_tuned_heads_carry_more`, without loading a model; prints the
    table and writes it as HTML and its numbers as CSV.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "do_tuned_heads_carry_more")
    return [
        text_table_of(
            lambda: carrying_numbers.table(run),
            [run],
            name="carrying",
            title=f"Do other abilities hang on the tuned heads? {run.config['model']}",
            caption=lambda _: (
                "Whether generic tasks lose more by the knockout after tuning than before: then "
                "tuning has put more than mathematics into these heads."
            ),
            notes=_carrying_notes,
            cells=_carrying_cells,
        )
    ]


MODEL_NAMES = {carrying_numbers.BEFORE_TUNING: "before", carrying_numbers.TUNED: "tuned"}


def _carrying_cells(rows: DataFrame) -> DataFrame:
    """One row per group and task, with both models."""
    untuned = select(
        rows, measure=carrying_numbers.ACCURACY, tuned_model=carrying_numbers.BEFORE_TUNING
    )
    return DataFrame(
        {
            "task": _part_name(one.group, one.task),
            "questions": f"{one.n:.0f}",
            **_carrying_texts(select(rows, group=one.group, task=one.task)),
        }
        for one in records(untuned)
    )


def _carrying_texts(rows: DataFrame) -> Texts:
    """One group or task."""
    accuracies = select(rows, measure=carrying_numbers.ACCURACY)
    changes = select(rows, measure=CHANGE)
    by_model = {name: select(changes, tuned_model=model) for model, name in MODEL_NAMES.items()}
    text = {
        name: f"{value(accuracies, tuned_model=model):.1%}" for model, name in MODEL_NAMES.items()
    }
    for name, of_model in by_model.items():
        (change,) = records(select(of_model, knocked_out=carrying_numbers.TUNED_HEADS))
        text[f"{name}: without"] = interval_text(change)
    (more,) = records(select(rows, measure=carrying_numbers.MORE))
    text["more after tuning"] = interval_text(more)
    controls = [_control_texts(of_model, f"{name}: ") for name, of_model in by_model.items()]
    for pair in zip(*(texts.items() for texts in controls), strict=True):
        text |= dict(pair)
    return text


def _carrying_notes(rows: DataFrame, config: Mapping[str, Any]) -> list[str]:
    """How to read the table."""
    controls, n_seeds = config["controls"], value(rows, measure=TRAININGS)
    return [
        f"Heads {components_text(rows)}, those that precise tuning trained. Without: each replaced "
        "by one vector, its mean over the counterfactuals of the four operations in the model at "
        "hand, at every token but BOS. Changes in points of accuracy [95% interval, over questions "
        f"and {n_seeds:.0f} seeds of tuning].",
        "More after tuning: the change in the tuned models less that before."
        + f" Random heads: {controls} draws of as many from all heads; same layers: as many draws, "
        "each with the layers of the tuned heads, from all heads but these. Change in points, mean "
        f"(range), on {config.get('control_limit') or 'all'} questions of each task."
        * bool(controls),
    ]
