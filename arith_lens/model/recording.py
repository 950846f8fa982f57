"""Read a model: activations of one run."""

import inspect
from collections.abc import Iterable
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor

from arith_lens.activations import Positions, keep_activation
from arith_lens.components import layer_of, mlp_out_name, z_name
from arith_lens.model.hooked import HookedLike, checked_hooks
from arith_lens.model.tokens import Tokens, check_tokens


@torch.no_grad()
def record(
    model: HookedLike,
    tokens: Tokens,
    names: Iterable[str] | str,
    *,
    attention_mask: Tensor | None = None,
    positions: Positions = None,
) -> dict[str, Tensor]:
    """What the model puts out at the hook points `names`, in one forward.

    Args:
        model: HookedModel or TransformerBridge
        tokens: prompts, padded on the left where lengths differ
        names: hook points, such as `blocks.3.attn.hook_z`, or one of them
        attention_mask: needed where prompts are padded
        positions: None: all; -1: END only, the axis kept; a slice; one position a row

    Returns:
        by hook name, [batch pos ...] copies that nothing else writes; on the way no logits are
        computed, or END's alone where a hook point of `unembed` is asked for

    Raises:
        ValueError: unequal lengths; padding without a mask, or on the right where END is asked for
        FloatingPointError: NaN or infinity, with the first layer they were found in
        IndexError, KeyError: a layer or a hook point that the model does not have
    """
    device = torch.device(model.cfg.device)
    tokens, mask = check_tokens(tokens, attention_mask, model.tokenizer, device)
    if mask is not None and isinstance(positions, int) and not bool(mask[:, positions].all()):
        raise ValueError(
            f"expected a token at position {positions} of every prompt, found padding; pad on the "
            "left, so that END is the last column"
        )
    names = [names] if isinstance(names, str) else list(names)
    kept: dict[str, Tensor] = {}
    keep = partial(keep_activation, into=kept, positions=positions)
    hooks = [(name, partial(keep, name=name)) for name in names]
    reads_logits = any(name.startswith("unembed.") for name in names)
    kept_logits = 1 if reads_logits else torch.empty(0, dtype=torch.long, device=device)
    options = accepted_options(model, logits_to_keep=kept_logits, use_cache=False)
    if mask is not None:
        options["attention_mask"] = mask
    model.run_with_hooks(tokens, fwd_hooks=checked_hooks(hooks, model.cfg.n_layers), **options)
    if (found := _not_finite(kept)) is not None:
        whole, row = _watched(model), slice(found[1], found[1] + 1)
        if not {*whole} <= {*names}:  # what was asked for may lie behind the layer that is broken
            of_row = None if mask is None else mask[row]
            require_finite(model, tokens[row], attention_mask=of_row)
        _refuse(found[0])
    return kept


def require_finite(
    model: HookedLike, tokens: Tokens, *, attention_mask: Tensor | None = None
) -> None:
    """Raise FloatingPointError, naming the layer, where a forward meets NaN or infinity."""
    record(model, tokens, _watched(model), attention_mask=attention_mask)


def _watched(model: HookedLike) -> list[str]:
    """Where every layer shows whether it is finite, and what stands after them."""
    layers = range(int(model.cfg.n_layers))
    return [n for k in layers for n in (z_name(k), mlp_out_name(k))] + ["unembed.hook_out"]


def accepted_options(model: Any, **wanted: Any) -> dict[str, Any]:
    """Those options that the model's own forward takes."""
    hf_model = getattr(getattr(model, "bridge", model), "original_model", None)
    taken = inspect.signature(hf_model.forward).parameters if hf_model is not None else {}
    return {name: value for name, value in wanted.items() if name in taken}


def _not_finite(kept: dict[str, Tensor]) -> tuple[str, int] | None:
    """The first activation, in the order of the forward, with NaN or infinity; its first row."""
    for name, value in kept.items():
        # masked attention scores are -inf by right
        if not name.endswith("hook_attn_scores") and not bool(value.isfinite().all()):
            return name, int((~value.isfinite()).flatten(1).any(1).nonzero()[0])
    return None


def _refuse(name: str) -> NoReturn:
    layer = layer_of(name)
    where = name if layer is None else f"layer {layer} ({name})"
    raise FloatingPointError(
        f"expected finite activations, found NaN or infinity first in {where}; load the model in "
        "float32 or bfloat16 (float16 overflows), and check its weights"
    )
