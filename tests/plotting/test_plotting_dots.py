"""Dots on named rows, and cells: their keys, the names of their columns, and their numbers."""

import numpy as np
import pytest

from arith_lens import plotting
from arith_lens.plotting import style
from arith_lens.plotting.widths import INCHES, PER_INCH


def dots(*names: str, columns: tuple[str, ...] = ()) -> plotting.Figure:
    series = tuple(plotting.Dots(np.array([0.0, 1.0]), name) for name in names)
    panel = plotting.DotPanel("a panel", ("first", "second"), series)
    return plotting.dot_panels([panel] * 3, plotting.DotAxis((-0.6, 1.6), columns=columns))


def notes(figure: plotting.Figure, text: str) -> list:
    return [note for note in figure.layout.annotations if note.text.endswith(text)]


def test_the_key_has_every_series_in_as_many_lines_as_it_needs() -> None:
    names = [f"a series with a long name, {number}" for number in range(4)]
    with plotting.drawn_for("column"):
        figure = dots(*names)
    keys = [key for name in names for key in notes(figure, name)]
    assert len(keys) == len(names) and len({key.y for key in keys}) > 1
    tops = [note.y for note in notes(figure, "a panel")]
    assert min(key.y for key in keys) > max(tops), "the key stands above the panels"
    assert figure.layout.width <= INCHES["column"] * PER_INCH


def test_names_of_columns_stand_above_and_those_of_rows_right_of_their_marks() -> None:
    texts = ("a model", "the long name of a model")
    figure = dots("series", columns=texts)
    names = [note for note in figure.layout.annotations if note.text in texts]
    leaders = [one for one in figure.layout.shapes if one.xref == "paper"]
    assert len(names) == len(leaders) == 6 and len({note.y for note in names}) == 2
    for leader, note in zip(leaders, names, strict=True):
        assert leader.x0 == leader.x1 < note.x and leader.y0 > note.y > leader.y1
    assert {figure.layout[f"yaxis{n}"].side for n in ("", 2, 3)} == {"right"}
    assert dots("series").layout.yaxis.side == "left"
    (title, *_) = notes(figure, "a panel")
    assert title.x > figure.layout.xaxis.domain[1], "above the names of rows"


def test_panels_of_a_line_are_equally_high() -> None:
    panels = [
        plotting.DotPanel(
            f"{n} rows",
            tuple(map(str, range(n))),
            (
                plotting.Dots(np.arange(n) / n, "first"),
                plotting.Dots(np.full(n, np.nan if n == 2 else 1.0), "second", shift=0.25),
            ),
        )
        for n in (4, 2)
    ]
    figure = plotting.dot_panels(panels, plotting.DotAxis((0, 1)))
    assert figure.layout.yaxis.domain == figure.layout.yaxis2.domain


def test_small_numbers_are_not_printed_and_names_have_several_lines() -> None:
    values = np.array([[4.0, 5.0], [-4.9, 60.0]])
    unsure = np.array([[True, True], [False, False]])
    part = plotting.Matrix(
        "", ("x", "y"), ("one", "two\nlines"), values, smallest=5, bracketed=unsure
    )
    figure = plotting.matrix_panels([part], colour_title="share")
    _, _, numbers = figure.data
    assert sorted(numbers.text) == ["(5)", "60"]
    assert [*figure.layout.xaxis.ticktext] == ["one", "two<br>lines"]


@pytest.mark.parametrize(
    ("name", "columns", "expected"),
    [("5", 40, (0, 40)), ("5", 10, (0, 10)), ("a name without room", 10, (45, 10))],
)
def test_names_of_columns_are_above_and_turned_where_they_have_no_room(
    name: str, columns: int, expected: tuple[int, int]
) -> None:
    part = plotting.Matrix("", ("x",), (name,) * columns, np.ones((1, columns)))
    axis = plotting.matrix_panels([part], colour_title="share").layout.xaxis
    assert axis.side == "top" and (axis.tickangle, len(axis.ticktext)) == expected


def test_an_empty_row_names_the_rows_below_it_which_have_a_frame_of_their_own() -> None:
    values = np.array([[1.0, 2.0], [np.nan, np.nan], [3.0, np.nan]])
    part = plotting.Matrix("", ("x", "others:", "y"), ("1", "2"), values)
    figure = plotting.matrix_panels([part], colour_title="share")
    frames = [(one.y0, one.y1) for one in figure.layout.shapes if one.type == "rect"]
    assert frames == [(-0.5, 0.5), (1.5, 2.5)]
    cells = next(one for one in figure.data if one.type == "bar")
    assert {*cells.marker.color[2:4]} == {"#ffffff"} and cells.marker.color[5] == style.GRID
    assert "span" in figure.layout.yaxis.ticktext[1]


def test_groups_of_columns_have_a_line_over_their_columns() -> None:
    groups = (("", 1), ("two", 2))
    part = plotting.Matrix("", ("x",), ("1", "2", "3"), np.ones((1, 3)), groups=groups)
    figure = plotting.matrix_panels([part], colour_title="share")
    (line,) = [one for one in figure.layout.shapes if one.type == "line"]
    left, right = figure.layout.xaxis.domain
    assert left + (right - left) / 3 < line.x0 < line.x1 < right
    (name,) = notes(figure, "two")
    assert line.x0 < name.x < line.x1 and name.y > line.y0 > figure.layout.yaxis.domain[1]


def test_colours_of_a_logarithmic_scale_grow_with_the_logarithm_in_cells_and_bar() -> None:
    values = np.array([[0.0, 1.0, 10.0, 100.0, 1000.0]])
    inks = [style.tint(plotting.COLOURS["verdict"], (at / 2) ** 1.5) for at in (0, 0, 1, 2, 2)]
    part = plotting.Matrix("", ("x",), tuple("abcde"), values, is_log=True)
    assert part.colours == inks
    axis = plotting.matrix_panels([part], colour_title="error").layout.coloraxis
    assert [*axis.colorbar.ticktext] == ["≤ 1", "10", "≥ 100%"]
    scale = dict(axis.colorscale)
    assert [scale[0], *(scale[at] for at in (0, 0.5, 1, 1))] == inks
    plain = plotting.Matrix("", ("x",), tuple("abcde"), values)
    assert plain.colours[2:] != inks[2:]


def test_cells_hold_their_numbers_and_zeros_are_empty() -> None:
    values = np.array([[0.0, -12.5], [30.0, 0.001]])
    part = plotting.Matrix("a", ("<s>", "1.2"), ("0", "1"), values)
    figure = plotting.matrix_panels([part], colour_title="effect")
    bearer, cells, numbers = figure.data
    assert sorted(numbers.text) == ["0", "30", "−12"]
    for x, y, text in zip(numbers.x, numbers.y, numbers.text, strict=True):
        assert float(text.replace("−", "-")) == pytest.approx(values[int(y), int(x)], abs=0.6)
    assert [value for _, value in cells.customdata] == values.ravel().tolist()
    white, _, strong, _ = cells.marker.color
    assert white == "#ffffff" and strong == style.tint(plotting.COLOURS["verdict"], 0.3)
    assert bearer.marker.coloraxis == "coloraxis"
    assert figure.layout.yaxis.ticktext[0] == "&lt;s&gt;"
    with pytest.raises(ValueError, match="2 rows and 1 columns"):
        wrong = plotting.Matrix("a", ("x", "y"), ("0",), values)
        plotting.matrix_panels([wrong], colour_title="effect")
