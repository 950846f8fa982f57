"""The certificate: proof that the sweep reproduces this model.

It uses the rows of the sweep itself. Each check computes one number in two ways, and reports the
largest difference, divided by the largest value.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.methods import TINY, Certificate, Senders
from arith_lens.metrics import Targets, logit_tolerance
from arith_lens.model import HookedLike, weights_loaded
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching.recording import PromptBatch, Recording, joined_runs, record_batch
from arith_lens.path_patching.sweep import Trunk

ROUNDING = 1e-6
"""A share of the largest value; a sender that changes less is said to change nothing."""
OF_EACH_LENGTH = 2
"""The number of pairs of each length for the checks that need a computation of their own."""
SWEEP_CLAIM = "the sweep to reproduce the model"
"""What the certificate of a sweep shows."""
OFF_HOOKS = "Take active hooks off the model; "
"""The first thing to do where a certificate fails."""
HOOKS_INSTEAD = (
    f"{OFF_HOOKS}or use engine='hooks', which is general and slower; certify=False computes all "
    "the same"
)


def certificate_of(
    trunk: Trunk,
    recording: Recording,
    repeated: Mapping[int, Recording],
    ends: Float[Tensor, "pair d_model"],
    values: Float[Tensor, "row pair"],
    pairs: PromptPairs,
    senders: Senders,
) -> Certificate:
    """Compare a swept shard with the model.

    Args:
        trunk: the trunk that was swept.
        recording: the shard's recording, with the logits that the model returned for all pairs or
            for `checked_pairs` alone.
        repeated: for some pairs, another run of their prompts, in other rows of a batch.
        ends: the sweep's unpatched row, END's residual stream before the final norm.
        values: the sweep's values; row 0 is the unpatched logit of the answer.
        pairs: the pairs of the shard.
        senders: the components that were patched.

    Raises:
        ValueError: the recording has no logits.
    """
    if recording.logits is None:
        raise ValueError(
            "expected a recording with the logits at END, found none; give record_pairs(logits=...)"
        )
    chosen = checked_pairs(pairs.lengths)
    returned = recording.logits
    with_logits = chosen if returned.shape[1] == len(chosen) else list(range(len(pairs)))
    scale = returned.abs().max().float()
    index = pairs.answer[with_logits]
    if recording.columns is not None:
        index = torch.searchsorted(recording.columns, index)
    index = index.to(returned.device).expand(2, -1)[..., None]
    own = returned.gather(-1, index)[..., 0].float()
    attention_error, everything = _all_heads(trunk, recording.pairs(chosen))
    logit = trunk.read(everything[None], Targets(pairs.answer[chosen])).answer[0]
    return Certificate(
        found={
            "sum of the heads' writes and the bias = attn_out": attention_error,
            "unpatched row = the model's residual stream": _error(ends, recording.end[0]),
            "unpatched row = the model's logit": _error(values[0, with_logits], own[0], scale),
            "z = z of another run of the prompt": _repetition_error(recording, repeated, "z"),
            "mlp_out = mlp_out of another run of the prompt": _repetition_error(
                recording, repeated, "mlp_out"
            ),
            "final norm = a linear map, divided by its scale": _norm_error(
                trunk, ends[chosen], everything
            ),
            "patched with all of X_c = the model's logit of X_c": _error(
                logit, own[1, [with_logits.index(pair) for pair in chosen]], scale
            ),
        },
        allowed=logit_tolerance(recording.z.dtype),
        n_pairs=len(chosen),
        vacuous=_is_vacuous(recording, pairs, senders),
    )


def _norm_error(
    trunk: Trunk, rows: Float[Tensor, "pair d_model"], others: Float[Tensor, "pair d_model"]
) -> float:
    """With one scale for all, the norm of a sum must be the sum of the norms, the bias once."""
    with weights_loaded(*trunk.last):
        scale = trunk.final_scale

        def held(some: Float[Tensor, "pair d_model"]) -> Float[Tensor, "pair d_model"]:
            return scale.exchanged(trunk.final_norm(some), some, rows)

        rows, others = rows.float(), others.float().to(rows.device)
        return _error(held(rows + others), held(rows) + held(others) - scale.bias)


def checked_pairs(lengths: Int[Tensor, " pair"]) -> list[int]:
    """The first two pairs of each length."""
    of_length: dict[int, list[int]] = {}
    for pair, length in enumerate(lengths.tolist()):
        of_length.setdefault(length, []).append(pair)
    return sorted(pair for pairs in of_length.values() for pair in pairs[:OF_EACH_LENGTH])


def _is_vacuous(recording: Recording, pairs: PromptPairs, senders: Senders) -> bool:
    """Whether every sender has the same output in X_c as in X_r, within rounding."""
    if torch.equal(pairs.reference, pairs.counterfactual):
        return True
    outputs = chain(
        (recording.z[:, layer][..., list(heads), :] for layer, heads in enumerate(senders.heads)),
        (recording.mlp_out[:, layer] for layer in senders.mlps),
    )
    return all(
        bool((one - other).abs().max() <= ROUNDING * one.abs().max())
        for one, other in outputs
        if one.numel()
    )


def repeat(model: HookedLike, pairs: PromptPairs) -> dict[int, Recording]:
    """Run every prompt again with hooks active, in reverse order and in batches of other sizes.

    A hook that acts on some rows of a batch only then gives other numbers.

    Returns:
        For each pair, the recording of both its runs.
    """
    batch = PromptBatch.of(pairs)
    rows = torch.arange(len(batch)).flip(0)
    recordings: dict[int, list[Recording]] = {}
    for some in (rows[:1], rows[1:]):
        runs = record_batch(model, batch.rows(some), hooked=True)
        for index, row in enumerate(some.tolist()):
            recordings.setdefault(row % len(pairs), []).append(runs.pairs([index]))
    return {pair: joined_runs(runs[::-1]) for pair, runs in recordings.items()}


def _repetition_error(
    recording: Recording, repeated: Mapping[int, Recording], part: Literal["z", "mlp_out"]
) -> float:
    """The relative difference of a component's output at END between two runs of one prompt.

    It finds what no check within one run can find: dropout or other noise, padding that is not
    masked, and hooks that act on some rows of a batch only.
    """
    errors = []
    for pair, again in repeated.items():
        n_runs = len(again.stream)
        once = getattr(recording.pairs([pair]), part)[:n_runs].float()
        differences = (getattr(again, part).float() - once).abs().flatten(2).amax(-1)
        errors.append(differences / once.abs().flatten(2).amax(-1).clamp(min=TINY))
    return float(torch.cat([error.flatten() for error in errors]).max())


def _all_heads(trunk: Trunk, recording: Recording) -> tuple[float, Float[Tensor, "pair d_model"]]:
    """Compare the heads' writes with attn_out, and patch everything at once.

    Returns:
        The relative difference of the heads' writes and the bias from attn_out; and END's residual
        stream with X_c's embedding, every head's write of X_c, and the MLP outputs of X_c.
    """
    recorded = recording.attn_out.float()
    written = torch.empty_like(recorded)
    every_head = range(recording.z.shape[-2])
    row = recording.stream[1].float()
    for layer in trunk.each_layer():
        z = recording.z[:, layer].flatten(0, 1)
        sums = trunk.head_writes(layer, z, every_head).sum(0)
        bias = trunk.b_o(layer)
        sums = sums if bias is None else sums + bias.float().to(sums.device)
        written[:, layer] = sums.view(2, *recorded.shape[2:])
        attention = recorded[0, layer] + written[1, layer] - written[0, layer]
        row = row + trunk.layers[layer].written(attention, recording.mlp_out[1, layer])
    differences = (written - recorded).abs().amax((-2, -1))
    errors = differences / recorded.abs().amax((-2, -1)).clamp(min=TINY)
    return float(errors.max()), row  # the maximum is NaN if any value is


def _error(value: Tensor, expected: Tensor, scale: Tensor | None = None) -> float:
    """The largest difference, over the largest expected value if no scale is given."""
    expected = expected.float()
    scale = expected.abs().max() if scale is None else scale
    difference = (value.float().to(expected.device) - expected).abs().max()
    return float(difference / scale.clamp(min=TINY))
