"""Each claim on runs whose truth is planted: it holds, it does not, and the numbers by hand."""

from pathlib import Path

import pytest
import torch
from support import made_claims as made
from support.made_claims import Verdicts

from arith_lens.components import Head
from arith_lens.operations import FOUR
from experiments import results
from figures.claims import accuracy
from figures.options import TableOptions
from figures.shared_heads import table3
from figures.tables.answers import CHANGE
from figures.tables.number import Number
from figures.tables.table import QuestionTable, row
from figures.verdicts import Within, judge

PLUS = {(4, 6): -0.15, (5, 1): -0.08}
TIMES = {**PLUS, (5, 2): -0.1, (6, 0): -0.1}


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the usual: the planted truths are far from where a verdict changes."""
    monkeypatch.setattr("figures.tables.resampled.N_RESAMPLES", 200)


def test_mlps_are_measured_below_and_from_the_first_key_head_on(tmp_path: Path) -> None:
    later = {layer: -0.1 if layer % 2 else 0.1 for layer in range(4, 12)}
    made.which_heads(tmp_path / "a", PLUS, {0: 0.005, **later})
    found = Verdicts(tmp_path / "a")
    assert found["mlps_before"].judgement == found["mlps_after"].judgement == "holds here"
    assert found["mlps_before"].findings[0].number.value == pytest.approx(0.005, abs=1e-3)
    assert found["mlps_after"].findings[0].number.value == pytest.approx(0.1, abs=2e-3)
    made.which_heads(tmp_path / "b", PLUS, {2: -0.03, 3: 0.02, 9: 0.1})
    found = Verdicts(tmp_path / "b")
    assert found["mlps_before"].judgement == found["mlps_after"].judgement == "does not hold here"
    assert found["mlps_after"].findings[0].number.value == pytest.approx(0.1 / 8, abs=2e-3)
    made.which_heads(tmp_path / "c", {(0, 1): -0.2}, {5: 0.4})
    found = Verdicts(tmp_path / "c")
    assert found["mlps_before"].judgement == "not measured"
    assert "an MLP below" in found["mlps_before"].why
    assert found["no_early_key_heads"].judgement == "does not hold here"


def test_what_the_strongest_twentieth_has_is_counted(tmp_path: Path) -> None:
    spread = {(layer, head): -0.02 for layer in range(12) for head in range(8)}
    run = made.which_heads(tmp_path / "a", PLUS, noise=1e-4)
    made.which_heads(tmp_path / "b", spread)
    found = Verdicts(tmp_path / "a")["sparse_effect"]
    means = results.MAP.load(run, "addition").heads.mean().flatten().sort().values
    assert found.findings[0].number.value == pytest.approx(
        float(means[:4].sum() / means[means < 0].sum())
    )
    assert found.judgement == "holds here"
    assert Verdicts(tmp_path / "b")["sparse_effect"].judgement == "does not hold here"


def test_most_of_an_effect_is_gone_where_only_the_direct_path_is_left(tmp_path: Path) -> None:
    for name, direct in (("a", -0.02), ("b", -0.09)):
        made.which_paths(tmp_path / name, direct, via_mlps=-0.1)
    first, second = (Verdicts(tmp_path / name)["via_mlps"] for name in "ab")
    assert (first.judgement, second.judgement) == ("holds here", "does not hold here")
    assert first.findings[0].number.value == pytest.approx(0.8, abs=0.01)
    assert first.findings[0].label == "addition (5 heads)"


def test_shared_heads_are_those_of_every_operation(tmp_path: Path) -> None:
    made.which_heads(tmp_path / "a", PLUS)
    same = Verdicts(tmp_path / "a")
    assert (
        same["shared_key_heads"].judgement
        == same["addition_like_subtraction"].judgement
        == "holds here"
    )
    assert same["more_heads_for_products"].judgement == "does not hold here"
    assert same["more_heads_for_products"].findings[0].number.value == 0
    own = {name: TIMES if name in FOUR[2:] else PLUS for name in FOUR}
    own["subtraction"] = {(4, 6): -0.15, (7, 7): -0.1}
    made.which_heads(tmp_path / "b", own)
    other = Verdicts(tmp_path / "b")
    assert other["shared_key_heads"].findings[0].number.value == 1 / 5
    assert other["addition_like_subtraction"].findings[0].number.value == pytest.approx(1 / 3)
    overlaps = [1 / 3, 2 / 4, 2 / 4, 1 / 5, 1 / 5, 1.0]
    assert other["shared_key_heads"].findings[1].number.value == pytest.approx(sum(overlaps) / 6)
    assert other["shared_key_heads"].judgement == "does not hold here"
    assert other["addition_like_subtraction"].judgement == "does not hold here"
    assert other["more_heads_for_products"].judgement == "holds here"
    assert other["more_heads_for_products"].findings[0].number.value == 2
    made.which_heads(tmp_path / "c", {})
    for key in ("shared_key_heads", "addition_like_subtraction", "more_heads_for_products"):
        assert Verdicts(tmp_path / "c")[key].judgement == "not measured"


def test_rank_correlation_is_spearmans() -> None:
    from scipy.stats import spearmanr

    from figures.tables.map_statistics import rank_correlation

    a, b = torch.randn(2, 4, 5, generator=torch.manual_seed(0)).numpy()
    assert rank_correlation(a, b) == pytest.approx(spearmanr(a.ravel(), b.ravel())[0])


def test_powers_share_and_need_their_heads(tmp_path: Path) -> None:
    made.which_heads(tmp_path / "a", PLUS)
    made.powers(tmp_path / "a", {**PLUS, (9, 9 % 8): -0.2}, without=0.0)
    found = Verdicts(tmp_path / "a")
    assert (
        found["powers_share_heads"].judgement
        == found["powers_need_heads"].judgement
        == "holds here"
    )
    assert found["powers_share_heads"].findings[0].number.value == pytest.approx(2 / 3)
    assert found["powers_need_heads"].findings[0].number.value == -1
    made.which_heads(tmp_path / "b", {})
    made.powers(tmp_path / "b", PLUS, without=1.0)
    found = Verdicts(tmp_path / "b")
    assert (
        found["powers_share_heads"].judgement
        == found["powers_need_heads"].judgement
        == "does not hold here"
    )
    made.which_heads(tmp_path / "c", PLUS)
    made.powers(tmp_path / "c", {}, without=0.0)
    (text,) = table3(TableOptions(model="made", root=tmp_path / "c"))
    assert set(text.cells["key heads (effect)"]) == {"none"}
    found = Verdicts(tmp_path / "c")
    assert (
        found["powers_share_heads"].judgement
        == found["powers_need_heads"].judgement
        == "not measured"
    )


def test_heads_of_word_problems_are_compared_and_knocked_out(tmp_path: Path) -> None:
    alike = {(4 + i // 8, i % 8): -0.1 for i in range(2, 12)}
    lost = {"word_problems-on-word_problems": 0.0, "overlap-on-generated": 0.0}
    made.word_problem_heads(tmp_path / "a", alike, {**lost, "overlap-on-word_problems": 0.0})
    found = Verdicts(tmp_path / "a")
    assert found["word_problems_share_heads"].findings[0].number.value == 0.8
    for key in ("word_problems_share_heads", "word_problems_need_heads"):
        assert found[key].judgement == "holds here"
    assert found["common_heads_matter_in_both"].judgement == "holds here"
    made.word_problem_heads(tmp_path / "b", alike, {"overlap-on-generated": 0.0})
    found = Verdicts(tmp_path / "b")
    assert found["word_problems_need_heads"].judgement == "does not hold here"
    assert found["common_heads_matter_in_both"].judgement == "does not hold here"
    apart = {(8 + i // 8, i % 8): -0.1 for i in range(10)}
    made.word_problem_heads(tmp_path / "c", apart, lost)
    found = Verdicts(tmp_path / "c")
    assert found["word_problems_share_heads"].judgement == "does not hold here"
    assert found["common_heads_matter_in_both"].judgement == "not measured"
    assert "head in common" in found["common_heads_matter_in_both"].why


def test_what_key_heads_cost_and_random_ones_do_not(tmp_path: Path) -> None:
    run = made.are_they_needed(tmp_path / "a", PLUS, without=1 / 9, without_random=1.0)
    found = Verdicts(tmp_path / "a")
    needed, spared = found["key_heads_needed"], found["random_heads_not_needed"]
    assert needed.judgement == "holds here"
    assert spared.judgement == "not decided"
    assert needed.findings[0].label == "addition (2 key heads)"
    assert needed.findings[0].number.value == pytest.approx(-8 / 9)
    curves = results.KNOCKOUT_CURVES.load(run, "addition")
    assert curves["effect"].order[:2] == (Head(4, 6), Head(5, 1))
    operation = [f for f in spared.findings if f.label.startswith("addition")]
    assert [(f.label, f.number.unit, f.rule is None) for f in operation] == [
        ("addition (2 heads), random of all heads, 4 draws", "points", False),
        ("addition (2 heads), random of the same layers, 4 draws", "points", True),
        ("addition (2 strongest heads)", "points", True),
    ]
    assert [f.number.value for f in operation] == pytest.approx([0, 0, -8 / 9])
    run = made.are_they_needed(tmp_path / "d", PLUS, 1 / 9, without_random=1.0, without_matched=0.5)
    assert Verdicts(tmp_path / "d")["random_heads_not_needed"].findings[4].number.value == -0.5
    made.are_they_needed(tmp_path / "b", PLUS, without=8 / 9, without_random=7 / 9)
    found = Verdicts(tmp_path / "b")
    assert found["key_heads_needed"].judgement == "does not hold here"
    assert found["random_heads_not_needed"].findings[0].number.value == pytest.approx(-2 / 9)
    assert found["random_heads_not_needed"].judgement in ("does not hold here", "not decided")
    made.are_they_needed(tmp_path / "c", {}, without=0.0, without_random=1.0)
    for key in ("key_heads_needed", "random_heads_not_needed"):
        assert Verdicts(tmp_path / "c")[key].judgement == "not measured"


def test_ten_random_heads_decide_too() -> None:
    keys = {"operation": "addition", "components": "heads", "k": 10}
    rows = [
        row(CHANGE, Number(-0.08, -0.16, 0.0, unit="points"), **keys, order="random", draws=20),
        row("accuracy", Number(0.92, 0.18, 1.0), **keys, order="random"),
        row("accuracy", Number(1.0), **{**keys, "k": 0}, order="effect"),
    ]
    table, rule = QuestionTable.of("knockout", "made", rows), Within(above=-0.02, below=0.02)
    mean, worst = accuracy._many_random(table, "addition", rule)
    assert mean.rule == rule and mean.number.value == -0.08 and worst.rule is None
    assert judge([mean]) == "not decided" and worst.number.value == pytest.approx(-0.82)


def test_word_problems_and_generic_tasks_are_told_apart(tmp_path: Path) -> None:
    made.what_else_breaks(tmp_path / "a", made.answers(0.15, 0.95))
    found = Verdicts(tmp_path / "a")
    transfer, generic = found["transfer_to_word_problems"], found["generic_unchanged"]
    assert transfer.judgement == generic.judgement == "holds here"
    assert transfer.findings[0].number.value == pytest.approx(-0.75)
    assert generic.findings[0].number.value == 0 and "60.0% right" in transfer.measured
    controls = {f.label: f.number.value for f in transfer.findings[2:]}
    assert controls == {
        "2 control heads, random of all heads, 2 draws": pytest.approx(-0.05, abs=0.01),
        "2 control heads, random of the same layers, 2 draws": pytest.approx(-0.05, abs=0.01),
    }
    assert [f.number.value for f in generic.findings[2:]] == [0, 0]
    made.what_else_breaks(tmp_path / "b", made.answers(0.6, 0.8))
    found = Verdicts(tmp_path / "b")
    assert found["transfer_to_word_problems"].judgement == "does not hold here"
    assert found["generic_unchanged"].judgement == "does not hold here"
    assert found["generic_unchanged"].findings[0].number.value == pytest.approx(-0.15)
    made.what_else_breaks(tmp_path / "c", made.answers(0.6, 0.95), heads=())
    for key in ("transfer_to_word_problems", "generic_unchanged"):
        assert "nothing was knocked out" in Verdicts(tmp_path / "c")[key].why


def test_where_key_heads_look(tmp_path: Path) -> None:
    made.where_do_they_look(
        tmp_path / "a",
        {
            "4.6": {"operand a": 0.4, "operand b": 0.4, "BOS": 0.15, "other": 0.05},
            "5.1": {"operator": 0.6, "BOS": 0.35, "other": 0.05},
        },
    )
    found = Verdicts(tmp_path / "a")
    keys = ["looks_at_calculation", "little_elsewhere", "two_kinds_of_heads"]
    for key in [*keys, "numbers_in_other_formats", "operator_words"]:
        assert found[key].judgement == "holds here", found[key]
    assert found["looks_at_calculation"].findings[0].number.value == pytest.approx(
        1.4 / 1.5, abs=0.01
    )
    assert found["little_elsewhere"].findings[0].number.value == pytest.approx(0.05, abs=2e-3)
    made.where_do_they_look(tmp_path / "b", {"4.6": {"other": 0.7, "operand a": 0.2, "END": 0.1}})
    found = Verdicts(tmp_path / "b")
    assert {found[key].judgement for key in keys} == {"does not hold here"}
    for key in ("numbers_in_other_formats", "operator_words"):
        assert found[key].judgement == "not measured" and "no strong head" in found[key].why


RISING = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.3, 0.5, 0.6, 0.7, 0.7]
UP_AND_DOWN = [0.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.2, 0.3, 0.2, 0.1, 0.0, 0.0]
FALLING = [0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.2, 0.1, 0.0, 0.0, 0.0]


def test_probes_of_the_papers_shape_hold(tmp_path: Path) -> None:
    won = ["other"] * 3 + ["A", "B", "C±1", "C±1"] + ["C"] * 5
    curves = {"operands": UP_AND_DOWN, "C": RISING, "others": FALLING}
    run = made.what_do_mlps_add(tmp_path, curves, won)
    found = Verdicts(tmp_path)
    for verdict in found.of_group("probes").values():
        assert verdict.judgement == "holds here" and run.path in verdict.runs, verdict
    assert (
        found["turning_layers_agree"].findings[0].number.value == 1
    )  # the top is 7, half the rise at 8
    assert "addition 7 and 8" in found["turning_layers_agree"].measured
    assert found["operands_rise_and_fall"].findings[0].number.value == pytest.approx(1, abs=0.01)
    assert found["answer_rises"].findings[0].number.value == pytest.approx(0.6, abs=1e-3)
    assert found["others_fall"].findings[0].number.value == pytest.approx(-0.3, abs=1e-3)
    assert found["operands_first"].findings[0].number.value == 1
    assert found["neighbours_between"].findings[0].number.value == pytest.approx(2 / 3 - 0.2)
    assert found["answer_last"].findings[0].number.value == 2  # from layer 5 to layer 7
    assert "Of 9 sums" in found["answer_last"].measured


def test_probes_of_another_shape_do_not(tmp_path: Path) -> None:
    won = ["C±1", "other", "A"] + ["other"] * 9
    curves = {"operands": RISING[::-1], "C": FALLING, "others": RISING}
    made.what_do_mlps_add(tmp_path, curves, won)
    found = Verdicts(tmp_path)
    for key, verdict in found.of_group("probes").items():
        if key not in (
            "turning_layers_agree",
            "operands_first",
        ):
            assert verdict.judgement == "does not hold here", verdict
    assert found["neighbours_between"].findings[0].number.value == pytest.approx(-0.2)
    assert "for good never" in found["answer_last"].measured
    made.what_do_mlps_add(tmp_path, curves, ["other"] * 7 + ["C"] * 5, model="late")
    first = Verdicts(tmp_path, "late")["operands_first"]
    assert first.judgement == "does not hold here" and first.findings[0].number.value == 0
    between = Verdicts(tmp_path, "late")["neighbours_between"]
    assert between.judgement == "not measured" and "nothing stands between" in between.why


def test_tuning_is_compared_question_by_question(tmp_path: Path) -> None:
    after = {"full": (0.60, 0.90), "precise": (0.61, 0.95), "mlps": (0.70, 0.80)}
    after["more"] = (0.60, 0.95)
    speeds = {"full": 15, "precise": 50, "mlps": 19, "more": 45}
    made.does_tuning_help(tmp_path / "a", after, speeds)
    found = Verdicts(tmp_path / "a")
    for verdict in found.of_group("tuning").values():
        assert verdict.judgement == "holds here", verdict
    less, precise, full = (f.number.value for f in found["as_much_as_full"].findings[:3])
    assert less == pytest.approx(0.01) and precise - full == pytest.approx(0.01)
    assert precise == pytest.approx(0.21 + 0.005)
    assert found["tuning_is_faster"].findings[0].number.value == pytest.approx(50 / 15, 1e-5)
    assert found["full_tuning_loses"].findings[0].number.value == pytest.approx(-0.05)
    after = {"full": (0.60, 0.95), "precise": (0.40, 0.80), "mlps": (0.35, 0.85)}
    made.does_tuning_help(tmp_path / "b", after, {"full": 15, "precise": 20, "mlps": 19})
    found = Verdicts(tmp_path / "b")
    for key in ("as_much_as_full", "no_generic_loss", "full_tuning_loses", "tuning_is_faster"):
        assert found[key].judgement == "does not hold here"
    assert found["more_mlps_trade"].judgement == "does not hold here"
    assert found["tuning_few_heads_gains"].judgement == "not decided"


def test_a_single_seed_has_no_interval_of_its_speed(tmp_path: Path) -> None:
    after = {"full": (0.6, 0.9), "precise": (0.6, 0.9), "mlps": (0.6, 0.9)}
    made.does_tuning_help(tmp_path, after, {"full": 10, "precise": 50, "mlps": 19}, seeds=1)
    (finding,) = Verdicts(tmp_path)["tuning_is_faster"].findings
    number = finding.number
    assert (number.value, number.low, number.high) == (pytest.approx(5), None, None)


def test_another_model_has_to_show_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_numbers = 5 * len(FOUR) * 2  # of which each must be able to refute the claim
    monkeypatch.setattr("figures.tables.resampled.N_RESAMPLES", 20 * n_numbers)
    won = ["other"] * 3 + ["A", "B", "C±1", "C±1"] + ["C"] * 5
    curves = {"operands": UP_AND_DOWN, "C": RISING, "others": FALLING}
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for root in (here, elsewhere):
        for model in ("made", "second"):
            made.what_do_mlps_add(root, curves, won, model=model)
        made.which_heads(root, PLUS)
    alone = Verdicts(here)["repeats_in_another_model"]
    assert alone.judgement == "not measured" and "of another model" in alone.why
    second = made.which_heads(here, PLUS, model="second")
    both = Verdicts(here)["repeats_in_another_model"]
    assert both.judgement == "holds here" and both.findings[0].number.value == 5
    assert len(both.runs) == 6 and second.path in both.runs
    late = {(11, head): -0.2 for head in range(3)}
    made.which_heads(elsewhere, late, model="second")
    other = Verdicts(elsewhere)["repeats_in_another_model"]
    assert other.judgement == "does not hold here" and other.findings[0].number.value == 4
    assert "middle_layers: holds here, does" in other.measured


def test_heads_of_word_problems_alone_matter_there_and_nowhere_else(tmp_path: Path) -> None:
    theirs = {(4 + i // 8, i % 8): -0.1 for i in range(4, 14)}
    key = "word_problems_only-on-"
    for name, right, judgement in (
        ("a", {f"{key}word_problems": 0.5}, "not decided"),
        ("b", {f"{key}word_problems": 0.5, f"{key}generated": 0.5}, "does not hold here"),
        ("c", {}, "not decided"),  # 18 problems do not tell 0% from 10%
    ):
        made.word_problem_heads(tmp_path / name, theirs, right)
        found = Verdicts(tmp_path / name)["word_problems_have_heads_of_their_own"]
        assert found.judgement == judgement
        losses = [one.number.value for one in found.findings if one.rule]
        assert losses == pytest.approx(
            [right.get(f"{key}{on}", 1) - 1 for on in ("word_problems", "generated")], abs=0.03
        )


@pytest.mark.parametrize(
    ("numbers", "judgement"), [(0.98, "holds here"), (0.5, "does not hold here")]
)
def test_numbers_that_come_instead_are_counted(
    tmp_path: Path, numbers: float, judgement: str
) -> None:
    made.what_comes_instead(tmp_path, numbers)
    found = Verdicts(tmp_path)["numbers_come_instead"]
    assert found.judgement == judgement
    assert [finding.number.value for finding in found.findings] == pytest.approx([numbers, 0])


@pytest.mark.parametrize(("more", "judgement"), [(0.59, "holds here"), (0.7, "does not hold here")])
def test_more_heads_than_the_papers_share_are_compared_with_it(
    tmp_path: Path, more: float, judgement: str
) -> None:
    after = {"full": (0.6, 0.9), "precise": (0.6, 0.9), "mlps": (0.6, 0.9), "more": (more, 0.9)}
    made.does_tuning_help(tmp_path, after, dict.fromkeys(after, 10.0))
    found = Verdicts(tmp_path)["more_heads_level_off"]
    assert found.judgement == judgement
    assert found.findings[0].number.value == pytest.approx(more - 0.6)
    assert found.findings[0].label.startswith("6 heads less 3")


def test_null_words_are_compared_with_random_halves(tmp_path: Path) -> None:
    made.which_heads(tmp_path, PLUS, noise=1e-4)
    found = Verdicts(tmp_path)["null_word_does_not_matter"]
    assert len([one for one in found.findings if one.rule]) == 4
    assert {one.claim.lens for one in [found]} == {"word, raw logit"}
