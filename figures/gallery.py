"""The gallery: figures and tables of the reference models, as README and docs show them.

Reads their runs without loading a model. Writes pictures and numbers to figures/gallery, and
docs/gallery.md, the page that shows them. Equal runs give equal files, byte by byte.
"""

import html
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Annotated

import tyro

from arith_lens import plotting
from arith_lens.runs import RunError
from experiments.finding import RunSettings
from experiments.questions import exhibit_entries
from figures.claims import Verdict, check_claims
from figures.claims.checking import table as claims_table
from figures.claims.checking import write_page
from figures.collection import SECTIONS, MissingExhibit, Section, collected, name_of
from figures.common import SHIPPED, run_with
from figures.exhibit import Chart, Exhibit, Table

GALLERY_MODELS = ("reference", "reference-mistral")
MOST_NUMBERS = 200_000
"""Larger CSV files, in letters, are left out; the exhibit's command writes them."""


@dataclass(frozen=True)
class Options:
    """Which runs to show, and where the files go."""

    root: Path = Path("results")
    """The folder of all runs."""
    out: Path = Path("figures") / "gallery"
    """Where pictures and numbers go."""
    page: Path = Path("docs") / "gallery.md"
    """The page that shows them."""
    claims_page: Path = Path("docs") / "claims.md"
    """The page that gets the verdicts; it is left alone if it does not exist."""
    pictures: bool = True
    """Draw the pictures; else write only the page and the numbers."""


def main(options: Annotated[Options, tyro.conf.arg(name="")]) -> None:
    """Draw every exhibit, and print what is missing. Without the first map, change nothing."""
    try:
        run_with(RunSettings.of_paper(), "which_heads", GALLERY_MODELS[0], options.root)
    except RunError as error:
        sys.exit(str(error))
    text = [PAGE_HEAD]
    checked: dict[str, list[Verdict]] = {}
    for model in GALLERY_MODELS:
        folder = options.out if model == GALLERY_MODELS[0] else options.out / model
        folder.mkdir(parents=True, exist_ok=True)
        text.append(f"\n## {model}\n")
        exhibits: list[Exhibit] = []
        for section, parts in _sections(model, options.root):
            text.append(f"\n### {section.title}\n")
            for exhibit in parts:
                if isinstance(exhibit, MissingExhibit):
                    print(f"missing: {exhibit.title}. {exhibit.reason}")
                else:
                    exhibits.append(exhibit)
                    text.append(_entry(exhibit, folder, options.page, section))
        checked[model] = check_claims(model, roots=(options.root, SHIPPED))
        verdicts = _without_folders(claims_table(model, checked[model]))
        _write_numbers([*exhibits, verdicts], folder)
        numbers = _from(options.page) / folder / "claims.csv"
        text.append(
            f"\n### Which of the paper's claims hold?\n\n{verdicts.notes[0]} "
            f"[The list](claims.md) ([numbers]({numbers}))\n"
        )
        if options.pictures:
            _draw([exhibit for exhibit in exhibits if isinstance(exhibit, Chart)], folder)
    options.page.write_text("\n".join(text).replace("\n\n\n", "\n\n") + "\n", encoding="utf-8")
    if options.claims_page.exists():
        write_page(options.claims_page, checked)
    print(options.page)


PAGE_HEAD = """# Gallery

What the experiments say of the two models that ship with the project, small ones trained on a
[closed world](world.md). `make gallery` computes and draws all of it again; pictures and numbers
come out the same, except times. On any model: `make report MODEL=…`."""


def _sections(model: str, root: Path) -> Iterator[tuple[Section, list[Exhibit | MissingExhibit]]]:
    """The exhibits of each question; of the second model, without those that are shown once."""
    for section in SECTIONS:
        parts: list[Exhibit | MissingExhibit] = []
        for function in section.exhibits:
            _, entry = exhibit_entries()[name_of(function)]
            if model != GALLERY_MODELS[0] and entry.gallery != "each model":
                continue
            exhibits = collected(function, model, root, GALLERY_MODELS)
            parts += [exhibits] if isinstance(exhibits, MissingExhibit) else exhibits
        if (
            any(not isinstance(exhibit, MissingExhibit) for exhibit in parts)
            or model == GALLERY_MODELS[0]
        ):
            yield section, parts


def _without_folders(table: Table) -> Table:
    """The table of claims, without the columns that name folders."""
    folders = ["runs", "why", "command"]
    return replace(table, numbers=table.numbers.drop(columns=folders, errors="ignore"))


def _entry(exhibit: Exhibit, folder: Path, page: Path, section: Section) -> str:
    """The Markdown of one figure or table."""
    link = _from(page) / folder
    title = exhibit.title if exhibit.title.endswith("?") else f"{exhibit.title}."
    text = f"**{title}** {html.escape(exhibit.look, quote=False)}"
    if _fits(exhibit):
        text += f" ([numbers]({link / exhibit.name}.csv))"
    body = (
        _markdown(exhibit)
        if isinstance(exhibit, Table)
        else f"![{exhibit.title}]({link / exhibit.name}.png)"
    )
    return f"\n{text}\n\n{body}\n"


def _from(page: Path) -> Path:
    return Path(*[".."] * len(page.parent.parts))


BAR = chr(92) + "|"


def _markdown(table: Table) -> str:
    def line(cells: Sequence[object]) -> str:
        plain = [html.escape(str(cell), quote=False).replace("|", BAR) for cell in cells]
        return f"| {' | '.join(plain)} |"

    cells = table.cells
    rows = [line(list(row)) for row in cells.itertuples(index=False)]
    return "\n".join([line(list(cells.columns)), "|---" * len(cells.columns) + "|", *rows])


def _fits(exhibit: Exhibit) -> bool:
    return len(exhibit.numbers.to_csv(index=False)) <= MOST_NUMBERS


def _write_numbers(exhibits: Sequence[Exhibit], folder: Path) -> None:
    for exhibit in exhibits:
        file = folder / f"{exhibit.name}.csv"
        file.unlink(missing_ok=True)
        if _fits(exhibit):
            exhibit.numbers.to_csv(file, index=False)


def _draw(charts: Sequence[Chart], folder: Path) -> None:
    """Draw the charts with two dots per pixel, and reduce the files' colours."""
    pictures = {folder / f"{chart.name}.png": chart.figure for chart in charts}
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
