"""Training the reference: batches by step, weight on answers, a killed run goes on unharmed."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from laboratory import training
from laboratory.training import (
    Recipe,
    rate_at,
    train_reference_model,
    training_batch,
)

TINY = Recipe(
    steps=4,
    rows=2,
    length=48,
    n_layers=1,
    n_heads=2,
    d_model=16,
    d_mlp=16,
    save_every=2,
    compile=False,
)


@pytest.fixture(autouse=True)
def small_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "TOKENIZER_DOCUMENTS", 300)


def test_a_killed_run_ends_with_the_weights_of_an_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train_reference_model(replace(TINY, output=tmp_path / "whole"))
    broken = replace(TINY, output=tmp_path / "broken")
    log = training._log

    def die_in_step_3(config: Recipe, step: int, loss: torch.Tensor) -> None:
        if step == 3:
            raise KeyboardInterrupt
        log(config, step, loss)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(training, "_log", die_in_step_3)
        train_reference_model(broken)
    again = train_reference_model(broken)
    expected, actual = (load_file(f / "model.safetensors") for f in (whole, again))
    assert all(torch.equal(expected[name], actual[name]) for name in expected)
    with pytest.raises(ValueError, match="another recipe"):
        train_reference_model(replace(broken, rate=1.0))


def test_a_batch_follows_from_seed_and_step_alone_and_weighs_answers(tmp_path: Path) -> None:
    config = replace(TINY, output=tmp_path, rows=16, length=128)
    tokenizer = training._tokenizer(config)
    tokens, weights = training_batch(tokenizer, config, 5)
    again, _ = training_batch(tokenizer, config, 5)
    other, _ = training_batch(tokenizer, config, 6)
    assert torch.equal(tokens, again)
    assert not torch.equal(tokens, other)
    assert (tokens[:, 0] == 1).all(), "a row starts with BOS"
    answers = [str(tokenizer.id_to_token(i)) for i in tokens[weights == 1].tolist()]
    assert sum(piece.isdigit() for piece in answers) > len(answers) / 2
    assert (weights[tokens == 1] == 0).all()


def test_the_rate_warms_up_and_falls_to_a_twentieth() -> None:
    config = Recipe()
    rates = [rate_at(config, step) for step in range(config.steps)]
    assert max(rates) == pytest.approx(config.rate)
    assert rates.index(max(rates)) <= config.warm_up
    assert rates[-1] == pytest.approx(config.rate * config.last_rate, rel=0.01)
