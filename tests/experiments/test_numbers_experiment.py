"""Numbers from the command's configuration to a table."""

from pathlib import Path
from typing import Any

import pytest

from arith_lens.numbers import OWN, UNSEEN, WHOLE
from arith_lens.runs import find_runs
from experiments import numbers as experiment
from experiments.numbers import END, HELIX, LINE, OPERAND, NumbersConfig, main
from experiments.results import NUMBER_SWAPS
from figures.exhibit import show
from figures.numbers import exhibits
from figures.options import Options
from figures.tables.numbers import POWER
from figures.tables.table import from_csv, select, value


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A small run of a trained model: a random one answers nothing."""
    root = tmp_path_factory.mktemp("results")
    few = [
        ("a", OPERAND, 0, LINE),
        ("a", OPERAND, 0, HELIX),
        ("a", END, 9, LINE),
        ("a", END, 9, HELIX),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "tests_of", lambda *_: iter(few))
        patch.setattr(experiment, "PRODUCT_SHAPES", (LINE,))
        patch.setattr(experiment, "OVERLAP_SHAPES", ())
        patch.setattr(experiment, "SPECTRA", (("a", "stream", END), ("a", "W_E", OPERAND)))
        settings: dict[str, Any] = {"permutations": 3, "operand_permutations": 2}
        main(
            NumbersConfig(subjects=("addition",), swaps=20, operand_swaps=8, **settings), root=root
        )
    (run,) = find_runs("numbers", root=root)
    return run


def table_of(folder: Path, name: str) -> Any:
    """The rows of a file, whose name also has the settings."""
    (file,) = folder.glob(f"{name}-subjects*.csv")
    return from_csv(file.read_text(encoding="utf-8"))


def test_the_table_has_the_numbers_of_the_stored_swaps(run: Any, tmp_path: Path) -> None:
    show(exhibits, Options(run=run.path, out=tmp_path, formats=()))
    table = table_of(tmp_path, "numbers")
    stored = NUMBER_SWAPS.load(run, "addition", "a", END, "9", HELIX)
    keys: dict[str, Any] = {"kind": "swap", "variable": "a", "place": END, "layer": 9}
    for space in (UNSEEN, OWN, WHOLE):
        found = value(table, **keys, shape=HELIX, space=space)
        assert found == pytest.approx(stored.iia(space), abs=1e-5)
    assert stored.iia(WHOLE) > 0.9 and stored.iia("random (cannot fail)") < 0.2
    p_value = value(table, kind="p", variable="a", place=END, layer=9, shape=HELIX, space=OWN)
    assert p_value in (0.25, 0.5, 0.75, 1)
    spectrum: Any = select(table, kind="spectrum", source="W_E", measure=POWER)
    assert float(spectrum["value"].sum()) == pytest.approx(1, abs=1e-4)
