"""Benchmarks before and after a knockout: accuracy, its interval, the paired change.

Reads a run of `experiments/how_good_is_it.py`, without loading a model; prints the table and writes
it as HTML and its numbers as CSV.
"""

from collections.abc import Mapping
from typing import Any

from pandas import DataFrame

from arith_lens.answers import Answers
from arith_lens.evaluation import EvaluationResult
from arith_lens.paper import paper_model
from arith_lens.runs import Run
from experiments import results
from figures.command import command
from figures.common import TableOptions, chosen_run
from figures.exhibit import Table, command_for

PAPER = {"commonsense_qa": "csqa"}  # the paper's names where they differ
BEFORE = "plain"


def exhibits(options: TableOptions) -> list[Table]:
    """The table of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "how_good_is_it")
    evaluations = {
        name: results.EVALUATION.load(run, name) for name in results.EVALUATION.labels(run)
    }
    before = evaluations[BEFORE]
    return [
        Table(
            name="benchmarks",
            title=f"Benchmarks, {run.config['model']}",
            look="Mathematics should fall without the key heads, other tasks hardly, and neither "
            "without random heads.",
            notes=notes(before, run),
            runs=(run,),
            numbers=DataFrame([numbers_of(task, evaluations) for task in before.tasks]),
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
    before = evaluations[BEFORE].task(task)
    trusted = evaluations[BEFORE].task(task, trusted=True)
    doubts = len(before) - len(trusted)
    cells = {
        "task": task,
        "shots": str(numbers_of(task, evaluations)["shots"]),
        "questions": str(len(before)) + (f" ({doubts} doubtful)" if doubts else ""),
        "as it is": _share(before),
    }
    for name, result in evaluations.items():
        if name != BEFORE:
            change = evaluations[BEFORE].change_to(result, task)
            low, high = change.ci()
            cells[_title(name, run)] = (
                f"{change.after:.1%}: {100 * change.difference:+.1f} "
                f"[{100 * low:+.1f}, {100 * high:+.1f}], p = {change.p_value:.2g}"
            )
    return cells


def numbers_of(task: str, evaluations: Mapping[str, EvaluationResult]) -> dict[str, Any]:
    """One task under every knockout, with and without the questions whose answers are doubtful."""
    summary = evaluations[BEFORE].summary()
    line = summary[summary["task"] == task].iloc[0].to_dict()
    for name, result in evaluations.items():
        if name == BEFORE:
            continue
        change = evaluations[BEFORE].change_to(result, task)
        low, high = change.ci()
        line |= {name: change.after, f"{name}_lost": change.lost, f"{name}_gained": change.gained}
        line |= {f"{name}_low": low, f"{name}_high": high, f"{name}_p": change.p_value}
        line[f"{name}_trusted"] = result.task(task, trusted=True).accuracy
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
    for name in results.EVALUATION.labels(run):
        if heads := results.EVALUATION.facts(run, name)["heads"]:
            lines.append(f"{_title(name, run)}: {', '.join(heads)}.")
    paper = paper_model(run.config["model"])
    if paper is not None and paper.before:
        accuracies = [
            f"{task} {paper.before[PAPER.get(task, task)]:.1f}"
            for task in listed_tasks(before)
            if PAPER.get(task, task) in paper.before
        ]
        lines.append(f"The paper's Table 1, {paper.name} as it is: {', '.join(accuracies)}.")
    return lines


def _title(name: str, run: Run) -> str:
    heads = results.EVALUATION.facts(run, name)["heads"]
    what = "strongest" if name == "strongest" else f"random (seed {name.rpartition('-')[2]})"
    return f"without {len(heads)} {what}"


def _share(answers: Answers) -> str:
    low, high = answers.ci()
    return f"{answers.accuracy:.1%} [{low:.0%}, {high:.0%}]"


main = command_for(exhibits)

if __name__ == "__main__":
    command(main, "benchmarks", __doc__)
