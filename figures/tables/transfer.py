"""The table `transfer`: word problems and generic tasks, before and after a knockout of heads.

Keys: group ("word problems" or "generic tasks") and task ("all" for the whole group); knocked_out,
the set of heads ("key", "key in any operation", "strongest", and the controls "random" and
"same layers"); component, a head of the set.
"""

from collections.abc import Callable, Iterator, Sequence

from arith_lens.answers import Answers, change_over_seeds
from arith_lens.runs import Run
from experiments import results
from figures.tables.answers import (
    AFTER,
    ALL,
    BEFORE,
    CHANGE,
    CONTROLS,
    P_VALUE,
    RELATIVE_CHANGE,
    accuracy_number,
    change_number,
    paired_number,
    place_rows,
    resampled_change,
)
from figures.tables.number import Number, Unit, over_draws
from figures.tables.table import QuestionTable, Row, row

SETS = {"key": "key", "key-in-some": "key in any operation", "strongest": "strongest"}
"""The sets of heads, by their names in results."""
GROUPS = {  # the tasks of each group, in the closed world and in the benchmarks
    "word problems": ("gain_lose", "compare", "groups", "two_step", "gsm8k", "svamp"),
    "generic tasks": ("facts", "opposites", "successors", "plurals", "copying", "mmlu"),
}


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `what_else_breaks`. Raises RunError if it is damaged."""
    before, rows = results.ANSWERS.load(run, "none"), []
    for name, title in SETS.items():
        rows += place_rows(results.ANSWERS.facts(run, name)["heads"], knocked_out=title)
    for (group, task), chosen in _parts(before).items():
        rows += _set_rows(run, before, chosen, group=group, task=task)
    for kind, (same, after) in results.control_answers(run).items():
        for (group, task), chosen in _parts(same).items():
            keys = {"group": group, "task": task, "knocked_out": CONTROLS[kind]}
            of_part = same.select(chosen)
            changes = [of_part.change_to(one.select(chosen)).difference for one in after]
            rows.append(row(CHANGE, over_draws(changes, unit="points"), **keys))
    return QuestionTable.of("transfer", str(run.config["model"]), rows)


def _parts(answers: Answers) -> dict[tuple[str, str], list[bool]]:
    """Which answers belong to each group and to each of its tasks."""
    parts: dict[tuple[str, str], list[bool]] = {}
    for group, names in GROUPS.items():
        inside = [task.split("/")[0] in names for task in answers.task]
        if any(inside):
            parts[group, ALL] = inside
            of_group = [t for t, yes in zip(answers.task, inside, strict=True) if yes]
            for task in dict.fromkeys(of_group):
                parts[group, task] = [t == task for t in answers.task]
    return parts


def _set_rows(run: Run, before: Answers, chosen: list[bool], **keys: str) -> Iterator[Row]:
    """The questions of one part before, and without each set of heads."""
    of_part = before.select(chosen)
    yield row(BEFORE, accuracy_number(of_part), **keys)
    for name, title in SETS.items():
        change = of_part.change_to(results.ANSWERS.load(run, name).select(chosen))
        of_set = {**keys, "knocked_out": title}
        yield row(AFTER, Number(change.after, n=change.n_questions), **of_set)
        yield row(CHANGE, paired_number(change), **of_set)
        yield row(P_VALUE, Number(change.p_value, unit="p"), **of_set)
        if change.before:
            yield row(RELATIVE_CHANGE, Number(change.relative, unit="relative"), **of_set)


def changes_on(
    run: Run, questions: Callable[[Answers], list[bool]], unit: Unit, sets: Sequence[str]
) -> Iterator[Row]:
    """The accuracy on some questions before, and its change without each set and control heads.

    Intervals are of resampled questions; those of control heads are over draws and questions, in
    points. A set whose change does not exist, such as a share of no right answer, has no row.

    Args:
        run: a run of `what_else_breaks`.
        unit: of the changes without sets: "points", or "relative".
        sets: the sets, by their names in results.
    """
    before = results.ANSWERS.load(run, "none")
    chosen = questions(before)
    of_part = before.select(chosen)
    if len(of_part):
        yield row(BEFORE, accuracy_number(of_part))
    for name in sets:
        after = results.ANSWERS.load(run, name).select(chosen)
        number = resampled_change(of_part, after, unit)
        if number is not None:
            yield row(CHANGE, number, knocked_out=SETS[name])
    for kind, (plain, draws) in results.control_answers(run).items():
        change = change_over_seeds(plain, draws, questions(plain))
        number = change_number(change, sampled="draws")
        yield row(CHANGE, number, knocked_out=CONTROLS[kind], draws=len(draws))
