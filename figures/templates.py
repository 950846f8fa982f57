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
from experiments import results
from figures.command import command
from figures.common import Options, chosen_run
from figures.exhibit import Chart, command_for

N_HEADS = 12


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
            look="Rows of one colour: the head matters in whichever words the calculation comes. A "
            "row that changes from column to column belongs to some wordings only.",
            notes=notes(run),
            runs=(run,),
            numbers=numbers(operations),
            figure=draw(run, operations),
            vector=draw(run, operations, vector=True),
        )
    ]


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


def draw(run: Run, operations: Mapping[str, Wordings], *, vector: bool = False) -> plotting.Figure:
    """One panel per operation: rows are heads, columns are templates, the bar is their mean."""
    relative = run.config["metric"] == "relative_logit"
    scale, unit = (100.0, "%") if relative else (1.0, "")
    width = max(len(operation_wordings.templates) for operation_wordings in operations.values())
    height = max(len(operation_wordings.heads) for operation_wordings in operations.values())
    figure = plotting.panels(
        [
            _panel(name, operation_wordings, scale, (height, width))
            for name, operation_wordings in operations.items()
        ],
        axes=("head", "template"),
        bar_name="all",
        colour_title="Δ logit of<br>right answer" if relative else "effect",
        hover=(f"template %{{x}}: %{{z:+.2f}}{unit}", f"all templates: %{{z:+.2f}}{unit}"),
        notes=notes(run),
        unit=unit,
        across=min(2, len(operations)),
        vector=vector,
    )
    for index, operation_wordings in enumerate(operations.values()):
        suffix = "" if index == 0 else str(index + 1)
        places = list(range(len(operation_wordings.heads)))
        figure.layout[f"yaxis{suffix}"].update(
            tickvals=places, ticktext=list(operation_wordings.heads)
        )
    return figure


def notes(run: Run) -> list[str]:
    """How to read the figure, and what it was made from."""
    return [
        f"The {N_HEADS} strongest heads (layer.head), strongest first; key heads come first. "
        "r: median rank correlation of two templates over all heads.",
        f"Model: {run.config['model']}; paths: {run.config['paths']}. Red: patching lowers the "
        "value, so the component supports the answer.",
    ]


def _panel(operation: str, part: Wordings, scale: float, shape: tuple[int, int]) -> plotting.Panel:
    values, bar = np.full(shape, np.nan), np.full(shape[0], np.nan)
    values[: len(part.heads), : len(part.templates)] = scale * part.means
    bar[: len(part.heads)] = scale * part.overall
    agreement = "" if np.isnan(part.agreement) else f"&nbsp; r = {part.agreement:.2f}"
    key = "" if part.n_key is None else f"&nbsp; {part.n_key} key"
    name = plotting.plain(operation.capitalize())
    return plotting.Panel(
        title=f'{name}<span style="color:{plotting.NOTE}">{key}{agreement}</span>',
        values=values,
        bar=bar,
        hover=values[..., None],
        bar_hover=bar[:, None],
    )


main = command_for(exhibits)

if __name__ == "__main__":
    command(main, "templates", __doc__)
