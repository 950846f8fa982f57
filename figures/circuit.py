"""Which circuit answers? The strongest heads and MLPs, and who writes what they read.

Reads a run of `experiments circuit`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pandas import DataFrame

from arith_lens.components import parse_component
from arith_lens.pairs import Role
from arith_lens.plotting import Figure
from arith_lens.plotting.circuit import CircuitPanel, draw_circuits, legend, with_slider
from arith_lens.runs import Run
from arith_lens.views import FigureView
from experiments.circuit import GRAPH, POSITIONS, RANDOM
from figures.common import chosen_run, has_tables_alone, stored_rows
from figures.exhibit import Chart, Exhibit, Table, chart_of, text_table_of
from figures.options import Options
from figures.tables import circuit as numbers
from figures.tables.circuit import ACCURACY, BY_CHANCE, CERTAIN_EDGES, EFFECT, LEFT, MEASURED_EDGES
from figures.tables.table import has, keys_of, select, value
from figures.views.words import percent_text

N_PATHS = 3
"""The largest paths that a table has."""
DRAWN, DRAWN_ALONE = 20, 60
"""The most edges in a panel, and in an interactive picture of one circuit."""
NOTE = "In brackets: 95% bootstrap intervals over problems. Random graphs: the range of draws."
CITED_NOTE = (
    "The largest edges of each circuit, and the largest edge into each head and MLP that receives. "
    "The CSV file also has the counts of edges, the shares of q, k and v, what graphs keep, and "
    "the grades of gradients' scores, under each metric."
)
METRIC_WORDS = {"relative_logit": "C's logit", "digit_contrast": "C's lead over the other digits"}
CHANGES = {"word": "no operator", "operator": "another operator", "operands": "other operands"}
"""What a counterfactual has."""
NUMBERS = ("value", "low", "high")
PLACES = {"end": "at END", "all": "everywhere"}
CITED_SCORES = ("pearson", f"recall {numbers.N_RECALLED}")


def exhibits(options: Options) -> list[Exhibit]:
    """The strongest paths in words, with the test of each graph; a picture for each operation."""
    run = chosen_run(options, "circuit")
    words = text_table_of(
        partial(numbers.table, run),
        [run],
        name="circuit",
        title=f"The strongest paths, and their graph kept alone: {run.config['model']}",
        caption=f"A path is who reads whom, at which input, and its effect. Kept: how much of C's "
        f"lead is left if all but the graph is exchanged. {NOTE}",
        cells=lambda rows: DataFrame(list(_cells(rows))),
    )
    metric, operations = shown_metric(words.numbers), keys_of(words.numbers, "operation")
    charts = [_chart(words.numbers, run, operation, metric) for operation in operations]
    cited = _cited(run, words.numbers)
    return [replace(words, printed="\n".join(_printed(words.cells))), cited, *charts]


def _cited(run: Run, whole: DataFrame) -> Table:
    """The rows that sentences cite, of each operation, counterfactual and metric."""
    name = "circuit_paths"
    return text_table_of(
        stored_rows([run], name) if has_tables_alone(run) else cited_rows(whole),
        [run],
        name=name,
        title=f"The strongest edge into each head and MLP: {run.config['model']}",
        caption=f"{CITED_NOTE} {NOTE}",
        cells=lambda rows: DataFrame(list(_cited_cells(rows))),
        printed=lambda rows: f"{(rows['kind'] == 'edge').sum()} edges",
    )


def cited_rows(table: Any) -> Any:
    """The largest edges and the largest one into each receiver; counts, shares of inputs, what
    the graph and random ones keep, Pearson's r and recall. Columns without a word are left out."""
    kinds = table["kind"]
    edges = _by_size(table[kinds == "edge"])
    largest = {
        index
        for _, own in edges.groupby(["operation", "counterfactual", "metric"], sort=False)
        for index in (*own.index[:N_PATHS], *own.drop_duplicates("receiver").index)
    }
    is_cited = kinds.isin(("model", "graph", "input")) | table.index.isin(largest)
    is_mean = table["measure"].str.startswith("mean of ")
    is_cited |= (kinds == "kept") & table["kept"].isin((GRAPH, RANDOM)) & ~is_mean
    if "score" in {*kinds}:
        is_cited |= (kinds == "score") & table["measure"].isin(CITED_SCORES)
    rows = table[is_cited].reset_index(drop=True)
    return rows.drop(columns=[name for name in rows if (rows[name] == "").all()])


def _cited_cells(table: Any) -> Iterator[dict[str, str]]:
    for (operation, counterfactual, metric), own in _groups(table):
        if metric != shown_metric(table):
            continue
        for _, row in _by_size(own[own["kind"] == "edge"]).iterrows():
            yield {
                "operation": operation,
                "counterfactual": counterfactual,
                "path": _path_words(row),
                "problems": f"n = {row['n']:.0f}",
            }


def shown_metric(table: Any) -> str:
    """The metric of the pictures: the contrast with the other digits if there is one."""
    metrics = keys_of(table, "metric")
    return "digit_contrast" if "digit_contrast" in metrics else metrics[0]


def _chart(whole: DataFrame, run: Run, operation: str, metric: str) -> Chart:
    """One operation: a panel for each counterfactual, and interactive pictures of each alone."""
    is_own = (whole.operation == operation) & (whole.metric == metric)
    rows = DataFrame(whole[(whole.operation == "") | is_own])
    panels = _panels(rows)
    most = f"{DRAWN} a panel, or {DRAWN_ALONE} where one circuit is drawn"
    chart = chart_of(
        rows,
        [run],
        name=f"circuit-of-{operation}",
        title=f"The circuit of {operation}: {run.config['model']}",
        caption=f"{legend(panels)} Measured: paths into the strongest heads and MLPs. Drawn: the "
        "largest whose 95% interval has no zero, until they have 80% of the sum of these sizes, "
        f"at most {most if len(panels) > 1 else DRAWN_ALONE}.",
        draw=lambda rows, _: _draw(own := _of_first(rows), _panels(own)),
    )
    views = tuple(_views(chart.numbers))
    return replace(chart, views=views)


def _of_first(rows: DataFrame) -> DataFrame:
    """The rows of the first model: a picture has the circuit of one."""
    return select(rows, model=keys_of(rows, "model")[0])


def _kept(table: Any, measure: str) -> tuple[Any, Any] | None:
    """What is left with the graph alone at END, and with random ones; None: not measured."""
    graph, random = (_share_left(table, name, "end", measure) for name in (GRAPH, RANDOM))
    return None if graph is None or random is None else (graph, random)


def right_alone(table: Any) -> str:
    """The right answers that the first circuit keeps alone; "" where it was not kept alone."""
    kept = _kept(_of_first(table), ACCURACY)
    return percent_text(kept[0]) if kept else ""


def _draw(table: Any, panels: Sequence[CircuitPanel]) -> Figure:
    relative = has(table, unit="relative", kind="edge")
    return draw_circuits(panels, int(value(table, measure=numbers.LAYERS)), relative=relative)


def _panels(table: Any) -> list[CircuitPanel]:
    """A panel for each counterfactual."""
    parts = [*_by_counterfactual(table)]
    most = DRAWN if len(parts) > 1 else DRAWN_ALONE
    return [_panel(own, most, name) for name, own in parts]


def _views(table: Any) -> Iterator[FigureView]:
    """For each counterfactual a picture of its own, with a slider."""
    for name, own in _by_counterfactual(table):
        alone = _draw(table, [_panel(own, DRAWN_ALONE, name)])
        yield FigureView.of(with_slider(alone), f"{_heading(own)}: {CHANGES[name]}")


def _by_counterfactual(table: Any) -> Iterator[tuple[str, Any]]:
    for name in keys_of(table, "counterfactual"):
        yield name, select(table, counterfactual=name)


def _heading(table: Any) -> str:
    operation = str(table["operation"].iloc[0]).capitalize()
    n = table["n"][table["kind"] == "node"].max()
    return f"{operation}, n = {n:.0f} problems"


def _panel(table: Any, most: int, counterfactual: str) -> CircuitPanel:
    """The largest of the strongest edges, by the role of the sender's tokens where this was
    measured, and the nodes that they join."""
    edges = _by_size(_strongest(table)).head(most).rename(columns={"value": "mean"})
    at_end = edges[edges["role"] == Role.END] if "role" in edges else edges
    joined = {*at_end["sender"], *edges["receiver"]}
    nodes = select(table, kind="node", measure=EFFECT, sender=[*joined])
    nodes = nodes.rename(columns={"sender": "node", "value": "mean"})
    nodes["layer"] = [parse_component(name).layer for name in nodes["node"]]
    shares, metric, tested = list[Any](), str(table["metric"].iloc[0]), ""
    measured = METRIC_WORDS.get(metric, metric)
    lead = measured.partition(" over")[0]
    for name, kept in (
        ("right answers", _kept(table, ACCURACY)),
        (f"{lead} that is left", _kept(table, LEFT)),
    ):
        if kept:
            own, others = kept
            texts = (
                f"{percent_text(own)} of {own['n']:.0f}",
                f"{others['value']:.0%}, {100 * others['low']:z.0f} to {others['high']:z.0%} in "
                f"{others['n']:.0f} draws",
            )
            for named, row, text in zip((name, "random paths: mean"), kept, texts, strict=True):
                shares.append((named, text, *(row[end] for end in NUMBERS)))
            tested = f". Dots: these paths alone, rest exchanged at END, {own.n:.0f} other problems"
    measured += " (logits)" * (not has(table, unit="relative", kind="edge"))
    subtitle = f"Counterfactual: {CHANGES[counterfactual]}. In boxes: effects on {measured}{tested}"
    roles = _roles(edges) if "role" in edges else ()
    return CircuitPanel(nodes, edges, _heading(table), subtitle, roles, shares, lead)


def _strongest(table: Any) -> Any:
    """The strongest edges, from the tokens of one role each where these were told apart."""
    if has(table, kind="part"):
        return select(table, kind="part", strongest="yes")
    return select(table, kind="edge", strongest="yes").drop(columns="role", errors="ignore")


def _roles(edges: Any) -> list[str]:
    """The roles of an infix prompt's tokens from left to right, without END."""
    order = [Role.BOS, Role.EXAMPLES, Role.OPERAND_A, Role.OPERATOR, Role.OPERAND_B, Role.OTHER]
    columns = {*edges["role"], Role.OPERAND_A, Role.OPERATOR, Role.OPERAND_B}
    return [str(role) for role in order if role in columns]


def _by_size(edges: Any) -> Any:
    return edges.sort_values("value", key=abs, ascending=False)


def strongest_paths(table: Any) -> list[str]:
    """The largest edges of one operation, counterfactual and metric."""
    edges = _by_size(table[table["kind"] == "edge"]).head(N_PATHS)
    return [_path_words(row) for _, row in edges.iterrows()]


def _path_words(row: Any) -> str:
    """An edge as who reads whom at which input, and its effect: `5.5 v ← 4.3: −2% [−3, −1]`."""
    scale, unit = (100, "%") if row["unit"] == "relative" else (1, " logits")
    mean, low, high = (f"{scale * row[name]:.2f}".replace("-", "−") for name in NUMBERS)
    end = "" if row["input"] == "mlp" else f" {row['input']}"
    return f"{row['receiver']}{end} ← {row['sender']}: {mean}{unit} [{low}, {high}]"


def _groups(table: Any) -> Iterator[tuple[Any, Any]]:
    named = table[table["operation"] != ""]
    yield from named.groupby(["operation", "counterfactual", "metric"], sort=False)


def _cells(table: Any) -> Iterator[dict[str, str]]:
    """One line per operation, counterfactual and metric."""
    for (operation, counterfactual, metric), own in _groups(table):
        counts = own[own["kind"] == "graph"].set_index("measure")["value"]
        cell = {
            "operation": operation,
            "counterfactual": counterfactual,
            "metric": metric,
            "edges beyond 0": f"{counts[CERTAIN_EDGES]:.0f} of {counts[MEASURED_EDGES]:.0f} "
            f"({counts[BY_CHANCE]:.0f} by chance)",
        }
        for number, text in enumerate(strongest_paths(own)):
            cell[f"path {number + 1}"] = text
        for positions in POSITIONS:
            for graph_set in (GRAPH, RANDOM):
                one = _share_left(own, graph_set, positions, LEFT)
                cell[f"{graph_set} kept {PLACES[positions]}"] = percent_text(one)
        yield cell


def _printed(cells: Any) -> Iterator[str]:
    """The same for a terminal: a heading and a few lines each."""
    for cell in cells.to_dict("records"):
        yield f"{cell['operation']}, {cell['counterfactual']}, {cell['metric']}"
        yield f"  edges whose interval excludes 0: {cell['edges beyond 0']}"
        yield from (f"  {cell[f'path {i}']}" for i in range(1, N_PATHS + 1) if f"path {i}" in cell)
        for place in PLACES.values():
            graph, random = (cell[f"{graph_set} kept {place}"] for graph_set in (GRAPH, RANDOM))
            yield f"  left of the lead, all else exchanged {place}: {graph}; random {random}"


def _share_left(table: Any, graph_set: str, positions: str, measure: str) -> Any:
    chosen = select(table, kind="kept", kept=graph_set, positions=positions, measure=measure)
    return chosen.iloc[0] if len(chosen) else None
