"""Pictures of `Effects`, which draws itself with them: the mean as a map, or lines of measures."""

from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float

from arith_lens import plotting


def heatmap(effects: Any, **options: Any) -> Any:
    """A plotly figure; see `Effects.heatmap`."""
    return plotting.heatmap(_grid(effects), **(_legend(effects) | options))


def figure_html(effects: Any, name: str = "", **options: Any) -> str:
    """An `<img>`; see `Effects.figure_html`. Options are those of `map_svg`."""
    if effects.axes[1:] == ("measure",):
        return _measures(effects)
    if name:
        options["title"] = f"{name}: {_legend(effects)['title']}"
    return plotting.as_image(map_svg(effects, **options), alt=repr(effects))


def map_svg(effects: Any, **options: Any) -> str:
    """The map as an `<svg>` element. Options are those of `svg_heatmap`."""
    return plotting.svg_heatmap(_grid(effects), **(_legend(effects) | options))


def _measures(effects: Any) -> str:
    """A chart a measure along the other axis, because each has a unit of its own."""
    mean, (low, high) = effects.mean().numpy(), effects.ci().numpy()
    names = (effects.labels or {}).get("measure") or tuple(map(str, range(mean.shape[1])))
    x, charts = np.arange(len(mean)), []
    for i, name in enumerate(names):
        line = plotting.Line(
            x, mean[:, i], name, plotting.COLOURS["verdict"], low[:, i], high[:, i]
        )
        across, title = effects.axes[0], effects.metric
        charts.append(plotting.svg_lines([line], x_title=across, y_title=name, title=title))
    return "".join(plotting.as_image(chart, alt=repr(effects)) for chart in charts)


def _grid(effects: Any) -> Float[np.ndarray, "row column"]:
    """The means as one map: a single row for one axis, leading axes unrolled beyond two; in percent
    where they are shares of the logit."""
    means = effects.mean().numpy() * (100 if _unit(effects) else 1)
    return means.reshape(-1, means.shape[-1] if means.ndim else 1)


def _unit(effects: Any) -> str:
    return "%" if effects.metric.startswith(("relative_", "share_of_", "interchange")) else ""


def _legend(effects: Any) -> dict[str, Any]:
    leading, last = ", ".join(effects.axes[:-1]), effects.axes[-1] if effects.axes else ""
    paths = f" (paths {effects.paths})" if effects.paths else ""
    names, unit = effects.labels or {}, _unit(effects)
    return {
        "axes": (leading, last),
        "title": f"{effects.metric}{paths}",
        "rows": _row_names(effects) if names.keys() & {*effects.axes[:-1]} else (),
        "columns": names.get(last, ()),
        "unit": unit,
        "limit": plotting.symmetric_limit(_grid(effects), 100) if unit else None,
    }


def _row_names(effects: Any) -> tuple[str, ...]:
    """The names of the map's rows: those of all leading axes, such as "5.5, q"."""
    sizes = effects.per_pair.shape[: len(effects.axes) - 1]
    names = [
        (effects.labels or {}).get(axis) or tuple(map(str, range(size)))
        for axis, size in zip(effects.axes, sizes, strict=False)
    ]
    return tuple(map(", ".join, product(*names))) if names else ()
