"""The words of Tables 1, 2 and 5: cells, and the small print below them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from arith_lens.answers import OverSeeds
from arith_lens.paper import PaperTuning, paper_model
from arith_lens.runs import Run
from experiments import results
from experiments.does_tuning_help import MOST_LOST, Criterion
from figures.tuning import (
    Key,
    TableRow,
    possible_ends,
    rates_tried,
    title_of,
    without_rate,
)

Texts = dict[str, str]
FEW_QUESTIONS = 30
"""With fewer questions an interval is rough."""
TASK_NAMES = {"commonsense_qa": "csqa"}
"""The paper's names of benchmarks, if they differ."""
PAPERS_RATE = 2e-5
MOST_LOST_TEXT = f"at most {100 * MOST_LOST:g} points"
CRITERION_TITLES: dict[Criterion, str] = {
    "mathematics": "mathematics",
    "little_loss": f"{MOST_LOST_TEXT} lost on other generic questions",
}
"""What a rate is chosen for."""


def summary(row: TableRow, criterion: Criterion, paper: PaperTuning | None = None) -> Texts:
    """A row of a table: what was tuned, and the changes of the two groups of tasks."""
    text: Texts = {
        "rate chosen for": CRITERION_TITLES[criterion],
        "tuned": row.title,
        "parameters": f"{row.parameters:,} ({row.parameters / row.facts[0]['of']:.1%})",
        "examples/s": f"{row.speed:.0f}" if row.speed >= 10 else f"{row.speed:.1f}",
        "rate": f"{row.rate:g}",
        "seeds": str(len(row.trainings)),
    }
    for name in row.before.groups:
        accuracy = row.before.accuracy[name]
        text[_headed(name, f"{accuracy:.1%}")] = change_cell(accuracy, row.changes[name])
    if paper is not None:
        text |= paper_cells(paper)
    return text


def no_rate(cells: Texts, key: Key, criterion: Criterion) -> Texts:
    """A row for which no rate of the grid serves a purpose, with the columns of other rows."""
    named = {"rate chosen for": CRITERION_TITLES[criterion], "tuned": title_of(key)}
    return {**dict.fromkeys(cells, ""), **named, "rate": "no rate of the grid"}


def task_texts(row: TableRow, criterion: Criterion, paper: PaperTuning | None = None) -> Texts:
    """A row of the table of tasks: the change of each, and the paper's accuracy after tuning."""
    text = {"rate chosen for": CRITERION_TITLES[criterion], "tuned": row.title}
    for name in row.before.tasks:
        accuracy, change = row.before.accuracy[name], row.changes[name]
        short = TASK_NAMES.get(name, name)
        cell = changed(accuracy, change, digits=0)
        if paper is not None and short in paper.accuracy:
            papers = _unbroken(f"paper {paper.accuracy[short]:g}%")
            cell = f"{accuracy + change.mean:.1%}: {cell}; {papers}"
        text[_headed(short, f"{accuracy:.0%}")] = cell
    return text


def change_cell(before: float, change: OverSeeds) -> str:
    """`59.1%: +27.8 [+24.1, +31.5]; seeds +26.0 to +29.1`."""
    text = f"{before + change.mean:.1%}: {changed(before, change)}"
    if len(change.per_seed) == 1 or _alike(change):
        return text
    least, most = (100 * end(change.per_seed) for end in (min, max))
    return f"{text}; " + _unbroken(f"seeds {least:+.1f} to {most:+.1f}")


def changed(before: float, change: OverSeeds, *, digits: int = 1) -> str:
    """`+27.8 [+24.1, +31.5]`; the ends are limited to what is possible."""
    mean = f"{100 * change.mean:+.1f}"
    if _alike(change):
        return f"{mean} " + _unbroken(f"({'none' if change.mean == 0 else 'all'} changed)")
    low, high = (round(100 * end, digits) + 0.0 for end in possible_ends(change, before))  # no -0
    return f"{mean} " + _unbroken(f"[{low:+.{digits}f}, {high:+.{digits}f}]")


def _alike(change: OverSeeds) -> bool:
    """Whether all questions changed in the same way in all trainings, so that there is no error."""
    return change.question_error == change.seed_error == 0


def _headed(name: str, before: str) -> str:
    return f"{name} " + _unbroken(f"({before} before)")


def _unbroken(text: str) -> str:
    """The text with spaces that do not break a line."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def paper_cells(paper: PaperTuning) -> Texts:
    """The paper's numbers for the same row."""
    accuracies = ", ".join(f"{name} {value:g}" for name, value in paper.accuracy.items())
    return {
        "paper": f"{accuracies}; {paper.parameters / 1e9:g}B, {paper.samples_per_second} examples/s"
    }


def notes(run: Run, chosen: Mapping[Criterion, Sequence[TableRow]], table: int) -> list[str]:
    """How to read a table, and its data."""
    rows = chosen["mathematics"]
    return [
        f"A cell has the accuracy after tuning and its {_CHANGE}; seeds: the lowest and the "
        f"highest change. {_INTERVAL}",
        *_column_notes(rows),
        *_row_notes(rows, table),
        _rate_note(run, chosen, table),
        _training_note(run, rows),
        *_harness_notes(run),
        *_paper_notes(run),
    ]


def task_notes(rows: Sequence[TableRow], papers: Collection[Any]) -> list[str]:
    """How to read the table of tasks."""
    after = "the accuracy after tuning and its" if papers else "the accuracy's"
    paper_text = ", and the paper's accuracy after it" * bool(papers)
    return [f"A cell has {after} {_CHANGE}{paper_text}. {_INTERVAL}", *_column_notes(rows)]


_CHANGE = "change in percentage points: mean over the seeds [95% interval]"
_INTERVAL = (
    "The same questions are asked before and after. The interval takes both questions and seeds as "
    "drawn at random, so that few seeds which differ make it wide; it ends where all or no answers "
    "are right. None changed: every question is right or wrong as before."
)


def _column_notes(rows: Sequence[TableRow]) -> list[str]:
    """What the columns of groups pool, and which intervals are rough."""
    lines: list[str] = []
    if any(len(row.trainings) == 1 for row in rows):
        lines.append("Where there is one seed, the interval is of the draw of questions alone.")
    before = rows[0].before
    sizes = {TASK_NAMES.get(name, name): sum(inside) for name, inside in before.tasks.items()}
    for name, mask in before.groups.items():
        members = {task for task, inside in zip(before.answers.task, mask, strict=True) if inside}
        listed = [
            f"{TASK_NAMES.get(task, task)} {sum(questions):,}"
            for task, questions in before.tasks.items()
            if any(c and t in members for c, t in zip(questions, before.answers.task, strict=True))
        ]
        lines.append(
            f"{name.capitalize()}: {', '.join(listed)}; each of the {sum(mask):,} questions "
            "counts once."
        )
    if few := [f"{name} {count}" for name, count in sizes.items() if count < FEW_QUESTIONS]:
        lines.append(
            f"Intervals not to be trusted, for fewer than {FEW_QUESTIONS} questions: "
            f"{', '.join(few)}."
        )
    return lines


def _row_notes(rows: Sequence[TableRow], table: int) -> Iterator[str]:
    """What a row tunes."""
    precise = [row for row in rows if row.key[0] == "precise"]
    if not precise:
        return
    facts = max(precise, key=lambda row: row.key).facts[0]
    names = ", ".join([*facts["which_heads"], *facts["which_mlps"]])
    most = "of the largest row: " if table != 1 else ""
    text = (
        "Precise: the weights of those heads (and MLPs) alone are trained that take most of the "
        f"answer's logit away when their output is exchanged ({most}{names})"
    )
    others = {row.key[0]: row for row in rows}
    if "random" in others:
        text += "; random: of as many others, drawn anew by each seed"
    if "lora" in others:
        rank = others["lora"].facts[0].get("lora_rank")
        text += f"; LoRA: adapters in every layer{f', of rank {rank}' if rank else ''}"
    yield f"{text}."


def _rate_note(run: Run, chosen: Mapping[Criterion, Sequence[TableRow]], table: int) -> str:
    grid = rates_tried(run, table)
    if len(grid) == 1:
        paper_text = ", the paper's" if grid[0] == PAPERS_RATE else ""
        return f"Rate: {grid[0]:g}{paper_text}, for every row; no other was tried."
    text = (
        f"Rate: of {', '.join(f'{rate:g}' for rate in grid)}, the same for every row, the one "
        "with the best accuracy on validation word problems after one training (first seed)."
    )
    text += _edge_note(chosen["mathematics"], grid)
    if "little_loss" in chosen:
        text += (
            f" {CRITERION_TITLES['little_loss'].capitalize()}: the best of the rates whose first "
            "training loses no more on every second generic question of each task. Those "
            "questions choose; the others are shown, and may lose more."
        )
        text += _edge_note(chosen["little_loss"], grid)
        if unmet := [title_of(key) for key in without_rate(run, table, "little_loss")]:
            text += f" No rate of the grid does that for: {'; '.join(unmet)}."
    return text


def _edge_note(rows: Sequence[TableRow], grid: Sequence[float]) -> str:
    edge = [row.title for row in rows if row.rate in (min(grid), max(grid))]
    beyond = f" At the grid's edge, so that a rate beyond may be better: {'; '.join(edge)}."
    return beyond if edge else ""


def _training_note(run: Run, rows: Sequence[TableRow]) -> str:
    config = run.config
    epochs = f"{config['epochs']} epoch{'s' * (config['epochs'] > 1)}"
    count = rows[0].facts[0].get("n_examples") or config["examples"]
    side = (
        "several at a time, beside what else the computer did; "
        if config["data_dir"] is None
        else ""
    )
    return (
        f"A training: {f'{count:,}' if count else 'all'} word problems, {epochs}, "
        f"{config['batch']} a step. Examples/s: trained a second here, {side}`make bench-finetune` "
        "measures speed."
    )


def _harness_notes(run: Run) -> Iterator[str]:
    """How the harness asked the benchmarks, if the run has that."""
    facts = results.UNTUNED_ANSWERS.facts(run)
    if not (shots := facts.get("shots")):
        return
    named = ", ".join(
        f"{TASK_NAMES.get(name, name)} {count.replace(', ', ' or ')}"
        for name, count in shots.items()
    )
    harness = facts.get("harness", "").replace("lm_eval", "the lm-evaluation-harness")
    yield (
        f"Asked by {harness}; worked "
        f"examples before each question: {named}. SVAMP, AddSub and SingleEq in their test parts."
    )
    if limit := run.config["questions"]:
        yield f"The first {limit} questions of each set (of MMLU, of each subject) alone: a trial."
    if cut := facts.get("cut"):
        listed = ", ".join(f"{TASK_NAMES.get(name, name)} {count}" for name, count in cut.items())
        yield f"Prompts longer than the model's context, cut on their left: {listed}."
    if doubtful := facts.get("doubtful"):
        yield f"Questions whose published answer is doubtful, which count like all: {doubtful}."


def _paper_notes(run: Run) -> Iterator[str]:
    """The paper's accuracies before tuning, for its models."""
    paper = paper_model(run.config["model"])
    if paper is not None and paper.before:
        before = ", ".join(f"{name} {value:g}" for name, value in paper.before.items())
        yield (
            f"The paper, {paper.name}, percent right before tuning: {before}; its speeds are of "
            "eight A100."
        )
