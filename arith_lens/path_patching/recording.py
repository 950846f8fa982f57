"""Record END's activations in both runs of some pairs, for the sweep and its certificate.

Prompts with the same examples before the question differ only in their last tokens. The keys and
values of the common beginning are then computed once for all prompts that have it, and only the
last tokens run for each prompt. The numbers differ from those of whole prompts by rounding. So all
pairs of a path patching are recorded in one way, whichever shard they are in (`per_pair_tokens`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from arith_lens.components import resid_post_name, resid_pre_name, z_name
from arith_lens.model import (
    HookedLike,
    accepted_options,
    columns_alone,
    compute_device,
    continues_prompts,
    end_alone,
    keys_and_values,
    mlp_exit,
    require_finite,
    without_bridge,
)
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching.layers import HOOKS_OF_PATCHING, UnsupportedTrunk, running

PARTS_BY_LAYER = ("z", "attn_out", "mlp_out")


@dataclass(frozen=True)
class Recording:
    """END's activations in the model's dtype; run 0 is the reference, run 1 the counterfactual."""

    stream: Float[Tensor, "run pair d_model"]
    """The residual stream at the first block's entry."""
    z: Float[Tensor, "run layer pair n_heads d_head"]
    """The heads' outputs before W_O."""
    attn_out: Float[Tensor, "run layer pair d_model"]
    """The output of the attention: `z @ W_O` and the bias, before a norm or a factor."""
    mlp_out: Float[Tensor, "run layer pair d_model"]
    """The output of the MLP, and of the norm after it if there is one."""
    end: Float[Tensor, "run pair d_model"]
    """The residual stream before the final norm."""
    logits: Float[Tensor, "run returned column"] | None = None
    """The logits that the model returned, for all pairs or for the pairs whose logits were
    requested; None if none were."""
    columns: Int[Tensor, " column"] | None = None
    """The tokens of these logits, in order; None: the whole vocabulary."""

    def pairs(self, chosen: slice | list[int]) -> "Recording":
        """The recording of some of the pairs, without logits."""
        by_layer = {part: getattr(self, part)[:, :, chosen] for part in PARTS_BY_LAYER}
        return Recording(stream=self.stream[:, chosen], end=self.end[:, chosen], **by_layer)


def joined_runs(runs: Sequence[Recording]) -> Recording:
    """Several runs of the same pairs as one recording, without logits."""
    parts = ("stream", *PARTS_BY_LAYER, "end")
    return Recording(**{part: torch.cat([getattr(run, part) for run in runs]) for part in parts})


@dataclass(frozen=True)
class PromptBatch:
    """Prompts that run together."""

    tokens: Int[Tensor, "prompt pos"]
    """The tokens that run."""
    mask: Bool[Tensor, "prompt mask_pos"]
    """The attention mask of the tokens, and of earlier tokens whose keys and values are known."""
    end: Int[Tensor, " prompt"]
    """The column of each prompt's END."""

    def __len__(self) -> int:
        return len(self.tokens)

    def at_end(self, value: Float[Tensor, "prompt pos *rest"]) -> Float[Tensor, " prompt *rest"]:
        """A copy of each prompt's value at END. Raises UnsupportedTrunk for values of no prompt."""
        if value.shape[:2] != self.tokens.shape:
            raise UnsupportedTrunk(
                f"expected a layer's activations by prompt and position {[*self.tokens.shape]}, "
                f"found shape {[*value.shape]}; {HOOKS_OF_PATCHING}"
            )
        return value[torch.arange(len(self), device=value.device), self.end.to(value.device)]

    @classmethod
    def of(cls, pairs: PromptPairs) -> "PromptBatch":
        """References, then counterfactuals, padded on the left."""
        tokens, mask = both_runs(pairs)
        return cls(tokens, mask, torch.full((len(tokens),), tokens.shape[1] - 1))

    def with_repeated(self, prompt: int) -> "PromptBatch":
        """Add a copy of one prompt as the last row, with its padding on the right."""
        length = int(self.mask[prompt].sum())
        shift = length - self.tokens.shape[1]
        return PromptBatch(
            torch.cat([self.tokens, self.tokens[prompt].roll(shift)[None]]),
            torch.cat([self.mask, self.mask[prompt].roll(shift)[None]]),
            torch.cat([self.end, torch.tensor([length - 1])]),
        )

    def alone(self, prompt: int) -> "PromptBatch":
        """One prompt, without padding."""
        tokens = self.tokens[prompt][self.mask[prompt]][None]
        return PromptBatch(
            tokens, torch.ones_like(tokens).bool(), torch.tensor([tokens.shape[1] - 1])
        )

    def in_two(self, n_own: int) -> tuple["PromptBatch", "PromptBatch", Int[Tensor, " prompt"]]:
        """Split the prompts into common beginnings and their own last columns.

        Returns:
            The different beginnings; the last `n_own` columns of each prompt, with the mask of all
            columns; and the index of each prompt's beginning.
        """
        n_shared = self.tokens.shape[1] - n_own
        start = torch.stack([self.tokens, self.mask.to(self.tokens)], -1)[:, :n_shared]
        rows, of_prompt = start.flatten(1).unique(dim=0, return_inverse=True)
        tokens, mask = rows.unflatten(1, (-1, 2)).unbind(-1)
        beginnings = PromptBatch(tokens, mask.bool(), torch.full((len(rows),), n_shared - 1))
        own = PromptBatch(self.tokens[:, n_shared:], self.mask, self.end - n_shared)
        return beginnings, own, of_prompt

    def rows(self, chosen: Int[Tensor, " chosen"]) -> "PromptBatch":
        """Some of the prompts."""
        return PromptBatch(self.tokens[chosen], self.mask[chosen], self.end[chosen])


def record_pairs(
    model: HookedLike,
    pairs: PromptPairs,
    *,
    logits: bool | Sequence[int] = False,
    columns: Int[Tensor, " column"] | None = None,
    hooked: bool = False,
    repeated: int | None = None,
    per_pair_tokens: int | None = None,
) -> tuple[Recording, Recording | None]:
    """Run references and counterfactuals as one batch and record their activations at END.

    Args:
        pairs: the prompts, padded on the left.
        logits: whether to record the logits at END too: of both runs of all pairs, or of the pairs
            with these indices.
        columns: the tokens whose logits are computed, in order, where the unembedding is a plain
            matrix; None: all.
        hooked: hooks are active and must act. Else the model's own modules run, which is faster.
        repeated: the pair whose reference runs a second time, in another row.
        per_pair_tokens: the number of tokens at the end of each prompt that run for this prompt
            alone. The tokens before them run once for all prompts that have them; the repeated
            prompt runs as a whole. With None, or if hooks must act, every prompt runs as a whole.

    Returns:
        The recording of both runs, and that of the repeated prompt, if there is one.

    Raises:
        FloatingPointError: an activation is not finite; the message names its layer.
    """
    n_pairs, batch = len(pairs), PromptBatch.of(pairs)
    own = None if hooked else per_pair_tokens
    if repeated is not None and own is None:
        batch = batch.with_repeated(repeated)
    wanted = range(n_pairs) if logits is True else logits or ()
    rows = [run * n_pairs + pair for run in (0, 1) for pair in wanted]
    rows += range(2 * n_pairs, len(batch)) if logits is True else ()
    with_logits = torch.tensor(rows) if rows else None
    how: dict[str, Any] = {"hooked": hooked, "per_pair_tokens": own}
    prompts = record_batch(model, batch, logits=with_logits, columns=columns, **how)
    both = [prompts.pairs(slice(start, start + n_pairs)) for start in (0, n_pairs)]
    recording = joined_runs(both)
    once_more = None
    if repeated is not None and own is not None:
        once_more = record_batch(model, batch.alone(repeated))
    elif repeated is not None:
        once_more = prompts.pairs([*range(2 * n_pairs, len(batch))])  # a copy
    if prompts.logits is not None:
        runs, others = prompts.logits[0].tensor_split([2 * len(wanted)])
        returned = runs.unflatten(0, (2, -1))
        recording = replace(recording, logits=returned, columns=prompts.columns)
        if once_more is not None and len(others):
            once_more = replace(once_more, logits=others[None])
    return recording, once_more


def record_batch(
    model: HookedLike,
    batch: PromptBatch,
    *,
    logits: Int[Tensor, " row"] | None = None,
    columns: Int[Tensor, " column"] | None = None,
    hooked: bool = False,
    per_pair_tokens: int | None = None,
) -> Recording:
    """Record a batch of any prompts as one run. Raises the errors of `record_pairs`.

    Args:
        batch: the prompts.
        logits: the rows whose logits are recorded; None: no logits.
        columns, hooked, per_pair_tokens: as in `record_pairs`.
    """
    if hooked or logits is None:
        columns = None
    if hooked:
        seen, returned = _record_by_hook_points(model, batch, logits)
    else:
        bridge: Any = getattr(model, "bridge", model)
        with running(bridge.original_model), columns_alone(model.unembed, columns) as columns:
            seen, returned = _record_by_own_modules(model, batch, logits, per_pair_tokens)
    home, layers = compute_device(model.unembed), range(len(model.blocks))

    def by_layer(part: str) -> Tensor:
        return torch.stack([seen[part, layer].to(home) for layer in layers])[None]

    recording = Recording(
        stream=seen["stream", 0].to(home)[None],
        z=rearrange(
            by_layer("z"), "... (head d_head) -> ... head d_head", head=int(model.cfg.n_heads)
        ),
        attn_out=by_layer("attn_out"),
        mlp_out=by_layer("mlp_out"),
        end=seen["end", 0].to(home)[None],
        logits=None if returned is None else returned.to(home)[None],
        columns=columns,
    )
    _require_finite(model, batch, recording)
    return recording


PartOutputs = dict[tuple[str, int], Tensor]
"""END's activations by field of `Recording` and layer [run_pair ...], heads of z side by side."""


def _record_by_own_modules(
    model: HookedLike,
    batch: PromptBatch,
    logits: Int[Tensor, " row"] | None,
    per_pair_tokens: int | None,
) -> tuple[PartOutputs, Tensor | None]:
    """Record with PyTorch's own hooks on the model's own modules.

    Nothing needs other positions of the last layer, so its output projection and MLP compute END
    alone. The unembedding computes only the rows whose logits are requested.
    """
    seen: PartOutputs = {}
    blocks = list(model.blocks)  # the bridge's blocks, which `without_bridge` removes
    exits = [mlp_exit(block) for block in blocks]
    with ExitStack() as stack:
        stack.enter_context(without_bridge(model))
        known: dict[str, Any] = {}
        if per_pair_tokens is not None:
            beginnings, batch, of_prompt = batch.in_two(per_pair_tokens)
            with end_alone(blocks[-1], beginnings.at_end):
                known["past"] = keys_and_values(model, beginnings.tokens, beginnings.mask)
            known["past"].batch_select_indices(of_prompt.to(torch.device(model.cfg.device)))
        stack.enter_context(_kept_parts(batch, seen, blocks, exits, model.ln_final))
        stack.enter_context(end_alone(blocks[-1], batch.at_end))
        if logits is not None:
            unembed = model.unembed.original_component
            handle = unembed.register_forward_pre_hook(
                lambda _, args: (_ends_of(batch, logits, args[0]), *args[1:])
            )
            stack.callback(handle.remove)
        returned = _run(model, batch, logits, **known)
    return seen, returned


@contextmanager
def _kept_parts(
    batch: PromptBatch, seen: PartOutputs, blocks: Sequence[Any], exits: Sequence[Any], final: Any
) -> Iterator[None]:
    """A context in which what the model's own modules compute at END is put into `seen`."""

    def keep(part: tuple[str, int], value: Any) -> None:
        seen[part] = batch.at_end(value[0] if isinstance(value, tuple) else value)

    with ExitStack() as stack:

        def keep_input(module: Any, *part: Any) -> None:
            handle = module.original_component.register_forward_pre_hook(
                lambda _, args, kwargs: keep(part, args or kwargs["hidden_states"]),
                with_kwargs=True,
            )
            stack.callback(handle.remove)

        def keep_output(module: Any, *part: Any) -> None:
            handle = module.original_component.register_forward_hook(
                lambda _, args, output: keep(part, output)
            )
            stack.callback(handle.remove)

        keep_input(blocks[0], "stream", 0)
        keep_input(final, "end", 0)
        for layer, block in enumerate(blocks):
            keep_input(block.attn.o, "z", layer)
            keep_output(block.attn, "attn_out", layer)
            keep_output(exits[layer], "mlp_out", layer)
        yield


def _record_by_hook_points(
    model: HookedLike, batch: PromptBatch, logits: Int[Tensor, " row"] | None
) -> tuple[PartOutputs, Tensor | None]:
    """Record with the bridge's hook points, after the active hooks."""
    seen: PartOutputs = {}
    factors: dict[tuple[str, int], float] = {}
    blocks = list(model.blocks)
    names = {("stream", 0): resid_pre_name(0), ("end", 0): resid_post_name(len(blocks) - 1)}
    for layer, block in enumerate(blocks):
        names["z", layer] = z_name(layer)
        for part, module in (("attn_out", block.attn), ("mlp_out", mlp_exit(block))):
            names[part, layer], factors[part, layer] = exit_point(block, f"hook_{part}", module)

    def store(value: Tensor, hook: Any = None, *, part: tuple[str, int]) -> None:
        seen[part] = batch.at_end(value).flatten(1) / factors.get(part, 1)

    with model.hooks(fwd_hooks=[(name, partial(store, part=part)) for part, name in names.items()]):
        returned = _run(model, batch, logits)
    return seen, returned


def exit_point(block: Any, name: str, part: Any) -> tuple[str, float]:
    """The hook point at which a part's output is seen after all hooks, and its factor there.

    Granite's blocks have points of their own, which come after the factor on their additions.
    """
    point = vars(block)["_modules"].get(name)
    if point is None:
        return part.hook_out.name, 1.0
    return point.name, float(block.residual_contribution_scale)


def _run(
    model: HookedLike, batch: PromptBatch, logits: Int[Tensor, " row"] | None, past: Any = None
) -> Tensor | None:
    """Run the model and return the logits at END of some rows [row d_vocab].

    Args:
        batch: the prompts.
        logits: the rows; None: return None, and compute no logits if the model allows it.
        past: keys and values of the tokens before those of the batch.
    """
    device = torch.device(model.cfg.device)
    columns = torch.empty(0, dtype=torch.long) if logits is None else batch.end.unique()
    options = accepted_options(model, logits_to_keep=columns.to(device), use_cache=False)
    options |= {} if past is None else {"past_key_values": past, "use_cache": True}
    returned = model(batch.tokens.to(device), attention_mask=batch.mask.to(device), **options)
    if logits is None:
        return None
    if returned.shape[:2] == (len(logits), 1):  # the unembedding was given these rows alone
        return returned[:, 0]
    return _ends_of(batch, logits, returned)[:, 0]


def _ends_of(
    batch: PromptBatch, rows: Int[Tensor, " row"], value: Float[Tensor, "prompt kept_pos *rest"]
) -> Float[Tensor, "row 1 *rest"]:
    """The values of some rows at END.

    `value` has all positions, or only those at which some prompt ends.
    """
    rows, end = rows.to(value.device), batch.end.to(value.device)
    columns = (
        end if value.shape[1] == batch.tokens.shape[1] else torch.searchsorted(end.unique(), end)
    )
    return value[rows, columns[rows]][:, None]


def _require_finite(model: HookedLike, batch: PromptBatch, recording: Recording) -> None:
    parts = (recording.stream, recording.z, recording.attn_out, recording.mlp_out, recording.end)
    if all(bool(part.isfinite().all()) for part in parts):
        return
    require_finite(model, batch.tokens, attention_mask=batch.mask)
    raise FloatingPointError(
        "expected finite activations, found NaN or infinity in one run of some prompts and not in "
        "another; switch off dropout (model.bridge.eval()), and check the hooks in place"
    )


def both_runs(
    pairs: PromptPairs,
) -> tuple[Int[Tensor, "run_pair used_pos"], Bool[Tensor, "run_pair used_pos"]]:
    """References, then counterfactuals, as one batch with its mask.

    Columns that are padding in every prompt are dropped.
    """
    tokens, mask = (torch.cat(part) for part in zip(*pairs.sides, strict=True))
    used = int(mask.any(0).float().argmax())
    return tokens[:, used:], mask[:, used:]


LEAST_SHARE = 0.25
"""The share of a recording's operations that must be saved; else whole prompts are recorded."""
LEAST_OPERATIONS = 1.5e8
"""The overhead of a second forward, in operations per layer and 64 pairs."""
BLOCK = 64
"""The number of pairs that are planned together, as in a shard of the default size."""


def per_pair_tokens(model: HookedLike, pairs: PromptPairs) -> int | None:
    """The number of tokens at the end of each prompt that are recorded for this prompt alone.

    The tokens before them are recorded once for all prompts of a shard that have them. Each prompt
    has at least one such token. The number depends on the model and on all pairs.

    Returns:
        The number with the fewest operations. None if that saves too little, or if it is not tested
        that this architecture continues a prompt in the same way as it computes a whole one.
    """
    blocks = [both_runs(block) for block in pairs.batches(BLOCK)]
    longest = max(tokens.shape[1] for tokens, _ in blocks)
    candidates = range(1, min(int(mask.sum(-1).min()) for _, mask in blocks))
    if not candidates or not continues_prompts(model, longest):
        return None
    counts = [(len(tokens), tokens.shape[1], n_distinct(tokens, mask)) for tokens, mask in blocks]
    n_tokens = sum(n_prompts * width for n_prompts, width, _ in counts)

    def saved_tokens(n_own: int) -> int:
        return sum((n - distinct[width - n_own]) * (width - n_own) for n, width, distinct in counts)

    if max(map(saved_tokens, candidates)) < LEAST_SHARE * n_tokens:
        return None
    operations = recording_operations(model)

    def with_prefixes(n_own: int) -> int:
        return sum(
            distinct[width - n_own] * operations(width - n_own)
            + n * operations(n_own, width - n_own)
            for n, width, distinct in counts
        )

    without_prefixes = sum(n * operations(width) for n, width, _ in counts)
    best = min(candidates, key=with_prefixes)
    saved = without_prefixes - with_prefixes(best)
    overhead = LEAST_OPERATIONS * len(blocks) * int(model.cfg.n_layers)
    least = max(LEAST_SHARE * without_prefixes, overhead)
    return best if saved >= least else None


def shard_recording_flops(model: HookedLike, pairs: PromptPairs, own: int | None) -> int:
    """FLOPs of both runs of a shard, without the vocabulary matrix.

    Args:
        pairs: the pairs of the shard.
        own: the number of tokens at the end of each prompt that run for this prompt alone.
    """
    tokens, mask = both_runs(pairs)
    n_prompts, width = tokens.shape
    operations = recording_operations(model)
    if own is None:
        return n_prompts * operations(width)
    shared = width - own
    n_shared = n_distinct(tokens, mask)[shared]
    return n_shared * operations(shared) + n_prompts * operations(own, shared)


def n_distinct(tokens: Int[Tensor, "prompt pos"], mask: Bool[Tensor, "prompt pos"]) -> list[int]:
    """The numbers of different beginnings of 0, 1, 2, ... columns that the prompts have."""
    rows = torch.tensor(sorted(tokens.masked_fill(~mask, -1).tolist()))
    differences = rows.diff(dim=0).ne(0)
    first = differences.int().argmax(1)[differences.any(1)]  # the column at which neighbours part
    parted = torch.bincount(first, minlength=rows.shape[1]).cumsum(0)
    return [1, *(1 + parted).tolist()]


def recording_operations(model: HookedLike) -> Callable[..., int]:
    """FLOPs of one prompt as the sweep records it, as a function of the number of tokens that run,
    and of the number of tokens before them whose keys and values are known.

    The last layer's output projection and MLP are computed for END alone. If hooks are active, a
    recording is a whole forward instead.
    """
    cfg, blocks = model.cfg, list(model.blocks)
    weights = sum(matrix_elements(block.attn) + matrix_elements(block.mlp) for block in blocks)
    scores = 2 * cfg.n_layers * cfg.n_heads * cfg.d_head
    last = cfg.n_heads * cfg.d_head * cfg.d_model + matrix_elements(blocks[-1].mlp)

    def operations(length: int, before: int = 0) -> int:
        products = length * (weights + scores * (before + length))
        return int(2 * (products - (length - 1) * last))

    return operations


def matrix_elements(module: nn.Module | Any) -> int:
    """The number of elements in all matrices of a module."""
    return sum(value.numel() for value in module.parameters() if value.ndim > 1)
