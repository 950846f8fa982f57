"""Transfer and control: word problems and generic tasks, before and after a knockout.

Reads a run of `experiments what_else_breaks`, without loading a model; prints the table and
writes it as HTML and its numbers as CSV.
"""

from collections.abc import Mapping
from typing import Any

from pandas import DataFrame

from arith_lens.answers import AccuracyChange, Answers
from arith_lens.paper import paper_model
from arith_lens.runs import Run
from experiments import results
from figures.common import TableOptions, chosen_run
from figures.exhibit import Table

TASK_GROUPS = {  # the tasks of each group, in the closed world and in the benchmarks
    "word problems": ("gain_lose", "compare", "groups", "two_step", "gsm8k", "svamp"),
    "generic tasks": ("facts", "opposites", "successors", "plurals", "copying", "mmlu"),
}
HEAD_SET_NAMES = {
    "key": "key heads (mean of + − × ÷)",
    "key-in-some": "key in any operation",
    "strongest": "strongest",
}
CONTROL_NAMES = {"random": "random heads", "matched": "random heads, same layers"}


def exhibits(options: TableOptions) -> list[Table]:
    """The table of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "what_else_breaks")
    answers = {name: results.ANSWERS.load(run, name) for name in ("none", *HEAD_SET_NAMES)}
    controls = results.control_answers(run)
    rows = [row(task, answers, controls, run) for task in tasks(answers["none"])]
    cells, numbers = (DataFrame([row_parts[i] for row_parts in rows]) for i in (0, 1))
    return [
        Table(
            name="transfer",
            title=f"Transfer and control of a knockout, {run.config['model']}",
            look="Word problems that were not used to find the heads should fall with them, "
            "generic tasks should not. In the paper SVAMP falls by two thirds, MMLU hardly.",
            notes=notes(run),
            runs=(run,),
            numbers=numbers,
            cells=cells,
        )
    ]


def tasks(answers: Answers) -> dict[str, list[bool]]:
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


def row(
    task: str,
    answers: Mapping[str, Answers],
    controls: Mapping[str, tuple[Answers, list[Answers]]],
    run: Run,
) -> tuple[dict[str, str], dict[str, Any]]:
    """One task under every knockout: as text and as numbers."""
    chosen = tasks(answers["none"])[task]
    before = answers["none"].select(chosen)
    low, high = before.ci()
    text = {
        "task": task,
        "questions": str(len(before)),
        "before": f"{before.accuracy:.1%} [{low:.0%}, {high:.0%}]",
    }
    numbers: dict[str, Any] = {"task": task, "questions": len(before), "before": before.accuracy}
    for name, title in HEAD_SET_NAMES.items():
        change = before.change_to(answers[name].select(chosen))
        n_heads = len(results.ANSWERS.facts(run, name)["heads"])
        text[f"{title} ({n_heads})"] = _change_text(change)
        ends = dict(zip(("low", "high"), change.ci(), strict=True))
        numbers |= {name: change.after, **{f"{name}_{end}": v for end, v in ends.items()}}
        numbers |= {f"{name}_relative": change.relative, f"{name}_p": change.p_value}
    for kind, (before, after) in controls.items():
        chosen = tasks(before)[task]
        same = before.select(chosen)
        others = [same.change_to(answer.select(chosen)).difference for answer in after]
        mean, low, high = sum(others) / len(others), min(others), max(others)
        text[CONTROL_NAMES[kind]] = f"{100 * mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
        numbers |= {f"{kind}_mean": mean, f"{kind}_low": low, f"{kind}_high": high}
    return text, numbers


def _change_text(change: AccuracyChange) -> str:
    low, high = change.ci()
    return (
        f"{change.after:.1%}: {100 * change.difference:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
        f", {change.relative:+.0%}"
    )


def notes(run: Run) -> list[str]:
    """How to read the table, and the paper's numbers."""
    named = "; ".join(
        f"{title}: {', '.join(results.ANSWERS.facts(run, name)['heads']) or 'none'}"
        for name, title in HEAD_SET_NAMES.items()
    )
    world = run.config["data_dir"] is None
    lines = [
        "Accuracy after: difference in points [95% interval, questions paired], and the relative "
        f"change. Random heads: {run.config['controls']} draws of {run.config['heads']} from all "
        "heads; same layers: as many draws, each with the layers of the strongest heads, from all "
        "heads but these. Difference in points, mean (range), on "
        f"{run.config.get('control_limit') or 'all'} questions of each task.",
        f"{named}. Each replaced by one vector, its mean over the counterfactuals of the four "
        "operations, at every token but BOS.",
    ]
    if world:
        lines.append(
            "The closed world's word problems and generic tasks stand in for SVAMP, GSM8K and MMLU."
        )
    paper = paper_model(run.config["model"])
    if paper is not None and paper.name == "LLaMA2-7B":
        lines.append(
            "The paper, LLaMA2-7B: SVAMP 34.7 to 11.8 (-66%), MMLU humanities 42.9 to 42.6."
        )
    return lines
