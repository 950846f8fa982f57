"""The verdict on one claim, from a model's runs."""

from arith_lens.runs import RunError
from figures.claims.claim import Claim, Verdict
from figures.claims.evidence import Evidence, NotMeasured


def verdict_on(claim: Claim, evidence: Evidence) -> Verdict:
    """A claim's verdict; "not measured" if a run is missing, damaged, or lacks what is measured.

    Any other error is a fault of the program, and is raised.
    """
    evidence.take_used()
    try:
        measurement = claim.measure(evidence)
    except NotMeasured as missing:
        why, command = str(missing), missing.command
    except RunError as damage:
        why, command = str(damage), f"{evidence.command(claim.experiments[0])} --again"
    else:
        return Verdict(
            claim,
            measurement.judgement,
            measurement.numbers,
            measurement.note,
            runs=evidence.take_used(),
        )
    return Verdict(claim, "not measured", why=why, command=command, runs=evidence.take_used())
