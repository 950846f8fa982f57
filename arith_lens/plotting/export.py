"""Figures to files: HTML that opens offline, and PNG, SVG, PDF where a browser can draw them.

`save_pictures` draws in a process of its own, which can be stopped together with its browser.
"""

import contextlib
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from arith_lens.plotting.markup import document, render, shell_file
from arith_lens.plotting.page import bear_colours, without_notes
from arith_lens.plotting.style import Figure, Number, in_the_dark, plotly, rooted_colour_at
from arith_lens.plotting.widths import PER_INCH, drawn_for, is_printed

_RENDER = ["-c", "from arith_lens.plotting.export import draw_jobs; draw_jobs()"]
_PICTURES = ("png", "svg", "pdf")
PRINT_DOTS = 300
"""Dots of an inch of a printed PNG."""
PRINTED = 690
"""Width of a printed page's text, in pixels; wider charts are printed smaller."""
FROM_FOLDER = '<script src="{}.js"></script>'
"""Reads a library from the folder of a page: plotly or circuitsvis."""


def browser_path() -> str | None:
    """The browser that draws static pictures; None where the machine has none.

    `BROWSER_PATH` comes first: a value that names no program, such as `none`, hides the browsers of
    the machine. Without it kaleido searches for Chrome, Chromium and their relatives.
    """
    if name := os.environ.get("BROWSER_PATH"):
        return shutil.which(name)
    from choreographer.browsers.chromium import Chromium

    return Chromium.find_browser(skip_local=False)


class ExportError(RuntimeError):
    """A picture could not be drawn; the HTML beside it could. The message is one line."""


def save(
    figure: Figure,
    stem: Path,
    *,
    formats: tuple[str, ...] = _PICTURES,
    title: str = "",
    notes: Sequence[str] = (),
    page_text: str = "",
    seconds: Number = 120.0,
) -> list[Path]:
    """Write `stem`.html, then the static `formats`; the paths written, in that order.

    The HTML opens without a network. It reads `plotly.js`, which the pages of its folder share and
    which is written beside it: copy both. Pictures of an earlier drawing are removed first, so that
    none stands beside numbers that it does not show.

    Args:
        title: plain text above the figure in the HTML.
        notes: plain text below the figure in the HTML, in place of the figure's small print.
        page_text: the HTML, if it is not to be a page of the figure alone. If the file has this
            text already, newer pictures beside it show the same, and are not drawn again.
        seconds: limit for the static formats together; a browser that hangs is stopped then.

    Raises:
        ExportError: no browser, or it failed or took too long. The HTML is written by then.
        OSError: the HTML cannot be written; the files of an earlier drawing stay.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    page = stem.with_name(stem.name + ".html")
    paths = [page, *(stem.with_name(f"{stem.name}.{suffix}") for suffix in formats)]
    if _are_written(paths, page_text):
        write_libraries(page.parent, page_text)
        return paths
    partial = partial_of(page)
    try:
        text = page_text or _page(figure, stem.name, title, notes)
        partial.write_text(text, encoding="utf-8")
        partial.replace(page)
        write_libraries(page.parent, text)
    finally:
        partial.unlink(missing_ok=True)
    for suffix in _PICTURES:
        stem.with_name(f"{stem.name}.{suffix}").unlink(missing_ok=True)
    if paths[1:]:
        save_pictures(dict.fromkeys(paths[1:], figure), seconds=seconds)
    return paths


def _are_written(paths: Sequence[Path], text: str) -> bool:
    """Whether a page has this text, and pictures beside it were drawn after it."""
    if not all(path.is_file() for path in paths) or paths[0].read_text(encoding="utf-8") != text:
        return False
    return all(path.stat().st_mtime_ns >= paths[0].stat().st_mtime_ns for path in paths)


@cache
def library(name: str) -> str:
    """The JavaScript of plotly or circuitsvis, fit for a classic `<script>`."""
    if name == "plotly":
        text = plotly().offline.get_plotlyjs()
    else:
        try:
            import circuitsvis
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "expected circuitsvis, which shows attention patterns, found none installed; "
                "install the extra: pip install 'arith-lens[drawing]'"
            ) from error

        path = Path(circuitsvis.__file__).parent / "dist" / "cdn" / "iife.js"
        text = path.read_text(encoding="utf-8").partition("//# sourceMappingURL")[0]
    return text.replace("</script", "<\\/script")


def compressed(text: str) -> str:
    """Text as base64 of compressed text: `shell.js` unpacks it."""
    return b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


@cache
def packed_library(name: str) -> str:
    """A library, compressed to a third of its size."""
    return compressed(library(name))


def write_libraries(folder: Path, page: str) -> None:
    """Write the libraries that a page reads from its folder, if they are not there."""
    for name in {*re.findall(r'"(plotly|circuitsvis)\.js"', page)}:
        file = folder / f"{name}.js"
        version = f"/*{len(library(name))}*/"
        if not (file.exists() and file.read_text(encoding="utf-8").endswith(version)):
            text = f'(window.ArithLensBundles??={{}}).{name}="{packed_library(name)}";{version}'
            file.write_text(text, encoding="utf-8")


def chart_html(
    name: str, title: str, figure: Figure, redraw: Callable[[], Figure] | None = None
) -> str:
    """A figure for a page: `shell.js` draws it. Its small print stands in the page.

    Args:
        redraw: draws it again, for a phone, where its panels stand one below the other.
    """
    drawn = {"data": (figure := without_notes(figure))}
    if redraw is not None:
        with drawn_for("phone"):
            drawn["narrow"] = without_notes(redraw())
    texts = {kind: json.dumps(json.loads(str(one.to_json()))) for kind, one in drawn.items()}
    texts["dark"] = json.dumps(_dark_colours("".join(texts.values())))
    figures = {kind: compressed(text) for kind, text in texts.items()}
    width, height = round(figure.layout.width), round(figure.layout.height)
    size = {"width": width, "height": height, "print": f"{min(1.0, PRINTED / width):.3f}"}
    return render(shell_file("chart.html.j2"), name=name, title=title, figures=figures, **size)


def _dark_colours(text: str) -> dict[str, str]:
    """What stands in the dark for each colour of a figure's JSON."""
    pairs = {one: in_the_dark(one) for one in re.findall(r"#[0-9a-f]{6}\b", text)}
    for start, red, green, blue in re.findall(r"(rgba\((\d+),(\d+),(\d+),)", text):
        ink = in_the_dark(f"#{int(red):02x}{int(green):02x}{int(blue):02x}")
        pairs[start] = "rgba({},{},{},".format(*bytes.fromhex(ink[1:]))
    return pairs | {'"white"': f'"{in_the_dark("#ffffff")}"'}


def _page(figure: Figure, name: str, title: str, notes: Sequence[str]) -> str:
    """A page with one figure; plotly's script lies beside it."""
    body = chart_html(name, title or name, figure)
    return document(
        title or name, body, notes=notes, head=FROM_FOLDER.format("plotly"), heading=bool(title)
    )


def as_rectangles(figure: Figure) -> Figure:
    """The figure of `panels` for SVG and PDF, where a heat map would be a bitmap.

    Each cell that has a number is a bar, slightly larger than the cell to hide seams. Colours are
    given by name. For numbers on a colour axis, plotly.js would warn once per bar, which takes
    minutes for the cells of a large model. A figure without such maps is returned as it is.
    """

    def on_axis(trace: Any) -> bool:
        return trace.type == "heatmap" and trace.coloraxis is not None

    if not any(map(on_axis, figure.data)):
        return figure
    drawn = plotly().graph_objects.Figure(layout=figure.layout)
    bear_colours(drawn)
    for trace in figure.data:
        if not on_axis(trace):
            drawn.add_trace(trace)
            continue
        step, end = trace.dx or 1, figure.layout.coloraxis.cmax
        rows, columns = np.nonzero(np.isfinite(trace.z))
        colours = [rooted_colour_at(value, end) for value in trace.z[rows, columns].tolist()]
        drawn.add_bar(
            x=(trace.x0 or 0) + step * columns,
            base=rows - 0.52,
            y=np.full(rows.size, 1.04),
            width=step * 1.04,
            marker={"color": colours, "line": {"width": 0}},
            xaxis=trace.xaxis,
            yaxis=trace.yaxis,
        )
    return drawn


def save_pictures(pictures: Mapping[Path, Figure], *, seconds: Number = 120.0) -> None:
    """Draw PNG, SVG and PDF files, many of them with one browser; equal figures give equal files.

    Within `drawn_for` a column or a page they have its size on paper, and PNG 300 dots to the inch.

    They are drawn in a process of its own, so that a hung browser can be stopped with it.

    Args:
        pictures: what goes where; the file's ending says as what.
        seconds: limit for all together.

    Raises:
        ExportError: no browser, or it failed or took too long.
    """
    printed = is_printed()
    scales = {".png": PRINT_DOTS / PER_INCH if printed else 2}
    if printed:  # a PDF has 96 pixels to the inch
        scales[".pdf"] = 96 / PER_INCH
    jobs = [
        {
            "path": str(path),
            "partial": str(partial_of(path)),
            "figure": (figure if path.suffix == ".png" else as_rectangles(figure)).to_json(),
            "scale": scales.get(path.suffix, 1),
            "inches": printed,
        }
        for path, figure in pictures.items()
    ]
    worker = subprocess.Popen(
        [sys.executable, *_RENDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, complaint = worker.communicate(json.dumps(jobs), timeout=seconds)
    except subprocess.TimeoutExpired:
        raise ExportError(
            f"static pictures skipped: expected them within {seconds:g} s, found the browser still "
            "at work; allow more seconds="
        ) from None
    finally:
        _stop(worker)
        for path in pictures:  # of a worker that was stopped on the way
            partial_of(path).unlink(missing_ok=True)
    if worker.returncode != 0:
        lines = complaint.strip().splitlines()[-1:]
        last = lines or [f"the exit status {worker.returncode}"]
        raise ExportError(
            f"static pictures skipped: expected a browser that draws, found {last[0]}; HTML needs "
            "none"
        )


def partial_of(path: Path) -> Path:
    """What a file is called while this process writes it, and no other."""
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


def _stop(worker: subprocess.Popen[str]) -> None:
    """End the worker and the browser it started, if any is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(worker.pid, signal.SIGKILL)
        elif worker.poll() is None:
            worker.kill()
    worker.communicate()


def draw_jobs() -> None:
    """Draw the figures given as JSON on standard input, all with one browser.

    Each file appears completely or not at all. Without a browser, exit with one line on standard
    error.
    """
    from plotly import io

    jobs = json.load(sys.stdin)
    paths = [Path(job["path"]) for job in jobs]
    partials = [Path(job["partial"]) for job in jobs]
    try:
        browser = browser_path()
        if browser is None:
            raise RuntimeError("neither Chrome nor Chromium (install one, or set BROWSER_PATH)")
        os.environ["BROWSER_PATH"] = browser
        figures: list[Any] = [io.from_json(job["figure"]) for job in jobs]
        io.write_images(
            figures,
            list[str | Path](partials),
            format=[path.suffix[1:] for path in paths],
            scale=[job["scale"] for job in jobs],
            width=[figure.layout.width for figure in figures],  # the layout's own is not asked
            height=[figure.layout.height for figure in figures],
        )
        for partial, path, job in zip(partials, paths, jobs, strict=True):
            if path.suffix == ".svg":
                svg = _settled(partial.read_text(encoding="utf-8"))
                partial.write_bytes((_in_inches(svg) if job["inches"] else svg).encode())
            partial.replace(path)
    except (ImportError, RuntimeError, OSError, ValueError) as error:
        sys.exit(_in_one_line(error))
    finally:
        for partial in partials:
            partial.unlink(missing_ok=True)


def _settled(svg: str) -> str:
    """The same picture with its parts named in their order: plotly names them at random, and equal
    figures are to give equal files."""
    uids = re.findall(r'(?:id="defs-|\btrace)([0-9a-f]{6})\b', svg)
    for number, uid in enumerate(dict.fromkeys(uids)):
        svg = re.sub(rf"(defs-|clip|trace|[\"#]g){uid}", rf"\g<1>{number:06}", svg)
    return svg


def _in_inches(svg: str) -> str:
    """The same picture with its size on paper."""
    head, end, rest = svg.partition(">")
    head = re.sub(
        r'\b(width|height)="([\d.]+)"',
        lambda size: f'{size[1]}="{float(size[2]) / PER_INCH:.4g}in"',
        head,
    )
    return head + end + rest


def _in_one_line(error: Exception) -> str:
    if isinstance(error, ImportError) or "Kaleido package" in str(error):
        return "kaleido is not installed (pip install kaleido)"
    return " ".join(str(error).split())[:300] or type(error).__name__
