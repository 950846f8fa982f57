"""The verdicts on several models as the tables of docs/claims.md."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from arith_lens.operations import FOUR, OPERATIONS
from figures.claims.claim import Verdict

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
    tables = f"{verdict_rows(verdicts)}\n\n{counts(verdicts)}"
    page.write_text(f"{before}{MARKS[0]}\n{tables}\n{MARKS[1]}{after}", encoding="utf-8")


def verdict_rows(verdicts: Mapping[str, Sequence[Verdict]]) -> str:
    """One row per claim, one column per model, with the numbers that decide."""
    lines = [
        f"| claim | the paper | {' | '.join(f'`{model}`' for model in verdicts)} |",
        f"|---|---|{'---|' * len(verdicts)}",
    ]
    for of_models in zip(*verdicts.values(), strict=True):
        claim = of_models[0].claim
        cells = " | ".join(map(_cell, of_models))
        paper = f"{claim.paper} ({claim.section})"
        lines.append(f"| `{claim.key}` {claim.statement} | {paper} | {cells} |")
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


def counts(verdicts: Mapping[str, Sequence[Verdict]]) -> str:
    """How many claims hold, do not hold, and so on, in each model."""
    kinds = ("holds here", "does not hold here", "not decided", "not measured")
    n = len(next(iter(verdicts.values())))
    lines = [f"| verdicts on the {n} claims | {' | '.join(kinds)} |", "|---|---|---|---|---|"]
    for model, of_model in verdicts.items():
        numbers = [sum(verdict.judgement == kind for verdict in of_model) for kind in kinds]
        lines.append(f"| {model} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)
