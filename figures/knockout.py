"""Figure 3: accuracy without the strongest heads and MLPs."""

from dataclasses import replace
from functools import partial
from typing import Any

from figures.common import chosen_run
from figures.exhibit import Chart, chart_of
from figures.options import Options
from figures.tables import knockout as numbers
from figures.tables.base_rates import MAJORITY
from figures.views import curves
from figures.views.curves import CurveChart, Series

RANDOM = Series({"order": "random"}, "random", "control")
SAME_LAYERS = Series({"order": "same layers"}, "same layers", "control 5px,3px", band=False)
GREEDY = Series({"order": "iterative"}, "greedy", "verdict 5px,3px", band=False)
STRONGEST = Series({"order": "effect"}, "strongest")
TEN_OUT = replace(STRONGEST, mark=lambda *_: 10)
"""With a circle at ten heads, the number of the paper's Table 4."""
SHARED: dict[str, Any] = {
    "title": "{operation}, n = {n}",
    "rows": "model",
    "columns": "operation",
    "x": "k",
    "y_title": "right answers",
    "y_range": (-3, 104),
    "base": {"measure": MAJORITY},
}
KNOCKED_OUT = [
    CurveChart(
        {"measure": "accuracy", "components": parts},
        (RANDOM, SAME_LAYERS, GREEDY, strongest),
        x_title=f"{parts} knocked out",
        heading=f"{{model}}: {parts} knocked out",
        **SHARED,
    )
    for parts, strongest in {"heads": TEN_OUT, "MLPs": STRONGEST}.items()
]
KNOCKED_OUT_CAPTION = (
    "What is out gives its counterfactual mean. Order: effects on the same prompts (strongest), "
    "the most costly next (greedy), random, or random in the layers of the strongest. Circles: 10 "
    "heads are out. Bands: 95% intervals over n problems; of random heads the range of draws. "
    "Base rate: always the most frequent answer."
)


def fig3(options: Options) -> list[Chart]:
    """Figure 3: accuracy as heads and MLPs are knocked out, by effect and at random."""
    run = chosen_run(options, "are_they_needed")
    chart = chart_of(
        partial(numbers.table, run),
        [run],
        name="fig3",
        title="Are the strongest heads needed?",
        caption=KNOCKED_OUT_CAPTION,
        draw=partial(curves.draw, charts=KNOCKED_OUT, panel=(190, 150), shared_y=True),
    )
    return [chart]
