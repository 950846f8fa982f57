"""The logits of END: of a stream at the last layer's exit, and of some tokens alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from arith_lens.model.forwards import (
    accepted_options,
    forwards_replaced,
    identity_block,
    n_other_outputs,
)
from arith_lens.model.hooked import HookedLike
from arith_lens.model.own_modules import own_module
from arith_lens.tensor_parallel import is_split

N_COLUMNS = 1000
"""The number of the vocabulary's tokens that give the scale of the logits."""


def end_logits(
    model: HookedLike, tokens: Int[Tensor, " row"], stream: Float[Tensor, "row d_model"]
) -> Float[Tensor, "row d_vocab"]:
    """The logits that the model computes from the residual stream at the last layer's exit.

    Gradients pass through it where they are enabled.

    Args:
        tokens: the token of each row, with which the model is called.
        stream: the stream of each row.
    """
    blocks, rows = list(model.blocks), stream[:, None]
    passing = identity_block(rows, n_other_outputs(model, blocks[0]))
    with forwards_replaced(blocks, [passing] * len(blocks)):
        options = accepted_options(model, use_cache=False, logits_to_keep=1)
        logits = model(tokens[:, None].to(model.cfg.device), **options)
    return logits[:, -1]


def checked_columns(answer: Int[Tensor, " pair"], d_vocab: int) -> Int[Tensor, " column"] | None:
    """The answers, and tokens evenly over the vocabulary, which give the logits' scale.

    None: all of a small vocabulary, whose columns need no copy.
    """
    step = 1 + d_vocab // N_COLUMNS
    if step == 1:
        return None
    return torch.cat([torch.arange(0, d_vocab, step), answer]).unique()


@contextmanager
def columns_alone(
    unembed: Any, columns: Int[Tensor, " column"] | None
) -> Iterator[Int[Tensor, " column"] | None]:
    """A context in which the bridge's unembedding computes the logits of these tokens alone.

    Yields them; None, where it computes all: no tokens are given, or it is no plain matrix.
    """
    own = own_module(unembed)
    plain = type(own) is nn.Linear and "forward" not in vars(own) and not is_split(own)
    if columns is None or not plain:
        yield None
        return
    chosen = columns.to(own.weight.device)
    weight, bias = own.weight[chosen], None if own.bias is None else own.bias[chosen]
    with forwards_replaced([own], [lambda rows: nn.functional.linear(rows, weight, bias)]):
        yield columns
