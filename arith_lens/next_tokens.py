"""The most likely next tokens of any prompts, with or without hooks (paper, Figure 4)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.components import NamedHook
from arith_lens.model import HookedLike, left_pad, require_evaluation_mode, require_finite
from arith_lens.pairs import encode, pieces, tokenizer_of

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class NextTokens:
    """The most likely next tokens after each prompt, most likely first."""

    prompts: tuple[str, ...]
    ids: Int[Tensor, "prompt rank"]
    pieces: tuple[tuple[str, ...], ...]
    """The tokens as text; a space that belongs to a token is a space."""
    probabilities: Float[Tensor, "prompt rank"]

    def to_dataframe(self) -> "DataFrame":
        """One row per prompt and rank."""
        from pandas import DataFrame

        return DataFrame(
            [
                {"prompt": prompt, "rank": rank, "token": piece, "probability": float(p)}
                for prompt, row, ps in zip(
                    self.prompts, self.pieces, self.probabilities, strict=True
                )
                for rank, (piece, p) in enumerate(zip(row, ps, strict=True), 1)
            ]
        )

    def to_arrays(self) -> Arrays:
        """The arrays for a file; `from_arrays` reads them."""
        tensors = {"ids": self.ids, "probabilities": self.probabilities}
        texts = {"prompts": list(self.prompts), "pieces": [list(row) for row in self.pieces]}
        return Arrays(tensors, {"kind": "next_tokens", **texts})

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "NextTokens":
        """Read `to_arrays` back. Raises ValueError for another kind of result."""
        arrays.require("next_tokens")
        return cls(
            prompts=tuple(arrays.header["prompts"]),
            ids=arrays.tensors["ids"],
            pieces=tuple(tuple(row) for row in arrays.header["pieces"]),
            probabilities=arrays.tensors["probabilities"],
        )


@torch.no_grad()
def next_tokens(
    model: HookedLike,
    prompts: Sequence[str] | str,
    *,
    hooks: Iterable[NamedHook] = (),
    k: int = 5,
    batch_size: int = 128,
) -> NextTokens:
    """The k most likely tokens after each prompt.

    Args:
        prompts: several prompts, or the text of one.
        hooks: interventions without positions, such as `knockout_hooks`.
        k: the number of tokens per prompt.
        batch_size: the number of prompts that run together.

    Raises:
        ValueError: there is no prompt, a prompt is empty, k is larger than the vocabulary, or the
            model is in training mode.
        FloatingPointError: the model computes NaN or infinity. The message names the layer, or the
            hooks if the model without them is finite.
    """
    prompts = (prompts,) if isinstance(prompts, str) else tuple(prompts)
    d_vocab = int(model.cfg.d_vocab)
    if not prompts or not all(prompts) or not 1 <= k <= d_vocab:
        raise ValueError(
            f"expected prompts with text and k from 1 to {d_vocab}, found {len(prompts)} prompts, "
            f"{sum(not prompt for prompt in prompts)} of them empty, and k={k}"
        )
    require_evaluation_mode(model)
    tokenizer, hooks = tokenizer_of(model), list(hooks)
    device = torch.device(model.cfg.device)
    batches = []
    rows = [prompt.ids for prompt in encode(tokenizer, prompts)]
    for start in range(0, len(rows), batch_size):
        tokens, mask = (part.to(device) for part in left_pad(rows[start : start + batch_size]))
        logits = model.run_with_hooks(
            tokens, fwd_hooks=hooks, attention_mask=mask, logits_to_keep=1
        )
        probabilities = logits[:, -1].float().softmax(-1)
        if not bool(probabilities.isfinite().all()):
            require_finite(model, tokens, attention_mask=mask)
            raise FloatingPointError(
                "expected finite logits, found NaN or infinity under the hooks; check the values "
                "that they put in"
            )
        batches.append(probabilities.topk(k))
    ids = torch.cat([part.indices for part in batches]).cpu()
    names = {i: piece.replace("▁", " ") for i, piece in pieces(tokenizer, ids.tolist()).items()}
    return NextTokens(
        prompts=prompts,
        ids=ids,
        pieces=tuple(tuple(names[i] for i in row) for row in ids.tolist()),
        probabilities=torch.cat([part.values for part in batches]).cpu(),
    )
