"""All heads as one map; a click shows where that head looks. For models of a thousand heads."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from arith_lens.plotting import plain, symmetric_limit, visible
from arith_lens.plotting.style import BLUE, DARK, FONT, colour_scale
from arith_lens.views.page import POLICY, STYLE
from arith_lens.views.safety import script_json

_SCRIPT = """
const map = document.getElementById("map"), row = document.getElementById("row");
function show(layer, head) {
  Plotly.react(row, [{type: "bar", x: DATA.places, y: DATA.weights[layer][head],
    marker: {color: DATA.colour}, hovertemplate: "%{y:.3f}<extra></extra>"}],
    Object.assign({}, DATA.layout, {title: {text: "Head " + layer + "." + head + " from END",
      x: 0, font: {size: 14}}}), {displaylogo: false, responsive: true});
}
map.on("plotly_click", event => show(event.points[0].y, event.points[0].x));
show(DATA.first[0], DATA.first[1]);
"""


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
    """One offline page: a map of `values`, and below it the chosen head's weights from END.

    The strongest head by |value| is shown at first. Tokens stand at their positions, so that
    repeated ones stay apart.

    Args:
        values: what the map shows, such as mean effects
        from_end: END's attention of every head over one prompt
        tokens: that prompt's
        title, values_title, notes: plain text

    Raises:
        ValueError: shapes that do not fit, or numbers that are not finite
    """
    from plotly import graph_objects as go
    from plotly.io import to_html

    values, from_end = np.asarray(values, dtype=float), np.asarray(from_end, dtype=float)
    if values.ndim != 2 or from_end.shape != (*values.shape, len(tokens)):
        raise ValueError(
            f"expected values [layer head] and weights [layer head key] over {len(tokens)} tokens, "
            f"found {list(values.shape)} and {list(from_end.shape)}"
        )
    if not (np.isfinite(from_end).all() and np.isfinite(values).all()):
        raise ValueError("expected finite values and weights, found NaN or infinity")
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
    drawn = to_html(figure, include_plotlyjs=True, full_html=False, div_id="map")
    first = np.unravel_index(int(np.nanargmax(np.abs(values))), values.shape)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = script_json(_data(from_end, tokens, [int(i) for i in first]))
    small = "".join(f"<p>{html.escape(note)}</p>" for note in notes)
    path.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{html.escape(title)}</h1>{drawn}"
        '<p>Click a head to see which tokens END looks at.</p><div id="row"></div>'
        f"{small}<script>const DATA = {data};{_SCRIPT}</script></body></html>\n",
        encoding="utf-8",
    )
    return path


def _data(from_end: np.ndarray, tokens: Sequence[str], first: list[int]) -> dict[str, Any]:
    places = list(range(len(tokens)))
    return {
        "places": places,
        "weights": np.round(from_end, 3).tolist(),
        "colour": BLUE,
        "first": first,
        "layout": {
            "height": 260,
            "margin": {"l": 60, "r": 20, "t": 40, "b": 80},
            "font": {"family": FONT, "size": 12, "color": DARK},
            "yaxis": {"range": [0, 1], "title": {"text": "Attention"}},
            "xaxis": {"tickvals": places, "ticktext": [plain(visible(t)) for t in tokens],
                      "tickangle": -60},
        },
    }  # fmt: skip
