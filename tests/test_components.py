"""Names print, parse and refuse."""

import re

import pytest
import torch

from arith_lens.activations import position_mask, take_positions
from arith_lens.components import (
    Head,
    Mlp,
    as_components,
    as_heads,
    as_mlps,
    attn_out_name,
    check_components,
    every_head,
    every_mlp,
    layer_of,
    mlp_out_name,
    parse_component,
    pattern_name,
    resid_mid_name,
    resid_post_name,
    resid_pre_name,
    z_name,
)
from arith_lens.model import HookedModel


@pytest.mark.parametrize("component", [Head(12, 22), Head(0, 0), Mlp(0), Mlp(31)], ids=str)
def test_what_is_printed_parses_back(component):
    assert parse_component(str(component)) == component


def test_components_print_as_in_the_paper():
    assert str(Head(12, 22)) == "12.22"
    assert str(Mlp(12)) == "MLP 12"


@pytest.mark.parametrize("text", ["12", "12.22.1", "a.b", "-1.2", "12.-2", "", "MLP", "12,22"])
def test_other_text_is_refused_and_repeated(text):
    with pytest.raises(ValueError, match=r"expected .* found"):
        parse_component(text)


@pytest.mark.parametrize("layer, index", [(-1, 0), (0, -1)])
def test_negative_layers_and_heads_are_refused(layer, index):
    with pytest.raises(ValueError, match="counted from 0"):
        Head(layer, index)
    with pytest.raises(ValueError, match="counted from 0"):
        Mlp(-1)


def test_heads_sort_by_layer_then_index():
    assert sorted([Head(10, 0), Head(2, 9), Head(2, 1)]) == [Head(2, 1), Head(2, 9), Head(10, 0)]


HEAD = Head(12, 22)


@pytest.mark.parametrize(
    "heads",
    [HEAD, "12.22", (12, 22), [HEAD], ["12.22"], [(12, 22)], iter([HEAD]), {HEAD: -0.1}],
    ids=lambda heads: re.sub(r" object at 0x\w+", "", repr(heads)),  # the same in all processes
)
def test_a_head_is_named_in_several_ways(heads):
    assert as_heads(heads) == [HEAD]


def test_several_heads_keep_their_order_and_a_list_of_numbers_is_none():
    assert as_heads(["3.1", (2, 0), HEAD, (2, 0)]) == [Head(3, 1), Head(2, 0), HEAD, Head(2, 0)]
    assert as_heads(((3, 1), (2, 0))) == [Head(3, 1), Head(2, 0)]
    assert as_heads(()) == as_mlps(()) == as_components(()) == []
    with pytest.raises(TypeError, match=r"expected heads such as .* found 5 "):
        as_heads(iter([5, 5]))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("mlps", [Mlp(3), "MLP 3", 3, [3], (Mlp(3),), range(3, 4)], ids=repr)
def test_an_mlp_is_named_in_several_ways(mlps):
    assert as_mlps(mlps) == [Mlp(3)]


def test_components_are_named_in_several_ways():
    assert as_components([HEAD, "3.1", "MLP 4", (2, 0), Mlp(1)]) == [
        HEAD,
        Head(3, 1),
        Mlp(4),
        Head(2, 0),
        Mlp(1),
    ]
    assert as_components("MLP 4") == as_components(Mlp(4)) == [Mlp(4)]
    assert as_components((5, 6)) == [Head(5, 6)]
    with pytest.raises(TypeError, match=r"expected components such as .* found 'head 3'.*'12.22'"):
        as_components("head 3")


def test_a_model_lists_its_components():
    assert every_head(2, 2) == [Head(0, 0), Head(0, 1), Head(1, 0), Head(1, 1)]
    assert every_mlp(2) == [Mlp(0), Mlp(1)]


@pytest.mark.parametrize("component", [Head(3, 0), Head(0, 4), Mlp(3)], ids=str)
def test_a_component_out_of_range_is_an_error_that_names_it(component):
    check_components([Head(2, 3), Mlp(2)], n_layers=3, n_heads=4)
    with pytest.raises(IndexError, match=str(component)):
        check_components([component], n_layers=3, n_heads=4)


@pytest.mark.parametrize(
    "name_of", [attn_out_name, mlp_out_name, resid_pre_name, resid_mid_name, resid_post_name,
                pattern_name, z_name]
)  # fmt: skip
def test_every_name_is_a_hook_point_of_the_bridge(name_of, deep: HookedModel):
    for layer in (0, 3, 12):
        assert name_of(layer) in deep.bridge.hook_dict
        assert layer_of(name_of(layer)) == layer, "two digits are read too"


def test_a_name_without_a_layer_has_none():
    assert layer_of("ln_final.hook_scale") is None


VALUE = torch.arange(2 * 5 * 3).reshape(2, 5, 3).float()


@pytest.mark.parametrize(
    "positions, columns",
    [
        (None, [[0, 1, 2, 3, 4]] * 2),
        (-1, [[4]] * 2),
        (0, [[0]] * 2),
        (slice(1, 3), [[1, 2]] * 2),
        (torch.tensor([1, -2]), [[1], [3]]),
    ],
    ids=["all", "END", "first", "slice", "one a row"],
)
def test_positions_choose_columns(positions, columns):
    """The oracle is a list of columns, written by hand."""
    expected = torch.stack([VALUE[row, chosen] for row, chosen in enumerate(columns)])
    taken = take_positions(VALUE, positions)
    assert torch.equal(taken, expected)
    mask = position_mask(positions, VALUE).expand(2, 5)
    assert [row.nonzero().flatten().tolist() for row in mask] == columns


def test_taking_positions_copies():
    end = take_positions(VALUE, -1)
    assert end.untyped_storage().nbytes() == end.numel() * 4, "a view would keep the whole of it"


@pytest.mark.parametrize("positions", [5, -6, torch.tensor([0, 7]), torch.tensor([0, 1, 2])])
def test_positions_beyond_the_prompt_are_refused(positions):
    with pytest.raises(IndexError, match="expected"):
        position_mask(positions, VALUE)
    with pytest.raises(IndexError, match="expected"):
        take_positions(VALUE, positions)


def test_a_mask_must_fit_and_cannot_be_taken():
    mask = torch.ones(2, 5, dtype=torch.bool)
    assert torch.equal(position_mask(mask, VALUE), mask)
    with pytest.raises(IndexError, match="2 rows and 5 positions"):
        position_mask(mask[:, :4], VALUE)
    with pytest.raises(ValueError, match="found a mask"):
        take_positions(VALUE, mask)
