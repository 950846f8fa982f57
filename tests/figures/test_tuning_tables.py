"""Tables of tuning: pooled by hand, the paper beside them, words that say what is not known."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from pandas import DataFrame
from scipy import stats

from arith_lens.answers import Answers, OverSeeds
from arith_lens.runs import open_run
from experiments import results
from experiments.does_tuning_help import SelectedRates, Training, TuningRow
from figures.exhibit import Table, html_table
from figures.options import TableOptions
from figures.tables.answers import AFTER, BEFORE, CHANGE, CHANGE_BY_SEED, change_number
from figures.tables.number import Number, over_draws
from figures.tables.table import QuestionTable, read_back, row, select, value
from figures.tables.tuning import PAPERS_AFTER, SPEED, TRAININGS
from figures.tuning_tables import change_cell, changed, table1

TASKS = (
    ("gsm8k",) * 4
    + ("addsub",) * 2
    + ("mmlu_law",) * 3
    + ("mmlu_art", "commonsense_qa", "commonsense_qa", "alone")
)
CORRECT_BEFORE = (1, 0, 0, 0, 1, 0, 1, 1, 0, 0, 1, 1, 0)
RIGHT_AFTER = {
    ("full", 0): (1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0, 1, 0),
    ("full", 1): (1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0),
    ("precise", 0): (1, 1, 1, 1, 1, 0, 1, 1, 0, 0, 1, 1, 0),
    ("precise", 1): (0, 1, 1, 1, 1, 0, 1, 1, 0, 0, 1, 1, 0),
}
BENCHMARK_FACTS = {
    "shots": {"gsm8k": "8", "addsub": "8", "mmlu": "5", "commonsense_qa": "7"},
    "cut": {"mmlu": 2},
    "doubtful": 1,
    "harness": "lm_eval 0.4.13",
}


def answers(right: tuple[int, ...]) -> Answers:
    n = len(TASKS)
    return Answers(torch.tensor(right) == 1, ("",) * n, ("8",) * n, TASKS)


@pytest.fixture
def drawn(tmp_path: Path) -> tuple[Table, Table]:
    """Table 1 of what could be a run of LLaMA2-7B."""
    config = {"model": "meta-llama/Llama-2-7b-hf", "data_dir": "data", "epochs": 2, "batch": 128}
    rows = {"full": TuningRow("full"), "precise": TuningRow("precise", 32)}
    with open_run(
        "does_tuning_help", config | {"questions": 0, "examples": 0}, root=tmp_path
    ) as run:
        results.UNTUNED_ANSWERS.save(run, answers(CORRECT_BEFORE), **BENCHMARK_FACTS)
        for (method, seed), right in RIGHT_AFTER.items():
            row = rows[method]
            facts: dict[str, Any] = vars(row) | {"seed": seed, "rate": 2e-5, "n_examples": 8695}
            facts |= {"which_heads": ["12.22", "13.11"], "which_mlps": [], "parameters": 67108864}
            facts |= {"of": 6738415616, "seconds": 9.0, "samples_per_second": 50.0}
            name = Training(row, 2e-5, seed).name
            results.TUNED_ANSWERS.save(run, answers(right), name, **facts)
        nothing = {2e-5: float("nan")}
        results.CHOSEN_RATES.save(run, SelectedRates({row: nothing for row in rows.values()}), "1")
    groups, tasks = table1(TableOptions(run=run.path))
    return groups, tasks


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_groups_pool_their_questions(drawn: tuple[Table, Table]) -> None:
    """Of 6 word problems 2 were right; full tuning has 5 and 4 of them right, precise 5 and 4."""
    groups, tasks = (table.numbers for table in drawn)
    full, precise = ({"method": method} for method in ("full", "precise"))
    words, generic = ({"group": name, "task": "all"} for name in ("word problems", "generic tasks"))
    assert value(groups, measure=BEFORE, **words) == pytest.approx(2 / 6, rel=1e-5)
    change = value(groups, measure=CHANGE, **words, **full)
    assert change == pytest.approx((3 / 6 + 2 / 6) / 2, rel=1e-5)
    (by_seed,) = select(groups, measure=CHANGE_BY_SEED, **words, **full)[["low", "high"]].values
    assert by_seed == pytest.approx([2 / 6, 3 / 6], rel=1e-5)
    assert value(groups, measure=BEFORE, **generic) == pytest.approx(4 / 7, rel=1e-5)
    change = value(groups, measure=CHANGE, **generic, **full)
    assert change == pytest.approx((-2 / 7 - 2 / 7) / 2, rel=1e-5)
    mmlu = value(tasks, measure=CHANGE, task="mmlu", **full)
    assert mmlu == pytest.approx((-1 / 4 - 2 / 4) / 2)
    gsm8k = value(tasks, measure=CHANGE, task="gsm8k", **precise)
    assert gsm8k == pytest.approx((3 / 4 + 2 / 4) / 2)
    assert value(tasks, measure=AFTER, task="gsm8k", **precise) == pytest.approx(1 / 4 + 5 / 8)
    assert value(groups, measure=CHANGE, **generic, **precise) == 0
    assert value(groups, measure=SPEED, **precise) == 50
    assert value(groups, measure=TRAININGS, **precise) == 2
    cells = drawn[0].cells.iloc[0]
    gained = plain(cells.iloc[2])
    assert gained.startswith("+41.7 [") and gained.endswith("; to 75.0%; seeds +33.3 to +50.0")


def test_each_task_stands_beside_the_papers_accuracy(drawn: tuple[Table, Table]) -> None:
    shown, lines = drawn[1].cells, drawn[1].numbers
    assert [*shown.columns[2:]] == ["full (all weights)", "precise (32 heads)"]
    assert [*shown.task] == [
        "gsm8k; 25% before, n = 4", "addsub; 50% before, n = 2",
        "mmlu; 50% before, n = 4", "csqa; 100% before, n = 2",
    ]  # fmt: skip
    gsm8k = plain(shown.iloc[0, 3])
    assert gsm8k.startswith("+62.5 [") and gsm8k.endswith("paper 27.4%")
    assert plain(shown.iloc[2, 3]) == "+0.0 [-50, +50]; to 50.0%; paper 46.4%"
    assert "paper 24.6%" in plain(shown.iloc[0, 2])
    assert value(lines, measure=CHANGE, method="full", task="mmlu") == pytest.approx(-3 / 8)
    assert value(lines, measure=PAPERS_AFTER, method="precise", task="gsm8k") == 0.274


def test_a_page_groups_rows_that_begin_alike_and_sets_the_gain_first(
    drawn: tuple[Table, Table],
) -> None:
    """The purposes are headings, words are in small print, numbers stand at the right."""
    page, _, more = html_table(drawn[0].cells).partition("<details>")
    headings = re.findall(r'<tr class="group">.*?<span>(.*?)</span>', page)
    purposes = drawn[0].cells["rate chosen for"].unique()
    assert headings == [f"Rate chosen for: {purpose}" for purpose in purposes]
    names = re.findall(r'<th scope="col"[^>]*>([^<]*)', page)
    assert names[:3] == ["tuned", "word problems", "generic tasks"]
    assert page.count('<tr class="precise">') == len(purposes)
    cell, *_ = re.findall(r'<td class="number">([+]41.7 .*?)</td>', page)
    assert cell.endswith(' <span class="after">to 75.0%</span>'), "one line"
    assert "seeds" not in page and "33.3 to +50.0</td>" in plain(more), "folded"
    assert more.count(">2e-05</td>") == len(drawn[0].cells) - page.count("no rate of")
    others = html_table(DataFrame({"head": ["5.5", "<b>"], "looks at": ["A", "B"]}))
    assert 'class="group"' not in others and "&lt;b&gt;" in others and "number" not in others


def change_rows(before: float, change: OverSeeds) -> DataFrame:
    """The rows of one setting and group, as in a CSV file."""
    rows = [row(AFTER, Number(before + change.mean)), row(CHANGE, change_number(change, before))]
    rows.append(row(CHANGE_BY_SEED, over_draws([*change.per_seed], unit="points", what="seeds")))
    return read_back(QuestionTable.of("made", "made", rows))


def change_row(before: float, change: OverSeeds) -> DataFrame:
    return select(change_rows(before, change), measure=CHANGE)


def test_an_interval_ends_where_all_or_none_would_be_right() -> None:
    wide = OverSeeds((-0.9, 0.0, -0.3), 0.01, 500)
    low, high = wide.ci()
    assert low < -0.975 and high > 0.025
    assert plain(changed(change_row(0.975, wide))) == "-40.0 [-97.5, +2.5]"
    narrow = OverSeeds((0.10, 0.11, 0.12), 0.01, 500)
    low, high = narrow.ci()
    assert plain(changed(change_row(0.5, narrow))) == f"+11.0 [{100 * low:+.1f}, {100 * high:+.1f}]"


def test_intervals_in_files_end_where_those_of_the_printed_table_end(
    drawn: tuple[Table, Table],
) -> None:
    for numbers in (table.numbers for table in drawn):
        parts = ["group", "task"]
        before: Any = select(numbers, measure=BEFORE).set_index(parts).value.rename("value_was")
        changes: Any = select(numbers, measure=CHANGE).set_index(parts).join(before)
        least, most = -changes.value_was, 1 - changes.value_was
        assert (changes.low >= least - 1e-6).all() and (changes.high <= most + 1e-6).all()
        at_an_end = ((changes.low - least).abs() < 1e-6) | ((changes.high - most).abs() < 1e-6)
        assert at_an_end.any(), "some are cut"


def test_answers_that_all_change_alike_are_no_certainty() -> None:
    """Student's t for 39 degrees of freedom; the ends are cut at what is possible."""
    unchanged, lost = OverSeeds((0.0, 0.0), 0.0, 40), OverSeeds((-1.0,), 0.0, 40)
    square = stats.t.ppf(0.975, 39) ** 2
    reach = 100 * square / (40 + square)
    cell = f"+0.0 [-{reach:.1f}, +{reach:.1f}]; to 25.0%; seeds +0.0 to +0.0"
    assert plain(change_cell(change_rows(0.25, unchanged))) == cell
    cell = f"-100.0 [-100.0, {reach - 100:.1f}]; to 0.0%; seeds -100.0 to -100.0"
    assert plain(change_cell(change_rows(1.0, lost))) == cell
