"""HTML from jinja2 templates: values enter as text, unless they are `Markup` or marked `safe`."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def render(template: str, **values: Any) -> "Markup":
    """The text of a template with its values, which another template takes as it is."""
    from markupsafe import Markup

    return Markup(environment().from_string(template).render(values))
