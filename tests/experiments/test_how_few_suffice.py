"""How few heads suffice after examples: from the experiment's configuration to its figure."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.drawings import written

import arith_lens as al
from arith_lens.pairs import Role
from arith_lens.runs import Run, find_runs
from experiments import how_few_suffice as experiment
from experiments import results
from experiments.how_few_suffice import CASES, OPERANDS, how_few_suffice
from figures.common import Options
from figures.exhibit import show
from figures.few_heads import few_heads
from figures.tables import few_heads as numbers
from figures.tables.table import from_csv, records, select, value

TIMES = "multiplication"
SMALL = how_few_suffice.config(
    cases=(TIMES, "multiplication_two_digits"), exemplar_sets=1, controls=2, attended=3
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("results")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        how_few_suffice(SMALL, root=root)
    (run,) = find_runs("how_few_suffice", root=root)
    return run


def test_kept_orders_are_what_keep_only_keeps(run: Run) -> None:
    model = al.load_model("reference")
    chosen_on, drawn_on = experiment.case_halves(model, SMALL, TIMES, OPERANDS)
    assert not {*chosen_on.problem} & {*drawn_on.problem}
    kept = results.KEPT_ORDERS.load(run, TIMES, OPERANDS)
    for label in ("effect", "random-1", "matched-0"):
        order = kept[label].order[::-1]
        alone = al.keep_only(model, drawn_on, order[:5], positions="end", progress=False)
        assert torch.equal(kept[label].at(96 - 5).correct, alone.correct)
        assert torch.allclose(kept[label].at(96 - 5).probability, alone.probability, atol=1e-5)
    curve = results.CIRCUIT_CURVE.load(run, TIMES, "heads", "end", "keep_only", OPERANDS)
    strongest = results.COUNTERFACTUAL_MAP.load(run, TIMES, OPERANDS).heads.top(96)
    assert [*curve.order] == [*kept["effect"].order[::-1]] == strongest
    matched = kept["matched-0"].order[::-1][:14]
    assert not {*matched} & {*strongest[:14]}
    near = [abs(a.layer - b.layer) for a, b in zip(matched, strongest, strict=False)]
    assert max(near) <= 1


def test_larger_numbers_are_what_they_say() -> None:
    model = al.load_model("reference")
    products = CASES["multiplication_two_digits"].pairs(model, OPERANDS, 0).to_dataframe()
    quotients = CASES["division_two_digits"].pairs(model, OPERANDS, 0).to_dataframe()
    assert (products.a * products.b >= 10).all() and products.a.min() == products.b.min() == 2
    assert [*products.answer] == [
        str(a * b)[0] for a, b in zip(products.a, products.b, strict=True)
    ]
    assert {*zip(quotients.a, quotients.b, strict=True)} == {
        (a * b, b) for a in range(2, 10) for b in range(2, 10) if a * b > 9
    }


def test_the_parts_of_examples_are_their_tokens() -> None:
    model = al.load_model("reference")
    pairs = CASES["division"].pairs(model, OPERANDS, 0)[3:5]
    masks = experiment.example_masks(model, pairs)
    assert torch.equal(torch.stack([*masks.values()]).sum(0).bool(), pairs.role_mask(Role.EXAMPLES))
    assert pairs.examples is not None
    for row, text in enumerate(pairs.examples):
        numbers_of = [
            line.replace(" / ", " ").replace(" = ", " ").split() for line in text.split("\n")
        ]
        operands = [number for a, b, _ in filter(None, numbers_of) for number in (a, b)]
        answers = [c for _, _, c in filter(None, numbers_of)]
        for part, expected in (
            ("operands", operands),
            ("answers", answers),
            ("operators", ["/"] * 4),
        ):
            chosen = pairs.reference[row][masks[f"examples' {part}"][row]].tolist()
            texts = [model.tokenizer.decode([token]).strip() for token in chosen]
            assert [one for one in texts if one] == expected, part


def test_changes_of_the_examples_leave_the_problem(run: Run) -> None:
    model, case = al.load_model("reference"), CASES[TIMES]
    pairs = case.pairs(model, OPERANDS, 0)[3:4]
    own = ~pairs.role_mask(Role.EXAMPLES)
    texts = {}
    for change in experiment.EXAMPLE_CHANGES:
        changed = experiment.changed_examples(model, pairs, case, change)
        assert torch.equal(changed.counterfactual[own], pairs.reference[own])
        assert (changed.counterfactual_answer == -1).all()
        texts[change] = model.tokenizer.decode(changed.counterfactual[0]).split(" ", 1)[1]
    assert texts["answers"].startswith("2 * 4 = 6\n1 * 6 = 3\n1 * 3 = 9\n9 * 1 = 8\n")
    assert texts["operator"].startswith("2 + 4 = 8\n1 + 6 = 6\n")
    lines = texts["operation"].splitlines()[:-1]
    sums = [(int(line[0]) + int(line[4]), int(line[8])) for line in lines]
    assert len(sums) == 4 and all(a == b for a, b in sums) and 4 not in dict(sums)
    swapped = results.EXAMPLE_SWAP.load(run, TIMES, "operation")
    drawn = experiment.case_halves(model, SMALL, TIMES, OPERANDS)[1]
    changed = experiment.changed_examples(model, drawn, case, "operation")
    logits = model(changed.counterfactual, attention_mask=changed.attention_mask)
    assert swapped.correct.tolist() == (logits[:, -1].argmax(-1) == drawn.answer).tolist()
    with pytest.raises(ValueError, match="as many tokens as before"):
        longer = replace(drawn, examples=tuple(f"1{text}" for text in drawn.examples or ()))
        experiment.changed_examples(model, longer, case, "operator")


def test_the_figure_and_the_table_show_the_run(run: Run, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("figures.tables.agreement.N_RESAMPLES", 50)
        show(few_heads, Options(run=run.path, out=tmp_path, formats=()))
    table = from_csv(written(tmp_path, "few_heads.csv").read_text())
    curve = results.CIRCUIT_CURVE.load(run, TIMES, "heads", "end", "keep_only", OPERANDS)
    kept = results.KEPT_ORDERS.load(run, TIMES, OPERANDS)
    keys = {"case": TIMES, "counterfactual": OPERANDS, "order": "effect"}
    right = select(table, measure=numbers.ACCURACY, **keys).sort_values("k")
    assert np.allclose(right.value, curve.accuracy(), atol=1e-4), "two ways to the same accuracy"
    faithful = select(table, measure=numbers.FAITHFULNESS, **keys).sort_values("k")
    assert np.allclose(faithful.value, curve.faithfulness(), atol=1e-4)
    random = [kept[f"random-{seed}"].at(96 - 5).accuracy() for seed in (0, 1)]
    drawn = keys | {"order": "random", "k": 5}
    assert value(table, measure=numbers.ACCURACY, **drawn) == pytest.approx(
        np.mean(random), rel=1e-4
    )
    above = sum(one >= float(curve.accuracy()[5]) for one in random)
    assert value(table, measure=numbers.REACHED, **drawn) == above
    answers = kept["effect"].at(0).correct.sum()
    most = max(table[(table.measure == numbers.BASE_RATE) & (table.case == TIMES)].value)
    assert 0 < most < 0.5 and answers == curve.correct.shape[1]
    shares = select(table, measure=numbers.ATTENTION, case=TIMES, component="")
    assert shares.value.sum() == pytest.approx(1, abs=1e-4)
    outcomes = {one.measure: one for one in records(table) if one.prediction}
    few = outcomes["faithfulness, operands, 3 heads"]
    assert few.value == pytest.approx(float(curve.faithfulness()[3]), rel=1e-4)
    assert few.verdict in ("holds here", "does not hold here", "not decided")
    assert {name[:3] for name in table.prediction if name} == {
        "P10",
        "P11",
        "P13",
        "P14",
        "P16",
        "P17",
    }
    page = written(tmp_path, "few_heads.html").read_text("utf-8")
    assert "near layers" in page and "base rate" in page


def test_shares_of_attention_are_of_what_counts() -> None:
    weights = torch.tensor([[0.5, 0.3, 0.1, 0.1]])[..., None].repeat(2, 1, 4)
    groups = ("BOS", "operand A", "examples' answers", "END")
    labels = {"head": ("0.0", "0.1"), "group": groups}
    units = {"problem": tuple("abcd"), "cluster": torch.arange(4)}
    looks = al.Effects(weights, ("head", "group"), "attention", labels=labels, **units)
    assert numbers.attention_share(looks, ["operand A"])[0] == pytest.approx(0.6)
    among = ["examples' answers", "END"]
    share, draws = numbers.attention_share(looks, ["END"], among=among)
    assert share == pytest.approx(0.5) and np.allclose(draws, 0.5)
