"""The attention patterns of chosen heads on prompts of one's own, to be looked at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.components import Heads, as_heads, check_components, pattern_name
from arith_lens.model import HookedLike, record
from arith_lens.pairs.tokens import encode, pieces, tokenizer_of
from arith_lens.views import View, attention_heads

if TYPE_CHECKING:
    from pandas import DataFrame

KIND = "attention_patterns"


@dataclass(frozen=True, eq=False)
class Patterns:
    """Patterns of some heads on some prompts, each prompt of its own length.

    Attributes:
        tokens: each prompt's, as the tokenizer writes them
        weights: for each prompt [head query key], rows that sum to 1
    """

    prompts: tuple[str, ...]
    heads: tuple[str, ...]
    tokens: tuple[tuple[str, ...], ...]
    weights: tuple[Float[Tensor, "head _ _"], ...]

    def view(self, index: int) -> View:
        """One prompt's patterns as circuitsvis shows them. Raises ValueError beyond 64 heads."""
        return attention_heads(
            self.weights[index].numpy(), self.tokens[index], self.heads, title=self.prompts[index]
        )

    def to_arrays(self) -> Arrays:
        """For a file; `from_arrays` gives the same back."""
        tensors = {f"weights.{i}": weight for i, weight in enumerate(self.weights)}
        header = {
            "kind": KIND,
            "prompts": list(self.prompts),
            "heads": list(self.heads),
            "tokens": [list(row) for row in self.tokens],
        }
        return Arrays(tensors, header)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Patterns":
        """Read `to_arrays` back. Raises ValueError for another kind of result."""
        arrays.require(KIND)
        header = arrays.header
        return cls(
            prompts=tuple(header["prompts"]),
            heads=tuple(header["heads"]),
            tokens=tuple(tuple(row) for row in header["tokens"]),
            weights=tuple(arrays.tensors[f"weights.{i}"] for i in range(len(header["prompts"]))),
        )

    def to_dataframe(self) -> "DataFrame":
        """One row a prompt, head and token: the weight from END."""
        from pandas import DataFrame

        return DataFrame(
            [
                {
                    "prompt": prompt,
                    "head": head,
                    "position": at,
                    "token": token,
                    "from_END": float(w),
                }
                for prompt, tokens, weights in zip(
                    self.prompts, self.tokens, self.weights, strict=True
                )
                for head, row in zip(self.heads, weights[:, -1], strict=True)
                for at, (token, w) in enumerate(zip(tokens, row, strict=True))
            ]
        )


def attention_view(model: HookedLike, prompt: str, heads: Heads) -> View:
    """The patterns of `heads` on one prompt, to click through: in a notebook, or `.save(path)`.

    Raises:
        ValueError, IndexError: as `patterns_of`; more than 64 heads
    """
    return patterns_of(model, prompt, heads).view(0)


@torch.no_grad()
def patterns_of(model: HookedLike, prompts: Sequence[str] | str, heads: Heads) -> Patterns:
    """The whole patterns of `heads` on a few prompts, one at a time.

    Raises:
        ValueError: no prompt, an empty one, or no head
        IndexError: a head that the model has not
    """
    texts = (prompts,) if isinstance(prompts, str) else tuple(prompts)
    chosen = as_heads(heads)
    if not texts or not all(texts) or not chosen:
        raise ValueError(
            f"expected prompts with text and heads, found {len(texts)} prompts, "
            f"{sum(not text for text in texts)} of them empty, and {len(chosen)} heads"
        )
    check_components(chosen, int(model.cfg.n_layers), int(model.cfg.n_heads))
    tokenizer = tokenizer_of(model)
    rows = [list(prompt.ids) for prompt in encode(tokenizer, texts)]
    said = pieces(tokenizer, rows)
    names = sorted({pattern_name(head.layer) for head in chosen})
    weights = []
    for row in rows:
        tokens = torch.tensor([row])
        kept = record(model, tokens, names, attention_mask=torch.ones_like(tokens))
        layers = [kept[pattern_name(head.layer)][0, head.index] for head in chosen]
        weights.append(torch.stack(layers).float().cpu())
    return Patterns(
        prompts=texts,
        heads=tuple(map(str, chosen)),
        tokens=tuple(tuple(said[i] for i in row) for row in rows),
        weights=tuple(weights),
    )
