"""The circuit: edges whose interval excludes 0, between the components that they join."""

import json
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arith_lens.arrays import in_new_folder
from arith_lens.components import Component, Head, Mlp, every_component, parse_component
from arith_lens.edges.effects import TOGETHER
from arith_lens.edges.recording import EMBEDDINGS
from arith_lens.effects import ComponentEffects, Effects
from arith_lens.knockout import INPUT, LOGITS, CircuitFile, Scored, node_name
from arith_lens.metrics import METRICS

if TYPE_CHECKING:
    from pandas import DataFrame

NODE_COLUMNS = ("node", "layer", "mean", "low", "high", "held", "held_low", "held_high", "n")
EDGE_COLUMNS = ("sender", "receiver", "input", "mean", "low", "high", "n")


@dataclass(frozen=True)
class CircuitGraph:
    """Components and the measured edges between them."""

    nodes: "DataFrame"
    """One row per component: its effect on the answer (`mean`, `low`, `high`), the same with the
    final norm's scale held (`held`, …), and the number of problems `n`."""
    edges: "DataFrame"
    """One row per edge whose interval excludes 0: `sender`, `receiver`, `input`, its effect."""
    level: float
    """The level of the intervals."""
    metric: str
    n_layers: int
    n_heads: int
    n_tested: int
    """The number of edges that were measured."""

    def strongest(self, share: float = 0.8) -> "CircuitGraph":
        """The fewest edges that have a share of the sizes of all edges, and their components.

        Raises:
            ValueError: the share is not between 0 and 1.
        """
        if not 0 < share <= 1:
            raise ValueError(f"expected a share above 0 and up to 1, found {share}")
        ordered = self._by_size()
        before = ordered["mean"].abs().cumsum().shift(fill_value=0.0)
        return self._of(ordered[before < share * ordered["mean"].abs().sum()])

    @property
    def components(self) -> list[Component]:
        """The heads and MLPs of the graph."""
        names = [name for name in self.nodes["node"] if name != EMBEDDINGS]
        return [parse_component(name) for name in names]

    @property
    def expected_by_chance(self) -> float:
        """The number of edges that intervals of this level would leave if no edge acted."""
        return (1 - self.level) * self.n_tested

    def to_dataframe(self) -> "DataFrame":
        """The edges."""
        return self.edges

    def to_mib(self, *, d_model: int = 0) -> CircuitFile:
        """The graph as a circuit file of the MIB benchmark.

        Scores have the sign turned, so that what helps the answer is positive. Edges to the logits
        have the effects of the components.

        Args:
            d_model: the width of the residual stream, which such files have.
        """
        nodes = {INPUT: Scored(None, True)}
        means = {row["node"]: row["mean"] for row in self._rows("nodes")}
        for component in every_component(self.n_layers, self.n_heads):
            score = means.get(str(component))
            nodes[node_name(component)] = Scored(
                None if score is None else -score, score is not None
            )
        nodes[LOGITS] = Scored(None, True)
        edges = {
            f"{_mib_name(row['sender'])}->{_mib_reader(row['receiver'], row['input'])}": Scored(
                -row["mean"], True
            )
            for row in self._rows("edges")
        }
        edges |= {
            f"{_mib_name(name)}->{LOGITS}": Scored(-mean, True)
            for name, mean in means.items()
            if name != EMBEDDINGS
        }
        return CircuitFile(self.n_layers, self.n_heads, d_model, False, nodes, edges)

    def to_neuronpedia(self, path: str | Path | None = None, *, slug: str = "circuit") -> Any:
        """The graph in the JSON of attribution graphs, which Neuronpedia's viewer reads.

        Heads and MLPs stand at END, the embeddings at their own column.

        Args:
            slug: the graph's name in the viewer.

        Returns:
            The content of the file.
        """
        rows = [*self._rows("nodes"), {"node": LOGITS, "mean": float("nan")}]
        nodes = [self._viewer_node(row["node"], row["mean"]) for row in rows]
        links = [
            {"source": row["sender"], "target": row["receiver"], "weight": row["mean"]}
            for row in self._rows("edges")
        ]
        links += [
            {"source": row["node"], "target": LOGITS, "weight": row["mean"]}
            for row in self._rows("nodes")
            if row["node"] != EMBEDDINGS
        ]
        content = {
            "metadata": {
                "slug": slug,
                "scan": slug,
                "transcoder_list": [],
                "prompt_tokens": [EMBEDDINGS, "END"],
                "prompt": f"effects on {self.metric}, {len(self.edges)} edges",
                "schema_version": 1,
            },
            "qParams": {
                "linkType": "both",
                "pinnedIds": [],
                "clickedId": "",
                "supernodes": [],
                "sg_pos": "",
            },
            "nodes": nodes,
            "links": links,
        }
        if path is not None:
            in_new_folder(path).write_text(json.dumps(content, allow_nan=False), encoding="utf-8")
        return content

    def figure(self, *, title: str = "", most: int = 40, slider: bool = False) -> Any:
        """A picture (plotly): layers upwards, heads left, MLPs on END's stream, C at the top.

        Width and colour of a line show the edge's effect: red helps the answer, blue hinders it.
        Solid lines enter by v, dashed ones by k, dotted ones by q; into an MLP they are solid. A
        mouse shows intervals.

        Args:
            most: the number of edges that are drawn, the largest first.
            slider: whether a slider chooses the least effect that is drawn.

        Raises:
            ModuleNotFoundError: plotly is not installed.
        """
        from arith_lens.plotting.circuit import CircuitPanel, draw_circuits, with_slider

        drawn = self._by_size().head(most)
        panel = CircuitPanel(self._of(drawn).nodes, drawn, title)
        relative = METRICS[self.metric].share_of is not None if self.metric in METRICS else False
        figure = draw_circuits([panel], self.n_layers, relative=relative)
        return with_slider(figure) if slider else figure

    def _viewer_node(self, name: str, mean: float) -> dict[str, Any]:
        """A node of Neuronpedia's viewer.

        It tells the parts of a layer apart by their `feature`, and opens no file whose logit has no
        "(p=" in its name.
        """
        layer = {EMBEDDINGS: "E", LOGITS: str(self.n_layers)}.get(name)
        feature = 0
        if layer is None:
            part = parse_component(name)
            layer = str(part.layer)
            feature = part.index if isinstance(part, Head) else self.n_heads
        kinds = {EMBEDDINGS: "embedding", LOGITS: "logit"}
        return {
            "node_id": name,
            "feature": feature,
            "layer": layer,
            "ctx_idx": 0 if name == EMBEDDINGS else 1,
            "feature_type": kinds.get(name, "cross layer transcoder"),
            "token_prob": 0.0,
            "is_target_logit": name == LOGITS,
            "run_idx": 0,
            "reverse_ctx_idx": 0,
            "jsNodeId": name,
            "clerp": 'Output "C" (p=unknown)' if name == LOGITS else name,
            "influence": None if isnan(mean) else abs(mean),
            "activation": None,
        }

    def _by_size(self) -> Any:
        """The edges, the largest first."""
        return self.edges.sort_values("mean", key=abs, ascending=False)

    def _rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of `nodes` or `edges`."""
        return getattr(self, table).to_dict("records")

    def _of(self, edges: Any) -> "CircuitGraph":
        joined = {*edges["sender"], *edges["receiver"]}
        nodes: Any = self.nodes
        return replace(self, edges=edges, nodes=nodes[nodes["node"].isin(joined)])


def circuit_graph(
    edges: Effects, effects: ComponentEffects, *, level: float = 0.95
) -> CircuitGraph:
    """The edges whose interval excludes 0, and the components that they join (not in the paper).

    With thousands of edges, some intervals exclude 0 by chance: `expected_by_chance` says how many
    would if no edge acted.

    Args:
        edges: of `edge_effects`, without an axis of roles.
        effects: of `path_patch` on the same pairs, with the same metric.
        level: the level of the intervals, over problems.

    Raises:
        TypeError: something else is given, or the two in another order.
        ValueError: the edges have other axes, senders together, or another metric than the effects;
            or a component of the graph has no effect.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols", counterfactual="operands")
        >>> effects = al.path_patch(model, pairs, metric="digit_contrast", progress=False)
        >>> edges = al.edge_effects(model, pairs, ["5.5"], metric="digit_contrast", progress=False)
        >>> graph = al.circuit_graph(edges, effects)
        >>> columns = list(graph.edges)            # a row per path, with mean, interval and n
    """
    from pandas import DataFrame

    _check_kinds(edges, effects)
    if edges.axes != ("receiver", "input", "sender"):
        raise ValueError(
            f"expected edges [receiver input sender], found the axes {edges.axes}; compute them "
            "without positions='each'"
        )
    if edges.metric != effects.heads.metric:
        raise ValueError(
            f"expected effects on {edges.metric} as the edges have, found "
            f"{effects.heads.metric}; give both the same metric="
        )
    labels = edges.labels or {}
    if TOGETHER in labels["sender"]:
        raise ValueError(
            f"expected single senders, found {TOGETHER!r}; compute the edges with senders=None"
        )
    mean, (low, high) = edges.mean(), edges.ci(level)
    certain = (low * high > 0) & ~mean.isnan()
    rows = [
        {
            "sender": labels["sender"][s],
            "receiver": labels["receiver"][r],
            "input": labels["input"][i],
            "mean": float(mean[r, i, s]),
            "low": float(low[r, i, s]),
            "high": float(high[r, i, s]),
            "n": len({*(edges.problem or range(edges.n_pairs))}),
        }
        for r, i, s in certain.nonzero().tolist()
    ]
    graph = CircuitGraph(
        nodes=_nodes(effects, [EMBEDDINGS, *_names(effects)], level),
        edges=DataFrame(rows, columns=list(EDGE_COLUMNS)),
        level=level,
        metric=edges.metric,
        n_layers=effects.heads.per_pair.shape[0],
        n_heads=effects.heads.per_pair.shape[1],
        n_tested=int((~mean.isnan()).sum()),
    )
    receivers = {*labels["receiver"]}
    joined = {*graph.edges["sender"], *graph.edges["receiver"], *receivers}
    nodes: Any = graph.nodes[graph.nodes["node"].isin([*joined])]
    missing = [
        row["node"]
        for row in nodes.to_dict("records")
        if row["node"] != EMBEDDINGS and isnan(row["mean"])
    ]
    if missing:
        raise ValueError(
            f"expected the effect of each component of the graph, found none of {missing[0]}; "
            "compute path_patch without senders="
        )
    return replace(graph, nodes=nodes)


def _check_kinds(edges: Any, effects: Any) -> None:
    """Raise TypeError unless these are edges and the effects of components, in this order."""
    if isinstance(edges, Effects) and isinstance(effects, ComponentEffects):
        return
    cure = "give what edge_effects returns, then what path_patch returns"
    if isinstance(edges, ComponentEffects) and isinstance(effects, Effects):
        cure = "exchange the two"
    raise TypeError(
        f"expected edges, then effects of components, found {type(edges).__name__}, then "
        f"{type(effects).__name__}; {cure}"
    )


def _names(effects: ComponentEffects) -> list[str]:
    n_layers, n_heads = effects.heads.per_pair.shape[:2]
    return [str(one) for one in every_component(n_layers, n_heads)]


def _nodes(effects: ComponentEffects, names: list[str], level: float) -> "DataFrame":
    """The effects of components, with the norm's scale and with it held."""
    from pandas import DataFrame

    rows: list[dict[str, Any]] = []
    whole = [(part.mean(), *part.ci(level)) for part in (effects.heads, effects.mlps)]
    is_split = effects.heads.held_norm is not None and effects.mlps.held_norm is not None
    held = whole
    if is_split:
        parts = (effects.heads.without_norm_scale(), effects.mlps.without_norm_scale())
        held = [(part.mean(), *part.ci(level)) for part in parts]
    n = len({*(effects.heads.problem or range(effects.heads.n_pairs))})
    for name in names:
        if name == EMBEDDINGS:
            numbers, layer = [float("nan")] * 6, -1
        else:
            one = parse_component(name)
            layer = one.layer
            at = (one.layer, one.index) if isinstance(one, Head) else (one.layer,)
            which = int(isinstance(one, Mlp))
            numbers = [float(values[at]) for values in (*whole[which], *held[which])]
            if not is_split:
                numbers[3:] = [float("nan")] * 3
        rows.append(dict(zip(NODE_COLUMNS, (name, layer, *numbers, n), strict=True)))
    return DataFrame(rows, columns=list(NODE_COLUMNS))


def _mib_name(name: str) -> str:
    return INPUT if name == EMBEDDINGS else node_name(parse_component(name))


def _mib_reader(receiver: str, name: str) -> str:
    component = parse_component(receiver)
    return node_name(component) + (f"<{name}>" if isinstance(component, Head) else "")
