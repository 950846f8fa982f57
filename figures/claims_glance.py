"""The paper's claims at a glance: a mark for each claim and model."""

from collections.abc import Sequence

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting.widths import is_narrow
from figures.claims import CLAIMS
from figures.claims.multiplicity import TOGETHER
from figures.claims.page import GROUPS
from figures.common import GALLERY_MODELS
from figures.exhibit import Chart, chart_of
from figures.few_heads import NAMES
from figures.tables.table import keys_of, records, select

MARKS = {
    "holds here": ("holds", "circle", plotting.COLOURS["verdict"]),
    "not decided": ("undecided", "diamond-open", plotting.COLOURS["control"]),
    "does not hold here": ("does not hold", "circle-open", plotting.COLOURS["verdict"]),
    "not measured": ("not measured", "line-ew-open", plotting.COLOURS["control"]),
}
"""What each verdict is called, and its mark."""
COUNTS = "{} hold, {} undecided, {} do not"
ACROSS = 2


def glance(rows: DataFrame) -> Chart:
    """The verdicts on all claims as one picture.

    Args:
        rows: the tables of claims of one or more models.
    """
    return chart_of(
        rows,
        [],
        name="claims",
        title="Which of the paper's claims hold?",
        caption="Bold: holds in reference and reference-mistral. The paper: Zhang et al., 2024, "
        "with models of 7 billion parameters and more; these are small. A claim holds if "
        "one-sided tests at 5% find all its numbers within their bounds. It does not hold if a "
        "corrected test finds one outside. Else it is undecided.",
        draw=_draw,
    )


def verdicts(rows: DataFrame, model: str, groups: tuple[str, ...] = ()) -> dict[str, str]:
    """The verdict on each claim of a model, of some groups or of all, by the claim's name."""
    of_model = select(rows, model=model, **({"group": groups} if groups else {}))
    known: dict[str, str] = {}
    for one in records(DataFrame(of_model[of_model.group != TOGETHER])):
        known.setdefault(one.claim, one.holds)
    return known


ORDER = ("holds here", "not decided", "not measured", "does not hold here")
"""Within a group, claims that hold in the most models come first."""


def _draw(rows: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A panel for each group, a row for each claim, a column for each model."""
    models = keys_of(rows, "model")
    groups: list[tuple[str, ...]] = [(one,) for one in GROUPS if one in {*rows.group}]
    groups.sort(key=lambda some: -len(verdicts(rows, models[0], some)))
    if len(groups) % ACROSS and len(groups) > 1:  # the last two share a panel
        groups[-2:] = [groups[-2] + groups[-1]]
    panels = [_panel(rows, models, some) for some in groups]
    names = [NAMES.get(str(model), str(model)) for model in models]
    every = [[*verdicts(rows, one).values()] for one in models]
    texts = COUNTS + " (of {})" * (not is_narrow())
    *judged, missing = MARKS
    counts = [texts.format(*map(one.count, judged), len(one) - one.count(missing)) for one in every]
    totals = [f"{name}: {count}" for name, count in zip(names, counts, strict=True)]
    return plotting.dot_panels(
        panels,
        tuple(
            plotting.DotAxis((-0.6, len(models) - 0.4), columns=tuple(some))
            for some in (totals, names)
        ),
        across=ACROSS,
        row=18,
        notes=notes,
    )


def _panel(rows: DataFrame, models: Sequence[str], groups: tuple[str, ...]) -> plotting.DotPanel:
    """The claims of one or more groups, those that hold first."""
    by_model = [verdicts(rows, model, groups) for model in models]
    claims = sorted(
        by_model[0],
        key=lambda claim: sorted(ORDER.index(known.get(claim, ORDER[2])) for known in by_model),
    )
    series = [
        plotting.Dots(
            np.array([at if known.get(claim) == verdict else np.nan for claim in claims], float),
            name,
            colour,
            symbol=symbol,
        )
        for verdict, (name, symbol, colour) in MARKS.items()
        for at, known in enumerate(by_model)
    ]
    title = plotting.plain(" · ".join(GROUPS[one] for one in groups))
    short = {claim.key: claim.short for claim in CLAIMS}
    names = tuple(short.get(claim, claim.replace("_", " ")) for claim in claims)
    of_both = [
        known for model, known in zip(models, by_model, strict=True) if model in GALLERY_MODELS
    ]
    strong = tuple(all(one.get(claim) == "holds here" for one in of_both) for claim in claims)
    return plotting.DotPanel(title, names, tuple(series), strong)
