"""The printed tables of Figures 8 and 10: counts by hand, an honest row for what is refused."""

import csv
from pathlib import Path

import pytest

import arith_lens
from arith_lens.pairs import sample_pairs, template_facts
from arith_lens.templates import NULL_SYMBOLS
from experiments.datasets import TemplateConfig, named_tokenizer, template_tables


@pytest.fixture(scope="module")
def shipped():
    return named_tokenizer("reference")


def test_figure_8_has_every_template_with_as_many_problems_as_counted_by_hand(shipped):
    counts = {"addition": 36, "subtraction": 45, "multiplication": 23, "division": 23}
    for operation, n_problems in counts.items():
        rows = template_facts(shipped, operation)
        assert [row["template"] for row in rows] == [f"{operation}/{place}" for place in range(9)]
        assert (
            {row["problems"] for row in rows} == {row["references"] for row in rows} == {n_problems}
        )
        assert rows[0]["candidates"] == len(NULL_SYMBOLS)
        for row in rows:
            assert len(shipped(row["reference"])["input_ids"]) == row["tokens"]
            assert len(shipped(row["counterfactual"])["input_ids"]) == row["tokens"]
            assert (
                shipped(row["reference"] + row["answer_piece"])["input_ids"][:-1]
                == (shipped(row["reference"])["input_ids"])
            )


def test_a_storys_prompts_can_all_be_drawn_and_no_more(shipped):
    (row,) = template_facts(shipped, templates=["story/7"], operands=[1, 2])
    pairs = sample_pairs(
        shipped, n=row["references"], keep="all", templates=["story/7"], operands=[1, 2]
    )
    assert row["problems"] == 4 and pairs.n_distinct == row["references"] > 100
    with pytest.raises(ValueError, match=f"only {row['references']} distinct"):
        sample_pairs(
            shipped, n=row["references"] + 1, keep="all", templates=["story/7"], operands=[1, 2]
        )


def test_a_template_that_gives_nothing_says_why(tokenizer):
    """The toy tokenizer spells the stories' verbs letter by letter: none has an equal."""
    (row,) = template_facts(tokenizer, templates=["story/1"])
    assert row["references"] == 0 and "not token-aligned" in row["refused"]


def test_the_table_is_printed_and_saved(tmp_path, capsys):
    template_tables(TemplateConfig(figure="10"), out=tmp_path)
    printed = capsys.readouterr().out
    assert "Figure 10: " in printed and "tokenizer reference" in printed
    assert all(f"story/{n} " in printed for n in range(1, 13))
    with (tmp_path / "fig10.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["template"] for row in rows] == [f"story/{n}" for n in range(1, 13)]
    assert "refused" not in rows[0] and int(rows[8]["references"]) > 10_000
    page = (tmp_path / "fig10.html").read_text(encoding="utf-8")
    assert page.count("<tr") == 13 and "<script" not in page


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(SystemExit, match=r"expected tokenizer\.json or tokenizer\.model"):
        template_tables(TemplateConfig(tokenizers=(str(tmp_path),)))


def test_no_weights_are_read(monkeypatch):
    """The folder of a shipped model, seen as it is without its weights."""
    folder = Path(arith_lens.__file__).parent / "reference" / "reference"

    def refuse(*_, **__):
        raise AssertionError("weights were loaded")

    monkeypatch.setattr("safetensors.torch.load_file", refuse)
    monkeypatch.setattr("transformers.PreTrainedModel.from_pretrained", refuse)
    assert named_tokenizer(str(folder)).tokenize("3 + 5") == named_tokenizer("reference").tokenize(
        "3 + 5"
    )
