"""The gallery is drawn from tables as from runs; smaller PNG files keep their pictures."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.made_runs import make_run

from experiments.finding import RunSettings
from figures.collection import MissingExhibit, collected
from figures.exhibit import Chart, one_chart
from figures.gallery import reduce_colours
from figures.map_figures import fig2
from figures.tables.table import keys_of, to_csv


def written(file: Path, pixels: np.ndarray) -> Path:
    Image.fromarray(pixels).save(file)
    return file


def read(file: Path) -> tuple[np.ndarray, str]:
    """The pixels, and how the file stores them: `P` is with a palette."""
    with Image.open(file) as picture:
        return np.asarray(picture.convert("RGB")), picture.mode


def test_few_colours_stay_exactly_and_the_file_is_smaller(tmp_path: Path) -> None:
    colours = np.arange(75, dtype=np.uint8).reshape(25, 3)
    pixels = np.full((80, 80, 4), 255, np.uint8)
    pixels[5:70, 5:70, :3] = colours[np.random.default_rng(0).integers(0, 25, (65, 65))]
    file = written(tmp_path / "a.png", pixels)
    before = file.stat().st_size
    reduce_colours(file)
    assert file.stat().st_size < before
    reduced, mode = read(file)
    assert mode == "P" and np.array_equal(reduced, pixels[..., :3])
    smaller = file.read_bytes()
    reduce_colours(file)
    assert file.read_bytes() == smaller, "it is small already"


def test_many_colours_become_near_ones_and_areas_keep_theirs(tmp_path: Path) -> None:
    """Texts of six inks on white, with mixed colours at their edges, and an area."""
    inks = np.array([(31, 36, 48), (199, 47, 42), (33, 111, 202), (180, 83, 9), (109, 40, 217),
                     (15, 118, 110)])  # fmt: skip
    shares = np.linspace(0, 1, 80)[:, None, None]
    mixed = (255 - shares * (255 - inks)).round().astype(np.uint8).reshape(1, -1, 3)
    pixels = np.concatenate([mixed, np.full((40, 480, 3), (111, 200, 9), np.uint8), mixed])
    file = written(tmp_path / "a.png", pixels)
    reduce_colours(file)
    reduced, _ = read(file)
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 400
    assert len(np.unique(reduced.reshape(-1, 3), axis=0)) <= 256
    assert (reduced[1:-1] == (111, 200, 9)).all()
    distance = np.abs(reduced.astype(int) - pixels).max(-1)[[0, -1]]
    assert 0 < distance.mean() < 12 and distance.max() < 48


def test_a_transparent_picture_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "a.png", np.zeros((3, 3, 4), np.uint8))
    with pytest.raises(ValueError, match="expected no transparent pixels"):
        reduce_colours(file)


def drawn_twice(root: Path, text: str) -> tuple[Chart, Chart]:
    """Figure 2 from its run, and from a table alone."""
    (folder := root / "tables").mkdir(exist_ok=True)
    (folder / "fig2.csv").write_text(text, encoding="utf-8")
    parts = [collected(fig2, "reference", where) for where in (root, folder)]
    assert not any(isinstance(one, MissingExhibit) for one in parts), parts
    (from_run,), (from_table,) = parts  # pyright: ignore
    return from_run, from_table  # pyright: ignore


@pytest.mark.usefixtures("rough_intervals")
def test_a_picture_from_its_table_alone_is_that_from_its_run(tmp_path: Path) -> None:
    make_run(tmp_path, "reference")
    (chart,) = collected(fig2, "reference", tmp_path)  # pyright: ignore
    text = to_csv(chart.numbers)
    from_run, from_table = drawn_twice(tmp_path, text)
    assert from_table.figure.to_json() == from_run.figure.to_json()
    assert (from_table.caption, from_table.notes) == (from_run.caption, from_run.notes)
    changed = text.replace(",effect,-0.", ",effect,-9.", 1)
    assert changed != text
    _, other = drawn_twice(tmp_path, changed)
    assert other.figure.to_json() != from_run.figure.to_json(), "the test can fail"


@pytest.mark.usefixtures("rough_intervals")
def test_tables_are_of_the_default_settings_and_a_missing_one_has_its_command(
    tmp_path: Path,
) -> None:
    (tmp_path / "fig15.csv").write_text("question,model\n", encoding="utf-8")
    missing = collected(fig2, "reference", tmp_path)
    assert isinstance(missing, MissingExhibit) and "fig2.csv" in missing.reason
    assert missing.command.endswith(" which_heads --model reference")
    settings = RunSettings.of_paper(metric="logit")
    other = collected(fig2, "reference", tmp_path, settings=settings)
    assert isinstance(other, MissingExhibit) and "the default settings" in other.reason


@pytest.mark.usefixtures("rough_intervals")
def test_one_picture_has_the_rows_of_several_models(tmp_path: Path) -> None:
    charts = []
    for model in ("made", "other"):
        make_run(tmp_path, model)
        charts += collected(fig2, model, tmp_path)  # pyright: ignore
    whole = one_chart(charts)
    assert keys_of(whole.numbers, "model") == ["made", "other"] and len(whole.runs) == 2
    assert one_chart(charts[:1]) is charts[0]
