"""The likeliest tokens at every layer and position of one prompt: the logit lens as a table."""

from typing import TYPE_CHECKING

import torch

from arith_lens.components import resid_post_name
from arith_lens.model import HookedModel, record, weights_loaded
from arith_lens.probes.reading import LogitHead

if TYPE_CHECKING:
    from pandas import DataFrame


@torch.no_grad()
def lens_table(model: HookedModel, prompt: str, *, k: int = 3) -> "DataFrame":
    """The k likeliest next tokens after each layer, at each position of a prompt (not in the
    paper).

    The model's own final norm and W_U are applied to the stream after the layer (`logit_lens`). In
    the last layer this is the model's own prediction. Early layers are not trained to be read so.

    Args:
        model: the model, with its tokenizer.
        prompt: a text.
        k: the number of tokens per layer and position.

    Returns:
        One row per layer, position and rank: `layer`, `position`, `read` (the prompt's token
        there), `rank` (1 is the likeliest), `token`, `probability`.

    Raises:
        ValueError: k is not between 1 and the size of the vocabulary.
    """
    from pandas import DataFrame

    d_vocab = int(model.cfg.d_vocab)
    if not 1 <= k <= d_vocab:
        raise ValueError(f"expected k from 1 to {d_vocab}, found {k}")
    tokens = model.to_tokens(prompt)
    names = [resid_post_name(layer) for layer in range(int(model.cfg.n_layers))]
    recorded = record(model, tokens, names)
    read, rows = model.to_str_tokens(prompt), []
    with weights_loaded(model.ln_final, model.unembed):
        head = LogitHead.of(model)
        for layer, name in enumerate(names):
            probabilities = head.logits(recorded[name][0].float()).softmax(-1)
            top = probabilities.topk(k)
            for position, (values, ids) in enumerate(
                zip(*map(torch.Tensor.tolist, top), strict=True)
            ):
                texts = [model.to_string([token]) for token in ids]
                rows += [
                    (layer, position, read[position], 1 + i, texts[i], values[i]) for i in range(k)
                ]
    columns = ["layer", "position", "read", "rank", "token", "probability"]
    return DataFrame(rows, columns=columns)
