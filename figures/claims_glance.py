"""The paper's claims at a glance: a mark for each claim and model."""

from collections.abc import Sequence

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from figures.claims.multiplicity import TOGETHER
from figures.exhibit import Chart, chart_of
from figures.tables.table import keys_of, records, select

MARKS = {
    "holds here": ("holds", "circle", plotting.DARK),
    "not decided": ("undecided", "diamond-open", plotting.GREY),
    "does not hold here": ("does not hold", "circle-open", plotting.DARK),
    "not measured": ("not measured", "x-thin-open", plotting.GREY),
}
"""What each verdict is called, and its mark."""
ACROSS = 3


def glance(rows: DataFrame) -> Chart:
    """The verdicts on all claims as one picture.

    Args:
        rows: the tables of claims of one or more models.
    """
    return chart_of(
        rows,
        [],
        name="claims",
        title="The paper's claims at a glance",
        caption=_caption,
        notes=lambda *_: [
            "A claim holds if each of its numbers lies within its bounds (one-sided tests, 5%). It "
            "does not hold if one lies outside (after Holm's correction)."
        ],
        draw=_draw,
    )


def verdicts(rows: DataFrame, model: str, group: str = "") -> dict[str, str]:
    """The verdict on each claim of a model, of one group or of all, by the claim's name."""
    of_model = select(rows, model=model, **({"group": group} if group else {}))
    known: dict[str, str] = {}
    for one in records(DataFrame(of_model[of_model.group != TOGETHER])):
        known.setdefault(one.claim, one.holds)
    return known


def _caption(rows: DataFrame) -> str:
    """How many claims hold in each model, and in both."""
    counts, by_model = [], [verdicts(rows, model) for model in keys_of(rows, "model")]
    for model, known in zip(keys_of(rows, "model"), by_model, strict=True):
        n = {verdict: [*known.values()].count(verdict) for verdict in MARKS}
        counts.append(
            f"{n['holds here']} of {len(known)} in `{model}` ({n['does not hold here']} do not, "
            f"{n['not decided']} are undecided)"
        )
    both = sum(all(known.get(claim) == "holds here" for known in by_model) for claim in by_model[0])
    return (
        f"Of the paper's claims hold {'; '.join(counts)}. "
        f"{both} hold in all {len(by_model)} models. A mark is the verdict on one claim by "
        "one-sided tests over problems, seeds or draws; [each claim](claims.md) has its rule, its "
        "lens and its numbers."
    )


def _draw(rows: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A panel for each group, a row for each claim, a column for each model."""
    models = keys_of(rows, "model")
    groups = [group for group in keys_of(rows, "group") if group != TOGETHER]
    panels = []
    for group in groups:
        by_model = [verdicts(rows, model, group) for model in models]
        claims = [*by_model[0]]
        series = [
            plotting.Dots(
                np.array(
                    [at if known.get(claim) == verdict else np.nan for claim in claims], dtype=float
                ),
                name,
                colour,
                symbol=symbol,
            )
            for verdict, (name, symbol, colour) in MARKS.items()
            for at, known in enumerate(by_model)
        ]
        title = plotting.plain(group.capitalize())
        names = tuple(claim.replace("_", " ").replace("mlps", "MLPs") for claim in claims)
        panels.append(plotting.DotPanel(title, names, tuple(series)))
    panels.sort(key=lambda panel: -len(panel.rows))
    return plotting.dot_panels(
        panels,
        plotting.DotAxis(
            (-0.6, len(models) - 0.4),
            columns=tuple(str(number + 1) for number in range(len(models))),
        ),
        across=ACROSS,
        notes=[
            f"Columns: {', '.join(f'{n + 1} {name}' for n, name in enumerate(models))}.",
            *notes,
        ],
    )
