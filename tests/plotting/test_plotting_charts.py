"""Line charts show the numbers they are given, with every name beside what it names."""

from typing import Any

import numpy as np
import pytest

from arith_lens import plotting
from arith_lens.plotting.labels import Box, spread
from arith_lens.plotting.style import step_texts, steps


def line(height: float = 50, name: str = "a", n: int = 51, **more) -> plotting.Line:
    x = np.arange(n)
    y = np.full(n, float(height))
    return plotting.Line(x, y, name, low=y - 2, high=y + 2, **more)


def curves(*parts: plotting.CurvePanel, **more):
    return plotting.curve_panels(parts, x_title="heads", **more)


def texts(figure) -> list[str]:
    return [note.text for note in figure.layout.annotations]


def pixels(figure, text: str) -> tuple[float, float]:
    """Where an annotation stands, from the top left corner."""
    (note,) = [note for note in figure.layout.annotations if note.text == text]
    return note.x * figure.layout.width, (1 - note.y) * figure.layout.height


@pytest.mark.parametrize(
    ("ends", "found"),
    [
        ((0, 100), [0, 20, 40, 60, 80, 100]),
        ((0, 0.75), [0, 0.2, 0.4, 0.6]),
        ((-0.13, 0.31), [-0.1, 0, 0.1, 0.2, 0.3]),
        ((3, 3.4), [3, 3.1, 3.2, 3.3, 3.4]),
    ],
)
def test_axes_have_round_numbers(ends: tuple[float, float], found: list[float]) -> None:
    assert steps(*ends) == pytest.approx(found)


def test_the_unit_stands_at_the_top_of_the_axis_alone() -> None:
    assert step_texts([-0.5, 0.0, 0.5, 1.0], "%") == ["−0.5", "0", "0.5", "1.0%"]


def test_an_axis_from_high_to_low_is_refused() -> None:
    with pytest.raises(ValueError, match="found 1 to 1"):
        steps(1, 1)


def test_names_at_the_lines_ends_keep_apart_and_in_order() -> None:
    heights = spread([50, 52, 51, 200, 4], 16, 10, 220)
    assert list(np.argsort(heights)) == [4, 0, 2, 1, 3]
    assert np.diff(np.sort(heights)).min() >= 16 - 1e-9
    assert heights.min() >= 10
    assert heights.max() <= 220
    assert heights[[0, 1, 2]].mean() == pytest.approx(51), "all move by as little as they can"
    assert heights[3] == 200, "what does not clash stays"


def test_labels_pushed_from_one_end_push_their_neighbours() -> None:
    assert spread([100, 100, 90], 10, 0, 100) == pytest.approx([90, 100, 80])
    assert spread([0, 0, 15], 10, 0, 100) == pytest.approx([0, 10, 20])


def test_a_line_and_its_band_hold_the_numbers() -> None:
    given = line(40)
    band, drawn = curves(plotting.CurvePanel("A", (given,))).data
    assert np.array_equal(drawn.y, given.y)
    assert given.low is not None
    assert given.high is not None
    assert np.array_equal(band.y, np.concatenate([given.high, given.low[::-1]]))
    assert np.array_equal(band.x, np.concatenate([given.x, given.x[::-1]]))
    assert np.array_equal(drawn.customdata, np.stack([given.low, given.high], axis=-1))


def test_a_gap_splits_the_band() -> None:
    given = line(40)
    given.low[10] = np.nan  # pyright: ignore[reportOptionalSubscript]
    *bands, _ = curves(plotting.CurvePanel("A", (given,))).data
    assert [len(band.x) for band in bands] == [20, 80]


def test_every_line_is_named_right_of_the_chart_near_its_end() -> None:
    lines = (line(96, "one"), line(95, "two"), line(20, "three"))
    figure = curves(plotting.CurvePanel("A", lines, y_range=(0, 100)), panel=(380, 300))
    right = figure.layout.xaxis.domain[1] * figure.layout.width
    spots = [pixels(figure, name) for name in ("one", "two", "three")]
    assert all(right < x < figure.layout.width for x, _ in spots)
    heights = [y for _, y in spots]
    assert heights[0] + 15 <= heights[1] + 1e-6 < heights[2]
    top = (1 - figure.layout.yaxis.domain[1]) * figure.layout.height
    assert heights[2] == pytest.approx(top + 0.8 * 300, abs=2)


def test_a_name_moved_away_from_its_line_is_tied_to_it() -> None:
    near = curves(plotting.CurvePanel("A", (line(90, "one"), line(20, "two")), y_range=(0, 100)))
    clash = curves(plotting.CurvePanel("A", (line(20, "one"), line(20, "two")), y_range=(0, 100)))
    assert len(near.layout.shapes) == 0
    assert len(clash.layout.shapes) == 2


def test_the_longest_name_fits_on_the_page() -> None:
    name = "random heads of the same layers as the first thirteen"
    figure = curves(plotting.CurvePanel("A", (line(50, name),)))
    assert pixels(figure, name)[0] + 6.5 * len(name) <= figure.layout.width


def test_a_name_inside_a_chart_stands_beside_its_line_off_bands() -> None:
    x = np.arange(0.0, 51)
    early = plotting.Line(x[:20], 50 + 0 * x[:20], "greedy", label="")
    name = plotting.Point(19, "greedy", 1, is_name=True)
    heights = {}
    for low, high in ((52, 100), (0, 48)):
        band = plotting.Line(x, 76 + 0 * x, "a", low=low + 0 * x, high=high + 0 * x)
        figure = curves(plotting.CurvePanel("A", (band, early), (name,), y_range=(0, 100)))
        left, right = (end * figure.layout.width for end in figure.layout.xaxis.domain)
        across, down = pixels(figure, "greedy")
        assert left < across < left + 0.5 * (right - left), "beside its line"
        heights[high] = down - (1 - figure.layout.yaxis.domain[1]) * figure.layout.height - 145
    assert -25 < heights[48] < 0 < heights[100] < 25, "above one band and below the other"


def test_a_name_that_has_no_room_beside_its_line_has_a_leader() -> None:
    x = np.arange(0.0, 13)
    own, *others = (plotting.Line(x, y + 0 * x, f"{y}", label="") for y in (50, 44, 56))
    name, leaders, apart = plotting.Point(6, "strongest", is_name=True), [], []
    for lines in ([own], [own, *others]):
        figure = curves(plotting.CurvePanel("A", tuple(lines), (name,), y_range=(0, 100)))
        leaders.append(sum(shape.type == "line" for shape in figure.layout.shapes))
        ends = ((1 - end) * figure.layout.height for end in figure.layout.yaxis.domain)
        apart.append(abs(pixels(figure, "strongest")[1] - sum(ends) / 2))
    assert leaders[1] == leaders[0] + 1 and apart[0] < 20 < apart[1], "beyond the other lines"


def test_a_light_line_has_an_outline_and_only_judged_ones_an_area() -> None:
    x = np.arange(0.0, 3)
    ends: dict[str, Any] = {"low": x, "high": x + 2}
    control = plotting.Line(x, x + 1, "random", **ends, is_light=True)
    figure = curves(plotting.CurvePanel("A", (control, plotting.Line(x, x + 1, "own", **ends))))
    outline, light, area, own = figure.data
    assert (outline.fill, area.fill) == (None, "toself") and light.line.width < own.line.width
    assert np.isnan(outline.y).sum() == 1, "two lines without sides"
    assert outline.y[:3].tolist() == [2, 3, 4] and outline.y[4:].tolist() == [2, 1, 0]


def test_charts_that_share_their_axis_are_wider_and_have_its_numbers_once() -> None:
    part = plotting.CurvePanel("A", (line(label=""),), y_range=(0, 100), y_title="right")
    own, shared = (
        curves(*[part] * 4, across=4, panel=(190, 150), shared_y=one) for one in (False, True)
    )
    axes = [shared.layout[f"yaxis{n}"] for n in ("", 2, 3, 4)]
    assert [axis.showticklabels for axis in axes] == [None, False, False, False]
    assert [axis.title.text for axis in axes] == ["right", None, None, None]
    widths = [np.diff(one.layout.xaxis.domain) * one.layout.width for one in (own, shared)]
    assert widths[0] + 30 < widths[1]


def test_a_point_stands_on_its_line_and_its_text_off_all_lines() -> None:
    x = np.arange(0.0, 51)
    fall = plotting.Line(x, 100 - 2 * x, "fall")
    points = (plotting.Point(13, "13 heads (1.3%)", 1), plotting.Point(12.5, "12.5", 1))
    figure = curves(plotting.CurvePanel("A", (line(74), fall), points, y_range=(0, 100)))
    first, second = [trace for trace in figure.data if trace.mode == "markers"]
    assert (first.x[0], first.y[0]) == (13, 74)
    assert (second.x[0], second.y[0]) == (12.5, 75), "between two given numbers"
    boxes = []
    for text in ("13 heads (1.3%)", "12.5"):
        x_, y_ = pixels(figure, text)
        half = 0.3 * 11 * len(text)
        boxes.append(Box(x_ - half, y_ - 5, x_ + half, y_ + 5))
    assert boxes[0].overlap(boxes[1]) == 0
    level = (1 - figure.layout.yaxis.domain[1]) * figure.layout.height + 0.26 * 290
    assert not any(box.top < level < box.bottom for box in boxes)


def test_a_text_that_finds_no_place_beside_its_point_is_tied_to_it() -> None:
    x = np.arange(0.0, 51)
    lines = tuple(plotting.Line(x, 50 + step + 0 * x, "") for step in range(-12, 13, 3))
    point = plotting.Point(25, "25 heads", 4)
    figure = curves(plotting.CurvePanel("A", lines, (point,), y_range=(0, 100)))
    (leader,) = figure.layout.shapes
    top = (1 - figure.layout.yaxis.domain[1]) * figure.layout.height
    y = pixels(figure, "25 heads")[1] - top
    assert not 0.38 * 290 - 7 < y < 0.62 * 290 + 7, "off all lines"
    starts = (1 - leader.y0) * figure.layout.height - top
    assert starts == pytest.approx(145, abs=3), "from its point"


def test_a_name_inside_a_chart_has_the_colour_of_its_line_and_no_marker() -> None:
    x = np.arange(0.0, 51)
    rise = plotting.Line(x, x, "rise", plotting.COLOURS["operator"], label="")
    point = plotting.Point(25, "rise", is_name=True)
    figure = curves(plotting.CurvePanel("A", (rise,), (point,), y_range=(0, 100)))
    assert not [trace for trace in figure.data if trace.mode == "markers"]
    (name,) = [text for text in figure.layout.annotations if text.text == "rise"]
    assert name.font.color == plotting.COLOURS["operator"]


def test_guides_are_named_above_the_chart_and_below_its_title() -> None:
    part = plotting.CurvePanel("Title", (line(),), guides=((13, "layer 13"),))
    figure = curves(part)
    (guide,) = figure.layout.shapes
    assert (guide.x0, guide.x1) == (13, 13)
    top = (1 - figure.layout.yaxis.domain[1]) * figure.layout.height
    assert pixels(figure, "Title")[1] + 14 < pixels(figure, "layer 13")[1] < top


def test_zero_is_on_the_axis_and_its_line_only_inside() -> None:
    above = curves(plotting.CurvePanel("A", (line(5),)))
    both = curves(plotting.CurvePanel("A", (line(5), line(-5))))
    assert above.layout.yaxis.range[0] == 0
    assert not above.layout.yaxis.zeroline
    assert both.layout.yaxis.range[0] < -7
    assert both.layout.yaxis.zeroline


def test_panels_have_letters_and_one_panel_has_none() -> None:
    part = plotting.CurvePanel("A", (line(),))
    assert "<b>b</b>  A" in texts(curves(part, part))
    assert "A" in texts(curves(part))


def test_hover_shows_all_lines_of_a_place_with_their_intervals() -> None:
    figure = curves(plotting.CurvePanel("A", (line(name="random"),)), unit="%")
    assert figure.layout.hovermode == "x unified"
    template = figure.data[1].hovertemplate
    assert template.startswith("random: %{y")
    assert "customdata[0]" in template
    assert "%" in template


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (plotting.CurvePanel("A", (line(),), (plotting.Point(1, "", 1),)), "found line 1"),
        (plotting.CurvePanel("A", (line(),), (plotting.Point(60, ""),)), "within 0 to 50"),
        (
            plotting.CurvePanel("A", (plotting.Line(np.ones(3), np.ones(3), "a", low=np.ones(3)),)),
            "together, low and high",
        ),
        (plotting.CurvePanel("A", (plotting.Line(np.ones(0), np.ones(0), "a"),)), "from 1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(part: plotting.CurvePanel, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        curves(part)


def test_dots_keep_their_key_on_the_page_and_each_panel_its_axis() -> None:
    values = np.array([3.0, 30.0])
    long = tuple(plotting.Dots(values, f"a name of many letters {i}") for i in range(4))
    panels = [plotting.DotPanel("", ("a", "b"), series) for series in (long, long[:1])]
    axes = plotting.DotAxis((1, 100)), plotting.DotAxis((0, 50))
    with plotting.drawn_for("column"):
        figure = plotting.dot_panels(panels, axes)
    keys = [note for note in figure.layout.annotations if "<span" in note.text]
    assert len(keys) == 4 and len({note.y for note in keys}) > 1, "several lines"
    assert all(0 <= note.x * figure.layout.width < 396 - 150 for note in keys)
    assert [figure.layout[axis].range for axis in ("xaxis", "xaxis2")] == [(1, 100), (0, 50)]
