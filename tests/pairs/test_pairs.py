"""PromptPairs as a value: made from bare tokens, sliced, added, filtered, shown."""
# Fields that bare tokens lack are None; here they are known.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportOptionalIterable=false, reportArgumentType=false

import dataclasses

import pytest
import torch

from arith_lens.pairs import PromptPairs, Role, Selection

REFERENCE = torch.tensor([[1, 5, 6, 7], [1, 8, 6, 9], [1, 5, 6, 7]])
COUNTERFACTUAL = torch.tensor([[1, 5, 2, 7], [1, 8, 2, 9], [1, 5, 3, 7]])
ANSWER = torch.tensor([11, 12, 11])
FULL = torch.ones(3, 4, dtype=torch.bool)


@pytest.fixture
def pairs() -> PromptPairs:
    """Three pairs of two distinct references, padded by 0, 2 and 0, with everything known."""
    span = torch.tensor([[0, 1], [2, 3], [0, 1]])
    return PromptPairs(
        reference=REFERENCE,
        counterfactual=COUNTERFACTUAL,
        answer=ANSWER,
        attention_mask=torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 1, 1]]).bool(),
        spans={
            Role.BOS: span,
            Role.OPERAND_A: torch.tensor([[1, 3], [3, 3], [1, 3]]),
            Role.OPERATOR: torch.tensor([[0, 0], [0, 0], [0, 0]]),
            Role.OPERAND_B: torch.tensor([[0, 0], [0, 0], [0, 0]]),
            Role.END: torch.tensor([[3, 4]] * 3),
        },
        template=("t/0", "t/1", "t/0"),
        operation=("addition",) * 3,
        operands=torch.tensor([[1, 2], [3, 4], [1, 2]]),
        computed=torch.tensor([True, False, True]),
        reference_text=("a", "b", "a"),
        counterfactual_text=("x", "y", "z"),
        answer_text=("3", "7", "3"),
        counterfactual_answer=torch.tensor([13, -1, 13]),
        counterfactual_answer_text=("4", "", "4"),
        pieces={1: "<s>", 5: "<b>", 6: "▁6"},
        selection=Selection(6, 3, 0.5, 0.0, {"t/0": (2, 3), "t/1": (1, 3)}),
    )


def same(one: PromptPairs, other: PromptPairs) -> bool:
    """Whether every field is equal, tensors element by element."""

    def equal(a, b):
        if isinstance(a, torch.Tensor):
            return torch.equal(a, b)
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
        return a == b

    names = [field.name for field in dataclasses.fields(one)]
    return all(equal(getattr(one, name), getattr(other, name)) for name in names)


def test_bare_tokens_have_neither_roles_nor_text():
    pairs = PromptPairs.from_tokens(REFERENCE, COUNTERFACTUAL, ANSWER)
    assert torch.equal(pairs.attention_mask, FULL)
    assert torch.equal(pairs.reference, REFERENCE)
    assert pairs.spans is pairs.template is pairs.reference_text is pairs.selection is None
    with pytest.raises(
        ValueError, match="expected pairs with the roles of their tokens, found none"
    ):
        pairs.role_mask(Role.END)


def test_bare_tokens_have_the_answers_of_counterfactuals_that_they_are_given():
    none = PromptPairs.from_tokens(REFERENCE, COUNTERFACTUAL, ANSWER)
    assert none.counterfactual_answer.tolist() == [-1, -1, -1]
    other = torch.tensor([13, -1, 14])
    pairs = PromptPairs.from_tokens(REFERENCE, COUNTERFACTUAL, ANSWER, counterfactual_answer=other)
    assert pairs.counterfactual_answer.tolist() == [13, -1, 14]
    assert pairs[1:].counterfactual_answer.tolist() == [-1, 14]
    assert (pairs[2] + none[:2]).counterfactual_answer.tolist() == [14, -1, -1]
    with pytest.raises(ValueError, match="-1 where a counterfactual has no answer"):
        PromptPairs.from_tokens(REFERENCE, COUNTERFACTUAL, ANSWER, counterfactual_answer=other[:2])


def test_right_padding_becomes_left_padding():
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1, 1]])
    pairs = PromptPairs.from_tokens(REFERENCE, COUNTERFACTUAL, ANSWER, mask)
    assert pairs.attention_mask[:, -1].all(), "END is column -1"
    for row, given in enumerate(mask.bool()):
        kept = pairs.attention_mask[row]
        assert pairs.reference[row, kept].tolist() == REFERENCE[row, given].tolist()
        assert pairs.counterfactual[row, kept].tolist() == COUNTERFACTUAL[row, given].tolist()
    assert pairs.attention_mask[1].tolist() == [False, False, True, True]


def test_padding_may_be_no_token_at_all():
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1, 1]])
    tokens = REFERENCE.masked_fill(mask == 0, -100)
    pairs = PromptPairs.from_tokens(tokens, tokens, ANSWER, mask)
    assert pairs.reference.min() >= 0 and pairs.counterfactual.min() >= 0
    assert torch.equal(pairs.reference[0], REFERENCE[0])


def test_the_given_tensors_are_not_shared():
    answer = ANSWER.clone()
    pairs = PromptPairs.from_tokens(REFERENCE, COUNTERFACTUAL, answer)
    answer += 1
    assert torch.equal(pairs.answer, ANSWER)


@pytest.mark.parametrize(
    "given, message",
    [
        ((REFERENCE, COUNTERFACTUAL[:, 1:], ANSWER), r"one shape .* \[3, 4\] and \[3, 3\]"),
        ((REFERENCE, COUNTERFACTUAL[:2], ANSWER), r"\[3, 4\] and \[2, 4\]"),
        ((REFERENCE, COUNTERFACTUAL, ANSWER[:2]), r"per pair, \[3\], found \[2\]"),
        ((REFERENCE, COUNTERFACTUAL, ANSWER, FULL[:, 1:]), r"shape \[3, 4\], found \[3, 3\]"),
        ((REFERENCE[:0], COUNTERFACTUAL[:0], ANSWER[:0]), "expected at least one pair, found none"),
        (
            (REFERENCE, COUNTERFACTUAL, ANSWER, FULL & torch.tensor([[1], [0], [1]]).bool()),
            "found attention_mask False everywhere in pair 1",
        ),
        (
            (REFERENCE, COUNTERFACTUAL, ANSWER, FULL & torch.tensor([1, 0, 1, 1]).bool()),
            "pair 0: expected attention_mask as one run of True, found a hole",
        ),
    ],
)
def test_tokens_that_are_no_aligned_pairs_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        PromptPairs.from_tokens(*given)


@pytest.mark.parametrize("columns", [(3,), (0, 1)], ids=["right", "left"])
def test_padding_without_a_mask_is_refused_where_the_padding_is_known(columns):
    padded = REFERENCE.clone()
    padded[1, list(columns)] = 0
    with pytest.raises(ValueError, match=r"reference of pair 1 .* the padding token 0"):
        PromptPairs.from_tokens(padded, COUNTERFACTUAL, ANSWER, pad_token=0)
    PromptPairs.from_tokens(padded, COUNTERFACTUAL, ANSWER, FULL, pad_token=0)


def test_a_padding_token_that_is_also_bos_is_no_padding():
    PromptPairs.from_tokens(REFERENCE, COUNTERFACTUAL, ANSWER, pad_token=1)


@pytest.mark.parametrize(
    "which, rows",
    [
        (1, [1]),
        (-1, [2]),
        (slice(1, None), [1, 2]),
        ([2, 0], [2, 0]),
        (torch.tensor([True, False, True]), [0, 2]),
    ],
)
def test_slicing_takes_the_same_rows_of_every_field(pairs, which, rows):
    part = pairs[which]
    assert len(part) == len(rows)
    assert torch.equal(part.reference, pairs.reference[rows])
    assert torch.equal(part.operands, pairs.operands[rows])
    assert torch.equal(part.spans[Role.OPERAND_A], pairs.spans[Role.OPERAND_A][rows])
    assert part.counterfactual_text == tuple(pairs.counterfactual_text[i] for i in rows)
    assert part.template == tuple(pairs.template[i] for i in rows)
    assert part.selection == pairs.selection and part.pieces == pairs.pieces


def test_filter_keeps_what_is_true_and_wants_one_boolean_per_pair(pairs):
    assert same(pairs.filter(pairs.computed), pairs[[0, 2]])
    assert len(pairs.filter([False] * 3)) == 0
    with pytest.raises(ValueError, match="expected one boolean per pair, 3 in all, found"):
        pairs.filter([True, False])


def test_parts_add_up_to_the_whole(pairs):
    whole = pairs[:1] + pairs[1:]
    assert same(
        dataclasses.replace(whole, selection=None), dataclasses.replace(pairs, selection=None)
    )


def test_adding_a_shorter_set_moves_it_to_the_right(pairs):
    short = PromptPairs(
        reference=torch.tensor([[1, 7]]),
        counterfactual=torch.tensor([[1, 8]]),
        answer=torch.tensor([4]),
        attention_mask=torch.ones(1, 2, dtype=torch.bool),
        spans={
            role: torch.tensor([[0, 1]]) for role in Role if role not in (Role.OTHER, Role.EXAMPLES)
        },
    )
    for both, row in ((short + pairs, 0), (pairs + short, -1)):
        assert both.reference[row].tolist()[2:] == [1, 7]
        assert both.attention_mask[row].tolist() == [False, False, True, True]
        assert both.spans[Role.BOS][row].tolist() == [2, 3]
        assert both.template is None, "only one side knows it"
        assert len(both) == 4


def test_adding_adds_the_selections_by_their_weight():
    one = Selection(10, 8, 0.5, 0.25, {"t/0": (8, 10)})
    other = Selection(30, 24, 0.9, 0.0, {"t/0": (4, 10), "t/1": (20, 20)})
    total = one + other
    assert (total.n_drawn, total.n_kept, total.kept_share) == (40, 32, 0.8)
    assert total.mean_probability == pytest.approx((10 * 0.5 + 30 * 0.9) / 40)
    assert total.counterfactual_correct == pytest.approx((8 * 0.25 + 24 * 0.0) / 32)
    assert total.by_template == {"t/0": (12, 20), "t/1": (20, 20)}
    assert "60.0% (t/0) to 100.0% (t/1)" in str(total)


def test_equal_references_share_a_cluster(pairs):
    ids = pairs.cluster.tolist()
    assert ids[0] == ids[2] != ids[1]
    assert pairs.n_distinct == 2
    assert sorted(set(ids)) == [0, 1]


def test_what_stands_under_the_mask_does_not_make_a_cluster(pairs):
    noise = pairs.reference.masked_fill(~pairs.attention_mask, 77)
    assert torch.equal(dataclasses.replace(pairs, reference=noise).cluster, pairs.cluster)


def test_roles_divide_the_tokens(pairs):
    masks = torch.stack([pairs.role_mask(role) for role in Role])
    assert torch.equal(masks.sum(0).bool(), pairs.attention_mask)
    assert masks.sum(0).max() == 1
    assert pairs.role_mask(Role.OPERAND_A)[0].tolist() == [False, True, True, False]


def test_batches_are_consecutive_and_complete(pairs):
    assert [len(batch) for batch in pairs.batches(2)] == [2, 1]
    first, last = pairs.batches(2)
    assert torch.equal(torch.cat([first.answer, last.answer]), pairs.answer)
    with pytest.raises(ValueError, match="at least one pair"):
        pairs.batches(0)


def test_pairs_iterate_one_by_one(pairs):
    assert [int(pair.answer) for pair in pairs] == ANSWER.tolist()


def test_the_summary_says_what_a_reader_must_know(pairs):
    text = pairs.summary()
    for said in (
        "3 pairs, 2 problems, 2 distinct reference prompts, 2 to 4 tokens",
        "2 computed",
        "kept 3 of 6",
    ):
        assert said in text
    bare = PromptPairs.from_tokens(REFERENCE, COUNTERFACTUAL, ANSWER)
    assert "not filtered" in bare.summary()
    assert "0 pairs" in pairs[:0].summary()


def test_tokens_are_data_in_html(pairs):
    html = pairs._repr_html_()
    assert "&lt;b&gt;" in html and "<b>" not in html and "<script" not in html
    assert html.count("<table") == 3 and html.count("<tr>") == 6
    assert html.index(">reference<") < html.index(">counterfactual<")
    assert "background" in html
    bare = PromptPairs.from_tokens(REFERENCE, COUNTERFACTUAL, ANSWER)._repr_html_()
    assert "background" not in bare and ">11<" in bare


def test_equal_shares_are_printed_once():
    alike = Selection(10, 5, 0.5, 0.0, {"t/0": (3, 6), "t/1": (2, 4)})
    assert str(alike).splitlines()[-1] == "share kept per template: 50.0% of each"
    unlike = Selection(10, 5, 0.5, 0.0, {"t/0": (3, 5), "t/1": (2, 5)})
    assert "40.0% (t/1) to 60.0% (t/0)" in str(unlike)


def test_padded_pairs_without_their_mask_are_refused() -> None:
    """Pairs of unequal lengths as this package pads them; no tokenizer is there to be asked."""
    tokens, other = torch.tensor([[0, 1, 5], [1, 6, 7]]), torch.tensor([[0, 1, 8], [1, 9, 7]])
    answer = torch.tensor([2, 3])
    with pytest.raises(ValueError, match=r"pair 0 starts with token 0.*give the mask"):
        PromptPairs.from_tokens(tokens, other, answer)
    mask = torch.tensor([[0, 1, 1], [1, 1, 1]])
    assert PromptPairs.from_tokens(tokens, other, answer, mask).lengths.tolist() == [2, 3]
    PromptPairs.from_tokens(tokens[:1], other[:1], answer[:1])  # all prompts begin with it


def test_an_explicit_mask_of_ones_is_kept() -> None:
    """Prompts of a tokenizer whose padding token is a digit, too."""
    digits = torch.tensor([[2, 2, 5], [1, 6, 2]])
    answer = torch.tensor([2, 3])
    bare = PromptPairs.from_tokens(digits, digits + 1, answer)
    masked = PromptPairs.from_tokens(digits, digits + 1, answer, torch.ones_like(digits))
    for pairs in (
        masked,
        masked[:1],
        masked + masked,
        PromptPairs.from_dataset(masked.to_dataset()),
    ):
        pairs.refuse_unmasked(2)
    for pairs in (bare, bare + masked, masked + bare, PromptPairs.from_dataset(bare.to_dataset())):
        with pytest.raises(ValueError, match=r"expected attention_mask .* found none"):
            pairs.refuse_unmasked(2)
