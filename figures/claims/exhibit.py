"""The paper's claims, one row each: the paper's value, this model's, and the verdict on it.

Reads the newest finished run of every experiment that the claims need, without loading a model;
prints the list and writes it as HTML and its numbers as CSV. If a claim's run is missing, the list
has the command that would measure the claim. `write_page` writes the tables of docs/claims.md.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro
from pandas import DataFrame

from arith_lens.operations import FOUR, OPERATIONS
from arith_lens.runs import load_run
from experiments.selection import SharedSettings
from figures.claims.checking import check_claims
from figures.claims.claim import Verdict, verdict_table
from figures.common import SHIPPED, NotComputed, counts_prompts, slug
from figures.exhibit import Table, show


@dataclass(frozen=True)
class Options:
    """Which model's claims to check, and where to."""

    model: str = "reference"
    """The model's name in the experiments."""
    roots: tuple[Path, ...] = (Path("results"), SHIPPED)
    """Folders with runs. Of each experiment, the first folder that has a run is used."""
    out: Path | None = None
    """Where the files go; figures/<model> if not given."""
    n: int | None = None
    """Use runs with this number of reference prompts per operation; with all if not given."""


def main(options: Annotated[Options, tyro.conf.arg(name="")]) -> None:
    """Check, print and write."""
    out = options.out or Path("figures") / slug(options.model)
    show(exhibits, replace(options, out=out))


def exhibits(options: Options) -> list[Table]:
    """The list of claims. Raises RunError if no claim has a run."""
    verdicts = check_claims(
        options.model, roots=options.roots, settings=SharedSettings(n=options.n)
    )
    if not any(verdict.runs for verdict in verdicts):
        raise NotComputed(
            f"expected runs to check claims on, found {verdicts[0].why}", verdicts[0].command
        )
    return [table(options.model, verdicts)]


def table(model: str, verdicts: list[Verdict]) -> Table:
    """The verdicts on a model, as a table for readers."""
    return Table(
        name="claims",
        title=f"The paper's claims, {model}",
        look="Which hold, and by how much.",
        notes=notes(verdicts),
        runs=tuple(load_run(p) for p in dict.fromkeys(path for v in verdicts for path in v.runs)),
        numbers=verdict_table(verdicts),
        cells=DataFrame([row(verdict) for verdict in verdicts]),
        printed="\n\n".join(map(paragraph, verdicts)),
    )


def paragraph(verdict: Verdict) -> str:
    """One claim for a terminal."""
    cells = row(verdict)
    return (
        f"{verdict.claim.key}: {verdict.judgement.upper()} in this model\n  {cells['claim']}\n"
        f"  the paper: {cells['the paper']}\n  found: {cells['found']}"
    )


def row(verdict: Verdict) -> dict[str, str]:
    """One claim as a row of texts."""
    claim = verdict.claim
    missing = f"{verdict.why}. Measure it: {verdict.command}" if verdict.command else verdict.why
    return {
        "claim": claim.statement,
        "the paper": f"{claim.paper} ({claim.section})",
        "rule": claim.rule,
        "found": verdict.measured or missing,
        "verdict": verdict.text,
    }


def notes(verdicts: list[Verdict]) -> list[str]:
    """How to read the list."""
    counts = {
        name: sum(v.judgement == name for v in verdicts)
        for name in dict.fromkeys(verdict.judgement for verdict in verdicts)
    }
    return [
        "In this model: " + "; ".join(f"{name}: {n}" for name, n in counts.items()) + ".",
        "In brackets: 95% intervals, bootstrapped over problems unless said otherwise. A claim "
        "holds here if each of its numbers lies within its bounds (one-sided test, 5% each). It "
        "does not hold here if one lies outside (one-sided tests, 5% after Holm's correction over "
        "the claim's numbers). Else it is not decided. docs/claims.md says how the rules were "
        "chosen.",
        *prompts_note(verdicts),
    ]


def prompts_note(verdicts: list[Verdict]) -> list[str]:
    """Which runs were stored without their problems, so that their intervals are over prompts."""
    paths = dict.fromkeys(path for verdict in verdicts for path in verdict.runs)
    names = dict.fromkeys(run.experiment for run in map(load_run, paths) if counts_prompts(run))
    if not names:
        return []
    return [
        f"The intervals of {', '.join(names)} are over prompts, not problems, and so too narrow: "
        "these runs do not know which problem a prompt asks. Compute them again."
    ]


MARKS = ("<!-- verdicts -->", "<!-- end of verdicts -->")
"""The lines before and after the tables."""


def write_page(page: Path, verdicts: Mapping[str, Sequence[Verdict]]) -> None:
    """Write the tables between the marks of a page.

    Args:
        page: the Markdown file.
        verdicts: of each model, all claims in the same order.
    """
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    tables = f"{verdict_rows(verdicts)}\n\n{verdict_counts(verdicts)}"
    page.write_text(f"{before}{MARKS[0]}\n{tables}\n{MARKS[1]}{after}", encoding="utf-8")


def verdict_rows(verdicts: Mapping[str, Sequence[Verdict]]) -> str:
    """One row per claim with its rule, one column per model with the numbers that decide."""
    lines = [
        f"| claim | the paper | {' | '.join(f'`{model}`' for model in verdicts)} |",
        f"|---|---|{'---|' * len(verdicts)}",
    ]
    for of_models in zip(*verdicts.values(), strict=True):
        claim = of_models[0].claim
        cells = " | ".join(map(_cell, of_models))
        paper = f"{claim.paper} ({claim.section})"
        words = f"`{claim.key}` {claim.statement}<br>Rule: {claim.rule}"
        lines.append(f"| {words} | {paper} | {cells} |")
    return "\n".join(lines)


def _cell(verdict: Verdict) -> str:
    """The verdict, bold unless the claim holds, and its numbers with a rule."""
    words: str = verdict.judgement
    if words in ("does not hold here", "not decided"):
        words = f"**{words}**"
    numbers = "; ".join(_short(str(number)) for number in verdict.numbers if number.rule)
    return f"{words}: {numbers}" if numbers else words


def _short(text: str) -> str:
    """A number with signs in place of the operations' names, and true minus signs."""
    for name in FOUR:
        text = text.replace(name, OPERATIONS[name].sign)
    text = text.replace("exponentiation", "^").replace(" -", " −").replace("[-", "[−")
    return re.sub(r"−(0\.0+)(?![0-9])", r"\1", text)  # zero has no sign


def verdict_counts(verdicts: Mapping[str, Sequence[Verdict]]) -> str:
    """How many claims hold, do not hold, and so on, in each model."""
    kinds = ("holds here", "does not hold here", "not decided", "not measured")
    n = len(next(iter(verdicts.values())))
    lines = [f"| verdicts on the {n} claims | {' | '.join(kinds)} |", "|---|---|---|---|---|"]
    for model, of_model in verdicts.items():
        numbers = [sum(verdict.judgement == kind for verdict in of_model) for kind in kinds]
        lines.append(f"| {model} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)
