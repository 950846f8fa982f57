"""All heads as one map; a click shows where that head looks. For models of a thousand heads."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from arith_lens.plotting import plain, symmetric_limit, visible
from arith_lens.plotting.style import BLUE, DARK, FONT, colour_scale
from arith_lens.views.page import save_page
from arith_lens.views.safety import script_json

_SCRIPT = """(() => {
const DATA = %s, place = document.getElementById(%s);
const [map, told, row] = ["div", "p", "div"].map(kind => document.createElement(kind));
map.id = place.id + "-map"; row.id = place.id + "-row";
told.textContent = "Click a head to see which tokens END looks at.";
place.replaceChildren(map, told, row);
const shown = {displaylogo: false, responsive: true};
function show(layer, head) {
  Plotly.react(row, [{type: "bar", x: DATA.places, y: DATA.weights[layer][head],
    marker: {color: DATA.colour}, hovertemplate: "%%{y:.3f}<extra></extra>"}],
    Object.assign({}, DATA.layout, {title: {text: "Head " + layer + "." + head + " from END",
      x: 0, font: {size: 14}}}), shown);
}
Plotly.newPlot(map, DATA.map.data, DATA.map.layout, shown);
map.on("plotly_click", event => show(event.points[0].y, event.points[0].x));
show(DATA.first[0], DATA.first[1]);
})();"""


@dataclass(frozen=True)
class HeadMap:
    """A map of every head, and below it the chosen head's weights from END."""

    data: dict[str, Any] = field(repr=False)
    title: str = ""
    bundle: str = "plotly"

    def script(self, place: str) -> str:
        """JavaScript that draws it into the element with the id `place`."""
        return _SCRIPT % (script_json(self.data), script_json(place))


def head_map(
    values: Float[np.ndarray, "layer head"],
    from_end: Float[np.ndarray, "layer head key"],
    tokens: Sequence[str],
    *,
    values_title: str = "effect",
    title: str = "",
) -> HeadMap:
    """The strongest head by |value| is shown at first. Tokens stand at their positions, so that
    repeated ones stay apart.

    Args:
        values: what the map shows, such as mean effects
        from_end: END's attention of every head over one prompt
        tokens: that prompt's
        values_title, title: plain text

    Raises:
        ValueError: shapes that do not fit, or numbers that are not finite
    """
    values, from_end = np.asarray(values, dtype=float), np.asarray(from_end, dtype=float)
    if values.ndim != 2 or from_end.shape != (*values.shape, len(tokens)):
        raise ValueError(
            f"expected values [layer head] and weights [layer head key] over {len(tokens)} tokens, "
            f"found {list(values.shape)} and {list(from_end.shape)}"
        )
    if not (np.isfinite(from_end).all() and np.isfinite(values).all()):
        raise ValueError("expected finite values and weights, found NaN or infinity")
    first = np.unravel_index(int(np.nanargmax(np.abs(values))), values.shape)
    places = list(range(len(tokens)))
    layout = {
        "height": 260,
        "margin": {"l": 60, "r": 20, "t": 40, "b": 80},
        "font": {"family": FONT, "size": 12, "color": DARK},
        "yaxis": {"range": [0, 1], "title": {"text": "Attention"}},
        "xaxis": {"tickvals": places, "ticktext": [plain(visible(t)) for t in tokens],
                  "tickangle": -60},
    }  # fmt: skip
    data = {
        "places": places,
        "weights": np.round(from_end, 3).tolist(),
        "colour": BLUE,
        "first": [int(i) for i in first],
        "layout": layout,
        "map": json.loads(_map(values, values_title)),
    }
    return HeadMap(data, title)


def save_head_map(
    path: str | Path,
    values: Float[np.ndarray, "layer head"],
    from_end: Float[np.ndarray, "layer head key"],
    tokens: Sequence[str],
    *,
    title: str,
    values_title: str = "effect",
    notes: Sequence[str] = (),
) -> Path:
    """One offline page of `head_map`, with `notes` (plain text) below it; the path.

    Raises:
        ValueError: as `head_map`
    """
    view = head_map(values, from_end, tokens, values_title=values_title)
    return save_page(path, [view], title=title, notes=notes)


def _map(values: Float[np.ndarray, "layer head"], values_title: str) -> str:
    from arith_lens.plotting.library import go

    end = symmetric_limit(values)
    figure = go.Figure()
    figure.add_heatmap(
        z=values,
        zmin=-end,
        zmax=end,
        colorscale=colour_scale(),
        colorbar={"title": {"text": plain(values_title)}, "thickness": 12},
        hovertemplate=f"head <b>%{{y}}.%{{x}}</b> {plain(values_title)} %{{z:.4g}}<extra></extra>",
    )
    figure.update_layout(
        template="none",
        font={"family": FONT, "size": 12},
        height=120 + 14 * max(len(values), 16),
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
        xaxis={"title": "Head"},
        yaxis={"title": "Layer", "autorange": "reversed"},
    )
    return str(figure.to_json())
