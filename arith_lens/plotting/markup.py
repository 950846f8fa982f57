"""HTML from jinja2 templates: values enter as text, unless they are `Markup` or marked `safe`."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arith_lens.plotting.style import palette

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


def shell_style() -> str:
    """The style sheet of all pages, with the inks of both themes."""
    dark = f"@media screen and (prefers-color-scheme: dark) {{ {palette(':root', dark=True)} }}"
    return f"{palette(':root')}\n{dark}\n{shell_file('shell.css')}"


def shell_script() -> str:
    """The script that draws the charts and views of a page."""
    return shell_file("shell.js")


def shell_file(name: str) -> str:
    """A file of the shell."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


_DOCUMENT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
{% if policy %}<meta http-equiv="Content-Security-Policy" content="{{ policy|safe }}">{% endif %}
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>{{ style|safe }}</style>
{{ head|safe }}
</head><body>
{% if links %}<nav class="bar" aria-label="Pages">{% for text, target in links %}
<a href="{{ target }}">{{ text }}</a>{% endfor %}</nav>{% endif %}
<main>{% if heading %}<h1>{{ title }}</h1>{% endif %}
{% if under %}<p class="under">{{ under }}</p>{% endif %}
{{ body|safe }}
<div class="notes">{% for line in notes %}<p>{{ line }}</p>{% endfor %}</div></main>
{% if scripted %}<script>{{ script|safe }}</script>{% endif %}
</body></html>
"""


def document(
    title: str,
    body: str,
    *,
    notes: Iterable[str] = (),
    head: str = "",
    policy: str = "",
    heading: bool = True,
    links: Iterable[tuple[str, str]] = (),
    under: str = "",
) -> "Markup":
    """A page in the one shell of all pages; it needs no network.

    Args:
        title: of the page (plain text).
        notes: lines below (plain text, or `Markup`).
        head: HTML of the head, such as the libraries that the body needs.
        policy: what the page may fetch and run; "": as browsers have it.
        heading: whether the title stands above the body, too.
        links: texts and targets of the bar at the top.
        under: a line below the title.
    """
    parts = {"title": title, "body": body, "notes": notes, "head": head, "links": [*links]}
    scripted = any(f'class="{kind}"' in body for kind in ("chart", "views", "cells"))
    shell = {"style": shell_style(), "script": shell_script(), "scripted": scripted}
    return render(_DOCUMENT, **parts, **shell, policy=policy, heading=heading, under=under)


def render(template: str, **values: Any) -> "Markup":
    """The text of a template with its values, which another template takes as it is."""
    from markupsafe import Markup

    return Markup(environment().from_string(template).render(values))
