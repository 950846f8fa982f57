"""One HTML page of an audit: the answer first, then the map, then every number."""

from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any

from arith_lens.auditing.verdicts import FAILS, HOLDS, LENS, NEED, OPEN, TASK, Measure, Verdict
from arith_lens.effects.pictures import figure_html
from arith_lens.plotting import document, render

WIDTH, HEIGHT = 150, 16
"""Pixels of the strip that shows a number from 0 to 1."""
NAMES = {"digit_contrast": "C's lead over the other answers", "logit": "C's logit"}
MARKS = {HOLDS: "●", FAILS: "○", OPEN: "◐"}
DEPENDS = {HOLDS: "◐ yes", FAILS: "● no", OPEN: "◐ open"}
"""The verdict on whether the others depend on the lens: that they do is no success."""

_STRIP = """
{% if dot is none %}<span class="none">not measured</span>{% else %}
<svg width="{{ width }}" height="{{ height }}" role="img" aria-label="{{ words }}">
<line x1="0" y1="8" x2="{{ width }}" y2="8" stroke="#d8dbe2"/>
{% if controls %}<rect x="{{ controls[0] }}" y="3" width="{{ controls[1] }}" height="10"
 fill="currentColor" opacity="0.4"/>{% endif %}
{% if interval %}<line x1="{{ interval[0] }}" y1="8" x2="{{ interval[1] }}" y2="8"
 stroke="currentColor" stroke-width="2"/>{% endif %}
{% for x in hollow %}<circle cx="{{ x }}" cy="8" r="3" fill="none" stroke="currentColor"/>
{% endfor %}<circle cx="{{ dot }}" cy="8" r="4" fill="currentColor"/></svg>{% endif %}
""".strip()
_ANSWER = """
<table class="verdicts">
{% for row in rows %}<tr>
<th scope="row">{{ row.question }}</th>
<td class="verdict"><b>{{ row.verdict }}</b>{% if row.others %}<br>
<span class="small">{{ row.others }}</span>{% endif %}</td>
<td>{{ row.strip }}</td><td>{{ row.sentence }}</td>
</tr>{% endfor %}</table>
""".strip()
_PAGE = """
{{ answer }}
<p class="small">A dot is the number, a line its 95% interval over problems, a grey bar the range of
the controls, a ring another lens whose verdict differs; each strip goes from 0 to 1. Heads were
chosen on one half of the problems, and the numbers are of the other half.</p>
{% if image %}<h2>Which heads</h2>{{ image|safe }}
<p class="small">The effect on {{ metric }} of giving each head its counterfactual output at END.
Framed, and kept alone: {{ heads }}. They were chosen on the first half of the problems, so that
they suffice together.</p>{% endif %}
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
        first, n_same, others = audit.first(question), *_lenses(audit, question)
        verdict = f"{MARKS[OPEN if others else first.verdict]} {first.verdict}"
        row = {"question": question, "sentence": sentence, "strip": _strip(first.measure, others)}
        row["verdict"] = DEPENDS[first.verdict] if question == LENS else verdict
        row["others"] = f"in {n_same} of {n_same + len(others)} lenses" if others else ""
        values = [one.value for one in others if not isnan(one.value)]
        if values and first.verdict == HOLDS:
            worst = max(values) if question == NEED else min(values)
            row["others"] += f"; {worst:.0%} in the worst"
        rows.append(row)
    return render(_ANSWER, rows=rows)


def _lenses(audit: Any, question: str) -> tuple[int, list[Measure]]:
    """How many lenses have the first one's verdict, and the numbers of those that have another."""
    rows: list[Verdict] = [one for one in audit.rows if one.question == question and not one.reason]
    if question == LENS or not rows:
        return 0, []
    others = [one.measure for one in rows if one.verdict != audit.first(question).verdict]
    return len(rows) - len(others), others


def page_of(audit: Any, task: str = "") -> str:
    """The whole page."""
    effects = audit.effects
    table = audit.verdicts
    n = audit.first(TASK).measure.n
    parts = (f"Audit: {audit.model}", task, f"{n} problem{'s'[: n != 1]}" if n else "")
    title = ", ".join(filter(None, parts))
    heads = None if effects is None else effects.heads
    metric = "" if heads is None else NAMES.get(heads.metric, heads.metric)
    body = render(
        _PAGE,
        answer=answer_of(audit),
        image=""
        if heads is None
        else figure_html(
            heads,
            title=f"Effect on {metric}" + ", via MLPs" * (heads.paths == "via_mlps"),
            framed=[(head.layer, head.index) for head in audit.heads],
        ),
        metric=metric,
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


def _strip(measure: Measure, others: Sequence[Measure] = ()) -> str:
    """A number, its interval, its controls and other lenses' numbers on a line from 0 to 1."""

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
        hollow=[_pixels(one.value) for one in others if not isnan(one.value)],
        interval=interval and (interval[0], interval[0] + interval[1]),
        controls=span(measure.control_low, measure.control_high, least=2.0),
        words=f"{measure.value:.0%}{controls}",
    )


def _pixels(value: float) -> float:
    return round(4 + (WIDTH - 8) * min(max(value, 0.0), 1.0), 1)
