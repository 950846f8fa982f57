"""The strongest heads' effects on three kinds of paths, as a table with intervals and shares.

Reads a run of `experiments/which_paths.py`. The total effect is the sum of what goes directly to
the logits, what MLPs add (via MLPs less direct), and what later heads add (total less via MLPs).
These are differences within each pair, and so are their intervals.
"""

from dataclasses import replace

from pandas import DataFrame

from arith_lens.effects import Effects
from arith_lens.runs import Run
from experiments import results
from figures.common import TableOptions, chosen_run
from figures.exhibit import Table

NOTES = (
    "In brackets: 95% bootstrap intervals over problems and wordings.",
    "Shares are of the total effect, and may exceed 100% where parts have opposite signs.",
)
EFFECT_PARTS = ("direct", "MLPs add", "via MLPs", "heads add", "total")


def exhibits(options: TableOptions) -> list[Table]:
    """The table of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "which_paths")
    numbers = table(run)
    return [
        Table(
            name="paths",
            title=f"Paths of the strongest heads: {run.config['model']}, {run.config['metric']}",
            look="How little a head writes to the answer itself (direct) and how much MLPs and "
            "later heads make of it.",
            notes=NOTES,
            runs=(run,),
            numbers=numbers,
            cells=as_text(numbers, run.config["metric"] == "relative_logit"),
        )
    ]


def table(run: Run) -> DataFrame:
    """One row per head and operation: each part's mean, interval and share."""
    operations = results.PATH_EFFECTS.labels(run, None, "total")
    rows = []
    for operation in operations:
        direct, via_mlps, total = (
            results.PATH_EFFECTS.load(run, operation, paths).heads
            for paths in ("direct", "via_mlps", "total")
        )
        parts = (direct, _less(via_mlps, direct), via_mlps, _less(total, via_mlps), total)
        means = {name: part.mean() for name, part in zip(EFFECT_PARTS, parts, strict=True)}
        ends = {name: part.ci() for name, part in zip(EFFECT_PARTS, parts, strict=True)}
        for head in total.top(total.per_pair[..., 0].numel()):
            at = (head.layer, head.index)  # pyright: ignore[reportAttributeAccessIssue]
            row: dict[str, object] = {"operation": operation, "head": str(head)}
            for name in EFFECT_PARTS:
                row[name] = float(means[name][at])
                row[f"{name} low"], row[f"{name} high"] = map(float, ends[name][:, *at])
                row[f"{name} share"] = float(means[name][at] / means["total"][at])
            rows.append(row)
    return DataFrame(rows)


def as_text(numbers: DataFrame, relative: bool) -> DataFrame:
    """The table as text."""
    number = "{:+.1%}".format if relative else "{:+.3g}".format
    text = DataFrame({name: numbers[name] for name in ("operation", "head")})
    for name in EFFECT_PARTS:
        text[name] = [
            f"{number(row[name])} ({number(row[f'{name} low'])}, {number(row[f'{name} high'])})"
            for _, row in numbers.iterrows()
        ]
    for name in ("direct", "MLPs add", "heads add"):
        text[f"share {name}"] = [f"{share:.0%}" for share in numbers[f"{name} share"]]
    return text


def _less(a: Effects, b: Effects) -> Effects:
    return replace(a, per_pair=a.per_pair - b.per_pair)
