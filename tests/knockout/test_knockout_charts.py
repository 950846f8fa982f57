"""A knockout curve, and several of them, as one picture in one call."""

import html

import numpy as np
import pytest
import torch

import arith_lens as al
from arith_lens.knockout import KnockoutCurve, KnockoutCurves


def made_curve(
    n_right: list[int], *, order: tuple = (al.Head(1, 0), al.Head(0, 2))
) -> KnockoutCurve:
    """Ten pairs, of which `n_right[k]` are right when the first k are out."""
    correct = torch.tensor([[i < n for i in range(10)] for n in n_right])
    return KnockoutCurve(
        correct=correct,
        probability=correct.float() / 2,
        top=torch.zeros(len(n_right), 10, 1, dtype=torch.long),
        ks=tuple(range(len(n_right))),
        order=order,
        ablation="mean",
        positions="all",
        means="aligned",
    )


CURVES = KnockoutCurves(
    {
        "by effect": made_curve([10, 5, 1]),
        "random 0": made_curve([10, 8, 8]),
        "random 1": made_curve([10, 10, 9]),
        "at END 2": made_curve([10, 7, 6]),
    }
)


def test_orders_that_differ_in_a_number_share_a_line_and_the_others_lie_on_top() -> None:
    figure = CURVES.plot()
    lines = {(t.name, t.xaxis): t for t in figure.data if t.name}
    assert [name for name, axis in lines if axis == "x"] == ["random", "by effect", "at END 2"]
    np.testing.assert_allclose(lines["random", "x"].y, [100, 90, 85])
    np.testing.assert_allclose(lines["random", "x"].customdata, [[100, 100], [80, 100], [80, 90]])
    np.testing.assert_allclose(lines["by effect", "x"].y, [100, 50, 10])
    np.testing.assert_allclose(lines["by effect", "x2"].y, [50, 25, 5])
    assert len({line.line.color for line in lines.values()}) == 3
    assert figure.layout.xaxis.title.text == "Heads knocked out"
    notes = " ".join(note.text for note in figure.layout.annotations)
    assert "10 pairs, ablation mean" in notes and "the range over several control orders" in notes


def test_control_orders_of_other_ks_are_lines_of_their_own() -> None:
    uneven = KnockoutCurves({"random 0": made_curve([10, 8]), "random 1": made_curve([10, 9, 8])})
    assert [t.name for t in uneven.plot().data if t.xaxis == "x" and t.name] == [*uneven]
    assert "range" not in uneven.plot().layout.annotations[-1].text


def test_a_curve_draws_both_measures() -> None:
    curve = made_curve([10, 5, 1], order=(al.Mlp(1), al.Head(0, 2)))
    lines = {trace.name: trace for trace in curve.plot().data if trace.name}
    np.testing.assert_allclose(lines["right"].y, [100, 50, 10])
    np.testing.assert_allclose(lines["mean p(C)"].y, [50, 25, 5])
    low, high = 100 * curve.effects().ci()[:, 0].numpy()
    np.testing.assert_allclose(lines["right"].customdata, np.stack([low, high], axis=-1), rtol=1e-5)


@pytest.mark.parametrize("result", [CURVES, CURVES["by effect"]])
def test_the_notebooks_picture_is_an_image(result: KnockoutCurve | KnockoutCurves) -> None:
    assert html.escape(repr(result)) in result._repr_html_() and "<img" in result._repr_html_()
