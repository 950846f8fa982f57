"""Do the methods find circuits that are known? Errors, AUROC and the saturation dial.

Reads the runs of `experiments do_they_find_known_circuits`, one per built model, and draws them
without loading a model.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from jaxtyping import Float
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.effects import ComponentEffects
from arith_lens.mediation import Mediation
from arith_lens.runs import Run, find_runs
from experiments import results
from experiments.approximations import DIAL, HELD_NORMS, KNOCKOUTS, PATHS_VALUES
from experiments.finding import RESULTS, NotComputed, RunSettings, experiment_command, find_run
from experiments.results import EXACT
from figures.common import FREE, Formats
from figures.exhibit import Chart, Exhibit, Table

EXPERIMENT = "do_they_find_known_circuits"
ROUNDING = 1e-5
"""A score below this share of the model's largest true effect counts as 0: it is rounding."""
METHOD_COLOURS = {
    EXACT: plotting.DARK,
    "atp": plotting.RED,
    "atp_star": "#0ea5e9",
    "clean_corrupted": plotting.OCHRE,
    "eap_ig": plotting.GREY,
    "ig_activations": plotting.VIOLET,
    "relp": plotting.RUST,
    "attn_lrp": plotting.BLUE,
    "gim": plotting.TEAL,
    HELD_NORMS: "#7c8798",
}
PATHS_TITLES = {"via_mlps": "Heads frozen (via MLPs)", "total": "All paths (total)"}
PROBED = (
    ("table", "via_mlps", "0.1"),
    ("table", "via_mlps", "MLP 0"),
    ("query_composition", "total", "0.1"),
)
"""Model, paths and component of the expectations in docs/known_circuits.md."""


@dataclass(frozen=True)
class Options:
    """Which runs to show, and where the files go."""

    out: Path = Path("figures") / "built_models"
    """Where the files go."""
    root: Path = RESULTS
    """The folder of all runs."""
    formats: Formats = ("png", "svg", "pdf")
    """Static pictures to draw as well."""
    settings: tyro.conf.Suppress[RunSettings] = FREE
    """The settings of the runs; the command line has those of their experiment."""


@dataclass(frozen=True)
class ExamRun:
    """One model of the exam: the closed forms and what the methods say."""

    built: str
    dial: float | None
    run: Run = field(repr=False)

    def methods(self, paths: str) -> list[str]:
        """The methods that ran, the exact one first."""
        return sorted(
            results.BUILT_EFFECTS.labels(self.run, paths, None), key=lambda name: name != EXACT
        )

    def truth(self, paths: str) -> ComponentEffects:
        return results.BUILT_TRUTH.load(self.run, paths)

    def effects(self, paths: str, method: str) -> ComponentEffects:
        return results.BUILT_EFFECTS.load(self.run, paths, method)

    @property
    def circuit(self) -> Mapping[str, Any]:
        """The heads, MLPs and edges of the circuit, as text."""
        return results.BUILT_TRUTH.facts(self.run, PATHS_VALUES[0])


def exhibits(options: Options) -> list[Exhibit]:
    """Charts of errors and of the dial, and two tables. Raises RunError if a model has no run."""
    papers = _papers(options)
    plain = [paper for paper in papers if paper.dial is None]
    graded = concat([grades(paper) for paper in plain], ignore_index=True)
    curves = dial_errors(papers)
    of_exact = shares(plain)
    runs = tuple(paper.run for paper in papers)
    own: dict[str, Any] = {"runs": runs, "notes": _notes(plain)}
    dial: list[Exhibit] = []
    if not curves.empty:
        chart = Chart(
            name="exam_dial",
            title="The error of approximations as attention and neurons become sharp",
            look="Where a line leaves 0: there its method no longer sees the circuit.",
            numbers=curves,
            figure=draw_dial(curves, own["notes"]),
            **own,
        )
        dial.append(chart)
    return [
        Chart(
            name="exam",
            title="The largest error of each method on models whose circuit is known",
            look="White: the number is the true effect. The first row, the exact method, is white "
            "everywhere. But a true effect can miss a head of the circuit (next table).",
            numbers=graded,
            figure=draw(graded, own["notes"]),
            **own,
        ),
        *dial,
        Table(
            name="exam_summary",
            title="What each method finds, and where it fails",
            look="AUROC is 100% if every member of the circuit has a larger effect than every "
            "other component.",
            numbers=graded,
            cells=summary(graded),
            **own,
        ),
        Table(
            name="exam_shares",
            title="Effects of three components, as shares of the exact ones",
            look="100% is right. docs/known_circuits.md has what was expected.",
            numbers=of_exact,
            cells=of_exact.map(_percent),
            **own,
        ),
    ]


def _papers(options: Options) -> list[ExamRun]:
    """The run of each model with the settings of the options, sorted by name and dial."""
    values = dict(options.settings.values)
    names, dial = values.pop("models", None), values.pop("dial", None)
    configs = {run.config["model"]: run.config for run in find_runs(EXPERIMENT, root=options.root)}
    papers = [
        ExamRun(config["built"], config["dial"], run)
        for model, config in configs.items()
        if (config["dial"] is None and (names is None or config["built"] in names))
        or (config["dial"] is not None and (dial is None or config["dial"] in dial))
        for run in [find_run(EXPERIMENT, model, RunSettings(values), (options.root,))]
    ]
    if not papers:
        raise NotComputed(
            f"expected finished runs under {options.root / EXPERIMENT}, found none",
            experiment_command(EXPERIMENT, "", options.settings.values, options.root),
        )
    return sorted(papers, key=lambda paper: (paper.built, paper.dial or 0.0))


def _means(effects: ComponentEffects) -> dict[str, float]:
    """The mean effect of each component, by name."""
    heads, mlps = effects.heads.mean().tolist(), effects.mlps.mean().tolist()
    named = {
        f"{layer}.{i}": value for layer, row in enumerate(heads) for i, value in enumerate(row)
    }
    return named | {f"MLP {layer}": value for layer, value in enumerate(mlps)}


def _flat(effects: ComponentEffects) -> Float[np.ndarray, " effect"]:
    parts = (effects.heads.per_pair, effects.mlps.per_pair)
    return np.concatenate([part.double().numpy().ravel() for part in parts])


def error(approximate: ComponentEffects, truth: ComponentEffects) -> float:
    """The largest error of an effect per pair, as a share of the largest true effect."""
    values, expected = _flat(approximate), _flat(truth)
    if not approximate.computation.get("signed", True):
        expected = np.abs(expected)
    return float(np.nanmax(np.abs(values - expected)) / np.nanmax(np.abs(expected)))


def auroc(scores: Mapping[str, float], members: Iterable[str]) -> float:
    """The probability that a member has a larger score than another, ties counting half.

    NaN if there are no members or no others.
    """
    inside = {*members}
    own = np.array([score for name, score in scores.items() if name in inside])
    others = np.array([score for name, score in scores.items() if name not in inside])
    if not len(own) or not len(others):
        return float("nan")
    difference = own[:, None] - others
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def _scores(effects: ComponentEffects, scale: float) -> dict[str, float]:
    """The size of each component's effect; rounding is 0."""
    return {
        name: size if size > ROUNDING else 0.0
        for name, value in _means(effects).items()
        for size in [abs(value) / scale]
    }


def grades(paper: ExamRun) -> DataFrame:
    """One row per kind of paths and method: its error, and AUROC of heads, MLPs and edges."""
    rows = []
    for paths in (*PATHS_VALUES, *KNOCKOUTS):
        truth = paper.truth(paths)
        scale = float(np.nanmax(np.abs(_flat(truth))))
        for method in paper.methods(paths):
            effects = paper.effects(paths, method)
            scores = _scores(effects, scale)
            heads = {name: score for name, score in scores.items() if "MLP" not in name}
            mlps = {name: score for name, score in scores.items() if "MLP" in name}
            edges = float("nan")
            if paths == "direct":
                edges = edge_auroc(paper, scores, method, scale)
            rows.append(
                {
                    "model": paper.built,
                    "paths": paths,
                    "method": method,
                    "error": error(effects, truth),
                    "auroc_heads": auroc(heads, paper.circuit["heads"]),
                    "auroc_mlps": auroc(mlps, paper.circuit["mlps"]),
                    "auroc_edges": edges,
                }
            )
    return DataFrame(rows)


def edge_auroc(paper: ExamRun, direct: Mapping[str, float], method: str, scale: float) -> float:
    """AUROC of edges from components to the logits, and, for the exact method, from heads to MLPs.

    The score of a head and an MLP is what the MLP carries of the head's effect.
    """
    scores = {f"{name} -> logits": score for name, score in direct.items()}
    if method == EXACT:
        mediation: Mediation = results.BUILT_EDGES.load(paper.run)
        carried = mediation.carried.mean().abs().double().numpy() / scale
        scores |= {
            f"{head} -> MLP {layer}": value if value > ROUNDING else 0.0
            for head, row in zip(mediation.heads, carried.tolist(), strict=True)
            for layer, value in enumerate(row)
            if layer >= head.layer
        }
    return auroc(scores, [edge for edge in paper.circuit["edges"] if edge in scores])


def draw(graded: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """The errors: a row per method, a column per model, a panel per kind of paths."""
    parts = []
    for paths, title in PATHS_TITLES.items():
        table = graded[graded["paths"] == paths].pivot(
            index="method", columns="model", values="error"
        )
        order = [EXACT, *(name for name in table.index if name != EXACT)]
        values = 100 * table.loc[order].to_numpy()
        columns = plotting.Columns("", tuple(map(str, table.columns)), values)
        parts.append(plotting.Matrix(plotting.plain(title), tuple(order), (columns,)))
    return plotting.matrix_panels(
        parts,
        colour_title="largest error",
        unit="%",
        limit=200,
        upright=True,
        rising=True,
        notes=notes,
    )


def dial_errors(papers: Sequence[ExamRun]) -> DataFrame:
    """The error of each method by the value of the dial."""
    rows = [
        {
            "model": paper.built,
            "dial": paper.dial,
            "method": method,
            "error": error(paper.effects(paths, method), paper.truth(paths)),
        }
        for paper in papers
        if paper.dial is not None
        for paths in [DIAL[paper.built]]
        for method in paper.methods(paths)
    ]
    return DataFrame(rows)


def draw_dial(curves: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """One panel per model, one line per method."""
    parts = []
    for model, paths in DIAL.items():
        of_model: Any = curves[curves["model"] == model]
        names = [EXACT, *(name for name in of_model["method"].unique() if name != EXACT)]
        lines = []
        for name in names:
            line = of_model[of_model["method"] == name].sort_values("dial")
            x, y = np.log2(line["dial"].to_numpy()), 100 * line["error"].to_numpy()
            lines.append(plotting.Line(x, y, name, METHOD_COLOURS[name]))
        title = plotting.plain(f"{PATHS_TITLES[paths]}: {model}")
        parts.append(plotting.CurvePanel(title, tuple(lines), y_title="largest error"))
    return plotting.curve_panels(
        parts, x_title="log2 of β and G", unit="%", notes=notes, panel=(330, 300)
    )


def summary(graded: DataFrame) -> DataFrame:
    """One row per kind of paths and method, as text."""
    rows = []
    groups: Any = graded.groupby(["paths", "method"], sort=False)
    for (paths, method), table in groups:
        missed = table[table["auroc_heads"] < 1]["model"]
        rows.append(
            {
                "paths": paths,
                "method": method,
                "largest error": f"{table['error'].max():.2g}",
                "in": table.loc[table["error"].idxmax(), "model"],
                "median error": f"{table['error'].median():.2g}",
                "AUROC heads": _percent(table["auroc_heads"].mean()),
                "AUROC MLPs": _percent(table["auroc_mlps"].mean()),
                "AUROC edges": _percent(table["auroc_edges"].mean()),
                "heads missed in": ", ".join(missed) or "-",
            }
        )
    return DataFrame(rows)


def shares(papers: Sequence[ExamRun]) -> DataFrame:
    """The effects of `PROBED` by each method, as shares of the exact effects."""
    models = {paper.built: paper for paper in papers}
    columns = {}
    for model, paths, component in PROBED:
        if model in models:
            paper = models[model]
            exact = _means(paper.truth(paths))[component]
            columns[f"{model}, {paths}: {component}"] = {
                method: _means(paper.effects(paths, method))[component] / exact
                for method in paper.methods(paths)
            }
    return DataFrame(columns).rename_axis("method").reset_index()


def _percent(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return "-" if np.isnan(value) else f"{value:.0%}"


def _notes(papers: Sequence[ExamRun]) -> list[str]:
    sizes = {results.BUILT_TRUTH.facts(paper.run, PATHS_VALUES[0])["pairs"] for paper in papers}
    return [
        f"{len(papers)} models, {'/'.join(map(str, sorted(sizes)))} pairs each; the metric is C's "
        "logit. The error is the largest one of any component and pair, as a share of the model's "
        "largest true effect. atp_star has no sign: it is compared with sizes.",
    ]
