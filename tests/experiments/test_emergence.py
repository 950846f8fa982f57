"""Snapshots of a training, from a folder of models to a table."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arith_lens.runs import find_runs
from experiments.emergence import ONE_DIGIT, EmergenceConfig, Training, main
from experiments.results import SNAPSHOT_ANSWERS, SNAPSHOT_CARRY, SNAPSHOT_MAP
from figures.common import Options
from figures.emergence import emergence as exhibits
from figures.exhibit import show
from figures.tables.emergence import _heads_rise, rise, table
from figures.tables.table import from_csv, select, value

REFERENCE = Path("arith_lens/reference/reference")
pytestmark = pytest.mark.filterwarnings("ignore:expected logits of the answer of at least")
"""An untrained model has none for a relative change."""


def save_between(folder: Path, step: int, weight: float) -> None:
    """A model between one with random weights (0) and the shipped one (1)."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    trained: Any = AutoModelForCausalLM.from_pretrained(REFERENCE)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: Any = AutoModelForCausalLM.from_config(trained.config)
    with torch.no_grad():
        for own, other in zip(model.parameters(), trained.parameters(), strict=True):
            own.lerp_(other, weight)
    model.save_pretrained(folder / f"{step:06d}")
    AutoTokenizer.from_pretrained(REFERENCE).save_pretrained(folder / f"{step:06d}")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of two snapshots, one continued with a third, and when results were written."""
    root = tmp_path_factory.mktemp("training")
    folder, results = root / "small" / "snapshots", root / "results"
    (root / "small").mkdir()
    log = '{"step": 50, "loss": 2.5, "time": 1.0}\n{"step": 100, "loss": 0.5, "time": 2.0}\n'
    (root / "small" / "log.jsonl").write_text(log, encoding="utf-8")
    config = EmergenceConfig(folder=folder, n=20)
    save_between(folder, 50, 0.0)
    save_between(folder, 100, 1.0)
    main(config, root=results)
    (two,) = find_runs("emergence", root=results)
    written = {name: written_at(two, name) for name in two.names}
    save_between(folder, 150, 0.9)
    main(config, root=results)
    (three,) = (run for run in find_runs("emergence", root=results) if run.path != two.path)
    return two, three, written


def written_at(run: Any, name: str) -> int:
    return (run.folder(name) / "result.safetensors").stat().st_mtime_ns


def test_a_snapshot_is_measured_once(runs: Any) -> None:
    two, three, written = runs
    of_snapshots = [name for name in two.names if name != "loss"]
    assert len(of_snapshots) == 14 and len(three.names) == 22
    assert all(three.folder(name) == two.folder(name) for name in of_snapshots)
    assert all(written_at(three, name) == written[name] for name in of_snapshots)
    assert three.folder("carry-at-150") != three.folder("carry-at-100")


def test_rows_are_what_the_results_say(runs: Any, tmp_path: Path) -> None:
    two, _, _ = runs
    show(exhibits, Options(run=two.path, out=tmp_path, formats=()))
    (file,) = tmp_path.glob("*.csv")
    rows = from_csv(file.read_text(encoding="utf-8"))
    right = SNAPSHOT_ANSWERS.load(two, "100", ONE_DIGIT).correct.float().mean()
    assert value(rows, measure="accuracy", sums=ONE_DIGIT, step=100) == pytest.approx(float(right))
    assert value(rows, measure="accuracy", sums=ONE_DIGIT, step=50) < 0.2 < right
    carry = SNAPSHOT_CARRY.load(two, "100")
    last: Any = select(rows, kind="carry", step=100, layer_of="last snapshot", space="mean")
    layer = int(last.layer.iloc[0])
    assert last.value.iloc[0] == pytest.approx(float(carry.iia[:, 1].max()), abs=1e-5)
    assert layer == int(carry.iia[:, 1].argmax())
    assert value(rows, kind="loss", step=100) == 0.5
    assert value(rows, kind="rise", what=ONE_DIGIT) == 100
    heads: Any = select(rows, kind="head", lens="operands", step=100)
    effects = SNAPSHOT_MAP.load(two, "100", "operands").heads
    chosen = {tuple(map(int, name.split("."))) for name in heads.component}
    first = _problems_of_first_half(effects)
    half = effects.select(torch.tensor([one in first for one in effects.problem or ()]))
    strongest = half.mean().flatten().argsort()[:10].tolist()
    assert chosen == {divmod(i, 8) for i in strongest}


def _problems_of_first_half(effects: Any) -> set[str]:
    import random

    problems = sorted({*effects.problem})
    random.Random(0).shuffle(problems)
    return {*problems[: (len(problems) + 1) // 2]}


def test_a_curve_rises_halfway_between_chance_and_its_last_value() -> None:
    curve, steps = np.array([0.1, 0.2, 0.55, 0.5, 0.9]), [50, 60, 70, 80, 90]
    assert rise(curve, steps) == 70
    assert rise(curve, steps, chance=0.3) == 90
    assert np.isnan(rise(curve, steps, chance=0.95))
    heads = np.stack([curve, curve[::-1], -curve], axis=1)
    assert _heads_rise(heads, steps) == np.median([70, 50])


def test_every_prediction_has_an_outcome(runs: Any) -> None:
    _, three, _ = runs
    names = [one.keys["prediction"] for one in table(three).select(kind="prediction")]
    assert sorted(names) == ["E1", "E2", "E3", "E4", "E5", "E6"]


def test_a_folder_without_snapshots_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a folder of snapshots, found none"):
        Training.of(EmergenceConfig(), tmp_path)
    (tmp_path / "000050").mkdir()
    (tmp_path / "000050.part").mkdir()
    with pytest.raises(ValueError, match=r"expected two snapshots or more in .* found 1"):
        Training.of(EmergenceConfig(folder=tmp_path), tmp_path)
