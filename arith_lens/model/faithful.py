"""Does a bridge compute what Transformers computes? Two short prompts, with a mask and without."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.memory import is_out_of_memory
from arith_lens.model.state import lacks_values
from arith_lens.tensor_parallel import VARIABLE, is_tensor_parallel

N_TOKENS = 6
"""The length of the prompts on which the bridge is compared."""
N_PADDING = 2
"""The number of padding tokens before the second prompt."""


def example(
    vocab_size: int, device: torch.device
) -> tuple[Int[Tensor, "row pos"], Bool[Tensor, "row pos"]]:
    """Two prompts with different tokens, the second one padded on the left, and their mask."""
    tokens = torch.arange(2 * N_TOKENS, device=device).reshape(2, N_TOKENS) * 7 + 3
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[1, :N_PADDING] = False
    return tokens % vocab_size, mask


@torch.no_grad()
def transformers_logits(model: Any) -> Float[Tensor, "row pos d_vocab"] | None:
    """The logits of `example` by Transformers alone.

    Returns:
        None if weights have no values, or are offloaded, because each forward would read them all;
        and if the logits are not finite, which every method reports with the layer.

    Raises:
        ValueError: the model does not compute logits from tokens.
    """
    if any(map(lacks_values, model.parameters())):
        return None
    tokens, mask = example(model.config.get_text_config().vocab_size, model.device)
    taken = inspect.signature(model.forward).parameters
    options: dict[str, Any] = {"attention_mask": mask.long()}
    if "position_ids" in taken:
        options["position_ids"] = (mask.long().cumsum(-1) - 1).clamp(min=0)
    if "use_cache" in taken:
        options["use_cache"] = False
    try:
        logits = model(tokens, **options).logits.float()
    except Exception as error:
        if isinstance(error, RuntimeError | MemoryError) and is_out_of_memory(error):
            raise
        raise ValueError(
            "expected a language model that turns tokens into logits, found that "
            f"{type(model).__name__} does not run on two short prompts ({type(error).__name__}: "
            f"{error}); choose a causal language model"
        ) from error
    return logits if bool(logits[mask].isfinite().all()) else None


def keep_masks_finite(dtype: torch.dtype) -> None:
    """Let Transformers' masks in float64 have the lowest value of float32, for this process.

    Eager attention computes its softmax in float32 in many families. There the lowest value of
    float64 is minus infinity, so that padding on the left, which sees no token, becomes NaN.

    Args:
        dtype: the dtype of a model. Nothing changes unless it is float64.
    """
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

    make_mask = ALL_MASK_ATTENTION_FUNCTIONS["eager"]
    if dtype != torch.float64 or getattr(make_mask, "func", None) is _mask_in_float32_range:
        return
    AttentionMaskInterface.register("eager", partial(_mask_in_float32_range, make_mask))


def _mask_in_float32_range(
    make_mask: Callable[..., Tensor | None], *sizes: Any, **options: Any
) -> Tensor | None:
    mask = make_mask(*sizes, **options)
    if mask is None or mask.dtype != torch.float64:
        return mask
    return mask.clamp(min=torch.finfo(torch.float32).min)


def tolerated_difference(dtype: torch.dtype) -> float:
    """The largest difference of a token's logits by two codes, divided by the logits' spread.

    It is far above rounding.
    """
    return 1e-3 if dtype.itemsize >= 4 else 0.05


@torch.no_grad()
def require_faithful(model: Any, expected: Float[Tensor, "row pos d_vocab"] | None) -> None:
    """Compare the bridge with Transformers on two short prompts, with a mask and without.

    Some bridges compute something else when they get a mask. Every method would then be wrong.

    Args:
        expected: `transformers_logits` of the same weights before the bridge; None: nothing is
            compared.

    Raises:
        ValueError: the bridge computes other logits.
    """
    if expected is None:
        return
    tokens, mask = example(expected.shape[-1], torch.device(model.cfg.device))
    tolerance = tolerated_difference(next(model.parameters()).dtype)
    for case, n_rows in (("with a mask", 2), ("without a mask", 1)):
        options = {"attention_mask": mask.long()} if n_rows == 2 else {}
        try:
            logits = model(tokens[:n_rows], use_cache=False, **options).float()
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            if is_tensor_parallel():
                advice = f"it may read parts of weights: remove {VARIABLE}, and use device_map="
            else:
                advice = "in half precision some do not: load the model with dtype=torch.float32"
            raise ValueError(
                f"expected TransformerLens' bridge of {model.cfg.architecture} to run, found "
                f"{type(error).__name__} ({str(error).splitlines()[0]}); {advice}"
            ) from error
        computed, expected_rows = (values[:n_rows][mask[:n_rows]] for values in (logits, expected))
        spread = (expected_rows - expected_rows.mean(-1, keepdim=True)).norm(dim=-1)
        difference = float(((computed - expected_rows).norm(dim=-1) / spread).max())
        if not difference <= tolerance:
            raise ValueError(
                f"expected TransformerLens' bridge of {model.cfg.architecture} to compute what "
                f"Transformers computes, found logits {case} that differ by {difference:.1%} of "
                f"their spread (at most {tolerance:.0%} is rounding); every result would be of "
                "another model: choose another architecture, or another version of TransformerLens"
            )
