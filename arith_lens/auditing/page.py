"""One HTML page of an audit: the answer first, then the map, then every number."""

from collections.abc import Sequence
from itertools import groupby
from math import isnan
from typing import Any

from arith_lens.auditing import verdicts
from arith_lens.auditing.verdicts import Measure, Verdict
from arith_lens.effects.pictures import map_svg
from arith_lens.plotting import document, in_both_schemes, render

WIDTH, HEIGHT = 150, 16
"""Pixels of the strip that shows a number from 0 to 1."""
NAMES = {"digit_contrast": "C's lead over the other answers", "logit": "C's logit"}
MARKS = {verdicts.HOLDS: "●", verdicts.FAILS: "○", verdicts.OPEN: "◐"}
WITH = {verdicts.HOLDS: "with", verdicts.FAILS: "not with", verdicts.OPEN: "open with"}
DEPENDS = {verdicts.HOLDS: "yes", verdicts.FAILS: "no", verdicts.OPEN: "open"}
"""Whether something depends on the lens: that it does is no success, and has no mark."""
NUMBERS = dict(enumerate(("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight")))

_STRIP = """
{% if dot is none %}<span class="none">not measured</span>{% else %}
<svg width="{{ width }}" height="{{ height }}" role="img" aria-label="{{ words }}">
<line x1="0" y1="8" x2="{{ width }}" y2="8" stroke="currentColor" opacity="0.25"/>
{% if controls %}<rect x="{{ controls[0] }}" y="3" width="{{ controls[1] }}" height="10"
 fill="currentColor" opacity="0.4"/>{% endif %}
{% if interval %}<line x1="{{ interval[0] }}" y1="8" x2="{{ interval[1] }}" y2="8"
 stroke="currentColor" stroke-width="2"/>{% endif %}
{% for x in hollow %}<circle cx="{{ x }}" cy="8" r="3" fill="none" stroke="currentColor"/>
{% endfor %}<circle cx="{{ dot }}" cy="8" r="4" fill="currentColor"/></svg>{% endif %}
""".strip()
_ANSWER = """
<table class="verdicts">
{% for row in rows %}<tr><th scope="row">{{ row.question }}</th>
<td class="verdict">{% if row.marks %}{{ row.marks }} {% endif %}<b>{{ row.verdict }}</b></td>
<td>{% if loop.first %}<span class="ends"><span>0</span><span>100%</span></span>{% endif %}
{{ row.strip }}</td><td>{{ row.sentence }}
{%- if row.others %}<br><span class="small">{{ row.others }}</span>{% endif %}</td>
</tr>{% endfor %}</table>
""".strip()
_PAGE = """
{% if lead %}<p><b>{{ lead[0] }}</b><br>{{ lead[1] }}</p>{% endif %}
{{ answer }}
<p class="small">A lens is one way to measure: what replaces the outputs, which score is
read, or where. A mark per lens: ● holds, ◐ open, ○ fails; the first is in words. Dot: its number,
with the 95% interval over problems. Grey: the range of the controls. Ring: a lens with another
verdict. Heads are chosen on one half of the problems, and tested on the other
{%- if n_tested %} (n = {{ n_tested }}){% endif %}.</p>
<div class="pair">{% if image %}<div>
<h2>{{ heads|length or "No" }} of {{ n_heads }} heads are tested
{%- if heads %}: {{ heads|join(", ") }}{% endif %}</h2>
<div role="img" aria-label="The map of the heads">{{ image|safe }}</div>
<p class="small">What each head's counterfactual output at END does to {{ metric }}; means over all
problems. Framed: chosen on one half alone, as few as keep 90% of its answers, or its {{ few }}
strongest. So other heads can be darker here.</p>
</div>{% endif %}{% if readers or strongest %}<div>{% if readers %}<h2>What each head reads</h2>
<table class="cells"><thead><tr><th>head</th><th>strongest path into it</th>
<th class="number">C's logit <small>95% interval</small></th></tr></thead><tbody>
{% for row in readers %}<tr{% if row.open %} class="open"{% endif %}>
<th scope="row">{{ row.head }}</th><td>{{ row.path }}</td>
<td class="number">{{ row.effect }}<small>{{ row.interval }}</small></td></tr>
{% endfor %}</tbody></table>
{% if readers|selectattr("open")|list %}<p class="small">Grey: the interval holds 0, so
this path may do nothing.</p>{% endif %}{% endif %}
{% if strongest %}<p class="small">The strongest {% for lens, heads in strongest %}
{{ lens }}: {{ heads|join(", ") }}{{ "; " if not loop.last else "." }}{% endfor %}</p>{% endif %}
</div>{% endif %}</div>
<h2>Every number</h2>
<div class="box" tabindex="0"><table class="cells"><thead><tr><th>lens</th><th>verdict</th>
<th class="number">number <small>95% interval</small></th><th class="number">controls</th>
<th class="number">n</th></tr></thead>
{% for question, rows in questions %}<tbody>
<tr class="group"><th colspan="5" scope="rowgroup"><span>{{ question }}</span></th></tr>
{% for row in rows %}<tr><th scope="row">{{ row.lens }}</th><td>{{ row.verdict }}
{% if row.reason %}<small>{{ row.reason }}</small>{% endif %}</td>
<td class="number">{{ row.value }}<small>{{ row.interval }}</small></td>
<td class="number">{{ row.controls }}</td><td class="number">{{ row.n or "" }}</td></tr>{% endfor %}
</tbody>{% endfor %}</table></div>
""".strip()


def answer_of(audit: Any) -> str:
    """The verdict on each question, as an HTML table."""
    rows = []
    for question, sentence in audit.sentences().items():
        first, lenses = audit.first(question), _measured(audit, question)
        others = [one.measure for one in lenses if one.verdict != first.verdict]
        row = {"question": question, "sentence": sentence, "others": ""}
        row |= {"verdict": _verdict(first, audit.rows), "strip": _strip(first.measure, others)}
        if first.lens == verdicts.COMPARED and (n := first.measure.n):
            alike = f"{first.measure.value * n:.0f} of {n} verdicts are alike"
            row["strip"] = render('<span class="small">{{ alike }}; no control</span>', alike=alike)
        row["marks"] = "".join(MARKS[one.verdict] for one in lenses)
        if others:
            row |= {"verdict": _count(lenses), "others": _by_verdict(lenses)}
        values = [one.value for one in others if not isnan(one.value)]
        if values and first.verdict == verdicts.HOLDS:
            worst = max(values) if question == verdicts.NEED else min(values)
            row["others"] += f"; {worst:.0%} in the worst"
        rows.append(row)
    return render(_ANSWER, rows=rows)


def _measured(audit: Any, question: str) -> list[Verdict]:
    """The verdicts of the lenses in which a question about the model was measured."""
    rows = [one for one in audit.rows if one.question == question and not one.reason]
    return [] if question == verdicts.LENS else rows


def _count(lenses: Sequence[Verdict], unit: str = " lenses") -> str:
    """In how many of the lenses it holds, and in how many it is open."""
    n, every = len(lenses), [one.verdict for one in lenses]
    holds, unclear = every.count(verdicts.HOLDS), every.count(verdicts.OPEN)
    count = f"all {n}" if holds == n > 1 else f"{holds} of {n}"
    return f"in {count}{unit}" + f" ({unclear} open)" * (unclear > 0)


def _by_verdict(lenses: Sequence[Verdict], words: dict[str, str] = MARKS) -> str:
    """The lenses in which it holds, those in which it is open, and those in which it fails."""
    of = {word: [one.lens for one in lenses if one.verdict == name] for name, word in words.items()}
    n, every = len(lenses), f"all {len(lenses)} replacements"
    texts = {word: every if len(some) == n > 1 else ", ".join(some) for word, some in of.items()}
    return "; ".join(f"{word} {text}" for word, text in texts.items() if text)


def _verdict(one: Verdict, rows: Sequence[Verdict]) -> str:
    """The verdict as a word; of lenses, whether the others depend on them: that is no success."""
    if one.question != verdicts.LENS or one.reason:
        return one.verdict
    in_part = one.verdict == verdicts.FAILS and verdicts.beyond(rows)
    compared = one.lens == verdicts.COMPARED and (in_part or one.verdict == verdicts.OPEN)
    return "in part" if compared else DEPENDS[one.verdict]


def lead_of(audit: Any) -> tuple[str, ...]:
    """The finding: in how many tests the heads are needed, and suffice alone; and in which."""
    if audit.first(verdicts.TASK).verdict != verdicts.HOLDS or not audit.heads:
        return ()
    lenses = [_measured(audit, question) for question in (verdicts.NEED, verdicts.FEW)]
    need, few = (_by_verdict(some, WITH) for some in lenses)
    n, verb = len(audit.heads), "is" if len(audit.heads) == 1 else "are"
    heads = f"{NUMBERS.get(n, n)} of {audit.n_heads} heads ({', '.join(map(str, audit.heads))})"
    finding = f"{heads} {verb} needed {_count(lenses[0], ' tests')}; "
    finding += f"alone {'it' if n == 1 else 'they'} {verb} enough {_count(lenses[1], '')}."
    return finding, f"Needed: {need}. Enough alone: {few}."


def page_of(audit: Any, task: str = "") -> str:
    """The whole page."""
    n = audit.first(verdicts.TASK).measure.n
    parts = (f"Audit: {audit.model}", task, f"{n} problem{'s'[: n != 1]}" if n else "")
    title = ", ".join(filter(None, parts))
    heads = None if audit.effects is None else audit.effects.heads
    ordered = sorted(audit.rows, key=lambda one: verdicts.QUESTIONS.index(one.question))
    metric = "" if heads is None else NAMES.get(heads.metric, heads.metric)
    picture = (
        ""
        if heads is None
        else map_svg(
            heads,
            title=f"Effect on {metric}{', in logits' * (heads.metric in NAMES)}"
            + ", via MLPs" * (heads.paths == "via_mlps"),
            framed=[(head.layer, head.index) for head in audit.heads],
            cell=32,
        )
    )
    body = render(
        _PAGE,
        lead=lead_of(audit),
        answer=answer_of(audit),
        image=picture and in_both_schemes(picture),
        metric=metric,
        few=audit.few,
        n_heads=audit.n_heads,
        n_tested=audit.first(verdicts.FEW).measure.n,
        strongest=[*audit.strongest.items()],
        readers=[*map(_reader, audit.readers().itertuples())],
        heads=audit.heads,
        questions=[
            (question, [_cells(one, audit.rows) for one in rows])
            for question, rows in groupby(ordered, lambda one: one.question)
        ],
    )
    return document(title, body, links=[("Numbers (CSV)", "audit.csv")])


def _reader(row: Any) -> dict[str, str]:
    """What a head reads, with its effect and interval."""
    low, high = ("" if isnan(end) else f"{end:.2f}" for end in (row.ci_low, row.ci_high))
    texts = {"effect": f"{row.effect:+.2f}", "interval": f"[{low}, {high}]" if low else ""}
    signed = {name: text.replace("-", "−") for name, text in texts.items()}
    signed |= {"open": "yes" * (row.ci_low <= 0 <= row.ci_high)}
    return {"head": str(row.head), "path": verdicts.read_by(row), **signed}


def _cells(one: Verdict, rows: Sequence[Verdict]) -> dict[str, Any]:
    """A verdict's numbers in percent."""
    measure, verdict = one.measure, _verdict(one, rows)
    names = {"lens": one.lens, "verdict": verdict, "reason": one.reason}
    ends = [*map(_percent, (measure.low, measure.high))]
    controls = dict.fromkeys(map(_percent, (measure.control_low, measure.control_high)))
    return {
        **names,
        "n": measure.n,
        "value": _percent(measure.value),
        "interval": f"[{', '.join(ends)}]" if all(ends) else "",
        "controls": " to ".join(filter(None, controls)),
    }


def _percent(share: float) -> str:
    return "" if isnan(share) else f"{share:.0%}".replace("-", "−")


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
