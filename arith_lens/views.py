"""Pages that open offline: attention patterns to click on (circuitsvis), and figures of plotly."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

import numpy as np
from jaxtyping import Float

from arith_lens.plotting import COLOURS, compressed, document, library, packed_library, render

JOINER = "\u2060"  # WORD JOINER: invisible in HTML, on a canvas and in tooltips
_SHOWN = str.maketrans(
    {"\n": "↵", "\r": "↵", "\t": "⇥", "\u2028": "↵", "\u2029": "↵"}
    | {"&": f"&{JOINER}", "<": f"<{JOINER}"}
)
_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def safe_token(token: str) -> str:
    """A token as circuitsvis may show it: `<` and `&` begin no tag and no entity.

    Some of its components put tokens into the page as HTML, others draw them; an escaped token
    would show its escapes in the latter, so an invisible character keeps letters apart instead.
    """
    return token.translate(_SHOWN)


def script_json(value: Any) -> str:
    """JSON for inside a `<script>`, which no text in it can end. Raises ValueError for NaN."""
    return json.dumps(value, allow_nan=False).translate(_ESCAPES)


POLICY = (
    "default-src 'none'; script-src 'self' file: 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'unsafe-inline'; img-src data: blob:"
)
"""Nothing is fetched but scripts beside the page."""

_VIEWS = """<details class="views"{{ " open" if is_open }} data-bundles="{{ bundles }}">
<summary>{{ summary }}</summary>
{% for view in views %}
{% if view.title %}<h2>{{ view.title }}</h2>{% endif %}
<div class="box"><div id="{{ name }}-{{ loop.index0 }}"></div></div>
{% endfor %}
<script type="text/plain">{{ script }}</script></details>"""


@runtime_checkable
class Viewed(Protocol):
    """What a page can hold."""

    @property
    def title(self) -> str: ...
    @property
    def bundle(self) -> str:
        """Of which library it needs the bundle: circuitsvis, plotly or explorer-code."""
        ...

    def script(self, element: str) -> str:
        """JavaScript that draws it into the element with the id `element`."""
        ...

    def to_html(self, *, notes: Sequence[str] = ()) -> str:
        """An offline page of this view alone, with notes below it."""
        ...


def save_page(
    path: str | Path, views: Sequence[Viewed], *, title: str, notes: Sequence[str] = ()
) -> Path:
    """Write `page` to a file; the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(views, title=title, notes=notes), encoding="utf-8")
    return path


def page(views: Sequence[Viewed], *, title: str, notes: Sequence[str] = ()) -> str:
    """A page that opens without a network, however many views it has: the numbers, and once 0.5 MB
    for circuitsvis' components or 1.9 MB for plotly's.

    Args:
        title, notes: plain text.

    Raises:
        ValueError: no view.
    """
    if not views:
        raise ValueError("expected a view at least, found none")
    body = views_html(views, is_open=True)
    return document(title, body, notes=notes, head=packed_bundles(views), policy=POLICY)


def views_html(
    views: Sequence[Viewed], *, name: str = "view", summary: str = "Views", is_open: bool = False
) -> str:
    """The views for a page whose shell draws them when they are unfolded."""
    bundles = " ".join(sorted({view.bundle for view in views}))
    script = "\n".join(view.script(f"{name}-{index}") for index, view in enumerate(views))
    parts = {"views": views, "name": name, "summary": summary, "is_open": is_open}
    return render(_VIEWS, bundles=bundles, script=compressed(script), **parts)


def packed_bundles(views: Sequence[Viewed]) -> str:
    """The libraries that views need, for the head of a page."""
    names = sorted({view.bundle for view in views})
    tags = (f'<script type="text/plain" id="{name}">{packed(name)}</script>' for name in names)
    return "".join(tags)


def packed(name: str) -> str:
    """A bundle as base64 of compressed text."""
    return compressed(bundle(name)) if name == "explorer-code" else packed_library(name)


@cache
def packed_bundle() -> str:
    """The bundle as JavaScript that unpacks it, then resolves: a third of its size, for a cell."""
    text = packed("circuitsvis")
    return (
        "window.CircuitsVisReady=window.CircuitsVisReady||new Response(new Blob([Uint8Array.from("
        f"atob('{text}'),c=>c.charCodeAt(0))]).stream().pipeThrough(new DecompressionStream("
        "'gzip'))).text().then(code=>{const tag=document.createElement('script');"
        "tag.textContent=code+';window.CircuitsVis=CircuitsVis';document.head.append(tag)})"
    )


EXPLORER_FILES = (
    *("elements.js", "cards.js", "card.js", "layout.js", "route.js", "graph.js", "export.js"),
    *("map.js", "knockout.js", "summary.js", "explorer.js"),
)
"""The explorer's JavaScript; each file uses only those before it."""


def explorer_code() -> str:
    """The explorer's JavaScript, as a module."""
    folder = Path(__file__).parent / "explorer_page"
    files = (folder / name for name in EXPLORER_FILES)
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def bundle(name: str = "circuitsvis") -> str:
    """The JavaScript of circuitsvis, plotly or the explorer, fit for a classic `<script>`."""
    if name != "explorer-code":
        return library(name)
    return explorer_code().partition("export default")[0].replace("</script", "<\\/script")


PATTERN_SCALE = {
    "minValue": 0,
    "maxValue": 1,
    "negativeColor": COLOURS["control"],
    "positiveColor": COLOURS["verdict"],
    "maskUpperTri": True,
}
"""How circuitsvis draws weights between 0 and 1."""
MOST_HEADS = 64
"""More thumbnails would take a browser half a minute and more."""
N_DIGITS = 4
WIDTH = 680  # pixels in a notebook; a pattern is as high as wide


@dataclass(frozen=True)
class View:
    """One component with its data; shows itself in a notebook, and saves as a page."""

    component: str
    props: dict[str, Any] = field(repr=False)
    title: str = ""
    bundle: str = "circuitsvis"

    def script(self, element: str) -> str:
        """JavaScript that draws it into the element with the id `element`."""
        return (
            f"CircuitsVis.render({script_json(element)}, CircuitsVis.{self.component}, "
            f"{script_json(self.props)});"
        )

    def save(self, path: str | Path, *, title: str | None = None) -> Path:
        """Write an offline page; its path."""
        return save_page(path, [self], title=title or self.title or self.component)

    def to_html(self, *, notes: Sequence[str] = ()) -> str:
        """An offline page of this view alone, with notes below it."""
        return page([self], title=self.title or self.component, notes=notes)

    def _repr_html_(self) -> str:
        """For a notebook: the first view of a kernel brings the bundle, and again if it is shown
        again, since its new output takes the old one's place; the others wait for it."""
        element = f"view-{uuid4().hex[:12]}"
        own = self.script("")
        _FirstView.first = _FirstView.first or own
        return render(
            _CELL,
            bundle=packed_bundle() if _FirstView.first == own else "",
            width=WIDTH,
            element=element,
            script=self.script(element),
        )


_CELL = """{% if bundle %}<script>{{ bundle|safe }}</script>{% endif %}
<div style="max-width:{{ width }}px">
<div id="{{ element }}">Run this notebook from the top, or trust it, to see this view.</div></div>
<script>(function draw(left) {
  if (window.CircuitsVis) {
    document.getElementById("{{ element }}").textContent = "";
    {{ script|safe }}
  } else if (left) setTimeout(draw, 100, left - 1);
})(100)</script>"""


class _FirstView:
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
            "hardly draws; choose key heads, or take al.explore, which shows one head at a time"
        )
    if weights.shape[1:] != (len(tokens), len(tokens)):
        raise ValueError(
            f"expected patterns over {len(tokens)} tokens, found {list(weights.shape[1:])}"
        )
    if not np.isfinite(weights).all():
        raise ValueError("expected finite numbers in a view, found NaN or infinity")
    props = {
        "attention": np.round(weights, N_DIGITS).tolist(),
        "tokens": [safe_token(token) for token in tokens],
        **PATTERN_SCALE,
        "attentionHeadNames": [safe_token(name) for name in names],
    }
    return View("AttentionHeads", props, title)


@dataclass(frozen=True)
class FigureView:
    """A figure of plotly with what it lets one do, such as moving a slider."""

    data: dict[str, Any] = field(repr=False)
    """Its JSON."""
    title: str = ""
    bundle: str = "plotly"

    @classmethod
    def of(cls, figure: Any, title: str = "") -> "FigureView":
        """The view of a figure."""
        return cls(json.loads(figure.to_json()), title)

    def script(self, element: str) -> str:
        """JavaScript that draws it into the element with the id `element`."""
        data, layout = script_json(self.data["data"]), script_json(self.data["layout"])
        return f"Plotly.newPlot({script_json(element)}, {data}, {layout}, {{displaylogo: false}});"

    def to_html(self, *, notes: Sequence[str] = ()) -> str:
        """An offline page of this view alone, with notes below it."""
        return page([self], title=self.title, notes=notes)
