"""Stability and templates: do other problems and other wordings give the same strongest heads?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.effects import (
    Effects,
    NoTemplates,
    StabilityError,
    key_heads,
    stability_of,
    template_agreement,
)
from arith_lens.runs import RunError
from arith_lens.templates import TEMPLATES, fill
from experiments import results
from figures.common import Options, chosen_run
from figures.exhibit import Chart
from figures.views import maps

COMPARISON_NAMES = {"rest": "with the rest", "another": "with a sample"}
STABLE_SHARE = 0.9
"""Sets that have this share in common count as the same in the caption."""


@dataclass(frozen=True)
class StabilityOptions(Options):
    """Which run to draw, and where its files go."""

    k: int = 5
    """How many heads the top set has."""
    samples: int = 200
    """Samples of each size."""


def stability(options: StabilityOptions) -> list[Chart]:
    """How many problems until the strongest heads stay the same, by operation?

    Reads a run of `experiments/which_heads.py`. It draws samples of n problems without replacement,
    and compares their top heads and their key heads with those of all other problems and with those
    of another sample of the same size. No problem is on both sides.

    Raises:
        RunError: there is no run, or it has too few pairs.
    """
    run = chosen_run(options, "which_heads")
    try:
        tables = {
            name: stability_of(
                results.MAP.load(run, name).heads, k=options.k, n_draws=options.samples
            )
            for name in results.MAP.labels(run)
        }
    except StabilityError as error:
        raise RunError(str(error)) from error
    top = next(iter(tables.values()))["set"].iloc[0]
    notes = [
        f"Share of the heads of two {top} sets, or key sets, that both have; mean over samples. "
        "Solid: a sample against all problems that are not in it. Dotted: against another sample "
        "of its size. The two sides never share a problem.",
        f"Band: 10th to 90th percentile of samples of the {top} set. Two empty key sets agree.",
        f"Model: {run.config['model']}; paths: {run.config['paths']}.",
    ]
    return [
        Chart(
            name="stability",
            title="How many problems until the strongest heads stay the same?",
            look=stability_look(tables),
            notes=notes,
            runs=(run,),
            numbers=concat([table.assign(operation=name) for name, table in tables.items()]),
            figure=plotting.curve_panels(
                [
                    plotting.CurvePanel(
                        title=plotting.plain(name.capitalize()),
                        lines=tuple(_lines(table)),
                        y_title="heads in common" if index % 2 == 0 else "",
                        y_range=(0, 100),
                    )
                    for index, (name, table) in enumerate(tables.items())
                ],
                x_title="problems, each in all its wordings",
                unit="%",
                notes=notes,
                across=min(2, len(tables)),
                panel=(270, 220),
            ),
        )
    ]


def stability_look(tables: Mapping[str, DataFrame]) -> str:
    """What to look for, and where the run's own curves end."""
    parts, below = [], 0
    for name, table in tables.items():
        rest: Any = table[table["with"] == "rest"]
        top = rest[rest["set"] == rest["set"].iloc[0]].sort_values("n")
        enough = top[top["mean"] >= STABLE_SHARE]
        last, n = float(top["mean"].iloc[-1]), int(top["n"].iloc[-1])
        below += last < STABLE_SHARE
        parts.append(
            f"{name} {last:.0%} at {n} problems"
            + (f" ({STABLE_SHARE:.0%} from {int(enough['n'].iloc[0])} on)" if len(enough) else "")
        )
    verdict = (
        f"The curve stays below {STABLE_SHARE:.0%} in {below} of {len(tables)} operations: a list "
        "of heads is partly chance there."
        if below
        else f"Every curve reaches {STABLE_SHARE:.0%}: other problems give nearly the same heads."
    )
    return (
        "The height of the red curves: the share of the strongest heads that problems outside "
        f"the sample give too. With half of the problems: {', '.join(parts)}. {verdict}"
    )


def _lines(table: DataFrame) -> list[plotting.Line]:
    """Top heads in red, key heads in blue; a band for the top heads against the rest."""
    lines = []
    for kind, part in table.groupby("set", sort=False):
        colour = plotting.BLUE if kind == "key" else plotting.RED
        for which, dash in (("rest", "solid"), ("another", "dot")):
            some: Any = part[part["with"] == which]
            band = {end: 100 * some[end].to_numpy() for end in ("low", "high")}
            lines.append(
                plotting.Line(
                    x=some["n"].to_numpy(),
                    y=100 * some["mean"].to_numpy(),
                    name=f"{kind}, {COMPARISON_NAMES[which]}",
                    colour=colour,
                    dash=dash,
                    **(band if which == "rest" and colour == plotting.RED else {}),
                )
            )
    return lines


N_HEADS = 12
ALL_WORDINGS = "all wordings"


@dataclass(frozen=True)
class Wordings:
    """One operation: its strongest heads in each template."""

    heads: tuple[str, ...]
    templates: tuple[str, ...]
    means: Float[np.ndarray, "head template"]
    overall: Float[np.ndarray, " head"]
    n_key: int
    """How many of them, from the first on, are key heads; 0 if the metric defines none."""
    agreement: float
    """Median rank correlation of two templates over all heads; NaN if there is one template."""

    @classmethod
    def of(cls, effects: Effects) -> "Wordings":
        """The strongest heads by template. Raises NoTemplates if the pairs have none."""
        chosen = effects.top(N_HEADS)
        at = tuple(np.array([(head.layer, head.index) for head in chosen]).T)  # pyright: ignore[reportAttributeAccessIssue]
        parts = dict(
            sorted(effects.by_template().items(), key=lambda part: (len(part[0]), part[0]))
        )
        correlation = template_agreement(effects).to_numpy()
        pairs = correlation[np.triu_indices(len(parts), 1)]
        return cls(
            heads=tuple(map(str, chosen)),
            templates=tuple(parts),
            means=np.stack([part.mean().numpy()[at] for part in parts.values()], axis=1),
            overall=effects.mean().numpy()[at],
            n_key=len(key_heads(effects)) if effects.metric == "relative_logit" else 0,
            agreement=float(np.median(pairs)) if len(pairs) else float("nan"),
        )


def templates(options: Options) -> list[Chart]:
    """Do the wordings agree? The strongest heads in each template, by operation.

    Reads a run of `experiments/which_heads.py`. The titles of the panels have the rank correlation
    of all heads between templates.

    Raises:
        RunError: there is no run, or its pairs have no templates.
    """
    run = chosen_run(options, "which_heads")
    try:
        operations = {
            name: Wordings.of(results.MAP.load(run, name).heads) for name in results.MAP.labels(run)
        }
    except NoTemplates as error:
        raise RunError(str(error)) from error
    reading = maps.Reading.of(run.config)
    notes = [
        f"The {N_HEADS} strongest heads (layer.head), strongest first; key heads come first. "
        "r: median rank correlation of two wordings over all heads. Each wording is shown with "
        "its operator and with A and B for the operands.",
        f"Model: {run.config['model']}; paths: {run.config['paths']}. Red: patching lowers the "
        "value.",
    ]
    return [
        Chart(
            name="templates",
            title="Do the wordings agree? The strongest heads in each template",
            look=_templates_look(operations),
            notes=notes,
            runs=(run,),
            numbers=_numbers(operations),
            figure=plotting.matrix_panels(
                [_matrix(name, part, reading) for name, part in operations.items()],
                colour_title=reading.colour_title,
                unit=reading.unit,
                digits=1 if reading.relative else 2,
                limit=reading.limit,
                notes=notes,
            ),
        )
    ]


def _templates_look(operations: Mapping[str, Wordings]) -> str:
    """What to look for, and how far the wordings of this run agree."""
    parts = [
        f"{name} {part.agreement:.2f}".replace("-", "−")
        for name, part in operations.items()
        if not np.isnan(part.agreement)
    ]
    agreement = f" Median rank correlation of two wordings over all heads: {', '.join(parts)}."
    return (
        "Columns of one colour: the head matters in whichever words the calculation comes. A "
        "column that changes from row to row belongs to some wordings only."
        + agreement
        * bool(parts)
    )


def _numbers(operations: Mapping[str, Wordings]) -> DataFrame:
    """One row per head: its mean in each template and over all, and the standard deviation."""
    tables = []
    for operation, part in operations.items():
        several = len(part.templates) > 1
        fixed = {
            "operation": operation,
            "head": part.heads,
            "mean": part.overall,
            "spread": part.means.std(axis=1, ddof=1) if several else np.nan,
            "median_rank_correlation": part.agreement,
        }
        names = [name.split("/")[-1] for name in part.templates]
        tables.append(DataFrame(fixed).assign(**dict(zip(names, part.means.T, strict=True))))
    return concat(tables, ignore_index=True)


def _matrix(operation: str, part: Wordings, reading: maps.Reading) -> plotting.Matrix:
    """One operation: rows are wordings and their mean, columns are heads."""
    agreement = "" if np.isnan(part.agreement) else f"&nbsp; r = {part.agreement:.2f}"
    name = plotting.plain(operation.capitalize())
    values = reading.scale * np.vstack([part.means.T, part.overall])
    key, others = slice(part.n_key), slice(part.n_key, None)
    groups = (("key heads", key), ("other heads" if part.n_key else "", others))
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
