"""Metrics: each against its definition over whole rows of logits."""

import pytest
import torch
from torch.testing import assert_close

from arith_lens.metrics import METRICS, get_metric, read_logits

GENERATOR = torch.Generator().manual_seed(0)
REFERENCE = 3 * torch.randn(4, 11, generator=GENERATOR)
PATCHED = 3 * torch.randn(4, 11, generator=GENERATOR)
ANSWER = torch.tensor([1, 7, 0, 10])
FOIL = torch.tensor([2, 2, 2, 2])
ROWS = torch.arange(4)


def effect(name: str) -> torch.Tensor:
    readouts = (read_logits(logits, ANSWER, FOIL) for logits in (PATCHED, REFERENCE))
    return METRICS[name].effect(*readouts)


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
    }
    assert set(expected) == set(METRICS) - {"relative_logit"}
    for name, read in expected.items():
        assert_close(effect(name), read(PATCHED) - read(REFERENCE))


def test_a_reading_of_half_precision_logits_is_float32() -> None:
    assert read_logits(REFERENCE.bfloat16(), ANSWER).answer.dtype == torch.float32


def test_unknown_metrics_and_foils_amiss_are_refused() -> None:
    with pytest.raises(ValueError, match="relative_logit"):
        get_metric("accuracy")
    with pytest.raises(ValueError, match="foil"):
        get_metric("logit_difference")
    with pytest.raises(ValueError, match="foil"):
        get_metric("logit", FOIL)
