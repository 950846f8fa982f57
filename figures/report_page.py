"""The report as HTML: one page that carries its script, its style and its numbers itself.

Everything that comes from a run (prompts, tokens, names of models and heads) enters as escaped text
or as JSON that no text in it can end, and the page may fetch nothing.
"""

import base64
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path

from arith_lens.plotting import without_notes
from arith_lens.views import POLICY, bundle, script_json
from figures.collection import Missing, Question, Study
from figures.common import shipped
from figures.exhibit import Chart, Exhibit, Table, html_table
from figures.report_claims import claims_list, counted
from figures.report_words import TERMS, WHAT, about_model, provenance

WIDTH = 690
"""Pixels of a printed page's text: wider charts are printed smaller."""
HINT = '<p class="hint">Wider than the screen: it scrolls sideways.</p>'
MOST_DATA = 300_000
"""Letters of a table's numbers that the page still carries."""


def report_page(study: Study) -> str:
    """The page. The study is data: nothing in it is read as HTML."""
    charts = [one for one in study.exhibits if isinstance(one, Chart)]
    name, runs = html.escape(study.model), study.runs
    needed = {view.bundle for one in charts for view in one.views} | {"plotly" for _ in charts}
    bundles = "".join(  # text, until something needs it: so the page opens at once
        f'<script type="text/plain" id="{one}">{bundle(one)}</script>' for one in sorted(needed)
    )
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>How {name} calculates</title>",
            f"<style>\n{_beside('report.css')}</style>\n</head>\n<body>",
            _bar(study),
            f"<header>\n<h1>How {name} calculates</h1>\n{about_model(runs)}\n</header>",
            "<noscript><p>The charts need JavaScript; the tables and the numbers of every chart "
            "(CSV) are here without it.</p></noscript>",
            _contents(study),
            f'<section id="what">\n{_heading("what", "What this is")}\n{WHAT}\n'
            f"<h3>Terms</h3>\n<dl>{_terms()}</dl>\n</section>",
            f'<section id="claims">\n{_heading("claims", CLAIMS)}\n'
            f"{_with_heads(claims_list(study.verdicts), study)}\n</section>",
            *(_section(question, parts) for question, parts in study.answers),
            f'<section id="runs">\n{_heading("runs", RUNS)}\n{provenance(runs)}\n</section>',
            f"{bundles}<script>\n{_beside('report.js')}</script>",
            "</body>\n</html>\n",
        ]
    )


CLAIMS = "Which of the paper's claims hold?"
RUNS = "Where the numbers come from"


def _heading(name: str, text: str, level: int = 2) -> str:
    """A heading that is a link to itself."""
    return f'<h{level}><a class="self" href="#{name}">{html.escape(text)}</a></h{level}>'


def _bar(study: Study) -> str:
    """The sections in one line, which stays at the top of the window."""
    sections = [("what", "What this is"), ("claims", "Claims")]
    sections += [(question.name, question.title) for question, _ in study.answers]
    links = [f'<a href="#{name}">{html.escape(text)}</a>' for name, text in sections]
    return f'<nav class="bar" aria-label="Sections">{"".join(links)}<a href="#runs">Runs</a></nav>'


def _with_heads(text: str, study: Study) -> str:
    """HTML in which each head that is named is a link to the figure that shows its effect."""
    names = [one.name for one in study.exhibits]
    shown = next((name for name in ("fig15", "fig2") if name in names), None)
    link = rf'<a href="#{shown}">\g<0></a>'
    return re.sub(r"\bhead \d+\.\d+\b", link, text) if shown else text


def _beside(file: str) -> str:
    return (Path(__file__).parent / file).read_text(encoding="utf-8")


def _terms() -> str:
    return "".join(f"<dt>{html.escape(t)}</dt><dd>{html.escape(d)}</dd>" for t, d in TERMS.items())


def _contents(study: Study) -> str:
    lines = [
        '<li><a href="#what">What this is</a></li>',
        f'<li><a href="#claims">{CLAIMS}</a> '
        f'<span class="parts">{counted(study.verdicts)}</span></li>',
    ]
    for question, parts in study.answers:
        links = ", ".join(f'<a href="#{one.name}">{_short(one)}</a>' for one in parts)
        lines.append(
            f'<li><a href="#{question.name}">{html.escape(question.title)}</a> '
            f'<span class="parts">{links}</span></li>'
        )
    lines.append('<li><a href="#runs">' + RUNS + "</a></li>")
    return f'<nav aria-label="Contents"><ol>{"".join(lines)}</ol></nav>'


def _short(one: Exhibit | Missing) -> str:
    """`Figure 2`, `Table 4`, or the file's name."""
    start = one.title.partition(":")[0]
    short = start if start.startswith(("Figure ", "Table ")) else one.name.replace("_", " ")
    return html.escape(short) + (" (not computed)" if isinstance(one, Missing) else "")


def _section(question: Question, parts: Sequence[Exhibit | Missing]) -> str:
    shown = "\n".join(_missing(one) if isinstance(one, Missing) else _figure(one) for one in parts)
    return (
        f'<section id="{question.name}">\n{_heading(question.name, question.title)}\n'
        f"<p>{html.escape(question.method)}</p>\n{shown}\n</section>"
    )


def _missing(one: Missing) -> str:
    text = f"Not yet computed: <code>{html.escape(one.command)}</code>"
    if not one.command:
        text = html.escape(one.reason).replace("\n", "<br>")
    return (
        f'<figure class="missing" id="{one.name}">{_heading(one.name, one.title, 3)}'
        f"<p>{text}</p></figure>"
    )


def _figure(one: Exhibit) -> str:
    body = _chart(one) if isinstance(one, Chart) else _table(one)
    long = ' class="long"' if isinstance(one, Table) else ""
    source = "<p>From a run that comes with the project.</p>" if any(map(shipped, one.runs)) else ""
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in one.notes)
    return (
        f'<figure{long} id="{one.name}">\n<figcaption>{_heading(one.name, one.title, 3)}\n'
        f"<p><b>What to see.</b> {html.escape(one.look)}</p></figcaption>\n{body}\n"
        f'<div class="notes">{notes}{source}{_data(one)}</div>\n</figure>'
    )


def _table(one: Table) -> str:
    return f'{HINT}<div class="box" tabindex="0">{html_table(one.shown)}</div>'


def _chart(one: Chart) -> str:
    figure = without_notes(one.figure)
    width, height = round(figure.layout.width), round(figure.layout.height)
    style = f"width:{width}px;height:{height}px;--print:{min(1.0, WIDTH / width):.3f}"
    beside = ""
    if one.beside is not None:
        table = one.beside.to_html(index=False, border=0, float_format="{:.2f}".format)
        beside = f'<details><summary>As a table</summary><div class="box">{table}</div></details>'
    return (
        f'{HINT}<div class="box" tabindex="0"><div class="chart" id="{one.name}-chart" '
        f'style="{style}" role="img" aria-label="{html.escape(one.title)}"></div></div>\n'
        f'<script type="application/json" id="{one.name}-chart-data">'
        f"{_harmless(str(figure.to_json()))}</script>{beside}{_views(one)}"
    )


def _views(one: Chart) -> str:
    if not one.views:
        return ""
    places = [f"{one.name}-view-{index}" for index in range(len(one.views))]
    boxes = "".join(
        f'<h4>{html.escape(view.title)}</h4><div class="box"><div id="{place}"></div></div>'
        for place, view in zip(places, one.views, strict=True)
    )
    scripts = "\n".join(view.script(p) for p, view in zip(places, one.views, strict=True))
    return (
        f'<details class="views"><summary>Click through the heads</summary>{boxes}'
        f'<script type="text/plain">{scripts}</script></details>'
    )


def _harmless(text: str) -> str:
    """JSON for inside a script: its letters `<`, `>` and `&` stand in texts alone."""
    return script_json(json.loads(text))


def _data(one: Exhibit) -> str:
    text = one.numbers.to_csv(index=False)
    size = f"{len(text) / 1000:.0f} kB" if len(text) >= 1000 else f"{len(text)} bytes"
    file = f"{one.name}.csv"
    if len(text) > MOST_DATA:
        command = (
            f"python -m figures {one.name.split('-')[0]} --model {one.runs[0].config['model']}"
        )
        return (
            f'<p class="data">Its numbers ({size}) are too many for this page; '
            f"<code>{html.escape(command)}</code> writes them.</p>"
        )
    packed = base64.b64encode(text.encode()).decode()
    return (
        f'<p class="data"><a download="{file}" href="data:text/csv;base64,{packed}">'
        f"Numbers as CSV</a> ({size})</p>"
    )
