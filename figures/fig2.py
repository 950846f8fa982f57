"""Figure 2: what every head and MLP does to the logit of the right answer, an operation a panel.

Reads a run of `experiments/which_heads.py` (the newest one of the model, or `--run PATH`) and draws
it without loading a model: HTML that opens offline, PNG, SVG and PDF where Chrome or Chromium is
found, and the numbers as CSV. The same for other models is the paper's Figure 12.
"""

import html
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro
from jaxtyping import Bool, Float
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.effects import ComponentEffects, Effects
from arith_lens.paper import PaperModel, paper_model
from arith_lens.runs import Run, RunError, find_runs, load_run

KEY, N_LABELS = 0.05, 9
PAPER_LIMIT = 15.0  # percent: where the colours end for the paper's models
SIGNS = {
    "addition": "+",
    "subtraction": "−",
    "multiplication": "×",
    "division": "÷",
    "exponentiation": "^",
}
PATHS = {
    "via_mlps": "paths: via MLPs, every other head frozen (Appendix B)",
    "direct": "paths: direct, every other component frozen (Algorithm 1)",
    "total": "paths: total, nothing frozen (activation patching)",
}
COLOURS = {
    "relative_logit": "Δ logit of<br>right answer",
    "logit": "Δ logit of<br>right answer",
    "logprob": "Δ log p of<br>right answer",
    "probability": "Δ p of right<br>answer",
}


@dataclass(frozen=True)
class Options:
    """Which run to draw, and where to."""

    model: str = "reference"
    """Draw the newest finished run of this model."""
    run: Path | None = None
    """Draw this run folder instead."""
    out: Path | None = None
    """Where the files go; figures/<model> if not given."""
    root: Path = Path("results")
    """Where runs are kept."""
    formats: tuple[Literal["png", "svg", "pdf"], ...] = ("png", "svg", "pdf")
    """Static pictures to draw as well."""


@dataclass(frozen=True)
class Statistics:
    """Of one set of components: mean, ends of the 95% interval, mean over computed pairs (NaN
    where not known), in the last axis."""

    values: Float[np.ndarray, "*component statistic=4"]

    @property
    def mean(self) -> Float[np.ndarray, "*component"]:
        return self.values[..., 0]


@dataclass(frozen=True)
class Measured:
    """One operation's numbers."""

    name: str
    distinct: int | None
    heads: Statistics
    mlps: Statistics


def main(options: Annotated[Options, tyro.conf.arg(name="")]) -> None:
    """Draw, and print what was written."""
    try:
        run = chosen_run(options)
        measured = [measure(run, name) for name in run.names]
    except RunError as error:
        sys.exit(str(error))
    stem = (options.out or Path("figures") / _slug(run.config["model"])) / "fig2"
    stem.parent.mkdir(parents=True, exist_ok=True)
    numbers(measured).to_csv(stem.with_suffix(".csv"), index=False)
    print(stem.with_suffix(".csv"))
    screen, print_ = (draw(run, measured, vector=vector) for vector in (False, True))
    try:
        files = plotting.save(screen, stem, formats=options.formats, vector=print_)
    except plotting.ExportError as error:
        files = [stem.with_suffix(".html")]
        print(error)
    print(*files, sep="\n")


def chosen_run(options: Options) -> Run:
    """The run to draw. Raises RunError where there is none, or nothing of this kind in it."""
    run = load_run(options.run) if options.run else newest_run(options.model, options.root)
    if run.experiment != "which_heads" or not run.names:
        raise RunError(
            f"expected a run of which_heads with results, found one of {run.experiment} with "
            f"{len(run.names)} ({run.record['status']}) in {run.path}. "
            "Make one: python -m experiments.which_heads"
        )
    return run


def newest_run(model: str, root: Path) -> Run:
    """The newest finished run of a model. Raises RunError, with the command that makes one."""
    runs = find_runs("which_heads", model=model, root=root)
    if not runs:
        raise RunError(
            f"expected a finished run of {model} under {root / 'which_heads'}, found none. "
            f"Make one: python -m experiments.which_heads --model {model}"
        )
    return runs[0]


def measure(run: Run, name: str) -> Measured:
    """Means and intervals of one operation."""
    effects: ComponentEffects = run.load(name)
    computed = run.computed(name)
    return Measured(
        name=name,
        distinct=run.facts(name).get("distinct"),
        heads=_statistics(effects.heads, computed),
        mlps=_statistics(effects.mlps, computed),
    )


def _statistics(effects: Effects, computed: Bool[torch.Tensor, "pair"] | None) -> Statistics:
    mean = effects.mean()
    of_computed = torch.full_like(mean, torch.nan)
    if computed is not None and computed.any():
        of_computed = effects.select(computed).mean()
    return Statistics(torch.stack([mean, *effects.ci(), of_computed], dim=-1).numpy())


def numbers(measured: Sequence[Measured]) -> DataFrame:
    """The figure as a table: a row a component and operation."""
    columns = ["mean", "ci_low", "ci_high", "mean_computed"]
    tables = []
    for part in measured:
        for statistics in (part.heads, part.mlps):
            places = np.indices(statistics.mean.shape).reshape(statistics.mean.ndim, -1)
            table = DataFrame(statistics.values.reshape(-1, len(columns)), columns=columns)
            table.insert(0, "operation", part.name)
            table.insert(1, "component", "head" if len(places) == 2 else "mlp")
            table.insert(2, "layer", places[0])
            table.insert(3, "head", places[1] if len(places) == 2 else None)
            tables.append(table.astype({"head": "Int64"}))
    return concat(tables, ignore_index=True)


def draw(run: Run, measured: Sequence[Measured], *, vector: bool = False) -> plotting.Figure:
    """The figure, two panels a row; `vector` for SVG and PDF."""
    relative = run.config["metric"] == "relative_logit"
    scale, unit = (100.0, "%") if relative else (1.0, "")
    paper = paper_model(run.config["model"])
    return plotting.panels(
        [_panel(part, scale, relative, paper) for part in measured],
        limit=None if paper is None or not relative else PAPER_LIMIT,
        axes=("layer", "head"),
        bar_name="MLP",
        colour_title=COLOURS[run.config["metric"]],
        hover=(_hover("head <b>%{y}.%{x}</b>", unit), _hover("<b>MLP %{y}</b>", unit)),
        notes=notes(run, relative, paper),
        unit=unit,
        across=min(2, len(measured)),
        vector=vector,
    )


def notes(run: Run, relative: bool, paper: PaperModel | None) -> list[str]:
    """The small print: how to read the figure, what it was made from, what the paper found."""
    config = run.config
    lines = ["Red: patching lowers the value, so the component supports the answer."]
    if relative:
        lines = [
            "Outlined dark: key heads (layer.head), mean effect below −5%; light: opposing heads, "
            "above +5%. Red: patching lowers the logit, so the component supports the answer."
        ]
    kept = "answered right" if config.get("keep", "correct") == "correct" else "all"
    data = f"distinct reference prompts{_asked(config)}, {kept}, seed {config['seed']}"
    if config.get("pairs"):
        data = f"own ({Path(config['pairs']).name}), {kept}"
    lines.append(f"Model: {config['model']}. Prompts: {data}; {PATHS[config['paths']]}.")
    if paper is not None:
        lines += [
            f"Dots: key heads that the paper names for {paper.name} ({source}): "
            f"{', '.join(map(str, heads))}."
            for source, heads in dict.fromkeys(map(paper.reported, run.names))
            if heads
        ]
    return lines


def _asked(config: Mapping[str, Any]) -> str:
    """What was asked of the prompts, where it was not the usual."""
    usual = {
        "templates": ["operation"],
        "operands": [1, 9],
        "answer_token": "whole",
        "counterfactual": "word",
    }
    asked = ""
    for key, value in usual.items():
        given = config.get(key, value)
        if given != value:
            shown = given if isinstance(given, str) else " ".join(map(str, given))
            asked += f", {key.replace('_', ' ')} {shown}"
    return asked


def _panel(
    part: Measured, scale: float, relative: bool, paper: PaperModel | None
) -> plotting.Panel:
    title = html.escape(part.name.capitalize())
    small = f" ({SIGNS[part.name]})" if part.name in SIGNS else ""
    if part.distinct is not None:
        small += f"&nbsp; {part.distinct} references"
    paper_heads = () if paper is None else paper.reported(part.name)[1]
    n_layers, n_heads = part.heads.mean.shape
    return plotting.Panel(
        title=f'{title}<span style="color:{plotting.NOTE}">{small}</span>',
        values=scale * part.heads.mean,
        bar=scale * part.mlps.mean,
        hover=scale * part.heads.values,
        bar_hover=scale * part.mlps.values,
        marks=tuple(marks(part.heads.mean)) if relative else (),
        dots=tuple(
            (head.layer, head.index)
            for head in paper_heads
            if head.layer < n_layers and head.index < n_heads
        ),
    )


def marks(means: Float[np.ndarray, "layer head"]) -> list[plotting.Mark]:
    """Outlines of key and opposing heads, strongest first; the strongest nine have names."""
    cells = sorted(np.argwhere(np.abs(means) > KEY).tolist(), key=lambda c: -abs(means[c[0], c[1]]))
    return [
        plotting.Mark(
            row=layer,
            column=head,
            text=f"{layer}.{head}" if rank < N_LABELS else "",
            strong=bool(means[layer, head] < 0),
        )
        for rank, (layer, head) in enumerate(cells)
    ]


def _hover(name: str, unit: str) -> str:
    number = ":+.2f" if unit else ":+.4f"
    low, high, computed = (f"%{{customdata[{i}]{number}}}{unit}" for i in (1, 2, 3))
    return f"{name}: %{{z{number}}}{unit}<br>95%: {low} to {high}<br>computed pairs: {computed}"


def _slug(name: str) -> str:
    """A model's name as a folder's name."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in name).strip("._") or "model"


if __name__ == "__main__":
    tyro.cli(main, prog="python -m figures.fig2", description=__doc__)
