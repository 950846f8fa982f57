"""Do the wordings agree? The strongest heads in each template, by operation.

Reads a run of `experiments/which_heads.py`. The titles of the panels have the rank correlation of
all heads between templates.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.effects import Effects, NoTemplates, key_heads, template_agreement
from arith_lens.runs import Run, RunError
from arith_lens.templates import TEMPLATES, fill
from experiments import results
from figures import maps
from figures.common import Options, chosen_run
from figures.exhibit import Chart

N_HEADS = 12
ALL_WORDINGS = "all wordings"


@dataclass(frozen=True)
class Wordings:
    """One operation: its strongest heads in each template."""

    heads: tuple[str, ...]
    templates: tuple[str, ...]
    means: np.ndarray
    """[head template]."""
    overall: np.ndarray
    """[head]."""
    n_key: int | None
    """How many of them, from the first on, are key heads; None if the metric defines none."""
    agreement: float
    """Median rank correlation of two templates over all heads; NaN if there is one template."""


def exhibits(options: Options) -> list[Chart]:
    """The strongest heads of a run. Raises RunError if there is no run, or without templates."""
    run = chosen_run(options, "which_heads")
    try:
        operations = {
            name: wordings(results.MAP.load(run, name).heads) for name in results.MAP.labels(run)
        }
    except NoTemplates as error:
        raise RunError(str(error)) from error
    return [
        Chart(
            name="templates",
            title="Do the wordings agree? The strongest heads in each template",
            look=look(operations),
            notes=notes(run),
            runs=(run,),
            numbers=numbers(operations),
            figure=draw(run, operations),
        )
    ]


def look(operations: Mapping[str, Wordings]) -> str:
    """What to look for, and how far the wordings of this run agree."""
    parts = [
        f"{name} {part.agreement:.2f}"
        for name, part in operations.items()
        if not np.isnan(part.agreement)
    ]
    agreement = (
        f" Median rank correlation of two wordings over all heads: {', '.join(parts)}."
        if parts
        else ""
    ).replace("-", "−")
    return (
        "Columns of one colour: the head matters in whichever words the calculation comes. A "
        f"column that changes from row to row belongs to some wordings only.{agreement}"
    )


def wordings(effects: Effects) -> Wordings:
    """The strongest heads by template. Raises NoTemplates if the pairs have none."""
    relative = effects.metric == "relative_logit"
    chosen = effects.top(N_HEADS)
    at = tuple(np.array([(head.layer, head.index) for head in chosen]).T)  # pyright: ignore[reportAttributeAccessIssue]
    by_name = effects.by_template()
    parts = {name: by_name[name] for name in sorted(by_name, key=lambda name: (len(name), name))}
    correlation = template_agreement(effects).to_numpy()
    pairs = correlation[np.triu_indices(len(parts), 1)]
    return Wordings(
        heads=tuple(map(str, chosen)),
        templates=tuple(parts),
        means=np.stack([part.mean().numpy()[at] for part in parts.values()], axis=1),
        overall=effects.mean().numpy()[at],
        n_key=len(key_heads(effects)) if relative else None,
        agreement=float(np.median(pairs)) if len(pairs) else float("nan"),
    )


def numbers(operations: Mapping[str, Wordings]) -> DataFrame:
    """One row per head: its mean in each template and over all, and the standard deviation."""
    tables = []
    for operation, operation_wordings in operations.items():
        columns = {
            name.split("/")[-1]: operation_wordings.means[:, i]
            for i, name in enumerate(operation_wordings.templates)
        }
        table = DataFrame(
            {
                "operation": operation,
                "head": operation_wordings.heads,
                "mean": operation_wordings.overall,
            }
        )
        spread = (
            operation_wordings.means.std(axis=1, ddof=1)
            if len(operation_wordings.templates) > 1
            else np.nan
        )
        tables.append(
            table.assign(
                spread=spread, median_rank_correlation=operation_wordings.agreement, **columns
            )
        )
    return concat(tables, ignore_index=True)


def draw(run: Run, operations: Mapping[str, Wordings]) -> plotting.Figure:
    """One panel per operation: rows are wordings and their mean, columns are heads."""
    reading = maps.Reading.of(run.config)
    return plotting.matrix_panels(
        [_matrix(name, part, reading) for name, part in operations.items()],
        colour_title=reading.colour_title,
        unit=reading.unit,
        digits=1 if reading.relative else 2,
        limit=reading.limit,
        notes=notes(run),
    )


def notes(run: Run) -> list[str]:
    """How to read the figure, and what it was made from."""
    return [
        f"The {N_HEADS} strongest heads (layer.head), strongest first; key heads come first. "
        "r: median rank correlation of two wordings over all heads. Each wording is shown with "
        "its operator and with A and B for the operands.",
        f"Model: {run.config['model']}; paths: {run.config['paths']}. Red: patching lowers the "
        "value.",
    ]


def _matrix(operation: str, part: Wordings, reading: maps.Reading) -> plotting.Matrix:
    agreement = "" if np.isnan(part.agreement) else f"&nbsp; r = {part.agreement:.2f}"
    name = plotting.plain(operation.capitalize())
    values = reading.scale * np.vstack([part.means.T, part.overall])
    n_key = part.n_key or 0
    groups = (("key heads", slice(n_key)), ("other heads" if n_key else "", slice(n_key, None)))
    return plotting.Matrix(
        title=f'{name}<span style="color:{plotting.NOTE}">{agreement}</span>',
        rows=(*map(wording, part.templates), ALL_WORDINGS),
        groups=tuple(
            plotting.Columns(title, part.heads[chosen], values[:, chosen])
            for title, chosen in groups
            if part.heads[chosen]
        ),
        strong=(*[False] * len(part.templates), True),
    )


def wording(template: str) -> str:
    """The sentence of a template such as "addition/2"; the name of a template without one."""
    sentences = {one.name: one for of_one in TEMPLATES.values() for one in of_one}
    if template not in sentences:
        return template
    one = sentences[template]
    return fill(one.text, A="A", op=one.word, B="B")[0].strip()
