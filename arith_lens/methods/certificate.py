"""A certificate: numbers that were computed in two ways, and how much they may differ."""

from dataclasses import dataclass

import torch

from arith_lens.caller_warnings import warn_caller

TINY = torch.finfo(torch.float32).tiny
"""The smallest size that a difference is divided by."""


class CertificateError(RuntimeError):
    """The computation did not pass its own checks; nothing was saved."""


@dataclass(frozen=True)
class Certificate:
    """The outcome of all checks."""

    found: dict[str, float]
    """For each check, the largest relative difference."""
    allowed: float
    """The largest difference that passes."""
    n_pairs: int
    """The number of pairs that were checked."""
    vacuous: bool = False
    """No sender changed anything in these pairs, so a wrong computation would have passed too."""

    @property
    def failed(self) -> list[str]:
        """The names of the checks that did not pass. NaN does not pass."""
        return [name for name, value in self.found.items() if not value <= self.allowed]

    def require(self, claim: str, cure: str) -> None:
        """Check the outcome. Warns if the certificate is vacuous.

        Args:
            claim: what the checks show, for the error: `the sweep to reproduce the model`.
            cure: what else can be done, for the error.

        Raises:
            CertificateError: a check did not pass. The message has all numbers.
        """
        if self.vacuous:
            warn_caller(
                "expected senders that change something in the pairs of the first shard, found "
                "none, so that the certificate shows nothing; give pairs whose prompts differ "
                "before END",
            )
        if self.failed:
            numbers = "\n".join(
                f"  {'FAILED' if name in self.failed else 'passed'}  {value:.1e}  {name}"
                for name, value in self.found.items()
            )
            raise CertificateError(
                f"expected {claim} within {self.allowed:.0e} of the largest value, found\n"
                f"{numbers}\n{cure}"
            )
