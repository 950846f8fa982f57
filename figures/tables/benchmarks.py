"""The table `benchmarks`: how many questions a model answers right, with and without its heads.

Keys: group and task ("all" for the whole of a group, or of a task that is in no group; `task/kind`
for a kind of questions within a task); knocked_out ("strongest", and the controls "random" and
"same layers"); component, a head of the set; metric, one of the harness's own.
"""

from collections.abc import Iterator, Mapping
from math import isnan
from typing import Any

from arith_lens.evaluation import EvaluationResult
from arith_lens.paper import paper_model
from arith_lens.runs import Run
from experiments import results
from experiments.benchmarks import PLAIN, PLAIN_FOR_CONTROLS
from figures.common import PAPER_TASK_NAMES
from figures.tables.answers import (
    AFTER,
    ALL,
    BEFORE,
    CHANGE,
    CONTROLS,
    P_VALUE,
    accuracy_number,
    paired_number,
    place_rows,
)
from figures.tables.number import Number, over_draws
from figures.tables.table import QuestionTable, Row, row
from figures.tables.tuning import DOUBTFUL, PAPERS_BEFORE

STRONGEST = "strongest"
TRUSTED = "accuracy before, without doubtful questions"
TRUSTED_AFTER = "accuracy after, without doubtful questions"
SHOTS, SECONDS, HARNESS = "shots", "seconds of answering", "the harness's metric"
LOST, GAINED = "questions lost", "questions gained"


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `how_good_is_it`. Raises RunError if it is damaged."""
    evaluations = {
        name: results.EVALUATION.load(run, name) for name in results.EVALUATION.labels(run)
    }
    before, paper, rows = evaluations[PLAIN], paper_model(run.config["model"]), []
    if STRONGEST in evaluations:
        heads = results.EVALUATION.facts(run, STRONGEST)["heads"]
        rows += place_rows(heads, knocked_out=STRONGEST)
    summary: Any = before.summary()
    for line in summary.to_dict("records"):
        keys = _keys(line["task"], before)
        rows += _before_rows(before, line, keys)
        rows += _change_rows(evaluations, line["task"], keys)
        short = PAPER_TASK_NAMES.get(str(line["task"]), str(line["task"]))
        if paper is not None and keys["task"] == ALL and short in paper.before:
            rows.append(row(PAPERS_BEFORE, Number(paper.before[short] / 100), **keys))
    return QuestionTable.of("benchmarks", str(run.config["model"]), rows)


def _keys(name: str, result: EvaluationResult) -> dict[str, str]:
    """The group and the task of one name of the summary."""
    leaf, groups = name.split("/")[0], result.settings["groups"]
    if name in groups or (name == leaf and not any(leaf in some for some in groups.values())):
        return {"group": name, "task": ALL}
    group = next((group for group, leaves in groups.items() if leaf in leaves), leaf)
    return {"group": group, "task": name}


def _before_rows(
    before: EvaluationResult, line: Mapping[str, Any], keys: Mapping[str, str]
) -> Iterator[Row]:
    """One task as the model is."""
    yield row(BEFORE, accuracy_number(before.task(line["task"])), **keys)
    yield row(TRUSTED, Number(line["trusted"], n=line["questions"] - line["flagged"]), **keys)
    yield row(DOUBTFUL, Number(line["flagged"], unit="count"), **keys)
    shots = [int(count) for count in line["shots"].split(", ")]
    yield row(SHOTS, over_draws([float(n) for n in shots], unit="count", what="tasks"), **keys)
    if not isnan(line["seconds"]):
        yield row(SECONDS, Number(line["seconds"], unit="seconds"), **keys)
    for name, number in before.harness().get(line["task"], {}).items():
        yield row(HARNESS, Number(number), **keys, metric=name)


def _change_rows(
    evaluations: Mapping[str, EvaluationResult], task: str, keys: Mapping[str, str]
) -> Iterator[Row]:
    """One task without the strongest heads, and without each kind of control heads.

    A kind that was not computed is left out, and so are both if the controls answered no question
    of this task.
    """
    if STRONGEST in evaluations:
        after, of_set = evaluations[STRONGEST], {**keys, "knocked_out": STRONGEST}
        change = evaluations[PLAIN].change_to(after, task)
        trusted = after.task(task, trusted=True)
        yield row(AFTER, Number(change.after, n=change.n_questions), **of_set)
        yield row(TRUSTED_AFTER, Number(trusted.accuracy, n=len(trusted)), **of_set)
        yield row(CHANGE, paired_number(change), **of_set)
        yield row(LOST, Number(change.lost, unit="count"), **of_set)
        yield row(GAINED, Number(change.gained, unit="count"), **of_set)
        yield row(P_VALUE, Number(change.p_value, unit="p"), **of_set)
    before = evaluations.get(PLAIN_FOR_CONTROLS)
    if before is None or task not in before.tasks:
        return
    for kind, title in CONTROLS.items():
        changes = [
            before.change_to(result, task).difference
            for name, result in evaluations.items()
            if name.startswith(f"{kind}-")
        ]
        if changes:
            yield row(CHANGE, over_draws(changes, unit="points"), **keys, knocked_out=title)
