"""Figures to files: HTML that opens offline, and PNG, SVG, PDF where a browser can draw them.

`save_pictures` draws in a process of its own, which can be stopped together with its browser. A
chart has few colours, and text adds many mixed ones at its edges. With a palette of 256 colours
(`reduce_colours`) a PNG file is about half as large, and a reader sees no difference.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from arith_lens.plotting.markup import render
from arith_lens.plotting.page import bear_colours
from arith_lens.plotting.style import FONT, TEXT, Figure, Number, colour_at, plotly

_RENDER = ["-c", "from arith_lens.plotting.export import draw_jobs; draw_jobs()"]
_PICTURES = ("png", "svg", "pdf")


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
    seconds: Number = 120.0,
) -> list[Path]:
    """Write `stem`.html, then the static `formats`; the paths written, in that order.

    The HTML carries plotly's script itself: it opens anywhere, without a network. Pictures of an
    earlier drawing are removed first, so that none stands beside numbers that it does not show.

    Args:
        title: plain text above the figure in the HTML.
        seconds: limit for the static formats together; a browser that hangs is stopped then.

    Raises:
        ExportError: no browser, or it failed or took too long. The HTML is written by then.
        OSError: the disk refuses the HTML; the files of an earlier drawing stay.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    page = stem.with_name(stem.name + ".html")
    partial = partial_of(page)
    try:
        partial.write_text(_page(figure, stem.name, title), encoding="utf-8")
        partial.replace(page)
    finally:
        partial.unlink(missing_ok=True)
    for suffix in _PICTURES:
        stem.with_name(f"{stem.name}.{suffix}").unlink(missing_ok=True)
    pictures = {
        stem.with_name(f"{stem.name}.{suffix}"): (
            figure if suffix == "png" else as_rectangles(figure)
        )
        for suffix in formats
    }
    if pictures:
        save_pictures(pictures, seconds=seconds)
    return [page, *pictures]


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title or name }}</title>
<style>
body { font: 15px/1.4 {{ font|safe }}; color: {{ colour }}; margin: 20px }
h1 { font-size: 18px; margin: 0 0 10px }
.box { overflow-x:auto; max-width:100% } /* what is wider than the window scrolls in its box */
</style></head>
<body>{% if title %}<h1>{{ title }}</h1>{% endif %}
<div class="box">{{ body|safe }}</div></body></html>
"""


def _page(figure: Figure, name: str, title: str) -> str:
    """A page with one figure and all that it needs."""
    body = figure.to_html(
        full_html=False, include_plotlyjs=True, config={"displaylogo": False}, div_id=name
    )
    return render(_PAGE, title=title, name=name, font=FONT, colour=TEXT, body=body)


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
        colours = [colour_at(value, end) for value in trace.z[rows, columns].tolist()]
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


def save_pictures(
    pictures: Mapping[Path, Figure], *, scale: Number = 2, seconds: Number = 120.0
) -> None:
    """Draw PNG, SVG and PDF files, many of them with one browser; equal figures give equal files.

    They are drawn in a process of its own, so that a hung browser can be stopped with it.

    Args:
        pictures: what goes where; the file's ending says as what.
        scale: dots a pixel in PNG.
        seconds: limit for all together.

    Raises:
        ExportError: no browser, or it failed or took too long.
    """
    jobs = [
        {"path": str(path), "figure": figure.to_json(), "scale": scale}
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
            f"static pictures skipped: the browser did not finish in {seconds:g} s"
        ) from None
    finally:
        _stop(worker)
        for path in pictures:  # of a worker that was stopped on the way
            partial_of(path).unlink(missing_ok=True)
    if worker.returncode != 0:
        lines = complaint.strip().splitlines()[-1:]
        last = lines or [f"the browser's process ended with {worker.returncode}"]
        raise ExportError(f"static pictures skipped: {last[0]}")


def partial_of(path: Path) -> Path:
    """What a file is called while it is being written."""
    return path.with_name(path.name + ".partial")


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
    partials = [partial_of(path) for path in paths]
    try:
        browser = browser_path()
        if browser is None:
            raise RuntimeError("no Chrome or Chromium found (install one, or set BROWSER_PATH)")
        os.environ["BROWSER_PATH"] = browser
        figures: list[Any] = [io.from_json(job["figure"]) for job in jobs]
        io.write_images(
            figures,
            list[str | Path](partials),
            format=[path.suffix[1:] for path in paths],
            scale=[
                job["scale"] if path.suffix == ".png" else 1
                for job, path in zip(jobs, paths, strict=True)
            ],
            width=[figure.layout.width for figure in figures],  # the layout's own is not asked
            height=[figure.layout.height for figure in figures],
        )
        for partial, path in zip(partials, paths, strict=True):
            if path.suffix == ".svg":
                partial.write_bytes(_settled(partial.read_text(encoding="utf-8")).encode())
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


def _in_one_line(error: Exception) -> str:
    if isinstance(error, ImportError) or "Kaleido package" in str(error):
        return "kaleido is not installed (pip install kaleido)"
    return " ".join(str(error).split())[:300] or type(error).__name__


_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {2: 3, 6: 4}
"""The channels of a pixel, by the colour type of the file."""
_SLICE = 4096
"""Colours that are compared with the palette at a time."""
_ROUNDS = 2
PALETTE_SHARE = 0.8
"""The share of a palette that the most frequent colours have."""


def reduce_colours(path: Path, n_colours: int = 256) -> None:
    """Write the PNG file again with a palette. A file that is small already stays as it is.

    Args:
        path: a file with 8 bits per channel, without interlacing, such as browsers write.
        n_colours: the largest number of colours, at most 256.

    Raises:
        ValueError: the file is not such a PNG file, or has transparent pixels.
    """
    data = path.read_bytes()
    if _header(data)[3] == 3:
        return
    pixels = read_png(data)
    codes = pixels.astype(np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)
    values, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    colours = np.stack([values >> 16, values >> 8 & 255, values & 255], axis=-1).astype(np.uint8)
    palette = colours
    nearest = np.arange(len(colours))
    if len(colours) > n_colours:
        palette, nearest = _palette(colours, counts, n_colours)
    smaller = _palette_png(nearest[inverse.reshape(codes.shape)], palette)
    if len(smaller) < len(data):
        path.write_bytes(smaller)


def read_png(data: bytes) -> UInt8[np.ndarray, "row column channel=3"]:
    """The pixels of a PNG file without a palette.

    Raises:
        ValueError: as in `reduce_colours`.
    """
    width, height, depth, kind, interlaced = _header(data)
    if depth != 8 or kind not in _CHANNELS or interlaced:
        raise ValueError(
            f"expected a PNG file with 8 bits per channel, in RGB or RGBA, without interlacing, "
            f"found {depth} bits, colour type {kind}, interlacing {interlaced}; draw it again"
        )
    packed = b"".join(body for name, body in _chunks(data) if name == b"IDAT")
    channels = _CHANNELS[kind]
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    pixels = _unfiltered(rows[:, 1:].reshape(height, width, channels), rows[:, 0])
    if channels == 4 and (pixels[..., 3] != 255).any():
        raise ValueError("expected a picture without transparent pixels, found some; draw it again")
    return pixels[..., :3]


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not data.startswith(_SIGNATURE):
        raise ValueError(f"expected a PNG file, found {data[:8]!r}; draw it again")
    at = len(_SIGNATURE)
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += 12 + length


def _header(data: bytes) -> tuple[int, int, int, int, int]:
    """Width, height, bits per channel, colour type, interlacing."""
    _, body = next(_chunks(data))
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", body)
    return width, height, depth, kind, interlaced


def _unfiltered(
    filtered: UInt8[np.ndarray, "row column channel"], filters: UInt8[np.ndarray, " row"]
) -> UInt8[np.ndarray, "row column channel"]:
    """Undo the filters of the rows, all pixels of an antidiagonal at a time.

    A filter needs the pixels on the left, above, and above on the left. These are of earlier
    antidiagonals.
    """
    height, width, channels = filtered.shape
    pixels = np.zeros((height + 1, width + 1, channels), np.int16)
    for diagonal in range(height + width - 1):
        row = np.arange(max(0, diagonal - width + 1), min(height, diagonal + 1))
        column = diagonal - row
        left, above = pixels[row + 1, column], pixels[row, column + 1]
        corner = pixels[row, column]
        neighbours = np.stack([left, above, corner])
        nearest = np.abs(left + above - corner - neighbours).argmin(0, keepdims=True)
        guesses = np.stack([
            np.zeros_like(left),
            left,
            above,
            (left + above) >> 1,
            np.take_along_axis(neighbours, nearest, 0)[0],  # equal distances: in this order
        ])  # fmt: skip
        guess = guesses[filters[row], np.arange(len(row))]
        pixels[row + 1, column + 1] = (filtered[row, column] + guess) & 255
    return pixels[1:, 1:].astype(np.uint8)


def _palette(
    colours: UInt8[np.ndarray, "colour channel"],
    counts: Int[np.ndarray, " colour"],
    n_colours: int,
) -> tuple[UInt8[np.ndarray, "entry channel"], Int[np.ndarray, " colour"]]:
    """The palette, and the entry of each colour.

    Most entries are the most frequent colours, which are those of areas. The others are clusters of
    the rest, the mixed colours at the edges of texts: each is a colour that occurs.
    """
    n_exact = round(PALETTE_SHARE * n_colours)
    order = np.argsort(-counts, kind="stable")
    exact, rest = order[:n_exact], order[n_exact:]
    mixed = _clustered(colours[rest], counts[rest], n_colours - n_exact)
    palette = np.concatenate([colours[exact], mixed])
    return palette, _nearest(colours, palette)


def _clustered(
    colours: UInt8[np.ndarray, "colour channel"], counts: Int[np.ndarray, " colour"], n: int
) -> UInt8[np.ndarray, "entry channel"]:
    """The most frequent colours of n clusters by k-means, from a grid with few enough cells."""
    step = next(s for s in range(2, 257) if len(np.unique(colours // s, axis=0)) <= n or s == 256)
    _, cluster = np.unique(colours // step, axis=0, return_inverse=True)
    weights = np.sqrt(counts)
    for _ in range(_ROUNDS):
        sums = np.stack([np.bincount(cluster, weights * v) for v in colours.T], axis=-1)
        means = sums / np.bincount(cluster, weights)[:, None]
        cluster = np.unique(_nearest(colours, means), return_inverse=True)[1]
    order = np.lexsort((-counts, cluster))  # so that areas keep their exact colours
    return colours[order[np.unique(cluster[order], return_index=True)[1]]]


def _nearest(colours: np.ndarray, palette: np.ndarray) -> Int[np.ndarray, " colour"]:
    """The entry next to each colour."""
    values, entries = colours.astype(np.float32), palette.astype(np.float32)
    parts = [
        ((values[at : at + _SLICE, None] - entries[None]) ** 2).sum(-1).argmin(1)
        for at in range(0, len(values), _SLICE)
    ]
    return np.concatenate(parts)


def _palette_png(
    indices: Int[np.ndarray, "row column"], palette: UInt8[np.ndarray, "entry channel"]
) -> bytes:
    height, width = indices.shape
    rows = np.zeros((height, width + 1), np.uint8)  # each row begins with its filter, none
    rows[:, 1:] = indices
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette.tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )
