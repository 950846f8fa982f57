"""Which circuit answers? The strongest heads and MLPs, and who writes what they read.

Reads a run of `experiments circuit`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pandas import DataFrame

from arith_lens.components import Head, Mlp, parse_component
from arith_lens.edges import EMBEDDINGS
from arith_lens.pairs import Role
from arith_lens.plotting import Figure
from arith_lens.plotting.circuit import (
    LEGEND,
    ROLE_NAMES,
    CircuitPanel,
    draw_circuits,
    with_slider,
)
from arith_lens.plotting.circuit_paths import paths_of
from arith_lens.runs import Run
from arith_lens.views import FigureView
from experiments.circuit import GRAPH, POSITIONS, RANDOM
from figures.common import chosen_run, has_tables_alone, stored_rows
from figures.exhibit import Chart, Exhibit, Settings, Table, chart_of, text_table_of
from figures.options import Options
from figures.tables import circuit as numbers
from figures.tables.circuit import (
    ACCURACY,
    BY_CHANCE,
    CERTAIN_EDGES,
    EFFECT,
    LEFT,
    MEASURED_EDGES,
    OTHER,
)
from figures.tables.table import has, keys_of, select, value
from figures.views.words import listed, span_text

N_PATHS = 3
"""The paths that are said in words."""
DRAWN, DRAWN_ALONE = 20, 60
"""The most edges in a panel, and in an interactive picture of one circuit."""
NOTE = "In brackets: 95% bootstrap intervals over problems. Random graphs: the range of draws."
CITED_NOTE = (
    "The largest edges of each circuit, and the largest edge into each head and MLP that receives. "
    "The CSV file also has the counts of edges, the shares of q, k and v, what graphs keep, and "
    "the grades of gradients' scores, under each metric."
)
INPUT_WORDS = {"q": " by its queries", "k": " by its keys", "v": " by its values", "mlp": ""}
METRIC_WORDS = {
    "relative_logit": "of C's logit",
    "digit_contrast": "of C's lead over the other digits",
}
NUMBERS = ("value", "low", "high")
PLACES = {"end": "at END", "all": "everywhere"}
CITED_SCORES = ("pearson", f"recall {numbers.N_RECALLED}")


def exhibits(options: Options) -> list[Exhibit]:
    """The strongest paths in words, with the test of each graph; a picture for each operation.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "circuit")
    words = text_table_of(
        lambda: numbers.table(run),
        [run],
        name="circuit",
        title=f"The strongest paths, and their graph kept alone: {run.config['model']}",
        caption=lambda rows: (
            "Whether the same paths are strongest under each counterfactual, and how much of the "
            "answer the graph keeps where random graphs of the same size keep nothing."
        ),
        notes=lambda rows, settings: [NOTE, *_tests_in_words(rows)],
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
        caption=lambda rows: "Which part writes what each of the strongest heads and MLPs reads.",
        notes=lambda rows, settings: [NOTE, CITED_NOTE],
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
    chart = chart_of(
        DataFrame(whole[(whole.operation == "") | is_own]),
        [run],
        name=f"circuit-of-{operation}",
        title=f"The circuit of {operation}: {run.config['model']}",
        caption=lambda rows: _caption(_of_first(rows)),
        notes=lambda rows, settings: _notes(_of_first(rows), settings),
        draw=lambda rows, _: _draw(_of_first(rows)),
    )
    views = tuple(_views(chart.numbers))
    return replace(chart, views=views, views_name=f"circuit-of-{operation}-slider")


def _of_first(rows: DataFrame) -> DataFrame:
    """The rows of the first model: a picture has the circuit of one."""
    return select(rows, model=keys_of(rows, "model")[0])


def _caption(table: Any) -> str:
    """For each counterfactual who reads whom, and what these parts keep."""
    stories = [_story(own, name) for name, own in _by_counterfactual(table)]
    return " ".join([*stories, "Lines, as broad as their effects, have 95% intervals without 0."])


def _story(table: Any, counterfactual: str) -> str:
    """The finding of one counterfactual, what is left alone, and the strongest path's effect."""
    largest = paths_of(_panel(table, N_PATHS * 2, counterfactual).by_token().edges)[-1]
    alone, left, right = "", _kept(table, LEFT), _kept(table, ACCURACY)
    if left and right:
        (graph, random), (own, by_chance) = left, right
        other = _share_left(table, GRAPH, "end", OTHER)
        c_prime = "" if other is None else f", {_percent(other)} as the counterfactual"
        alone = (
            f" Alone at END, a graph chosen this way keeps {_percent(graph)} of "
            f"{_lead(table)} and answers {_only(right)}{_percent(own)} right{c_prime} "
            f"(n = {graph['n']:.0f}; {random['n']:.0f} random graphs: {_range(random)}, "
            f"{_range(by_chance)} right)."
        )
    return (
        f"{_finding(table)}.{alone} With {_change(counterfactual)} in the counterfactual "
        f"(n = {_n(table)}), the broadest line is {_signed_sizes(largest.rows[0])}."
    )


def _kept(table: Any, measure: str) -> tuple[Any, Any] | None:
    """What is left with the graph alone at END, and with random ones; None: not measured."""
    graph, random = (_share_left(table, name, "end", measure) for name in (GRAPH, RANDOM))
    return None if graph is None or random is None else (graph, random)


def _only(right: tuple[Any, Any]) -> str:
    """A word before a share of right answers below half that is not surely above random graphs."""
    own, random = right
    return "only " * bool(own["value"] < 0.5 and own["low"] <= random["high"])


def _measured(table: Any) -> str:
    """What effects are measured on, in words."""
    metric = str(table["metric"].iloc[0])
    return METRIC_WORDS.get(metric, f"of {metric}").removeprefix("of ")


def _lead(table: Any) -> str:
    """The same in short: `C's lead`."""
    return _measured(table).partition(" over")[0]


def _notes(table: Any, settings: Settings) -> list[str]:
    return [
        LEGEND,
        f"Model: {settings['model']}; effects on {shown_metric(table)}; the edges with 80% of the "
        f"sizes of all that differ from 0, at most {DRAWN} a panel, or {DRAWN_ALONE} where one "
        "circuit is drawn. Edges enter the strongest heads and MLPs alone.",
    ]


def _draw(table: Any) -> Figure:
    """A panel for each counterfactual."""
    parts = [*_by_counterfactual(table)]
    most = DRAWN if len(parts) > 1 else DRAWN_ALONE
    panels = [_panel(own, most, name) for name, own in parts]
    return draw_circuits(
        panels, _n_layers(table), relative=has(table, unit="relative", kind="edge")
    )


def _views(table: Any) -> Iterator[FigureView]:
    """For each counterfactual a picture of its own, with a slider."""
    relative = has(table, unit="relative", kind="edge")
    for name, own in _by_counterfactual(table):
        panel = _panel(own, DRAWN_ALONE, name)
        alone = draw_circuits([panel], _n_layers(table), relative=relative)
        yield FigureView.of(with_slider(alone), _heading(own, name))


def _by_counterfactual(table: Any) -> Iterator[tuple[str, Any]]:
    for name in keys_of(table, "counterfactual"):
        yield name, select(table, counterfactual=name)


def _n_layers(table: Any) -> int:
    return int(value(table, measure=numbers.LAYERS))


def _heading(table: Any, counterfactual: str) -> str:
    operation = str(table["operation"].iloc[0])
    change = _change(counterfactual)
    return f"{operation.capitalize()}, counterfactual with {change}, n = {_n(table)} problems"


def _finding(table: Any) -> str:
    """Which heads read the operands, and which MLPs read these heads; else the strongest path."""
    edges = _by_size(_strongest(table))
    strongest = f"Strongest path: {_reads(edges.iloc[0])}"
    if "role" not in edges:
        return strongest
    tokens = {Role.OPERAND_A: "A", Role.OPERATOR: "the operator", Role.OPERAND_B: "B"}
    by_values = edges[(edges["input"] == "v") & edges["role"].isin(tokens)]
    readers: dict[str, list[str]] = {}
    for head, own in by_values.groupby("receiver", sort=False):
        read = {tokens[role] for role in own["role"]}
        words = " and ".join(one for one in tokens.values() if one in read)
        readers.setdefault(words, []).append(str(head))
    if not readers:
        return f"No head here reads A or B. {strongest}"
    parts = [
        f"head{'s' * (len(heads) > 1)} {listed(heads)} read{'s' * (len(heads) == 1)} {words}"
        for words, heads in readers.items()
    ]
    is_through = edges["sender"].isin(by_values["receiver"]) & (edges["input"] == "mlp")
    through = edges[is_through]
    if len(through):
        names = [
            name for heads in readers.values() for name in heads if name in {*through["sender"]}
        ]
        plural = "s" * (len(names) > 1)
        act = f"act{'' if plural else 's'} through {_through(through, names)}"
        if len(readers) == 1 and len(names) == by_values["receiver"].nunique():
            parts[-1] += f" and {act}"
        else:
            parts.append(f"head{plural} {listed(names)} {act}")
    finding = "; ".join(parts)
    return finding[0].upper() + finding[1:]


def _through(edges: Any, names: list[str]) -> str:
    """The MLPs through which all named heads act, then those of some heads."""
    by_heads: dict[str, list[int]] = {}
    every = sorted({Mlp.parse(name) for name in edges["receiver"]})
    for mlp in every:
        own = {*edges["sender"][edges["receiver"] == str(mlp)]}
        by_heads.setdefault(listed(name for name in names if name in own), []).append(mlp.layer)
    of_all = by_heads.pop(listed(names), [])
    some = ", ".join(
        f"{heads} {'also ' * bool(of_all)}through {listed(mlps)}"
        for heads, mlps in by_heads.items()
    )
    mlps = of_all or [mlp.layer for mlp in every]
    return f"MLP{'s' * (len(mlps) > 1)} {listed(mlps)}" + f" ({some})" * bool(some)


def _change(counterfactual: str) -> str:
    return {"word": "no operator", "operator": "another operator", "operands": "other operands"}[
        counterfactual
    ]


def _panel(table: Any, most: int, counterfactual: str) -> CircuitPanel:
    """The largest of the strongest edges, by the role of the sender's tokens where this was
    measured, and the nodes that they join."""
    edges = _by_size(_strongest(table)).head(most).rename(columns={"value": "mean"})
    at_end = edges[edges["role"] == Role.END] if "role" in edges else edges
    joined = {*at_end["sender"], *edges["receiver"]}
    nodes = select(table, kind="node", measure=EFFECT, sender=[*joined])
    nodes = nodes.rename(columns={"sender": "node", "value": "mean"})
    nodes["layer"] = [parse_component(name).layer for name in nodes["node"]]
    title, shares = _finding(table) + ".", list[Any]()
    left, right = _kept(table, LEFT), _kept(table, ACCURACY)
    lead = _lead(table)
    if left and right:
        texts = [_percent(one[0]).partition(" ")[0] for one in (left, right)]
        title += (
            f"\nAlone, a graph chosen this way keeps {texts[0]} of {lead} "
            f"(random {_range(left[1])}), {_only(right)}{texts[1]} right ({_range(right[1])})."
        )
        for name, (own, others) in ((f"{lead} kept", left), ("right answers", right)):
            for named, row, text in (
                (name, own, f"{_percent(own)}, n = {own['n']:.0f}"),
                ("by random graphs", others, f"{_range(others)}, {others['n']:.0f} graphs"),
            ):
                shares.append((named, text, *(row[end] for end in NUMBERS)))
    receivers = [*map(parse_component, select(table, kind="edge")["receiver"].unique())]
    heads = sorted(one for one in receivers if isinstance(one, Head))
    mlps = sorted(one for one in receivers if isinstance(one, Mlp))
    into = [", ".join(map(str, heads))] * bool(heads)
    into += ["MLPs " + ", ".join(str(one.layer) for one in mlps)] * bool(mlps)
    subtitle = (
        f"{_heading(table, counterfactual)}; numbers: effects on {_measured(table)}\n"
        f"Lines are measured into {' and '.join(into)} alone; the largest are drawn."
    )
    roles = _roles(edges) if "role" in edges else ()
    return CircuitPanel(nodes, edges, title, subtitle, roles, shares, lead)


def _strongest(table: Any) -> Any:
    """The strongest edges, from the tokens of one role each where these were told apart."""
    if has(table, kind="part"):
        return select(table, kind="part", strongest="yes")
    return select(table, kind="edge", strongest="yes").drop(columns="role", errors="ignore")


def _n(table: Any) -> str:
    """The number of problems."""
    return f"{table['n'][table['kind'] == 'node'].max():.0f}"


def _roles(edges: Any) -> list[str]:
    """The roles of an infix prompt's tokens from left to right, without END."""
    order = [
        Role.BOS,
        Role.EXAMPLES,
        Role.OPERAND_A,
        Role.OPERATOR,
        Role.OPERAND_B,
        Role.OTHER,
    ]
    columns = {*edges["role"], Role.OPERAND_A, Role.OPERATOR, Role.OPERAND_B}
    return [str(role) for role in order if role in columns]


def _by_size(edges: Any) -> Any:
    return edges.sort_values("value", key=abs, ascending=False)


def strongest_paths(table: Any) -> list[str]:
    """The largest edges of one operation, counterfactual and metric, a sentence each."""
    edges = _by_size(table[table["kind"] == "edge"]).head(N_PATHS)
    return [_path_words(row) for _, row in edges.iterrows()]


def _path_words(row: Any) -> str:
    """An edge as a sentence: who reads whom, through what, and what that does."""
    does = "carries" if row["value"] < 0 else "takes away"
    what = METRIC_WORDS.get(row["metric"], f"of {row['metric']}")
    reads = _reads(row)
    return f"{reads[0].upper()}{reads[1:]}: this path {does} {_sizes(row)} {what}."


def _reads(row: Any) -> str:
    """Who reads whom, and through what."""
    receiver, sender = (
        name if "MLP" in name or name == EMBEDDINGS else f"head {name}"
        for name in (row["receiver"], row["sender"])
    )
    sender = "the embeddings" if sender == EMBEDDINGS else sender
    role = row.get("role", "")
    at = f" at {ROLE_NAMES.get(role, role)}" if role and row["kind"] == "part" else ""
    return f"{receiver} reads {sender}{at}{INPUT_WORDS[row['input']]}"


def _sizes(row: Any) -> str:
    """The size of an effect and its interval, without the sign."""
    sign = -1 if row["value"] < 0 else 1
    low, high = sorted((sign * row["low"], sign * row["high"]))
    if row["unit"] == "relative":
        return f"{100 * sign * row['value']:.1f}% [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{sign * row['value']:.2f} [{low:.2f}, {high:.2f}] logits"


def _signed_sizes(row: Any) -> str:
    """An effect and its interval as the picture has them: below 0 where the path helps."""
    scale, form = (100, ".1f") if row.unit == "relative" else (1, ".2f")
    ends = (row.mean, row.low, row.high)
    mean, low, high = (f"{scale * one:{form}}".replace("-", "−") for one in ends)
    return f"{mean}{'%' if scale == 100 else ''} [{low}, {high}]" + " logits" * (scale == 1)


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
                cell[f"{graph_set} kept {PLACES[positions]}"] = _percent(one)
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


def _percent(row: Any) -> str:
    if row is None:
        return ""
    texts = (f"{100 * row[name]:.0f}" for name in NUMBERS)
    value, low, high = ("0" if text == "-0" else text.replace("-", "−") for text in texts)
    return f"{value}% [{low}, {high}]"


def _range(row: Any) -> str:
    """From the least to the greatest draw."""
    return span_text((row["low"], row["high"])).replace("−0%", "0%").replace("0% to", "0 to")


def _tests_in_words(table: Any) -> Iterator[str]:
    """One sentence per operation and counterfactual: what the graph keeps, and random ones."""
    shown = shown_metric(table)
    for (operation, counterfactual, metric), own in _groups(table):
        graph, random, right, other = (
            _share_left(own, graph_set, "end", measure)
            for graph_set, measure in (
                *((name, LEFT) for name in (GRAPH, RANDOM)),
                *((GRAPH, name) for name in (ACCURACY, OTHER)),
            )
        )
        if metric != shown or graph is None or random is None:
            continue
        c_prime = "" if other is None else f", answers C' {_percent(other)}"
        yield (
            f"{operation.capitalize()}, {_change(counterfactual)}: with all but the graph "
            f"exchanged at END, {_percent(graph)} of the answer's lead is left (random graphs: "
            f"{_percent(random)}); right {_percent(right)}{c_prime}."
        )
