"""How much memory a path patching takes at its worst moment, above the model's own.

Counted from the tensors that are alive together, for eager attention and gated MLPs. A forward is
at its worst inside an MLP, or where prompts are long in the attention; a sweep in the final norm,
where the vocabulary is read in its logits, or, with few pairs of a wide model, within a layer.
"""

import torch

from arith_lens.memory import fitting_pairs
from arith_lens.model import HookedLike, home_of
from arith_lens.path_patching.question import Question
from arith_lens.path_patching.sweep import rows_bytes
from arith_lens.path_patching.trunk import VOCABULARY_CHUNK, mlp_rows, mlp_width

IN_MLP = 3
"""Activations of d_mlp alive together: the gate's activation, up, their product."""
AROUND_MLP = 4
"""Of d_model beside them in a forward, as torch's allocator shows; a sweep has the norm's alone."""
IN_SCORES = 3
"""Of [head query key] in a bridge's attention: scores, masked scores, weights."""
IN_OWN_SCORES = 2
"""In the attention of the model's own modules, by which a sweep records."""


def sweep_peak(model: HookedLike, asked: Question, n_pairs: int, length: int) -> int:
    """A shard by sweep: both runs are recorded as one batch, then chunks of pairs are swept."""
    cfg, size = model.cfg, model.W_U.element_size()
    layer = cfg.n_heads * cfg.d_head + 2 * cfg.d_model  # z, attn_out, mlp_out
    kept = 2 * n_pairs * size * (cfg.n_layers * layer + cfg.d_model)
    one_pair = rows_bytes(asked.senders.n_rows, cfg.d_model)
    chunk = fitting_pairs(one_pair, n_pairs, home_of(model.unembed))
    rows = max(chunk * one_pair, chunk * one_pair // 3 + layer_peak(model, asked, chunk))
    if (
        asked.reads_vocabulary
    ):  # logits and their exponentials beside rows before and after the norm
        logits = 2 * 4 * asked.senders.n_rows * min(cfg.d_vocab, VOCABULARY_CHUNK)
        rows = max(rows, chunk * (one_pair * 2 // 3 + logits))
    forward = forward_peak(model, 2 * n_pairs, length, scores=IN_OWN_SCORES)
    if asked.own_tokens is not None:
        own = asked.own_tokens
        known = 2 * n_pairs * size * 2 * cfg.n_layers * _kv_width(model)
        scores = 2 * n_pairs * own * length * cfg.n_heads * IN_OWN_SCORES * max(size, 4)
        widest = forward_peak(model, 2 * n_pairs, own, scores=IN_OWN_SCORES)
        forward = known * length + max(scores, widest)
    return kept + max(forward, rows)


def _kv_width(model: HookedLike) -> int:
    """Of a token's keys in a layer."""
    return int(model.cfg.d_head * (model.cfg.n_key_value_heads or model.cfg.n_heads))


def layer_peak(model: HookedLike, asked: Question, n_pairs: int) -> int:
    """Beside a sweep's rows: W_O in float32, z and what is written; or what is inside the MLP."""
    cfg, size, senders = model.cfg, model.W_U.element_size(), asked.senders
    writes = max(_writes_of(model, len(heads), n_pairs) for heads in senders.heads)
    if asked.paths != "via_mlps":
        return writes
    rows = min(mlp_rows(model), n_pairs * max(senders.rows_through_mlps()))
    return max(writes, rows * size * (IN_MLP * mlp_width(model) + cfg.d_model))


def _writes_of(model: HookedLike, n_heads: int, n_pairs: int) -> int:
    """W_O of a layer's heads that are patched, their z, and what they write."""
    cfg, size = model.cfg, model.W_U.element_size()
    some = n_heads < cfg.n_heads
    copies = some * size + (size < 4) * 4  # chosen heads are copied, and half precision is widened
    z = 4 * n_pairs * cfg.d_head * (3 * cfg.n_heads + n_heads)
    return n_heads * (cfg.d_head * cfg.d_model * copies + 4 * n_pairs * cfg.d_model) + z


def hooks_peak(model: HookedLike, n_pairs: int, length: int) -> int:
    """A shard by hooks: z and MLP outputs of the reference at every position, END's of X_c, and
    one forward at a time."""
    cfg, size = model.cfg, model.W_U.element_size()
    kept = cfg.n_layers * (cfg.n_heads * cfg.d_head + cfg.d_model) * size * n_pairs * (length + 1)
    return kept + forward_peak(model, n_pairs, length)


def forward_peak(model: HookedLike, n_prompts: int, length: int, *, scores: int = IN_SCORES) -> int:
    """One forward without KV cache and vocabulary matrix."""
    cfg, size = model.cfg, model.W_U.element_size()
    tokens = n_prompts * length
    in_mlp = tokens * size * (IN_MLP * mlp_width(model) + AROUND_MLP * cfg.d_model)
    wide = torch.float32.itemsize + 2 * size  # the softmax is float32
    in_scores = tokens * length * cfg.n_heads * (scores * size if size == 4 else wide)
    return max(in_mlp, in_scores + 5 * tokens * size * cfg.d_model)
