"""The paper's claims as a list in the report: each with the paper's value and this model's."""

import html
from collections import Counter
from collections.abc import Sequence

from figures.claims import Number, Verdict

GROUPS = {
    "heads": "Heads and MLPs that matter",
    "sharing": "Heads in common",
    "knockout": "Knockout",
    "attention": "Attention",
    "probes": "What MLPs read and write",
    "models": "Other models",
    "tuning": "Tuning",
}
SIGNS = {"holds": "✓", "does not hold": "✗", "not decided": "?", "not measured": "–"}
SAID = {
    "holds": ("holds", "hold"),
    "does not hold": ("does not hold", "do not hold"),
    "not decided": ("is not decided", "are not decided"),
    "not measured": ("is not measured", "are not measured"),
}
HOW = (
    "Each claim has a rule, which number against which threshold, that was written down before its "
    "verdict was computed, when some of the numbers were known from the figures. A claim holds "
    "where all of its numbers do with their whole 95% interval (in brackets), does not hold where "
    "one is beyond its threshold with its whole interval, and is not decided where an interval "
    "lies across one."
)


def counted(verdicts: Sequence[Verdict]) -> str:
    """`12 hold, 3 do not hold, 2 are not decided, 1 is not measured`."""
    counts = Counter(verdict.holds for verdict in verdicts)
    return ", ".join(
        f"{counts[name]} {SAID[name][counts[name] > 1]}" for name in SAID if counts[name]
    )


def claims_list(verdicts: Sequence[Verdict]) -> str:
    """The list as HTML, a table a group; nothing in the verdicts is read as HTML."""
    parts = [f"<p>Of {len(verdicts)} claims {counted(verdicts)}. {HOW}</p>"]
    for group, title in GROUPS.items():
        rows = "".join(_row(verdict) for verdict in verdicts if verdict.claim.group == group)
        if rows:
            parts.append(
                f'<h3>{title}</h3>\n<table class="claims"><thead><tr><th>Claim</th>'
                "<th>In the paper</th><th>This model</th><th>Verdict</th></tr></thead>"
                f"<tbody>{rows}</tbody></table>"
            )
    return "\n".join(parts)


def _row(verdict: Verdict) -> str:
    claim, kind = verdict.claim, verdict.holds.replace(" ", "-")
    return (
        f'<tr id="claim-{html.escape(claim.key)}"><td>{html.escape(claim.statement)}'
        f'<p class="rule">Rule: {html.escape(claim.rule)}</p></td>'
        f'<td data-name="In the paper">{html.escape(claim.paper)}'
        f'<p class="rule">{html.escape(claim.section)}</p></td>'
        f'<td data-name="This model">{_found(verdict)}</td>'
        f'<td><span class="verdict {kind}">{SIGNS[verdict.holds]} {verdict.holds}</span></td></tr>'
    )


def _found(verdict: Verdict) -> str:
    if not verdict.numbers:
        command = f"<p><code>{html.escape(verdict.command)}</code></p>" if verdict.command else ""
        return f'<p class="rule">{html.escape(verdict.why)}</p>{command}'
    told = "; ".join(map(str, verdict.numbers))
    note = verdict.found.removeprefix(told).removeprefix(". ")
    lines = "".join(f"<li>{_number(number)}</li>" for number in verdict.numbers)
    return f"<ul>{lines}</ul>" + (f'<p class="rule">{html.escape(note)}</p>' if note else "")


def _number(number: Number) -> str:
    """One number; marked where it alone decides against the claim, or decides nothing."""
    text = html.escape(str(number))
    if number.rule is None:
        return f"{text} (told beside)"
    return text if number.holds == "holds" else f"{text} ({number.holds})"
