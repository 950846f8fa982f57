"""One offline page, or a notebook's cell, that carries circuitsvis' bundle once."""

import html
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arith_lens.views.circuits import View

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


def save_page(
    path: str | Path, views: Sequence["View"], *, title: str, notes: Sequence[str] = ()
) -> Path:
    """Write `page` to a file; the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(views, title=title, notes=notes), encoding="utf-8")
    return path


def page(views: Sequence["View"], *, title: str, notes: Sequence[str] = ()) -> str:
    """A page that opens without a network, however many views it has: 1.3 MB and their numbers.

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
    small = "".join(f"<p>{html.escape(note)}</p>" for note in notes)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
        f"<script>{bundle()}</script></head><body><h1>{html.escape(title)}</h1>"
        f"{''.join(parts)}{small}</body></html>\n"
    )


@cache
def bundle() -> str:
    """circuitsvis' JavaScript as it is installed, fit for a classic `<script>`."""
    import circuitsvis

    path = Path(circuitsvis.__file__).parent / "dist" / "cdn" / "iife.js"
    text = path.read_text(encoding="utf-8").partition("//# sourceMappingURL")[0]
    return text.replace("</script", "<\\/script")
