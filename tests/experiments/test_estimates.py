"""Times of plans: operations divided by the measured rate of products, in readable units."""

from typing import Any

import pytest

import arith_lens as al
from arith_lens.path_patching import cost
from experiments.settings import plan_maps


@pytest.mark.parametrize(
    "flops, text",
    [
        (1e11, "1 to 4 s here"),
        (1.1e13, "110 to 440 s here"),
        (3e13, "5 to 20 min here"),
        (1.8e15, "5 to 20 h here"),
    ],
)
def test_a_time_is_a_range_in_readable_units(flops: float, text: str) -> None:
    """At 1e11 operations a second; path patching of small models reaches a quarter of it."""
    assert cost.time_text(flops, 1e11) == text


def test_the_rate_is_that_of_the_fastest_product(
    llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter([0.0, 3.0, 10.0, 10.5, 20.0, 22.0])
    monkeypatch.setattr(cost.time, "perf_counter", lambda: next(moments))
    assert cost.matrix_rate(llama) == 2 * 64 * llama.cfg.d_model * llama.cfg.d_mlp / 0.5


def test_a_plan_ends_with_the_time_of_all_its_lines(llama: Any) -> None:
    pairs = al.sample_pairs(llama, "addition", n=4, keep="all")
    lines = plan_maps(llama, [("addition", pairs), ("again", pairs)]).splitlines()
    names = [line.partition(":")[0] for line in lines]
    assert names == ["addition", "again", "path patching in all"]
    assert all(" s here" in line for line in lines)
