"""Trails show each setting where its two numbers put it, the chosen one as a ring."""

import numpy as np
import pytest

from arith_lens import plotting

RATES = ("0.001", "0.01", "<s>")


def trail(name: str = "full", **more) -> plotting.Trail:
    return plotting.Trail(
        np.array([-1.0, -5.0, -60.0]), np.array([2.0, 9.0, -3.0]), RATES, name, **more
    )


def draw(*trails: plotting.Trail, x_range=(-65, 5)):
    panel = plotting.TrailPanel("all", trails, x_range, (-5, 12))
    return plotting.trail_panels([panel], x_title="lost", y_title="gained")


def pixels(figure, text: str) -> tuple[float, float]:
    (note,) = [note for note in figure.layout.annotations if note.text == text]
    return note.x * figure.layout.width, (1 - note.y) * figure.layout.height


def test_settings_stand_at_their_numbers_and_the_chosen_one_is_a_ring() -> None:
    figure = draw(trail(chosen=1, further=np.array([[-4.0, 8.0]])))
    further, line = figure.data
    assert list(line.x) == [-1, -5, -60] and list(line.y) == [2, 9, -3]
    assert list(further.x) == [-4] and list(further.y) == [8]
    assert [colour == "white" for colour in line.marker.color] == [False, True, False]
    assert line.marker.size[1] > line.marker.size[0]
    assert line.customdata[2] == "&lt;s&gt;"


def test_each_label_is_beside_its_point_and_none_outside_the_chart() -> None:
    figure = draw(trail(), x_range=(-30, 5))
    texts = [note.text for note in figure.layout.annotations]
    assert "0.01" in texts and "&lt;s&gt;" not in texts
    (low, high), (left, right) = figure.layout.xaxis.range, figure.layout.xaxis.domain
    at = (left + (-5 - low) / (high - low) * (right - left)) * figure.layout.width
    assert abs(pixels(figure, "0.01")[0] - at) < 40


def test_each_trail_is_named_right_of_the_chart_in_its_colour() -> None:
    figure = draw(trail("full", colour="#123456"), trail("LoRA", colour="#654321"))
    edge = figure.layout.xaxis.domain[1] * figure.layout.width
    for name, colour in (("full", "#123456"), ("LoRA", "#654321")):
        (note,) = [note for note in figure.layout.annotations if note.text == name]
        assert note.font.color == colour
        assert pixels(figure, name)[0] > edge
    assert pixels(figure, "LoRA")[1] - pixels(figure, "full")[1] > 15


def test_a_trail_without_a_label_for_each_setting_is_refused() -> None:
    broken = plotting.Trail(np.zeros(2), np.zeros(2), RATES, "full")
    with pytest.raises(ValueError, match="one number of settings"):
        draw(broken)
    with pytest.raises(ValueError, match="a chosen one among them"):
        draw(trail(chosen=3))


def test_a_chart_leaves_labels_to_another_that_shows_the_same_points() -> None:
    parts = [
        plotting.TrailPanel("all", (trail(),), (-65, 5), (-5, 12), unlabelled=(-30, 5)),
        plotting.TrailPanel("near", (trail(),), (-30, 5), (-5, 12)),
    ]
    figure = plotting.trail_panels(parts, x_title="lost", y_title="gained")
    texts = [note.text for note in figure.layout.annotations]
    assert all(texts.count(label) == 1 for label in ("0.001", "0.01", "&lt;s&gt;"))
    assert pixels(figure, "&lt;s&gt;")[0] < pixels(figure, "0.01")[0]


def test_a_label_keeps_off_lines_and_small_points() -> None:
    right = plotting.Trail(np.array([-20.0, 0]), np.array([5.0, 5]), ("here", ""), "a")
    beside = plotting.Trail(np.array([-10.0]), np.array([0.0]), ("there",), "b",
                            further=np.array([[-8.0, 0.0]]))  # fmt: skip
    figure = draw(right, beside, x_range=(-30, 5))
    left, right_end = figure.layout.xaxis.domain
    bottom, top = figure.layout.yaxis.domain
    for text, x, y in (("here", -20, 5), ("there", -10, 0)):
        across = (left + (x + 30) / 35 * (right_end - left)) * figure.layout.width
        down = (1 - bottom - (y + 5) / 17 * (top - bottom)) * figure.layout.height
        at = pixels(figure, text)
        assert at[0] < across or abs(at[1] - down) > 8, "right of it would be upon them"
