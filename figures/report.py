"""The whole study of a model on one page: the answer first, then every figure and table.

Reads the model's runs without loading a model, and writes figures/<model>/report-<model>.html, and
the libraries beside it. It opens without a network, on a phone too, and can be printed. It begins
with the verdicts of `make audit`, if it was made, what is right without the strongest heads (or the
circuit, or the map), and the paper's claims as dots. The last line names what is missing, with its
command. `make report` first computes what takes minutes.
"""

import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Template
from markupsafe import Markup
from pandas import DataFrame

from arith_lens.auditing.page import answer_of
from arith_lens.plotting import FROM_FOLDER, chart_html, compressed, write_libraries
from arith_lens.plotting.markup import environment, shell_script, shell_style
from arith_lens.runs import Run, RunError, find_runs
from arith_lens.runs import write as write_file
from arith_lens.views import POLICY, packed_bundles, views_html
from experiments.finding import (
    RunSettings,
    experiment_command,
    name_ending,
    not_default,
    settings_text,
)
from experiments.questions import study, terms
from figures.circuit import right_alone
from figures.claims import Verdict
from figures.claims.page import GROUPS, SIGNS
from figures.collection import Collection, MissingExhibit, collection_of
from figures.common import FREE, RESULTS, shipped, slug
from figures.exhibit import (
    SETTINGS,
    Chart,
    Exhibit,
    Interactive,
    finding,
    html_table,
    minus,
    prose,
    say_what_goes,
)
from figures.options import ReportOptions
from figures.tables.table import to_csv

STUDY = "whole_study"
STUDY_MINUTES = 15
"""How long it takes for a model as small as the shipped ones; `make help` says the same."""
ANSWERS = ("fig3", "circuit-of-", "fig2")
"""What the page begins with: the first exhibit whose name begins so, in this order."""
ABSOLUTE_PATH = re.compile(r'"/(?:[^"/\\]+/)*([^"/\\]+)/?"')
PHRASES = {
    "holds here": ("holds here", "hold here"),
    "does not hold here": ("does not hold here", "do not hold here"),
    "not decided": ("is not decided", "are not decided"),
    "not measured": ("is not measured", "are not measured"),
}
"""The verb for one claim, and for several."""


def main(options: ReportOptions) -> None:
    """Write the page, and print what it shows and what is missing."""
    settings = RunSettings.of_paper(**(options.settings or FREE).values)
    collection = collection_of(options.model, options.root, options.beside, settings=settings)
    if not any(exhibit.runs for exhibit in collection.exhibits):
        sys.exit(
            f"expected finished runs of {options.model} under {options.root}, found none of any "
            "experiment. Make all that take minutes: "
            f"{experiment_command(STUDY, options.model, settings.values, options.root)}"
        )
    name = f"report{name_ending([options.model], not_default(STUDY, settings.values))}.html"
    page = (options.out or Path("figures") / slug(options.model)) / name
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        text = report_page(collection, options.root)
        say_what_goes(page, text)
        write_file(page, text.encode())
        write_libraries(page.parent, text)
    except (OSError, RunError) as error:
        sys.exit(
            f"the report is not written: {error}\nThe runs are unharmed, and so is a report that "
            "was there before. Free some space, or choose another --out."
        )
    n_exhibits, n_runs = len(collection.exhibits), len(collection.runs)
    print(f"{options.model}: {n_exhibits} figures and tables from {n_runs} runs")
    if collection.verdicts:
        print(f"the paper's claims, in this model: {verdict_counts(collection.verdicts)}")
    for missing in collection.missing:
        print(f"missing: {missing.title}. {missing.command or missing.reason}")
    if collection.not_applicable:
        print(_not_applicable(collection))
    print(f"open {page}")
    if collection.failed:
        names = ", ".join(collection.failed)
        sys.exit(f"not drawn because of errors of the program, see above: {names}")


def _title(collection: Collection) -> str:
    file = collection.own_file
    return f"How {collection.model} {f'answers {file.name}' if file else 'calculates'}"


def _missing_text(collection: Collection, root: Path) -> tuple[Markup, Markup]:
    """A line: how many are missing, and what computes them; and which these are."""
    missing = [part for part in collection.missing if part.command]
    if not missing:
        return Markup(""), Markup("")
    quick_commands = tuple(f"python -m experiments {name} " for name in study())
    quick = [part for part in missing if part.command.startswith(quick_commands)]
    slow = [part for part in missing if part not in quick]
    count = "1 is missing" if len(missing) == 1 else f"{len(missing)} are missing"
    text, parts = Markup("{}").format(count), []
    if quick:
        text += Markup(": <code>{}</code> computes {}, in about {} minutes").format(
            _study_command(collection, root), len(quick) if slow else "all", STUDY_MINUTES
        )
        names = ", ".join(map(_short_name, quick))
        parts.append(Markup("It computes {}.").format(names))
    if slow:
        commands = dict.fromkeys(_public(part.command, root) for part in slow)
        parts.append(
            Markup("Commands of their own compute {}: {}.").format(
                ", ".join(map(_short_name, slow)),
                Markup(", ").join(Markup("<code>{}</code>").format(one) for one in commands),
            )
        )
    return text + ".", Markup(" ").join(parts)


def _study_command(collection: Collection, root: Path) -> str:
    """The command that computes most of what the page shows."""
    settings = not_default(STUDY, collection.settings.values)
    if settings or root.resolve() != RESULTS.resolve():
        values = collection.settings.values
        return _public(experiment_command(STUDY, collection.model, values, root), root)
    model = "" if collection.model == "reference" else f" MODEL={shlex.quote(collection.model)}"
    return f"make report{model}"


def _public(text: str, root: Path) -> str:
    """The text with the last part of the folder of all runs in place of its path."""
    return text.replace(str(root), f"…/{root.name}") if root.is_absolute() else text


def _not_applicable(collection: Collection) -> str:
    """One line: what is not shown of prompts of one's own, and why."""
    names = [*map(_short_name, collection.not_applicable)]
    return (
        f"Not shown, since they are about the paper's own prompts: its claims, and {len(names)} "
        f"figures and tables ({', '.join(names)})."
    )


def _template() -> Template:
    """The page's template, with the functions that it calls."""
    return environment(Path(__file__).parent).get_template(
        "report.html.j2",
        globals={
            "chart_html": chart_html,
            "compressed": compressed,
            "counted": verdict_counts,
            "html_table": html_table,
            "finding": finding,
            "is_shipped": lambda exhibit: any(map(shipped, exhibit.runs)),
            "policy": POLICY,
            "prose": prose,
            "settings": _settings,
            "shell_script": shell_script(),
            "shell_style": shell_style(),
            "short_name": _short_name,
            "terms": terms(),
            "signs": SIGNS,
            "views_html": views_html,
            "two_digits": lambda number: minus(f"{number:.2f}"),
        },
    )


def report_page(collection: Collection, root: Path = RESULTS) -> str:
    """The page, with its script, style and numbers; libraries lie beside it. It fetches no others.

    Everything that comes from a run (prompts, tokens, names of models and heads) enters
    report.html.j2 as escaped text, or as JSON that no text in it can end. Commands on the page name
    `root`, the folder of all runs.
    """
    charts = [exhibit for exhibit in collection.exhibits if isinstance(exhibit, Chart)]
    pages = [exhibit for exhibit in collection.exhibits if isinstance(exhibit, Interactive)]
    settings = settings_text(not_default(STUDY, collection.settings.values))
    views = [*(page.view for page in pages), *(view for chart in charts for view in chart.views)]
    libraries = {"plotly", *(view.bundle for view in views)} | {"circuitsvis" for _ in pages}
    groups = {
        title: [verdict for verdict in collection.verdicts if verdict.claim.group == group]
        for group, title in GROUPS.items()
    }
    shown = [(section, [*filter(_is_shown, parts)]) for section, parts in collection.sections]
    names = [exhibit.name for exhibit in collection.exhibits]
    map_name = next((name for name in ("fig15", "fig2") if name in names), None)
    named = (one for start in ANSWERS for one in charts if one.name.startswith(start))
    answer = next(named, None)
    missing_text, missing_parts = _missing_text(collection, root)
    graph = next((one for one in charts if one.name.startswith(ANSWERS[1])), None)
    judgements = Counter(verdict.judgement for verdict in collection.verdicts)
    audit = _audit(collection.model, root)

    def linked_heads(text: str) -> Markup:
        """HTML in which each named head is a link to the figure that shows its effect."""
        link = rf'<a href="#{map_name}">\g<0></a>'
        html = str(prose(text))
        return Markup(re.sub(r"\bhead \d+\.\d+\b", link, html) if map_name else html)

    text = _template().render(
        collection=collection,
        answer=answer,
        graph=graph,
        alone=graph and right_alone(graph.numbers),
        audit=answer_of(audit) if audit else "",
        judgements=[(name, judgements[name]) for name in PHRASES if judgements[name]],
        charts=charts,
        pages=pages,
        claim_groups={title: verdicts for title, verdicts in groups.items() if verdicts},
        linked_heads=linked_heads,
        to_csv=to_csv,
        shown=[(section, parts) for section, parts in shown if parts],
        missing_text=missing_text,
        missing_parts=missing_parts,
        not_applicable=_not_applicable(collection) if collection.not_applicable else "",
        title=_title(collection),
        about_model=_about_model(collection.runs),
        run_table=DataFrame([_run_row(run) for run in collection.runs]),
        settings_line=settings and f"{SETTINGS}{settings}.",
        libraries="".join(map(FROM_FOLDER.format, sorted(libraries - {"explorer-code"}))),
        explorer=packed_bundles([page.view for page in pages]),
    )
    return _public(text, root)


def _audit(model: str, root: Path) -> Any:
    """The model's newest audit, as `make audit` stores it; None if there is none."""
    runs = find_runs("audit", root=root / "audits" / "runs")
    return next((run.load("audit") for run in runs if run.model == model), None)


def _is_shown(part: Exhibit | MissingExhibit) -> bool:
    """Whether a part has its own place; what a command computes is named at the end."""
    return not isinstance(part, MissingExhibit) or not part.command


def verdict_counts(verdicts: Sequence[Verdict]) -> str:
    """`12 hold here, 3 do not hold here, 2 are not decided, 1 is not measured`."""
    counts = Counter(verdict.judgement for verdict in verdicts)
    return ", ".join(
        f"{counts[name]} {phrases[counts[name] > 1]}"
        for name, phrases in PHRASES.items()
        if counts[name]
    )


def _short_name(exhibit: Exhibit | MissingExhibit) -> str:
    """`Figure 2`, `Table 1, every task`, or the title; of one that is missing, the file's name."""
    parts = exhibit.title.split(": ")
    if not parts[0].startswith(("Figure ", "Table ")):
        missing = isinstance(exhibit, MissingExhibit)
        return exhibit.name.replace("_", " ") if missing else parts[0]
    return f"{parts[0]}, {parts[-1]}" if len(parts) > 2 else parts[0]


def _about_model(runs: Sequence[Run]) -> str:
    """The model in a line or two; a warning if the runs are of several checkpoints."""
    if not runs:
        return ""
    model = runs[0].config["model"]
    records = [
        run.manifest["provenance"].get("model") or {}
        for run in runs
        if run.config["model"] == model
    ]
    identified = [record for record in records if record]
    sentences = []
    if identified:
        first = identified[0]
        sentences.append(
            f"{first.get('n_layers')} layers of {first.get('n_heads')} heads and an MLP each; "
            f"weights {str(first.get('weights_sha256'))[:12]} (SHA-256), {first.get('dtype')} on "
            f"{first.get('device')}."
        )
    dates = sorted({str(run.manifest.get("ended", ""))[:10] for run in runs} - {""})
    period = f", {' to '.join(dates[:1] + dates[1:][-1:])}" if dates else ""
    sentences.append(f"From {len(runs)} run{'s' * (len(runs) != 1)}{period}.")
    if model in ("reference", "reference-mistral"):
        sentences.append(
            "It is one of the small models that come with the project, trained on a closed world "
            "to show the method at work; nothing is claimed from it about larger ones."
        )
    weights = {record.get("weights_sha256") for record in identified}
    if len(weights) > 1:
        sentences.append(
            f"Careful: the runs are of {len(weights)} different checkpoints under this name."
        )
    return " ".join(sentences)


def _run_row(run: Run) -> dict[str, str]:
    provenance, seconds = run.manifest["provenance"], run.manifest["wall_seconds"]
    model, versions = provenance.get("model") or {}, provenance.get("versions") or {}
    return {
        "experiment": run.experiment,
        "model": str(run.config["model"]),
        "weights": str(model.get("weights_sha256") or "")[:12],
        "computed in": " ".join(str(model.get(key, "")) for key in ("dtype", "device")).strip(),
        "seed": str(run.config.get("seed", "")),
        "ended": str(run.manifest.get("ended", ""))[:16].replace("T", " "),
        "took": f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min",
        "torch": str(versions.get("torch", "")),
        "folder": f"{run.path.parent.name}/{run.path.name}",
    }


def _settings(run: Run) -> str:
    """A run's settings and provenance as JSON; of a path of this machine, the last part."""
    settings = {"config": run.config, "provenance": run.manifest["provenance"]}
    text = json.dumps(settings, indent=1, ensure_ascii=False)
    return ABSOLUTE_PATH.sub(r'"…/\1"', text)
