"""Positions of hooks: what names none is refused when the hook is made."""

from typing import Any

import pytest
import torch

from arith_lens.activations import check_positions
from arith_lens.components import Head, mlp_out_name, z_name
from arith_lens.hooks import (
    ablate_heads,
    ablate_mlps,
    capture,
    patch_heads,
    patch_mlps,
    scale_heads,
)
from arith_lens.model import HookedModel, record

MESSAGE = r"expected positions as .*-1 is END.*, found "


@pytest.mark.parametrize("positions", ["end", "all", [1, 2], 1.0, True])
def test_what_names_no_positions_is_refused(positions: Any) -> None:
    with pytest.raises(TypeError, match=MESSAGE):
        check_positions(positions)


@pytest.mark.parametrize("positions", [None, 0, -1, slice(1, None), torch.tensor([1, 2])])
def test_what_names_positions_is_accepted(positions: Any) -> None:
    check_positions(positions)


def test_positions_are_checked_when_the_hook_is_made(
    llama: HookedModel, reference: torch.Tensor
) -> None:
    """By a truth value, which types do not tell from a number."""
    positions = True
    source = {z_name(0): torch.zeros(4, 8), mlp_out_name(0): torch.zeros(32)}
    for make in (
        lambda: ablate_heads([Head(0, 1)], ablation="zero", positions=positions),
        lambda: ablate_mlps([0], ablation="zero", positions=positions),
        lambda: patch_heads([Head(0, 1)], source, positions=positions),
        lambda: patch_mlps([0], source, positions=positions),
        lambda: scale_heads([Head(0, 1)], 2.0, positions=positions),
        lambda: capture([z_name(0)], {}, positions),
        lambda: record(llama, reference, z_name(0), positions=positions),
    ):
        with pytest.raises(TypeError, match=MESSAGE + "True"):
            make()
