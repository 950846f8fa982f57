"""One offline page, or a notebook's cell, that carries each bundle of JavaScript once."""

import gzip
import html
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol, runtime_checkable

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'unsafe-inline'; img-src data: blob:"
)
"""Nothing is fetched from anywhere."""

STYLE = (
    "body{font:14px/1.45 'Open Sans','Helvetica Neue',Arial,'Liberation Sans',sans-serif;"
    "color:#1f2430;max-width:1100px;margin:32px auto;padding:0 16px}h1{font-size:18px}"
    "h2{font-size:15px;margin:28px 0 8px}p{color:#6b7280;font-size:12px;margin:4px 0}"
)


@runtime_checkable
class Viewed(Protocol):
    """What a page can hold."""

    @property
    def title(self) -> str: ...
    @property
    def bundle(self) -> str:
        """Of which library it needs the bundle: circuitsvis or plotly."""
        ...

    def script(self, place: str) -> str:
        """JavaScript that draws it into the element with the id `place`."""
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
    """A page that opens without a network, however many views it has: the numbers, and once 1.3 MB
    for circuitsvis' components or 4.8 MB for plotly's.

    Args:
        title, notes: plain text.

    Raises:
        ValueError: no view.
    """
    if not views:
        raise ValueError("expected a view at least, found none")
    parts = []
    for index, view in enumerate(views):
        heading = f"<h2>{html.escape(view.title)}</h2>" if view.title else ""
        parts.append(f'{heading}<div id="view-{index}"></div>')
        parts.append(f"<script>{view.script(f'view-{index}')}</script>")
    bundles = "".join(
        f"<script>{bundle(name)}</script>" for name in sorted({view.bundle for view in views})
    )
    small = "".join(f"<p>{html.escape(note)}</p>" for note in notes)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
        f"{bundles}</head><body><h1>{html.escape(title)}</h1>"
        f"{''.join(parts)}{small}</body></html>\n"
    )


@cache
def packed_bundle() -> str:
    """The bundle as JavaScript that unpacks it, then resolves: a third of its size, for a cell."""
    packed = b64encode(gzip.compress(bundle().encode(), 9, mtime=0)).decode()
    return (
        "window.CircuitsVisReady=window.CircuitsVisReady||new Response(new Blob([Uint8Array.from("
        f"atob('{packed}'),c=>c.charCodeAt(0))]).stream().pipeThrough(new DecompressionStream("
        "'gzip'))).text().then(code=>{const tag=document.createElement('script');"
        "tag.textContent=code+';window.CircuitsVis=CircuitsVis';document.head.append(tag)})"
    )


@cache
def bundle(name: str = "circuitsvis") -> str:
    """The JavaScript of circuitsvis or plotly as it is installed, fit for a classic `<script>`."""
    if name == "plotly":
        from arith_lens.plotting.library import get_plotlyjs

        text = get_plotlyjs()
    else:
        try:
            import circuitsvis
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "expected circuitsvis, which shows attention patterns, found none installed; "
                "install the extra: pip install 'arith-lens[views]'"
            ) from error

        path = Path(circuitsvis.__file__).parent / "dist" / "cdn" / "iife.js"
        text = path.read_text(encoding="utf-8").partition("//# sourceMappingURL")[0]
    return text.replace("</script", "<\\/script")
