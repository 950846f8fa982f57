"""Smaller PNG files: the colours of a picture are reduced to a palette.

A chart has few colours, and text adds many mixed ones at its edges. With a palette of 256 colours a
file is about half as large, and a reader sees no difference.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8

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
        left, above, corner = (
            pixels[row + 1, column],
            pixels[row, column + 1],
            pixels[row, column],
        )
        kind = filters[row][:, None]
        guess = np.select(
            [kind == 0, kind == 1, kind == 2, kind == 3],
            [np.zeros_like(left), left, above, (left + above) >> 1],
            _paeth(left, above, corner),
        )
        pixels[row + 1, column + 1] = (filtered[row, column] + guess) & 255
    return pixels[1:, 1:].astype(np.uint8)


def _paeth(left: np.ndarray, above: np.ndarray, corner: np.ndarray) -> np.ndarray:
    """The neighbour next to left + above - corner; equal distances are decided in this order."""
    guess = left + above - corner
    to_left, to_above, to_corner = (abs(guess - pixel) for pixel in (left, above, corner))
    first = (to_left <= to_above) & (to_left <= to_corner)
    return np.where(first, left, np.where(to_above <= to_corner, above, corner))


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
    return _most_frequent(colours, counts, cluster)


def _most_frequent(
    colours: UInt8[np.ndarray, "colour channel"],
    counts: Int[np.ndarray, " colour"],
    cluster: Int[np.ndarray, " colour"],
) -> UInt8[np.ndarray, "entry channel"]:
    """The most frequent colour of each cluster, so that areas keep their exact colours."""
    order = np.lexsort((-counts, cluster))
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
