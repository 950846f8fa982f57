"""The gallery: pictures of the reference models side by side, as README and docs show them.

`python -m figures gallery` reads the models' runs without loading a model, writes every table to
figures/gallery, and draws docs/gallery.md with its pictures from these tables alone. With
`--from-tables` it leaves the tables as they are, and needs no run. Equal tables give equal files.
"""

import html
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

from arith_lens import plotting
from arith_lens.runs import Run, RunError
from experiments.finding import NotComputed, RunSettings
from experiments.questions import exhibit_entries
from figures.claims import CLAIMS, check_claims
from figures.claims.checking import table as claims_table
from figures.claims.checking import with_earlier
from figures.claims.page import write_page
from figures.claims_glance import glance
from figures.collection import SECTIONS, MissingExhibit, Section, collected, name_of
from figures.common import FIRST_MODEL, FREE, run_with, stored_rows, tables_of
from figures.exhibit import Chart, Exhibit, MakesExhibits, Table, one_chart
from figures.options import SHIPPED, GalleryOptions
from figures.tables.table import from_csv, joined

GALLERY_MODELS = ("reference", "reference-mistral")
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
    draw_page(options)
    print(options.page)


def write_tables(options: GalleryOptions) -> None:
    """Write the tables of all exhibits, and the verdicts on claims; print what is missing.

    A table or a claim whose run is not there stays as it is.
    """
    for model in GALLERY_MODELS:
        folder = options.out if model == GALLERY_MODELS[0] else options.out / model
        folder.mkdir(parents=True, exist_ok=True)
        parts = [part for function in _functions() for part in _made(function, model, options.root)]
        for part in parts:
            if isinstance(part, MissingExhibit):
                print(f"missing: {part.title}. {part.reason}")
        verdicts = check_claims(model, roots=(options.root, SHIPPED))
        of_claims = _lasting(claims_table(model, verdicts), folder)
        exhibits = [part for part in parts if not isinstance(part, MissingExhibit)]
        _write_numbers([*exhibits, of_claims], folder)


PAGE_HEAD = """# Gallery

Two small models of a [closed world](world.md), and Gemma 3 270M. A and B are the operands, C is
the answer, END is the last token ([terms](README.md#terms)). `make report MODEL=…` shows all.
"""
FINDING = re.compile(r"^(.+?[.?!])(?= [A-Z`]|$)")
"""The first sentence of a caption."""
PRINTED = 640
"""Pixels of a picture on the page. Its file has 1,656."""
CLAIMS_TITLE = "Which of the paper's claims hold?"


@dataclass(frozen=True)
class PageExhibit:
    """A picture of the page, with the files of its numbers."""

    chart: Chart
    files: tuple[Path, ...]


def draw_page(options: GalleryOptions) -> None:
    """Draw the page and its pictures from the tables in `options.out`."""
    by_title = {section.title: [*page_exhibits(section, options.out)] for section in SECTIONS}
    by_title[CLAIMS_TITLE] = [*_claims(options.out)]
    text = [PAGE_HEAD]
    for title, parts in by_title.items():
        if parts:
            text += [f"## {title}\n", *(_entry(one, options) for one in parts)]
    options.page.write_text("\n".join(text), encoding="utf-8")
    _draw_claims_page(options)
    if options.pictures:
        charts = [one.chart for parts in by_title.values() for one in parts]
        charts += _linked({chart.name for chart in charts}, options)
        _draw({options.out / f"{chart.name}.png": chart.figure for chart in charts})


def _linked(drawn: Collection[str], options: GalleryOptions) -> Iterator[Chart]:
    """Further pictures that other pages link: of the first model, or of all models together."""
    folder = options.page.parent
    pages = [*folder.glob("*.md"), *folder.parent.glob("README.md")]
    texts = "".join(page.read_text(encoding="utf-8") for page in pages)
    for function in _functions():
        name = name_of(function)
        if name not in drawn and f"{options.out.name}/{name}.png" in texts:
            together = exhibit_entries()[name][1].gallery == "linked"
            models = GALLERY_MODELS if together else GALLERY_MODELS[:1]
            exhibits = [one for model in models for one in _made(function, model, options.out)]
            charts = [one for one in exhibits if isinstance(one, Chart) and one.name == name]
            if charts:
                yield one_chart(charts)


def _functions() -> list[MakesExhibits]:
    """The functions of all exhibits, in the order of the sections."""
    return [function for section in SECTIONS for function in section.exhibits]


def _made(function: MakesExhibits, model: str, root: Path) -> list[Exhibit | MissingExhibit]:
    """The exhibits of a model; those that are shown once are of the first one."""
    _, entry = exhibit_entries()[name_of(function)]
    once = entry.gallery == "once" or entry.compares_models
    if model != GALLERY_MODELS[0] and once:
        return []
    settings = FREE if entry.models else None  # a pretrained model has its own
    exhibits = collected(function, model, root, GALLERY_MODELS, settings=settings)
    return [exhibits] if isinstance(exhibits, MissingExhibit) else [*exhibits]


def page_exhibits(section: Section, tables: Path) -> Iterator[PageExhibit]:
    """What the page shows of a section: each picture with all its models and questions."""
    by_picture: dict[str, list[Exhibit]] = {}
    own = {name_of(function) for function in section.exhibits}
    for function in _functions():
        _, entry = exhibit_entries()[name_of(function)]
        if (entry.picture or entry.name) not in own:
            continue
        shows = entry.shows or (entry.name,) * (entry.gallery not in ("numbers", "linked"))
        for model in entry.models or GALLERY_MODELS:
            for exhibit in _made(function, model, tables):
                if not isinstance(exhibit, MissingExhibit) and exhibit.name in shows:
                    by_picture.setdefault(entry.picture or exhibit.name, []).append(exhibit)
    for exhibits in by_picture.values():
        chart = one_chart([one for one in exhibits if isinstance(one, Chart)])
        yield PageExhibit(chart, tuple(dict.fromkeys(_files(exhibits, tables))))


def _files(exhibits: Sequence[Exhibit], tables: Path) -> Iterator[Path]:
    """The tables that exhibits are made from."""
    for exhibit in exhibits:
        folders = [run.path for run in exhibit.runs] or [tables]
        names = dict.fromkeys((exhibit.name, exhibit.name.partition("-of-")[0]))
        files = (folder / f"{name}.csv" for folder in folders for name in names)
        yield from (file for file in files if file.exists())


def _claims(tables: Path) -> Iterator[PageExhibit]:
    """The verdicts on the paper's claims as one picture, if there are some."""
    runs = _claims_tables(tables)
    try:
        chart = glance(stored_rows(runs, "claims"))
    except NotComputed:
        return
    yield PageExhibit(chart, tuple(run.path / "claims.csv" for run in runs))


def _claims_tables(tables: Path) -> list[Run]:
    """The folders of the models' verdicts, as runs."""
    models = [one for one in GALLERY_MODELS if one == FIRST_MODEL or (tables / one).is_dir()]
    return [tables_of("which_heads", model, FREE, tables) for model in models]


def _draw_claims_page(options: GalleryOptions) -> None:
    """Write the verdicts of the tables into the page of claims, if both exist."""
    files = [run.path / "claims.csv" for run in _claims_tables(options.out)]
    tables = [from_csv(file.read_text("utf-8")) for file in files if file.exists()]
    if tables and options.claims_page.exists():
        by_model = {str(table.model.iloc[0]): table for table in tables}
        write_page(options.claims_page, by_model, CLAIMS)


def _lasting(table: Table, folder: Path) -> Table:
    """The table of claims for the gallery: with earlier verdicts, and without folders."""
    numbers, file = joined([table.numbers]), folder / "claims.csv"
    if file.exists():
        numbers = with_earlier(numbers, from_csv(file.read_text(encoding="utf-8")))
    folders = ["runs", "why", "command"]
    return replace(table, numbers=numbers.drop(columns=folders, errors="ignore"))


def _entry(one: PageExhibit, options: GalleryOptions) -> str:
    """The Markdown of a picture, as wide as in print, and its caption with its numbers.

    The first table has the link "Numbers", others their name, and further models theirs.
    """
    by_name: dict[str, list[str]] = {}
    for file in one.files:
        folder = file.parent.relative_to(options.out)
        text = str(folder) if file.stem in by_name else file.stem if by_name else "Numbers"
        by_name.setdefault(file.stem, []).append(f"[{text}]({_link(file, options)})")
    links = ", ".join(
        first + f" ({', '.join(others)})" * bool(others) for first, *others in by_name.values()
    )
    caption = html.escape(one.chart.caption, quote=False)
    finding = FINDING.match(caption)
    alt = (finding[1] if finding else caption).replace("`", "").replace('"', "&quot;")
    caption = FINDING.sub(r"**\1**", caption, count=1) + f" {links}." * bool(links)
    picture = f"{_link(options.out / one.chart.name, options)}.png"
    return f'<img alt="{alt}" src="{picture}" width="{PRINTED}">\n\n{caption}\n'


def _link(file: Path, options: GalleryOptions) -> str:
    """A file of the gallery, as the page names it."""
    up = [".."] * len(options.page.parent.parts)
    return "/".join([*up, *file.parts])


def _fits(exhibit: Exhibit) -> bool:
    return len(exhibit.numbers.to_csv(index=False)) <= MOST_NUMBERS


def _write_numbers(exhibits: Sequence[Exhibit], folder: Path) -> None:
    for exhibit in exhibits:
        file = folder / f"{exhibit.name}.csv"
        file.unlink(missing_ok=True)
        if _fits(exhibit):
            exhibit.numbers.to_csv(file, index=False)


def _draw(pictures: Mapping[Path, plotting.Figure]) -> None:
    """Draw pictures with two dots per pixel, and reduce the files' colours."""
    try:
        plotting.save_pictures(pictures, seconds=300)
    except plotting.ExportError as error:
        sys.exit(str(error))
    for path in pictures:
        reduce_colours(path)


def reduce_colours(path: Path) -> None:
    """Write a PNG file again with a palette of 256 colours, if that makes it smaller.

    A chart has few colours, and text adds many mixed ones at its edges. Median cut keeps the
    colours of areas exactly. The file is a quarter as large, and a reader sees no difference.

    Raises:
        ValueError: the picture has transparent pixels, which a palette would show as black.
    """
    from PIL import Image

    with Image.open(path) as picture:
        if picture.mode == "RGBA" and picture.getchannel("A").getextrema() != (255, 255):
            raise ValueError(
                f"expected no transparent pixels, found some in {path}; draw it on white"
            )
        reduced = picture.convert("RGB").quantize(
            256, Image.Quantize.MEDIANCUT, kmeans=4, dither=Image.Dither.NONE
        )
    written = BytesIO()
    reduced.save(written, "PNG", optimize=True)
    if written.tell() < path.stat().st_size:
        path.write_bytes(written.getvalue())
