"""The logit lens (nostalgebraist, 2020): what the model would answer if it stopped at a layer."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.activations import keep_activation
from arith_lens.components import resid_post_name
from arith_lens.effects import Effects
from arith_lens.memory import free_bytes
from arith_lens.model import HookedLike, in_float32, in_place
from arith_lens.model.verification import HALF_TOLERANCE, TOLERANCE
from arith_lens.pairs import PromptPairs
from arith_lens.probes.reading import end_states, refuse_not_finite, require_final_norm

MEASURES = ("rank", "probability")


@torch.no_grad()
def logit_lens(model: HookedLike, pairs: PromptPairs, *, read: str = "mlp_out") -> Effects:
    """Rank (1 is the likeliest of the vocabulary) and probability of C, layer by layer, at END.

    The final norm, W_U and what the architecture does to logits (a factor, a soft cap) are applied
    to the stream before the layer's MLP ("mlp_in"), to what the MLP adds alone ("write"), or to the
    stream after it ("mlp_out"; of the last layer, that is the model's own prediction). Early layers
    are not made to be read so: a low rank there says that C is not yet in the final basis, not that
    it is not there.

    Returns:
        axes ("layer", "measure"), the measures "rank" and "probability"

    Raises:
        ValueError: another `read`; a model that makes its logits in another way
        FloatingPointError: NaN or infinity, and where
    """
    require_final_norm(model)
    states = end_states(model, pairs, read)
    n_layers, n_pairs, _ = states.shape
    found = torch.empty(n_layers, 2, n_pairs)
    with in_place(model.ln_final, model.unembed):
        head = LogitHead.of(model)
        row_bytes = 4 * 4 * head.w_u.shape[1]  # logits, their exponentials, comparisons
        rows = max(1, min(n_pairs, free_bytes(head.w_u.device) // 4 // row_bytes))
        for layer in range(n_layers):
            for start in range(0, n_pairs, rows):
                part = slice(start, start + rows)
                logits = head.logits(states[layer, part])
                found[layer, :, part] = _rank_and_probability(logits, pairs.answer[part])
    refuse_not_finite(found, "the final norm or W_U")
    _require_the_models_logits(model, pairs[:1])
    return Effects(
        found,
        ("layer", "measure"),
        f"logit lens of {read}: C",
        template=pairs.template,
        cluster=pairs.cluster,
        labels={"measure": MEASURES},
    )


@dataclass(frozen=True)
class LogitHead:
    """From the residual stream to the logits, in float32: final norm, W_U, bias, factor, cap."""

    norm: Callable[[Tensor], Tensor]
    w_u: Float[Tensor, "d_model d_vocab"]
    b_u: Float[Tensor, "d_vocab"] | None
    factor: float
    cap: float | None

    @classmethod
    def of(cls, model: HookedLike) -> "LogitHead":
        """That of a model whose unembedding is in place."""
        cfg, bias = model.cfg, getattr(model.unembed, "b_U", None)
        cap = getattr(cfg, "output_logits_soft_cap", None)
        return cls(
            in_float32(model.ln_final),
            model.W_U.float(),
            None if bias is None else bias.float(),
            _factor(cfg),
            cap if cap and cap > 0 else None,  # -1 is none
        )

    def logits(self, stream: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_vocab"]:
        """What the model would answer from this stream."""
        logits = self.norm(stream).to(self.w_u.device) @ self.w_u
        logits = (logits if self.b_u is None else logits + self.b_u) * self.factor
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


def _factor(cfg: Any) -> float:
    """What logits are multiplied with: Cohere's `logit_scale`, Falcon-H1's `lm_head_multiplier`,
    one over Granite's `logits_scaling`."""
    scale, multiplier, divisor = (
        getattr(cfg, name, None) for name in ("logit_scale", "lm_head_multiplier", "logits_scaling")
    )
    return float(scale or 1) * float(multiplier or 1) / float(divisor or 1)


def _require_the_models_logits(model: HookedLike, pairs: PromptPairs) -> None:
    """Compare the lens after the last layer with the model's own prediction, for one prompt."""
    name = resid_post_name(int(model.cfg.n_layers) - 1)
    kept: dict[str, Tensor] = {}
    hook = partial(keep_activation, into=kept, name=name, positions=-1)
    device = torch.device(model.cfg.device)
    own = model.run_with_hooks(
        pairs.reference.to(device),
        fwd_hooks=[(name, hook)],
        attention_mask=pairs.attention_mask.to(device),
        use_cache=False,
    )[:, -1].float()
    with in_place(model.ln_final, model.unembed):
        found = LogitHead.of(model).logits(kept[name][:, -1].float()).to(own.device)
    difference = float((found - own).norm() / (own - own.mean()).norm())
    if not difference <= TOLERANCE.get(model.W_U.dtype, HALF_TOLERANCE):
        architecture = getattr(model.cfg, "architecture", "this model")
        raise ValueError(
            "expected logits that are W_U after the final norm, with a factor or a cap that the "
            f"configuration names, found that {architecture} makes them otherwise: they differ by "
            f"{difference:.1%} of their spread; the logit lens cannot read this architecture"
        )


def _rank_and_probability(logits: Tensor, answer: Tensor) -> Tensor:
    """[measure pair]; a tie counts against C."""
    index = answer.to(logits.device)[:, None]
    rank = (logits >= logits.gather(1, index)).sum(1).float()
    probability = logits.log_softmax(-1).gather(1, index)[:, 0].exp()
    return torch.stack([rank, probability]).cpu()
