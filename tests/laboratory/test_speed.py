"""The benchmark's ways compute the same numbers, at the cost it predicts, and it says where not."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas
import pytest
import torch

from arith_lens.path_patching import plan
from arith_lens.runs import find_runs
from arith_lens.runs.manifest import installed
from laboratory.speed import calls, edges, fixed, growth, measure, path_patching, positions, rivals
from laboratory.speed.measure import Rows, Timing, Usage, timed
from laboratory.speed.shapes import SHAPES, Setting, Shape, random_llama, setting_of

SMALL = Shape(3, 32, 4, 48, 100, n_pairs=3, n_tokens=6)
CPU = torch.device("cpu")
INSTALLED = [rival for rival in rivals.RIVALS if not rival.missing]


@pytest.fixture(scope="module")
def setting() -> Setting:
    return setting_of(SMALL)


@pytest.fixture(scope="module")
def expected(setting: Setting) -> torch.Tensor:
    return rivals.RIVALS[0].compute(setting, setting.senders)


@pytest.mark.parametrize("rival", INSTALLED, ids=lambda rival: rival.name)
def test_every_way_computes_what_raw_transformers_does(
    rival: rivals.Rival, setting: Setting, expected: torch.Tensor
) -> None:
    assert expected.shape == (3 * 4 + 3, 3)
    effects = rival.compute(setting, setting.senders)
    torch.testing.assert_close(effects, expected, atol=1e-6, rtol=1e-4)
    largest = expected.abs().amax(1)  # of each sender
    assert largest.min() > 1e-4, "the test must be able to fail"


@pytest.mark.parametrize("rival", INSTALLED, ids=lambda rival: rival.name)
def test_every_way_computes_chosen_senders(
    rival: rivals.Rival, setting: Setting, expected: torch.Tensor
) -> None:
    chosen = [3, 9, 13]
    effects = rival.compute(setting, [setting.senders[index] for index in chosen])
    torch.testing.assert_close(effects, expected[chosen], atol=1e-6, rtol=1e-4)


def csv_of(root: Path, name: str) -> Any:
    """A table of the run that is in a folder."""
    (file,) = root.glob(f"speed/*/{name}.csv")
    return pandas.read_csv(file)


def test_both_ways_to_edges_agree_and_a_table_has_their_ratio() -> None:
    setting = setting_of(SMALL)
    by_hooks = edges.by_hooks(setting, edges.senders_of(setting))
    by_package = edges.by_package(setting)[0]
    torch.testing.assert_close(by_hooks, by_package, atol=1e-6, rtol=1e-4)
    assert float(by_hooks.abs().max()) > 1e-4
    assert not torch.allclose(by_hooks, edges.by_package(setting, edges.DIRECT)[0]), "MLPs react"
    of_layer = edges.by_package(setting, edges.HEADS)
    torch.testing.assert_close(by_hooks, of_layer[0], atol=1e-6, rtol=1e-4)


def test_both_ways_by_position_agree_and_the_page_has_the_ratios() -> None:
    for row in positions.position_rows(repeats=1, budget=0.1, shape=SMALL):
        assert row["largest"] > 0 and row["difference"] < 1e-5 * row["largest"] + 1e-6
        assert row["ratio"] == row["rival_seconds"] / row["cpu_seconds"]
    folder = Path(positions.__file__).parent
    shipped = pandas.read_csv(folder / "positions.csv").set_index("stream")
    assert [*shipped.index] == [*positions.STREAMS]
    before, after = (f"{ratio:.1f} times" for ratio in shipped.ratio)
    page = (folder.parents[1] / "docs" / "performance.md").read_text(encoding="utf-8")
    assert f"{before} as fast before a layer, and {after} after it" in " ".join(page.split())


def test_what_it_costs_to_begin_is_measured_in_processes_and_stands_on_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = Path(fixed.__file__).parent
    shipped = pandas.read_csv(folder / "fixed.csv").set_index("command").cpu_seconds
    assert [*shipped.index] == [*fixed.COMMANDS]
    page = (folder.parents[1] / "docs" / "performance.md").read_text(encoding="utf-8")
    table = page.partition("## To begin")[2].partition("##")[0]
    seconds = [row.split("|")[-2].strip() for row in table.splitlines() if row.endswith(" s |")]
    assert seconds == [f"{took:.1f} s" for took in shipped]
    commands = {"nothing": ("-c", "pass"), "work": ("-c", "sum(range(10**7))")}
    monkeypatch.setattr(fixed, "COMMANDS", commands)
    nothing, work = fixed.fixed_rows(1)
    assert nothing["cpu_seconds"] < work["cpu_seconds"]


def test_calls_agree_with_plain_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in calls.SIZES:
        monkeypatch.setitem(calls.SIZES, size, SMALL)
    rows = [*calls.call_rows(repeats=1, budget=0.1)]
    for row in rows:
        assert row["difference"] < 1e-6 < 1e-3 * row["largest"], row
        assert row["ratio"] == row["rival_seconds"] / row["cpu_seconds"]
    assert {row["call"] for row in rows} == {call.name for call in calls.CALLS}
    folder = Path(calls.__file__).parent
    shipped: Any = pandas.read_csv(folder / "calls.csv")
    page = (folder.parents[1] / "docs" / "performance.md").read_text(encoding="utf-8")
    for call, of_call in shipped[shipped["size"] != "256k"].groupby("call"):
        pairs = ", ".join(map(str, of_call.pairs.unique()))
        cells = of_call.groupby("size", sort=False).ratio.agg(
            lambda r: ", ".join(map("{:.2f}".format, r))
        )
        assert f"| {call}, pairs: {pairs} | {cells.tiny} | {cells.middle} |" in page
    certificate = 1 / shipped[shipped["size"] == "256k"].ratio.item() - 1
    assert f"The certificate adds {certificate:.0%}" in page


def test_ratios_of_edges_refer_to_two_forwards_for_each_of_the_same_edges(
    small_shapes: None, tmp_path: Path
) -> None:
    config = path_patching.SpeedConfig(parts=("edges",), quick=True)
    with patch.object(edges, "GROWTH", {"n_layers": (2, 3, 4)}):
        path_patching.speed(config, root=tmp_path)
    rows: Any = csv_of(tmp_path, "edges")
    hooks, *ways = rows[rows.factor.isna()].to_dict("records")
    assert hooks["edges"] == 3 * 2, "q, k and v of every ninth sender of the two layers below"
    assert [way["edges"] for way in ways] == [30, 30, 4 * 30, 3 * 15 + 9 + 14, 4 + 9 + 14]
    for way in ways:
        same = hooks["cpu_seconds"] / hooks["edges"] * way["edges"]
        assert way["ratio"] == pytest.approx(same / way["cpu_seconds"])
        same = hooks["flops"] / hooks["edges"] * way["edges"]
        assert way["flops_ratio"] == pytest.approx(same / way["flops"])
    assert ways[0]["difference"] < 1e-6
    (growth,) = rows[rows.factor.notna()].to_dict("records")
    assert growth["factor"] == "n_layers" and growth["points"] == 3
    assert set(rows.processor) == {measure.processor()} and (rows.threads > 0).all()


def test_the_bridged_model_shares_the_weights_and_leaves_the_raw_one(setting: Setting) -> None:
    assert setting.model.W_U.data_ptr() == setting.raw.lm_head.weight.data_ptr()
    assert type(setting.raw.model.layers[0]).__name__ == "LlamaDecoderLayer"


def test_bfloat16_agrees_within_what_is_allowed() -> None:
    setting = setting_of(SMALL, "cpu", torch.bfloat16)
    rows = path_patching.rival_rows(setting, repeats=1, budget=0)
    expected = ["not installed" if rival.missing else "" for rival in rivals.RIVALS]
    assert [row["remark"] for row in rows] == expected


def test_a_rival_that_disagrees_or_is_missing_is_reported_as_such(setting: Setting) -> None:
    absent = rivals.Rival("absent", rivals.end_only, package="no_such_package_at_all")
    assert absent.missing
    ways = (rivals.RIVALS[0], rivals.RIVALS[-1], absent)
    effects = torch.ones(2, 3)
    for apart, remark in ((1e-6, ""), (1e-3, "DISAGREES (allowed 1e-04)"), (float("nan"), "DIS")):
        timings = {
            ways[0].name: Timing(8.0, 6.0, 1, effects),
            ways[1].name: Timing(1.0, 0.5, 9, effects + apart),
        }
        first, second, third = path_patching.compared_rows(setting, ways, timings, largest=1.0)
        assert first["remark"] == ""
        assert str(second["remark"]).startswith(remark) and bool(second["remark"]) == bool(remark)
        assert second["ratio"] == 12.0
        assert third["remark"] == "not installed" and "seconds" not in third


def test_a_quick_method_is_repeated_and_a_slow_one_is_not() -> None:
    calls: list[str] = []

    def method(name: str) -> torch.Tensor:
        calls.append(name)
        return torch.tensor(len(calls))

    timings = timed(
        {"a": lambda: method("a"), "b": lambda: method("b")}, repeats=3, budget=60, device=CPU
    )
    assert calls == ["a", "b"] * 4  # the first round warms up
    assert timings["a"].rounds == 3
    slow = timed({"slow": lambda: method("slow")}, repeats=3, budget=0, device=CPU)
    assert calls[8:] == ["slow"]
    assert slow["slow"].rounds == 1


def test_on_a_gpu_the_clock_counts_and_on_a_cpu_the_processor() -> None:
    timing = Timing(2.0, 3.0, 1, torch.empty(0))
    assert timing.spent(torch.device("cuda")) == 2.0
    assert timing.spent(CPU) == 3.0


def test_the_exponent_of_a_power_law_is_found() -> None:
    rows: Rows = [
        {
            "factor": "n_layers",
            "value": value,
            "method": method,
            "spent": 0.3 * value**power,
        }
        for method, power in (("a", 2.0), ("b", 0.5))
        for value in (2, 4, 8, 16)
    ]
    rows[1]["spent"] = float(rows[1]["spent"] or 0) * 1.1
    first, second = growth.exponents(rows)
    logs = np.log([2, 4, 8, 16])
    slope = np.polyfit(logs, np.log([float(row["spent"] or 0) for row in rows[:4]]), 1)[0]
    assert first["exponent"] == pytest.approx(slope) and float(first["stderr"] or 0) > 0.01
    assert second["exponent"] == pytest.approx(0.5) and second["stderr"] == pytest.approx(0)
    assert second["points"] == 4


def test_growth_varies_one_factor_over_four_values_or_more() -> None:
    for base, values in (growth.FULL, growth.QUICK):
        assert set(values) == {"n_layers", "n_heads", "n_tokens", "n_pairs"}
        for point, shape in growth.factors(base, values):
            factor = str(point["factor"])
            assert replace(shape, **{factor: getattr(base, factor)}) == base
            assert getattr(shape, factor) == point["value"]
            assert shape.d_model % shape.n_heads == 0
        assert all(len(some) >= 4 for some in values.values())


def test_a_table_leaves_out_what_was_not_measured() -> None:
    rows = [{"a": "x", "b": 1234.56, "c": None}, {"a": "", "c": 2}]
    assert measure.markdown(rows) == (
        "| a   |     b |   c |\n|:----|------:|----:|\n| x   | 1,235 |     |\n|     |       |   2 |"
    )


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_the_peak_sees_what_was_freed_since() -> None:
    size = 64 * 2**20
    before = measure.resident(CPU, reset=True)
    torch.ones(size // 4).sum()
    peak = measure.resident(CPU)
    after = measure.resident(CPU, reset=True)
    assert before is not None and peak is not None and after is not None
    assert 0.9 * size < peak - before < 1.5 * size
    assert after - before < 0.5 * size


def test_the_machine_is_described_with_versions() -> None:
    facts = measure.machine("cpu")
    assert facts["threads"] >= 1 and facts["processor"] == measure.processor()
    assert torch.__version__ in facts["versions"] and "Python 3" in facts["versions"]
    assert installed("no_such_package_at_all") is None


def test_what_others_used_is_what_was_busy_without_us(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Usage.now().busy > Usage.now().own > 0
    for busy, expected in ((14.0, 1.1), (2.0, 0.0)):
        monkeypatch.setattr(Usage, "now", lambda busy=busy: Usage(clock=10.0, busy=busy, own=3.0))
        assert Usage(0.0, 0.0, 0.0).others() == pytest.approx(expected)


def test_the_parts_of_the_sweep_add_up_and_differ(setting: Setting) -> None:
    *parts, whole = path_patching.floor_rows(setting, repeats=2, budget=5)
    spent = [float(row["seconds"] or 0) for row in parts]
    assert sum(spent) == pytest.approx(float(whole["seconds"] or 0))
    assert len({row["part"] for row in parts}) == len(parts) == 4
    floors = [float(row["floor"] or 0) for row in parts]
    assert sum(floors) == pytest.approx(float(whole["floor"] or 0)) and min(floors[:2]) > 0


@pytest.fixture
def small_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "tiny", SMALL)


def test_a_run_keeps_the_tables_and_the_report(
    small_shapes: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = path_patching.SpeedConfig(parts=("rivals",), quick=True)
    path_patching.speed(config, root=tmp_path)
    printed = capsys.readouterr().out
    (run,) = find_runs("speed", root=tmp_path)
    table = csv_of(tmp_path, "rivals_tiny")
    assert [*table.method] == [rival.name for rival in rivals.RIVALS]
    assert {*table.remark.fillna("")} <= {"", "not installed"}
    assert {*table.processor} == {measure.processor()} and (table.others_cores >= 0).all()
    assert csv_of(tmp_path, "floor_tiny").part.iloc[-1] == "all"
    saved = (run.path / "report.md").read_text(encoding="utf-8")
    assert saved in printed and str(run.path) in printed
    assert f"## tiny: {SMALL}" in saved and "| sweep " in saved


def test_a_dry_run_prints_operations_and_leaves_nothing(
    small_shapes: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path_patching.speed(
        path_patching.SpeedConfig(quick=True), root=tmp_path / "results", dry_run=True
    )
    printed = capsys.readouterr().out
    empty = setting_of(SMALL, "meta")
    assert all(weight.is_meta for weight in empty.raw.parameters())
    assert f"{plan(empty.model, empty.pairs).flops:.3g} FLOPs" in printed
    assert "growth: 16 points" in printed and "memory: 8 processes" in printed
    assert not (tmp_path / "results").exists()


def test_memory_is_measured_in_a_process_of_its_own() -> None:
    config = path_patching.SpeedConfig(memory_size="tiny", memory_pairs=4, threads=1)
    sizes = measure.in_process(path_patching.memory_of, "sweep", config)
    weights = sum(w.numel() for w in setting_of(SHAPES["tiny"], "meta").raw.parameters())
    assert sizes["model_bytes"] == 4 * weights
    peak = sizes["peak_bytes"]
    assert peak is None or 0 <= peak < 5e8
    assert sizes["predicted_bytes"] > 1e5
    with pytest.raises(RuntimeError, match=r"memory of .*'none'.* could not be measured"):
        measure.in_process(int, "none")  # its process loads no library


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="expected a GPU for --device cuda"):
        path_patching.speed(path_patching.SpeedConfig(device="cuda"), root=tmp_path)


def test_a_model_that_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def little() -> Any:
        return type("Memory", (), {"available": 2**30})

    monkeypatch.setattr(path_patching.psutil, "virtual_memory", little)
    with pytest.raises(SystemExit, match=r"--sizes wide \(2 GiB\), found 1 GiB free"):
        path_patching.speed(path_patching.SpeedConfig(sizes=("wide",)), root=tmp_path)


def test_the_7b_preset_has_the_papers_shape() -> None:
    raw = random_llama(SHAPES["llama-7b"], "meta", torch.float32)
    assert sum(weight.numel() for weight in raw.parameters()) == 6_738_415_616
