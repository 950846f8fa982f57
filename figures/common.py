"""What every figure and table shares: which run, where to, and the files."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pandas import DataFrame

from arith_lens import plotting
from arith_lens.runs import Run, RunError, find_runs, load_run

Formats: TypeAlias = tuple[Literal["png", "svg", "pdf"], ...]


@dataclass(frozen=True)
class TableOptions:
    """Which run to show, and where to."""

    model: str = "reference"
    """Show the newest finished run of this model."""
    run: Path | None = None
    """Show this run folder instead."""
    out: Path | None = None
    """Where the files go; figures/<model> if not given."""
    root: Path = Path("results")
    """Where runs are kept."""


@dataclass(frozen=True)
class Options(TableOptions):
    """Which run to draw, and where to."""

    formats: Formats = ("png", "svg", "pdf")
    """Static pictures to draw as well."""


@dataclass(frozen=True)
class ModelOptions:
    """Which runs to draw, and where to."""

    models: tuple[str, ...] = ("reference", "reference-mistral")
    """Draw the newest finished run of each, in this order."""
    runs: tuple[Path, ...] = ()
    """Draw these run folders instead."""
    out: Path = Path("figures") / "models"
    """Where the files go."""
    root: Path = Path("results")
    """Where runs are kept."""
    formats: Formats = ("png", "svg", "pdf")
    """Static pictures to draw as well."""


def chosen_run(options: TableOptions, experiment: str) -> Run:
    """The run at `options.run`, or the model's newest. Raises RunError where none can be drawn."""
    run = load_run(options.run) if options.run else newest_run(experiment, options)
    if run.experiment != experiment or not run.names:
        raise RunError(
            f"expected a run of {experiment} with results, found one of {run.experiment} with "
            f"{len(run.names)} ({run.record['status']}) in {run.path}. "
            f"Make one: python -m experiments.{experiment}"
        )
    return run


def chosen_runs(options: ModelOptions, experiment: str) -> list[Run]:
    """The runs to draw. Raises RunError that names each that is missing, with its command."""
    runs, missing = [], []
    wanted = [TableOptions(model=model, root=options.root) for model in options.models]
    for choice in [TableOptions(run=path) for path in options.runs] or wanted:
        try:
            runs.append(chosen_run(choice, experiment))
        except RunError as error:
            missing.append(str(error))
    if missing:
        raise RunError("\n".join(missing))
    return runs


def newest_run(experiment: str, options: TableOptions) -> Run:
    """The newest finished run of a model. Raises RunError, with the command that makes one."""
    runs = find_runs(experiment, model=options.model, root=options.root)
    if not runs:
        raise RunError(
            f"expected a finished run of {options.model} under {options.root / experiment}, found "
            f"none. Make one: python -m experiments.{experiment} --model {options.model}"
        )
    return runs[0]


def stem_of(options: TableOptions, run: Run, name: str) -> Path:
    """Where a figure's files go, without their endings."""
    return (options.out or Path("figures") / slug(run.config["model"])) / name


def write(
    stem: Path,
    table: DataFrame,
    screen: plotting.Figure,
    formats: Formats,
    vector: plotting.Figure | None = None,
) -> None:
    """The numbers and the pictures, and a line for each file; a line more where one is missing."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    numbers = stem.with_name(f"{stem.name}.csv")
    table.to_csv(numbers, index=False)
    try:
        files = plotting.save(screen, stem, formats=formats, vector=vector)
    except plotting.ExportError as error:
        files = [stem.with_name(f"{stem.name}.html")]
        print(error)
    print(numbers, *files, sep="\n")


def write_table(
    stem: Path, shown: DataFrame, numbers: DataFrame, title: str, notes: Sequence[str]
) -> None:
    """Print a table, and write it as HTML and its numbers as CSV.

    Args:
        shown: the cells as text, as a reader wants them
        numbers: the same in full, for a program
    """
    print(f"{title}\n\n{shown.to_string(index=False)}\n", *notes, "", sep="\n")
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_name(f"{stem.name}.{ending}") for ending in ("csv", "html")]
    numbers.to_csv(files[0], index=False)
    files[1].write_text(_page(shown, title, notes), encoding="utf-8")
    print(*files, sep="\n")


def _page(shown: DataFrame, title: str, notes: Sequence[str]) -> str:
    small = "".join(f"<p>{html.escape(note)}</p>" for note in notes)
    body = shown.to_html(index=False, border=0, justify="left", escape=True)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style><h1>{html.escape(title)}</h1>{body}{small}</html>\n"
    )


_STYLE = (
    "body{font:14px/1.45 'Open Sans','Helvetica Neue',Arial,'Liberation Sans',sans-serif;"
    "color:#1f2430;max-width:1100px;margin:32px auto;padding:0 16px}h1{font-size:17px}"
    "table{border-collapse:collapse;border-top:1.5px solid;border-bottom:1.5px solid;"
    "margin:14px 0}th{border-bottom:1px solid;font-weight:600}"
    "th,td{padding:4px 14px 4px 0;text-align:left;vertical-align:top}"
    "p{color:#6b7280;font-size:12px;margin:4px 0}"
)


def slug(name: str) -> str:
    """A model's name as a folder's name."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in name).strip("._") or "model"
