"""The cost of a path patching before it runs: floating-point operations, bytes, time."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from arith_lens.components import Components
from arith_lens.memory import fitting_pairs
from arith_lens.methods import (
    HOOKS_SHARD,
    SHARD,
    Method,
    MethodEngine,
    method_components,
    shard_size,
)
from arith_lens.model import (
    N_COLUMNS,
    HookedLike,
    HookedModel,
    compute_device,
    keeps_tokens,
    planned_model,
)
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching.engines import PatchSettings, patch_settings
from arith_lens.path_patching.layers import VOCABULARY_CHUNK
from arith_lens.path_patching.patch import engine_for
from arith_lens.path_patching.recording import both_runs, matrix_elements, shard_recording_flops
from arith_lens.path_patching.sweep import mlp_rows, mlp_width, rows_bytes


@dataclass(frozen=True)
class Plan:
    """The cost of a `path_patch` or `run_method` with the same arguments."""

    n_pairs: int
    n_senders: int
    engine: str
    """`"sweep"`, `"hooks"`, or the name of a method of your own."""
    recording_flops: int
    """Two forwards without the vocabulary matrix. With the sweep, the last layer is computed for
    END alone, and what prompts have in common is computed once."""
    patching_flops: int
    """The sweep; with hooks, one forward per sender, from the layer and token that it changes, and
    an unpatched one; with a method of your
    own, all of it."""
    peak_bytes: int
    """The memory of the largest shard, without that of the model, given the memory that is free
    now."""

    @property
    def flops(self) -> int:
        return self.recording_flops + self.patching_flops

    def seconds(self, part: "Plan", took: float | int) -> float:
        """The predicted time, if `part` of this (such as a first shard) took `took` seconds."""
        return took * self.flops / part.flops

    def __str__(self) -> str:
        ways = {"sweep": "to sweep", "hooks": "to run once for each sender"}
        how = ways.get(self.engine, f"by {self.engine}")
        return (
            f"{self.n_pairs} pairs, {self.n_senders} senders: {self.flops:.3g} FLOPs "
            f"({self.recording_flops:.3g} to record, {self.patching_flops:.3g} {how}), at most "
            f"{self.peak_bytes:.3g} bytes beside the model"
        )


def plan(
    model: HookedLike | str | Path,
    pairs: PromptPairs,
    *,
    senders: Components | None = None,
    paths: str = "via_mlps",
    metric: str = "relative_logit",
    foil: Int[Tensor, " pair"] | None = None,
    engine: str = "sweep",
    batch_size: int | None = None,
    method: Method | None = None,
) -> Plan:
    """FLOPs and bytes of `path_patch` with these arguments, without the certificate's few pairs.

    With `method`, those of `run_method` instead: torch counts the FLOPs of one pair, the longest,
    which the method computes once; bytes are those of a forward of one batch.

    FLOPs are those that torch's FlopCounterMode counts. Bytes are never below the peak for gated
    MLPs and eager attention, and at most 10% above it (20% for shards below 5 MB). For the time,
    patch a first shard and call `Plan.seconds`; `path_patch` shows the remaining time after its
    first shard.

    Args:
        model: as in `path_patch`; or a folder or a hub id, whose config.json is all that is read.
        pairs, senders, paths, metric, foil, engine, batch_size: as in `path_patch`. Pairs of
            another tokenizer give the plan for prompts of their lengths.
        method: a method of your own, in place of path patching. Only `batch_size` counts with it.

    Raises:
        UnsupportedTrunk: the sweep cannot compute this model.
        IndexError, ValueError: as in `path_patch`.
        FileNotFoundError, ValueError, PermissionError, ConnectionError: as in `empty_model`.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols", counterfactual="operands")
        >>> plan = al.plan(model, pairs)           # FLOPs and bytes, before anything runs
        >>> plan == al.plan("reference", pairs)    # a hub id: before the weights are downloaded
        True
    """
    model = planned_model(model)
    if method is not None:
        return _method_plan(method, model, pairs, shard_size(batch_size, HOOKS_SHARD))
    patching = patch_settings(
        model, senders, paths=paths, metric=metric, foil=foil, pairs=pairs, unequal=True
    )
    engine_for(engine, model, patching, certify=False)  # refuses what path_patch would refuse
    by_shard, size = (_sweep, SHARD) if engine == "sweep" else (_hooks, HOOKS_SHARD)
    shards = pairs.batches(shard_size(batch_size, size))
    costs = [by_shard(model, patching, shard) for shard in shards]
    recording, patched, peaks = zip(*costs, strict=True)
    return Plan(
        n_pairs=len(pairs),
        n_senders=len(patching.components),
        engine=engine,
        recording_flops=sum(recording),
        patching_flops=sum(patched),
        peak_bytes=int(MARGIN * max(peaks)),
    )


def _method_plan(method: Method, model: HookedLike, pairs: PromptPairs, size: int) -> Plan:
    """The plan of a method of the user's: the longest pair is computed once, and counted."""
    from torch.utils.flop_counter import FlopCounterMode

    components = method_components(method, model, pairs)
    longest = int(pairs.lengths.argmax())
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        MethodEngine(method, model, components)(pairs[longest : longest + 1])
    n_together = min(size, len(pairs))
    return Plan(
        n_pairs=len(pairs),
        n_senders=len(components),
        engine=method.name,
        recording_flops=0,
        patching_flops=len(pairs) * counter.get_total_flops(),
        peak_bytes=forward_peak(model, n_together, int(pairs.lengths.max())),
    )


def _sweep(model: HookedLike, patching: PatchSettings, shard: PromptPairs) -> tuple[int, int, int]:
    n_pairs, length = len(shard), both_runs(shard)[0].shape[1]
    return (
        shard_recording_flops(model, shard, patching.per_pair_tokens),
        n_pairs * rows_flops(model, patching),
        sweep_peak(model, patching, n_pairs, length),
    )


def _hooks(model: HookedLike, patching: PatchSettings, shard: PromptPairs) -> tuple[int, int, int]:
    n_pairs, length = shard.reference.shape
    forward = forward_flops(model, length)
    n_read = 1 + len(patching.components) + patching.reads_total
    continued = patching.paths == "total" and keeps_tokens(model, shard.attention_mask)
    if patching.paths != "total":
        patched = n_read * forward
    else:
        patched = (1 + patching.reads_total) * forward
        patched += resumed_flops(model, patching, length, 1 if continued else length)
    return (
        2 * n_pairs * forward,
        n_pairs * (patched + n_read * 2 * model.cfg.d_model * model.cfg.d_vocab),
        hooks_peak(model, n_pairs, length) + continued * keys_bytes(model, n_pairs * length),
    )


def resumed_flops(model: HookedLike, patching: PatchSettings, length: int, n_tokens: int) -> int:
    """FLOPs of one pair's forwards that begin at each sender's layer, without the vocabulary
    matrix; `n_tokens` are computed in each. Layers below are computed once, and with one token
    also all keys and values."""
    layers = [sender.layer for sender in patching.components]
    below = layers_flops(model, range(max(layers)), length, length)
    known = forward_flops(model, length) if n_tokens < length else 0
    of_layer = [layers_flops(model, [n], n_tokens, length) for n in range(patching.n_layers)]
    return below + known + sum(sum(of_layer[layer:]) for layer in layers)


def rows_flops(model: HookedLike, patching: PatchSettings) -> int:
    """FLOPs of the sweep of one pair, or of its closed form if no MLP is computed again.

    The logits of each row are read with its own scale of the final norm, and with the reference's.
    """
    senders = patching.senders
    recomputed = patching.paths == "via_mlps"
    passing = senders.rows_through_mlps() if recomputed else [0] * patching.n_layers
    n_read = 2 * senders.n_rows + patching.reads_total
    return flops_of_rows(model, patching, passing, n_read)


def flops_of_rows(
    model: HookedLike, patching: PatchSettings, passing: Sequence[int], n_read: int
) -> int:
    """FLOPs of one pair: the heads' writes, the MLPs of one token per row, the logits of a row.

    Args:
        patching: the settings of the path patching.
        passing: for each layer, the number of rows that pass its MLP.
        n_read: the number of rows whose logits are read; a row that is read twice counts twice.
    """
    cfg = model.cfg
    mlps = [matrix_elements(block.mlp) for block in model.blocks]
    through_mlps = sum(rows * size for rows, size in zip(passing, mlps, strict=True))
    writes = sum(map(len, patching.senders.heads)) * cfg.d_head * cfg.d_model
    columns = 1 + patching.reads_second_token + patching.reads_vocabulary * cfg.d_vocab
    columns += len(patching.candidates or ())
    return 2 * (through_mlps + writes + n_read * cfg.d_model * columns)


def forward_flops(model: HookedLike, length: int) -> int:
    """FLOPs of one prompt, with eager attention and without the vocabulary matrix."""
    return layers_flops(model, range(model.cfg.n_layers), length, length)


def layers_flops(model: HookedLike, layers: Iterable[int], n_tokens: int, length: int) -> int:
    """FLOPs of some layers for tokens that attend to all tokens of one prompt."""
    cfg, blocks = model.cfg, [model.blocks[layer] for layer in layers]
    weights = sum(matrix_elements(block.attn) + matrix_elements(block.mlp) for block in blocks)
    scores = 2 * len(blocks) * cfg.n_heads * cfg.d_head * length
    return 2 * n_tokens * (weights + scores)


ROWS, REPEATS = 64, 3
SLOWEST_SHARE = 0.25
"""The share of that rate that path patching reaches on small models, whose products are short: 26%
on `reference` with one thread. On models of billions of weights it is most of it."""


def matrix_rate(model: HookedModel) -> float:
    """Operations a second of products of the size of the model's MLPs, on its device, in its dtype.

    The fastest of a few counts: the others had less of the machine. No weight is read.
    """
    options = {"device": model.device, "dtype": model.dtype}
    rows = torch.ones(ROWS, model.cfg.d_model, **options)
    matrix = torch.ones(model.cfg.d_model, model.cfg.d_mlp or 4 * model.cfg.d_model, **options)
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        float((rows @ matrix)[0, 0])  # reading one number waits for a GPU
        seconds.append(time.perf_counter() - started)
    return 2 * ROWS * matrix.numel() / min(seconds)


def time_text(flops: float | int, rate: float) -> str:
    """The time of so many operations, from the fastest to the slowest: `12 to 48 s here`."""
    fastest = flops / rate
    unit, size = next(
        (unit, size) for unit, size in (("h", 3600), ("min", 60), ("s", 0)) if fastest >= 2 * size
    )
    low, high = (seconds / (size or 1) for seconds in (fastest, fastest / SLOWEST_SHARE))
    low, high = (f"{part:.0f}" if part >= 10 else f"{part:.2g}" for part in (low, high))
    return f"{low} to {high} {unit} here"


MARGIN = 1.05
"""What is not counted, such as the comparisons of the certificate."""
ROW_NUMBERS = 10
"""Numbers of each row of a sweep: its logits, the scales of its norm, its effects."""
IN_MLP = 3
"""Activations of size d_mlp in memory at once: the gate's activation, up, their product."""
AROUND_MLP = 4
"""Activations of size d_model in memory with them in a forward, as measured with torch's allocator;
a sweep has only the norm's."""
AROUND_SCORES = 7
"""The same with scores."""
IN_SCORES = 3
"""Tensors [head query key] in a bridge's attention: scores, masked scores, weights."""
IN_OWN_SCORES = 2
"""The same in the attention of the model's own modules, which record for a sweep."""


def sweep_peak(model: HookedLike, patching: PatchSettings, n_pairs: int, length: int) -> int:
    """Bytes of a shard with the sweep: both runs are recorded as one batch, then chunks of pairs
    are swept. The certificate repeats one prompt."""
    cfg, size = model.cfg, model.W_U.element_size()
    layer = cfg.n_heads * cfg.d_head + 2 * cfg.d_model  # z, attn_out, mlp_out
    recorded = (2 * n_pairs + 1) * size * (cfg.n_layers * layer + cfg.d_model)
    one_pair = rows_bytes(patching.senders.n_rows, cfg.d_model)
    chunk = fitting_pairs(one_pair, n_pairs, compute_device(model.unembed))
    one_pair += ROW_NUMBERS * 4 * patching.senders.n_rows
    rows = max(chunk * one_pair, chunk * one_pair // 3 + layer_peak(model, patching, chunk))
    if patching.reads_vocabulary:
        # logits and their exponentials, with the rows before and after the norm
        logits = 2 * 4 * patching.senders.n_rows * min(cfg.d_vocab, VOCABULARY_CHUNK)
        rows = max(rows, chunk * (one_pair * 2 // 3 + logits))
    forward = forward_peak(model, 2 * n_pairs + 1, length, scores=IN_OWN_SCORES)
    if patching.per_pair_tokens is not None:
        own = patching.per_pair_tokens
        scores = 2 * n_pairs * own * length * cfg.n_heads * IN_OWN_SCORES * max(size, 4)
        widest = forward_peak(model, 2 * n_pairs, own, scores=IN_OWN_SCORES)
        forward = keys_bytes(model, 2 * n_pairs * length) + max(scores, widest)
    if cfg.d_vocab >= N_COLUMNS:  # the certificate's columns
        n_columns = n_pairs + len(range(0, cfg.d_vocab, 1 + cfg.d_vocab // N_COLUMNS))
        forward += n_columns * size * cfg.d_model
    return recorded + max(forward, rows)


def layer_peak(model: HookedLike, patching: PatchSettings, n_pairs: int) -> int:
    """Bytes beside a sweep's rows: W_O in float32, z and the heads' writes; or those of the MLP."""
    cfg, size, senders = model.cfg, model.W_U.element_size(), patching.senders
    writes = max(_writes_of(cfg, size, len(heads), n_pairs) for heads in senders.heads)
    if patching.paths != "via_mlps":
        return writes
    rows = min(mlp_rows(model), n_pairs * max(senders.rows_through_mlps()))
    in_mlp = rows * (IN_MLP * size * mlp_width(model) + 2 * 4 * cfg.d_model)
    return max(writes, in_mlp + packed_bytes(model))


def _writes_of(cfg: Any, size: int, n_heads: int, n_pairs: int) -> int:
    """Bytes of W_O of a layer's patched heads, of their z, and of what they write."""
    some = n_heads < cfg.n_heads
    copies = some * size + (size < 4) * 4  # chosen heads are copied, and half precision is widened
    z = 4 * n_pairs * cfg.d_head * (3 * cfg.n_heads + n_heads)
    return n_heads * (cfg.d_head * cfg.d_model * copies + 4 * n_pairs * cfg.d_model) + z


def keys_bytes(model: HookedLike, n_tokens: int) -> int:
    """Bytes of the keys and values of tokens in all layers."""
    cfg = model.cfg
    width = cfg.d_head * (cfg.n_key_value_heads or cfg.n_heads)
    return n_tokens * model.W_U.element_size() * 2 * cfg.n_layers * width


def hooks_peak(model: HookedLike, n_pairs: int, length: int) -> int:
    """Bytes of a shard with hooks: z and MLP outputs of the reference at every position, those of
    X_c at END, and one forward at a time."""
    cfg, size = model.cfg, model.W_U.element_size()
    per_token = cfg.n_layers * (cfg.n_heads * cfg.d_head + cfg.d_model)
    recorded = per_token * size * n_pairs * (length + 1)
    streams = 2 * n_pairs * length * size * cfg.d_model  # at a layer's entry, and changed
    return recorded + streams + forward_peak(model, n_pairs, length)


PACKED = 200
"""Bytes for each input of a product in half precision in which a processor that multiplies bfloat16
itself packs the weights (oneDNN), as measured with torch's allocator; others use none."""


def packed_bytes(model: HookedLike) -> int:
    """Bytes of the packed weights of an MLP's product."""
    is_packed = model.W_U.element_size() < 4 and compute_device(model.unembed).type != "cuda"
    return is_packed * PACKED * mlp_width(model)


def forward_peak(model: HookedLike, n_prompts: int, length: int, *, scores: int = IN_SCORES) -> int:
    """Bytes of one forward without KV cache and vocabulary matrix."""
    cfg, size = model.cfg, model.W_U.element_size()
    tokens = n_prompts * length
    pattern = length * cfg.n_heads  # Transformers holds it in the MLP, too
    in_mlp = tokens * size * (IN_MLP * mlp_width(model) + AROUND_MLP * cfg.d_model + pattern)
    in_mlp += packed_bytes(model)
    wide = 2 * torch.float32.itemsize + size  # the softmax is float32, and so is what enters it
    in_scores = tokens * (pattern * (scores * size if size == 4 else wide) + length * size)
    return max(in_mlp, in_scores + AROUND_SCORES * tokens * size * cfg.d_model)
