"""An exhibit is a figure or a table before it is written: its numbers, its picture and its words.

A function `exhibits(options)` of a module returns a list of them. It is a command, which has the
module's name. A module with several such functions has a command for each, which has the function's
name. A report collects them.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from html import unescape
from itertools import groupby
from pathlib import Path
from typing import Any, NotRequired, TypeAlias, TypedDict, Unpack, get_type_hints

from markupsafe import Markup, escape
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting import FROM_FOLDER, document, write_libraries
from arith_lens.plotting.markup import environment
from arith_lens.runs import Run, RunError
from arith_lens.runs import write as write_file
from arith_lens.views import Viewed, views_html
from experiments.finding import RunSettings, name_ending, settings_text, unusual_settings
from experiments.questions import exhibit_entries
from figures.common import FIRST_MODEL, files_folder, has_tables_alone, shipped, stored_rows
from figures.options import GALLERY, ClaimsOptions, Formats, ModelOptions, TableOptions
from figures.tables.table import QuestionTable, joined, keys_of, read_back, to_csv


@dataclass(frozen=True, kw_only=True, eq=False)
class _Exhibit:
    name: str
    """The name of its files, without the ending."""
    title: str
    """One line."""
    caption: str
    """How to read it: plain text, which is the same for every model."""
    finding: str = ""
    """The sentence that heads its page, above the title, if people wrote one."""
    notes: Sequence[str] = ()
    """What else its small print says, such as settings that are not the defaults."""
    runs: tuple[Run, ...]
    """The runs that it was made from; none for a drawing."""
    numbers: DataFrame = field(repr=False)
    """All its numbers, for a program."""
    table_of: str = ""
    """The name of the shipped file that has its rows, if it is another exhibit's."""

    @property
    def table_name(self) -> str:
        """The name of the shipped file of its numbers, without the ending."""
        return self.table_of or self.name

    @property
    def small_print(self) -> list[str]:
        """What stands below it."""
        return _small_print(self.numbers, self.notes, self.caption)


def _small_print(rows: DataFrame, notes: Sequence[str], caption: str) -> list[str]:
    """The notes, and the caption after the model, if there is one (a picture names several)."""
    models = keys_of(rows, "model")
    named = f"Model: {models[0]}. " if len(models) == 1 else ""
    return [*notes, named + caption]


@dataclass(frozen=True, kw_only=True, eq=False)
class Chart(_Exhibit):
    """A picture."""

    figure: plotting.Figure = field(repr=False)
    """With `small_print` below."""
    redraw: Callable[[], plotting.Figure] | None = field(default=None, repr=False)
    """Draws it again, for the width that `plotting.drawn_for` sets."""
    small_table: DataFrame | None = None
    """Printed with the chart, and on the report."""
    views: tuple[Viewed, ...] = ()
    """Interactive views, folded on its page."""
    of_rows: Callable[[DataFrame, Sequence[Run]], "Chart"] | None = field(default=None, repr=False)
    """The same chart of other rows, such as those of several models."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Table(_Exhibit):
    """A table of text."""

    cells: DataFrame = field(repr=False)
    """The cells as text, for a reader."""
    printed: str = field(default="", repr=False)
    """The text for a terminal, if the cells are too long for its lines."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Interactive(_Exhibit):
    """A page to click through."""

    view: Viewed = field(repr=False)
    """It writes its own page."""


Exhibit: TypeAlias = Chart | Table | Interactive
ShownOptions: TypeAlias = TableOptions | ModelOptions | ClaimsOptions
MakesExhibits: TypeAlias = Callable[[Any], Sequence[Exhibit]]
"""A function that makes exhibits from its options.

It reads the run that they name, or the one with their settings, and loads no model. It raises
RunError without such a run, or where the run lacks what is drawn.
"""


def show(exhibits: MakesExhibits, options: ShownOptions) -> None:
    """Draw and write the exhibits, and print the files; if that fails, exit with the reason."""
    width: plotting.Width = getattr(options, "width", "screen")
    with plotting.drawn_for(width):
        _show(exhibits, options, "" if width == "screen" else f"-{width}")


def _show(exhibits: MakesExhibits, options: ShownOptions, ending: str) -> None:
    """`show`; names of pictures have the ending."""
    try:
        module_exhibits = exhibits(options)
    except RunError as error:
        sys.exit(str(error))
    root = getattr(options, "root", GALLERY)
    for path in dict.fromkeys(r.path for e in module_exhibits for r in e.runs if shipped(r)):
        if not path.resolve().is_relative_to(root.resolve()):
            print(f"no such run under {root}: these are the tables that ship with it, {path}")
    for exhibit in map(named_for_files, module_exhibits):
        folder = options.out or files_folder(exhibit.runs)
        try:
            write_exhibit(exhibit, folder, getattr(options, "formats", ()), ending)
        except BrokenPipeError:
            raise
        except (OSError, RunError) as error:
            sys.exit(
                f"{exhibit.name} is not drawn: {error}\nThe run is unharmed. Free some space, or "
                f"choose another --out, and draw again: files in {folder} may be of an earlier "
                "drawing."
            )


Tables: TypeAlias = QuestionTable | Sequence[QuestionTable]
Numbers: TypeAlias = Callable[[], Tables] | Tables | DataFrame
"""What an exhibit is made from: a function that makes one table, or several as one file, which is
called if the runs have results; or the rows of a file."""


class Words(TypedDict):
    """The words of an exhibit, which are the same for every model."""

    name: str
    title: str
    caption: str
    """How to read it."""
    table_of: NotRequired[str]
    """The exhibit whose rows it shows, if they are not its own."""


def _rows_of(tables: Numbers, runs: Sequence[Run], name: str) -> DataFrame:
    """The rows as their CSV file has them; of runs that have tables alone, those of their files."""
    if isinstance(tables, DataFrame):
        return tables
    if runs and all(map(has_tables_alone, runs)):
        return stored_rows(runs, name)
    made = tables() if callable(tables) else tables
    return read_back(*([made] if isinstance(made, QuestionTable) else made))


def chart_of(
    tables: Numbers,
    runs: Sequence[Run],
    *,
    draw: Callable[[DataFrame, list[str]], plotting.Figure],
    small_table: Callable[[DataFrame], DataFrame] | None = None,
    **words: Unpack[Words],
) -> Chart:
    """A chart whose picture and words are made from the table as its CSV file has it.

    Args:
        tables: makes the numbers; several tables, such as those of several models, are one file.
        runs: the runs that the tables are of; none if the tables are those of a shipped file. If
            they have tables alone, the rows are those of their files of this name.
        draw: the picture, from the rows and the notes.
        small_table: what is printed with it, from the rows.
        words: as in `Words`.
    """
    rows = _rows_of(tables, runs, words.get("table_of") or words["name"])
    small_print = _small_print(rows, [], words["caption"])
    redraw = partial(draw, rows, small_print)
    small = small_table and small_table(rows)
    of_rows = partial(chart_of, draw=draw, small_table=small_table, **words)
    return Chart(
        **words,
        runs=tuple(runs),
        numbers=rows,
        figure=redraw(),
        redraw=redraw,
        small_table=small,
        of_rows=of_rows,
    )


def one_chart(charts: Sequence[Chart]) -> Chart:
    """One picture of the rows of several charts, drawn as the first one is."""
    first = charts[0]
    if len(charts) == 1 or first.of_rows is None:
        return first
    runs = dict.fromkeys(run for chart in charts for run in chart.runs)
    return first.of_rows(joined(chart.numbers for chart in charts), [*runs])


def text_table_of(
    tables: Numbers,
    runs: Sequence[Run],
    *,
    cells: Callable[[DataFrame], DataFrame],
    printed: Callable[[DataFrame], str] = lambda _: "",
    **words: Unpack[Words],
) -> Table:
    """A table of text whose cells and words are made from the numbers as their CSV file has them.

    Args:
        tables, runs, words: as in `chart_of`.
        cells: the texts, from the rows.
        printed: the text for a terminal, from the rows.
    """
    rows = _rows_of(tables, runs, words.get("table_of") or words["name"])
    return Table(**words, runs=tuple(runs), numbers=rows, cells=cells(rows), printed=printed(rows))


def options_of(exhibits: MakesExhibits) -> Any:
    """The class of the options of a function that makes exhibits."""
    return get_type_hints(exhibits)["options"]


def print_numbers(exhibits: MakesExhibits, options: Any, where: Sequence[str] = ()) -> None:
    """Print the tables that the exhibits are made from; if there is none, exit with the reason.

    Args:
        where: `key=value`, which the rows that are printed have.
    """
    try:
        tables = rows_where([exhibit.numbers for exhibit in exhibits(options)], where)
    except RunError as error:
        sys.exit(str(error))
    except KeyError as error:
        sys.exit(str(error.args[0]))
    print(*(table.to_string(index=False, na_rep="") for table in tables), sep="\n\n")


def rows_where(tables: Sequence[DataFrame], where: Sequence[str]) -> list[DataFrame]:
    """The tables with the rows that have some keys; tables without such rows are left out.

    Args:
        tables: as their CSV files have them.
        where: conditions, `key=value`.

    Raises:
        KeyError: no table has such a row.
    """
    chosen = [*tables]
    for condition in where:
        key, _, text = condition.partition("=")
        having = [table for table in chosen if key in table]
        if not having:
            names = ", ".join(dict.fromkeys(name for table in chosen for name in table.columns))
            raise KeyError(f"expected a key among {names}, found {key!r}; correct --where")
        parts = [table[table[key].map(_key_text) == text] for table in having]
        chosen = [DataFrame(part) for part in parts if len(part)]
        if not chosen:
            values = dict.fromkeys(text for table in having for text in table[key].map(_key_text))
            known = ", ".join([*filter(None, values)][:20])
            raise KeyError(f"expected {key} among {known}, found {text!r}; correct --where")
    return chosen


def _key_text(one: Any) -> str:
    """A key as a user writes it: 10 for 10.0."""
    if isinstance(one, float):
        return "" if one != one else f"{one:g}"
    return str(one)


def with_settings(options: Any, config: Any = None) -> Any:
    """The options with the settings of their experiment, if there are some, and its model.

    With a run that is named by its folder, only settings that are not the defaults are demanded.

    Args:
        options: of an exhibit or page.
        config: the settings of the experiment whose run it shows.
    """
    if config is None:
        return options
    is_named = bool(getattr(options, "run", None) or getattr(options, "runs", ()))
    settings = RunSettings.of_config(config, changed_only=is_named)
    model = {"model": config.model} if hasattr(options, "model") else {}
    return replace(options, settings=settings, **model)


def named_for_files(exhibit: Exhibit) -> Exhibit:
    """The exhibit, named as its files: by its question, models and operations.

    Settings that are not the defaults are among its notes: files of other settings have its name.
    """
    name = NUMBERED.sub(lambda found: exhibit_entries()[found[0]][1].file, exhibit.name)
    changes: dict[str, Any] = {"name": name + _ending(exhibit.runs)}
    changes["finding"] = finding(exhibit.name, exhibit.runs)
    if settings := settings_of(exhibit.runs):
        changes["notes"] = notes = [f"{SETTINGS}{settings}.", *exhibit.notes]
        if isinstance(exhibit, Chart):
            changes["figure"] = plotting.with_notes(
                exhibit.figure, _small_print(exhibit.numbers, notes, exhibit.caption)
            )
    return replace(exhibit, **changes)


def _ending(runs: Sequence[Run]) -> str:
    """What the names of files about some runs end with."""
    models = dict.fromkeys(str(run.config.get("model", "")) for run in runs)
    return name_ending(models, unusual_settings(runs[0]) if runs else {})


def settings_of(runs: Sequence[Run]) -> str:
    """The settings of runs that are not the defaults, in words."""
    texts = dict.fromkeys(settings_text(unusual_settings(run)) for run in runs)
    return "; ".join(filter(None, texts))


def say_what_goes(page: Path, text: str) -> None:
    """Print that a page of other settings is there, in whose place `text` is written."""
    line = re.compile(rf"<p>{SETTINGS}(.*?)\.</p>")
    now, before = map(line.findall, (text, page.read_text("utf-8") if page.exists() else text))
    if now != before:
        settings = unescape(before[0]) if before else "the defaults"
        print(f"written anew: {page} had other settings, {settings}; another --out keeps both")


def write_exhibit(
    exhibit: Exhibit, folder: Path, formats: Formats = (), ending: str = ""
) -> list[Path]:
    """Write the numbers, the HTML and a chart's static pictures; return their paths.

    Prints a table, the path of each file, and a line if pictures cannot be drawn.

    Args:
        exhibit: what is written.
        formats: the static pictures of a chart.
        ending: what the names of a chart's pictures end with, such as the width of paper.

    Raises:
        OSError, RunError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    numbers, page = folder / f"{exhibit.name}.csv", folder / f"{exhibit.name}{ending}.html"
    if isinstance(exhibit, Chart) and exhibit.small_table is not None:
        print(exhibit.small_table.to_string(index=False))
    if isinstance(exhibit, Interactive):
        text = exhibit.view.to_html(notes=exhibit.small_print)
    else:
        text = _page(exhibit, numbers, formats)
    say_what_goes(page, text)
    others: list[Path] = []
    if isinstance(exhibit, Chart):
        try:
            _, *others = plotting.save(
                exhibit.figure, page.with_suffix(""), formats=formats, page_text=text
            )
        except plotting.ExportError as error:
            print(error)
    else:
        write_file(page, text.encode())
        write_libraries(folder, text)
    write_file(numbers, to_csv(exhibit.numbers).encode())
    print(numbers, *others, f"open {page}", sep="\n")
    return [numbers, page, *others]


def _page(exhibit: Chart | Table, numbers: Path, formats: Formats = ()) -> str:
    """The page of an exhibit; its bar has the model's other pages that are there, and the files."""
    pages = [(name, f"{name}{_ending(exhibit.runs)}.html") for name in ("report", "explorer")]
    links = [(name.capitalize(), page) for name, page in pages if (numbers.parent / page).exists()]
    files = ("csv", *formats * isinstance(exhibit, Chart))
    links += [(one.upper(), f"{numbers.stem}.{one}") for one in files]
    words: Any = {"notes": map(prose, exhibit.small_print), "links": links}
    heading = exhibit.finding or exhibit.title
    words["under"] = exhibit.title * (heading != exhibit.title)
    if isinstance(exhibit, Table):
        print(f"{exhibit.title}\n\n{exhibit.printed or exhibit.cells.to_string(index=False)}\n")
        print(*exhibit.small_print, "", sep="\n")
        return document(heading, html_table(exhibit.cells), **words)
    body = plotting.chart_html(exhibit.name, heading, exhibit.figure, exhibit.redraw)
    if exhibit.views:
        body += views_html(exhibit.views, summary="Click through it")
    bundles = dict.fromkeys(["plotly", *(view.bundle for view in exhibit.views)])
    head = "".join(map(FROM_FOLDER.format, bundles))
    return document(heading, body, head=head, **words)


BOLD = r"\*\*(?P<text>[^*]+?)\.?\*\*"
BELOW_A_PICTURE = re.compile(rf'/gallery/(?P<name>[\w-]+)\.svg"></picture>\s+{BOLD}')
TITLE_OF = re.compile(rf"{BOLD}<!--title:(?P<name>[\w-]+)-->")
"""The bold sentence below a picture, and one that a comment makes the title of an exhibit."""

SETTINGS = "Settings that are not the defaults: "
NUMBERED = re.compile(r"(?:fig|table)\d+")
CODE = re.compile(r"`([^`]+)`")
NUMERIC = re.compile(r"(?:[+−]?[\d.,e−]+%?(?: [\[(].*|; .*)?)?$")
MINUS = re.compile(r"(?<![\w.)\]-])-(?=[\d.]*\d)")


def page_texts(docs: Path) -> str:
    """The pages of docs and README, as far as they are there: an installed package has none."""
    pages = [*docs.rglob("*.md"), *docs.parent.glob("README.md")]
    return "".join(page.read_text(encoding="utf-8") for page in pages)


def findings_in(texts: str) -> dict[str, str]:
    """The sentences that people wrote as titles of exhibits, by exhibit.

    >>> findings_in("**[A](b) is `B`.**<!--title:fig2--> More.")
    {'fig2': 'A is B'}
    """
    marked = [*BELOW_A_PICTURE.finditer(texts), *TITLE_OF.finditer(texts)]
    plain = {one["name"]: re.sub(r"\[(.*?)\]\(.*?\)|`", r"\1", one["text"]) for one in marked}
    return {name: " ".join(text.split()) for name, text in plain.items()}


def finding(name: str, runs: Sequence[Run]) -> str:
    """What pages say of this exhibit of the first model; "" unless its tables are the shipped."""
    models = {run.config["model"] for run in runs}
    if FIRST_MODEL not in models or not all(map(shipped, runs)):
        return ""
    return _findings().get(name, "")


@cache
def _findings() -> dict[str, str]:
    """What the pages of this project say of its shipped tables, by exhibit."""
    return findings_in(page_texts(GALLERY.parents[1] / "docs"))


def prose(text: object) -> Markup:
    """A sentence as HTML: what stands between backticks as code, and one kind of minus sign."""
    parts = CODE.split(str(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if i % 2 else Markup(escape(minus(part)))
        for i, part in enumerate(parts)
    )


def minus(text: object) -> str:
    """The text with a minus sign before numbers, in place of a hyphen."""
    return MINUS.sub("−", str(text))


def html_table(cells: DataFrame) -> Markup:
    """A table of the cells, as escaped text, in a box that scrolls where it is too wide.

    Where many rows begin alike, their first cell is a heading above them.
    """
    texts, grouped = cells.map(minus), 2 * len(cells.iloc[:, :1].drop_duplicates()) <= len(cells)
    rows = groupby(texts.itertuples(index=False), lambda row: row[0] if grouped else "")
    template = environment(Path(__file__).parent).get_template("table.html.j2")
    numeric = [all(map(NUMERIC.match, texts[name])) for name in cells]
    groups = [(group, [*some]) for group, some in rows]
    return Markup(template.render(names=[*cells], numeric=numeric, grouped=grouped, groups=groups))
