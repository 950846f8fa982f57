"""From a command's configuration to a saved run, its figure and its table, on a small scale."""

import csv
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from drawings import written

import arith_lens as al
from arith_lens.knockout import KnockoutCurves
from arith_lens.operations import FOUR
from arith_lens.runs import find_runs
from experiments import (
    are_they_needed,
    do_powers_use_them,
    do_word_problems_use_them,
    strongest,
    what_comes_instead,
    what_else_breaks,
)
from figures import fig3, fig4, table3, table4, transfer
from figures.common import Options, TableOptions


@pytest.fixture(scope="module")
def reference_model() -> al.HookedModel:
    return al.load_model("reference")


def rows(path: Path, key: str) -> dict[str, dict[str, str]]:
    """A table's rows by one of its columns."""
    with path.open(newline="") as file:
        return {row[key]: row for row in csv.DictReader(file)}


def test_figure_3_from_its_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = are_they_needed.Config(
        operations=("addition",), n=18, most=6, controls=2, candidates=4, masked=2
    )
    are_they_needed.main(config, root=tmp_path)
    report = capsys.readouterr().out
    assert "2 heads out (the key heads): 100.0% to" in report
    assert "iterative masking takes" in report
    (run,) = find_runs("are_they_needed", root=tmp_path)
    curves = KnockoutCurves.from_arrays(run.load_arrays("addition"))
    assert [*curves] == ["effect", "END", "random 0", "matched 0", "random 1", "matched 1",
                         "iterative"]  # fmt: skip
    effect = curves["effect"]
    assert effect.accuracy()[0] == 1.0
    assert effect.accuracy()[-1] < 0.5 < min(c.accuracy()[-1] for c in curves.starting("matched"))
    keys = {*effect.order[:6]}
    assert all(not keys & {*curve.order[:6]} for curve in curves.starting("matched"))
    fig3.main(Options(root=tmp_path, out=tmp_path, formats=()))
    table = pandas.read_csv(written(tmp_path, "fig3.csv"))
    shown = table[(table["curve"] == "effect") & (table["operation"] == "addition")]
    assert shown["accuracy"].tolist() == pytest.approx(effect.accuracy().tolist())
    assert "2 key heads (2.1%)" in written(tmp_path, "fig3.html").read_text()


def test_a_saved_operation_is_not_computed_twice(tmp_path: Path) -> None:
    config = are_they_needed.Config(
        operations=("addition",), n=18, most=2, controls=1, candidates=0
    )
    are_they_needed.main(config, root=tmp_path)
    (run,) = find_runs("are_they_needed", root=tmp_path)
    saved = (run.folder("addition") / "result.safetensors").stat().st_mtime_ns
    are_they_needed.main(config, root=tmp_path)
    assert (run.folder("addition") / "result.safetensors").stat().st_mtime_ns == saved


def test_figure_4_from_its_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = what_comes_instead.Config(prompts=20, n=18, heads=10)
    what_comes_instead.main(config, root=tmp_path)
    (run,) = find_runs("what_comes_instead", root=tmp_path)
    before, after = (
        what_comes_instead.right_share(run, f"integers-{when}") for when in ("before", "after")
    )
    assert before > 0.8 > 0.5 > after
    fig4.main(Options(root=tmp_path, out=tmp_path, formats=()))
    table = pandas.read_csv(written(tmp_path, "fig4.csv"), keep_default_na=False)
    assert len(table) == 4 * 2 * 20 * 5
    assert "10 heads knocked out" in written(tmp_path, "fig4.html").read_text()


def test_answers_begin_with_a_token_of_their_own(reference_model: al.HookedModel) -> None:
    tokenizer = reference_model.tokenizer
    asked = [("281 + 135 = ", "416"), ("4.2 plus 2.5 equals to ", "6.7")]
    found = what_comes_instead.first_tokens(reference_model, asked)
    assert tokenizer.convert_ids_to_tokens(found) == ["4", "6"]
    with pytest.raises(ValueError, match="to begin with a token of its own"):
        what_comes_instead.first_tokens(reference_model, [("281 + 135 = ", "")])


def test_table_3_from_its_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = al.sample_pairs

    def some(model: al.HookedModel, operation: str, **options: Any) -> al.PromptPairs:
        return whole(model, operation, 18 if operation in FOUR else None, **options)

    monkeypatch.setattr(al, "sample_pairs", some)
    do_powers_use_them.main(do_powers_use_them.Config(controls=1, draws=1), root=tmp_path)
    table3.main(TableOptions(root=tmp_path, out=tmp_path))
    printed = capsys.readouterr().out
    assert "{A} to the power of {B} equals" in printed
    table = rows(tmp_path / "table3.csv", "wording")
    assert [row["references"] for row in table.values()] == ["20", "20"]
    assert [float(row["accuracy_before"]) for row in table.values()] == [1, 1]
    (run,) = find_runs("do_powers_use_them", root=tmp_path)
    key = al.key_heads(run.load("exponentiation-0-effects"))
    assert table["{A} ^ {B} = "]["key_heads"] == " ".join(map(str, key))
    assert "<table" in (tmp_path / "table3.html").read_text()


def test_table_4_from_its_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                     monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    whole = do_word_problems_use_them.world_pairs

    def some(model: al.HookedModel, *, seed: int) -> tuple:
        pairs, report = whole(model, "groups", split="validation", seed=seed)
        return pairs[:60], report

    monkeypatch.setattr(do_word_problems_use_them, "world_pairs", some)
    config = do_word_problems_use_them.Config(n=18, controls=1, heads=4, most=72)
    do_word_problems_use_them.main(config, root=tmp_path)
    assert "their counterfactual is answered with C too" in capsys.readouterr().out
    (run,) = find_runs("do_word_problems_use_them", root=tmp_path)
    looks = al.Effects.from_arrays(run.load_arrays("attention-generated"))
    assert looks.mean().sum(-1).tolist() == pytest.approx([1.0] * len(looks.mean()), abs=1e-5)
    table4.main(TableOptions(root=tmp_path, out=tmp_path))
    table = rows(written(tmp_path, "table4.csv"), "set")
    heads = {name: {*row["heads"].split()} for name, row in table.items()}
    assert heads["overlap"] == heads["generated"] & heads["word_problems"]
    assert float(table["generated"]["generated_before"]) == 1
    assert len(rows(written(tmp_path, "table4_heads.csv"), "head")) == len(looks.mean())


def test_transfer_from_its_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = what_else_breaks.Config(n=18, controls=1, limit=12)
    what_else_breaks.main(config, root=tmp_path)
    transfer.main(TableOptions(root=tmp_path, out=tmp_path))
    table = rows(written(tmp_path, "transfer.csv"), "task")
    assert table["all word problems"]["questions"] == "48"
    assert table["all generic tasks"]["questions"] == "60"
    assert float(table["all generic tasks"]["before"]) > 0.8
    assert "stand in for SVAMP, GSM8K and MMLU" in capsys.readouterr().out


def test_the_mean_over_operations_weighs_each_alike(reference_model: al.HookedModel) -> None:
    pairs = strongest.all_operations(reference_model, n=9)
    assert len({*(pairs.template or ())}) == 36
    together = al.path_patch(reference_model, pairs, progress=False).heads
    alone = [together.select(slice(start, start + 9)).mean() for start in range(0, len(pairs), 9)]
    expected = torch.stack(alone).mean(0)
    assert together.mean().flatten().tolist() == pytest.approx(
        expected.flatten().tolist(), abs=1e-6
    )


@pytest.mark.parametrize(
    "experiment",
    [are_they_needed, what_comes_instead, do_powers_use_them, what_else_breaks],
    ids=lambda module: module.__name__.split(".")[-1],
)
def test_a_dry_run_computes_nothing(
    experiment: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment.main(experiment.Config(), root=tmp_path, dry_run=True)  # pyright: ignore
    assert capsys.readouterr().out.strip()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("figure", [fig3, fig4, table3, table4, transfer])
def test_a_missing_run_is_named_with_its_cure(figure: object, tmp_path: Path) -> None:
    options = Options if figure in (fig3, fig4) else TableOptions
    with pytest.raises(SystemExit, match=r"Make one: python -m experiments\.\w+ --model reference"):
        figure.main(options(root=tmp_path, out=tmp_path))  # pyright: ignore
