"""The whole study of a model on one page: every figure and table that its runs give.

Reads the model's runs without loading a model, and writes figures/<model>/report.html: one file
that opens without a network, on a phone too, and can be printed. It lists missing figures with the
commands that compute them. `make report` first computes everything that takes minutes.
"""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from arith_lens.runs import RunError
from arith_lens.runs.files import write as write_file
from figures.collection import study
from figures.common import slug
from figures.report_page import counted, report_page


@dataclass(frozen=True)
class Options:
    """Which model to show, and where the page goes."""

    model: str = "reference"
    """Show its newest finished runs."""
    n: int | None = None
    """Show runs with this number of reference prompts per operation; with all if not given."""
    beside: tuple[str, ...] = ("reference", "reference-mistral")
    """Models to show beside it in figures of several models, if they have runs."""
    out: Path | None = None
    """The page's file; figures/<model>/report.html if not given."""
    root: Path = Path("results")
    """The folder of all runs."""


def main(options: Annotated[Options, tyro.conf.arg(name="")]) -> None:
    """Write the page, and print what it shows and what is missing."""
    results = study(options.model, options.root, options.beside, n=options.n)
    of_n = f" N={options.n}" * (options.n is not None)
    if not any(exhibit.runs for exhibit in results.exhibits):
        sys.exit(
            f"expected finished runs of {options.model} under {options.root}, found none of any "
            "experiment. Make all that take minutes: make report "
            f"MODEL={shlex.quote(options.model)}{of_n}"
        )
    name = f"report{f'-n{options.n}' * (options.n is not None)}.html"
    page = options.out or Path("figures") / slug(options.model) / name
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        write_file(page, report_page(results).encode())
    except (OSError, RunError) as error:
        sys.exit(
            f"the report is not written: {error}\nThe runs are unharmed, and so is a report that "
            "was there before. Free some space, or choose another --out."
        )
    print(
        f"{options.model}: {len(results.exhibits)} figures and tables from {len(results.runs)} runs"
    )
    print(f"the paper's claims, in this model: {counted(results.verdicts)}")
    for missing in results.missing:
        print(f"missing: {missing.title}. {missing.reason}")
    print(page)
    if results.failed:
        names = ", ".join(results.failed)
        sys.exit(f"not drawn because of errors of the program, see above: {names}")
