"""The explorer as a page, as a part of a page, and in a notebook."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arith_lens.explorer_page.tables import SetFacts, Tables, packed
from arith_lens.explorer_page.widget import explorer_widget, style_sheet
from arith_lens.plotting.markup import render
from arith_lens.views import POLICY, bundle, script_json

TableSteps = Generator[float, None, Mapping[str, tuple[SetFacts, Tables]]]
"""A computation in steps: it yields how much of it is done, and returns new tables by set."""
Respond = Callable[[Mapping[str, Any]], TableSteps]
"""What computes the answer to a request of the widget."""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{{ policy|safe }}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>:root { color-scheme: light dark } body { margin: 0 }</style>
<script>{{ bundle|safe }}</script>
</head><body>
<noscript>This page draws its tables with JavaScript.</noscript>
<main id="explorer"></main>
<script>{{ script|safe }}</script>
</body></html>
"""


@dataclass(frozen=True, eq=False)
class Explorer:
    """Sets of prompts with their tables. It shows itself in a notebook, and saves as a page."""

    sets: Mapping[str, tuple[SetFacts, Tables]] = field(repr=False)
    title: str = "Explorer"
    respond: Respond | None = field(default=None, repr=False)
    """Computes what is not in the tables; None: only what is there is shown."""
    bundle: str = "explorer-code"

    def script(self, element: str, *, theme: str = "") -> str:
        """JavaScript that draws it into an element.

        Args:
            element: its id.
            theme: "light" or "dark"; empty: the reader's choice.
        """
        options = {"title": self.title, "style": style_sheet(), "theme": theme}
        return (
            f"ArithLensExplorer.mount(document.getElementById({script_json(element)}), "
            f"{script_json(packed(self.sets))}, {script_json(options)});"
        )

    def to_html(self) -> str:
        """An offline page."""
        script = self.script("explorer")
        code = bundle(self.bundle)
        return render(_PAGE, policy=POLICY, title=self.title, bundle=code, script=script)

    def save(self, path: str | Path) -> Path:
        """Write the offline page; return its path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_html(), encoding="utf-8")
        return path

    def widget(self) -> Any:
        """The view as an anywidget.

        Raises:
            ModuleNotFoundError: anywidget is not installed; the message says how to install it.
        """
        return explorer_widget(self)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.widget()._repr_mimebundle_(**options)
