"""Pictures of carries, of answers, of tuning and of the exam draw what their tables have."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from pandas import DataFrame

from arith_lens.plotting import Figure, Width, drawn_for
from arith_lens.plotting.circuit import CircuitPanel, legend
from arith_lens.plotting.dots import LEVEL
from figures import attention, carry, circuit, exam, knockout, map_figures, next_tokens, tuning
from figures.claims_glance import glance, verdicts
from figures.common import FREE, stored_rows, tables_of
from figures.exhibit import Chart, one_chart
from figures.options import ExamOptions, Options
from figures.tables import exam as exam_numbers
from figures.tables.base_rates import MAJORITY
from figures.tables.effects import EFFECT, KEY_HEADS, KEY_ROLE
from figures.tables.table import keys_of, select, value

GALLERY = Path(__file__).parents[2] / "figures" / "gallery"
MODELS = ("reference", "reference-mistral")


def charts(make, models: Sequence[str] = MODELS) -> Chart:
    """The picture of the models, drawn from the shipped tables."""
    return one_chart([make(Options(model=model, root=GALLERY))[0] for model in models])


def texts(figure: Figure) -> str:
    return " ".join(note.text for note in figure.layout.annotations)


def test_the_carry_has_its_controls_at_the_chosen_layer_of_each_model() -> None:
    chart = charts(carry.exhibits)
    circles = [one for one in chart.figure.data if one.marker.color == "white"]
    expected = []
    for model in MODELS:
        table = select(chart.numbers, model=model)
        own = select(table, kind="interchange", variable="ones_carry", test="layers")
        layer = carry.chosen_layer(table)
        shuffled, direction = (
            select(own, space=space, layer=layer).iloc[0] for space in ("variable shuffled", "mean")
        )
        expected += [(layer, 100 * shuffled.high), (layer, 100 * direction.value)]
        assert f"{shuffled.high:.0%}" in texts(chart.figure)
    assert texts(chart.figure).count("carry shuffled,<br>best of 30") == 1
    for model in MODELS:
        step = select(chart.numbers, model=model, kind="step", measure=carry.STEP)
        few = select(step, layer=carry.chosen_layer(select(chart.numbers, model=model)))
        few = few[few.n < 5]
        assert 0 < len(few) < 8
        expected += [*zip(few.ones_sum, few.value, strict=True)]
    assert [(one.x[0], one.y[0]) for one in circles] == [pytest.approx(one) for one in expected]
    assert "reference, layer 9, n ≤ 22 per sum" in texts(chart.figure)


def test_on_a_phone_each_share_of_the_carry_stands_nearest_to_its_own_circle() -> None:
    with drawn_for("phone"):
        figure = charts(carry.exhibits).figure
    width, height = figure.layout.width, figure.layout.height
    circles = {}
    for one in figure.data:
        if one.marker.color == "white" and one.marker.symbol == "circle":
            axes = (figure.layout.xaxis, one.x[0], width), (figure.layout.yaxis, one.y[0], height)
            shares = [(at - axis.range[0]) / np.ptp(axis.range) for axis, at, _ in axes]
            places = (
                (axis.domain[0] + share * np.ptp(axis.domain)) * size
                for share, (axis, _, size) in zip(shares, axes, strict=True)
            )
            circles[f"{one.y[0]:.0f}%"] = np.array([*places])
    assert len(circles) == 2
    for text in circles:
        (note,) = (one for one in figure.layout.annotations if one.text == text)
        far = {
            name: np.hypot(*(circle - (note.x * width, note.y * height)))
            for name, circle in circles.items()
        }
        assert min(far, key=lambda name: far[name]) == text and far[text] < 60


def test_the_legend_of_a_circuit_speaks_only_of_marks_that_it_has() -> None:
    def read(low: float, role: str | None) -> str:
        nodes = DataFrame(
            {"node": ["MLP 1"], "layer": [1], "mean": [-1.0], "low": low, "high": 0.5}
        )
        edges = DataFrame({"sender": ["0.1"], "receiver": ["MLP 1"], "input": ["v"]})
        edges = edges if role is None else edges.assign(role=role)
        return legend([CircuitPanel(nodes, edges)])

    assert "any token" in read(0.2, None) and "any token" not in read(0.2, "operand a")
    assert "dotted" in read(-2.0, None) and "dotted" not in read(0.2, None)


def test_the_picture_of_a_circuit_says_where_its_graph_is_kept() -> None:
    """END alone: exchanged everywhere, the same graph leaves half as many right."""
    charts = [
        one for one in circuit.exhibits(Options(root=GALLERY)) if one.name == "circuit-of-addition"
    ]
    (chart,) = charts
    assert isinstance(chart, Chart)
    names = [note.text for note in chart.figure.layout.annotations]
    assert "C's lead that is left" in names and "<b>right answers</b>" in names
    assert "exchanged at END, 16 other problems" in texts(chart.figure)
    random = select(chart.numbers, kept="random", positions="end", measure="accuracy").iloc[0]
    assert f"{random.value:.0%}, 0 to {random.high:.0%} in 20 draws" in texts(chart.figure)
    kept = {"kind": "kept", "kept": "graph", "measure": "accuracy", "counterfactual": "operands"}
    own = select(chart.numbers, **kept)
    at_end, everywhere = (value(own, positions=one) for one in ("end", "all"))
    assert f"{at_end:.0%} [" in texts(chart.figure) and everywhere < at_end


def test_the_frontier_has_the_accuracy_before_tuning_of_each_model() -> None:
    chart = charts(tuning.frontier)
    for model in MODELS:
        for group in tuning.GROUPS:
            before = value(
                chart.numbers, model=model, group=group, task="all", measure="accuracy before"
            )
            assert f"{before:.0%} before, n = " in texts(chart.figure)


def test_the_papers_claim_of_tuning_stands_in_the_row_of_precise_tuning() -> None:
    figure = charts(tuning.frontier).figure
    row = [*figure.layout.yaxis.ticktext].index("<b>precise: 3 heads</b>")
    claims = [one for one in figure.data if one.marker.symbol == LEVEL]
    for claim in claims:
        best = next(one for one in figure.data if one.xaxis == claim.xaxis and one is not claim)
        assert np.isfinite(claim.x).sum() == 1 and claim.x[row] in (0, best.x[0])
        assert claim.y[row] == row
    assert [claim.x[row] == 0 for claim in claims] == [False, True, False, True]


@pytest.mark.parametrize("width", ["screen", "phone"])
def test_gains_and_losses_have_one_scale_side_by_side_and_each_its_own_on_a_phone(
    width: Width,
) -> None:
    with drawn_for(width):
        layout = charts(tuning.frontier).figure.layout
    scales = [np.ptp(axis.domain) / np.ptp(axis.range) for axis in (layout.xaxis, layout.xaxis2)]
    assert (scales[0] == pytest.approx(scales[1])) == (width == "screen")
    assert layout.xaxis.range == layout.xaxis3.range, "of both models"


def test_the_claims_at_a_glance_have_each_models_total_above_its_column() -> None:
    tables = [tables_of("which_heads", model, FREE, GALLERY) for model in MODELS]
    figure = glance(stored_rows(tables, "claims")).figure
    known = [[*verdicts(stored_rows(tables, "claims"), one).values()] for one in MODELS]
    holds, open_, fails = ("holds here", "not decided", "does not hold here")
    names = [
        f"{one}: {of.count(holds)} hold, {of.count(open_)} undecided, {of.count(fails)} do not "
        f"(of {len(of) - of.count('not measured')})"
        for one, of in zip(MODELS, known, strict=True)
    ]
    both = sum(one == two == holds for one, two in zip(*known, strict=True))
    rows = [text for one in figure.select_yaxes() for text in one.ticktext]
    assert 0 < sum(text.startswith("<b>") for text in rows) == both < len(rows)
    columns = [note for note in figure.layout.annotations if note.text in (*names, *MODELS)]
    assert [note.text for note in columns] == [*names, *MODELS], "above the first row of panels"
    for verdict, symbol in ((holds, "circle"), (open_, "diamond"), (fails, "circle")):
        marks = [one for one in figure.data if one.marker.symbol == symbol]
        is_full = [
            (one.marker.color == one.marker.line.color) == (verdict == holds) for one in marks
        ]
        drawn = sum(
            np.isfinite(one.x).sum() for one, own in zip(marks, is_full, strict=True) if own
        )
        assert drawn == sum(of.count(verdict) for of in known), "a mark for each"


def test_word_problems_and_generic_tasks_have_axes_of_their_own() -> None:
    figure = charts(tuning.frontier).figure
    words, generic = figure.layout.xaxis.range, figure.layout.xaxis2.range
    assert words[0] > generic[0] and words[1] > generic[1] > 0


def test_right_answers_stand_beside_the_most_frequent_answer() -> None:
    chart = charts(next_tokens.fig4)
    table = select(chart.numbers, model=MODELS[0])
    kinds = ("word_problem", "integers", "time_span", "decimals")
    rates = [100 * value(table, kind=kind, measure=MAJORITY) for kind in kinds]
    marks = [one for one in chart.figure.data if one.marker.symbol == "line-ns-open"]
    assert [*marks[0].x] == pytest.approx(rates) and len(marks) == len(MODELS)
    assert min(mark.marker.size for mark in marks) > 3 * chart.figure.data[1].marker.size
    drawn = [one for trace in chart.figure.data if trace.xaxis == "x2" for one in trace.x]
    left = select(table, measure="likeliest token is a number", when="after").value
    assert all(pytest.approx(100 * one) in drawn for one in left), "numbers have their own chart"


def test_each_knockout_marks_what_is_right_without_ten_heads() -> None:
    chart = charts(knockout.fig3)
    keys = {"components": "heads", "measure": "accuracy", "order": "effect", "k": 10}
    shares = 100 * select(chart.numbers, **keys).value
    circles = [one for one in chart.figure.data if one.marker.color == "white"]
    assert [circle.y[0] for circle in circles] == pytest.approx([*shares])
    assert {circle.x[0] for circle in circles} == {10}
    for name in ("greedy", "random: worst"):
        notes = [note for note in chart.figure.layout.annotations if note.text == name]
        assert len(notes) == len(MODELS), "named once"
        right = chart.figure.layout.xaxis.domain[1]
        assert all(note.x < right for note in notes), "in the first chart"
    random = select(chart.numbers, components="heads", measure="accuracy", order="random")
    worst = [y for one in chart.figure.data if one.name == "random: worst" for y in one.y]
    assert sorted(worst) == pytest.approx(sorted(100 * random.low))
    one = select(chart.numbers, model=MODELS[0], operation="division", **keys).iloc[0]
    assert f"{one.value:.0%} [{one.low:.0%}, {one.high:.0%}]" in texts(chart.figure)


def test_knockouts_of_mlps_are_a_picture_of_the_same_table() -> None:
    heads, mlps = knockout.fig3(Options(model="reference", root=GALLERY))
    assert (heads.name, mlps.name, mlps.table_name) == ("fig3", "fig3_MLPs", "fig3")
    assert heads.numbers.equals(mlps.numbers)
    for chart, parts in ((heads, "heads"), (mlps, "MLPs")):
        keys = {"components": parts, "measure": "accuracy", "order": "effect"}
        own = select(chart.numbers, operation="addition", **keys)
        line = next(one for one in chart.figure.data if one.name == "strongest")
        assert [*line.y] == pytest.approx([*100 * own.sort_values("k").value])


def test_the_exam_has_all_models_under_both_kinds_of_paths_and_their_medians() -> None:
    chart = exam.exhibits(ExamOptions(root=GALLERY))[0]
    assert isinstance(chart, Chart)
    errors = select(chart.numbers, measure=exam_numbers.ERROR)
    names = [*chart.figure.layout.yaxis.ticktext]
    assert names[:2] == ["<b>median of 18 models</b>", "<b>median of 18 models, all paths</b>"]
    rows = dict(next(trace.customdata for trace in chart.figure.data if trace.type == "bar"))
    errors = select(errors, paths=("via_mlps", "total"))
    whole = 100 * errors.pivot(index="model", columns=["paths", "method"], values="value")
    shared = "table, grouped, norm weights, padded, query key norms, rotated"
    alone = [*whole.index.drop([one.replace(" ", "_") for one in shared.split(", ")[1:]])]
    alone.remove("all_norms")
    assert len({*names}) == len(names), "no two rows share a name"
    differ, best = 0, []
    for model in alone:
        own = whole.loc[model].round()
        differ += (own["via_mlps"] != own["total"]).any()
        start = exam.DIFFICULTIES[model]
        relp = [one for key, one in rows.items() if key.startswith(start) and ", RelP" in key]
        both = [own[paths, "relp"] for paths in ("via_mlps", "total")][: len(relp)]
        assert relp == pytest.approx(both, abs=1), "the row of all paths has its model's name"
        best.append((next(i for i, name in enumerate(names) if name.startswith(start)), relp[0]))
    assert differ == 2 and len(names) == len(alone) + differ + 3, "a heading, too"
    errors_down = [error for _, error in sorted(best)]
    assert errors_down == sorted(errors_down), "errors grow downwards"
    for model in shared.split(", ")[1:]:
        same = whole.loc[[model.replace(" ", "_"), "table"]].round()
        assert same.iloc[0].equals(same.iloc[1]), "only models with equal errors share a row"


@pytest.mark.parametrize("model", MODELS)
def test_titles_outlines_bold_names_and_counts_have_one_number_of_key_heads(model: str) -> None:
    (chart,) = map_figures.fig2(Options(model=model, root=GALLERY))
    looks = attention.fig5(Options(model=model, root=GALLERY))[0].numbers
    counts = set()
    for operation in keys_of(looks, "operation"):
        own = select(chart.numbers, operation=operation)
        n_key = int(value(own, measure=KEY_HEADS))
        bold = select(looks, operation=operation, key_head="yes")["head"].unique()
        keys = select(own, measure=EFFECT, role=KEY_ROLE).sort_values("value").component
        assert n_key == len(keys) == len(bold)
        names = ", ".join(keys) if 0 < n_key < 4 else f"{n_key} key head"
        assert f"{operation.capitalize()}: {names}" in texts(chart.figure)
        counts.add(n_key)
    assert len(counts) > 1, "another number would be seen"
