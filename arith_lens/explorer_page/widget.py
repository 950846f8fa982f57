"""The explorer in a notebook: it computes on a click, shows progress, and can be cancelled.

A computation is a generator. The kernel's event loop takes one step of it after another, so between
two steps the kernel reads messages, among them the one that cancels. No thread is used: the model's
hooks belong to one computation at a time.
"""

import asyncio
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arith_lens.explorer_page.tables import SetFacts, Tables, packed

if TYPE_CHECKING:
    from arith_lens.explorer_page.view import Explorer


WIDGET_FOLDER = Path(__file__).parent


def style_sheet() -> str:
    """The style of the explorer."""
    return (WIDGET_FOLDER / "explorer.css").read_text(encoding="utf-8")


def explorer_widget(view: "Explorer") -> Any:
    """The widget of a view. Raises ModuleNotFoundError if anywidget is not installed."""
    return _widget_class()(view)


@cache
def _widget_class() -> type:
    try:
        import anywidget
        import traitlets
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "expected anywidget, which shows the explorer in a notebook, found none installed; "
            "install the extra: pip install 'arith-lens[views]', or save a page with .save(path)"
        ) from error

    class ExplorerWidget(anywidget.AnyWidget):
        """Shows a view, and answers its requests."""

        _esm = (WIDGET_FOLDER / "explorer.js").read_text(encoding="utf-8")
        _css = style_sheet()
        state = traitlets.Unicode().tag(sync=True)
        options = traitlets.Dict().tag(sync=True)

        def __init__(self, view: "Explorer") -> None:
            live = view.respond is not None
            super().__init__(state=packed(view.sets), options={"title": view.title, "live": live})
            self.view = view
            self.tables: dict[str, dict[str, Any]] = {}
            """The DataFrames of every set of prompts, with what was computed by clicks."""
            self._keep(view.sets)
            self._cancelled: set[int] = set()
            self._tasks: set[Any] = set()
            self.on_msg(lambda _, content, buffers: self._receive(content))

        def _receive(self, message: Mapping[str, Any]) -> None:
            if "cancel" in message:
                self._cancelled.add(message["cancel"])
                return
            task = asyncio.ensure_future(self._answer(message))
            self._tasks.add(task)  # else it may be collected before it ends
            task.add_done_callback(self._tasks.discard)

        async def _answer(self, message: Mapping[str, Any]) -> None:
            number = message["id"]
            assert self.view.respond is not None, "a view without a model sends no requests"
            try:
                steps = self.view.respond(message)
                while number not in self._cancelled:
                    try:
                        self.send({"id": number, "progress": next(steps)})
                    except StopIteration as end:
                        self._keep(end.value)
                        self.send({"id": number, "state": packed(end.value)})
                        return
                    await asyncio.sleep(0.01)  # the kernel reads messages
                steps.close()
                self.send({"id": number, "cancelled": True})
            except Exception as error:  # of any kind: it is shown in place
                self.send({"id": number, "error": f"{type(error).__name__}: {error}"})

        def _keep(self, sets: Mapping[str, tuple[SetFacts, Tables]]) -> None:
            from pandas import concat

            for name, (_, tables) in sets.items():
                known = self.tables.setdefault(name, {})
                for table, frame in tables.items():
                    parts = [known[table], frame] if table in known else [frame]
                    known[table] = concat(parts, ignore_index=True)

    return ExplorerWidget
