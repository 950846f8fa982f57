"""What the explorer shows of a model: tables of the library's own methods, all at once or by click.

`explored` computes everything that a page shows of one set of prompts. `explore` computes the map
and leaves the rest to the reader's clicks in a notebook.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import chain, combinations
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.components import (
    Component,
    Head,
    every_component,
    every_head,
    every_mlp,
    parse_component,
)
from arith_lens.effects import ComponentEffects, effect_tables
from arith_lens.exploration import cost
from arith_lens.exploration.cost import MAP_SETTINGS, N_WRITERS
from arith_lens.exploration.graph_tables import (
    N_PAGE_HEADS,
    N_PAGE_MLPS,
    edge_tables,
    prompt_effects,
    receivers_of,
    strongest,
)
from arith_lens.exploration.parts import head_parts, mlp_parts, without_digits
from arith_lens.exploration.tables import (
    BATCH,
    KNOCKOUT_POSITIONS,
    N_DRAWS,
    Steps,
    attention_tables,
    end_patterns,
    finished,
    merged,
    problem_rows,
    prompt_tables,
    random_sets,
    sample_rows,
    selections,
    stream_rows,
    stream_table,
    wordings_of,
)
from arith_lens.explorer_page import Explorer, SetFacts, Tables
from arith_lens.model import HookedLike
from arith_lens.next_tokens import next_tokens
from arith_lens.pairs import PromptPairs, check_pairs, pieces, tokenizer_of
from arith_lens.path_patching import fitting_engine, path_patch
from arith_lens.runs import ResultSlot, Run

if TYPE_CHECKING:
    from pandas import DataFrame

CONTRAST = "digit_contrast"
EDGES_OF = ("via_mlps", "relative_logit")
"""The paths and the metric of edges that a click measures."""


@dataclass(frozen=True, eq=False)
class Exploration:
    """All tables of one set of prompts; `arith_lens.explorer_page.TABLES` says what each has."""

    facts: SetFacts
    tables: Tables

    def to_dataframe(self) -> "DataFrame":
        """The map: one row per component, paths and metric."""
        return self.tables["effects"]

    def to_arrays(self) -> Arrays:
        """For a file: a tensor per column; the header has the texts."""
        tensors, levels = {}, {}
        for table, frame in self.tables.items():
            for column, values in frame.items():
                name, array = f"{table}.{column}", values.to_numpy()
                if array.dtype.kind not in "fib":
                    array, texts = values.astype(str).factorize()
                    levels[name] = list(texts)
                tensors[name] = torch.from_numpy(np.array(array))
        columns = {table: list(frame.columns) for table, frame in self.tables.items()}
        return Arrays(tensors, {"kind": "exploration", "facts": dict(self.facts),
                                "columns": columns, "levels": levels})  # fmt: skip

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Exploration":
        """Read `to_arrays` back. Raises ValueError for another kind of result."""
        from pandas import DataFrame

        arrays.require("exploration")
        levels = arrays.header["levels"]

        def column(name: str) -> Any:
            array = arrays.tensors[name].numpy()
            return np.array(levels[name], dtype=object)[array] if name in levels else array

        tables = {
            table: DataFrame({name: column(f"{table}.{name}") for name in names})
            for table, names in arrays.header["columns"].items()
        }
        return cls(arrays.header["facts"], tables)


def explore(
    model: HookedLike,
    pairs: PromptPairs | Mapping[str, PromptPairs],
    *,
    compare: Mapping[str, HookedLike] | None = None,
    progress: bool = True,
) -> Explorer:
    """The explorer of a model: a map of effects to click on, in a notebook.

    A click on a head or an MLP computes what it looks at, reads and writes. A selection of
    components is knocked out, or everything else is. Your own prompts can be typed in.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts, or several sets of prompts by name, such as one per operation. A single
            set has the name of its operation.
        compare: other models by name, such as `{"after tuning": tuned}`, on the same prompts, with
            the same tokenizer. The view begins with the first one beside `model`.
        progress: whether to show progress bars.

    Returns:
        A view that shows itself in a notebook. `.save(path)` computes every part and writes an
        offline page. The DataFrames, with those of later clicks, are in `.tables` of its
        `.widget()`.

    Raises:
        TypeError: `compare` has no dictionary of models.
        ValueError: another model has another tokenizer; or as in `path_patch`.
        FloatingPointError: as in `path_patch`.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, "addition", n=2, templates="symbols")
        >>> explorer = al.explore(model, pairs, progress=False)
        >>> explorer.title                         # in a notebook the explorer shows itself
        'Explorer: reference'
    """
    sets = {_name(pairs): pairs} if isinstance(pairs, PromptPairs) else dict(pairs)
    for some in sets.values():
        check_pairs(model, some)
    own = getattr(model, "name", None) or getattr(model.cfg, "model_name", "a model")
    _check_others(own, compare, sets.values(), model)
    models = {own: model, **(compare or {})}
    names = {
        label: {name: f"{name}, {label}" if compare else name for name in sets} for label in models
    }
    live = ExplorerServer(
        model,
        {names[label][name]: some for label in models for name, some in sets.items()},
        {names[label][name]: other for label, other in models.items() for name in sets},
    )
    beside = {}
    if compare:
        label = next(iter(compare))
        beside = {names[own][name]: {"beside": names[label][name]} for name in sets}
    first = {}
    for name in live.sets:
        facts, tables = _first_tables(live, name, circuit=bool(compare), progress=progress)
        first[name] = {**facts, **beside.get(name, {})}, tables

    def everything() -> dict[str, tuple[SetFacts, Tables]]:
        whole = {}
        for name, some in live.sets.items():
            part = explored(live.model_of(name), some, setup=SETUP, progress=progress)
            whole[name] = {**part.facts, **beside.get(name, {})}, part.tables
        return whole

    title = "Explorer" if compare else f"Explorer: {own}"
    return Explorer(first, title, live.respond, everything)


def _name(pairs: PromptPairs) -> str:
    """What a set of prompts is called that has no other name: its operations."""
    return " and ".join(dict.fromkeys(pairs.operation or ())) or "pairs"


def _check_others(own: str, compare: Any, sets: Iterable[PromptPairs], model: HookedLike) -> None:
    """Raise the errors of `explore` about other models."""
    if compare is None:
        return
    if not isinstance(compare, Mapping) or not all(hasattr(one, "cfg") for one in compare.values()):
        raise TypeError(
            "expected compare as a dictionary of models by name, found "
            f"{compare!r:.80}; write compare={{'after tuning': al.load_model(...)}}"
        )
    if own in compare:
        raise ValueError(
            f"expected other names than {own} in compare, found it among {', '.join(compare)}; it "
            "is the model's own name"
        )
    for label, other in compare.items():
        tokenizers = [tokenizer_of(one) for one in (model, other)]
        for some in sets:
            tokens = some.reference.tolist()
            mine, its = (pieces(tokenizer, tokens) for tokenizer in tokenizers)
            if mine != its:
                raise ValueError(
                    f"expected models with one tokenizer, found that {label} has other tokens for "
                    "these numbers; explore each on prompts of its own"
                )


SETUP = "# model and pairs: those of al.explore(model, pairs)"
"""The code that makes model and pairs, as the reader of a notebook has them."""


def _first_tables(
    server: "ExplorerServer", name: str, *, circuit: bool, progress: bool
) -> tuple[dict[str, Any], Tables]:
    """What is there before a click: the map, and the circuit if it is compared with another."""
    model, pairs = server.model_of(name), server.sets[name]
    effects = path_patch(model, pairs, engine=fitting_engine(model), progress=progress)
    facts, tables = _start(model, pairs, effects, SETUP)
    strongest = [parse_component(head) for head in facts["strongest"]]
    parts: dict[str, Callable[[], Tables]]
    parts = {"attention": partial(attention_tables, model, pairs, strongest)}
    if circuit:
        parts |= _circuit_parts(model, pairs, effects)
    missing, more = finished(_each(parts))
    return {**facts, "missing": missing}, merged([tables, more])


@dataclass(frozen=True, eq=False)
class ExplorerServer:
    """Computes what the reader of a notebook asks for."""

    model: HookedLike
    sets: dict[str, PromptPairs]
    others: dict[str, HookedLike] = field(default_factory=dict)
    """The model of a set, where it is not `model`."""

    def model_of(self, name: str) -> HookedLike:
        """The model that answers the prompts of a set."""
        return self.others.get(name, self.model)

    def respond(self, request: Mapping[str, Any]) -> Steps[dict[str, tuple[SetFacts, Tables]]]:
        """The answer to a request: new facts and tables of one set, in steps.

        Requests have a `kind` and the name of a `set`: `map` (`paths`, `metric`), `edges`,
        `stream`, `component` (`component`; `edges`: whether to measure those into it, too),
        `selection` (`selection`: knock_out or keep_only; `members`), and `prompt` (`reference`,
        `counterfactual`, `answer`), which makes a new set.

        Raises:
            ValueError: the request cannot be computed, such as prompts of unequal length.
        """
        if request["kind"] == "prompt":
            return (yield from self._own_prompt(request))
        name = request["set"]
        pairs, model = self.sets[name], self.model_of(name)
        if request["kind"] == "map":
            paths = request["paths"]
            effects = yield from patched(model, pairs, paths, request["metric"])
            return {name: ({}, effect_tables(effects))}
        sample = sample_rows(pairs)
        if request["kind"] == "selection":
            chosen = [parse_component(member) for member in request["members"]]
            rows = torch.arange(len(pairs))
            kind = request["selection"]
            sets = [(), tuple(chosen)] if chosen else [()]
            n_heads = sum(isinstance(one, Head) for one in chosen)
            controls = random_sets(model, n_heads, len(chosen) - n_heads) if chosen else []
            tables = yield from selections(model, pairs, rows, sample, sets, kind, controls)
            return {name: ({}, tables)}
        if request["kind"] == "edges":
            effects = yield from patched(model, pairs[sample], *EDGES_OF)
            missing, tables = yield from _each(_circuit_parts(model, pairs, effects))
            return {name: ({"missing": missing}, tables)}
        if request["kind"] == "stream":
            parts = {"stream": partial(stream_table, model, pairs)}
            missing, tables = yield from _each(parts)
            return {name: ({"missing": missing}, tables)}
        component = parse_component(request["component"])
        of = head_parts if isinstance(component, Head) else mlp_parts
        parts = of(model, pairs, sample, [component], [component])
        if request.get("edges"):
            parts["edges"] = edges_part(model, pairs, [component], EDGES_OF[1])
        missing, tables = yield from _each(parts)
        return {name: ({"missing": missing}, tables)}

    def _own_prompt(self, request: Mapping[str, Any]) -> Steps[dict[str, tuple[SetFacts, Tables]]]:
        row = {name: request[name] for name in ("reference", "counterfactual", "answer")}
        model = self.model_of(request.get("set", ""))
        pairs = PromptPairs.from_rows([row], model)
        name = f"own prompt {1 + sum(key.startswith('own prompt') for key in self.sets)}"
        effects = yield from patched(model, pairs, *EDGES_OF)
        setup = f"pairs = al.PromptPairs.from_rows([{row!r}], model)"
        facts, tables = _start(model, pairs, effects, setup)
        missing, more = yield from _each(_circuit_parts(model, pairs, effects))
        facts, tables = {**facts, "missing": missing}, merged([tables, more])
        note = "One pair: effects have no interval, and a knockout puts in the outputs of its own "
        note += "counterfactual."
        likeliest = next_tokens(model, pairs.reference_text or (), k=1)
        if int(likeliest.ids[0, 0]) != int(pairs.answer[0]):
            token = likeliest.pieces[0][0].strip()
            note = f"The model says “{token}” here, not {row['answer']}. {note}"
        self.sets[name], self.others[name] = pairs, model
        return {name: ({**facts, "note": note}, tables)}


def explored(
    model: HookedLike,
    pairs: PromptPairs,
    *,
    settings: Sequence[Mapping[str, Any]] = MAP_SETTINGS,
    setup: str = "",
    maps_only: bool = False,
    run: Run | None = None,
    name: str = "exploration",
    progress: bool = True,
) -> Exploration:
    """Everything that a page shows of a set of prompts.

    Args:
        settings: the paths and the metric of each map. The first one decides which heads are the
            strongest.
        setup: lines of code that make `model` and `pairs`, for the reader.
        maps_only: whether to leave out everything but the maps and the measured edges.
        run: an open run, which stores each map and then the result. What is stored is not computed
            again.
        name: the name of the result in the run; of the maps, with paths and metric after it.
        progress: whether to show progress bars and the names of the parts.

    Raises:
        ValueError, FloatingPointError: as in `path_patch`.
    """
    check_pairs(model, pairs)
    sample = sample_rows(pairs)
    question: dict[str, Any] = {
        "settings": [*map(dict, settings)],
        "setup": setup,
        "maps_only": maps_only,
        "stream": not maps_only,
        "answered": [] if maps_only else problem_rows(pairs).tolist(),
        "draws": N_DRAWS,
        "writers": N_WRITERS,
        "edges": [N_PAGE_HEADS, N_PAGE_MLPS, *problem_rows(pairs).tolist()],
    }
    slot = ResultSlot.of(
        run, name, model, pairs, method="explored", rows=sample.tolist(), **question
    )
    if (arrays := slot.stored(progress=progress)) is not None:
        return Exploration.from_arrays(arrays)
    started, maps = time.monotonic(), list[ComponentEffects]()
    notes = []
    for number, setting in enumerate(settings, 1):
        if progress:
            print(f"  map {number} of {len(settings)}", flush=True)
        candidates = contrast_candidates(model, pairs, setting["metric"])
        if candidates and len(candidates) < 2 and maps:
            notes.append("All prompts have one answer: there is no contrast with other answers.")
            continue
        engine = fitting_engine(model, setting["paths"])
        options: dict[str, Any] = {**setting, "engine": engine, "candidates": candidates}
        options |= {"run": run, "name": "-".join([name, *setting.values()])}
        maps.append(path_patch(model, pairs, progress=progress, **options))
    facts, tables = _start(model, pairs, maps[0], setup)
    facts |= {"note": " ".join(notes), "maps_only": maps_only}
    tables = merged([tables, *map(effect_tables, maps[1:])])
    strongest = [parse_component(head) for head in facts["strongest"]]
    parts: dict[str, Callable[[], Tables]]
    parts = {"attention": partial(attention_tables, model, pairs, strongest)}
    if not maps_only:
        parts = _all_parts(model, pairs, sample, strongest)
    receivers = receivers_of(maps[0], N_PAGE_HEADS, N_PAGE_MLPS)
    parts["edges"] = edges_part(model, pairs, receivers, settings[0]["metric"])
    begin = None
    if progress:
        begin = cost.countdown(cost.step_flops(model, pairs), [*parts], started)
    missing, more = finished(_each(parts, begin))
    return slot.save(Exploration({**facts, "missing": missing}, merged([tables, more])))


def edges_part(
    model: HookedLike, pairs: PromptPairs, receivers: Sequence[Component], metric: str
) -> Callable[[], Tables]:
    """What measures the edges into some parts, on one pair of each problem."""
    rows = problem_rows(pairs)
    sample = torch.tensor([rows.tolist().index(row) for row in sample_rows(pairs).tolist()])
    return partial(edge_tables, model, pairs[rows], receivers, metric, sample)


def _circuit_parts(
    model: HookedLike, pairs: PromptPairs, effects: ComponentEffects
) -> dict[str, Callable[[], Tables]]:
    """The circuit of the strongest parts: edges into them, and where END looks with the heads."""
    receivers = receivers_of(effects)
    return {
        "edges": edges_part(model, pairs, receivers, EDGES_OF[1]),
        "patterns": partial(end_patterns, model, pairs[sample_rows(pairs)], receivers),
    }


def _all_parts(
    model: HookedLike, pairs: PromptPairs, sample: Int[Tensor, " row"], top: Sequence[Component]
) -> dict[str, Callable[[], Tables]]:
    """All heads, all MLPs, all sets of the strongest heads, other parts alone, pairs of MLPs."""
    n_layers, n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)
    heads = head_parts(model, pairs, sample, every_head(n_layers, n_heads), top)
    mlps = mlp_parts(model, pairs, sample, every_mlp(n_layers))
    sets = [*chain(*(combinations(top, k) for k in range(1 + len(top))))]
    sets += [(one,) for one in every_component(n_layers, n_heads) if one not in top]
    sets += combinations(every_mlp(n_layers), N_WRITERS)
    controls = [one for k in range(1, 1 + len(top)) for one in random_sets(model, k)]
    controls += [one for k in range(1, 1 + N_WRITERS) for one in random_sets(model, 0, k)]
    rows = problem_rows(pairs)

    def joint(kind: str) -> Tables:
        return finished(selections(model, pairs, rows, sample, sets, kind, controls))

    of_sets = {kind: partial(joint, kind) for kind in KNOCKOUT_POSITIONS}
    stream = {"stream": partial(stream_table, model, pairs)}
    return stream | heads | {f"mlp_{name}": part for name, part in mlps.items()} | of_sets


def contrast_candidates(model: HookedLike, pairs: PromptPairs, metric: str) -> list[int] | None:
    """What `digit_contrast` compares C with where answers are no digits: the answers that occur.

    None with digits, and of another metric.
    """
    return pairs.answer_tokens if metric == CONTRAST and without_digits(model, pairs) else None


def patched(
    model: HookedLike, pairs: PromptPairs, paths: str, metric: str
) -> Steps[ComponentEffects]:
    """`path_patch` of all components, one batch of pairs after the other."""
    engine = fitting_engine(model, paths)
    candidates = contrast_candidates(model, pairs, metric)
    batches = list(pairs.batches(BATCH if engine == "sweep" else 8))
    done = []
    for batch in batches:
        yield len(done) / len(batches)
        options: dict[str, Any] = {"engine": engine, "certify": not done, "progress": False}
        options["candidates"] = candidates
        done.append(path_patch(model, batch, paths=paths, metric=metric, **options))
    return reduce(add, done)


def _each(
    parts: Mapping[str, Callable[[], Tables]], begin: Callable[[str], Any] | None = None
) -> Steps[tuple[dict[str, str], dict[str, "DataFrame"]]]:
    """Compute the parts one by one. A part that the model or the prompts do not allow is missing.

    Returns:
        For each missing part the reason, and the tables.
    """
    missing, tables = {}, []
    for number, (name, compute) in enumerate(parts.items()):
        yield number / len(parts)
        if begin:
            begin(name)
        try:
            tables.append(compute())
        except ValueError as error:
            missing[name] = str(error)
    return missing, merged(tables)


def _start(
    model: HookedLike, pairs: PromptPairs, effects: ComponentEffects, setup: str
) -> tuple[dict[str, Any], dict[str, "DataFrame"]]:
    """The facts of a set, and the tables of its map and its prompts."""
    sample = sample_rows(pairs)
    facts = {
        "setup": setup,
        "note": "",
        "missing": {},
        "n_pairs": len(pairs),
        "n_problems": len({*pairs.problem}),
        "rows": sample.tolist(),
        "edge_rows": problem_rows(pairs).tolist(),
        "stream_rows": stream_rows(pairs).tolist(),
        "wordings": wordings_of(pairs),
        "candidates": contrast_candidates(model, pairs, CONTRAST) or [],
        "strongest": [str(head) for head in strongest(effects.heads, cost.N_STRONGEST)],
    }
    single = {"prompt_effects": prompt_effects(effects, sample)}
    return facts, {**effect_tables(effects), **single, **prompt_tables(model, pairs[sample])}
