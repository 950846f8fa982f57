"""Proof that the sweep computes this model, from the rows of the sweep itself.

Each check compares two ways to one number, as the largest difference over the largest value.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching.recording import Recording, both_runs, record_batch
from arith_lens.path_patching.sweep import Senders, head_changes
from arith_lens.path_patching.trunk import Trunk

TOLERANCE = {torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Largest relative difference by the model's dtype; `TOLERANCE_FLOAT32` for wider ones."""
TOLERANCE_FLOAT32 = 1e-4
ROUNDING = 1e-6
"""Of the largest value; a sender that changes less than that changes nothing."""
OF_EACH_LENGTH = 2
"""Pairs of each length for the checks that compute something of their own."""


class CertificateError(RuntimeError):
    """The sweep does not reproduce the model; nothing was saved."""


@dataclass(frozen=True)
class Certificate:
    """What was compared, each as the largest relative difference, and what is allowed."""

    found: dict[str, float]
    allowed: float
    n_pairs: int
    vacuous: bool = False
    """No sender changed anything in these pairs, so that a wrong sweep would have passed too."""

    @property
    def failed(self) -> list[str]:
        """The checks above what is allowed; one that is not a number has failed."""
        return [name for name, value in self.found.items() if not value <= self.allowed]

    def as_dict(self) -> dict[str, Any]:
        """For a result's record, in plain types."""
        return asdict(self)

    def require(self) -> None:
        """Raise CertificateError, with all numbers, unless every check has passed."""
        if self.failed:
            numbers = "\n".join(
                f"  {'FAILED' if name in self.failed else 'passed'}  {value:.1e}  {name}"
                for name, value in self.found.items()
            )
            raise CertificateError(
                f"expected the sweep to reproduce the model within {self.allowed:.0e} of the "
                f"largest value, found\n{numbers}\n"
                "Take active hooks off the model, or use engine='hooks', which is general and "
                "slower; certify=False computes all the same"
            )


@dataclass(frozen=True)
class Repetition:
    """Some prompts of a shard, run once more in another batch."""

    pairs: list[int]
    runs: Recording
    """References alone (run 0), or counterfactuals too (run 1)."""


def certificate_of(
    trunk: Trunk,
    recording: Recording,
    repetition: Repetition,
    values: Float[Tensor, "row pair"],
    pairs: PromptPairs,
    senders: Senders,
) -> Certificate:
    """Compare a swept shard with the model.

    Args:
        trunk: what was swept
        recording: of the shard, with the model's own logits
        repetition: some of its prompts once more, see `repeat`
        values: the sweep's; row 0 is the unpatched logit of the answer
        pairs: of the shard
        senders: the components that were patched

    Raises:
        ValueError: the recording lacks the logits
    """
    if recording.logits is None:
        raise ValueError("expected a recording with the logits at END: record_end(logits=True)")
    returned = recording.logits.float()
    scale = returned.abs().max()
    answer = pairs.answer
    index = answer.to(returned.device).expand(2, -1)[..., None]
    own = returned.gather(-1, index)[..., 0]
    chosen = checked_pairs(pairs.lengths)
    some = recording.pairs(chosen)
    everything = trunk.read(_everything_patched(trunk, some)[None], answer[chosen]).answer[0]
    null = _null_effects(trunk, recording, repetition, answer)
    return Certificate(
        found={
            "sum of the heads' writes and the bias = attn_out": _attention_error(trunk, some),
            "recomputed MLP = recorded mlp_out": _mlp_error(trunk, some),
            "unpatched row = the model's logit": _relative(
                values[0].to(own.device) - own[0], scale
            ),
            "heads with their own output of another run move nothing": _relative(null[0], scale),
            "MLPs with their own output of another run move nothing": _relative(null[1], scale),
            "patched with all of X_c = the model's logit of X_c": _relative(
                everything - own[1, chosen], scale
            ),
        },
        allowed=TOLERANCE.get(recording.z.dtype, TOLERANCE_FLOAT32),
        n_pairs=len(chosen),
        vacuous=_is_vacuous(recording, pairs, senders),
    )


def checked_pairs(lengths: Int[Tensor, "pair"]) -> list[int]:
    """The first two pairs of each length."""
    of_length: dict[int, list[int]] = {}
    for pair, length in enumerate(lengths.tolist()):
        of_length.setdefault(length, []).append(pair)
    return sorted(pair for pairs in of_length.values() for pair in pairs[:OF_EACH_LENGTH])


def _is_vacuous(recording: Recording, pairs: PromptPairs, senders: Senders) -> bool:
    """Whether no sender puts out anything else in X_c than in X_r, beyond rounding."""
    if torch.equal(pairs.reference, pairs.counterfactual):
        return True
    outputs = [
        *(recording.z[:, layer][..., list(heads), :] for layer, heads in enumerate(senders.heads)),
        *(recording.mlp_out[:, layer] for layer in senders.mlps),
    ]
    return all(
        bool((one - other).abs().max() <= ROUNDING * one.abs().max())
        for one, other in outputs
        if one.numel()
    )


def repeat(model: HookedLike, pairs: PromptPairs, *, hooked: bool) -> Repetition:
    """Run prompts of the shard once more, in another batch than before.

    A shortest reference prompt runs by itself, without padding. Where hooks are in place, which may
    act on some rows of a batch alone, every reference and counterfactual runs again, in reverse
    order and in batches of other sizes.
    """
    if not hooked:
        shortest = int(pairs.lengths.argmin())
        used = pairs.attention_mask[shortest]
        tokens = pairs.reference[shortest : shortest + 1, used]
        runs = record_batch(model, tokens, torch.ones_like(tokens, dtype=torch.bool), n_runs=1)
        return Repetition([shortest], runs)
    tokens, mask = (value.flip(0) for value in both_runs(pairs))
    parts = [
        record_batch(model, tokens[part], mask[part], n_runs=1, hooked=True)
        for part in (slice(0, 1), slice(1, None))
    ]
    runs = {
        field.name: _in_two_runs([getattr(part, field.name) for part in parts], len(pairs))
        for field in fields(Recording)
        if field.name != "logits"
    }
    return Repetition([*range(len(pairs))], Recording(**runs, logits=None))


def _in_two_runs(parts: Sequence[Tensor], n_pairs: int) -> Tensor:
    """Reversed parts of one run [1 *layer prompt ...], as references and counterfactuals."""
    axis = 1 + (parts[0].shape[1] != len(parts[0]))
    return torch.cat(torch.cat(list(parts), axis).flip(axis).split(n_pairs, axis))


def _null_effects(
    trunk: Trunk, recording: Recording, repetition: Repetition, answer: Int[Tensor, "pair"]
) -> Float[Tensor, "kind=2 run_layer repeated"]:
    """What all heads of a layer, and what its MLP, change with their own output of another run.

    The same output, whichever run it comes from, is nothing to patch. This sees what no check
    within one run can: dropout or other noise, padding that is not masked, prompts that act on
    their neighbours in a batch.
    """
    once, again = recording.pairs(repetition.pairs), repetition.runs
    effects = []
    for run in range(len(again.stream)):
        rows = _null_rows(trunk, once, again, run)
        logits = trunk.read(rows, answer[repetition.pairs]).answer
        effects.append((logits[1:] - logits[0]).unflatten(0, (-1, 2)))
    return torch.cat(effects).movedim(1, 0)


def _null_rows(
    trunk: Trunk, once: Recording, again: Recording, run: int
) -> Float[Tensor, "row pair d_model"]:
    """Unpatched, then for each layer a row of its heads and a row of its MLP."""
    every_head = range(once.z.shape[-2])
    rows = once.stream[run : run + 1].float()
    for layer in trunk.layers():
        rows = rows + once.attn_out[run, layer].float()
        change = again.z[run, layer].float() - once.z[run, layer].float()
        heads = rows[0] + trunk.head_writes(layer, change, every_head).sum(0)
        mlp = rows[0] + again.mlp_out[run, layer].float()
        rows = torch.cat([rows, heads[None]])
        trunk.add_mlp(layer, rows.flatten(0, 1))
        rows = torch.cat([rows, mlp[None]])
    return rows


def _everything_patched(trunk: Trunk, recording: Recording) -> Float[Tensor, "pair d_model"]:
    """END with X_c's embedding, every head's write changed to X_c's, and X_c's MLP outputs."""
    row = recording.stream[1].float() + recording.mlp_out[1].float().sum(0)
    every_head = range(recording.z.shape[-2])
    for layer in trunk.layers():
        row = row + recording.attn_out[0, layer].float()
        row = row + head_changes(trunk, recording, layer, every_head).sum(0)
    return row


def _attention_error(trunk: Trunk, recording: Recording) -> float:
    errors = []
    every_head = range(recording.z.shape[-2])
    for layer in trunk.layers():
        for z, expected in zip(recording.z[:, layer], recording.attn_out[:, layer], strict=True):
            written = trunk.head_writes(layer, z.float(), every_head).sum(0)
            bias = trunk.b_o(layer)
            written = written if bias is None else written + bias.float().to(written.device)
            errors.append(_error(written, expected))
    return _worst(errors)


def _mlp_error(trunk: Trunk, recording: Recording) -> float:
    errors = []
    row = recording.stream[0].float()
    for layer in trunk.layers():
        row = row + recording.attn_out[0, layer].float()
        errors.append(_error(trunk.mlps[layer](row), recording.mlp_out[0, layer]))
        row = row + recording.mlp_out[0, layer].float()
    return _worst(errors)


def _error(value: Tensor, expected: Tensor) -> float:
    expected = expected.float()
    return _relative(value.float() - expected, expected.abs().max())


def _relative(difference: Tensor, scale: Tensor) -> float:
    tiny = torch.finfo(torch.float32).tiny
    return float(difference.abs().max() / scale.clamp(min=tiny).to(difference.device))


def _worst(errors: Sequence[float]) -> float:
    """The largest; what is not a number is worse."""
    return float(torch.tensor(errors).max())
