"""The paper's tables as data: differences that it prints follow from the accuracies."""

import pytest

from arith_lens.paper import BENCHMARKS, PaperModel, paper_model

CHANGES = {  # as Table 1 prints them
    ("LLaMA2-7B", "full"): (10.0, 23.2, 2.8, 15.6, -5.5, -5.8),
    ("LLaMA2-7B", "precise"): (12.8, 20.1, 4.3, 21.1, 0.4, -0.2),
    ("LLaMA2-13B", "full"): (15.9, 28.5, 3.2, 17.1, -4.6, -5.3),
    ("LLaMA2-13B", "precise"): (17.6, 27.4, 5.6, 20.9, 0.2, -0.1),
}


def model(hub: str) -> PaperModel:
    found = paper_model(hub)
    assert found is not None
    return found


@pytest.mark.parametrize("hub", ["meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-13b-hf"])
def test_table_1_has_the_changes_that_the_paper_prints(hub: str) -> None:
    paper = model(hub)
    for row in paper.tunings:
        if row.table == 1:
            changes = tuple(row.accuracy[name] - paper.before[name] for name in BENCHMARKS)
            assert changes == pytest.approx(CHANGES[paper.name, row.method], abs=0.051)


def test_tables_2_and_5_agree_where_they_show_the_same_setting() -> None:
    tunings = model("meta-llama/Llama-2-7b-hf").tunings
    by_table = {
        table: {(row.heads, row.mlps): row for row in tunings if row.table == table}
        for table in (2, 5)
    }
    assert [len(rows) for rows in by_table.values()] == [6, 6]
    for shared in ((32, 0), (32, 3)):
        of_2, of_5 = by_table[2][shared], by_table[5][shared]
        assert of_2.accuracy == of_5.accuracy and of_2.parameters == of_5.parameters


def test_tuned_parameters_are_those_of_the_architecture() -> None:
    """A head of LLaMA2-7B has 4 x 4096 x 128 weights, an MLP 3 x 4096 x 11008."""
    for row in model("meta-llama/Llama-2-7b-hf").tunings:
        if row.method == "precise" and row.table > 1:
            exact = row.heads * 4 * 4096 * 128 + row.mlps * 3 * 4096 * 11008
            assert row.parameters == pytest.approx(exact, abs=0.6e6)


def test_other_models_have_no_numbers_of_the_paper() -> None:
    assert paper_model("reference") is None
    assert paper_model("meta-llama/Llama-2-7b-chat-hf") is None
