"""Every exhibit is made from its table as the CSV file has it, and tables have one schema."""

import ast
import sys
from math import nan
from pathlib import Path

import pytest
import torch

from arith_lens.effects import Effects
from figures.__main__ import main
from figures.collection import table
from figures.exhibit import rows_where
from figures.options import GALLERY
from figures.tables.number import Number, over_draws
from figures.tables.table import (
    IDENTITY,
    MEASURED,
    QuestionTable,
    from_csv,
    has,
    interval_numbers,
    keys_of,
    model_key,
    n_problems,
    number_of,
    read_back,
    records,
    row,
    select,
    to_csv,
    value,
)

FIGURES = Path(__file__).parents[2] / "figures"


def makes_directly(text: str) -> bool:
    """Whether the code makes a Chart or a Table itself, instead of by `exhibit`."""
    calls = (node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return any(isinstance(name, ast.Name) and name.id in ("Chart", "Table") for name in calls)


def test_exhibits_are_made_from_their_tables() -> None:
    files = {path.stem: path.read_text() for path in FIGURES.rglob("*.py")}
    assert makes_directly(files.pop("exhibit"))
    assert not {name for name, text in files.items() if makes_directly(text)}


def made_table() -> QuestionTable:
    share = Number(0.123456789, -0.1, 0.4, "95% over problems", 36)
    return QuestionTable.of(
        "made",
        "a model",
        [
            row("accuracy", share, operation="addition", k=0),
            row("accuracy", Number(1.0), operation="addition", k=2),
            row("p(C)", Number(0.5), operation="division", head="5.10"),
            row("change", Number(-1.2, -1.5, nan, unit="relative"), operation="division"),
        ],
    )


def test_a_row_has_the_schema_and_survives_its_file() -> None:
    frame = made_table().frame()
    assert [*frame.columns] == [*IDENTITY, "operation", "k", "head", *MEASURED]
    text = to_csv(frame)
    again = from_csv(text)
    assert to_csv(again) == text
    assert again["head"].tolist() == ["", "", "5.10", ""]
    assert again.value.tolist() == [0.123457, 1.0, 0.5, -1.2]
    assert again.k.tolist()[:2] == [0, 2] and again.k.isna().tolist() == [False, False, True, True]


def test_ends_are_cut_where_the_unit_ends() -> None:
    frame = read_back(made_table())
    assert value(select(frame, k=0).assign(value=lambda t: t.low), measure="accuracy") == 0
    (relative,) = select(frame, measure="change").low
    assert relative == -1.5
    assert select(frame, measure="change").high.isna().all()


def test_rows_are_chosen_by_keys_and_a_wrong_choice_is_an_error() -> None:
    made = made_table()
    frame = read_back(made)
    assert made.number("accuracy", k=0).n == 36
    assert len(select(frame, measure=("accuracy", "p(C)"))) == 3
    assert keys_of(frame, "operation") == ["addition", "division"] and keys_of(frame, "head") == [
        "5.10"
    ]
    assert has(frame, head="5.10") and not has(frame, head="5.1")
    for wrong in ({"measure": "accuracy"}, {"measure": "none"}):
        with pytest.raises(KeyError, match="expected one row"):
            value(frame, **wrong)
        with pytest.raises(KeyError, match="expected one row of made"):
            made.number(**wrong)


def test_rows_can_be_chosen_on_the_command_line() -> None:
    frame = read_back(made_table())
    (first,) = rows_where([frame], ["operation=addition", "k=0"])
    assert first.value.tolist() == [0.123457]
    both = rows_where([frame, frame.drop(columns="head")], ["operation=division"])
    assert [len(part) for part in both] == [2, 2]
    assert len(rows_where([frame, frame.drop(columns="head")], ["head=5.10"])) == 1
    with pytest.raises(KeyError, match=r"expected a key among question, .* found 'heads'"):
        rows_where([frame], ["heads=5.10"])
    with pytest.raises(KeyError, match=r"expected k among 0, 2, found '3'"):
        rows_where([frame], ["k=3"])


def test_a_question_or_the_list_of_claims_is_printed_and_not_drawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from support.made_claims import which_heads

    which_heads(tmp_path, {(4, 6): -0.15})
    monkeypatch.setattr("figures.tables.resampled.N_RESAMPLES", 50)
    words = ["table", "claims", "--model", "made", "--roots", str(tmp_path)]
    chosen = ["--where", "claim=few_key_heads", "--where", "measure=addition"]
    monkeypatch.setattr(sys, "argv", ["figures", *words, *chosen])
    main()
    header, only = capsys.readouterr().out.strip().splitlines()
    assert "p_within" in header and "few_key_heads" in only and "0.010417" in only
    monkeypatch.setattr(sys, "argv", ["figures", "table", "knockout", "--help"])
    with pytest.raises(SystemExit):
        main()
    text = capsys.readouterr().out
    assert " numbers of fig3" in text and "--where KEY=VALUE" in text
    assert "draws it" not in text and "figures table fig3" in text
    monkeypatch.setattr(sys, "argv", ["figures", "table", "knockout", "--where", "operation"])
    with pytest.raises(SystemExit, match="expected --where KEY=VALUE, found --where operation"):
        main()


def test_problems_that_are_left_out_do_not_count() -> None:
    values = torch.tensor([[1.0, 2.0, nan, nan], [1.0, 1.0, 2.0, 2.0]])
    effects = Effects(values, ("k",), "logit", problem=("a", "b", "c", "c"))
    some, every = interval_numbers(effects, "relative")
    assert (some.value, some.n, every.n, n_problems(effects)) == (1.5, 2, 3, 3)


def test_a_file_keeps_texts_long_numbers_and_ends_that_are_cut() -> None:
    change = Number(-0.9, -1.5, 0.2, unit="points", possible=(-2, 0))
    rows = [
        row("change", change, prompt="3 + 5\r= "),
        row("parameters", Number(1234567.5, unit="count"), prompt="nan"),
    ]
    again = read_back(QuestionTable.of("made", "a model", rows))
    assert again.prompt.tolist() == ["3 + 5␍= ", "nan"] and len(again) == 2
    assert again.value.tolist() == [-0.9, 1234568]
    number = number_of(records(again)[0])
    assert number.ends == (-1.5, 0)


def test_numbers_of_effects_and_of_draws_are_those_by_hand() -> None:
    values = torch.tensor([[0.0, 1.0, 1.0, 1.0], [0.5, 0.5, 0.5, 0.5]])
    effects = Effects(values, ("k",), "correct", problem=("a", "b", "c", "d"))
    some, none = interval_numbers(effects, "share")
    assert (some.value, some.n) == (0.75, 4)
    assert none.ends == pytest.approx((0.0767, 0.9233), abs=1e-4), "Wilson's, four alike, t = 3.182"
    low, high = some.ends
    assert low is not None and high is not None and low < 0.75 < high
    drawn = over_draws([0.2, 0.4, 0.9], unit="share")
    assert drawn.value == pytest.approx(0.5)
    assert (drawn.low, drawn.high, drawn.spread, drawn.n) == (0.2, 0.9, "range of 3 draws", 3)


AGGREGATES = {"ci", "stderr", "quantile", "nanquantile", "resampled_means", "nanmean"}
"""Calls that compute a mean over draws, an interval or a range."""


def aggregating_calls(text: str) -> set[str]:
    """The names of such calls in some code."""
    calls = (node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    names = {getattr(call, "attr", getattr(call, "id", "")) for call in calls}
    return names & AGGREGATES


def test_only_tables_aggregate() -> None:
    places = {
        path.relative_to(FIGURES).as_posix()
        for path in FIGURES.rglob("*.py")
        if aggregating_calls(path.read_text())
    }
    assert {place for place in places if not place.startswith("tables/")} == set()
    assert {"tables/table.py", "tables/resampled.py"} <= places
    assert aggregating_calls("low, high = effects.ci()") == {"ci"}


def imported_modules(text: str) -> set[str]:
    """The modules that some code imports."""
    nodes = [*ast.walk(ast.parse(text))]
    plain = {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_claims_read_rows_and_tables_read_no_claim() -> None:
    """One part of claims computes, from p-values: how many verdicts chance would give."""
    computing = {"numpy", "torch", "arith_lens.effects", "arith_lens.statistics"}
    claims = [
        path.read_text()
        for path in (FIGURES / "claims").glob("*.py")
        if path.stem != "multiplicity"
    ]
    assert not computing & set().union(*map(imported_modules, claims))
    tables = [path.read_text() for path in (FIGURES / "tables").glob("*.py")]
    by_tables = set().union(*map(imported_modules, tables))
    assert not {name for name in by_tables if name.startswith("figures.claims")}
    assert computing <= by_tables


def test_a_table_names_a_model_and_no_path_of_a_machine() -> None:
    assert model_key("reference") == "reference"
    assert model_key("google/gemma-3-270m") == "google/gemma-3-270m"
    assert model_key("results/train_reference/reference-3/final") == "reference-3"
    assert model_key("/models/llama") == "llama"


def test_a_table_is_read_from_a_folder_of_tables_by_its_name() -> None:
    rows = table("knockout", root=str(GALLERY))
    assert len(rows) == len((GALLERY / "fig3.csv").read_text("utf-8").splitlines()) - 1
    with pytest.raises(KeyError, match=r"expected a question among .*, found 'knock_out'"):
        table("knock_out", root=GALLERY)
