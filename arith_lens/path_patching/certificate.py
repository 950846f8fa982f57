"""Proof, on a few pairs and before any sweep, that the sweep computes this model.

Each check compares two ways to one number, as the largest difference over the largest value.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.path_patching.recording import Recording
from arith_lens.path_patching.sweep import Senders, head_changes, sweep
from arith_lens.path_patching.trunk import Trunk

TOLERANCE = {torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Largest relative difference by the model's dtype; `TOLERANCE_FLOAT32` for wider ones."""
TOLERANCE_FLOAT32 = 1e-4


class CertificateError(RuntimeError):
    """The sweep does not reproduce the model; nothing was computed."""


@dataclass(frozen=True)
class Certificate:
    """What was compared, each as the largest relative difference found, and what is allowed."""

    found: dict[str, float]
    allowed: float
    n_pairs: int

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


def certificate_of(
    trunk: Trunk,
    recording: Recording,
    alone: Sequence[Recording],
    answer: Int[Tensor, "pair"],
    senders: Senders,
) -> Certificate:
    """Check the sweep of `senders` against the recorded runs, on all the pairs given.

    `alone` holds each pair recorded once more, in a run of its own.
    """
    if recording.logits is None:
        raise ValueError("expected a recording with the logits at END: record_end(logits=True)")
    index = answer.to(recording.logits.device).expand(2, -1)[..., None]
    logits = recording.logits.float().gather(-1, index)[..., 0]
    largest = recording.logits.float().abs().max()
    null = trunk.read(sweep(trunk, _run_again(recording, alone), senders), answer).answer
    everything = trunk.read(_everything_patched(trunk, recording)[None], answer).answer[0]

    def relative(difference: Tensor, scale: Tensor = largest) -> float:
        worst = difference.abs().max() / scale.clamp(min=torch.finfo(torch.float32).tiny)
        return float(worst)

    return Certificate(
        found={
            "sum of the heads' writes and the bias = attn_out": _attention_error(trunk, recording),
            "recomputed MLP = recorded mlp_out": _mlp_error(trunk, recording),
            "unpatched row = the model's logit": relative(null[0] - logits[0]),
            "patched with its own z of another run, each sender moves nothing": relative(
                null - null[0]
            ),
            "patched with all of X_c = the model's logit of X_c": relative(everything - logits[1]),
        },
        allowed=TOLERANCE.get(recording.z.dtype, TOLERANCE_FLOAT32),
        n_pairs=len(answer),
    )


def certified_pairs(mask: Bool[Tensor, "pair pos"]) -> list[int]:
    """The pairs a certificate looks at: a longest and, if lengths differ, a shortest."""
    lengths = mask.sum(-1)
    return sorted({int(lengths.argmax()), int(lengths.argmin())})


def _run_again(recording: Recording, alone: Sequence[Recording]) -> Recording:
    """The recording in which X_r, run once more, stands for X_c, so that every patch is null.

    Each prompt runs by itself: z less the same z would be nothing in any model. This sees what no
    check within one run can: dropout or other noise, padding that is not masked, prompts that act
    on their neighbours in a batch.
    """
    z = torch.cat([one.z[0] for one in alone], dim=1)
    mlp_out = torch.cat([one.mlp_out[0] for one in alone], dim=1)
    return replace(
        recording,
        z=torch.stack([recording.z[0], z]),
        mlp_out=torch.stack([recording.mlp_out[0], mlp_out]),
    )


def _everything_patched(trunk: Trunk, recording: Recording) -> Float[Tensor, "pair d_model"]:
    """END with X_c's embedding, every head's write changed to X_c's, and X_c's MLP outputs."""
    row = recording.stream[1].float() + recording.mlp_out[1].float().sum(0)
    every_head = range(recording.z.shape[-2])
    for layer in trunk.layers():
        row = row + recording.attn_out[0, layer].float()
        row = row + head_changes(trunk, recording, layer, every_head).sum(0)
    return row


def _attention_error(trunk: Trunk, recording: Recording) -> float:
    worst = 0.0
    every_head = range(recording.z.shape[-2])
    for layer in trunk.layers():
        for z, expected in zip(recording.z[:, layer], recording.attn_out[:, layer], strict=True):
            written = trunk.head_writes(layer, z.float(), every_head).sum(0)
            bias = trunk.b_o(layer)
            written = written if bias is None else written + bias.float().to(written.device)
            worst = _worse(worst, written, expected)
    return worst


def _mlp_error(trunk: Trunk, recording: Recording) -> float:
    worst = 0.0
    row = recording.stream[0].float()
    for layer in trunk.layers():
        row = row + recording.attn_out[0, layer].float()
        worst = _worse(worst, trunk.mlps[layer](row), recording.mlp_out[0, layer])
        row = row + recording.mlp_out[0, layer].float()
    return worst


def _worse(worst: float, found: Tensor, expected: Tensor) -> float:
    expected = expected.float()
    error = float((found.float() - expected).abs().max() / expected.abs().max().clamp(min=1e-30))
    return error if not error <= worst else worst
