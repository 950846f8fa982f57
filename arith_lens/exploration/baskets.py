"""Answers without sets of components, or with these sets alone."""

import warnings
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import Component, Head, Mlp, every_head, every_mlp
from arith_lens.effects import Effects
from arith_lens.exploration.parts import spaced
from arith_lens.explorer_page import Tables
from arith_lens.knockout.engine import engine_of
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs
from arith_lens.pairs.tokens import pieces, tokenizer_of

if TYPE_CHECKING:
    from pandas import DataFrame

N_NEXT = 3
"""Next tokens of a prompt."""
BATCH = 64
KNOCKOUT_POSITIONS = {"knock_out": "all", "keep_only": "end"}
"""Where components are replaced: knocked out at every token; others than those kept at END."""

T = TypeVar("T")
Steps: TypeAlias = Generator[float, None, T]
"""A computation that yields how much of it is done, between 0 and 1, and returns its result."""


def finished(steps: Steps[T]) -> T:
    """The result of all steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def baskets(
    model: HookedLike,
    pairs: PromptPairs,
    rows: Int[Tensor, " row"],
    sample: Int[Tensor, " shown"],
    sets: Sequence[Sequence[Component]],
    kind: str,
) -> Steps[Tables]:
    """Accuracy and next tokens when sets of components are knocked out, or kept only.

    Replacements are means over all pairs, as in `knock_out` and `keep_only`. If only heads are
    kept, MLPs stay as they are.

    Args:
        model, pairs: as in `explored`.
        rows: the pairs that are answered.
        sample: those of them whose answers are shown.
        sets: the sets of components.
        kind: a key of `KNOCKOUT_POSITIONS`.
    """
    everything: list[Component] = list({member for members in sets for member in members})
    variants = [frozenset(members) for members in sets]
    if kind == "keep_only":
        n_layers = int(model.cfg.n_layers)
        mlps = every_mlp(n_layers) if any(isinstance(one, Mlp) for one in everything) else []
        everything = [*every_head(n_layers, int(model.cfg.n_heads)), *mlps]
        variants = [frozenset(everything) - members for members in variants]
    with warnings.catch_warnings():  # of own prompts, whose mean is of one
        warnings.simplefilter("ignore", UserWarning)
        settings: dict[str, Any] = {"ablation": "mean", "means": None, "seed": 0}
        engine = engine_of(model, pairs, everything, positions=KNOCKOUT_POSITIONS[kind], **settings)
    done = []
    for part in rows.split(BATCH):
        yield sum(len(one[0, 0]) for one in done) / len(rows)
        of_part = engine.select(part)

        def read(logits: Tensor, within: Tensor, answer: Tensor = of_part.pairs.answer) -> Tensor:
            return _next_tokens(logits, answer[within])

        done.append(of_part(variants, progress=False, read=read))
    values = torch.cat(done, dim=-1)
    members = [",".join(map(str, sorted(one, key=_order))) for one in sets]
    sample_rows = torch.tensor([rows.tolist().index(row) for row in sample.tolist()])
    answers = _answers(model, values[:, :, sample_rows], members, kind)
    return {"sets": _sets(pairs[rows], values[:2], members, kind), "answers": answers}


def _next_tokens(
    logits: Float[Tensor, "state pair d_vocab"], answer: Int[Tensor, " pair"]
) -> Float[Tensor, "what state pair"]:
    """Whether the answer is first, p(C), the most likely tokens, and their probabilities."""
    target = answer.to(logits.device).expand(logits.shape[:2])[..., None]
    probability = logits.float().softmax(-1)
    top = probability.topk(min(N_NEXT, logits.shape[-1]), dim=-1)
    correct = probability.argmax(-1, keepdim=True) == target
    parts = [correct, probability.gather(-1, target), top.indices, top.values]
    return torch.cat([part.double() for part in parts], dim=-1).movedim(-1, 0).cpu()


def _sets(
    pairs: PromptPairs, values: Float[Tensor, "measure=2 set pair"], members: list[str], kind: str
) -> "DataFrame":
    from pandas import DataFrame

    effects = Effects(values.float(), ("measure", "set"), "after knockout", **pairs.units)
    mean, (low, high) = effects.mean(), effects.ci()
    columns = {"accuracy": mean[0], "ci_low": low[0], "ci_high": high[0], "probability": mean[1]}
    return DataFrame(
        {"kind": kind, "members": members}
        | {name: np.round(value.numpy(), 4) for name, value in columns.items()}
        | {"n_pairs": len(pairs)}
    )


def _answers(
    model: HookedLike,
    values: Float[Tensor, "what set pair"],
    members: list[str],
    kind: str,
) -> "DataFrame":
    from pandas import DataFrame

    n_sets, n_pairs = values.shape[1:]
    flat = values.flatten(1)
    n_next = (len(flat) - 2) // 2
    ids, probabilities = flat[2 : 2 + n_next].long(), flat[2 + n_next :]
    names = pieces(tokenizer_of(model), ids.tolist())
    columns: dict[str, Any] = {
        "kind": kind,
        "members": np.repeat(np.array(members, dtype=object), n_pairs),
        "prompt": np.tile(np.arange(n_pairs), n_sets),
        "correct": flat[0].bool().numpy(),
        "probability": np.round(flat[1].numpy(), 3),
    }
    for rank in range(n_next):
        columns[f"token_{rank + 1}"] = [spaced(names[token]) for token in ids[rank].tolist()]
        columns[f"probability_{rank + 1}"] = np.round(probabilities[rank].numpy(), 3)
    return DataFrame(columns)


def _order(component: Component) -> tuple[int, int]:
    """Layer by layer, heads before the MLP."""
    return component.layer, component.index if isinstance(component, Head) else 10**6
