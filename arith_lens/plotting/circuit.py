"""Pictures of circuits: layers upwards, heads on the left, MLPs on END's stream, C on top."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arith_lens.plotting.circuit_drawing import ANY_TOKEN, EDGE, Drawing, look_of
from arith_lens.plotting.circuit_drawing import ROLE_NAMES as ROLE_NAMES
from arith_lens.plotting.circuit_drawing import CircuitPanel as CircuitPanel
from arith_lens.plotting.labels import Box
from arith_lens.plotting.page import Sheet
from arith_lens.plotting.style import Figure, plotly, symmetric_limit

N_STEPS, ROOM_OF_SLIDER = 12, 90
"""Steps of the slider, and its height in pixels."""


def legend(panels: Sequence[CircuitPanel]) -> str:
    """How to read the panels: of the marks, those that they have."""
    senders = [role for panel in panels for role in panel.by_token().edges["role"]]
    nodes = [row for panel in panels for row in panel.nodes.itertuples()]
    any_token = '; "any token" means that tokens were not told apart' * (ANY_TOKEN in senders)
    dotted = " A dotted outline: its 95% interval holds 0."
    return (
        "A line ends at the box that reads "
        f"it; it is as broad as the effect on the answer{any_token}. Of two senders in a box the "
        "larger effect counts. 5.5 is head 5 of layer 5. Coloured boxes, wherever they stand, act "
        "at END; unfilled ones write before END."
        + dotted
        * any(row.low <= 0 <= row.high for row in nodes)
    )


def draw_circuits(
    panels: Sequence[CircuitPanel], n_layers: int, *, relative: bool = True
) -> Figure:
    """Draw circuits side by side on one scale of widths and colours.

    One circuit is as wide as a page, and has numbers in its nodes and at its three largest edges.
    Of several, each is as wide as a column of a paper, where they stand one below the other. A
    mouse shows the effect of each edge and node with its interval.

    Args:
        relative: whether effects are shares, shown in percent.
    """
    panels = [panel.by_token() for panel in panels]
    look, across = look_of(panels, n_layers)
    height = look.head + look.row * (n_layers + 1) + look.foot
    size = look.width * across, height * -(-len(panels) // across)
    sheet = Sheet(size, [Box(0, 0, *size)])
    sheet.set_axes(0, {"range": [0, size[0]]}, {"range": [size[1], 0]})
    sheet.update_xaxes(visible=False, fixedrange=True)
    sheet.update_yaxes(visible=False, fixedrange=True)
    sizes = [abs(float(mean)) for panel in panels for mean in panel.edges["mean"]]
    nodes = np.concatenate([panel.nodes["mean"].to_numpy(float) for panel in panels])
    limits = max(sizes, default=1.0), symmetric_limit(nodes[np.isfinite(nodes)], 90)
    drawn = [
        Drawing(
            sheet,
            look,
            n_layers,
            relative,
            limits,
            (index % across * look.width, index // across * height),
        )
        for index in range(len(panels))
    ]
    for drawing, panel in zip(drawn, panels, strict=True):
        drawing.draw(panel)
    points = [point for drawing in drawn for point in drawing.points]
    for name in (EDGE, "node"):
        nodes_of_kind = [point for point in points if point["kind"] == name]
        sheet.add_scatter(
            x=[point["at"][0] for point in nodes_of_kind],
            y=[point["at"][1] for point in nodes_of_kind],
            text=[point["text"] for point in nodes_of_kind],
            customdata=[point["size"] for point in nodes_of_kind],
            name=name,
            mode="markers",
            marker={"size": 14, "color": "rgba(0,0,0,0)"},
            hovertemplate="%{text}<extra></extra>",
        )
    return sheet.finished(left=12)


def with_slider(figure: Figure) -> Figure:
    """A copy of a picture of circuits with a slider for the least effect that is drawn."""
    edges = next(trace for trace in figure.data if trace.name == EDGE)
    layout = figure.layout.to_plotly_json()
    sizes = np.unique(np.array(edges.customdata, dtype=float))
    if len(sizes) < 2:
        return figure
    least = np.unique(np.quantile(sizes, np.linspace(0, 1, N_STEPS), method="lower"))
    steps = []
    for threshold in least:
        chosen = [i for i, size in enumerate(edges.customdata) if float(size) >= threshold]
        data = {name: [[edges[name][i] for i in chosen]] for name in ("x", "y", "text")}
        shapes = [one for one in layout["shapes"] if _size_of(one) >= threshold]
        steps.append(
            {
                "method": "update",
                "label": f"{threshold:.2g}",
                "args": [data, {"shapes": shapes}, [figure.data.index(edges)]],
            }
        )
    slider = {
        "steps": steps,
        "currentvalue": {"prefix": "least effect that is drawn: "},
        "x": 0.03,
        "len": 0.92,
        "y": 0,
        "yanchor": "top",
    }
    layout |= {"sliders": [slider], "margin": {"l": 0, "r": 0, "t": 0, "b": ROOM_OF_SLIDER}}
    layout["height"] += ROOM_OF_SLIDER
    return plotly().graph_objects.Figure({"data": figure.data, "layout": layout})


def _size_of(shape: Mapping[str, Any]) -> float:
    """The size of the edge that a shape is; infinite for other shapes."""
    kind, _, size = str(shape.get("name", "")).partition(" ")
    return float(size) if kind == EDGE else float("inf")
