"""The claim that the mechanism is the same in other models (Appendix C)."""

from collections.abc import Mapping
from pathlib import Path

from figures.claims import heads, probes
from figures.claims.claim import Claim, Judgement, Measurement, Number, Within, judge
from figures.claims.evidence import Evidence, NotMeasured
from figures.claims.verdicts import verdict_on

REPEATED = (
    "few_key_heads",
    "middle_layers",
    "operands_rise_and_fall",
    "answer_rises",
    "turning_layers_agree",
)
"""The claims that Appendix C makes of all three models."""


def _repeats(evidence: Evidence) -> Measurement:
    for experiment in (heads.EXPERIMENT, probes.EXPERIMENT):
        evidence.run(experiment)
    other = evidence.another()
    claims = {claim.key: claim for claim in (*heads.CLAIMS, *probes.CLAIMS)}
    pairs: dict[str, tuple[Judgement, Judgement]] = {}
    used: list[Path] = []
    numbers: list[Number] = []
    for key in REPEATED:
        verdicts = [verdict_on(claims[key], of_model) for of_model in (evidence, other)]
        for verdict in verdicts:
            if verdict.judgement == "not measured":
                raise NotMeasured(f"{key}: {verdict.why}", verdict.command)
            used += verdict.runs
            numbers += verdict.numbers
        pairs[key] = verdicts[0].judgement, verdicts[1].judgement
    evidence.note(used)
    agreed = Number("claims that hold in both", _count(pairs, "holds here"), unit="count",
                    rule=Within(above=len(pairs) - 1))  # fmt: skip
    listed = "; ".join(f"{key}: {', '.join(pair)}" for key, pair in pairs.items())
    note = f"Of {len(pairs)}, in {evidence.model} and {other.model}: {listed}."
    return Measurement((agreed,), note, set_judgement=judge(numbers))


def _count(pairs: Mapping[str, tuple[Judgement, Judgement]], judgement: Judgement) -> int:
    return sum(pair == (judgement, judgement) for pair in pairs.values())


CLAIMS = (
    Claim(
        key="repeats_in_another_model",
        group="models",
        statement="The mechanism is the same in another model.",
        section="C, Figures 12 to 14",
        paper="similar in LLaMA2-7B, LLaMA2-13B and Mistral-7B",
        rule="What Appendix C says of all its models holds in this one and in the other model "
        f"whose heads were looked at last: {', '.join(REPEATED)}. One test is made over "
        "the numbers of all these claims in both models.",
        experiments=(heads.EXPERIMENT, probes.EXPERIMENT),
        measure=_repeats,
    ),
)
