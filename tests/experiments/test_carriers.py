"""The experiment on mediators and the one of Figure 9, and their figures: from configuration to
files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.drawings import written

from arith_lens import plotting
from arith_lens.runs import find_runs
from experiments import next_tokens as experiment
from experiments import results
from experiments.mlps import which_mlps_carry_them
from experiments.next_tokens import what_the_calculation_does
from figures import next_tokens
from figures.exhibit import show
from figures.options import Options
from figures.paths import carriers
from figures.tables.table import from_csv, select, value


@pytest.fixture(scope="module")
def checkpoint(make_hf: Any, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model in Hugging Face's format."""
    folder = tmp_path_factory.mktemp("tiny")
    make_hf("llama").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_carriers_are_computed_saved_and_drawn(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = which_mlps_carry_them.config(
        model=str(checkpoint), operations=("addition",), n=9, keep="all", metric="logit", top=3
    )
    which_mlps_carry_them(config, root=tmp_path / "results", dry_run=True)
    assert "FLOPs for 3 heads" in capsys.readouterr().out and not [*tmp_path.iterdir()]
    which_mlps_carry_them(config, root=tmp_path / "results")
    (run,) = find_runs("which_mlps_carry_them", root=tmp_path / "results")
    found = results.MEDIATION.load(run, "addition")
    assert [*map(str, found.heads)] == [*map(str, results.MAP.load(run, "addition").heads.top(3))]
    show(carriers, Options(run=run.path, out=tmp_path, formats=()))
    table = from_csv(written(tmp_path, "carriers.csv").read_text())
    lost = select(table, measure="effect lost when held").value
    assert np.allclose(lost, found.mediated.mean().flatten(), atol=1e-6) and len(lost) == 3 * 3
    cosines = select(table, measure="cosine with C")
    assert len(cosines) == 3 and cosines.value.abs().max() < 1
    effect, own = found.via_mlps.mean().sum(), found.mediated.mean().sum()
    summed = (own + found.direct.mean().sum()) / effect
    assert value(table, measure="lost effects, sum in effects") == pytest.approx(
        summed.item(), rel=1e-4
    )
    correlations = select(table, measure="rank correlation", compared="C")
    assert [*correlations.component] == [*map(str, found.heads)]
    assert written(tmp_path, "carriers.html").exists()


def test_cells_hold_their_numbers_and_zeros_are_empty() -> None:
    values = np.array([[0.0, -1.25], [3.0, 0.001]])
    part = plotting.Matrix("a", ("<s>", "1.2"), (plotting.Columns("lost", ("0", "1"), values),))
    figure = plotting.matrix_panels([part], colour_title="effect", digits=1)
    bearer, cells, numbers = figure.data
    assert sorted(numbers.text) == ["0", "3.0", "−1.2"]
    for x, y, text in zip(numbers.x, numbers.y, numbers.text, strict=True):
        assert float(text.replace("−", "-")) == pytest.approx(values[int(y), int(x)], abs=0.06)
    assert [value for _, value in cells.customdata] == values.ravel().tolist()
    end = figure.layout.coloraxis.cmax
    assert [*cells.marker.color] == [plotting.colour_at(value, end) for value in values.ravel()]
    assert bearer.marker.coloraxis == "coloraxis"
    assert figure.layout.yaxis.ticktext[0] == "&lt;s&gt;"
    with pytest.raises(ValueError, match="2 rows and 1 columns"):
        wrong = plotting.Matrix("a", ("x", "y"), (plotting.Columns("lost", ("0",), values),))
        plotting.matrix_panels([wrong], colour_title="effect")


def test_figure_9_shows_both_prompts_of_a_pair(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("addition", "stories")
    few = {kind: experiment.PAIR_KINDS[kind] for kind in kinds}
    monkeypatch.setattr(experiment, "PAIR_KINDS", few)
    config = what_the_calculation_does.config(model=str(checkpoint), n=9, keep="all", k=3)
    what_the_calculation_does(config, root=tmp_path / "results")
    (run,) = find_runs("what_the_calculation_does", root=tmp_path / "results")
    (chart,) = next_tokens.fig9(Options(run=run.path))
    figure = chart.figure
    assert len(figure.data) == 2 and len(figure.data[0].x) == len(kinds)
    show(next_tokens.fig9, Options(run=run.path, out=tmp_path, formats=()))
    table = from_csv(written(tmp_path, "fig9.csv").read_text())
    shown = select(table, measure="probability")
    assert len(shown) == len(kinds) * 2 * 3
    outcomes = results.ANSWER_PROBABILITY.load(run, "stories").mean()
    of_kind = select(table, kind="stories", side="counterfactual")
    assert value(of_kind, measure="p(C)") == pytest.approx(float(outcomes[1, 0]), rel=1e-5)
    likeliest = value(of_kind, measure="C is the likeliest token")
    assert likeliest == pytest.approx(float(outcomes[1, 1]), rel=1e-5)
    assert figure.data[1].x[1] == pytest.approx(100 * float(outcomes[1, 0]), rel=1e-4)


def test_runs_of_another_kind_are_refused_with_the_command(tmp_path: Path) -> None:
    for exhibits, name in (
        (carriers, "which_mlps_carry_them"),
        (next_tokens.fig9, "what_the_calculation_does"),
    ):
        with pytest.raises(SystemExit, match=rf"experiments {name}"):
            show(exhibits, Options(root=tmp_path))
