"""Every claim against one model's runs."""

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from arith_lens.runs import RunError
from experiments.selection import SharedSettings
from figures.claims import attention, heads, knockout, probes, sharing, tuning
from figures.claims.claim import Claim, Measurement, Number, Verdict, Within, judge
from figures.claims.evidence import HEADS_EXPERIMENT, Evidence, NotMeasured

CLAIMS_FILE = Path(__file__).with_name("claims.toml")
"""The claims in words, by group."""
MODULES = (heads, sharing, knockout, attention, probes, tuning)
"""They measure the claims of the groups that have their names."""
REPEATED = (
    "few_key_heads",
    "middle_layers",
    "operands_rise_and_fall",
    "answer_rises",
    "turning_layers_agree",
)
"""The claims that Appendix C makes of all three models."""


def repeats_in_another_model(evidence: Evidence, rule: Within) -> Measurement:
    """How many of `REPEATED` hold in this model and in another one (Appendix C)."""
    for experiment in (HEADS_EXPERIMENT, probes.EXPERIMENT):
        evidence.run(experiment)
    other = evidence.another()
    pairs: dict[str, tuple[str, str]] = {}
    used: list[Path] = []
    numbers: list[Number] = []
    for claim in CLAIMS:
        if claim.key not in REPEATED:
            continue
        verdicts = [verdict_on(claim, of_model) for of_model in (evidence, other)]
        for verdict in verdicts:
            if verdict.judgement == "not measured":
                raise NotMeasured(f"{claim.key}: {verdict.why}", verdict.command)
            used += verdict.runs
            numbers += verdict.numbers
        pairs[claim.key] = verdicts[0].judgement, verdicts[1].judgement
    evidence.note(used)
    held = sum(pair == ("holds here", "holds here") for pair in pairs.values())
    agreed = Number(f"of {len(pairs)} claims, hold in both", held, unit="count", rule=rule)
    listed = "; ".join(f"{key}: {', '.join(pair)}" for key, pair in pairs.items())
    note = f"Of {len(pairs)}, in {evidence.model} and {other.model}: {listed}."
    return Measurement((agreed,), note, set_judgement=judge(numbers))


def _claims() -> Iterator[Claim]:
    """The claims of the table, each with the function that measures it."""
    modules = {module.__name__.rpartition(".")[2]: module for module in MODULES}
    for group, claims in tomllib.loads(CLAIMS_FILE.read_text(encoding="utf-8")).items():
        for key, words in claims.items():
            own = repeats_in_another_model if group == "models" else getattr(modules[group], key)
            bounds, experiments = Within(**words.pop("bounds")), tuple(words.pop("experiments"))
            yield Claim(key, group, **words, bounds=bounds, experiments=experiments, measure=own)


CLAIMS = tuple(_claims())
"""All claims, group by group."""


def verdict_on(claim: Claim, evidence: Evidence) -> Verdict:
    """A claim's verdict; "not measured" if a run is missing, damaged, or lacks what is measured.

    Any other error is a fault of the program, and is raised.
    """
    evidence.take_used()
    try:
        measurement = claim.measure(evidence, claim.bounds)
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


def check_claims(
    model: str,
    *,
    roots: Sequence[Path | str] = ("results",),
    settings: SharedSettings | None = None,
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
