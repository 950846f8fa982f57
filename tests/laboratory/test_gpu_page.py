"""The numbers on GPUs are those of the tables that the benchmarks wrote."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
GIB = 1 << 30
WAYS = {
    "nnsight, a trace a sender": "nnsight, one trace per sender",
    "sweep, with its certificate": "sweep, with its certificate",
    "sweep": "**sweep**",
}
"""The benchmark's names, and the page's."""
SIZES = ("tiny", "middle", "wide")


def table(name: str) -> Any:
    return pd.read_csv(ROOT / "laboratory" / "speed" / "h200" / f"{name}.csv")


def scale_lines() -> list[str]:
    (work,) = table("llama-7b").itertuples()
    each = work.seconds / work.n_pairs
    share = work.flops / work.rate / work.seconds
    return [
        f"| time | {work.seconds:.1f} s, {1000 * each:.1f} ms per pair |",
        f"| {work.rate / 1e12:.0f} TFLOP/s |",
        f"| share of it, certificate included | {share:.0%} |",
        f"| {work.peak_bytes / GIB:.2f} GiB (planned: {work.planned_bytes / GIB:.2f} GiB) |",
        f"takes {work.seconds:.0f} s [on a GPU](#on-a-gpu)",
    ]


def ways_lines() -> list[str]:
    by_way = {size: own.set_index("method") for size, own in table("rivals").groupby("size")}
    ratios = {size: by_way[size]["ratio"] for size in SIZES}
    cells = (
        (name, " | ".join(f"{ratios[size][way]:.1f}x" for size in SIZES))
        for way, name in WAYS.items()
    )
    return [
        *(f"| {name} | {numbers} |" for name, numbers in cells),
    ]


def tuning_lines() -> list[str]:
    speed, memory = table("tuning").set_index("method"), table("tuning-memory")
    peaks = memory.set_index(["method", "recompute"])["peak_bytes"]
    names = {"full": "full", "lora": "LoRA, rank 64", "precise": "**precise**, 32 heads"}
    lines = []
    for method, name in names.items():
        row = speed.loc[method]
        sizes = [peaks[method, recompute] for recompute in ("no", "yes")]
        texts = ["does not fit" if pd.isna(b) else f"{b / GIB:.1f} GiB" for b in sizes]
        ratio = f"{row['samples_per_second']:.1f} | {row['ratio']:.2f}"
        lines.append(f"| {name} | {ratio} | {' | '.join(texts)} |")
    full, precise = speed.loc["full"], speed.loc["precise"]
    update = full["update_seconds"] / (full["update_seconds"] + full["gradient_seconds"])
    alone = full["gradient_seconds"] / precise["gradient_seconds"]
    return [
        *lines,
        f"is {update:.0%} of a step of full tuning",
        f"precise tuning is {alone:.2f} times as fast as full",
    ]


@pytest.mark.parametrize("lines", [scale_lines, ways_lines, tuning_lines])
def test_the_page_has_the_numbers_of_the_tables(lines: Any) -> None:
    expected = lines()
    page = " ".join(PAGE.split())
    assert [line for line in expected if " ".join(line.split()) not in page] == []
    other = expected[0].translate(str.maketrans("0123456789", "1234567890"))
    assert " ".join(other.split()) not in page, "the test can fail"
