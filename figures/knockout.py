"""Figure 3: accuracy without the strongest heads and MLPs."""

from dataclasses import replace
from functools import partial

from figures.common import chosen_run
from figures.exhibit import Chart, chart_of
from figures.options import Options
from figures.tables import knockout as numbers
from figures.tables.base_rates import MAJORITY
from figures.views import curves
from figures.views.curves import CurveChart, Series

RANDOM = Series({"order": "random"}, "random: mean", "control", edge="random: worst")
GREEDY = Series({"order": "iterative"}, "greedy", "verdict 5px,3px", band=False)
STRONGEST = Series({"order": "effect"}, "strongest", text="{value:.0%} [{low:.0%}, {high:.0%}]")
TEN_OUT = replace(STRONGEST, mark=lambda *_: 10)
"""With a circle at ten heads, the number of the paper's Table 4."""
KNOCKED_OUT = {
    parts: CurveChart(
        {"measure": "accuracy", "components": parts},
        (RANDOM, GREEDY, strongest),
        x="k",
        x_title=f"{parts} knocked out",
        y_title="right answers",
        title="{operation}, n = {n}",
        heading="{model}",
        rows="model",
        columns="operation",
        y_range=(-3, 104),
        base={"measure": MAJORITY},
    )
    for parts, strongest in {"heads": TEN_OUT, "MLPs": STRONGEST}.items()
}
CAPTION = (
    "Knocked-out {} output their mean over counterfactual prompts. Strongest: those with the most "
    "negative effects. {}Band: 95% intervals over n problems. Chance: always the commonest answer."
)
OF_HEADS = "Greedy: each time the head that costs most, up to 12. "


def fig3(options: Options) -> list[Chart]:
    """Figure 3: accuracy as heads and MLPs are knocked out, by effect and at random."""
    run = chosen_run(options, "are_they_needed")
    return [
        chart_of(
            partial(numbers.table, run),
            [run],
            name="fig3" + f"_{parts}" * (parts != "heads"),
            table_of="fig3",
            title=f"Are the strongest {parts} needed?",
            caption=CAPTION.format(parts, OF_HEADS * (parts == "heads")),
            draw=partial(curves.draw, charts=[chart], panel=(370, 190), shared_y=True, inside=True),
        )
        for parts, chart in KNOCKED_OUT.items()
    ]
