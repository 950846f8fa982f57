"""The explorer: its tables in packed form, its page, and its widget for a notebook.

In a notebook it computes on a click, shows progress, and can be cancelled. A computation is a
generator. The kernel's event loop takes one step of it after another, so between two steps the
kernel reads messages, among them the one that cancels. No thread is used: the model's hooks belong
to one computation at a time.
"""

import asyncio
import gzip
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from arith_lens.arrays import in_new_folder
from arith_lens.plotting import palette, render, write_libraries
from arith_lens.views import PATTERN_SCALE, POLICY, bundle, explorer_code, script_json

if TYPE_CHECKING:
    from pandas import DataFrame, Series


def _style() -> str:
    """The style sheet, with the inks of all pictures in both themes."""
    dark = palette(".ale[data-theme=dark]", dark=True)
    text = (Path(__file__).parent / "explorer.css").read_text(encoding="utf-8")
    return f"{palette('.ale')}\n@media screen {{ {dark} }}\n{text}"


Tables: TypeAlias = "Mapping[str, DataFrame]"
SetFacts: TypeAlias = Mapping[str, Any]
"""About one set of prompts: `setup` (code that makes `model` and `pairs`), `note` (text), `missing`
(by table, why it is not computed), `maps_only` (whether only maps are computed), `wordings` (the
text of each template), `candidates` (the tokens of `digit_contrast` where answers are no digits),
`strongest` (heads), `beside` (the set with which the page compares it at first), `rows` (the pairs
that are shown), `edge_rows` (those of measured edges), `stream_rows` (those of the stream),
`n_pairs`."""

TableSteps = Generator[float, None, Mapping[str, tuple[SetFacts, Tables]]]
"""A computation in steps: it yields how much of it is done, and returns new tables by set."""
Respond = Callable[[Mapping[str, Any]], TableSteps]
"""What computes the answer to a request of the widget."""

N_DIGITS = 4
"""Significant digits of numbers on a page."""

TABLES = {
    "effects": "one row per paths, metric and component: mean effect, 95% interval, key head",
    "held": "one row per paths, metric and component: effect with the final norm's scale held, "
    "95% interval",
    "units": "one row per paths, metric, component and unit (template or problem): mean effect",
    "prompt_effects": "one row per component and prompt of the sample: effect",
    "prompts": "one row per prompt of the sample: its texts, answer, problem and template",
    "tokens": "one row per token of these prompts: its text and role",
    "attention": "one row per head and role: attention from END, 95% interval",
    "kinds": "one row per head: operand, operator or other",
    "patterns": "one row per head, prompt, query and key: attention weight",
    "numbers": "one row per component, what is read, and role (A, B, C, others): logit, interval",
    "digits": "one row per component, what is read, prompt and digit, or answer: logit",
    "edges": "one row per measured edge: receiver, input, sender, its role, effect, interval",
    "prompt_edges": "one row per such edge and prompt of the sample: effect",
    "inputs": "one row per head, input (q, k, v) and sender: share of the head's change, interval; "
    "one row without input: the share that no single sender explains",
    "mediation": "one row per head and MLP: what the MLP mediates of its effect, and alone",
    "neurons": "one row per MLP and strong neuron: direct effect, interval, cosines with digits",
    "stream": "one row per layer and token of one wording: effect of the residual stream, interval",
    "sets": "one row per knocked-out or kept set of components: accuracy, 95% interval, mean p(C)",
    "controls": "one row per random set of as many components: accuracy, mean p(C)",
    "answers": "one row per such set and prompt: p(C), the most likely tokens",
}
"""What each table has rows of."""

CODE = {
    "effects": 'effects = al.path_patch(model, pairs, paths={paths}, metric={metric})\n'
    "table = effects.to_dataframe()",
    "units": "effects = al.path_patch(model, pairs, paths={paths}, metric={metric})\n"
    "from arith_lens.effects import effect_tables\n"
    'table = effect_tables(effects)["units"].query("component == \'{component}\'")',
    "attention": 'looks = al.attention_by_role(model, pairs, "{component}")\n'
    "table = looks.to_dataframe()",
    "patterns": "from arith_lens.attention import patterns_of\n"
    'patterns = patterns_of(model, {reference}, "{component}")\n'
    "table = patterns.to_dataframe()",
    "numbers": 'probe = al.head_probe(model, pairs, "{component}")\n'
    "table = probe.to_dataframe()",
    "added": "added = al.logit_attribution(model, pairs[{rows}], {candidates})\n"
    'table = added.to_dataframe().query("component == \'{component}\'")',
    "mlp_numbers": 'probe = al.mlp_probe(model, pairs, read="{read}", unit="logit")\n'
    'table = probe.to_dataframe().query("layer == {layer}")',
    "edges": 'edges = al.edge_effects(model, pairs[{edge_rows}], {receivers}, positions="each")\n'
    "table = edges.to_dataframe()",
    "stream": 'effects = al.path_patch(model, pairs[{stream_rows}], senders="resid_post",\n'
    '    positions="each", paths="total", engine="hooks")\ntable = effects.stream.to_dataframe()',
    "inputs": 'feeding = al.composition(model, pairs[{rows}], "{component}")\n'
    "table = feeding.to_dataframe()",
    "mediation": 'mediation = al.mediators(model, pairs[{rows}], "{component}")\n'
    "table = mediation.to_dataframe()",
    "neurons": 'neurons = al.neuron_effects(model, pairs[{rows}], "{component}")\n'
    'table = neurons.to_dataframe().sort_values("mean")',
    "knock_out": 'without = al.knock_out(model, pairs, {members})\n'
    "table = without.to_dataframe()",
    "keep_only": 'kept = al.keep_only(model, pairs, {members}, among="{among}", positions="end")\n'
    "table = kept.to_dataframe()",
}  # fmt: skip
"""The lines that compute a picture's table; names in braces are what is chosen."""


def packed(parts: Mapping[str, tuple[SetFacts, Tables]]) -> str:
    """Facts and tables of sets of prompts, as base64 of compressed JSON.

    Numbers are rounded to `N_DIGITS` significant digits; NaN becomes null.
    """
    sets = [
        {"name": name, "facts": dict(facts), "tables": {
            table: {str(column): _column(values) for column, values in frame.items()}
            for table, frame in tables.items() if len(frame)
        }}
        for name, (facts, tables) in parts.items()
    ]  # fmt: skip
    text = json.dumps({"sets": sets, "code": CODE}, allow_nan=False, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def unpacked(text: str) -> dict[str, Any]:
    """The JSON of `packed`."""
    return json.loads(gzip.decompress(b64decode(text)))


def _column(values: "Series") -> Any:
    """Numbers as a list; texts as their levels, and the code of each."""
    array = values.to_numpy()
    if array.dtype.kind in "ib":
        return array.tolist()
    if array.dtype.kind == "f":
        return [float(f"{x:.{N_DIGITS}g}") if np.isfinite(x) else None for x in array.tolist()]
    codes, levels = values.astype(str).factorize()
    return {"levels": list(levels), "codes": codes.tolist()}


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{{ policy|safe }}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>:root { color-scheme: light dark } body { margin: 0; background: light-dark(#fff, #15181e) }
footer { max-width: 1600px; margin: 0 auto; padding: 0 16px 30px;
  color: light-dark(#5b6472, #a3adbd);
  font: 12.5px/1.5 'Open Sans', 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif }
footer p { max-width: 800px; margin: 2px 0 }</style>
<script>{{ bundle|safe }}</script>
</head><body>
<noscript>This page draws its tables with JavaScript.</noscript>
<main id="explorer"></main>
{% if notes %}<footer>{% for note in notes %}<p>{{ note }}</p>{% endfor %}</footer>{% endif %}
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
    everything: Callable[[], Mapping[str, tuple[SetFacts, Tables]]] | None = field(
        default=None, repr=False
    )
    """Computes all tables of a page; None: there is no model to compute them from."""
    bundle: str = "explorer-code"

    def script(self, element: str, *, theme: str = "", page: bool = False) -> str:
        """JavaScript that draws it into an element.

        Args:
            theme: "light" or "dark"; empty: the reader's choice.
            page: whether it is a page of its own, whose address and title follow the choice.
        """
        options = {"title": self.title, "style": _style(), "theme": theme, "page": page}
        options |= {"patterns": PATTERN_SCALE if find_spec("circuitsvis") else None}
        return (
            f"ArithLensExplorer.mount(document.getElementById({script_json(element)}), "
            f"{script_json(packed(self.sets))}, {script_json(options)});"
        )

    def to_html(self, *, notes: Sequence[str] = ()) -> str:
        """An offline page, with notes below it. It reads `circuitsvis.js` from its folder when the
        reader opens attention patterns."""
        script = self.script("explorer", page=True)
        code = bundle(self.bundle)
        words = {"title": self.title, "notes": notes}
        return render(_PAGE, policy=POLICY, bundle=code, script=script, **words)

    def save(self, path: str | Path, *, maps_only: bool = False) -> Path:
        """Write an offline page, and `circuitsvis.js` beside it; return its path.

        Args:
            path: the page's file.
            maps_only: whether to write only what is computed by now, such as the map. Otherwise
                every part of every head and MLP is computed first, if there is a model. It takes a
                minute for a small model, and hours for a large one on a CPU.
        """
        path = in_new_folder(path)
        whole = self
        if self.everything and not maps_only:
            whole = replace(self, sets=self.everything())
        text = whole.to_html()
        path.write_text(text, encoding="utf-8")
        if not maps_only and find_spec("circuitsvis"):
            write_libraries(path.parent, text)
        return path

    def widget(self) -> Any:
        """The view as an anywidget.

        Raises:
            ModuleNotFoundError: anywidget is not installed; the message says how to install it.
        """
        return _widget_class()(self)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.widget()._repr_mimebundle_(**options)


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

        _esm = explorer_code()
        _css = _style()
        state = traitlets.Unicode().tag(sync=True)
        options = traitlets.Dict().tag(sync=True)

        def __init__(self, view: Explorer) -> None:
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
