"""Every claim against one model's runs."""

from collections.abc import Sequence
from pathlib import Path

from experiments.selection import Settings
from figures.claims import attention, heads, knockout, models, probes, sharing, tuning
from figures.claims.claim import Claim, Verdict
from figures.claims.evidence import Evidence
from figures.claims.verdicts import verdict_on

CLAIMS: tuple[Claim, ...] = (
    *heads.CLAIMS,
    *sharing.CLAIMS,
    *knockout.CLAIMS,
    *attention.CLAIMS,
    *probes.CLAIMS,
    *tuning.CLAIMS,
    *models.CLAIMS,
)
"""All claims, group by group."""


def check_claims(
    model: str, *, roots: Sequence[Path | str] = ("results",), settings: Settings | None = None
) -> list[Verdict]:
    """The paper's claims, each with what this model's runs say of it; loads no model.

    For each experiment, the newest finished run with these settings is used, from the first folder
    that has one. If a run is missing or damaged, its claims are "not measured", with the reason and
    the command that would measure them.

    Args:
        model: its name in the experiments: a shipped model's name, a hub id, or a directory.
        roots: folders with runs.
        settings: the settings that the runs must have; the paper's if not given.

    Raises:
        ValueError: no root.
    """
    if not roots:
        raise ValueError("expected folders that hold runs, found none; give roots=('results',)")
    evidence = Evidence(model, [Path(root) for root in roots], settings)
    return [verdict_on(claim, evidence) for claim in CLAIMS]
