"""The logit lens (nostalgebraist, 2020): what the model would answer if it stopped at a layer."""

import torch
from torch import Tensor

from arith_lens.effects import Effects
from arith_lens.memory import free_bytes
from arith_lens.model import HookedLike, in_float32, in_place
from arith_lens.pairs import PromptPairs
from arith_lens.probes.reading import end_states, refuse_not_finite

MEASURES = ("rank", "probability")


@torch.no_grad()
def logit_lens(model: HookedLike, pairs: PromptPairs, *, read: str = "mlp_out") -> Effects:
    """Rank (1 is the likeliest of the vocabulary) and probability of C, layer by layer, at END.

    The final norm and W_U are applied to the stream before the layer's MLP ("mlp_in"), to what the
    MLP adds alone ("write"), or to the stream after it ("mlp_out"; of the last layer, that is the
    model's own prediction). Early layers are not made to be read so: a low rank there says that C
    is not yet in the final basis, not that it is not there.

    Returns:
        axes ("layer", "measure"), the measures "rank" and "probability"

    Raises:
        ValueError: another `read`
        FloatingPointError: NaN or infinity, and where
    """
    states = end_states(model, pairs, read)
    n_layers, n_pairs, _ = states.shape
    found = torch.empty(n_layers, 2, n_pairs)
    with in_place(model.ln_final, model.unembed):
        norm, w_u = in_float32(model.ln_final), model.W_U.float()
        bias = getattr(model.unembed, "b_U", None)
        row_bytes = 4 * 4 * w_u.shape[1]  # logits, their exponentials, comparisons
        rows = max(1, min(n_pairs, free_bytes(w_u.device) // 4 // row_bytes))
        for layer in range(n_layers):
            for start in range(0, n_pairs, rows):
                part = slice(start, start + rows)
                logits = norm(states[layer, part]).to(w_u.device) @ w_u
                logits = logits if bias is None else logits + bias.float()
                found[layer, :, part] = _rank_and_probability(logits, pairs.answer[part])
    refuse_not_finite(found, "the final norm or W_U")
    return Effects(
        found,
        ("layer", "measure"),
        f"logit lens of {read}: C",
        template=pairs.template,
        cluster=pairs.cluster,
        labels={"measure": MEASURES},
    )


def _rank_and_probability(logits: Tensor, answer: Tensor) -> Tensor:
    """[measure pair]; a tie counts against C."""
    index = answer.to(logits.device)[:, None]
    rank = (logits >= logits.gather(1, index)).sum(1).float()
    probability = logits.log_softmax(-1).gather(1, index)[:, 0].exp()
    return torch.stack([rank, probability]).cpu()
