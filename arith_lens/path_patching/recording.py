"""What both runs of some pairs put out at END: all that the sweep and its certificate read."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.components import attn_out_name, mlp_out_name, resid_pre_name, z_name
from arith_lens.model import HookedLike, home_of, record
from arith_lens.pairs import PromptPairs

LOGITS_NAME = "unembed.hook_out"


@dataclass(frozen=True)
class Recording:
    """END's activations in the model's dtype; run 0 is the reference, run 1 the counterfactual."""

    stream: Float[Tensor, "run=2 pair d_model"]
    """The residual stream at the first block's entry."""
    z: Float[Tensor, "run=2 layer pair n_heads d_head"]
    attn_out: Float[Tensor, "run=2 layer pair d_model"]
    mlp_out: Float[Tensor, "run=2 layer pair d_model"]
    logits: Float[Tensor, "run=2 pair d_vocab"] | None
    """What a certificate compares with; None where none is wanted."""

    def pairs(self, chosen: slice | list[int]) -> "Recording":
        """The recording of some of the pairs."""
        return Recording(
            stream=self.stream[:, chosen],
            z=self.z[:, :, chosen],
            attn_out=self.attn_out[:, :, chosen],
            mlp_out=self.mlp_out[:, :, chosen],
            logits=None if self.logits is None else self.logits[:, chosen],
        )


def record_end(model: HookedLike, pairs: PromptPairs, *, logits: bool = False) -> Recording:
    """Run references and counterfactuals as one batch and keep what they put out at END.

    Raises FloatingPointError where an activation is not finite, naming its layer.
    """
    layers = range(len(model.blocks))
    names = [resid_pre_name(0), *([LOGITS_NAME] if logits else [])]
    for layer in layers:
        names += [z_name(layer), attn_out_name(layer), mlp_out_name(layer)]
    tokens, mask = both_runs(pairs)
    kept = record(model, tokens, names, attention_mask=mask, positions=-1)
    home = home_of(model.unembed)

    def at_end(name: str) -> Tensor:
        activation = kept[name][:, -1].to(home)
        return activation.reshape(2, len(pairs), *activation.shape[1:])

    return Recording(
        stream=at_end(resid_pre_name(0)),
        z=torch.stack([at_end(z_name(layer)) for layer in layers], dim=1),
        attn_out=torch.stack([at_end(attn_out_name(layer)) for layer in layers], dim=1),
        mlp_out=torch.stack([at_end(mlp_out_name(layer)) for layer in layers], dim=1),
        logits=at_end(LOGITS_NAME) if logits else None,
    )


def both_runs(
    pairs: PromptPairs,
) -> tuple[Int[Tensor, "run_pair used_pos"], Bool[Tensor, "run_pair used_pos"]]:
    """References, then counterfactuals, as one batch with its mask.

    Columns that are padding in every prompt are dropped.
    """
    used = int(pairs.attention_mask.any(0).float().argmax())
    tokens = torch.cat([pairs.reference, pairs.counterfactual])[:, used:]
    return tokens, torch.cat([pairs.attention_mask, pairs.attention_mask])[:, used:]
