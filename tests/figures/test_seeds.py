"""Several trainings of one recipe: statistics of where heads matter, with planted truths."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pandas import DataFrame
from scipy.stats import hypergeom
from support.made_claims import N_HEADS, N_LAYERS, which_heads

from arith_lens.operations import FOUR
from experiments.finding import RunSettings
from experiments.selection import training_folder
from figures import seeds
from figures.common import NotComputed, Options
from figures.tables.seeds import IN_COMMON, SAME_HEADS, SAME_LAYERS
from figures.tables.table import from_csv, keys_of, records, select, value

PLANTED = {0: {(4, 6): -0.2}, 1: {(8, 1): -0.1, (8, 2): -0.1}, 2: {(0, 0): -0.3}}
"""The heads that matter in each training, by seed."""


@pytest.fixture(scope="module")
def all_made(tmp_path_factory: pytest.TempPathFactory) -> Options:
    """The three trainings, for tests that write nothing."""
    return _made(tmp_path_factory.mktemp("seeds"))


def _made(root: Path) -> Options:
    for seed, heads in PLANTED.items():
        model = "made" if not seed else str(training_folder("made", seed) / "final")
        which_heads(root, heads, model=model, noise=1e-6)
    return Options(model="made", root=root, out=root / "out", formats=())


def _values(table: DataFrame, measure: str, operation: str = "addition") -> list[float]:
    rows = select(table, measure=measure, operation=operation)
    return [value(rows, seed=seed) for seed in PLANTED]


def test_statistics_of_each_training_are_those_that_were_planted(all_made: Options) -> None:
    chart, table = seeds.exhibits(all_made)
    statistics = table.numbers
    assert _values(statistics, "key heads") == [1, 2, 1]
    assert _values(statistics, "strongest effect") == pytest.approx([-0.2, -0.1, -0.3], abs=1e-4)
    depth = [layer / (N_LAYERS - 1) for layer in (4, 8, 0)]
    assert _values(statistics, "mean layer, as a share of the depth") == pytest.approx(
        depth, abs=1e-3
    )
    early = "share in the first quarter of the layers"
    assert _values(statistics, early) == pytest.approx([0, 0, 1], abs=1e-3)
    rows = select(statistics, measure="key heads", operation="addition")
    (row,) = records(DataFrame(rows[rows.seed.isna()]))
    assert row.value == pytest.approx(4 / 3, rel=1e-5)
    deviation = value(statistics, measure="key heads, standard deviation", operation="addition")
    assert deviation == pytest.approx(np.std([1, 2, 1], ddof=1), rel=1e-5)
    assert (row.low, row.high, row.spread) == (1, 2, "range of 3 trainings")
    effects = select(chart.numbers, measure="effect")
    assert len(effects) == 3 * len(FOUR) * N_LAYERS * (N_HEADS + 1)


def test_two_trainings_share_the_heads_that_their_maps_share(tmp_path: Path) -> None:
    """Training 1 has the ten heads of training 0, training 2 the same layers with other heads."""
    layers = range(10)
    for seed, index in ((0, 0), (1, 0), (2, 1)):
        heads = {(layer, index): -0.2 for layer in layers}
        model = "made" if not seed else str(training_folder("made", seed) / "final")
        which_heads(tmp_path, heads, model=model, noise=1e-6)
    chart: Any = seeds.exhibits(Options(model="made", root=tmp_path))[0]
    rows = select(chart.numbers, operation="addition")
    for trainings, same in (("0 and 1", 1), ("0 and 2", 0), ("1 and 2", 0)):
        assert value(rows, measure=SAME_HEADS, trainings=trainings) == same
        assert value(rows, measure=SAME_LAYERS, trainings=trainings) == 1
    assert "two trainings share 33% (random heads 11%) on average, and have 100% (" in chart.caption
    assert "Above the band (95% of random draws) are 4 of 12, 12 of 12 and" in chart.caption
    headings = [note.text for note in chart.figure.layout.annotations]
    assert any(
        "more than the random band in 16 of 24 cases (heads, layers);" in str(text)
        for text in headings
    )
    dots = [trace for trace in chart.figure.data if trace.xaxis == "x"]
    assert [[*trace.x] for trace in dots] == [4 * [100], 4 * [0], 4 * [0]]


def test_random_heads_share_what_is_expected(all_made: Options) -> None:
    chart = seeds.exhibits(all_made)[0]
    (one,) = records(select(chart.numbers, measure=f"{SAME_HEADS}, random heads"))
    n, k = N_LAYERS * N_HEADS, 10
    assert one.value == pytest.approx(k / n, rel=0.03)
    assert (one.low, one.high) == tuple(hypergeom.ppf((0.025, 0.975), n, k, k) / k)
    (band,) = [s for s in chart.figure.layout.shapes if s.type == "rect" and s.xref == "x"]  # pyright: ignore
    assert (band.x0, band.x1) == (100 * one.low, 100 * one.high)
    assert one.spread == "2.5th to 97.5th percentile of 10000 draws"


def test_each_two_operations_are_compared_once(all_made: Options) -> None:
    table = seeds.exhibits(all_made)[1].numbers
    compared = select(table, measure=IN_COMMON, seed=1)
    assert len(compared) == len(set(compared["operation"])) == 6
    assert min(compared.value) >= 0.2, "two heads were planted in all operations"


def test_files_are_written_and_a_missing_training_has_its_command(tmp_path: Path) -> None:
    options = _made(tmp_path)
    seeds.main(options)
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"seeds.csv", "seeds.html", "seeds_summary.csv"} <= written
    table = from_csv((tmp_path / "out" / "seeds.csv").read_text())
    assert set(select(table, question="effects")["model"]) == {
        "made",
        *(str(training_folder("made", seed) / "final") for seed in seeds.SEEDS),
    }
    with pytest.raises(NotComputed, match="which_heads --model other"):
        seeds.exhibits(Options(model="other", root=tmp_path))


def test_trainings_that_are_missing_are_left_out_if_there_is_one(tmp_path: Path) -> None:
    for seed in (0, 2):
        model = "made" if not seed else str(training_folder("made", seed) / "final")
        which_heads(tmp_path, PLANTED[seed], model=model, noise=1e-6)
    chart, table = seeds.exhibits(Options(model="made", root=tmp_path))
    assert "2 trainings of one recipe" in chart.notes[0]
    assert keys_of(table.numbers, "seed") == [0, 2]


def test_without_runs_the_shipped_table_of_this_model_is_shown(
    all_made: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds.main(replace(all_made, out=tmp_path / "shipped"))
    monkeypatch.setattr(seeds, "SHIPPED_TABLES", tmp_path / "shipped")
    from_runs = seeds.exhibits(all_made)
    from_files = seeds.exhibits(replace(all_made, root=tmp_path))
    for one, other in zip(from_runs, from_files, strict=True):
        assert one.numbers.equals(other.numbers) and not other.runs
        assert (one.caption, one.notes) == (other.caption, other.notes)
    with pytest.raises(NotComputed, match="which_heads --model other"):
        seeds.exhibits(Options(model="other", root=tmp_path))
    with pytest.raises(NotComputed):
        seeds.exhibits(replace(all_made, root=tmp_path, settings=RunSettings({"metric": "logit"})))
