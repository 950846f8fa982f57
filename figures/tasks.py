"""Transfer, benchmarks and carrying: other tasks before and after a knockout of heads."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from pandas import DataFrame

from arith_lens.answers import AccuracyChange, Answers, OverSeeds, changes_by_question, over_seeds
from arith_lens.evaluation import EvaluationResult
from arith_lens.paper import paper_model
from arith_lens.runs import Run
from experiments import results
from experiments.benchmarks import PLAIN, PLAIN_FOR_CONTROLS
from figures.common import PAPER_TASK_NAMES, TableOptions, chosen_run
from figures.exhibit import Table
from figures.tables import tuning

CONTROL_NAMES = {"random": "random heads", "matched": "random heads, same layers"}
Row = tuple[dict[str, str], dict[str, Any]]
"""One task, as text and as numbers."""


def _change_text(value: float, change: AccuracyChange | OverSeeds) -> str:
    """`+1.2 [+0.3, +2.1]`, in points."""
    low, high = change.ci()
    return f"{100 * value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _range_text(mean: float, changes: Sequence[float]) -> str:
    """`+1.2 (+0.3 to +2.1)`, in points."""
    return f"{100 * mean:+.1f} ({100 * min(changes):+.1f} to {100 * max(changes):+.1f})"


def _share_text(answers: Answers) -> str:
    low, high = answers.ci()
    return f"{answers.accuracy:.1%} [{low:.0%}, {high:.0%}]"


TASK_GROUPS = {  # the tasks of each group, in the closed world and in the benchmarks
    "word problems": ("gain_lose", "compare", "groups", "two_step", "gsm8k", "svamp"),
    "generic tasks": ("facts", "opposites", "successors", "plurals", "copying", "mmlu"),
}
HEAD_SET_NAMES = {
    "key": "key heads (mean of + − × ÷)",
    "key-in-some": "key in any operation",
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
    answers = {name: results.ANSWERS.load(run, name) for name in ("none", *HEAD_SET_NAMES)}
    controls = results.control_answers(run)
    rows = [_transfer_row(task, answers, controls, run) for task in _group_masks(answers["none"])]
    return [
        Table(
            name="transfer",
            title=f"Transfer and control of a knockout, {run.config['model']}",
            look="Word problems that were not used to find the heads should fall with them, "
            "generic tasks should not. In the paper SVAMP falls by two thirds, MMLU hardly.",
            notes=_transfer_notes(run),
            runs=(run,),
            numbers=DataFrame([numbers for _, numbers in rows]),
            cells=DataFrame([text for text, _ in rows]),
        )
    ]


def _group_masks(answers: Answers) -> dict[str, list[bool]]:
    """Which answers belong to each group and to each of its tasks."""
    masks: dict[str, list[bool]] = {}
    for group, names in TASK_GROUPS.items():
        inside = [task.split("/")[0] in names for task in answers.task]
        if any(inside):
            masks[f"all {group}"] = inside
            of_group = [t for t, yes in zip(answers.task, inside, strict=True) if yes]
            for task in dict.fromkeys(of_group):
                masks[task] = [t == task for t in answers.task]
    return masks


def _transfer_row(
    task: str,
    answers: Mapping[str, Answers],
    controls: Mapping[str, tuple[Answers, list[Answers]]],
    run: Run,
) -> Row:
    """One task under every knockout."""
    chosen = _group_masks(answers["none"])[task]
    before = answers["none"].select(chosen)
    text = {"task": task, "questions": str(len(before)), "before": _share_text(before)}
    numbers: dict[str, Any] = {"task": task, "questions": len(before), "before": before.accuracy}
    for name, title in HEAD_SET_NAMES.items():
        change = before.change_to(answers[name].select(chosen))
        low, high = change.ci()
        n_heads = len(results.ANSWERS.facts(run, name)["heads"])
        difference = _change_text(change.difference, change)
        text[f"{title} ({n_heads})"] = f"{change.after:.1%}: {difference}, {change.relative:+.0%}"
        numbers |= {name: change.after, f"{name}_low": low, f"{name}_high": high}
        numbers |= {f"{name}_relative": change.relative, f"{name}_p": change.p_value}
    for kind, (before, after) in controls.items():
        chosen = _group_masks(before)[task]
        same = before.select(chosen)
        changes = [same.change_to(answer.select(chosen)).difference for answer in after]
        mean = sum(changes) / len(changes)
        text[CONTROL_NAMES[kind]] = _range_text(mean, changes)
        numbers |= {f"{kind}_mean": mean, f"{kind}_least": min(changes)}
        numbers[f"{kind}_most"] = max(changes)
    return text, numbers


def _transfer_notes(run: Run) -> list[str]:
    """How to read the table, and the paper's numbers."""
    named = "; ".join(
        f"{title}: {', '.join(results.ANSWERS.facts(run, name)['heads']) or 'none'}"
        for name, title in HEAD_SET_NAMES.items()
    )
    lines = [
        "Accuracy after: difference in points [95% interval, questions paired], and the relative "
        f"change. Random heads: {run.config['controls']} draws of {run.config['heads']} from all "
        "heads; same layers: as many draws, each with the layers of the strongest heads, from all "
        "heads but these. Difference in points, mean (range), on "
        f"{run.config.get('control_limit') or 'all'} questions of each task.",
        f"{named}. Each replaced by one vector, its mean over the counterfactuals of the four "
        "operations, at every token but BOS.",
    ]
    if run.config["data_dir"] is None:
        lines.append(
            "The closed world's word problems and generic tasks stand in for SVAMP, GSM8K and MMLU."
        )
    paper = paper_model(run.config["model"])
    if paper is not None and paper.name == "LLaMA2-7B":
        lines.append(
            "The paper, LLaMA2-7B: SVAMP 34.7 to 11.8 (-66%), MMLU humanities 42.9 to 42.6."
        )
    return lines


STRONGEST = "strongest"


def benchmarks(options: TableOptions) -> list[Table]:
    """Benchmarks before and after a knockout: accuracy, its interval, the paired change.

    Reads a run of `experiments how_good_is_it`, without loading a model; prints the table and
    writes it as HTML and its numbers as CSV.

    Raises:
        RunError: there is no run.
    """
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
            notes=_benchmark_notes(before, run),
            runs=(run,),
            numbers=DataFrame([_benchmark_numbers(task, evaluations) for task in before.tasks]),
            cells=DataFrame([_benchmark_cells(name, evaluations, run) for name in _listed(before)]),
        )
    ]


def _listed(result: EvaluationResult) -> list[str]:
    """The groups, and the tasks that are in no group. The CSV has all tasks."""
    groups = result.settings["groups"]
    inside = {leaf for leaves in groups.values() for leaf in leaves}
    return [*groups, *(task for task in result.settings["tasks"] if task not in inside)]


def _benchmark_cells(
    task: str, evaluations: Mapping[str, EvaluationResult], run: Run
) -> dict[str, str]:
    """One task as text."""
    before = evaluations[PLAIN].task(task)
    doubts = len(before) - len(evaluations[PLAIN].task(task, trusted=True))
    cells = {
        "task": task,
        "shots": str(_summary(task, evaluations)["shots"]),
        "questions": str(len(before)) + (f" ({doubts} doubtful)" if doubts else ""),
        "as it is": _share_text(before),
    }
    if STRONGEST in evaluations:
        change = evaluations[PLAIN].change_to(evaluations[STRONGEST], task)
        n_heads = len(results.EVALUATION.facts(run, STRONGEST)["heads"])
        difference = _change_text(change.difference, change)
        cells[f"without {n_heads} strongest"] = (
            f"{change.after:.1%}: {difference}, p = {change.p_value:.2g}"
        )
    for kind, changes in _control_changes(task, evaluations).items():
        cells[CONTROL_NAMES[kind]] = _range_text(fmean(changes), changes)
    return cells


def _summary(task: str, evaluations: Mapping[str, EvaluationResult]) -> dict[str, Any]:
    """The task's row of the summary before a knockout."""
    summary = evaluations[PLAIN].summary()
    return summary[summary["task"] == task].iloc[0].to_dict()


def _control_changes(
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


def _benchmark_numbers(task: str, evaluations: Mapping[str, EvaluationResult]) -> dict[str, Any]:
    """One task under every knockout, with and without the questions whose answers are doubtful."""
    line = _summary(task, evaluations)
    if STRONGEST in evaluations:
        change = evaluations[PLAIN].change_to(evaluations[STRONGEST], task)
        low, high = change.ci()
        line |= {"strongest": change.after, "strongest_lost": change.lost}
        line |= {"strongest_gained": change.gained, "strongest_low": low, "strongest_high": high}
        line["strongest_p"] = change.p_value
        line["strongest_trusted"] = evaluations[STRONGEST].task(task, trusted=True).accuracy
    for kind, changes in _control_changes(task, evaluations).items():
        line |= {f"{kind}_mean": fmean(changes), f"{kind}_least": min(changes)}
        line |= {f"{kind}_most": max(changes), f"{kind}_draws": len(changes)}
    return line


def _benchmark_notes(before: EvaluationResult, run: Run) -> list[str]:
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
        names = {task: PAPER_TASK_NAMES.get(task, task) for task in _listed(before)}
        accuracies = [
            f"{task} {paper.before[name]:.1f}"
            for task, name in names.items()
            if name in paper.before
        ]
        lines.append(f"The paper's Table 1, {paper.name} as it is: {', '.join(accuracies)}.")
    return lines


UNTUNED, CONTROL_BASE = "before", "whole-for-controls"
AnswersByHeads = Mapping[str, Answers]
"""The answers of a model without each set of heads."""


def carrying(options: TableOptions) -> list[Table]:
    """Negative transfer: what a knockout of the tuned heads costs, before and after tuning.

    Reads a run of `experiments do_tuned_heads_carry_more`, without loading a model; prints the
    table and writes it as HTML and its numbers as CSV.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "do_tuned_heads_carry_more")
    answers = {
        model: {heads: _by_part(of_heads) for heads, of_heads in sets.items()}
        for model, sets in _answers_by_model(run).items()
    }
    rows = []
    for part in answers[UNTUNED]["whole"]:
        of_part = {
            model: {heads: parts[part] for heads, parts in sets.items()}
            for model, sets in answers.items()
        }
        rows.append(_carrying_row(part, of_part))
    return [
        Table(
            name="carrying",
            title=f"Do other abilities hang on the tuned heads? {run.config['model']}",
            look="Whether generic tasks lose more by the knockout after tuning than before: then "
            "tuning has put more than mathematics into these heads.",
            notes=_carrying_notes(run),
            runs=(run,),
            numbers=DataFrame([numbers for _, numbers in rows]),
            cells=DataFrame([text for text, _ in rows]),
        )
    ]


def _answers_by_model(run: Run) -> dict[str, dict[str, Answers]]:
    """All answers, by model ("before" or a tuned one) and by knocked-out set of heads.

    Beside them, the answers without a knockout to the questions that controls answer.
    """
    stored, answers = results.KNOCKOUT_ANSWERS, {}
    for model in stored.labels(run, None, "whole"):
        names = stored.labels(run, model, None)
        answers[model] = {heads: stored.load(run, model, heads) for heads in names}
        if any(name.startswith(tuple(CONTROL_NAMES)) for name in names):
            answers[model][CONTROL_BASE] = results.control_questions(run, answers[model]["whole"])
    return answers


def _by_part(answers: Answers) -> dict[str, Answers]:
    """The answers of the two groups and of each task."""
    masks = {f"all {name}": inside for name, inside in tuning.groups(answers).items()}
    masks |= tuning.tasks(answers)
    return {name: answers.select(inside) for name, inside in masks.items()}


def _carrying_row(part: str, answers: Mapping[str, AnswersByHeads]) -> Row:
    """One group or task, by model."""
    before = [answers[UNTUNED]]
    tuned = [sets for model, sets in answers.items() if model != UNTUNED]
    n_questions = len(answers[UNTUNED]["whole"])
    shares = {
        "before": answers[UNTUNED]["whole"].accuracy,
        "tuned": sum(sets["whole"].accuracy for sets in tuned) / len(tuned),
    }
    text = {"task": part, "questions": str(n_questions)}
    text |= {name: f"{share:.1%}" for name, share in shares.items()}
    numbers: dict[str, Any] = {"task": part, "questions": n_questions, **shares}
    lost_before, lost_after = (
        changes_by_question([sets["whole"] for sets in some], [sets["without"] for sets in some])
        for some in (before, tuned)
    )
    for name, lost in (
        ("before: without", lost_before),
        ("tuned: without", lost_after),
        ("more after tuning", lost_after - lost_before),
    ):
        change = over_seeds(lost)
        low, high = change.ci()
        text[name] = _change_text(change.mean, change)
        numbers |= {name: change.mean, f"{name}, low": low, f"{name}, high": high}
    for kind, title in CONTROL_NAMES.items():
        for when, models in (("before", before), ("tuned", tuned)):
            if changes := _changes_without_controls(models, kind):
                name, mean = f"{when}: {title}", fmean(changes)
                text[name] = _range_text(mean, changes)
                numbers |= {name: mean}
                numbers |= {f"{name}, low": min(changes), f"{name}, high": max(changes)}
    return text, numbers


def _changes_without_controls(models: Sequence[AnswersByHeads], kind: str) -> list[float]:
    """The change without each draw of control heads, a mean over the models.

    Of the answers before the knockout, those to the same questions count.
    """
    return [
        fmean(sets[CONTROL_BASE].change_to(sets[name]).difference for sets in models)
        for name in models[0]
        if name.startswith(f"{kind}-")
    ]


def _carrying_notes(run: Run) -> list[str]:
    """How to read the table."""
    stored, controls = results.KNOCKOUT_ANSWERS, run.config["controls"]
    heads = ", ".join(stored.facts(run, UNTUNED, "without")["heads"])
    n_seeds = len(stored.labels(run, None, "whole")) - 1
    return [
        f"Heads {heads}, those that precise tuning trained. Without: each replaced by one vector, "
        "its mean over the counterfactuals of the four operations in the model at hand, at every "
        "token but BOS. Changes in points of accuracy [95% interval, over questions and "
        f"{n_seeds} seeds of tuning].",
        "More after tuning: the change in the tuned models less that before."
        + f" Random heads: {controls} draws of as many from all heads; same layers: as many draws, "
        "each with the layers of the tuned heads, from all heads but these. Change in points, mean "
        f"(range), on {run.config.get('control_limit') or 'all'} questions of each task."
        * bool(controls),
    ]
