"""Lenses from the configuration to a card: numbers by hand, rules, words and a picture."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import arith_lens as al
from arith_lens.knockout import knock_out
from arith_lens.runs import find_runs
from experiments import lenses, results
from experiments.lenses import LensesConfig, main, sampled_pairs
from figures.exhibit import show
from figures.lenses import exhibits
from figures.options import Options
from figures.tables.conclusions import CONCLUSIONS, Conclusion, in_words, lens_verdict
from figures.tables.lenses import NO_OTHER, Lens, table
from figures.tables.number import Number
from figures.tables.table import from_csv, select, value

CONFIG = LensesConfig(
    operations=("addition",),
    counterfactuals=("word", "operands"),
    metrics=("relative_logit", "interchange"),
    templates=("symbols",),
    drawn=18,
    approximated=6,
    tested=6,
    carried=4,
    controls=2,
)
LAST = al.Mlp(11)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of a trained model with few approximations."""
    root = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lenses, "METHODS", ("atp", "relp"))
        patch.setattr(lenses, "SIZES", {name: (5, 10, 14) for name in lenses.SIZES})
        main(CONFIG, root=root)
    (stored,) = find_runs("lenses", root=root)
    return stored


def test_the_last_mlp_alone_is_knocked_out_by_other_means(run: Any) -> None:
    """The share that answers C', from `knock_out` on the same pairs."""
    pairs = sampled_pairs(
        al.load_model("reference"), CONFIG, "addition", "operands", keep="correct"
    )
    model = al.load_model("reference")
    options: dict[str, Any] = {"ablation": "counterfactual", "positions": "end"}
    outcomes = knock_out(model, pairs, [LAST], **options)
    rows = table(run)
    keys = {"counterfactual": "operands", "metric": "answer", "operation": "addition"}
    other = rows.number(
        "answered C' when the last MLP alone is exchanged", conclusion="last_mlp_other", **keys
    )
    assert other.value == pytest.approx(outcomes.other_share()) and other.value > 0.5
    still = rows.number(
        "still answered C when the last MLP alone is exchanged",
        conclusion="last_mlp_answer",
        **keys,
    )
    assert still.value == pytest.approx(outcomes.accuracy())


def test_numbers_of_heads_are_those_by_hand(run: Any) -> None:
    lens = Lens(run, "addition", "operands", "relative_logit")
    whole, means = lens.whole().mean(), lens.effects.heads.mean()
    rows = table(run)
    keys = {"counterfactual": "operands", "metric": "relative_logit", "operation": "addition"}
    (few,) = rows.select(conclusion="few_heads", **keys)
    assert few.number.value == pytest.approx(float((means / whole >= 0.05).double().mean()))
    (late,) = rows.select(conclusion="late_heads", **keys)
    five: Any = lens.effects.heads.top(5)
    assert late.number.value == pytest.approx(np.mean([head.layer / 11 for head in five]))
    papers: Any = Lens(run, "addition", "word", "relative_logit").effects.heads.top(5)
    (same,) = rows.select(conclusion="same_heads", **keys)
    assert same.number.value == pytest.approx(len({*five} & {*papers}) / 5)
    exact = results.NODES.load(run, *lens.key)
    some = lenses.graded_pairs(exact.heads.n_pairs, run.config)
    scores = results.LENS_SCORES.load(run, *lens.key, "relp")
    assert scores.heads.problem == exact.heads.select(some).problem
    both = torch.stack([scores.heads.mean(), exact.heads.select(some).mean()]).flatten(1)
    (grade,) = rows.select("pearson", conclusion="", method="relp", part="heads", **keys)
    assert grade.number.value == pytest.approx(float(torch.corrcoef(both)[0, 1]), abs=1e-4)


def test_the_whole_prompt_is_what_path_patching_calls_the_total(run: Any) -> None:
    """From shares of the total, which path patching computes itself."""
    model = al.load_model("reference")
    pairs = sampled_pairs(model, CONFIG, "addition", "operands", keep="correct")
    shares = al.path_patch(model, pairs, metric="share_of_total", senders=[LAST], progress=False)
    lens = Lens(run, "addition", "operands", "relative_logit")
    effects = results.NODES.load(run, *lens.key).mlps.per_pair[-1]
    assert_close(lens.whole(), effects / shares.mlps.per_pair[-1], atol=1e-3, rtol=1e-3)


def test_what_does_not_exist_is_a_gap_with_a_reason(run: Any) -> None:
    rows = table(run)
    gaps = [*rows.select(counterfactual="word", metric="interchange")]
    assert gaps and all(one.keys["reason"] == NO_OTHER for one in gaps)
    assert all(np.isnan(one.number.value) and one.keys["verdict"] == "" for one in gaps)
    left_out = [*rows.select(conclusion="ig_best", counterfactual="operands")]
    assert {one.keys["reason"] for one in left_out} == {"the run has no such result"}
    known = [one for one in rows.rows if one.keys["conclusion"] and not one.keys["reason"]]
    assert all(np.isfinite(one.number.value) for one in known)
    assert {one.keys["conclusion"] for one in known} == {
        one.key for one in CONCLUSIONS if one.key not in ("ig_best", "relp_over_eap_ig")
    }


def test_the_card_is_said_from_its_rows(run: Any, tmp_path: Path) -> None:
    show(exhibits, Options(run=run.path, out=tmp_path, formats=()))
    (card,) = tmp_path.glob("*.csv")
    frame: Any = from_csv(card.read_text(encoding="utf-8"))
    own: Any = select(
        frame, conclusion="last_mlp_other", operation="all", counterfactual="operands"
    )
    assert own["verdict"].tolist() == ["holds"]
    keys = {"conclusion": "last_mlp_other", "counterfactual": "operands"}
    alone = value(frame, operation="addition", **keys)
    assert value(frame, operation="all", **keys) == pytest.approx(alone)
    (page,) = tmp_path.glob("lenses-*.html")
    text = page.read_text(encoding="utf-8").replace("−", "-")
    assert all(one.sentence.replace("`", "").split("'")[0] in text for one in CONCLUSIONS)


def test_a_verdict_needs_the_whole_interval_on_one_side() -> None:
    above = Conclusion("a", "A.", "share", 0.5, "above")
    below = Conclusion("b", "B.", "share", 0.5, "below")
    cases = {
        (0.8, 0.6, 0.9): ("holds", "opposite"),
        (0.2, 0.1, 0.4): ("opposite", "holds"),
        (0.6, 0.5, 0.7): ("not decided", "not decided"),
        (float("nan"), None, None): ("", ""),
        (0.9, None, None): ("", ""),
    }
    for (mean, low, high), verdicts in cases.items():
        number = Number(mean, low, high)
        assert (above.verdict(number), below.verdict(number)) == verdicts
    assert lens_verdict(["holds", "", "holds"]) == "holds"
    assert lens_verdict(["holds", "opposite"]) == "not decided"
    assert lens_verdict(["", ""]) == ""


def test_words_name_the_lenses_unless_all_agree() -> None:
    assert in_words({"a": "holds", "b": "holds", "c": ""}) == "holds under all 2 lenses"
    assert in_words({"a": "holds"}) == "holds under the one lens (a)"
    mixed = in_words({"a": "holds", "b": "opposite", "c": "not decided"})
    assert mixed == (
        "holds under 1 (a), the opposite holds under 1 (b), is not decided, or differs between "
        "operations, under 1 (c)"
    )
    assert in_words({"a": ""}) == "has no number"
