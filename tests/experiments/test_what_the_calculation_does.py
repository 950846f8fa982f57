"""The experiment of Figure 9, and its figure: from configuration to files."""

from pathlib import Path
from typing import Any

import pytest
from support.drawings import written

from arith_lens.runs import find_runs
from experiments import next_tokens as experiment
from experiments import results
from experiments.next_tokens import what_the_calculation_does
from figures import next_tokens
from figures.exhibit import show
from figures.options import Options
from figures.tables.table import from_csv, select, value


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


def test_without_a_run_the_command_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"experiments what_the_calculation_does"):
        show(next_tokens.fig9, Options(root=tmp_path))


def test_a_stopped_run_goes_on_after_the_last_kind_of_prompt(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("addition", "subtraction")
    monkeypatch.setattr(
        experiment, "PAIR_KINDS", {kind: experiment.PAIR_KINDS[kind] for kind in kinds}
    )
    of_prompts, texts = experiment.next_tokens, []

    def stopping(*args: Any, **options: Any) -> Any:
        texts.append(args[1])
        if len(texts) == 3:  # two sides of the first kind are stored
            raise KeyboardInterrupt
        return of_prompts(*args, **options)

    monkeypatch.setattr(experiment, "next_tokens", stopping)
    config = what_the_calculation_does.config(model=str(checkpoint), n=9, keep="all", k=3)
    with pytest.raises(KeyboardInterrupt):
        what_the_calculation_does(config, root=tmp_path)
    what_the_calculation_does(config, root=tmp_path)
    assert len(texts) == 5  # the first kind is not run again, the second has two sides
    assert texts[3] == texts[2] != texts[0]
