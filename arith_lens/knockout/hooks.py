"""Hooks that knock components out on any text, also while the model generates."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.activations import Positions
from arith_lens.components import Activations, Components, Head, Mlp, NamedHook
from arith_lens.hooks import Edit, ablate_heads, ablate_mlps
from arith_lens.knockout.engine import checked_components
from arith_lens.knockout.means import given_vectors, hook_names
from arith_lens.model import HookedLike

TOKENS_NAME = "embed.hook_in"


@dataclass(eq=False)
class BosWatch:
    """A hook that stores the positions of BOS in the running forward, for the other hooks.

    It is the only hook of this package with a state, which lasts for one forward. Positions differ
    from batch to batch, and a step of a generation with a cache has the new token only.
    """

    bos: int | None
    spared: Bool[Tensor, "batch pos"] | None = field(default=None, repr=False)
    is_tokenwise: ClassVar[bool] = True

    def __call__(self, tokens: Int[Tensor, "batch pos"], hook: Any = None) -> None:
        self.spared = tokens == (-1 if self.bos is None else self.bos)


@dataclass(frozen=True, eq=False)
class ExceptBos:
    """An edit at every position except those of BOS, which `watch` has stored."""

    edit: Edit
    watch: BosWatch

    @property
    def is_tokenwise(self) -> bool:
        """As `Edit.is_tokenwise`."""
        return self.edit.is_tokenwise

    def __repr__(self) -> str:
        """Without tensors, like `Edit`."""
        return f"ExceptBos({self.edit})"

    def __call__(
        self, activation: Float[Tensor, "batch pos *rest"], hook: Any = None
    ) -> Float[Tensor, "batch pos *rest"]:
        spared = self.watch.spared
        if spared is None or spared.shape != activation.shape[:2]:
            raise ValueError(
                f"expected {TOKENS_NAME} to see the tokens of this forward "
                f"{list(activation.shape[:2])}, found "
                f"{'none' if spared is None else list(spared.shape)}; pass the whole list of "
                "knockout_hooks, and run from tokens, not from embeddings"
            )
        where = spared.to(activation.device).reshape(*spared.shape, *[1] * (activation.ndim - 2))
        return torch.where(where, activation, self.edit(activation))


def knockout_hooks(
    model: HookedLike,
    components: Components,
    means: Activations | None = None,
    *,
    ablation: str = "mean",
    positions: str = "all",
) -> list[NamedHook]:
    """Hooks that knock out components on any text, batch and length, and during evaluation.

    In each forward they find BOS by the tokenizer's id, and do not change it. They may change
    padding, which nothing reads. Under `generate` they act on every new token, with or without a
    cache. Always pass the whole list, because the first hook serves the others.

    Args:
        model: HookedModel or TransformerBridge.
        components: the heads and MLPs to knock out.
        means: one vector per component by hook name, from `counterfactual_means`, for `"mean"`.
        ablation: `"mean"` or `"zero"`.
        positions: `"all"`; or `"end"`: END of the prompt, for `hook_steps="prompt"` in `generate`.

    Raises:
        ValueError: `"resample"` or means with positions, which need aligned prompts (use
            `knock_out`); or means are missing.
        TypeError, IndexError, KeyError: as in `knock_out`.
    """
    chosen = checked_components(model, components)
    if ablation not in ("mean", "zero"):
        raise ValueError(
            f"expected ablation 'mean' or 'zero' for text that is aligned with nothing, found "
            f"{ablation!r}; knock_out resamples among aligned pairs"
        )
    if positions not in ("all", "end"):
        raise ValueError(f"expected positions 'all' or 'end', found {positions!r}")
    if (means is None) == (ablation == "mean"):
        raise ValueError(
            f"expected means with ablation='mean' and with no other, found ablation={ablation!r} "
            f"and {'no ' if means is None else ''}means; counterfactual_means(model, pairs) gives "
            "them"
        )
    vectors = None if means is None else given_vectors(means, hook_names(chosen))
    at: Positions = -1 if positions == "end" else None
    heads = [one for one in chosen if isinstance(one, Head)]
    mlps = [one for one in chosen if isinstance(one, Mlp)]
    shared: dict[str, Any] = {"ablation": ablation, "positions": at}
    hooks = ablate_heads(heads, vectors, **shared) + ablate_mlps(mlps, vectors, **shared)
    if positions == "end" or not hooks:
        return hooks
    watch = BosWatch(getattr(model.tokenizer, "bos_token_id", None))
    return [(TOKENS_NAME, watch), *((name, ExceptBos(edit, watch)) for name, edit in hooks)]  # pyright: ignore[reportArgumentType]
