"""One dictionary of colours by meaning: any two differ for every reader, nothing else is used."""

import gzip
import json
import re
from base64 import b64decode
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from arith_lens import plotting
from arith_lens.plotting.export import chart_html
from arith_lens.plotting.markup import shell_style
from arith_lens.plotting.style import (
    GREYS,
    INKS,
    colour_at,
    in_the_dark,
    ink_on,
    palette,
    plotly,
    tint,
    translucent,
)

ROOT = Path(__file__).parents[2]
MEANINGS = ("helps", "hinders", "operand", "operator", "answer", "verdict", "control")
SIGHT = {
    "normal": np.eye(3),
    # Machado, Oliveira, Fernandes 2009: deuteranopia, for linear RGB
    "deutan": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
PAGES = ("#ffffff", "#15181e")
"""What pictures stand on: white, and the dark page."""


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(colour: str, sight: str) -> np.ndarray:
    """CIELAB under D65, as an eye sees it."""
    xyz = TO_XYZ @ np.clip(SIGHT[sight] @ linear(colour), 0, 1) / np.array([0.95047, 1, 1.08883])
    x, y, z = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def difference(one: str, other: str, sight: str) -> float:
    return float(np.linalg.norm(lab(one, sight) - lab(other, sight)))


def contrast(one: str, other: str) -> float:
    """The contrast of WCAG 2."""
    low, high = sorted(float(TO_XYZ[1] @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def test_the_formulas_give_published_values() -> None:
    assert lab("#ff0000", "normal") == pytest.approx([53.24, 80.09, 67.20], abs=0.02)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert difference("#c72f2a", "#c2410c", "deutan") < 12, "red and rust are one colour to many"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("sight", SIGHT)
def test_any_two_meanings_differ_for_normal_and_red_green_blind_eyes(
    sight: str, dark: bool
) -> None:
    assert tuple(INKS) == MEANINGS
    near = {
        (one, other): round(difference(INKS[one][dark], INKS[other][dark], sight), 1)
        for one, other in combinations(MEANINGS, 2)
        if difference(INKS[one][dark], INKS[other][dark], sight) < 20
    }
    assert near == {}


@pytest.mark.parametrize("dark", [False, True])
def test_each_ink_can_be_read_as_text_the_control_too(dark: bool) -> None:
    assert [one for one in MEANINGS if contrast(INKS[one][dark], PAGES[dark]) < 4.5] == []


def test_a_style_sheet_has_the_inks_of_its_theme() -> None:
    assert f"--helps: {INKS['helps'][0]};" in palette(".page")
    assert f"--helps: {INKS['helps'][1]};" in palette(".page", dark=True)


def test_each_colour_has_its_own_in_the_dark_and_a_scale_ends_at_the_same_meaning() -> None:
    for light, dark in [*INKS.values(), *GREYS.values()]:
        assert in_the_dark(light) == dark
    for end, meaning in ((-1, "helps"), (1, "hinders")):
        assert in_the_dark(colour_at(end, 1)) == INKS[meaning][1]
        sizes = [contrast(in_the_dark(colour_at(end * i / 8, 1)), PAGES[1]) for i in range(9)]
        assert sizes == sorted(sizes) and sizes[0] < 1.01 < 4.5 < sizes[-1]
    assert in_the_dark("#00ff00") == "#00ff00", "no picture has it"


@pytest.mark.parametrize("dark", [False, True])
def test_text_on_any_fill_can_be_read(dark: bool) -> None:
    shares = np.linspace(0, 1, 41).tolist()
    fills = [tint(ink, share) for ink, _ in INKS.values() for share in shares]
    fills += [colour_at(sign * share, 1) for sign in (-1, 1) for share in shares]
    pairs = [(fill, ink_on(fill)) for fill in fills]
    if dark:
        pairs = [(in_the_dark(fill), in_the_dark(ink)) for fill, ink in pairs]
    assert min(contrast(*pair) for pair in pairs) >= 4.5


def test_a_chart_has_its_colours_on_white_and_those_of_the_dark() -> None:
    figure = plotly().graph_objects.Figure(layout={"width": 90, "height": 90})
    band = translucent(INKS["answer"][0], 0.2)
    figure.add_scatter(y=[1], fillcolor=band, line={"color": INKS["helps"][0]})
    figure.update_layout(paper_bgcolor="white")
    packed = re.findall(r'id="x-chart-(\w+)">(.*?)</script>', chart_html("x", "", figure))
    data, dark = (json.loads(gzip.decompress(b64decode(text))) for _, text in packed)
    assert [kind for kind, _ in packed] == ["data", "dark"] and data["data"][0]["fillcolor"] == band
    assert dark[INKS["helps"][0]] == INKS["helps"][1] and dark['"white"'] == f'"{PAGES[True]}"'
    assert dark["rgba(76,21,136,"] == "rgba(207,176,255,"
    assert f"--page: {PAGES[True]}" in shell_style()


LEFT_OUT = ("arith_lens/plotting/style.py",)
SOURCES = [
    *(ROOT / "arith_lens").rglob("*.py"),
    *(ROOT / "figures").rglob("*.py"),
    *(ROOT / "notebooks").glob("*.py"),
    *(
        path
        for kind in ("css", "js", "j2", "jinja")
        for path in (ROOT / "figures").glob(f"*.{kind}")
    ),
    *(path for kind in ("css", "js") for path in (ROOT / "arith_lens").rglob(f"*.{kind}")),
]
OF_THE_PAGE = re.compile(r"--(?:link|error): #[0-9a-f]{6}")
"""Links and errors are the page's, not the picture's."""


def hues(text: str) -> list[str]:
    """The colours of a text that are no grey."""
    colours = re.findall(r"#[0-9a-fA-F]{6}\b", OF_THE_PAGE.sub("", text))
    parts = {one: [int(one[i : i + 2], 16) for i in (1, 3, 5)] for one in colours}
    return [one for one, rgb in parts.items() if max(rgb) - min(rgb) > 40]


def test_pictures_views_pages_and_notebooks_ask_for_a_meaning_and_not_for_a_hue() -> None:
    assert hues("red = '#c72f2a'; grey = '#6b7280'") == ["#c72f2a"]
    own = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in SOURCES}
    assert len(own) > 150
    found = {name: hues(text) for name, text in own.items() if name not in LEFT_OUT}
    assert {name: some for name, some in found.items() if some} == {}


def test_the_library_offers_no_colour_without_a_meaning() -> None:
    names = {name for name, value in vars(plotting).items() if str(value).startswith("#")}
    assert names == {"NOTE", "PALE"}, "greys of text and areas"
