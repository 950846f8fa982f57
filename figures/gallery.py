"""The gallery: figures and tables of the reference models, as README and docs show them.

Reads their runs without loading a model. Writes pictures and numbers to figures/gallery, and
docs/gallery.md, the page that shows them. Equal runs give equal files, byte by byte.
"""

import html
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Annotated

import tyro

from arith_lens import plotting
from arith_lens.runs import RunError
from experiments.finding import RunSettings
from experiments.questions import exhibit_entries
from figures.claims import CLAIMS, Verdict, check_claims
from figures.claims.checking import table as claims_table
from figures.claims.multiplicity import TOGETHER
from figures.claims.page import write_page
from figures.collection import SECTIONS, MissingExhibit, Section, collected, name_of
from figures.common import SHIPPED, run_with
from figures.exhibit import Chart, Exhibit, Table
from figures.tables.table import records

GALLERY_MODELS = ("reference", "reference-mistral")
MOST_NUMBERS = 400_000
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
    by_model: dict[str, list[tuple[Section, list[Exhibit | MissingExhibit]]]] = {}
    for model in GALLERY_MODELS:
        folder = _folder(model, options.out)
        folder.mkdir(parents=True, exist_ok=True)
        by_model[model] = [*_sections(model, options.root)]
        parts = [part for _, of_section in by_model[model] for part in of_section]
        exhibits = [part for part in parts if not isinstance(part, MissingExhibit)]
        for part in parts:
            if isinstance(part, MissingExhibit):
                print(f"missing: {part.title}. {part.reason}")
        checked[model] = check_claims(model, roots=(options.root, SHIPPED))
        _write_numbers([*exhibits, _without_folders(claims_table(model, checked[model]))], folder)
        if options.pictures:
            _draw([exhibit for exhibit in exhibits if isinstance(exhibit, Chart)], folder)
    for section in SECTIONS:
        if entries := [*_entries(section, by_model, options)]:
            text += [f"\n## {section.title}\n", *entries]
    text.append(_claims_at_a_glance(checked, options))
    options.page.write_text("\n".join(text).replace("\n\n\n", "\n\n") + "\n", encoding="utf-8")
    if options.claims_page.exists():
        tables = {model: claims_table(model, checked[model]).numbers for model in GALLERY_MODELS}
        write_page(options.claims_page, tables, CLAIMS)
    print(options.page)


PAGE_HEAD = """# Gallery

The main pictures of the two models that are shipped with the project, small ones that were trained
on a [closed world](world.md). `make gallery` computes and draws them again. All other figures are
commands (`make help`), and their numbers are in `figures/gallery`. For any model, `make report
MODEL=…` shows every figure on one page."""


def _folder(model: str, out: Path) -> Path:
    """Where the files of a model go."""
    return out if model == GALLERY_MODELS[0] else out / model


def _entries(
    section: Section,
    by_model: Mapping[str, Sequence[tuple[Section, list[Exhibit | MissingExhibit]]]],
    options: Options,
) -> Iterator[str]:
    """The Markdown of the exhibits that the page shows, each with all its models."""
    names = {
        name_of(function)
        for function in section.exhibits
        if exhibit_entries()[name_of(function)][1].gallery != "numbers"
    }
    order: dict[str, list[str]] = {}
    for model, sections in by_model.items():
        parts = next((parts for one, parts in sections if one is section), [])
        for part in parts:
            stem = part.name.partition("-of-")[0].partition("_")[0]
            if isinstance(part, MissingExhibit) or not names & {part.name, stem}:
                continue
            texts = order.setdefault(part.name, [])
            folder = _folder(model, options.out)
            texts.append(_entry(part, folder, options.page, model, first=not texts))
    for texts in order.values():
        yield from texts


MARKS = {"holds here": "●", "does not hold here": "○", "not decided": "◐", "not measured": "·"}
"""How a verdict looks in a line of claims."""


def _claims_at_a_glance(checked: Mapping[str, list[Verdict]], options: Options) -> str:
    """Each claim as a mark, by group and model, with how many hold."""
    text = ["\n## Which of the paper's claims hold?\n"]
    tables = {model: claims_table(model, verdicts) for model, verdicts in checked.items()}
    counts = []
    for model, table in tables.items():
        verdicts = _verdicts(table)
        n_held = verdicts.count("holds here")
        link = _from(options.page) / _folder(model, options.out) / "claims.csv"
        counts.append(f"{n_held} of {len(verdicts)} in `{model}` ([numbers]({link}))")
    text.append(f"The claims that hold: {'; '.join(counts)}. [Each claim](claims.md).\n")
    legend = ", ".join(f"{mark} {name}" for name, mark in MARKS.items())
    text.append(f"| group | {' | '.join(f'`{model}`' for model in tables)} |")
    text.append("|---" * (len(tables) + 1) + "|")
    first = next(iter(tables.values())).numbers
    for group in (one for one in dict.fromkeys(first["group"]) if one != TOGETHER):
        cells = []
        for table in tables.values():
            cells.append("".join(MARKS.get(one, "·") for one in _verdicts(table, group)))
        text.append(f"| {group} | {' | '.join(cells)} |")
    return "\n".join([*text, f"\n{legend}.\n"])


def _verdicts(table: Table, group: str | None = None) -> list[str]:
    """The verdict of each claim, of one group or of all."""
    by_claim: dict[str, str] = {}
    for one in records(table.numbers):
        if group in (None, one.group) and one.group != TOGETHER:
            by_claim.setdefault(one.claim, one.holds)
    return [*by_claim.values()]


def _sections(model: str, root: Path) -> Iterator[tuple[Section, list[Exhibit | MissingExhibit]]]:
    """The exhibits of each question; of the second model, without those that are shown once."""
    for section in SECTIONS:
        parts: list[Exhibit | MissingExhibit] = []
        for function in section.exhibits:
            _, entry = exhibit_entries()[name_of(function)]
            once = entry.gallery in ("once", "first model") or entry.compares_models
            if model != GALLERY_MODELS[0] and once:
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


def _entry(exhibit: Exhibit, folder: Path, page: Path, model: str, *, first: bool) -> str:
    """The Markdown of one figure or table; the first of several models has its title."""
    link = _from(page) / folder
    title = exhibit.title if exhibit.title.endswith("?") else f"{exhibit.title}."
    caption = html.escape(exhibit.caption, quote=False)
    text = f"**{title}** {caption}" if first else f"The same of `{model}`. {caption}"
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
