"""Tables 1, 2 and 5: what each tuning gains in mathematics, and what it loses elsewhere."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pandas import DataFrame

from arith_lens.answers import OverSeeds
from arith_lens.paper import PaperTuning, paper_model
from arith_lens.runs import Run
from experiments import results
from experiments.does_tuning_help import Criterion, TuningMethod
from figures.common import PAPER_TASK_NAMES, TableOptions, chosen_run
from figures.exhibit import Table
from figures.tuning import (
    EXPERIMENT,
    MOST_LOST_TEXT,
    Key,
    TableRow,
    chosen_rates,
    possible_ends,
    rows_by_criterion,
    title_of,
    without_rate,
)

TABLE_TITLES = {
    1: "Table 1: what tuning gains in mathematics and loses elsewhere",
    2: "Table 2: how many heads to tune",
    5: "Table 5: MLPs tuned beside the heads",
}
LOOKS = {
    1: "Whether tuning the key heads alone gains about what tuning everything gains in word "
    "problems, loses less in generic tasks, and trains more examples a second. The paper finds "
    "all three.",
    2: "How few heads are enough. In the paper 32 of LLaMA2-7B's 1024 gain what 64 do, and 8 most "
    "of it.",
    5: "Whether MLPs beside the heads gain more, and what they cost in generic tasks.",
}
CRITERION_TITLES: dict[Criterion, str] = {
    "mathematics": "mathematics",
    "little_loss": f"{MOST_LOST_TEXT} lost on other generic questions",
}
"""What a rate is chosen for."""
FEW_QUESTIONS = 30
"""With fewer questions an interval is rough."""
PAPERS_RATE = 2e-5
Texts = dict[str, str]
Numbers = dict[str, Any]


def table1(options: TableOptions) -> list[Table]:
    """Table 1: full, precise, LoRA and random-head tuning; mathematics gained, other ability lost.

    Reads a run of `experiments/does_tuning_help`, without loading a model; prints the table and a
    second one with every task, and writes both as HTML and their numbers as CSV.

    Raises:
        RunError: it is missing.
    """
    return _tables(options, 1)


def table2(options: TableOptions) -> list[Table]:
    """Table 2: precise tuning with more and fewer heads, and MLPs beside them.

    Reads a run of `experiments/does_tuning_help --table 2`, without loading a model; prints the
    table and a second one with every task, and writes both as HTML and their numbers as CSV.

    Raises:
        RunError: it is missing.
    """
    return _tables(options, 2)


def table5(options: TableOptions) -> list[Table]:
    """Table 5: precise tuning with MLPs tuned beside the heads.

    Reads a run of `experiments/does_tuning_help --table 5`, without loading a model; prints the
    table and a second one with every task, and writes both as HTML and their numbers as CSV.

    Raises:
        RunError: it is missing.
    """
    return _tables(options, 5)


def _tables(options: TableOptions, table: int) -> list[Table]:
    run = chosen_run(options, EXPERIMENT)
    chosen = rows_by_criterion(run, table)
    rows: list[tuple[Criterion, TableRow]] = [
        (criterion, row) for criterion, of_one in chosen.items() for row in of_one
    ]
    name, paper = run.config["model"], paper_model(run.config["model"])
    paper_rows = {
        (cast(TuningMethod, row.method), row.heads, row.mlps): row
        for row in (paper.tunings if paper else ())
        if row.table == table
    }
    title = f"{TABLE_TITLES[table]}, {Path(name).name if Path(name).is_absolute() else name}"
    cells = [_cells(row, criterion, paper_rows.get(row.key)) for criterion, row in rows]
    cells += [
        dict.fromkeys(cells[0], "") | _named(key, criterion) | {"rate": "no rate of the grid"}
        for criterion in chosen
        for key in without_rate(run, table, criterion)
    ]
    return [
        Table(
            name=f"table{table}",
            title=title,
            look=LOOKS[table],
            notes=_notes(run, chosen, table),
            runs=(run,),
            numbers=DataFrame(
                [_numbers(row, criterion, paper_rows.get(row.key)) for criterion, row in rows]
            ),
            cells=DataFrame(cells),
        ),
        Table(
            name=f"table{table}_tasks",
            title=f"{title}: every task",
            look="Which tasks the changes of the groups come from.",
            notes=_task_notes(chosen["mathematics"], paper_rows),
            runs=(run,),
            numbers=DataFrame(
                [line for criterion, row in rows for line in _task_numbers(row, criterion)]
            ),
            cells=DataFrame(
                [_task_cells(row, criterion, paper_rows.get(row.key)) for criterion, row in rows]
            ),
        ),
    ]


def _numbers(row: TableRow, criterion: Criterion, paper: PaperTuning | None) -> Numbers:
    """A row of a table, for a program."""
    facts = row.facts[0]
    numbers = _tuned(row, criterion)
    numbers |= {name: ", ".join(facts[name]) for name in ("which_heads", "which_mlps")}
    numbers |= {"parameters": facts["parameters"], "of": facts["of"], "rate": row.rate}
    numbers |= {"samples_per_second": row.speed, "seeds": len(row.trainings)}
    numbers["seconds"] = sum(one["seconds"] for one in row.facts) / len(row.facts)
    for name, change in row.changes.items():
        low, high = possible_ends(change, row.before.accuracy[name])
        values = {
            "before": row.before.accuracy[name],
            "change": change.mean,
            "low": low,
            "high": high,
            "question_error": change.question_error,
            "seed_error": change.seed_error,
            "questions": change.n_questions,
            "per_seed": " ".join(f"{value:+.4f}" for value in change.per_seed),
        }
        numbers |= {f"{name.replace(' ', '_')}_{key}": value for key, value in values.items()}
    if paper is not None:
        numbers |= {f"paper_{name}": value for name, value in paper.accuracy.items()}
    return numbers


def _tuned(row: TableRow, criterion: Criterion) -> Numbers:
    method, heads, mlps = row.key
    return {"chosen_for": criterion, "method": method, "heads": heads, "mlps": mlps}


def _task_numbers(row: TableRow, criterion: Criterion) -> Iterator[Numbers]:
    """One line per task: its questions, accuracy before, change and interval."""
    for name in row.before.tasks:
        change = row.changes[name]
        low, high = possible_ends(change, row.before.accuracy[name])
        yield _tuned(row, criterion) | {
            "task": name,
            "questions": change.n_questions,
            "before": row.before.accuracy[name],
            "change": change.mean,
            "low": low,
            "high": high,
        }


def _cells(row: TableRow, criterion: Criterion, paper: PaperTuning | None) -> Texts:
    """A row of a table: what was tuned, and the changes of the two groups of tasks."""
    parameters, of = row.facts[0]["parameters"], row.facts[0]["of"]
    text = _named(row.key, criterion) | {
        "parameters": f"{parameters:,} ({parameters / of:.1%})",
        "examples/s": f"{row.speed:.0f}" if row.speed >= 10 else f"{row.speed:.1f}",
        "rate": f"{row.rate:g}",
        "seeds": str(len(row.trainings)),
    }
    for name in row.before.groups:
        accuracy = row.before.accuracy[name]
        text[_headed(name, f"{accuracy:.1%}")] = change_cell(accuracy, row.changes[name])
    if paper is not None:
        accuracies = ", ".join(f"{name} {value:g}" for name, value in paper.accuracy.items())
        size = f"{paper.parameters / 1e9:g}B"
        text["paper"] = f"{accuracies}; {size}, {paper.samples_per_second} examples/s"
    return text


def _named(key: Key, criterion: Criterion) -> Texts:
    return {"rate chosen for": CRITERION_TITLES[criterion], "tuned": title_of(key)}


def _task_cells(row: TableRow, criterion: Criterion, paper: PaperTuning | None) -> Texts:
    """A row of the table of tasks: the change of each, and the paper's accuracy after tuning."""
    text = _named(row.key, criterion)
    for name in row.before.tasks:
        accuracy, change = row.before.accuracy[name], row.changes[name]
        short = PAPER_TASK_NAMES.get(name, name)
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


def _notes(run: Run, chosen: Mapping[Criterion, Sequence[TableRow]], table: int) -> list[str]:
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


def _task_notes(rows: Sequence[TableRow], papers: Collection[Any]) -> list[str]:
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


def _listed(counts: Mapping[str, Any]) -> str:
    """Tasks by the paper's names, each with its count."""
    return ", ".join(f"{PAPER_TASK_NAMES.get(name, name)} {n}" for name, n in counts.items())


def _column_notes(rows: Sequence[TableRow]) -> Iterator[str]:
    """What the columns of groups pool, and which intervals are rough."""
    if any(len(row.trainings) == 1 for row in rows):
        yield "Where there is one seed, the interval is of the draw of questions alone."
    before = rows[0].before
    for name, mask in before.groups.items():
        members = {task for task, inside in zip(before.answers.task, mask, strict=True) if inside}
        pooled = {
            task: f"{sum(questions):,}"
            for task, questions in before.tasks.items()
            if any(c and t in members for c, t in zip(questions, before.answers.task, strict=True))
        }
        yield (
            f"{name.capitalize()}: {_listed(pooled)}; each of the {sum(mask):,} questions "
            "counts once."
        )
    sizes = {name: sum(inside) for name, inside in before.tasks.items()}
    if few := {name: count for name, count in sizes.items() if count < FEW_QUESTIONS}:
        yield (
            f"Intervals not to be trusted, for fewer than {FEW_QUESTIONS} questions: "
            f"{_listed(few)}."
        )


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
    """How the rates were chosen."""
    grid = [*next(iter(chosen_rates(run, table).validation.values()))]
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
    edge = [title_of(row.key) for row in rows if row.rate in (min(grid), max(grid))]
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
    counts = {name: count.replace(", ", " or ") for name, count in shots.items()}
    harness = facts.get("harness", "").replace("lm_eval", "the lm-evaluation-harness")
    yield (
        f"Asked by {harness}; worked examples before each question: {_listed(counts)}. SVAMP, "
        "AddSub and SingleEq in their test parts."
    )
    if limit := run.config["questions"]:
        yield f"The first {limit} questions of each set (of MMLU, of each subject) alone: a trial."
    if cut := facts.get("cut"):
        yield f"Prompts longer than the model's context, cut on their left: {_listed(cut)}."
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
