"""Trails show each setting where its two numbers put it, with its interval and its label."""

import numpy as np
import pytest

from arith_lens import plotting
from arith_lens.plotting.labels import Box

RATES = ("0.001", "0.01", "<s>")


def trail(name: str = "full", **more) -> plotting.Trail:
    return plotting.Trail(
        np.array([-1.0, -25.0, -64.0]), np.array([2.0, 9.0, -3.0]), RATES, name, **more
    )


def draw(*trails: plotting.Trail, **more):
    return plotting.trail_chart(trails, x_title="lost", y_title="gained", **more)


def pixels(figure, text: str) -> tuple[float, float]:
    (note,) = [note for note in figure.layout.annotations if note.text == text]
    return note.x * figure.layout.width, (1 - note.y) * figure.layout.height


def pixel_position(figure, x: float, y: float) -> tuple[float, float]:
    """The pixels of a point, from the axes."""
    ends = (figure.layout.xaxis, x), (figure.layout.yaxis, y)
    across, up = (
        a.domain[0] + (v - a.range[0]) / (a.range[1] - a.range[0]) * (a.domain[1] - a.domain[0])
        for a, v in ends
    )
    return across * figure.layout.width, (1 - up) * figure.layout.height


def test_settings_stand_at_their_numbers_with_their_marks() -> None:
    (line,) = draw(trail(marks=("pale", "ring", "square"))).data
    assert list(line.x) == [-1, -25, -64] and list(line.y) == [2, 9, -3]
    assert list(line.marker.symbol) == ["circle", "circle", "square"]
    assert line.marker.size[1] > line.marker.size[0]
    assert line.customdata[2][0] == "&lt;s&gt;"


def test_the_root_scale_shows_small_and_large_numbers_together() -> None:
    figure = draw(trail(), root=True)
    assert list(figure.data[0].x) == [-1, -5, -8]
    assert [row[1] for row in figure.data[0].customdata] == [-1, -25, -64], (
        "the hover is not scaled"
    )
    ticks = dict(zip(figure.layout.xaxis.ticktext, figure.layout.xaxis.tickvals, strict=True))
    assert ticks["−25"] == -5 and ticks["0"] == 0 and "−100" not in ticks
    low, high = figure.layout.xaxis.range
    assert low < -8 and high > 0, "no point is cut"


def test_an_interval_is_a_line_and_a_setting_without_one_has_none() -> None:
    nothing = [np.nan, np.nan]
    ends = np.array([[-3.0, 1.0], nothing, nothing])
    interval, line = draw(trail(x_ends=ends)).data
    assert list(interval.x) == [-3, 1] and list(interval.y) == [2, 2]
    assert len(line.x) == 3


def test_each_trail_is_named_right_of_the_chart_in_its_colour() -> None:
    figure = draw(trail("full", colour="#123456"), trail("LoRA", colour="#654321"))
    edge = figure.layout.xaxis.domain[1] * figure.layout.width
    for name, colour in (("full", "#123456"), ("LoRA", "#654321")):
        (note,) = [note for note in figure.layout.annotations if note.text == name]
        assert note.font.color == colour
        assert pixels(figure, name)[0] > edge
    assert pixels(figure, "LoRA")[1] - pixels(figure, "full")[1] > 15


def test_a_trail_without_a_label_for_each_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="one number of settings"):
        draw(plotting.Trail(np.zeros(2), np.zeros(2), RATES, "full"))
    with pytest.raises(ValueError, match="one number of settings"):
        draw(trail(marks=("ring",)))


def test_labels_of_points_at_one_place_do_not_collide() -> None:
    """Eight settings at one point: each label has room, and a line leads to those far away."""
    names = tuple(f"rate {i}" for i in range(8))
    figure = draw(plotting.Trail(np.full(8, -20.0), np.full(8, 5.0), names, "a"), trail())
    boxes = [Box(x - 18, y - 6, x + 18, y + 6) for x, y in (pixels(figure, name) for name in names)]
    assert not any(a.overlap(b) for i, a in enumerate(boxes) for b in boxes[:i])
    x, y = pixel_position(figure, -20, 5)
    assert not any(box.overlap(Box(x - 2, y - 2, x + 2, y + 2)) for box in boxes)
    assert figure.layout.shapes, "lines to labels"


def test_a_label_keeps_off_lines_and_intervals() -> None:
    right = plotting.Trail(np.array([-20.0, 0]), np.array([5.0, 5]), ("here", ""), "a")
    ends = np.array([[-14.0, -6.0]])
    beside = plotting.Trail(np.array([-10.0]), np.array([0.0]), ("there",), "b", x_ends=ends)
    figure = draw(right, beside)
    for text, x, y in (("here", -20, 5), ("there", -10, 0)):
        (across, down), at = pixel_position(figure, x, y), pixels(figure, text)
        assert at[0] < across - 8 or abs(at[1] - down) > 8, "right of it would be upon them"
