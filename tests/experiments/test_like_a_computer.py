"""Column addition against Python's own integers, and Figure 17 from configuration to files."""

from pathlib import Path
from typing import Any

import pytest
from support.drawings import written

from arith_lens import plotting
from arith_lens.problems import column_addition
from arith_lens.runs import find_runs
from experiments import results
from experiments.mlps import like_a_computer
from figures.exhibit import show
from figures.options import Options
from figures.probes import fig17
from figures.tables.table import from_csv, select


def number(digits: tuple[int, ...], base: int) -> int:
    return int("".join(map(str, digits)), base)


@pytest.mark.parametrize("base", [2, 3, 10])
def test_columns_carry_as_pythons_integers_do(base: int) -> None:
    for a in range(0, 120, 7):
        for b in (0, 1, 5, 9, 63, 99):
            found = column_addition(a, b, base)
            assert (number(found.a, base), number(found.b, base)) == (a, b)
            assert number(found.result, base) == a + b == found.steps[-1]
            for column in range(1, len(found.steps) + 1):
                part = base**column
                assert found.steps[column - 1] == (a + b) % part
                if column < len(found.steps):
                    carried = (a % part + b % part) // part
                    assert found.carries[-1 - column] == carried


def test_the_papers_sum_takes_the_papers_steps() -> None:
    found = column_addition(3, 4)
    assert found.steps == (1, 3, 7) and found.carries == (0, 0, 0)
    with pytest.raises(ValueError, match="base from 2 on"):
        column_addition(1, 2, 1)


def test_figure_17_is_computed_saved_and_drawn(
    make_hf: Any, tokenizer: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for part in (make_hf("llama"), tokenizer):
        part.save_pretrained(tmp_path / "tiny")
    config = like_a_computer.config(model=str(tmp_path / "tiny"))
    like_a_computer(config, root=tmp_path / "results")
    (run,) = find_runs("like_a_computer", root=tmp_path / "results")
    assert [
        results.SUM_COSINES.facts(run, name)["answer"] for name in results.SUM_COSINES.labels(run)
    ] == [
        "7",
        "1",
        "5",
        "2",
    ]
    assert results.SUM_COSINES.facts(run, "27-15-last")["text"] == "27 + 15 = 4"
    show(fig17, Options(run=run.path, out=tmp_path, formats=()))
    table = from_csv(written(tmp_path, "fig17.csv").read_text(encoding="utf-8"))
    layers = select(table, measure="margin over the second digit")
    assert len(layers) == 4 * 3
    for case in results.SUM_COSINES.labels(run):
        of_prompt = results.SUM_COSINES.load(run, case).per_pair[..., 0]
        rows = select(layers, case=case)
        assert rows.digit.tolist() == [str(digit) for digit in of_prompt.argmax(1).tolist()]
        cosines = of_prompt.sort(dim=1, descending=True).values
        margins = (cosines[:, 0] - cosines[:, 1]).tolist()
        assert rows.value.tolist() == pytest.approx(margins, abs=1e-6)
    steps = select(table, case="3-4-whole", measure="sum after this column", base=2)
    assert steps.value.tolist() == [1, 3, 7]
    (chart,) = fig17(Options(run=run.path))
    texts = [note.text for note in chart.figure.layout.annotations]
    assert any("steps\u00a01\u00a0→\u00a03\u00a0→\u00a07" in text for text in texts)
    with pytest.raises(SystemExit, match=r"experiments like_a_computer"):
        show(fig17, Options(root=tmp_path / "none"))


def test_cells_are_data() -> None:
    part = plotting.Steps("<s>", (("base 2", ("a <b>",)),), (("<i>", "#ffffff"),))
    notes = [note.text for note in plotting.step_panels([part], cells_title="x").layout.annotations]
    assert "&lt;i&gt;" in notes and any("&lt;s&gt;" in note for note in notes)
    with pytest.raises(ValueError, match="a row at least"):
        plotting.step_panels([], cells_title="x")
