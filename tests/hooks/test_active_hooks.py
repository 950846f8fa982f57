"""Hooks in place on a model are listed, whoever registered them, and nothing else is."""

from functools import partial
from typing import Any

from arith_lens.components import Head
from arith_lens.hooks import ablate_heads, ablate_mlps
from arith_lens.model import HookedModel, active_hooks


def unchanged(activation: Any, hook: Any) -> None:
    """A user's hook."""


def nothing(*_: Any) -> None:
    """A user's hook of PyTorch's kind."""


def test_a_loaded_model_has_none(model: HookedModel) -> None:
    assert active_hooks(model) == []


def test_hooks_are_listed_under_the_names_they_were_set_with(model: HookedModel) -> None:
    hooks = [
        *ablate_heads([Head(0, 1)], ablation="zero"),
        ("blocks.1.attn.hook_pattern", unchanged),
        *ablate_mlps([1], ablation="zero"),
        ("blocks.2.hook_resid_post", unchanged),
    ]
    with model.hooks(hooks):
        listed = active_hooks(model)
        assert sorted(listed, key=lambda hook: hook[0]) == sorted(hooks, key=lambda hook: hook[0])
        assert active_hooks(model.bridge) == listed
    assert active_hooks(model) == []


def test_hooks_of_one_point_are_listed_in_the_order_in_which_they_run(model: HookedModel) -> None:
    first, second = partial(unchanged), partial(unchanged)
    with model.hooks([("hook_embed", first), ("hook_embed", second)]):
        assert active_hooks(model) == [("hook_embed", first), ("hook_embed", second)]


def test_hooks_of_pytorch_are_listed(model: HookedModel) -> None:
    hf_model = model.bridge.original_model
    at_model = hf_model.register_forward_pre_hook(nothing)
    at_mlp = hf_model.model.layers[2].mlp.register_forward_hook(nothing)
    try:
        assert active_hooks(model) == [
            (type(hf_model).__name__, nothing),
            ("blocks.2.mlp", nothing),
        ]
    finally:
        at_model.remove()
        at_mlp.remove()
    assert active_hooks(model) == []


def test_a_hook_beside_those_of_transformer_lens_is_listed(model: HookedModel) -> None:
    """Set with PyTorch's function on a hook point, it is in no list of TransformerLens."""
    handle = model.bridge.blocks[1].hook_out.register_forward_hook(nothing)
    try:
        assert active_hooks(model) == [("blocks.1.hook_resid_post", nothing)]
    finally:
        handle.remove()


def test_a_replaced_forward_is_listed(model: HookedModel) -> None:
    mlp = model.bridge.blocks[0].mlp.original_component
    mlp.forward = nothing
    try:
        assert active_hooks(model) == [("blocks.0.mlp.forward", nothing)]
    finally:
        del mlp.forward
