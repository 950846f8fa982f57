"""Check what was loaded: every weight of the checkpoint and no other, and a bridge that computes
what Transformers computes."""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.memory import is_out_of_memory

N_TOKENS = 6
"""Length of the prompts that the bridge is compared on."""
N_PADDING = 2
"""Padding tokens before the second of them."""
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
"""The largest difference of a token's logits between bridge and Transformers, over the logits'
spread: far above rounding."""
HALF_TOLERANCE = 0.05
"""The same in half precision."""


@dataclass
class VerifiedLoader:
    """A Transformers auto class for `boot_transformers(model_class=)` that checks what it loads.

    Attributes:
        auto_class: such as AutoModelForCausalLM
        device: where the weights go; None: `device_map` places them
        logits: what Transformers computes on the prompts of `example`, before any bridge; None
            where weights are offloaded or the logits are not finite
    """

    auto_class: Any
    device: Any = None
    logits: Tensor | None = field(default=None, init=False)

    def from_pretrained(self, location: str, **options: Any) -> Any:
        """The model. Raises ValueError for missing, unexpected and mismatched weights."""
        model = load_weights(self.auto_class, location, **options)
        if self.device is not None:
            model = model.to(self.device)
        self.logits = transformers_logits(model.eval())
        return model


@dataclass(frozen=True)
class EmptyLoader:
    """A Transformers auto class for `boot_transformers(load_weights=False)`: no weights, no memory.

    Attributes:
        auto_class: such as AutoModelForCausalLM
        dtype, device: of the weights, had they been loaded
    """

    auto_class: Any
    dtype: torch.dtype
    device: torch.device

    def from_config(self, config: Any, **options: Any) -> Any:
        """The model with fake weights: they have a shape, a dtype and a device, and no values."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode(), self.device:
            return self.auto_class.from_config(
                config, dtype=self.dtype, attn_implementation="eager", **options
            )


def load_weights(auto_class: Any, location: str, **options: Any) -> Any:
    """`auto_class.from_pretrained`, for a checkpoint that holds exactly the model's weights.

    Tied weights, and buffers that older versions of Transformers saved, may be missing or extra:
    what is harmless is Transformers' own decision.

    Raises:
        ValueError: weights that are missing, unexpected or of another shape, by name
    """
    model, info = auto_class.from_pretrained(
        location, output_loading_info=True, ignore_mismatched_sizes=True, **options
    )
    mismatched = [
        f"{name} {list(stored)} instead of {list(wanted)}"
        for name, stored, wanted in sorted(info["mismatched_keys"])
    ]
    problems = [
        f"{len(names)} {kind} ({_some(names)})"
        for kind, names in (
            ("missing", sorted(info["missing_keys"])),
            ("unexpected", sorted(info["unexpected_keys"])),
            ("of another shape", mismatched),
        )
        if names
    ]
    if problems:
        layers = getattr(model.config.get_text_config(), "num_hidden_layers", None)
        raise ValueError(
            f"expected exactly the weights of {type(model).__name__} with num_hidden_layers="
            f"{layers} in {location}, found {'; '.join(problems)}; the weights and config.json do "
            "not belong together, or a file is incomplete: download or save the model again"
        )
    return model


def _some(names: Iterable[str], most: int = 4) -> str:
    names = list(names)
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def example(
    vocab_size: int, device: torch.device
) -> tuple[Int[Tensor, "row pos"], Bool[Tensor, "row pos"]]:
    """Two prompts of different tokens, the second padded on the left, and their mask."""
    tokens = torch.arange(2 * N_TOKENS, device=device).reshape(2, N_TOKENS) * 7 + 3
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[1, :N_PADDING] = False
    return tokens % vocab_size, mask


@torch.no_grad()
def transformers_logits(model: Any) -> Float[Tensor, "row pos d_vocab"] | None:
    """The logits of `example` by Transformers alone.

    None where weights are offloaded, since each forward would read them all, and where the logits
    are not finite, which every method reports with the layer.

    Raises:
        ValueError: a model that does not turn tokens into logits
    """
    if any(weight.is_meta for weight in model.parameters()):
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


@torch.no_grad()
def require_faithful(model: Any, expected: Float[Tensor, "row pos d_vocab"] | None) -> None:
    """Compare the bridge with Transformers on two short prompts, with a mask and without.

    Some bridges are another model once they get a mask; every method would then be wrong.

    Args:
        model: HookedModel or TransformerBridge
        expected: `transformers_logits` of the same weights before the bridge; None: nothing to
            compare with

    Raises:
        ValueError: the bridge computes other logits
    """
    if expected is None:
        return
    tokens, mask = example(expected.shape[-1], torch.device(model.cfg.device))
    tolerance = TOLERANCE.get(next(model.parameters()).dtype, HALF_TOLERANCE)
    for what, n_rows in (("with a mask", 2), ("without a mask", 1)):
        options = {"attention_mask": mask.long()} if n_rows == 2 else {}
        logits = model(tokens[:n_rows], use_cache=False, **options).float()
        found, wanted = (values[:n_rows][mask[:n_rows]] for values in (logits, expected))
        spread = (wanted - wanted.mean(-1, keepdim=True)).norm(dim=-1)
        difference = float(((found - wanted).norm(dim=-1) / spread).max())
        if not difference <= tolerance:
            raise ValueError(
                f"expected TransformerLens' bridge of {model.cfg.architecture} to compute what "
                f"Transformers computes, found logits {what} that differ by {difference:.1%} of "
                f"their spread (at most {tolerance:.0%} is rounding); every result would be of "
                "another model: choose another architecture, or another version of TransformerLens"
            )
