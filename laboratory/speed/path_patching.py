"""How fast is path patching, how does its cost grow, and what memory does it take?

Times the same experiment in several ways on random LLaMAs, and compares their numbers; fits how
time grows; measures peak memory. Nothing is downloaded.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import psutil
import torch
import tyro

from arith_lens.components import every_component
from arith_lens.methods import Senders
from arith_lens.metrics import Targets
from arith_lens.model import HookedModel
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import (
    plan,
    record_pairs,
    sweep_rows,
    trunk_of,
)
from laboratory.speed import calls, edges, fixed, growth, positions
from laboratory.speed.measure import (
    Rows,
    Timing,
    in_process,
    peak_beyond,
    print_and_save,
    products,
    products_flops,
    require_gpu,
    require_memory,
    resident,
    timed,
)
from laboratory.speed.rivals import RAW, RIVALS, SWEEP, Rival, this_package
from laboratory.speed.shapes import SHAPES, Setting, Shape, setting_of, weights_bytes

Part = Literal["rivals", "growth", "memory", "edges", "positions", "calls", "fixed"]
Size = Literal["tiny", "middle", "wide", "llama-7b"]
Sections = Iterator[tuple[str, str, Rows]]


@dataclass(frozen=True)
class SpeedConfig:
    """What to measure, and on what."""

    parts: tuple[Part, ...] = ("rivals", "growth", "memory")
    """Rivals: time and numbers of every way; growth: exponents; memory: peaks; edges: all edges
    into some receivers against two forwards per edge; positions: the stream at each layer and token
    against TransformerLens' loop; calls: logit lens, attribution and one head, on a few prompts,
    against plain Transformers; fixed: whole commands."""
    sizes: tuple[Size, ...] = ("tiny", "middle", "wide")
    """Shapes for all ways; llama-7b needs a GPU."""
    memory_size: Size = "middle"
    """The shape whose memory is measured."""
    memory_pairs: int = 64
    """With how many pairs; this package computes 64 at once."""
    device: str = "cpu"
    """Such as cuda."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the weights."""
    threads: int = 0
    """0 leaves torch's choice."""
    repeats: int = 9
    """Rounds of each method; the median counts."""
    seconds: float = 3.0
    """A method that has run for so long is not repeated."""
    quick: bool = False
    """The smallest of everything, in half a minute, to see that it works."""

    @property
    def growth(self) -> tuple[Shape, growth.Values]:
        return growth.QUICK if self.quick else growth.FULL


def speed(
    config: Annotated[SpeedConfig, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
) -> None:
    """How fast is path patching, how does its cost grow, and what memory does it take?

    Args:
        config: what to measure; the same configuration again replaces what it measured before.
        root: where runs are saved: a report, and each table as CSV.
        dry_run: print what would be run, with its operations, and stop.
    """
    if config.quick:
        config = replace(
            config, sizes=("tiny",), memory_size="tiny", memory_pairs=8, repeats=3, seconds=0.2
        )
    if dry_run:
        print(*planned_lines(config), sep="\n")
        return
    require_gpu(config.device)
    for size in config.sizes if config.device == "cpu" else ():
        needed, free = weights_bytes(size, config.dtype), psutil.virtual_memory().available
        require_memory(needed, free, f"--sizes {size}", "leave it out, or take --device cuda")
    if config.threads:
        torch.set_num_threads(config.threads)
    print_and_save("speed", config, root, measured(config))


def measured(config: SpeedConfig) -> Sections:
    """Name, title and rows of each table, part by part."""
    effort: dict[str, Any] = {"repeats": config.repeats, "budget": config.seconds}
    dtype = getattr(torch, config.dtype)
    for size in config.sizes if "rivals" in config.parts else ():
        setting = setting_of(SHAPES[size], config.device, dtype)
        title = f"{size}: {setting.shape}; {len(setting.senders)} senders"
        yield f"rivals_{size}", title, rival_rows(setting, **effort)
        yield f"floor_{size}", f"{size}, the sweep", floor_rows(setting, **effort)
    if "growth" in config.parts:
        few = effort | {"budget": config.seconds / 3}
        points = growth.growth_rows(config.growth, two_rivals, config.device, dtype, **few)
        yield "exponents", f"Growth, from {config.growth[0]}", growth.exponents(points)
        yield "growth", "The points", points
    if "memory" in config.parts:
        shape = memory_shape(config)
        yield "memory", f"Memory, {config.memory_size}: {shape}", [*memory_rows(config)]
    if "edges" in config.parts:
        repeats = min(config.repeats, edges.MOST_ROUNDS)
        table = edges.edge_rows(repeats=repeats, budget=20 * config.seconds)
        title = f"All edges into some receivers: {SHAPES['tiny']}"
        yield "edges", title, table + edges.edge_growth(repeats=repeats, budget=config.seconds)
    if "positions" in config.parts:
        repeats = min(config.repeats, positions.MOST_ROUNDS)
        rows = positions.position_rows(repeats=repeats, budget=20 * config.seconds)
        yield "positions", f"Patching by position: {positions.SHAPE}", rows
    if "calls" in config.parts:
        few = effort | {"budget": 20 * config.seconds}
        yield "calls", "Calls on a few prompts", [*calls.call_rows(**few)]
    if "fixed" in config.parts:
        yield "fixed", "What it costs to begin", fixed.fixed_rows(min(config.repeats, 3))


def two_rivals(setting: Setting) -> dict[str, Any]:
    """The slowest way and the sweep, whose growth is compared."""
    compared = [rival for rival in RIVALS if rival.name in (RAW, SWEEP)]
    return {one.name: partial(one.compute, setting, setting.senders) for one in compared}


ALLOWED = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest difference of two ways to one logit, as a share of the largest logit."""


def rival_rows(setting: Setting, **effort: Any) -> Rows:
    """One row per rival; ratios and differences refer to the first."""
    methods = {
        rival.name: partial(rival.compute, setting, setting.senders)
        for rival in RIVALS
        if not rival.missing
    }
    timings = timed(methods, device=setting.device, **effort)
    return compared_rows(setting, RIVALS, timings, largest_logit(setting))


def compared_rows(
    setting: Setting, rivals: tuple[Rival, ...], timings: Mapping[str, Timing], largest: float
) -> Rows:
    """The rows of some rivals, of which those with a timing ran."""
    first = next(iter(timings.values()))
    allowed = ALLOWED[setting.model.dtype] * largest
    rows: Rows = []
    for rival in rivals:
        row: dict[str, Any] = {"method": rival.name, "remark": "not installed"}
        if rival.engine is not None:
            row["flops"] = plan(setting.model, setting.pairs, engine=rival.engine).flops
        if (timing := timings.get(rival.name)) is not None:
            apart = float((timing.result.cpu() - first.result.cpu()).abs().max())
            row |= {
                "seconds": timing.seconds,
                "cpu_seconds": timing.cpu,
                "ratio": first.spent(setting.device) / timing.spent(setting.device),
                "largest": float(timing.result.abs().max()),
                "difference": apart,
                "rounds": timing.rounds,
                "remark": "" if apart <= allowed else f"DISAGREES (allowed {allowed:.0e})",
            }
        rows.append(row)
    return rows


@torch.no_grad()
def largest_logit(setting: Setting) -> float:
    """Of the answers, unpatched, by Transformers."""
    rows = torch.arange(len(setting.answer), device=setting.device)
    logits = setting.raw(setting.reference, use_cache=False, logits_to_keep=1).logits
    return float(logits[rows, -1, setting.answer].abs().max())


RECORD, PROPAGATE, READOUT = "recording", "rows through the layers", "reading the logits"


@torch.no_grad()
def floor_rows(setting: Setting, **effort: Any) -> Rows:
    """One row per part of the sweep: its time, and the least possible (None: next to nothing).

    The floor of a part is its operations at the rate at which this machine multiplies large square
    matrices, and two plain forwards without the vocabulary matrix.
    """
    both = torch.cat([setting.reference, setting.counterfactual])
    methods = {
        "two forwards": lambda: setting.raw.model(both, use_cache=False).last_hidden_state,
        "products": products(setting.device, setting.model.dtype),
        **sweep_parts(setting.model, setting.pairs),
        "all": lambda: this_package(setting, setting.senders, certify=False),
    }
    timings = timed(methods, device=setting.device, **effort)
    spent = {name: timing.spent(setting.device) for name, timing in timings.items()}
    rate = products_flops(setting.device) / spent["products"]
    moving = plan(setting.model, setting.pairs).patching_flops / rate
    floors = {RECORD: spent["two forwards"], PROPAGATE: moving, READOUT: None}
    spent["checks and results"] = spent["all"] - sum(spent[name] for name in floors)
    floors |= {"checks and results": None, "all": spent["two forwards"] + moving}
    return [
        {
            "part": name,
            "seconds": spent[name],
            "floor": floor,
            "reached": None if floor is None else floor / spent[name],
            "matrix_products_per_second": rate,
        }
        for name, floor in floors.items()
    ]


def sweep_parts(model: HookedModel, pairs: PromptPairs) -> dict[str, Any]:
    """The three parts of a sweep from every head and MLP, each to be run alone."""
    trunk, recording = trunk_of(model), record_pairs(model, pairs)[0]
    senders = Senders.of(every_component(model.n_layers, model.n_heads), model.n_layers)
    rows = sweep_rows(trunk, recording, senders)
    return {
        RECORD: lambda: record_pairs(model, pairs)[0].z,
        PROPAGATE: lambda: sweep_rows(trunk, recording, senders),
        READOUT: lambda: trunk.read(rows, Targets(pairs.answer)).answer,
    }


N_STAND_INS = 2
"""Heads, and MLPs, of the rivals that run the model for each sender: a few stand for all."""


def memory_shape(config: SpeedConfig) -> Shape:
    """The shape whose memory is measured."""
    return replace(SHAPES[config.memory_size], n_pairs=config.memory_pairs)


def memory_of(rival_name: str, config: SpeedConfig) -> dict[str, int | None]:
    """Bytes beyond the loaded model, and its own: run one pair so that everything is in place, then
    watch all pairs. None where not measured."""
    rival = next(rival for rival in RIVALS if rival.name == rival_name)
    if config.threads:
        torch.set_num_threads(config.threads)
    setting = setting_of(memory_shape(config), config.device, getattr(torch, config.dtype))
    senders = setting.senders
    if rival.forwards:
        senders = [*senders[:N_STAND_INS], *senders[-N_STAND_INS:]]  # heads and MLPs
    rival.compute(setting.first_pair(), senders)
    before = resident(setting.device, reset=True)
    rival.compute(setting, senders)
    peak_bytes = peak_beyond(before, setting.device)
    predicted = None
    if rival.engine is not None:
        predicted = plan(setting.model, setting.pairs, engine=rival.engine).peak_bytes
    weights = sum(weight.nbytes for weight in setting.raw.parameters())
    return {"peak_bytes": peak_bytes, "model_bytes": weights, "predicted_bytes": predicted}


def memory_rows(config: SpeedConfig) -> Iterator[dict[str, Any]]:
    """One row per rival that is installed, each measured in a process of its own."""
    for rival in RIVALS:
        if not rival.missing:
            yield {"method": rival.name, **in_process(memory_of, rival.name, config)}


def planned_lines(config: SpeedConfig) -> Iterator[str]:
    """What would be run, and its operations; no weights are made."""
    for size in config.sizes if "rivals" in config.parts else ():
        setting = setting_of(SHAPES[size], "meta")
        flops = plan(setting.model, setting.pairs).flops
        names = ", ".join(rival.name for rival in RIVALS if not rival.missing)
        yield f"{size}: {setting.shape}; {len(setting.senders)} senders: {names}"
        yield f"  the sweep: {flops:.3g} FLOPs"
    if "growth" in config.parts:
        n_points = sum(1 for _ in growth.factors(*config.growth))
        yield f"growth: {n_points} points from {config.growth[0]}"
    if "memory" in config.parts:
        yield f"memory: {len(RIVALS)} processes, each with {memory_shape(config)}"
