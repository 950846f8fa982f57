"""Pairs go to files and come back; prompts of one's own are aligned, or refused with a reason."""
# Fields that bare tokens lack are None; here they are known.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportOptionalIterable=false, reportArgumentType=false

import csv
import json
from dataclasses import replace

import pytest
import torch
from test_pairs import same

from arith_lens.pairs import PromptPairs, Role, Selection, sample_pairs


@pytest.fixture(scope="module")
def pairs(tokenizer) -> PromptPairs:
    return sample_pairs(tokenizer, "subtraction", n=24, keep="all", draws=2)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


OWN_PROMPTS = [
    {"reference": "3 plus 4 is 2 and ", "counterfactual": "3 null 4 is 2 and ", "answer": 5},
    {"reference": "42 plus 34 equals 7", "counterfactual": "42 void 34 equals 7", "answer": "6"},
]  # fmt: skip


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_the_answers_of_counterfactuals_come_back_from_files(tokenizer, tmp_path, kind):
    options = {"keep": "all", "templates": "symbols", "counterfactual": "operator"}
    pairs = sample_pairs(tokenizer, "subtraction", **options)
    assert -1 in pairs.counterfactual_answer and (pairs.counterfactual_answer > 0).any()
    getattr(pairs, f"to_{kind}")(tmp_path / "pairs")
    assert same(getattr(PromptPairs, f"from_{kind}")(tmp_path / "pairs", tokenizer), pairs)
    assert same(PromptPairs.from_dataset(pairs.to_dataset()), pairs)


def test_rows_of_ones_own_may_say_what_the_counterfactual_answers(tokenizer):
    row = {"reference": "3 plus 4 equals ", "counterfactual": "3 plus 5 equals ", "answer": "7"}
    pairs = PromptPairs.from_rows([{**row, "counterfactual_answer": 8}, row], tokenizer)
    eight = tokenizer.convert_tokens_to_ids("8")
    assert pairs.counterfactual_answer.tolist() == [eight, -1]
    with pytest.raises(ValueError, match=r"one token after '3 plus 5 .* found '12'"):
        PromptPairs.from_rows([{**row, "counterfactual_answer": "12"}], tokenizer)


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_text_files_give_the_same_pairs_back(pairs, tokenizer, tmp_path, kind):
    path = tmp_path / f"pairs.{kind}"
    getattr(pairs, f"to_{kind}")(path)
    back = getattr(PromptPairs, f"from_{kind}")(path, tokenizer)
    assert same(back, pairs)


def test_a_line_of_json_ends_at_a_line_feed_alone(tokenizer, tmp_path):
    """A next-line or line-separator character is text, and JSON does not escape it."""
    rows = [{**OWN_PROMPTS[0], "reference": "3 plus\x85 4 is 2 and ",
             "counterfactual": "3 null\u2028 4 is 2 and "}]  # fmt: skip
    own = PromptPairs.from_jsonl(write(tmp_path / "own.jsonl", rows), tokenizer)
    own.to_jsonl(tmp_path / "back.jsonl")
    assert same(PromptPairs.from_jsonl(tmp_path / "back.jsonl", tokenizer), own)


def test_a_dataset_gives_the_same_pairs_back_selection_and_all(pairs, tmp_path):
    from datasets import load_from_disk

    chosen = replace(pairs, selection=Selection(50, 48, 0.75, 0.125, {"subtraction/0": (48, 50)}))
    assert same(PromptPairs.from_dataset(chosen.to_dataset()), chosen)
    chosen.to_dataset().save_to_disk(tmp_path / "pairs")
    assert same(PromptPairs.from_dataset(load_from_disk(tmp_path / "pairs")), chosen)


def test_bare_tokens_go_to_a_dataset_but_not_to_text(tmp_path):
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    tokens = torch.tensor([[1, 5, 0], [1, 6, 7]])
    bare = PromptPairs.from_tokens(tokens, tokens, torch.tensor([8, 9]), mask)
    assert same(PromptPairs.from_dataset(bare.to_dataset()), bare)
    with pytest.raises(ValueError, match=r"expected pairs with text, .* use to_dataset"):
        bare.to_jsonl(tmp_path / "bare.jsonl")
    with pytest.raises(ValueError, match="expected pairs with text"):
        bare.to_csv(tmp_path / "bare.csv")


def test_a_dataset_of_padded_tokens_is_read_by_its_mask():
    from datasets import Dataset

    columns = {"reference": [[1, 5, 0], [1, 6, 7]], "counterfactual": [[1, 4, 0], [1, 6, 8]]}
    rows = {**columns, "answer": [8, 9], "attention_mask": [[1, 1, 0], [1, 1, 1]]}
    pairs = PromptPairs.from_dataset(Dataset.from_dict(rows))
    assert pairs.reference[:, -1].tolist() == [5, 7], "END is column -1"
    assert pairs.lengths.tolist() == [2, 3]


def test_the_columns_are_the_documented_ones(pairs, tmp_path):
    pairs.to_csv(tmp_path / "pairs.csv")
    with (tmp_path / "pairs.csv").open(newline="") as file:
        header, first, *_ = csv.reader(file)
    assert header == ["reference", "counterfactual", "answer", "template", "a", "b", "problem"]
    a, b = pairs.operands[0].tolist()
    assert first[2:] == [str(a - b), pairs.template[0], str(a), str(b), f"{a} - {b}"]


def test_the_problem_is_the_file_s_own_word_or_what_is_known_of_it(pairs, tokenizer, tmp_path):
    rows = [dict(row, problem="one sum") for row in OWN_PROMPTS]
    named = PromptPairs.from_jsonl(write(tmp_path / "named.jsonl", rows), tokenizer)
    assert named.problem == ("one sum",) * len(OWN_PROMPTS)
    del rows[0]["problem"]
    partly = PromptPairs.from_jsonl(write(tmp_path / "partly.jsonl", rows), tokenizer)
    assert partly.problem == (OWN_PROMPTS[0]["reference"], "one sum")
    bare = PromptPairs.from_tokens(named.reference, named.counterfactual, named.answer)
    assert len({*bare.problem}) == len(bare), "without text: the prompt's tokens"
    both = pairs + pairs
    assert both.problem == pairs.problem * 2 and len({*both.problem}) <= len(pairs)
    assert PromptPairs.from_dataset(named.to_dataset()).problem == named.problem
    with pytest.raises(ValueError, match="if 'problem' is meant"):
        PromptPairs.from_rows([dict(OWN_PROMPTS[0], problme="x")], tokenizer)


def test_own_prompts_are_tokenized_and_have_no_roles(tokenizer, tmp_path):
    pairs = PromptPairs.from_jsonl(write(tmp_path / "own.jsonl", OWN_PROMPTS), tokenizer)
    assert len(pairs) == 2 and pairs.spans is None and pairs.template is None
    assert tokenizer.convert_ids_to_tokens(pairs.answer.tolist()) == ["5", "6"]
    for i, row in enumerate(OWN_PROMPTS):
        kept = pairs.reference[i, pairs.attention_mask[i]].tolist()
        assert kept == tokenizer(row["reference"])["input_ids"]


def test_a_row_whose_text_is_not_its_templates_has_no_roles(pairs, tokenizer, tmp_path):
    path = tmp_path / "edited.jsonl"
    pairs.to_jsonl(path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["a"] = 8 if rows[0]["a"] != 8 else 9
    assert PromptPairs.from_jsonl(write(path, rows), tokenizer).spans is None


def test_prompts_of_unequal_length_are_shown_with_their_counts(tokenizer, tmp_path):
    row = {"reference": "3 plus 4 is ", "counterfactual": "3 null null 4 is ", "answer": "7"}
    path = write(tmp_path / "own.jsonl", [OWN_PROMPTS[0], row])
    with pytest.raises(ValueError) as error:
        PromptPairs.from_jsonl(path, tokenizer)
    lines = str(error.value).splitlines()
    assert "own.jsonl, line 2: expected prompts of one length under " in lines[0]
    assert "found 8 and 9 tokens" in lines[0]
    assert lines[1] == "  reference         8 tokens  <s> ▁ 3 [▁plus] ▁ 4 ▁is ▁"
    assert lines[2] == "  counterfactual    9 tokens  <s> ▁ 3 [▁null] ▁null ▁ 4 ▁is ▁"
    assert "same number of tokens" in lines[3]


def test_long_prompts_of_unequal_length_are_shown_around_the_first_difference(tokenizer):
    start = "the sum of " * 10
    row = {"reference": f"{start}3 plus 4 is ", "counterfactual": f"{start}3 null null 4 is "}
    with pytest.raises(ValueError) as error:
        PromptPairs.from_rows([row | {"answer": "7"}], tokenizer)
    lines = str(error.value).splitlines()
    tokens = "… ▁the ▁sum ▁of ▁the ▁sum ▁of ▁ 3"
    assert lines[1].endswith(f"  38 tokens  {tokens} [▁plus] ▁ 4 ▁is ▁")
    assert lines[2].endswith(f"  39 tokens  {tokens} [▁null] ▁null ▁ 4 ▁is ▁")


@pytest.mark.parametrize(
    "reference, answer",
    [("3 plus 9 is ", "12"), ("3 plus 4 is", " 7"), ("3 plus 4 =", " 7")],
    ids=["two tokens", "a space comes first", "the blank-piece trap"],
)
def test_an_answer_that_is_not_the_next_token_is_refused(tokenizer, tmp_path, reference, answer):
    row = {"reference": reference, "counterfactual": reference, "answer": answer}
    with pytest.raises(
        ValueError, match=r"line 1: expected an answer of the one token after .* found"
    ):
        PromptPairs.from_jsonl(write(tmp_path / "own.jsonl", [row]), tokenizer)


def test_damaged_files_are_refused_with_their_line(tokenizer, tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(OWN_PROMPTS[0]) + "\n\n{not json\n")
    with pytest.raises(ValueError, match=r"own.jsonl, line 3: expected a JSON object, found"):
        PromptPairs.from_jsonl(path, tokenizer)
    write(path, [OWN_PROMPTS[0], {"reference": "a", "answer": "1"}])
    with pytest.raises(ValueError, match=r"line 2: expected the keys .*; add counterfactual"):
        PromptPairs.from_jsonl(path, tokenizer)
    write(path, [OWN_PROMPTS[0], 3])
    with pytest.raises(ValueError, match="line 2: expected an object with"):
        PromptPairs.from_jsonl(path, tokenizer)
    path.write_text("")
    with pytest.raises(ValueError, match=r"expected rows .*own.jsonl, found none"):
        PromptPairs.from_jsonl(path, tokenizer)
    (tmp_path / "own.csv").write_text("reference,answer\na,1\n")
    with pytest.raises(ValueError, match=r"own.csv, line 2: .*; add counterfactual"):
        PromptPairs.from_csv(tmp_path / "own.csv", tokenizer)


def test_a_foreign_dataset_is_named_by_what_it_lacks():
    from datasets import Dataset

    with pytest.raises(ValueError, match=r"found \['reference'\]; add counterfactual, answer"):
        PromptPairs.from_dataset(Dataset.from_dict({"reference": [[1, 2]]}))
    unequal = {"reference": [[1, 2]], "counterfactual": [[1, 2, 3]], "answer": [4]}
    with pytest.raises(
        ValueError,
        match="pair 0: expected prompts of one length, found 2 tokens in the reference and 3",
    ):
        PromptPairs.from_dataset(Dataset.from_dict(unequal))


def test_roles_come_back_from_text(pairs, tokenizer, tmp_path):
    pairs.to_jsonl(tmp_path / "pairs.jsonl")
    back = PromptPairs.from_jsonl(tmp_path / "pairs.jsonl", tokenizer)
    for role, column in ((Role.OPERAND_A, 0), (Role.OPERAND_B, 1)):
        tokens = back.reference[back.role_mask(role)].tolist()
        digits = tokenizer.convert_ids_to_tokens(tokens)
        assert digits == list(map(str, pairs.operands[:, column].tolist()))


def test_a_pair_of_one_prompt_is_refused(tokenizer, tmp_path):
    row = {**OWN_PROMPTS[0], "counterfactual": OWN_PROMPTS[0]["reference"]}
    with pytest.raises(
        ValueError, match=r"line 2: expected a counterfactual that differs from its reference"
    ) as error:
        PromptPairs.from_jsonl(write(tmp_path / "own.jsonl", [OWN_PROMPTS[0], row]), tokenizer)
    assert "calculat" not in str(error.value), "prompts may be of any task"


@pytest.mark.parametrize(
    "more, message",
    [
        ({"tempalte": "addition/0"}, "found 'tempalte'; if 'template' is meant"),
        ({"A": 3}, "found 'A'; if 'a' is meant"),
        (
            {"template": "addition/0"},
            "template, a and b together, found template without a, b; give all",
        ),
        ({"template": "addition/0", "a": "three", "b": 4}, "whole number as 'a', found 'three'"),
        (
            {"template": "additon/0", "a": 3, "b": 4},
            "expected a template such as .* found 'additon/0'",
        ),
    ],
    ids=str,
)
def test_what_a_row_misspells_is_refused(tokenizer, tmp_path, more, message):
    with pytest.raises(ValueError, match=message):
        PromptPairs.from_jsonl(
            write(tmp_path / "own.jsonl", [{**OWN_PROMPTS[0], **more}]), tokenizer
        )


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *[(column, ["3 plus 4 is "]) for column in ("reference", "counterfactual", "answer")],
        *[("reference", 12), ("answer", 7.0), ("answer", True), ("answer", {"a": 1})],
        *[("problem", ["x"]), ("examples", 3), ("template", ["addition/0"])],
    ],
)
def test_other_values_than_text_do_not_become_text(tokenizer, tmp_path, column, value):
    row = {**OWN_PROMPTS[0], column: value}
    with pytest.raises(ValueError, match=f"line 1: expected text in '{column}', found .*quotes"):
        PromptPairs.from_jsonl(write(tmp_path / "own.jsonl", [row]), tokenizer)


def test_a_whole_number_is_an_answer(tokenizer, tmp_path):
    rows = [{**OWN_PROMPTS[0], "answer": answer} for answer in (7, "7")]
    pairs = PromptPairs.from_jsonl(write(tmp_path / "own.jsonl", rows), tokenizer)
    assert pairs.answer_text == ("7", "7")


def test_a_line_that_is_nested_without_end_is_refused(tokenizer, tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(OWN_PROMPTS[0]) + "\n" + "[" * 100_000 + "]" * 100_000 + "\n")
    with pytest.raises(ValueError, match=r"own.jsonl, line 2: expected a JSON object, .*levels"):
        PromptPairs.from_jsonl(path, tokenizer)


def test_keys_of_ones_own_that_resemble_none_are_left_alone(tokenizer, tmp_path):
    rows = [{**OWN_PROMPTS[0], "id": 7, "source": "mine"}]
    assert len(PromptPairs.from_jsonl(write(tmp_path / "own.jsonl", rows), tokenizer)) == 1


def test_a_misspelt_required_key_is_shown_beside_what_is_missing(tokenizer, tmp_path):
    row = {"refrence": "a", "counterfactual": "b", "answer": "1"}
    with pytest.raises(ValueError, match=r"found refrence, .*; add reference; or say"):
        PromptPairs.from_jsonl(write(tmp_path / "own.jsonl", [row]), tokenizer)


def test_more_cells_than_columns_are_refused(tokenizer, tmp_path):
    (tmp_path / "own.csv").write_text("reference,counterfactual,answer\n1, 2 is,1 2 null,3,4\n")
    with pytest.raises(
        ValueError, match="line 2: expected one cell per column of the header, found more"
    ):
        PromptPairs.from_csv(tmp_path / "own.csv", tokenizer)


def test_rows_of_ones_own_are_pairs_and_are_checked_as_lines_are(tokenizer, tmp_path):
    of_file = PromptPairs.from_jsonl(write(tmp_path / "own.jsonl", OWN_PROMPTS), tokenizer)
    assert same(PromptPairs.from_rows(OWN_PROMPTS, tokenizer), of_file)
    with pytest.raises(ValueError, match=r"rows\[1\]: expected text in .*, found none in answer"):
        PromptPairs.from_rows([OWN_PROMPTS[0], {**OWN_PROMPTS[1], "answer": ""}], tokenizer)


def test_an_answer_of_several_tokens_names_the_first_one_which_is_then_taken(tokenizer):
    rows = [{**OWN_PROMPTS[0], "answer": "76"}]
    with pytest.raises(ValueError, match=r"Give its first token, '7', as the answer"):
        PromptPairs.from_rows(rows, tokenizer)
    (token,) = PromptPairs.from_rows([{**OWN_PROMPTS[0], "answer": "7"}], tokenizer).answer.tolist()
    assert tokenizer.decode([token]).strip() == "7"


@pytest.mark.parametrize(
    "kind, text", [("jsonl", "\n"), ("csv", "reference,counterfactual,answer\n")]
)
def test_an_empty_file_is_named(tokenizer, tmp_path, kind, text):
    (tmp_path / f"none.{kind}").write_text(text)
    with pytest.raises(ValueError, match=rf"expected rows of .* in .*none\.{kind}, found none"):
        getattr(PromptPairs, f"from_{kind}")(tmp_path / f"none.{kind}", tokenizer)


@pytest.mark.parametrize("name", ["own.csv", "own.CSV", "own.txt", "own.tsv", "own", "own.jsonl"])
def test_the_text_of_a_file_says_whether_it_is_a_table(pairs, tokenizer, tmp_path, name):
    path = tmp_path / name
    pairs.to_jsonl(path)
    assert same(PromptPairs.from_file(path, tokenizer), pairs)
    if name == "own.jsonl":
        path.write_text('"no object"\n' + path.read_text())
        with pytest.raises(ValueError, match="line 1: expected an object with reference"):
            PromptPairs.from_file(path, tokenizer)
        return
    pairs.to_csv(path)
    assert same(PromptPairs.from_file(path, tokenizer), pairs)
    with path.open(newline="") as file:
        rows = [*csv.reader(file)]
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter="\t").writerows(rows)
    assert same(PromptPairs.from_file(path, tokenizer), pairs)
    with path.open("a") as file:
        file.write("\t".join(["3 plus 4 is "] * 30))
    with pytest.raises(ValueError, match=rf"{name}, line {len(rows) + 1}: .*found more"):
        PromptPairs.from_file(path, tokenizer)


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_text_that_is_not_utf_8_is_named_with_its_line(tokenizer, tmp_path, kind):
    path = tmp_path / f"own.{kind}"
    path.write_bytes("reference,counterfactual,answer\n1 é,1 e,2\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"own\.\w+, line 2: expected text in UTF-8, .* 0xe9"):
        PromptPairs.from_file(path, tokenizer)


@pytest.mark.parametrize("column", ["reference", "counterfactual", "answer"])
def test_half_a_surrogate_pair_is_named_with_its_line(tokenizer, tmp_path, column):
    row = {**OWN_PROMPTS[0], column: "3 \ud800 4 is "}
    path = write(tmp_path / "own.jsonl", [OWN_PROMPTS[0], row])
    with pytest.raises(
        ValueError, match=rf"line 2: expected text in '{column}', found half .*ud800"
    ):
        PromptPairs.from_jsonl(path, tokenizer)


def test_lines_of_other_systems_are_read(pairs, tokenizer, tmp_path):
    pairs.to_jsonl(tmp_path / "own.jsonl")
    for end in (b"\r\n", b"\r"):
        (tmp_path / "other.jsonl").write_bytes(
            (tmp_path / "own.jsonl").read_bytes().replace(b"\n", end)
        )
        assert same(PromptPairs.from_jsonl(tmp_path / "other.jsonl", tokenizer), pairs)


def test_pairs_are_a_table(pairs, tokenizer):
    table = pairs.to_dataframe()
    assert table["reference"].tolist() == list(pairs.reference_text)
    assert table["answer"].tolist() == list(pairs.answer_text)
    assert table[["a", "b"]].values.tolist() == pairs.operands.tolist()
    assert table["tokens"].tolist() == pairs.attention_mask.sum(1).tolist()
    assert table["computed"].tolist() == pairs.computed.tolist()
    assert table["problem"].tolist() == list(pairs.problem)
    bare = PromptPairs.from_tokens(
        torch.tensor([[1, 5, 9], [1, 6, 9]]), torch.tensor([[1, 7, 9], [1, 7, 9]]),
        torch.tensor([3, 4]),
    ).to_dataframe()  # fmt: skip
    assert bare["reference"].tolist() == [[1, 5, 9], [1, 6, 9]] and bare["answer"].tolist() == [
        3,
        4,
    ]
    assert "a" not in bare and "template" not in bare


def test_both_ways_to_give_roles_work(tokenizer):
    """By template, a and b; or by columns: `<s> ▁ 3 ▁plus ▁ 4 ▁is ▁` counted by hand."""
    row = {"reference": "3 plus 4 is ", "counterfactual": "3 null 4 is ", "answer": "7"}
    bare = PromptPairs.from_rows([row], tokenizer)
    with pytest.raises(ValueError, match=r"template \('addition/0'\), a and b .*replace\(pairs, s"):
        bare.role_mask(Role.OPERAND_A)
    own = replace(bare, spans={Role.OPERAND_A: torch.tensor([[2, 3]])})
    assert own.role_mask(Role.OPERAND_A).nonzero().tolist() == [[0, 2]]
    symbol = {"reference": "3 + 4 = ", "counterfactual": "3 < 4 = ", "answer": "7"}
    known = PromptPairs.from_rows([symbol | {"template": "addition/0", "a": 3, "b": 4}], tokenizer)
    assert known.role_mask(Role.OPERATOR).nonzero().tolist() == [[0, 3]]


def test_a_file_with_several_faults_names_their_lines_as_an_editor_counts_them(tmp_path, tokenizer):
    path = tmp_path / "own.csv"
    good, faulty = '"3 plus\n4 is ","3 null\n4 is ",7', "3 plus 4 is ,3 null 4 is ,"
    lines = ["reference,counterfactual,answer", good, "", faulty, good, *[faulty] * 6]
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=r"own.csv, line 6: .* found none in answer") as error:
        PromptPairs.from_file(path, tokenizer)
    numbers = [i for i, line in enumerate(path.read_text().split("\n"), 1) if line == faulty]
    assert "7 of 9 rows" in str(error.value) and numbers[0] == 6
    assert str(error.value).endswith(", ".join(f"line {i}" for i in numbers[:5]) + ", …")

    row = {"reference": "3 plus 4 is ", "counterfactual": "3 null 4 is "}
    rows = [row | {"answer": answer} for answer in ("12", "7", "13")]
    write(path := tmp_path / "own.jsonl", rows)
    with pytest.raises(
        ValueError, match=r"own.jsonl, line 1: expected an answer of the one"
    ) as error:
        PromptPairs.from_file(path, tokenizer)
    assert "2 of 3 rows" in str(error.value) and str(error.value).endswith("line 1, line 3")
    with path.open("a", encoding="utf-8") as file:
        file.write("{no JSON\n")
    with pytest.raises(ValueError, match="line 4: expected a JSON object") as error:
        PromptPairs.from_file(path, tokenizer)
    assert "rows are refused" not in str(error.value), "one alone"


def test_a_quote_that_is_not_closed_is_refused_where_it_is(tmp_path, tokenizer):
    path = tmp_path / "own.csv"
    row = "3 plus 4 is ,3 null 4 is ,7\n"
    path.write_text(f'reference,counterfactual,answer\n{row}3 plus 5 is ,"3 null 5 is ,8\n{row}')
    with pytest.raises(ValueError, match=r"own.csv, line 3: expected a line of CSV"):
        PromptPairs.from_file(path, tokenizer)


def test_columns_have_the_names_of_the_file_in_an_error(tmp_path, tokenizer):
    path = tmp_path / "own.csv"
    path.write_text("clean,corrupted,label\n3 plus 4 is ,3 null 4 is ,7\n", encoding="utf-8")
    with pytest.raises(ValueError, match="found clean, corrupted, label; add answer") as error:
        PromptPairs.from_file(path, tokenizer)
    assert str(error.value).endswith("columns={'answer': 'label'}")
    assert len(PromptPairs.from_file(path, tokenizer, columns={"answer": "label"})) == 1
