"""Figure 5: where operand heads and operator heads look from END, in four operations.

Reads a run of `experiments/where_do_they_look.py` (the model's newest, or `--run PATH`) and
draws it without loading a model: HTML that opens offline, PNG, SVG and PDF where Chrome or Chromium
is found, and the numbers as CSV.
"""

import numpy as np
import torch
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.effects import Effects
from arith_lens.runs import Run
from arith_lens.views import HeadMap, head_map
from experiments import results
from figures.common import Options, chosen_run, sample_size
from figures.exhibit import Chart

HEAD_GROUPS = {
    "operand": ("Operand heads", plotting.RUST, ("operand a", "operand b")),
    "operator": ("Operator heads", plotting.TEAL, ("operator",)),
    "other": ("Other strong heads", plotting.NOTE, ()),
    "random": ("Random heads", plotting.NOTE, ()),
}
"""The name and colour of each row, and the roles that define its heads."""
ROLE_NAMES = {
    "operand a": "A",
    "operand b": "B",
    "blank before B": "blank before B",
    "other": "other words",
}
N_NAMED = 4
"""Heads whose names are in a title."""


def exhibits(options: Options) -> list[Chart]:
    """The bars of a run, and its page of every head. Raises RunError if there is no run."""
    run = chosen_run(options, "where_do_they_look")
    looks = {name: results.ROLE_ATTENTION.load(run, name) for name in run.config["operations"]}
    control = {name: results.RANDOM_ATTENTION.load(run, name) for name in looks}
    return [
        Chart(
            name="fig5",
            title="Figure 5: where the key heads look from END",
            look=look(run, looks, control),
            notes=notes(run, looks),
            runs=(run,),
            numbers=numbers(run, looks, control),
            figure=draw(run, looks, control),
            views=(head_patterns(run),),
            views_name="heads",
        )
    ]


def look(run: Run, looks: dict[str, Effects], control: dict[str, Effects]) -> str:
    """What to look for, and what the run's own heads look at."""
    parts = []
    for name, source in looks.items():
        heads = list((source.labels or {})["head"])
        kinds = results.ROLE_ATTENTION.facts(run, name)["kinds"]
        counts = [sum(kinds[head] == kind for head in heads) for kind in ("operand", "operator")]
        parts.append(f"{name} {counts[0]} and {counts[1]} of {len(heads)}")
    values = [_weight_on(source, ("operand a", "operand b", "operator"))
              for source in control.values()]  # fmt: skip
    return (
        "Operand heads look at A and B, operator heads at the word or sign of the operation. The "
        "paper finds both kinds, and little attention elsewhere. Here the strongest heads hold "
        f"operand heads and operator heads as follows: {'; '.join(parts)}. Random heads give A, B "
        f"and the operator {min(values):.0%} to {max(values):.0%} together."
    )


def _weight_on(source: Effects, roles: tuple[str, ...]) -> float:
    """The mean weight of all heads on some roles together."""
    names = (source.labels or {})["role"]
    means = source.mean().mean(0)
    return float(sum(means[names.index(role)] for role in roles))


def head_patterns(run: Run) -> HeadMap:
    """A map of the first operation's effects; a click shows where that head looks."""
    operation = run.config["operations"][0]
    effects = results.MAP.load(run, operation).heads.mean()
    patterns = results.PATTERNS.load(run, "all")
    from_end = patterns.weights[0][:, -1].reshape(*effects.shape, -1)
    return head_map(
        100 * effects.numpy(),
        from_end.numpy(),
        patterns.tokens[0],
        title=f"Effects on the answer's logit in {operation}, and the attention from END in "
        f"“{patterns.prompts[0].strip()}”",
        values_title="effect, %",
    )


def draw(run: Run, looks: dict[str, Effects], control: dict[str, Effects]) -> plotting.Figure:
    """One row per kind of heads, one column per operation."""
    panels = []
    for kind in HEAD_GROUPS:
        for operation in looks:
            source = control[operation] if kind == "random" else looks[operation]
            chosen = heads_of(run, operation, source, kind)
            panels.append(
                _panel(run, operation, source, kind, chosen, first=operation == next(iter(looks)))
            )
    return plotting.bar_panels(
        panels,
        y_range=(0, 1.0),
        notes=notes(run, looks),
        across=len(looks),
        panel=(190, 120),
        names_below=True,
    )


def heads_of(run: Run, operation: str, source: Effects, kind: str) -> list[str]:
    """The heads of one row, the strongest first."""
    assert source.labels is not None
    heads = list(source.labels["head"])
    kinds = results.ROLE_ATTENTION.facts(run, operation)["kinds"]
    return heads if kind == "random" else [head for head in heads if kinds[head] == kind]


def over_heads(source: Effects, heads: list[str]) -> Effects:
    """The mean over some heads for each pair, with axes ("role",)."""
    assert source.labels is not None
    rows = torch.tensor([source.labels["head"].index(head) for head in heads])
    return Effects(
        source.per_pair[rows].mean(0),
        ("role",),
        source.metric,
        **source.units,
        labels={"role": source.labels["role"]},
    )


def _panel(
    run: Run, operation: str, source: Effects, kind: str, heads: list[str], *, first: bool
) -> plotting.BarPanel:
    assert source.labels is not None
    roles = source.labels["role"]
    title, colour, known_by = HEAD_GROUPS[kind]
    values = low = high = np.full(len(roles), np.nan)
    if heads:
        mean = over_heads(source, heads)
        values = mean.mean().double().numpy()
        low, high = mean.ci().double().numpy()
    return plotting.BarPanel(
        title=_title(run, operation, kind, heads),
        names=tuple(ROLE_NAMES.get(role, role) for role in roles),
        series=(
            plotting.Bars(
                values,
                low=low,
                high=high,
                colour=colour,
                strong=np.array([role in known_by for role in roles]),
            ),
        ),
        y_title=title if first else "",
        ink=colour,
    )


def _title(run: Run, operation: str, kind: str, heads: list[str]) -> str:
    """The heads, key heads in bold; in the first row after the operation."""
    key = results.ROLE_ATTENTION.facts(run, operation)["key"]
    if kind == "random":
        return f"<span style='font-size:11px'>{len(heads)} heads</span>"
    names = [f"<b>{head}</b>" if head in key else head for head in heads]
    if len(heads) > N_NAMED:
        names = [*names[:N_NAMED], f"{len(heads) - N_NAMED} more"]
    text = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]])) or "none"
    heads_text = f"<span style='font-size:11px'>{text}</span>"
    name = plotting.plain(operation.capitalize())
    return f"{name}<br>{heads_text}" if kind == next(iter(HEAD_GROUPS)) else heads_text


def numbers(run: Run, looks: dict[str, Effects], control: dict[str, Effects]) -> DataFrame:
    """Mean weights, one row per head and role; random heads too."""
    tables = []
    for operation, source in looks.items():
        facts, table = results.ROLE_ATTENTION.facts(run, operation), source.to_dataframe()
        table.insert(0, "operation", operation)
        table["key"] = table["head"].isin(facts["key"])
        table["kind"] = [facts["kinds"][head] for head in table["head"]]
        tables.append(table)
    for operation, source in control.items():
        table = source.to_dataframe()
        table.insert(0, "operation", operation)
        tables.append(table.assign(key=False, kind="random"))
    return concat(tables, ignore_index=True)


def notes(run: Run, looks: dict[str, Effects]) -> list[str]:
    """How to read the figure, and what it was made from."""
    config = run.config
    sizes = ", ".join(sample_size(results.ROLE_ATTENTION.facts(run, name)) for name in looks)
    without = ", ".join(
        name for name in looks if not results.ROLE_ATTENTION.facts(run, name)["key"]
    )
    none = f" No key heads: {without}." if without else ""
    return [
        f"Model: {config['model']}. Prompts: {sizes}, all answered right, "
        f"seed {config['seed']}. Mean attention weight from END over heads and prompts, summed "
        "within a role, nothing renormalised; bars: 95% intervals.",
        f"The {config['top']} heads with the strongest effect on the answer's logit, key heads "
        "(effect below −5%) in bold. Operand head: of its weight outside BOS at least half goes to "
        "A and B; operator head: to the operator. Random: as many other heads. Above each chart: "
        "its heads, the strongest first." + none,
    ]
