"""The benchmark's rivals compute the same numbers, so that only their times differ."""

import copy

import pytest
import torch

from arith_lens import load_model
from experiments import benchmark


def test_every_method_computes_the_same_effects() -> None:
    config = benchmark.Config(
        n_layers=2, d_model=32, n_heads=4, d_mlp=64, d_vocab=100, n_pairs=3, n_tokens=6
    )
    raw, pairs = benchmark.random_llama(config), benchmark.random_pairs(config)
    model = load_model((copy.deepcopy(raw), benchmark.any_tokenizer()))
    expected = benchmark.forward_a_component(raw, pairs)
    assert expected.shape == (2 * 4 + 2, 3)
    for effects in (
        benchmark.by_hooks(model, pairs),
        benchmark.end_only(model, pairs),
        benchmark.by_sweep(model, pairs, certify=True),
    ):
        torch.testing.assert_close(effects, expected, atol=1e-5, rtol=1e-4)
    assert expected.abs().max() > 1e-3, "the test must be able to fail"


def test_the_table_has_ratios_and_differences(capsys: pytest.CaptureFixture[str]) -> None:
    ones = torch.ones(2, 3)
    slow, quick = benchmark.Timing(8.0, 6.0, ones), benchmark.Timing(1.0, 0.5, ones + 0.25)
    benchmark.print_table({"slow": slow, "quick": quick})
    printed = capsys.readouterr().out
    assert "12.0x" in printed
    assert "2.5e-01" in printed
