"""One HTML page of an audit: the answer first, then the map, then every number."""

from collections.abc import Iterator
from math import isnan
from typing import Any

from arith_lens.auditing.verdicts import Measure
from arith_lens.plotting import document, render

WIDTH, HEIGHT = 150, 16
"""Pixels of the strip that shows a number from 0 to 1."""
NAMES = {"digit_contrast": "C's lead over the other answers", "logit": "C's logit"}
MARKS = {"holds": "●", "fails": "○", "open": "◐"}

_STRIP = """
{% if dot is none %}<span class="none">not measured</span>{% else %}
<svg width="{{ width }}" height="{{ height }}" role="img" aria-label="{{ words }}">
<line x1="0" y1="8" x2="{{ width }}" y2="8" stroke="#d8dbe2"/>
{% if controls %}<rect x="{{ controls[0] }}" y="3" width="{{ controls[1] }}" height="10"
 fill="currentColor" opacity="0.4"/>{% endif %}
{% if interval %}<line x1="{{ interval[0] }}" y1="8" x2="{{ interval[1] }}" y2="8"
 stroke="currentColor" stroke-width="2"/>{% endif %}
<circle cx="{{ dot }}" cy="8" r="4" fill="currentColor"/></svg>{% endif %}
""".strip()
_ANSWER = """
<table class="verdicts">
{% for row in rows %}<tr>
<th scope="row">{{ row.question }}</th>
<td class="verdict"><b>{{ row.mark }} {{ row.verdict }}</b></td>
<td>{{ row.strip }}</td><td>{{ row.sentence }}</td>
</tr>{% endfor %}</table>
""".strip()
_PAGE = """
{{ answer }}
<p class="small">A dot is the number, a line its 95% interval over problems, a grey bar the range of
the controls; each strip goes from 0 to 1. Heads were chosen on one half of the problems, and the
numbers are of the other half.</p>
{% if image %}<h2>Which heads</h2>{{ image|safe }}
<p class="small">The effect on {{ metric }} of giving each head its counterfactual output at END.
Kept alone: {{ heads }}.</p>{% endif %}
{% if strongest %}<p class="small">The strongest {% for lens, heads in strongest %}
{{ lens }}: {{ heads|join(", ") }}{{ "; " if not loop.last else "." }}{% endfor %}</p>{% endif %}
{% if readers %}<h2>What each head reads</h2>
<table class="numbers"><tr><th>head</th><th>strongest path into it</th><th>effect on C's logit</th>
</tr>{% for row in readers %}<tr><td>{{ row.head }}</td>
<td>{{ row.reads }}, by its {{ row.input }}</td><td>{{ "%.2f"|format(row.effect) }}</td></tr>
{% endfor %}</table>{% endif %}
<h2>Every number</h2>
<div class="wide" tabindex="0"><table class="numbers">
<tr>{% for name in columns %}<th>{{ name }}</th>{% endfor %}</tr>
{% for cells in table %}<tr>{% for cell in cells %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table></div>
""".strip()


def answer_of(audit: Any) -> str:
    """The verdict on each question, as an HTML table."""
    rows = []
    for question, sentence in audit.sentences().items():
        first = audit.first(question)
        row = {"question": question, "verdict": first.verdict, "sentence": sentence}
        rows.append({**row, "mark": MARKS[first.verdict], "strip": _strip(first.measure)})
    return render(_ANSWER, rows=rows)


def page_of(audit: Any) -> str:
    """The whole page."""
    effects = audit.effects
    table = audit.verdicts
    title = f"Audit of {audit.model}"
    body = render(
        _PAGE,
        answer=answer_of(audit),
        image="" if effects is None else effects.heads.figure_html("effects"),
        metric="" if effects is None else NAMES.get(effects.heads.metric, effects.heads.metric),
        strongest=[*audit.strongest.items()],
        readers=[*audit.readers().itertuples()],
        heads=", ".join(map(str, audit.heads)) or "none",
        columns=[*(str(name).replace("_", " ") for name in table.columns), "why it is open"],
        table=[
            [*_cells(row), one.reason]
            for row, one in zip(table.itertuples(index=False), audit.rows, strict=True)
        ],
    )
    return document(title, body, links=[("Numbers (CSV)", "audit.csv")])


def _cells(row: Any) -> Iterator[str]:
    for value in row:
        if isinstance(value, float):
            yield "" if isnan(value) else f"{value:.3f}"
        else:
            yield str(value)


def _strip(measure: Measure) -> str:
    """A number, its interval and its controls on a line from 0 to 1."""

    def span(low: float, high: float, *, least: float = 0.0) -> tuple[float, float] | None:
        if isnan(low) or isnan(high):
            return None
        return _pixels(low), max(least, _pixels(high) - _pixels(low))

    controls = ""
    if not isnan(measure.control_low):
        controls = f", controls {measure.control_low:.0%} to {measure.control_high:.0%}"
    interval = span(measure.low, measure.high)
    return render(
        _STRIP,
        width=WIDTH,
        height=HEIGHT,
        dot=None if isnan(measure.value) else _pixels(measure.value),
        interval=interval and (interval[0], interval[0] + interval[1]),
        controls=span(measure.control_low, measure.control_high, least=2.0),
        words=f"{measure.value:.0%}{controls}",
    )


def _pixels(value: float) -> float:
    return round(4 + (WIDTH - 8) * min(max(value, 0.0), 1.0), 1)
