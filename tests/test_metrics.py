"""Metrics: each against its definition over whole rows of logits."""

import pytest
import torch
from torch.testing import assert_close

from arith_lens.metrics import METRICS, SMALL_TOTAL, Readout, Targets, get_metric, read_logits
from arith_lens.pairs import PromptPairs

GENERATOR = torch.Generator().manual_seed(0)
REFERENCE = 3 * torch.randn(4, 11, generator=GENERATOR)
PATCHED = 3 * torch.randn(4, 11, generator=GENERATOR)
COUNTERFACTUAL = 3 * torch.randn(4, 11, generator=GENERATOR)
CANDIDATES = torch.tensor([0, 1, 2, 9, 10])
ANSWER = torch.tensor([1, 7, 0, 10])
FOIL = torch.tensor([2, 2, 2, 2])
OTHER = torch.tensor([4, 5, -1, 10])  # pair 2 has no other answer, pair 3 the same one
ROWS = torch.arange(4)
PAIRS = PromptPairs.from_tokens(
    torch.ones(4, 2, dtype=torch.long),
    torch.ones(4, 2, dtype=torch.long),
    ANSWER,
    counterfactual_answer=OTHER,
)


def read_of(logits: torch.Tensor, name: str) -> Readout:
    targets = Targets.of(PAIRS, METRICS[name].reads, foil=FOIL, candidates=CANDIDATES)
    return read_logits(logits, targets)


def effect(name: str) -> torch.Tensor:
    runs = (PATCHED, REFERENCE, COUNTERFACTUAL)
    return METRICS[name].effect(*(read_of(run, name) for run in runs))


def test_relative_logit_leaves_out_pairs_whose_logit_is_not_positive() -> None:
    patched, reference = PATCHED[ROWS, ANSWER], REFERENCE[ROWS, ANSWER]
    out = reference <= 0
    assert out.any() and not out.all()
    assert torch.equal(effect("relative_logit").isnan(), out)
    assert_close(effect("relative_logit")[~out], (patched / reference - 1)[~out])


def test_the_others_are_differences_of_what_they_name() -> None:
    expected = {
        "logit": lambda logits: logits[ROWS, ANSWER],
        "logprob": lambda logits: logits.log_softmax(-1)[ROWS, ANSWER],
        "probability": lambda logits: logits.softmax(-1)[ROWS, ANSWER],
        "logit_difference": lambda logits: logits[ROWS, ANSWER] - logits[ROWS, FOIL],
        "digit_contrast": contrast_by_hand,
    }
    shares = {name for name in METRICS if METRICS[name].share_of}
    assert set(expected) == set(METRICS) - shares - {"answers_other"}
    for name, read in expected.items():
        assert_close(effect(name), read(PATCHED) - read(REFERENCE))


def contrast_by_hand(logits: torch.Tensor) -> torch.Tensor:
    """Pair 1 has an answer that is no candidate: all candidates are set against it."""
    rows = []
    for row, answer in zip(logits, ANSWER.tolist(), strict=True):
        others = [token for token in CANDIDATES.tolist() if token != answer]
        rows.append(row[answer] - row[others].mean())
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("share_of_total", lambda logits: logits[ROWS, ANSWER]),
        ("share_of_total_contrast", contrast_by_hand),
        ("share_of_total_probability", lambda logits: logits.softmax(-1)[ROWS, ANSWER]),
    ],
)
def test_a_share_of_the_total_is_one_where_the_whole_prompt_is_replaced(name, read) -> None:
    total = read(COUNTERFACTUAL) - read(REFERENCE)
    small = total.abs() < SMALL_TOTAL
    expected = (read(PATCHED) - read(REFERENCE)) / total
    assert_close(effect(name)[~small], expected[~small])
    assert torch.equal(effect(name).isnan(), small)
    assert small.any() == (name == "share_of_total_probability"), "some are left out in one case"
    readouts = [read_of(run, name) for run in (COUNTERFACTUAL, REFERENCE)]
    whole = METRICS[name].effect(readouts[0], readouts[1], readouts[0])
    assert_close(whole[~small], torch.ones(int((~small).sum())))
    nothing = METRICS[name].effect(readouts[1], readouts[1], readouts[0])
    assert not nothing[~small].any()


def test_an_interchange_is_a_share_of_what_the_whole_prompt_exchanges() -> None:
    def over_answer(logits: torch.Tensor) -> torch.Tensor:
        return logits[[0, 1], OTHER[:2]] - logits[[0, 1], ANSWER[:2]]

    total = over_answer(COUNTERFACTUAL) - over_answer(REFERENCE)
    assert (total.abs() > SMALL_TOTAL).all()
    expected = (over_answer(PATCHED) - over_answer(REFERENCE)) / total
    assert_close(effect("interchange")[:2], expected)
    assert effect("interchange").isnan().tolist() == [False, False, True, True]


def test_answers_other_is_whether_the_likeliest_token_becomes_the_other_answer() -> None:
    patched, reference = torch.zeros(4, 11), torch.zeros(4, 11)
    patched[ROWS, [4, 1, 3, 10]] = 2  # pair 0 answers C', pair 1 does not
    reference[ROWS, [1, 5, 0, 10]] = 2  # pair 1 answered C' already
    before, after = (read_of(run, "answers_other") for run in (reference, patched))
    found = METRICS["answers_other"].effect(after, before)
    assert_close(found, torch.tensor([1.0, -1.0, torch.nan, torch.nan]), equal_nan=True)


def test_a_pair_without_a_share_has_a_gradient_of_zero() -> None:
    """Else the NaN of one pair would reach the scores of all."""
    logits = REFERENCE.clone().requires_grad_()
    found = METRICS["interchange"].effect(
        read_of(logits, "interchange"),
        read_of(REFERENCE, "interchange"),
        read_of(COUNTERFACTUAL, "interchange"),
    )
    found.sum().backward()
    assert logits.grad is not None and logits.grad.isfinite().all()
    assert logits.grad[:2].abs().sum() > 0 and not logits.grad[2:].any()


def test_a_rise_of_all_candidates_does_not_move_the_contrast() -> None:
    raised = REFERENCE.clone()
    raised[:, CANDIDATES] += 5
    readouts = [
        read_logits(run, Targets(ANSWER[:1], candidates=CANDIDATES))
        for run in (raised[:1], REFERENCE[:1])
    ]
    assert_close(METRICS["digit_contrast"].effect(*readouts), torch.zeros(1), atol=1e-6, rtol=0)
    assert float(METRICS["logit"].effect(*readouts)) == pytest.approx(5)


def test_a_reading_of_half_precision_logits_is_float32() -> None:
    assert read_logits(REFERENCE.bfloat16(), Targets(ANSWER)).answer.dtype == torch.float32


def test_unknown_metrics_and_foils_amiss_are_refused() -> None:
    with pytest.raises(ValueError, match="relative_logit"):
        get_metric("accuracy")
    with pytest.raises(ValueError, match="foil"):
        get_metric("logit_difference")
    with pytest.raises(ValueError, match="foil"):
        get_metric("logit", FOIL)
