"""The tables of docs/claims.md, from the rows of claims.csv: the result first, then each group."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pandas import DataFrame

from arith_lens.operations import FOUR, OPERATIONS
from figures.claims.accuracy import CONTROL_NAMES
from figures.claims.claim import Claim
from figures.claims.multiplicity import BY_CHANCE, CONTROLLED, TESTED, TOGETHER
from figures.tables.table import has, number_of, records, select, value

GROUPS = {
    "heads": "Heads and MLPs that matter",
    "sharing": "Heads in common",
    "knockout": "Knockout",
    "attention": "Attention",
    "probes": "What MLPs read and write",
    "models": "Other models",
    "tuning": "Tuning",
}
"""The titles of the groups of claims, in the order of the page and of the report."""
SIGNS = {"holds here": "●", "does not hold here": "○", "not decided": "◇", "not measured": "·"}
"""How a verdict looks."""
MARKS = ("<!-- verdicts -->", "<!-- end of verdicts -->")
"""The lines before and after the tables."""
Tables = Mapping[str, DataFrame]
"""The rows of `verdict_table`, with those of `multiplicity_rows`, by model."""


def write_page(page: Path, tables: Tables, claims: Sequence[Claim]) -> None:
    """Write the tables between the marks of a page.

    Args:
        page: the Markdown file.
        tables: the rows of each model.
        claims: all claims, in the page's order.
    """
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    legend = ", ".join(f"{sign} {name}" for name, sign in SIGNS.items())
    written = "\n\n".join([counts(tables), f"{legend}.", *_groups(tables, claims)])
    page.write_text(f"{before}{MARKS[0]}\n{written}\n{MARKS[1]}{after}", encoding="utf-8")


def counts(tables: Tables) -> str:
    """How many claims hold, fail, and so on, and what chance alone would give."""
    heads = [*SIGNS, TESTED, BY_CHANCE, CONTROLLED]
    lines = [f"| model | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for model, rows in tables.items():
        verdicts = [*_verdicts(rows).values()]
        cells = [str(verdicts.count(name)) for name in SIGNS]
        for name in heads[len(SIGNS) :]:
            digits = 1 if name == BY_CHANCE else 0
            is_known = has(rows, claim=TOGETHER, measure=name)
            number = value(rows, claim=TOGETHER, measure=name) if is_known else None
            cells.append("" if number is None else f"{number:.{digits}f}")
        lines.append(f"| `{model}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _groups(tables: Tables, claims: Sequence[Claim]) -> Iterator[str]:
    """For each group its title and its table."""
    for group, title in GROUPS.items():
        of_group = [claim for claim in claims if claim.group == group]
        if not of_group:
            continue
        models = " | ".join(f"`{model}`" for model in tables)
        lines = [f"### {title}", "", f"| claim | the paper | {models} |"]
        lines.append("|---" * (len(tables) + 2) + "|")
        for claim in of_group:
            cells = [deciding_cell(rows, claim.key) for rows in tables.values()]
            measured = [cell for cell in cells if cell != SIGNS["not measured"]]
            of = {cell.partition(" (")[2] for cell in measured}
            is_shared = len(measured) > 1 and len(of) == 1 and of != {""}
            if is_shared:  # what every number is of stands once, beside the claim
                cells = [cell.partition(" (")[0] for cell in cells]
            name = f"{claim.short} ({of.pop()}" if is_shared else claim.short
            lines.append(f"| {' | '.join([name, _short(claim.paper), *cells])} |")
        yield "\n".join(lines)


def deciding_cell(rows: DataFrame, key: str) -> str:
    """The verdict's sign, and the one number that decides it, with what it is of.

    If the claim holds or is not decided, this is the number with the largest p-value. If it does
    not hold, it is the number that fails most clearly. Among equal p-values, the number that is
    least within its bounds is taken. Random heads stand beside it, if
    there are any.
    """
    of_claim = records(select(rows, claim=key))
    judgement = of_claim[0].holds
    ruled = [one for one in of_claim if getattr(one, "number_holds", "")]
    if not ruled:
        return SIGNS[judgement]
    if judgement == "does not hold here":
        decides = min(ruled, key=lambda one: (one.p_outside, _margin(one)))
    else:
        decides = min(ruled, key=lambda one: (-one.p_within, _margin(one)))
    of = str(decides.measure).replace(" (", ", ").replace(")", "")
    of = re.sub(r"“(\S+ \S+ \S+ \S+)[^”]*”", r"“\1 …”", of)  # the beginning of a long prompt
    random = f"{decides.measure}, {CONTROL_NAMES['random']},"
    for control in of_claim:
        if str(control.measure).startswith(random):
            of += f"; as many random heads {number_of(control)}"
    return f"{SIGNS[judgement]} {_short(f'{number_of(decides)} ({of})')}"


def _margin(one: Any) -> float:
    """How far a number is within the nearer of its bounds; negative outside."""
    return min(one.value - one.above, one.below - one.value)


def _verdicts(rows: DataFrame) -> dict[str, str]:
    """The verdict on each claim."""
    of_claims: list[Any] = records(DataFrame(rows[rows.claim != TOGETHER]))
    return {one.claim: one.holds for one in of_claims}


def _short(text: str) -> str:
    """A text with signs in place of the operations' names, and true minus signs."""
    for name in FOUR:
        text = text.replace(name, OPERATIONS[name].sign)
    text = text.replace("exponentiation", "^").replace("|", "\\|")
    text = re.sub(r"(?<![\w.)\]-])-(?=\d)", "−", text)
    return re.sub(r"[−-](0\.0+)(?![0-9])", r"\1", text)  # zero has no sign
