"""The whole study of a model on one page: every figure and table that its runs give.

Reads the model's runs without loading a model, and writes figures/<model>/report.html: one file
that opens without a network, on a phone too, and prints. What has not been computed is listed with
the command that computes it; `make report` computes all that takes minutes first.
"""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from arith_lens.runs import Run
from figures.collection import QUESTIONS, Lacking, Question, collected
from figures.common import slug
from figures.drawn import Drawn
from figures.report_page import report_page

Answered = list[tuple[Question, list[Drawn | Lacking]]]


@dataclass(frozen=True)
class Options:
    """Of which model, and where to."""

    model: str = "reference"
    """Show its newest finished runs."""
    beside: tuple[str, ...] = ("reference", "reference-mistral")
    """Models that stand beside it in figures of several models, where they have runs."""
    out: Path | None = None
    """The page's file; figures/<model>/report.html if not given."""
    root: Path = Path("results")
    """Where runs are kept."""


def main(options: Annotated[Options, tyro.conf.arg(name="")]) -> None:
    """Write the page, and print what is in it and what is not."""
    answered = gather(options)
    runs = runs_of(answered)
    if not runs:
        sys.exit(
            f"expected finished runs of {options.model} under {options.root}, found none of any "
            "experiment. Make all that take minutes: make report "
            f"MODEL={shlex.quote(options.model)}"
        )
    page = options.out or Path("figures") / slug(options.model) / "report.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(report_page(options.model, answered, runs), encoding="utf-8")
    lacking = [one for _, parts in answered for one in parts if isinstance(one, Lacking)]
    n_there = sum(len(parts) for _, parts in answered) - len(lacking)
    print(f"{options.model}: {n_there} figures and tables from {len(runs)} runs")
    for one in lacking:
        print(f"not there: {one.title}. {one.reason}")
    print(page)


def gather(options: Options) -> Answered:
    """All figures and tables, and what is missing, question by question."""
    answered: Answered = []
    for question in QUESTIONS:
        parts: list[Drawn | Lacking] = []
        for module in question.modules:
            found = collected(module, options.model, options.root, options.beside)
            parts += [found] if isinstance(found, Lacking) else found
        answered.append((question, parts))
    return answered


def runs_of(answered: Answered) -> list[Run]:
    """Each run once, in the order in which figures need them."""
    runs = {
        run.path: run
        for _, parts in answered
        for one in parts
        if not isinstance(one, Lacking)
        for run in one.runs
    }
    return list(runs.values())


if __name__ == "__main__":
    tyro.cli(main, prog="python -m figures.report", description=__doc__)
