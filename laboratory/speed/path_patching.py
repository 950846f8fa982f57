"""How fast is path patching, how does its cost grow, and what memory does it take?

Times the same experiment in several ways on random LLaMAs, and compares their numbers; fits how
time grows; measures peak memory. Prints tables in Markdown and saves them, with the machine's
facts, in a run under results/speed/. Nothing is downloaded.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import psutil
import torch
import tyro

from arith_lens.runs import Run
from laboratory.speed import edges, tables, typed_prompts
from laboratory.speed.measure import (
    SHAPES,
    Setting,
    Usage,
    machine_text,
    meanwhile,
    print_and_save,
    require_gpu,
    require_memory,
    setting_of,
    timed,
    weights_bytes,
)
from laboratory.speed.rivals import RIVALS
from laboratory.speed.tables import ALL_PAIRS, FULL, QUICK, Growth

Part = Literal["rivals", "growth", "memory", "few_shot", "edges", "explorer"]
Size = Literal["tiny", "middle", "wide", "llama-7b"]


@dataclass(frozen=True)
class SpeedConfig:
    """What to measure, and on what."""

    parts: tuple[Part, ...] = ("rivals", "growth", "memory")
    """Rivals: time and numbers of every way; growth: exponents; memory: peaks; few_shot: what the
    sweep saves where prompts begin alike (docs/performance.md has it with --threads 1); edges: all
    edges into one head against two forwards per edge; explorer: a typed prompt in the shipped
    models."""
    sizes: tuple[Size, ...] = ("tiny", "middle", "wide")
    """Shapes for all ways; llama-7b needs a GPU."""
    memory_size: Size = "middle"
    """The shape whose memory is measured."""
    memory_pairs: int = ALL_PAIRS
    """With how many pairs."""
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
    def growth(self) -> Growth:
        return QUICK if self.quick else FULL


def speed(
    config: Annotated[SpeedConfig, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    edges_csv: Path | None = None,
    dry_run: bool = False,
) -> None:
    """How fast is path patching, how does its cost grow, and what memory does it take?

    Args:
        config: what to measure; the same configuration again replaces what it measured before.
        root: where runs are saved.
        edges_csv: where the tables of edges are written too; docs/edges.md has those of
            laboratory/speed/edges.csv.
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
    print_and_save("speed", config, root, partial(measured_parts, config, edges_csv))


def measured_parts(
    config: SpeedConfig, edges_csv: Path | None, run: Run, facts: dict[str, Any]
) -> Iterator[str]:
    """Measure part by part, save each, and report it."""
    yield f"# Path patching, measured\n\n{machine_text(facts)}; {config.dtype} on {config.device}"
    if "rivals" in config.parts:
        for size in config.sizes:
            yield from _rivals(config, size, run, facts)
    if "growth" in config.parts:
        yield from _growth(config, run, facts)
    if "memory" in config.parts:
        yield from _memory(config, run, facts)
    if "edges" in config.parts:
        yield from _edges(config, edges_csv, run, facts)
    if "explorer" in config.parts:
        usage = Usage.now()
        table = typed_prompts.typed_table(config.repeats)
        others = usage.others()
        run.save("explorer", table, **facts, others_cores=others)
        yield f"\n## A typed prompt in the explorer\n\n{meanwhile(others)}\n"
        yield table.markdown(typed_prompts.TYPED_COLUMNS)
    if "few_shot" in config.parts:
        table = tables.few_shot_table(config.repeats)
        run.save("few_shot", table, **facts)
        yield f"\n## Prompts that begin alike\n\n{table.markdown(tables.FEW_SHOT_COLUMNS)}"


def _edges(
    config: SpeedConfig, edges_csv: Path | None, run: Run, facts: dict[str, Any]
) -> Iterator[str]:
    usage = Usage.now()
    repeats = min(config.repeats, edges.MOST_ROUNDS)
    table = edges.edge_table(repeats=repeats, budget=20 * config.seconds)
    growth = edges.edge_growth(repeats=repeats, budget=config.seconds)
    others = usage.others()
    run.save("edges", table, **facts, others_cores=others)
    run.save("edges_growth", growth, **facts, others_cores=others)
    if edges_csv is not None:
        about = {name: facts[name] for name in ("date", "processor", "threads")}
        edges.save_csv(edges_csv, table, growth, about | {"others_cores": others})
    yield f"\n## All edges into some receivers: {SHAPES['tiny']}\n\n{meanwhile(others)}\n"
    yield table.markdown(edges.EDGE_COLUMNS)
    yield ""
    yield growth.markdown(tables.EXPONENT_COLUMNS)


def _rivals(config: SpeedConfig, size: Size, run: Run, facts: dict[str, Any]) -> Iterator[str]:
    usage = Usage.now()
    setting = setting_of(SHAPES[size], config.device, getattr(torch, config.dtype))
    effort = {"repeats": config.repeats, "budget": config.seconds}
    methods = {
        rival.name: partial(rival.compute, setting, setting.senders)
        for rival in RIVALS
        if not rival.missing
    }
    timings = timed(methods, device=setting.device, **effort)
    largest = largest_logit(setting)
    table = tables.rival_table(setting, RIVALS, timings, largest)
    floor = tables.floor_table(setting, **effort)
    others = usage.others()
    about = facts | {"shape": setting.shape, "others_cores": others, "largest_logit": largest}
    run.save(f"rivals_{size}", table, **about)
    run.save(f"floor_{size}", floor, **about)
    effect = float(next(iter(timings.values())).result.abs().max())
    yield f"\n## {size}: {setting.shape}\n"
    yield f"{len(setting.senders)} senders. {meanwhile(others)}\n"
    yield table.markdown(tables.RIVAL_COLUMNS)
    yield f"\nThe largest effect is {effect:.2e}, the largest logit {largest:.2g}.\n"
    yield floor.markdown(tables.FLOOR_COLUMNS)


def _growth(config: SpeedConfig, run: Run, facts: dict[str, Any]) -> Iterator[str]:
    usage = Usage.now()
    points = tables.growth_table(
        config.growth,
        device=config.device,
        dtype=getattr(torch, config.dtype),
        repeats=config.repeats,
        budget=config.seconds / 3,
    )
    others = usage.others()
    fitted = tables.exponents(points)
    about = facts | {"shape": config.growth.base, "others_cores": others}
    run.save("growth", points, **about)
    run.save("exponents", fitted, **about)
    yield f"\n## Growth, from {config.growth.base}\n"
    yield f"One factor at a time. {meanwhile(others)}\n"
    yield fitted.markdown(tables.EXPONENT_COLUMNS)
    yield ""
    yield points.markdown(tables.POINT_COLUMNS)


def _memory(config: SpeedConfig, run: Run, facts: dict[str, Any]) -> Iterator[str]:
    table = tables.memory_table(
        config.memory_size,
        n_pairs=config.memory_pairs,
        device=config.device,
        dtype=config.dtype,
        threads=config.threads,
    )
    shape = replace(SHAPES[config.memory_size], n_pairs=config.memory_pairs)
    run.save("memory", table, **facts, shape=shape)
    yield f"\n## Memory, {config.memory_size}: {shape}\n"
    yield table.markdown(tables.MEMORY_COLUMNS)


def largest_logit(setting: Setting) -> float:
    """Of the answers, unpatched, by Transformers."""
    rows = torch.arange(len(setting.answer), device=setting.device)
    with torch.no_grad():
        logits = setting.raw(setting.reference, use_cache=False, logits_to_keep=1).logits
    return float(logits[rows, -1, setting.answer].abs().max())


def planned_lines(config: SpeedConfig) -> Iterator[str]:
    """What would be run, and its operations; no weights are made."""
    for size in config.sizes if "rivals" in config.parts else ():
        setting = setting_of(SHAPES[size], "meta")
        yield f"{size}: {setting.shape}; {len(setting.senders)} senders"
        for rival in RIVALS:
            work = "not predicted" if rival.flops is None else f"{rival.flops(setting):.3g} FLOPs"
            yield f"  {rival.name:42}{'not installed' if rival.missing else work}"
    if "growth" in config.parts:
        total, n_points = tables.points_flops(config.growth)
        yield f"growth: {n_points} points from {config.growth.base}: {total:.3g} FLOPs a round"
    if "memory" in config.parts:
        shape = replace(SHAPES[config.memory_size], n_pairs=config.memory_pairs)
        yield f"memory: {len(RIVALS)} processes, each with {shape}"
