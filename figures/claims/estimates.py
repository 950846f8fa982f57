"""Findings from rows: what the tables of numbers say, as numbers of a claim."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from figures.claims.claim import Measurement
from figures.claims.evidence import NotMeasured
from figures.tables.table import Row
from figures.verdicts import Finding, Within


def finding_of(
    rows: Iterable[Row], measure: str, label: str, rule: Within | None = None
) -> Finding | None:
    """The number of the row with this measure, under a name; None without such a row."""
    number = next((row.number for row in rows if row.measure == measure), None)
    return None if number is None else Finding(label, number, rule)


def of_rows(
    rows: Iterable[Row],
    names: Sequence[str],
    rule: Within,
    beside: Sequence[Finding] = (),
    *,
    missing: str,
    title: Callable[[str], str] = str,
) -> Measurement:
    """The numbers of several operations from their rows; a note names those without a row.

    Args:
        rows: with the keys operation, and heads in words or empty.
        beside: numbers that are reported after them.
        missing: what an operation without a row lacks.
        title: how an operation is named.

    Raises:
        NotMeasured: there is no row.
    """
    findings: dict[str, Finding | None] = {title(name): None for name in names}
    for row in rows:
        name, heads = title(row.keys["operation"]), row.keys.get("heads")
        findings[name] = Finding(f"{name} ({heads})" if heads else name, row.number, rule)
    return per_operation(findings, beside, missing=missing)


def per_operation(
    findings: Mapping[str, Finding | None], beside: Sequence[Finding] = (), *, missing: str
) -> Measurement:
    """The numbers of several operations; a note names the operations without a number.

    Args:
        findings: by operation; None if it cannot be measured
        beside: numbers that are reported after them
        missing: what an operation without a number lacks, such as "key heads"

    Raises:
        NotMeasured: no operation has a number.
    """
    measured = tuple(finding for finding in findings.values() if finding is not None)
    without = [name for name, finding in findings.items() if finding is None]
    if not measured:
        raise NotMeasured(
            f"none of {', '.join(findings)} has {missing}, so there is nothing to look at"
        )
    note = f"Without {missing}: {', '.join(without)}." * bool(without)
    return Measurement((*measured, *beside), note)


def measured(
    finding: Finding | None, *beside: Finding | None, missing: str, note: str = ""
) -> Measurement:
    """A number without which the claim cannot be measured, and others as far as they exist.

    Raises:
        NotMeasured: the first number is None; `missing` says why.
    """
    if finding is None:
        raise NotMeasured(f"there is nothing to look at: {missing}")
    return Measurement((finding, *(other for other in beside if other)), note)
