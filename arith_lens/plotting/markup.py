"""HTML from jinja2 templates: values enter as text, unless they are `Markup` or marked `safe`."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arith_lens.plotting.style import FONT, NOTE, TEXT

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@cache
def environment(folder: Path | None = None) -> "Environment":
    """What compiles templates: texts, or the files of a folder.

    A name that a template does not know raises an error.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=folder and FileSystemLoader(folder),
    )


_DOCUMENT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
{% if policy %}<meta http-equiv="Content-Security-Policy" content="{{ policy|safe }}">{% endif %}
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
body { font: 14px/1.45 {{ font|safe }}; color: {{ colour }}; max-width: 1100px; margin: 32px auto;
  padding: 0 16px }
h1 { font-size: 18px }
h2 { font-size: 15px; margin: 28px 0 8px }
p { color: {{ note }}; font-size: 12px; margin: 4px 0 }
.box { overflow-x:auto; max-width:100% } /* what is wider than the window scrolls in its box */
table { border-collapse: collapse; border-top: 1.5px solid; border-bottom: 1.5px solid;
  margin: 14px 0 }
th { border-bottom: 1px solid; font-weight: 600 }
th, td { padding: 4px 14px 4px 0; text-align: left; vertical-align: top; white-space: pre-wrap }
</style>
{% for script in scripts %}<script>{{ script|safe }}</script>{% endfor %}
</head><body>{% if heading %}<h1>{{ title }}</h1>{% endif %}
<div class="box">{{ body|safe }}</div>
{% for line in notes %}<p>{{ line }}</p>{% endfor %}
</body></html>
"""


def document(
    title: str,
    body: str,
    *,
    notes: Iterable[str] = (),
    scripts: Iterable[str] = (),
    policy: str = "",
    heading: bool = True,
) -> "Markup":
    """A page that opens without a network.

    Args:
        title: of the page (plain text).
        notes: lines below (plain text, or `Markup`).
        scripts: JavaScript that the body needs.
        policy: what the page may fetch and run; "": as browsers have it.
        heading: whether the title stands above the body, too.
    """
    style = {"font": FONT, "colour": TEXT, "note": NOTE}
    parts = {"title": title, "body": body, "notes": notes, "scripts": scripts}
    return render(_DOCUMENT, **parts, **style, policy=policy, heading=heading)


def render(template: str, **values: Any) -> "Markup":
    """The text of a template with its values, which another template takes as it is."""
    from markupsafe import Markup

    return Markup(environment().from_string(template).render(values))
