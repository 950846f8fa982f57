"""The paper's claims, one row each: the paper's value, this model's, and the verdict on it.

Reads the finished run of every experiment that the claims need, without loading a model;
prints the list and writes it as HTML and its numbers as CSV. If a claim's run is missing, the list
has the command that would measure the claim. `figures.claims.page` writes
the tables of docs/claims.md.
"""

import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pandas import DataFrame

from arith_lens.runs import Run, RunError, load_run
from experiments.finding import NotComputed, RunSettings
from figures.claims import accuracy, heads, information_flow
from figures.claims.claim import (
    Claim,
    Measurement,
    Verdict,
    verdict_table,
)
from figures.claims.evidence import HEADS_EXPERIMENT, PROBES_EXPERIMENT, Evidence, NotMeasured
from figures.claims.multiplicity import TOGETHER, multiplicity_rows, multiplicity_sentence
from figures.common import FIRST_MODEL, counts_prompts, holds_tables, slug
from figures.exhibit import Table, show, text_table_of
from figures.options import ClaimsOptions
from figures.tables.number import Number
from figures.tables.table import (
    QuestionTable,
    from_csv,
    has,
    joined,
    number_of,
    read_back,
    records,
    select,
)
from figures.verdicts import Finding, Within, judge

CLAIMS_FILE = Path(__file__).with_name("claims.toml")
"""The claims in words, by group."""
MEASURES = {**vars(heads), **vars(information_flow), **vars(accuracy)}
"""The functions that measure the claims, by the claims' names."""
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
    for experiment in (HEADS_EXPERIMENT, PROBES_EXPERIMENT):
        evidence.run(experiment)
    other = evidence.another()
    pairs: dict[str, tuple[str, str]] = {}
    used: list[Path] = []
    findings: list[Finding] = []
    for claim in CLAIMS:
        if claim.key not in REPEATED:
            continue
        verdicts = [verdict_on(claim, of_model) for of_model in (evidence, other)]
        for verdict in verdicts:
            if verdict.judgement == "not measured":
                raise NotMeasured(f"{claim.key}: {verdict.why}", verdict.command)
            used += verdict.runs
            findings += verdict.findings
        pairs[claim.key] = verdicts[0].judgement, verdicts[1].judgement
    evidence.note(used)
    held = sum(pair == ("holds here", "holds here") for pair in pairs.values())
    agreed = Finding(f"of {len(pairs)} claims, hold in both", Number(held, unit="count"), rule)
    listed = "; ".join(f"{key}: {', '.join(pair)}" for key, pair in pairs.items())
    note = f"Of {len(pairs)}, in {evidence.model} and {other.model}: {listed}."
    return Measurement((agreed,), note, set_judgement=judge(findings))


def _claims() -> Iterator[Claim]:
    """The claims of the table, each with the function that measures it."""
    for group, claims in tomllib.loads(CLAIMS_FILE.read_text(encoding="utf-8")).items():
        lens = claims.pop("lens")
        for key, words in claims.items():
            own = repeats_in_another_model if group == "models" else MEASURES[key]
            bounds, experiments = Within(**words.pop("bounds")), tuple(words.pop("experiments"))
            yield Claim(
                key, group, lens, **words, bounds=bounds, experiments=experiments, measure=own
            )


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
        of = measurement.judgement, measurement.findings, measurement.note
        return Verdict(claim, *of, runs=evidence.take_used())
    return Verdict(claim, "not measured", why=why, command=command, runs=evidence.take_used())


def check_claims(
    model: str,
    *,
    roots: Sequence[Path | str] = ("results",),
    settings: RunSettings | None = None,
    computed: bool = True,
) -> list[Verdict]:
    """The paper's claims, each with what this model's runs say of it; loads no model.

    For each experiment, the finished run with these settings is used, from the first folder
    that has one. If a run is missing or damaged, its claims are "not measured", with the reason and
    the command that would measure them.

    Args:
        model: its name in the experiments: a shipped model's name, a hub id, or a directory.
        roots: folders with runs.
        settings: the settings that the runs must have; the paper's if not given.
        computed: whether × and ÷ are judged on problems with larger numbers, whose answer cannot be
            copied; False: on one-digit problems, for a model that cannot do the others.

    Raises:
        ValueError: no root.
    """
    if not roots:
        raise ValueError("expected folders that hold runs, found none; give roots=('results',)")
    evidence = Evidence(model, [Path(root) for root in roots], settings, computed=computed)
    return [verdict_on(claim, evidence) for claim in CLAIMS]


def with_stored(verdicts: Sequence[Verdict], model: str, root: Path) -> list[Verdict]:
    """The verdicts, in which a claim that is not measured has that of a folder's table.

    Args:
        root: a folder of runs, or of tables such as `figures/gallery`.
    """
    own = root if model == FIRST_MODEL else root / slug(model)
    file = own / "claims.csv"
    if not holds_tables(own, HEADS_EXPERIMENT) or not file.exists():
        return [*verdicts]
    rows = select(from_csv(file.read_text(encoding="utf-8")), model=model)
    together = []
    for one in verdicts:
        stored = records(select(rows, claim=one.claim.key))
        if one.judgement == "not measured" and stored and stored[0].measure:
            numbers = "; ".join(f"{row.measure} {number_of(row)}" for row in stored)
            why = " ".join(filter(None, (f"{numbers}.", stored[0].note)))
            one = Verdict(one.claim, stored[0].holds, why=why)
        together.append(one)
    return together


def main(options: ClaimsOptions) -> None:
    """Check, print and write."""
    out = options.out or Path("figures") / slug(options.model)
    show(exhibits, replace(options, out=out))


def exhibits(options: ClaimsOptions) -> list[Table]:
    """The list of claims. Raises RunError if no claim has a run."""
    settings = RunSettings.of_paper(n=options.n, shots=options.shots)
    verdicts = check_claims(
        options.model, roots=options.roots, settings=settings, computed=options.computed
    )
    if not any(verdict.findings for verdict in verdicts):
        raise NotComputed(
            f"expected runs to check claims on, found none: {verdicts[0].why}", verdicts[0].command
        )
    return [table(options.model, verdicts)]


def table(model: str, verdicts: list[Verdict]) -> Table:
    """The verdicts on a model, as a table for readers."""
    made = text_table_of(
        lambda: with_multiplicity(model, verdicts),
        _runs(verdicts),
        name="claims",
        title=f"The paper's claims, {model}",
        caption="Each claim with the numbers that decide it.",
        cells=cells,
        printed=paragraphs,
    )
    return replace(made, notes=notes(made.numbers, verdicts))


def with_multiplicity(model: str, verdicts: Sequence[Verdict]) -> QuestionTable:
    """The rows of all verdicts, and at the end how many of them chance alone would give."""
    of_claims = verdict_table(model, verdicts)
    together = multiplicity_rows(read_back(of_claims))
    return replace(of_claims, rows=(*of_claims.rows, *together))


def with_earlier(rows: DataFrame, earlier: DataFrame) -> DataFrame:
    """A model's verdicts, in which a claim that is not measured keeps its rows of an earlier table.

    How many verdicts chance alone would give is counted again.

    Args:
        rows: the table of claims from the runs that are there.
        earlier: the same table of an earlier time.
    """
    parts = []
    for claim in CLAIMS:
        now, before = (select(table, claim=claim.key) for table in (rows, earlier))
        parts.append(before if len(before) and has(now, holds="not measured") else now)
    together = joined(parts)
    model = str(rows.model.iloc[0])
    counted = QuestionTable.of("claims", model, multiplicity_rows(together))
    return joined([together, counted.frame()])


def cells(rows: DataFrame) -> DataFrame:
    """The claims for a reader, from the rows of `verdict_table`."""
    claims = {claim.key: claim for claim in CLAIMS}
    texts = []
    rows = DataFrame(rows[rows.claim != TOGETHER])
    for key, of_claim in rows.groupby("claim", sort=False):
        claim, first = claims[str(key)], records(of_claim)[0]
        outcome = f"{first.why}. Measure it: {first.command}" if first.command else first.why
        if first.measure:
            numbers = "; ".join(f"{one.measure} {number_of(one)}" for one in records(of_claim))
            outcome = f"{numbers}. {first.note}" if first.note else numbers
        texts.append(
            {
                "claim": claim.statement,
                "lens": claim.lens,
                "the paper": claim.in_paper,
                "rule": claim.rule,
                "found": outcome,
                "verdict": f"{first.holds} (in this model)",
            }
        )
    return DataFrame(texts, index=[*rows.claim.drop_duplicates()])


def paragraphs(rows: DataFrame) -> str:
    """The claims for a terminal."""
    texts = cells(rows)
    return "\n\n".join(map(_paragraph, texts.index, records(texts)))


def _paragraph(key: Any, one: Any) -> str:
    claim, lens, in_paper, _, outcome, verdict = one
    judgement = verdict.removesuffix(" (in this model)").upper()
    return (
        f"{key}: {judgement} in this model\n  {claim}\n  lens: {lens}\n  the paper: {in_paper}\n"
        f"  found: {outcome}"
    )


def notes(rows: DataFrame, verdicts: list[Verdict]) -> list[str]:
    """How to read the list, from its rows and the verdicts."""
    counts = Counter(verdict.judgement for verdict in verdicts)
    return [
        "In this model: " + "; ".join(f"{name}: {n}" for name, n in counts.items()) + ".",
        "In brackets: 95% intervals over problems unless said otherwise. A claim holds here if "
        "each of its numbers lies within its bounds (one-sided test, 5% each). It does not hold "
        "here if one lies outside (one-sided tests, 5% after Holm's correction over the claim's "
        "numbers). Else it is not decided. docs/claims.md says how the rules were chosen.",
        multiplicity_sentence(rows),
        *prompts_note(verdicts),
        *missing_note(verdicts),
    ]


def missing_note(verdicts: list[Verdict]) -> list[str]:
    """What computes the runs that are missing, and in what time."""
    commands = Counter(verdict.command for verdict in verdicts if verdict.command)
    if not commands:
        return []
    return [
        f"{commands.total()} of {len(verdicts)} claims are not measured, because their runs are "
        "not there: runs of minutes do not come with the project. docs/claims.md shows the "
        "verdicts on the shipped models. `make report MODEL=…` computes all runs but those of "
        "tuning: a shipped model takes about a quarter of an hour on two cores. Each alone:",
        *(f"{command} (claims: {n})" for command, n in commands.most_common()),
    ]


def prompts_note(verdicts: list[Verdict]) -> list[str]:
    """Which runs were stored without their problems, so that their intervals are over prompts."""
    names = dict.fromkeys(run.experiment for run in _runs(verdicts) if counts_prompts(run))
    return [
        f"The intervals of {', '.join(names)} are over prompts, not problems, and so too narrow: "
        "these runs do not know which problem a prompt asks. Compute them again."
    ] * bool(names)


def _runs(verdicts: list[Verdict]) -> tuple[Run, ...]:
    """Each run that was read, once."""
    return tuple(map(load_run, dict.fromkeys(path for v in verdicts for path in v.runs)))
