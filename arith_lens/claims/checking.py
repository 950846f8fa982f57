"""Every claim against one model's runs."""

from collections.abc import Sequence
from pathlib import Path

from arith_lens.claims import heads
from arith_lens.claims.claim import Claim, Verdict
from arith_lens.claims.evidence import Evidence, NotMeasured
from arith_lens.runs import RunError

CLAIMS: tuple[Claim, ...] = (*heads.CLAIMS,)
"""All of them, group by group."""


def check_claims(model: str, *, roots: Sequence[Path | str] = ("results",)) -> list[Verdict]:
    """The paper's claims, each with what this model's runs say of it; loads no model.

    Of each experiment the newest finished run counts that asks the paper's question about all four
    operations; the first root that has one wins. A run that is missing or damaged makes its claims
    "not measured", with the reason and the command that would measure them.

    Args:
        model: as it was given to the experiments: a shipped model's name, a hub id, or a directory.
        roots: folders that hold runs.

    Raises:
        ValueError: no root.
    """
    if not roots:
        raise ValueError("expected folders that hold runs, found none; give roots=('results',)")
    evidence = Evidence(model, [Path(root) for root in roots])
    return [verdict_on(claim, evidence) for claim in CLAIMS]


def verdict_on(claim: Claim, evidence: Evidence) -> Verdict:
    """One claim against the runs there are."""
    evidence.take_used()
    try:
        found = claim.measure(evidence)
    except NotMeasured as missing:
        command = missing.command
        return Verdict(
            claim, "not measured", why=str(missing), command=command, runs=evidence.take_used()
        )
    except (RunError, ValueError) as damage:
        command = f"{evidence.command(claim.experiments[0])} --again"
        return Verdict(
            claim, "not measured", why=str(damage), command=command, runs=evidence.take_used()
        )
    return Verdict(claim, found.holds, str(found), found.numbers, runs=evidence.take_used())
