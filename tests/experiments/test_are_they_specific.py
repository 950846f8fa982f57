"""Few heads out, as many others out, late MLPs out, plain sentences: from settings to outcomes."""

import warnings
from pathlib import Path

import pytest
import torch
from torch.nn.functional import kl_div
from torch.testing import assert_close

import arith_lens as al
from arith_lens.benchmarks import load_records
from arith_lens.components import Head, Mlp
from arith_lens.knockout import counterfactual_means, halves, knockout_hooks
from arith_lens.runs import Run, find_runs
from experiments import are_they_specific, results
from experiments.selection import LARGEST_OPERAND
from figures.tables import predictions

DATA = Path(__file__).parents[1] / "data"
SMALL = are_they_specific.SpecificityConfig(
    operations=("multiplication",),
    templates=("symbols",),
    data_dir=DATA,
    heads=3,
    controls=2,
    computed=12,
    sentences=2,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setitem(LARGEST_OPERAND, "multiplication", 10)
        warnings.simplefilter("ignore")  # so few prompts that some means are of one
        are_they_specific.main(SMALL, root=root)
    (run,) = find_runs("are_they_specific", root=root)
    return run


def curve(run: Run, label: str, among: str = "mlps", positions: str = "all") -> al.CircuitCurve:
    return results.CIRCUIT_CURVE.load(run, "multiplication", among, positions, "knock_out", label)


def test_heads_of_one_half_are_knocked_out_on_the_other(run: Run) -> None:
    strongest = curve(run, "strongest", "heads")
    model = al.load_model("reference")
    pairs = al.sample_pairs(model, "multiplication", templates="symbols", counterfactual="operands")
    first, second = halves(pairs)
    effects = al.path_patch(model, first, metric="digit_contrast", progress=False)
    assert [*strongest.order[:3]] == effects.heads.top(3) and strongest.sizes == (0, 3, 96)
    assert strongest.problem == second.problem
    out = al.knock_out(model, second, strongest.order[:3], progress=False)
    assert torch.equal(strongest.correct[1], out.correct) and bool(strongest.correct[0].all())
    assert not torch.allclose(strongest.value[0], strongest.value[1]), "it must be able to fail"


def test_mlps_after_the_last_of_the_heads_are_knocked_out(run: Run) -> None:
    last = max(head.layer for head in curve(run, "strongest", "heads").order[:3])
    for label in ("late", "late-on-computed"):
        late = curve(run, label)
        assert [*late.order[: late.sizes[1]]] == [Mlp(layer) for layer in range(last, 12)]
    late, at_end = curve(run, "late"), curve(run, "late", positions="end")
    assert at_end.positions == "end" and not torch.equal(late.value, at_end.value)
    name = "multiplication", "mlps", "all", "knock_out", "late-on-computed"
    computed = results.CIRCUIT_CURVE.computed(run, *name)
    assert computed is not None and bool(computed.all())


def test_controls_are_other_heads_of_the_same_layers(run: Run) -> None:
    strongest = curve(run, "strongest", "heads").order[:3]
    controls = results.CONTROL_CURVES.load(run, "multiplication")
    assert [*controls] == ["matched 0", "matched 1"]
    for control in controls.values():
        assert not {*control.order} & {*strongest} and control.ks == (0, 3)
        layers = [sorted(one.layer for one in some) for some in (control.order, strongest)]
        assert layers[0] == layers[1]


def test_the_divergence_is_that_of_whole_distributions(run: Run) -> None:
    divergence = results.DIVERGENCE.load(run, "multiplication")
    assert (divergence.labels or {})["set"] == ("strongest", "matched 0")
    model = al.load_model("reference")
    pairs = al.sample_pairs(model, "multiplication", templates="symbols", counterfactual="operands")
    heads = [head for head in curve(run, "strongest", "heads").order[:3] if isinstance(head, Head)]
    hooks = knockout_hooks(model, heads, counterfactual_means(model, halves(pairs)[1]))
    known = {record.question for record in load_records("csqa", DATA)}
    for at, sentence in enumerate(divergence.problem or ()):
        assert sentence in known
        tokens = torch.tensor([model.tokenizer(sentence)["input_ids"]])
        with torch.no_grad():
            before = model(tokens).log_softmax(-1)
            after = model.run_with_hooks(tokens, fwd_hooks=hooks).log_softmax(-1)
        expected = kl_div(after, before, log_target=True, reduction="sum") / tokens.shape[1]
        assert_close(divergence.per_pair[0, at], expected, rtol=1e-3, atol=1e-5)
        assert float(expected) > 1e-3, "it must be able to fail"


def test_outcomes_of_predictions_are_their_numbers_by_hand(run: Run) -> None:
    outcomes = [*predictions.specific(run, ["multiplication"])]
    strongest, controls = curve(run, "strongest", "heads"), results.CONTROL_CURVES.load(
        run, "multiplication"
    )  # fmt: skip
    lost = 1 - strongest.correct[1].float().mean() / strongest.correct[0].float().mean()
    assert outcomes[0].number.value == pytest.approx(float(lost))
    contrast = 1 - strongest.value[1].mean() / strongest.value[0].mean()
    assert outcomes[1].number.value == pytest.approx(float(contrast), abs=1e-5)
    assert "digit_contrast" in outcomes[1].measure
    points = [float(one.accuracy()[0] - one.accuracy()[1]) for one in controls.values()]
    assert outcomes[2].number.value == pytest.approx(sum(points) / 2, abs=1e-6)
    assert "2 plain sentences" in outcomes[3].measure
    late = [*predictions.late_mlps(run, ["multiplication"])]
    assert len(late) == 4 and "computed problems" in late[0].measure
