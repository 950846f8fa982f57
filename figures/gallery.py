"""The gallery: pictures of the reference models side by side, as README and docs show them.

`python -m figures gallery` reads the models' runs without loading a model, writes every table to
figures/gallery, and draws the pictures that README and docs show from these tables alone. With
`--from-tables` it leaves the tables as they are, and needs no run. Equal tables give equal files.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from arith_lens import plotting
from arith_lens.runs import Run, RunError
from experiments.finding import PAPER_SETTINGS, RunSettings
from experiments.questions import exhibit_entries
from figures.claims import CLAIMS, check_claims
from figures.claims.checking import table as claims_table
from figures.claims.checking import with_earlier
from figures.claims.page import write_page
from figures.claims_glance import glance
from figures.collection import MissingExhibit, collected, functions, name_of
from figures.common import FIRST_MODEL, FREE, GALLERY_MODELS, run_with, stored_rows, tables_of
from figures.exhibit import Chart, Exhibit, MakesExhibits, Table, findings_in, one_chart, page_texts
from figures.few_heads import atlas, write_pictures
from figures.options import GALLERY, GalleryOptions
from figures.tables.table import from_csv, joined

OF_A_PRETRAINED_MODEL = {k: v for k, v in PAPER_SETTINGS.items() if k not in ("n", "shots")}
CLAIMS_MODELS: Mapping[str, Mapping[str, Any]] = {
    "smollm2-135m": {"settings": RunSettings(OF_A_PRETRAINED_MODEL), "computed": False},
    **{model: {} for model in GALLERY_MODELS},
}
"""The models whose claims are checked, and how; the pretrained one first."""
MOST_NUMBERS = 400_000
"""Larger CSV files, in letters, are left out; the exhibit's command writes them."""


def main(options: GalleryOptions) -> None:
    """Write the tables, then draw them. Without the first map, change nothing."""
    if not options.from_tables:
        try:
            run_with(RunSettings.of_paper(), "which_heads", GALLERY_MODELS[0], options.root)
        except RunError as error:
            sys.exit(str(error))
        write_tables(options)
    _write_verdicts(options)
    if options.pictures:
        write_pictures(options.out)
        _draw(linked_charts(options.docs, options.out), options.out)
    print(options.out)


def write_tables(options: GalleryOptions) -> None:
    """Write the tables of all exhibits, and the verdicts on claims; print what is missing.

    A table or a claim whose run is not there stays as it is.
    """
    for model in GALLERY_MODELS:
        parts = [part for function in functions() for part in _made(function, model, options.root)]
        for part in parts:
            if isinstance(part, MissingExhibit):
                print(f"missing: {part.title}. {part.reason}")
        exhibits = [part for part in parts if not isinstance(part, MissingExhibit)]
        _write_numbers(exhibits, _folder(options.out, model))
    for model, options_of in CLAIMS_MODELS.items():
        verdicts = check_claims(model, roots=(options.root, GALLERY), **options_of)
        folder = _folder(options.out, model)
        _write_numbers([_lasting(claims_table(model, verdicts), folder)], folder)


def linked_charts(docs: Path, tables: Path) -> Iterator[Chart]:
    """The pictures that pages show, from the tables: of all models together, or of the first model
    where the gallery has numbers alone. The title is the bold sentence below it, if there is one.
    """
    texts = page_texts(docs)
    findings = findings_in(texts)
    for chart in _charts(texts, tables):
        yield replace(chart, title=findings.get(chart.name, chart.title))


def _charts(texts: str, tables: Path) -> Iterator[Chart]:
    """The pictures that texts of pages show, with titles of their own."""
    for function in functions():
        _, entry = exhibit_entries()[name_of(function)]
        parts = {one: (one,) for one in entry.shows or (entry.name,)}
        if entry.picture:  # one picture of several exhibits; none of its own without `shows`
            parts = {entry.picture: entry.shows}
        parts = {name: of for name, of in parts.items() if f"/gallery/{name}.svg" in texts}
        models = GALLERY_MODELS[: 1 if entry.gallery == "numbers" else None]
        exhibits = [
            one
            for model in (entry.models or models) * bool(parts)
            for one in _made(function, model, tables)
        ]
        for of in parts.values():
            if charts := [one for one in exhibits if isinstance(one, Chart) and one.name in of]:
                yield one_chart(charts)
    if "/gallery/claims.svg" in texts:
        yield glance(stored_rows(_claims_tables(tables), "claims"))
    if "/gallery/atlas.svg" in texts:
        yield atlas()


def _made(function: MakesExhibits, model: str, root: Path) -> list[Exhibit | MissingExhibit]:
    """The exhibits of a model; those that are shown once are of the first one."""
    _, entry = exhibit_entries()[name_of(function)]
    once = entry.gallery == "once" or entry.compares_models
    if model != GALLERY_MODELS[0] and once:
        return []
    settings = FREE if entry.models else None  # a pretrained model has its own
    exhibits = collected(function, model, root, GALLERY_MODELS, settings=settings)
    return [exhibits] if isinstance(exhibits, MissingExhibit) else [*exhibits]


def _folder(tables: Path, model: str) -> Path:
    """Where a model's tables are."""
    folder = tables if model == FIRST_MODEL else tables / model
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _claims_tables(tables: Path) -> list[Run]:
    """The folders of the models' verdicts, as runs."""
    models = [one for one in CLAIMS_MODELS if one == FIRST_MODEL or (tables / one).is_dir()]
    return [tables_of("which_heads", model, FREE, tables) for model in models]


def _write_verdicts(options: GalleryOptions) -> None:
    """Write the verdicts of the tables into the page of claims, if both exist."""
    page = options.docs / "claims.md"
    files = [run.path / "claims.csv" for run in _claims_tables(options.out)]
    tables = [from_csv(file.read_text("utf-8")) for file in files if file.exists()]
    if tables and page.exists():
        by_model = {str(table.model.iloc[0]): table for table in tables}
        write_page(page, by_model, CLAIMS)


def _lasting(table: Table, folder: Path) -> Table:
    """The table of claims for the gallery: with earlier verdicts, and without folders."""
    numbers, file = joined([table.numbers]), folder / "claims.csv"
    if file.exists():
        numbers = with_earlier(numbers, from_csv(file.read_text(encoding="utf-8")))
    folders = ["runs", "why", "command"]
    return replace(table, numbers=numbers.drop(columns=folders, errors="ignore"))


def _write_numbers(exhibits: Sequence[Exhibit], folder: Path) -> None:
    for exhibit in exhibits:
        file = folder / f"{exhibit.table_name}.csv"
        file.unlink(missing_ok=True)
        if len(exhibit.numbers.to_csv(index=False)) <= MOST_NUMBERS:
            exhibit.numbers.to_csv(file, index=False)


def _draw(charts: Iterable[Chart], folder: Path) -> None:
    """Draw each picture twice with its title, for a page and for a phone; both follow the reader's
    light or dark.

    The files are NAME.svg and NAME-narrow.svg.
    """
    pictures = {}
    for chart in charts:
        figures = {f"{chart.name}.svg": chart.figure}
        with plotting.drawn_for("phone"):
            figures[f"{chart.name}-narrow.svg"] = chart.redraw and chart.redraw()
        for name, figure in figures.items():
            figure = plotting.with_title(figure, chart.title)
            pictures[folder / name] = plotting.as_rectangles(figure)
    try:
        plotting.save_pictures(pictures, seconds=300)
    except plotting.ExportError as error:
        sys.exit(str(error))
    for path in pictures:
        path.write_text(plotting.in_both_schemes(path.read_text("utf-8")), encoding="utf-8")
