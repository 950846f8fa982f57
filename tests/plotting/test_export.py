"""Smaller PNG files keep their pictures: against zlib alone, with filters that are written here."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from arith_lens.plotting.export import read_png, reduce_colours


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(pixels: np.ndarray, filters: list[int]) -> bytes:
    """A PNG file whose rows have these filters, pixel by pixel as the standard defines them."""
    height, width, channels = pixels.shape
    rows = []
    for y in range(height):
        row = [filters[y]]
        for x in range(width):
            for c in range(channels):
                left = int(pixels[y, x - 1, c]) if x else 0
                above = int(pixels[y - 1, x, c]) if y else 0
                corner = int(pixels[y - 1, x - 1, c]) if x and y else 0
                near = min((left, above, corner), key=lambda p: abs(left + above - corner - p))
                guess = (0, left, above, (left + above) // 2, near)[filters[y]]
                row.append((int(pixels[y, x, c]) - guess) % 256)
        rows.append(bytes(row))
    header = struct.pack(">IIBBBBB", width, height, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    body = zlib.compress(b"".join(rows))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (chunk(b"IHDR", header), chunk(b"IDAT", body), chunk(b"IEND", b""))
    )


def of_palette(data: bytes) -> np.ndarray:
    """The pixels of a file with a palette and without filters."""
    parts, at = {}, 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        parts[data[at + 4 : at + 8]] = data[at + 8 : at + 8 + length]
        at += 12 + length
    width, height, depth, kind = struct.unpack(">IIBB", parts[b"IHDR"][:10])
    assert (depth, kind) == (8, 3)
    rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, width + 1)
    return np.frombuffer(parts[b"PLTE"], np.uint8).reshape(-1, 3)[rows[:, 1:]]


@pytest.mark.parametrize("channels", [3, 4])
def test_every_filter_is_undone(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (10, 7, channels), dtype=np.uint8)
    if channels == 4:
        pixels[..., 3] = 255
    data = png(pixels, [0, 1, 2, 3, 4, 4, 3, 2, 1, 4])
    assert np.array_equal(read_png(data), pixels[..., :3])


def test_few_colours_stay_exactly_and_the_file_is_smaller(tmp_path: Path) -> None:
    pixels = np.full((40, 50, 3), 255, np.uint8)
    pixels[5:20, 5:30] = (139, 0, 21)
    file = tmp_path / "a.png"
    file.write_bytes(png(pixels, [4] * 40) + b"")
    before = file.stat().st_size
    reduce_colours(file)
    assert file.stat().st_size < before
    assert np.array_equal(of_palette(file.read_bytes()), pixels)
    smaller = file.read_bytes()
    reduce_colours(file)
    assert file.read_bytes() == smaller, "it is small already"


def test_many_colours_become_near_ones_and_areas_keep_theirs(tmp_path: Path) -> None:
    """Texts of six inks on white, with mixed colours at their edges, and an area."""
    inks = np.array([(31, 36, 48), (199, 47, 42), (33, 111, 202), (180, 83, 9), (109, 40, 217),
                     (15, 118, 110)])  # fmt: skip
    shares = np.linspace(0, 1, 80)[:, None, None]
    mixed = (255 - shares * (255 - inks)).round().astype(np.uint8).reshape(1, -1, 3)
    pixels = np.concatenate([mixed, np.full((40, 480, 3), (111, 200, 9), np.uint8), mixed])
    file = tmp_path / "a.png"
    file.write_bytes(png(pixels, [1] * 42))
    reduce_colours(file, 128)
    reduced = of_palette(file.read_bytes())
    assert len(np.unique(reduced.reshape(-1, 3), axis=0)) <= 128
    assert (reduced[1:-1] == (111, 200, 9)).all()
    distance = np.abs(reduced.astype(int) - pixels).max(-1)[[0, -1]]
    assert 0 < distance.mean() < 12 and distance.max() < 48


def test_other_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(b"GIF89a..")
    with pytest.raises(ValueError, match="expected a PNG file"):
        reduce_colours(file)
    clear = np.zeros((3, 3, 4), np.uint8)
    file.write_bytes(png(clear, [0, 0, 0]))
    with pytest.raises(ValueError, match="transparent"):
        reduce_colours(file)
