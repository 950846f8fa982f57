"""The explorer: a page on what each head and each MLP does."""

from dataclasses import replace
from pathlib import Path

from pandas import DataFrame

from arith_lens.exploration import Exploration
from arith_lens.explorer_page import Explorer, SetFacts, Tables
from arith_lens.runs import Run
from experiments import results
from experiments.finding import NotComputed
from experiments.selection import OWN_PAIRS
from figures.common import chosen_run, command_for_run, sample_size
from figures.exhibit import Interactive
from figures.options import ExplorerOptions
from figures.tables import explorer as explorer_numbers
from figures.tables.table import joined, read_back, select


def explorer(options: ExplorerOptions) -> list[Interactive]:
    """The explorer: click a head or an MLP, and see what it does."""
    run = chosen_run(options, "what_does_each_part_do")
    others = {
        Path(other).name: chosen_run(
            replace(options, model=other, run=None), "what_does_each_part_do"
        )
        for other in options.compare
    }
    rows = joined(read_back(explorer_numbers.table(one)) for one in (run, *others.values()))
    names = explorer_numbers.set_names(run)
    if not names:
        raise NotComputed("expected a run, found its tables alone", command_for_run(run))
    file = Path(run.config.get("pairs") or "").name
    sizes = [
        f"{_set_title(name, file)}: {sample_size(results.EXPLORATION.facts(run, name))}"
        for name in names
    ]
    pages = _pages(run, rows)
    model = Path(run.config["model"]).name
    of = f"{model}, {file}" if file and [*pages] != [file] else model
    if others:  # each set has its model's name
        names = [*pages]
        pages = {f"{name}, {model}": page for name, page in pages.items()}
        for label, other in others.items():
            pages |= {f"{name}, {label}": page for name, page in _pages(other, rows).items()}
        label = next(iter(others))
        for name in names:
            if (beside := f"{name}, {label}") in pages:
                facts, tables = pages[f"{name}, {model}"]
                pages[f"{name}, {model}"] = {**facts, "beside": beside}, tables
    return [
        Interactive(
            name="explorer",
            title="Explorer: what each head and each MLP does",
            caption="The circuit of each operation. Click a part to see what it looks at, what it "
            "writes and what feeds it. Knock it out to see what the model still answers. Effects "
            "and attention are means over all prompts. Patterns and digits are of a sample, which "
            "the page lists; knockouts are of one prompt per problem.",
            notes=[f"{'; '.join(sizes)}."],
            runs=(run, *others.values()),
            numbers=rows,
            view=Explorer(pages, "Explorer" if others else f"Explorer: {of}"),
        )
    ]


def _pages(run: Run, rows: DataFrame) -> dict[str, tuple[SetFacts, Tables]]:
    """What the page has of a run: its sets of prompts, by the names that the reader sees."""
    own = select(rows, model=str(run.config["model"]))
    file = Path(run.config.get("pairs") or "").name
    return {
        _set_title(name, file): _page(results.EXPLORATION.load(run, name), own, name)
        for name in explorer_numbers.set_names(run)
    }


def _set_title(name: str, file: str) -> str:
    """The name of a set of prompts that the reader sees: that of one's own file, or the task."""
    return file if name == OWN_PAIRS else name.replace("-", ", ").replace("_", " ")


def _page(stored: Exploration, rows: DataFrame, prompts: str) -> tuple[SetFacts, Tables]:
    """What the page has of a set of prompts: tables from the rows, and what has no rows."""
    from_rows = {
        name: explorer_numbers.page_table(rows, name, prompts)
        for name in explorer_numbers.PAGE_TABLES
        if name in stored.tables
    }
    return stored.facts, {**stored.tables, **from_rows}
