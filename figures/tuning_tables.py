"""Tables 1, 2 and 5: what each tuning gains in mathematics, and what it loses elsewhere."""

from functools import partial
from pathlib import Path
from typing import Any

from pandas import DataFrame

from experiments.does_tuning_help import Criterion
from figures.common import PAPER_TASK_NAMES, chosen_run
from figures.exhibit import Table, text_table_of
from figures.options import TableOptions
from figures.tables import tuning as numbers
from figures.tables.answers import AFTER, ALL, BEFORE, CHANGE, CHANGE_BY_SEED
from figures.tables.table import records, select, value
from figures.tuning import (
    EXPERIMENT,
    MOST_LOST_TEXT,
    Key,
    criteria_of,
    of_setting,
    rates_for,
    title_of,
    without_rate,
)
from figures.views.words import interval_text

TABLE_TITLES = {
    1: "Table 1: what tuning gains in mathematics and loses elsewhere",
    2: "Table 2: how many heads to tune",
    5: "Table 5: MLPs tuned beside the heads",
}
CAPTION = (
    "A cell has the change of right answers in percentage points, its mean over the seeds [95% "
    "interval over questions and seeds; with one seed, over questions alone], and the right "
    "answers after tuning; by seed: the lowest and highest change.\nPrecise tuning trains the "
    "heads (and MLPs) that the answer's logit depends on most. Random: as many others, which each "
    "seed draws anew. LoRA: a small matrix beside every layer's weights.\nLearning rates were "
    "chosen on other questions: for word problems, the best one; for little loss, the best of "
    f"those that lose {MOST_LOST_TEXT} on other generic questions. Beyond the highest or lowest "
    "rate there may be a better one."
)
TASK_CAPTION = (
    "A cell has the change of right answers in percentage points: mean over the seeds [95% interval"
    " over questions and seeds; rough for fewer than 30 questions]; with the paper's model, also "
    "the right answers after tuning and the paper's."
)
CRITERION_TITLES: dict[Criterion, str] = {
    "mathematics": "word problems",
    "little_loss": "little loss in generic tasks",
}
"""What a rate is chosen for."""
TASK_NAMES = {**PAPER_TASK_NAMES, "gain_lose": "gain or lose", "two_step": "two steps"}
"""What a reader calls a task, where its name is another."""
Texts = dict[str, str]


def table1(options: TableOptions) -> list[Table]:
    """Table 1: full, precise, LoRA and random tuning; mathematics gained, other ability lost."""
    return _tables(options, 1)


def table2(options: TableOptions) -> list[Table]:
    """Table 2: precise tuning with more and fewer heads, and MLPs beside them."""
    return _tables(options, 2)


def table5(options: TableOptions) -> list[Table]:
    """Table 5: precise tuning with MLPs tuned beside the heads."""
    return _tables(options, 5)


def _tables(options: TableOptions, number: int) -> list[Table]:
    run = chosen_run(options, EXPERIMENT)
    model = run.config["model"]
    title = f"{TABLE_TITLES[number]}, {Path(model).name if Path(model).is_absolute() else model}"
    return [
        text_table_of(
            partial(numbers.table, run, number),
            [run],
            name=f"table{number}",
            title=title,
            caption=CAPTION,
            cells=_cells,
        ),
        text_table_of(
            partial(numbers.table, run, number),
            [run],
            name=f"table{number}_tasks",
            table_of=f"table{number}",
            title=f"{title}: every task",
            caption=TASK_CAPTION,
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
    text = _named(key, criterion)
    for before in records(select(rows, measure=BEFORE, task=ALL)):
        changes = select(at_rate, group=before.group, task=ALL)
        size = _unbroken(f"({before.value:.1%} before, n = {before.n:,.0f})")
        text[f"{before.group} {size}"] = change_cell(changes)
    text |= {
        "parameters": f"{trained:,.0f} ({trained / of:.1%})",
        "rate": f"{rate:g}",
        "seeds": f"{trainings:.0f}",
        "examples/s": f"{speed:.0f}" if speed >= 10 else f"{speed:.1f}",
    }
    papers = {one.task: one.value for one in records(select(of_key, measure=numbers.PAPERS_AFTER))}
    if papers:
        size, papers_speed = (
            value(of_key, measure=measure)
            for measure in (numbers.PAPERS_PARAMETERS, numbers.PAPERS_SPEED)
        )
        shares = (f"{TASK_NAMES.get(task, task)} {100 * x:g}" for task, x in papers.items())
        text["paper"] = f"{', '.join(shares)}; {size / 1e9:g}B, {papers_speed:.0f} examples/s"
    return text


def _named(key: Key, criterion: Criterion) -> Texts:
    return {"rate chosen for": CRITERION_TITLES[criterion], "tuned": title_of(key)}


def _task_cells(rows: DataFrame) -> DataFrame:
    """One row per purpose and task: its change in each setting, and the paper's accuracy."""
    tasks = [one for one in records(select(rows, measure=BEFORE)) if one.task != ALL]
    texts = [_task_texts(rows, one, task) for one in criteria_of(rows) for task in tasks]
    return DataFrame(texts).fillna("")


def _task_texts(rows: DataFrame, criterion: Criterion, before: Any) -> Texts:
    name = TASK_NAMES.get(before.task, before.task)
    size = f"{before.value:.0%} before, n = {before.n:,.0f}"
    text = {"rate chosen for": CRITERION_TITLES[criterion], "task": f"{name}; {size}"}
    for key, rate in rates_for(rows, criterion).items():
        of_task = select(of_setting(rows, key), task=before.task)
        at_rate, papers = select(of_task, rate=rate), select(of_task, measure=numbers.PAPERS_AFTER)
        cell = changed(select(at_rate, measure=CHANGE), digits=0)
        if len(papers):
            paper = _unbroken(f"paper {100 * value(papers):g}%")
            cell += f"; to {value(at_rate, measure=AFTER):.1%}; {paper}"
        text[f"{title_of(key).replace(': ', ' (')})"] = cell
    return text


def change_cell(rows: DataFrame) -> str:
    """`+27.8 [+24.1, +31.5]; to 59.1%; seeds +26.0 to +29.1`, of one setting and group."""
    change = select(rows, measure=CHANGE)
    text = f"{changed(change)}; to {value(rows, measure=AFTER):.1%}"
    for one in records(select(rows, measure=CHANGE_BY_SEED)):
        least, most = 100 * one.low, 100 * one.high
        text += "; " + _unbroken(f"seeds {least:+.1f} to {most:+.1f}")
    return text


def changed(change: DataFrame, *, digits: int = 1) -> str:
    """`+27.8 [+24.1, +31.5]`."""
    (one,) = records(change)
    mean, interval = interval_text(one, digits).split(" ", 1)
    return f"{mean} {_unbroken(interval)}"


def _unbroken(text: str) -> str:
    """The text with spaces that do not break a line."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")
