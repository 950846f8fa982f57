"""circuitsvis' components, with safe tokens, and without the network that its own display asks.

Its HTML gets tokens unescaped, and its display in a notebook first tries to reach a web page; here
props are made by hand for the bundle that it ships.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from jaxtyping import Float

from arith_lens.views.page import packed_bundle, page, save_page
from arith_lens.views.safety import safe_token, script_json

MOST_HEADS = 64
"""More thumbnails would take a browser half a minute and more."""
DIGITS = 4
WIDTH = 680  # pixels in a notebook; a pattern is as high as wide
BLUE, RED = "#1c58b0", "#c8302b"


@dataclass(frozen=True)
class View:
    """One component with its data; shows itself in a notebook, and saves as a page."""

    component: str
    props: dict[str, Any] = field(repr=False)
    title: str = ""
    bundle: str = "circuitsvis"

    def script(self, place: str) -> str:
        """JavaScript that draws it into the element with the id `place`."""
        return (
            f"CircuitsVis.render({script_json(place)}, CircuitsVis.{self.component}, "
            f"{script_json(self.props)});"
        )

    def save(self, path: str | Path, *, title: str | None = None) -> Path:
        """Write an offline page; its path."""
        return save_page(path, [self], title=title or self.title or self.component)

    def to_html(self) -> str:
        """An offline page of this view alone."""
        return page([self], title=self.title or self.component)

    def _repr_html_(self) -> str:
        """For a notebook: the first view of a kernel brings the bundle, and again if it is shown
        again, since its new output takes the old one's place; the others wait for it."""
        place = f"view-{uuid4().hex[:12]}"
        own = self.script("")
        _Shown.first = _Shown.first or own
        first = f"<script>{packed_bundle()}</script>" if _Shown.first == own else ""
        return (
            f'{first}<div style="max-width:{WIDTH}px"><div id="{place}">Run this notebook from the '
            "top, or trust it, to see this view.</div></div>"
            f"<script>(function draw(left){{if(window.CircuitsVis){{document.getElementById("
            f"{script_json(place)}).textContent='';{self.script(place)}}}"
            "else if(left)setTimeout(draw,100,left-1)})(100)</script>"
        )


class _Shown:
    """What this kernel has shown first: the view that brings the bundle."""

    first = ""


def attention_heads(
    weights: Float[np.ndarray, "head query key"],
    tokens: Sequence[str],
    names: Sequence[str],
    *,
    title: str = "",
) -> View:
    """A thumbnail a head; a click shows one large, with weights between 0 and 1 on one scale.

    Raises:
        ValueError: more than `MOST_HEADS` heads; shapes or names that do not fit; NaN
    """
    weights = np.asarray(weights, dtype=float)
    if weights.ndim != 3 or len(weights) != len(names) or len(weights) == 0:
        raise ValueError(
            f"expected weights [head query key] with a name for each head, found "
            f"{list(weights.shape)} and {len(names)} names"
        )
    if len(weights) > MOST_HEADS:
        raise ValueError(
            f"expected at most {MOST_HEADS} heads in a view, found {len(weights)}, which a browser "
            "hardly draws; choose key heads, or take save_head_map, which shows one head at a time"
        )
    props = _attention(weights, tokens) | {"attentionHeadNames": [safe_token(n) for n in names]}
    return View("AttentionHeads", props, title)


def _attention(weights: np.ndarray, tokens: Sequence[str]) -> dict[str, Any]:
    n = len(tokens)
    if weights.shape[-2:] != (n, n):
        raise ValueError(f"expected patterns over {n} tokens, found {list(weights.shape[-2:])}")
    return {
        "attention": _rounded(weights),
        "tokens": [safe_token(token) for token in tokens],
        "minValue": 0,
        "maxValue": 1,
        "negativeColor": RED,
        "positiveColor": BLUE,
        "maskUpperTri": True,
    }


def _rounded(values: np.ndarray) -> Any:
    if not np.isfinite(values).all():
        raise ValueError("expected finite numbers in a view, found NaN or infinity")
    return np.round(values, DIGITS).tolist()
