"""Tables 1, 2 and 5: what each tuning gains in mathematics, and what it loses elsewhere."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pandas import DataFrame

from arith_lens.paper import paper_model
from experiments import results
from experiments.does_tuning_help import Criterion
from figures.common import PAPER_TASK_NAMES, chosen_run, has_tables_alone
from figures.exhibit import Table, text_table_of
from figures.options import TableOptions
from figures.tables import tuning as numbers
from figures.tables.answers import AFTER, ALL, BEFORE, CHANGE, CHANGE_BY_SEED
from figures.tables.table import has, keys_of, records, select, value
from figures.tuning import (
    EXPERIMENT,
    MOST_LOST_TEXT,
    Key,
    criteria_of,
    of_setting,
    rates_for,
    settings_of,
    title_of,
    without_rate,
)
from figures.views.words import components_text, interval_text

TABLE_TITLES = {
    1: "Table 1: what tuning gains in mathematics and loses elsewhere",
    2: "Table 2: how many heads to tune",
    5: "Table 5: MLPs tuned beside the heads",
}
CAPTIONS = {
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


def _tables(options: TableOptions, number: int) -> list[Table]:
    run = chosen_run(options, EXPERIMENT)
    model = run.config["model"]
    title = f"{TABLE_TITLES[number]}, {Path(model).name if Path(model).is_absolute() else model}"
    stored: results.BenchmarkFacts = (
        {} if has_tables_alone(run) else results.UNTUNED_ANSWERS.facts(run)
    )
    return [
        text_table_of(
            lambda: numbers.table(run, number),
            [run],
            name=f"table{number}",
            title=title,
            caption=lambda _: CAPTIONS[number],
            notes=partial(_notes, number=number, benchmark_facts=stored),
            cells=_cells,
        ),
        text_table_of(
            lambda: numbers.task_table(run, number),
            [run],
            name=f"table{number}_tasks",
            title=f"{title}: every task",
            caption=lambda _: "Which tasks the changes of the groups come from.",
            notes=_task_notes,
            cells=_task_cells,
        ),
    ]


def _cells(rows: DataFrame) -> DataFrame:
    """One row per purpose and setting: what was tuned, and the changes of the two groups."""
    cells = [
        _setting_cells(rows, criterion, key, rate)
        for criterion in criteria_of(rows)
        for key, rate in rates_for(rows, criterion).items()
    ]
    cells += [
        dict.fromkeys(cells[0], "") | _named(key, criterion) | {"rate": "no rate of the grid"}
        for criterion in criteria_of(rows)
        for key in without_rate(rows, criterion)
    ]
    return DataFrame(cells)


def _setting_cells(rows: DataFrame, criterion: Criterion, key: Key, rate: float) -> Texts:
    """A row of the table of groups."""
    of_key = of_setting(rows, key)
    at_rate = select(of_key, rate=rate)
    trained, of, speed, trainings = (
        value(some, measure=measure)
        for some, measure in (
            (of_key, numbers.PARAMETERS),
            (of_key, numbers.OF_PARAMETERS),
            (at_rate, numbers.SPEED),
            (at_rate, numbers.TRAININGS),
        )
    )
    text = _named(key, criterion) | {
        "parameters": f"{trained:,.0f} ({trained / of:.1%})",
        "examples/s": f"{speed:.0f}" if speed >= 10 else f"{speed:.1f}",
        "rate": f"{rate:g}",
        "seeds": f"{trainings:.0f}",
    }
    for before in records(select(rows, measure=BEFORE, task=ALL)):
        changes = select(at_rate, group=before.group, task=ALL)
        text[_headed(before.group, f"{before.value:.1%}")] = change_cell(changes)
    papers = {one.task: one.value for one in records(select(of_key, measure=numbers.PAPERS_AFTER))}
    if papers:
        size, papers_speed = (
            value(of_key, measure=measure)
            for measure in (numbers.PAPERS_PARAMETERS, numbers.PAPERS_SPEED)
        )
        text["paper"] = f"{_percents(papers)}; {size / 1e9:g}B, {papers_speed:.0f} examples/s"
    return text


def _named(key: Key, criterion: Criterion) -> Texts:
    return {"rate chosen for": CRITERION_TITLES[criterion], "tuned": title_of(key)}


def _task_cells(rows: DataFrame) -> DataFrame:
    """One row per purpose and setting: the change of each task, and the paper's accuracy."""
    return DataFrame(
        _task_texts(rows, criterion, key, rate)
        for criterion in criteria_of(rows)
        for key, rate in rates_for(rows, criterion).items()
    )


def _task_texts(rows: DataFrame, criterion: Criterion, key: Key, rate: float) -> Texts:
    text, of_key = _named(key, criterion), of_setting(rows, key)
    papers = select(of_key, measure=numbers.PAPERS_AFTER)
    for before in records(_tasks_before(rows)):
        of_task = select(of_key, rate=rate, task=before.task)
        cell = changed(select(of_task, measure=CHANGE), digits=0)
        if has(papers, task=before.task):
            paper = _unbroken(f"paper {100 * value(papers, task=before.task):g}%")
            cell = f"{value(of_task, measure=AFTER):.1%}: {cell}; {paper}"
        short = PAPER_TASK_NAMES.get(str(before.task), str(before.task))
        text[_headed(short, f"{before.value:.0%}")] = cell
    return text


def _tasks_before(rows: DataFrame) -> DataFrame:
    before = select(rows, measure=BEFORE)
    return DataFrame(before[before.task != ALL])


def change_cell(rows: DataFrame) -> str:
    """`59.1%: +27.8 [+24.1, +31.5]; seeds +26.0 to +29.1`, of one setting and group."""
    change = select(rows, measure=CHANGE)
    text = f"{value(rows, measure=AFTER):.1%}: {changed(change)}"
    for one in records(select(rows, measure=CHANGE_BY_SEED)):
        least, most = 100 * one.low, 100 * one.high
        text += "; " + _unbroken(f"seeds {least:+.1f} to {most:+.1f}")
    return text


def changed(change: DataFrame, *, digits: int = 1) -> str:
    """`+27.8 [+24.1, +31.5]`."""
    (one,) = records(change)
    mean, interval = interval_text(one, digits).split(" ", 1)
    return f"{mean} {_unbroken(interval)}"


def _headed(name: str, before: str) -> str:
    return f"{name} " + _unbroken(f"({before} before)")


def _unbroken(text: str) -> str:
    """The text with spaces that do not break a line."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _notes(
    rows: DataFrame,
    config: Mapping[str, Any],
    *,
    number: int,
    benchmark_facts: results.BenchmarkFacts,
) -> list[str]:
    """How to read a table, and its data."""
    return [
        f"A cell has the accuracy after tuning and its {_CHANGE}; seeds: the lowest and the "
        f"highest change. {_INTERVAL}",
        *_column_notes(rows),
        *_row_notes(rows, number),
        _rate_note(rows),
        _training_note(rows, config),
        *_harness_notes(rows, config, benchmark_facts),
        *_paper_notes(rows, config),
    ]


def _task_notes(rows: DataFrame, config: Mapping[str, Any]) -> list[str]:
    """How to read the table of tasks."""
    has_paper = has(rows, measure=numbers.PAPERS_AFTER)
    after = "the accuracy after tuning and its" if has_paper else "the accuracy's"
    paper_text = ", and the paper's accuracy after it" * has_paper
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


def _column_notes(rows: DataFrame) -> Iterator[str]:
    """What the columns of groups pool, and which intervals are rough."""
    if any(
        value(of_setting(rows, key), measure=numbers.TRAININGS, rate=rate) == 1
        for key, rate in rates_for(rows, "mathematics").items()
    ):
        yield "Where there is one seed, the interval is of the draw of questions alone."
    tasks = _tasks_before(rows)
    for group in records(select(rows, measure=BEFORE, task=ALL)):
        pooled = {one.task: f"{one.n:,.0f}" for one in records(select(tasks, group=group.group))}
        yield (
            f"{group.group.capitalize()}: {_listed(pooled)}; each of the {group.n:,.0f} questions "
            "counts once."
        )
    few = {one.task: f"{one.n:.0f}" for one in records(tasks) if one.n < FEW_QUESTIONS}
    if few:
        yield (
            f"Intervals not to be trusted, for fewer than {FEW_QUESTIONS} questions: "
            f"{_listed(few)}."
        )


def _row_notes(rows: DataFrame, number: int) -> Iterator[str]:
    """What a row tunes."""
    precise = [key for key in settings_of(rows) if key[0] == "precise"]
    if not precise:
        return
    names = components_text(of_setting(rows, max(precise)))
    most = "of the largest row: " if number != 1 else ""
    text = (
        "Precise: the weights of those heads (and MLPs) alone are trained that take most of the "
        f"answer's logit away when their output is exchanged ({most}{names})"
    )
    methods = keys_of(rows, "method")
    if "random" in methods:
        text += "; random: of as many others, drawn anew by each seed"
    if "lora" in methods:
        rank = "".join(
            f", of rank {one.value:.0f}" for one in records(select(rows, measure=numbers.RANK))
        )
        text += f"; LoRA: adapters in every layer{rank}"
    yield f"{text}."


def _rate_note(rows: DataFrame) -> str:
    """How the rates were chosen."""
    grid = keys_of(select(rows, measure=numbers.VALIDATION), "rate")
    if len(grid) == 1:
        paper_text = ", the paper's" if grid[0] == PAPERS_RATE else ""
        return f"Rate: {grid[0]:g}{paper_text}, for every row; no other was tried."
    text = (
        f"Rate: of {', '.join(f'{rate:g}' for rate in grid)}, the same for every row, the one "
        "with the best accuracy on validation word problems after one training (first seed)."
    )
    text += _edge_note(rows, "mathematics", grid)
    if "little_loss" in criteria_of(rows):
        text += (
            f" {CRITERION_TITLES['little_loss'].capitalize()}: the best of the rates whose first "
            "training loses no more on every second generic question of each task. Those "
            "questions choose; the others are shown, and may lose more."
        )
        text += _edge_note(rows, "little_loss", grid)
        if unmet := [title_of(key) for key in without_rate(rows, "little_loss")]:
            text += f" No rate of the grid does that for: {'; '.join(unmet)}."
    return text


def _edge_note(rows: DataFrame, criterion: Criterion, grid: Sequence[float]) -> str:
    edges = (min(grid), max(grid))
    edge = [title_of(key) for key, rate in rates_for(rows, criterion).items() if rate in edges]
    beyond = f" At the grid's edge, so that a rate beyond may be better: {'; '.join(edge)}."
    return beyond if edge else ""


def _training_note(rows: DataFrame, config: Mapping[str, Any]) -> str:
    epochs = f"{config['epochs']} epoch{'s' * (config['epochs'] > 1)}"
    counts = [*select(rows, measure=numbers.EXAMPLES).value] or [config["examples"]]
    side = (
        "several at a time, beside what else the computer did; "
        if config["data_dir"] is None
        else ""
    )
    return (
        f"A training: {f'{counts[0]:,.0f}' if counts[0] else 'all'} word problems, {epochs}, "
        f"{config['batch']} a step. Examples/s: trained a second here, {side}`make bench-finetune` "
        "measures speed."
    )


def _harness_notes(
    rows: DataFrame, config: Mapping[str, Any], facts: results.BenchmarkFacts
) -> Iterator[str]:
    """How the harness asked the benchmarks, if the run has that."""
    if not (shots := facts.get("shots")):
        return
    counts = {name: count.replace(", ", " or ") for name, count in shots.items()}
    harness = facts.get("harness", "").replace("lm_eval", "the lm-evaluation-harness")
    yield (
        f"Asked by {harness}; worked examples before each question: {_listed(counts)}. SVAMP, "
        "AddSub and SingleEq in their test parts."
    )
    if limit := config["questions"]:
        yield f"The first {limit} questions of each set (of MMLU, of each subject) alone: a trial."
    cut = {one.task: f"{one.value:.0f}" for one in records(select(rows, measure=numbers.CUT))}
    if cut:
        yield f"Prompts longer than the model's context, cut on their left: {_listed(cut)}."
    for one in records(select(rows, measure=numbers.DOUBTFUL)):
        yield (
            f"Questions whose published answer is doubtful, which count like all: {one.value:.0f}."
        )


def _paper_notes(rows: DataFrame, config: Mapping[str, Any]) -> Iterator[str]:
    """The paper's accuracies before tuning, for its models."""
    paper, before = paper_model(config["model"]), select(rows, measure=numbers.PAPERS_BEFORE)
    if paper is not None and len(before):
        shares = _percents({one.task: one.value for one in records(before)})
        yield (
            f"The paper, {paper.name}, percent right before tuning: {shares}; its speeds are of "
            "eight A100."
        )


def _percents(shares: Mapping[str, float]) -> str:
    """Tasks by the paper's names, each with its share in percent."""
    return _listed({task: f"{100 * share:g}" for task, share in shares.items()})
