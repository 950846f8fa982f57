"""Benchmarks before and after a knockout: accuracy, its interval, the paired change.

Reads a run of `experiments how_good_is_it`, without loading a model; prints the table and writes
it as HTML and its numbers as CSV.
"""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from pandas import DataFrame

from arith_lens.answers import Answers
from arith_lens.evaluation import EvaluationResult
from arith_lens.paper import paper_model
from arith_lens.runs import Run
from experiments import results
from experiments.benchmarks import PLAIN, PLAIN_FOR_CONTROLS
from figures.common import TableOptions, chosen_run
from figures.exhibit import Table
from figures.transfer import CONTROL_NAMES

TASK_NAMES = {"commonsense_qa": "csqa"}  # the paper's names where they differ
STRONGEST = "strongest"


def exhibits(options: TableOptions) -> list[Table]:
    """The table of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "how_good_is_it")
    evaluations = {
        name: results.EVALUATION.load(run, name) for name in results.EVALUATION.labels(run)
    }
    before = evaluations[PLAIN]
    return [
        Table(
            name="benchmarks",
            title=f"Benchmarks, {run.config['model']}",
            look="Mathematics should fall without the key heads, other tasks hardly, and neither "
            "without random heads.",
            notes=notes(before, run),
            runs=(run,),
            numbers=DataFrame([task_numbers(task, evaluations) for task in before.tasks]),
            cells=DataFrame([row(task, evaluations, run) for task in listed_tasks(before)]),
        )
    ]


def listed_tasks(result: EvaluationResult) -> list[str]:
    """The groups, and the tasks that are in no group. The CSV has all tasks."""
    groups = result.settings["groups"]
    inside = {leaf for leaves in groups.values() for leaf in leaves}
    return [*groups, *(task for task in result.settings["tasks"] if task not in inside)]


def row(task: str, evaluations: Mapping[str, EvaluationResult], run: Run) -> dict[str, str]:
    """One task as text."""
    before = evaluations[PLAIN].task(task)
    trusted = evaluations[PLAIN].task(task, trusted=True)
    doubts = len(before) - len(trusted)
    cells = {
        "task": task,
        "shots": str(task_numbers(task, evaluations)["shots"]),
        "questions": str(len(before)) + (f" ({doubts} doubtful)" if doubts else ""),
        "as it is": _share(before),
    }
    if STRONGEST in evaluations:
        change = evaluations[PLAIN].change_to(evaluations[STRONGEST], task)
        low, high = change.ci()
        n_heads = len(results.EVALUATION.facts(run, STRONGEST)["heads"])
        cells[f"without {n_heads} strongest"] = (
            f"{change.after:.1%}: {100 * change.difference:+.1f} "
            f"[{100 * low:+.1f}, {100 * high:+.1f}], p = {change.p_value:.2g}"
        )
    for kind, changes in control_changes(task, evaluations).items():
        mean, low, high = (100 * of(changes) for of in (fmean, min, max))
        cells[CONTROL_NAMES[kind]] = f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"
    return cells


def control_changes(
    task: str, evaluations: Mapping[str, EvaluationResult]
) -> dict[str, list[float]]:
    """The change of accuracy without each draw of control heads, by kind of control.

    A kind that was not computed is left out, and so are both if the controls answered no question
    of this task.
    """
    before = evaluations.get(PLAIN_FOR_CONTROLS)
    if before is None or task not in before.tasks:
        return {}
    changes = {
        kind: [
            before.change_to(result, task).difference
            for name, result in evaluations.items()
            if name.startswith(f"{kind}-")
        ]
        for kind in CONTROL_NAMES
    }
    return {kind: of_kind for kind, of_kind in changes.items() if of_kind}


def task_numbers(task: str, evaluations: Mapping[str, EvaluationResult]) -> dict[str, Any]:
    """One task under every knockout, with and without the questions whose answers are doubtful."""
    summary = evaluations[PLAIN].summary()
    line = summary[summary["task"] == task].iloc[0].to_dict()
    if STRONGEST in evaluations:
        change = evaluations[PLAIN].change_to(evaluations[STRONGEST], task)
        low, high = change.ci()
        line |= {"strongest": change.after, "strongest_lost": change.lost}
        line |= {"strongest_gained": change.gained, "strongest_low": low, "strongest_high": high}
        line["strongest_p"] = change.p_value
        line["strongest_trusted"] = evaluations[STRONGEST].task(task, trusted=True).accuracy
    for kind, changes in control_changes(task, evaluations).items():
        line |= {f"{kind}_mean": fmean(changes), f"{kind}_low": min(changes)}
        line |= {f"{kind}_high": max(changes), f"{kind}_draws": len(changes)}
    return line


def notes(before: EvaluationResult, run: Run) -> list[str]:
    """How to read the table, and the paper's numbers."""
    limit = run.config["limit"]
    lines = [
        "Accuracy with Wilson's 95% interval; after a knockout: the difference in points [95% "
        "interval, questions paired], and McNemar's exact test.",
        f"Asked by {before.settings['harness']}; "
        + ("all questions." if limit is None else f"the first {limit} questions of each task."),
    ]
    if results.EVALUATION.is_in(run, STRONGEST):
        heads = results.EVALUATION.facts(run, STRONGEST)["heads"]
        lines.append(f"Strongest: {', '.join(heads)}.")
    if run.config["controls"] and run.config["heads"]:
        few = run.config["control_limit"]
        lines.append(
            f"Random heads: {run.config['controls']} draws of {run.config['heads']} from all "
            "heads; same layers: as many draws, each with the layers of the strongest heads, from "
            "all heads but these. Difference in points, mean (range)"
            + (f", on the first {few} questions of each task." if few else ".")
        )
    paper = paper_model(run.config["model"])
    if paper is not None and paper.before:
        accuracies = [
            f"{task} {paper.before[TASK_NAMES.get(task, task)]:.1f}"
            for task in listed_tasks(before)
            if TASK_NAMES.get(task, task) in paper.before
        ]
        lines.append(f"The paper's Table 1, {paper.name} as it is: {', '.join(accuracies)}.")
    return lines


def _share(answers: Answers) -> str:
    low, high = answers.ci()
    return f"{answers.accuracy:.1%} [{low:.0%}, {high:.0%}]"
