"""The tables of path patching: the rivals, the sweep's parts, growth, memory, shared beginnings."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import median
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from arith_lens.components import every_component
from arith_lens.methods import Senders
from arith_lens.metrics import Targets
from arith_lens.model import HookedModel
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import (
    SweepEngine,
    patch_settings,
    plan,
    record_pairs,
    sweep_rows,
    trunk_of,
)
from laboratory.speed.measure import (
    SHAPES,
    Cell,
    Column,
    Setting,
    Shape,
    SpeedTable,
    Timing,
    in_process,
    once,
    peak_beyond,
    resident,
    setting_of,
    timed,
)
from laboratory.speed.rivals import RAW, RIVALS, SWEEP, Rival, by_this_package

RIVAL_COLUMNS = {
    "method": Column("method"),
    "seconds": Column("seconds", ".3g"),
    "of the processor": Column("cpu_seconds", ".3g"),
    "ms per sender": Column("seconds_per_sender", ".3g", 1e3),
    "ratio": Column("ratio", ".1f"),
    "GFLOP": Column("flops", ",.4g", 1e-9),
    "largest difference": Column("difference", ".1e"),
    "": Column("remark"),
}
ALLOWED = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""Largest difference of two ways to one logit, as a share of the largest logit."""


def rival_table(
    setting: Setting, rivals: Iterable[Rival], timings: dict[str, Timing], largest: int | float
) -> SpeedTable:
    """One row per rival; ratios and differences refer to the first.

    Args:
        timings: of those that ran.
        largest: the largest logit of an answer, unpatched.
    """
    first = next(iter(timings.values()))
    allowed = ALLOWED[str(setting.model.dtype).removeprefix("torch.")] * largest
    rows: list[dict[str, Cell]] = []
    for rival in rivals:
        row: dict[str, Cell] = {"method": rival.name, "remark": "not installed"}
        if rival.flops is not None:
            row["flops"] = rival.flops(setting)
        if (timing := timings.get(rival.name)) is not None:
            apart = float((timing.result.cpu() - first.result.cpu()).abs().max())
            row |= {
                "seconds": timing.seconds,
                "cpu_seconds": timing.cpu,
                "seconds_per_sender": timing.seconds / len(setting.senders),
                "ratio": first.spent(setting.device) / timing.spent(setting.device),
                "difference": apart,
                "rounds": timing.rounds,
                "remark": "" if apart <= allowed else f"DISAGREES (allowed {allowed:.0e})",
            }
        rows.append(row)
    return SpeedTable(rows)


FLOOR_COLUMNS = {
    "part of the sweep": Column("part"),
    "seconds": Column("seconds", ".4f"),
    "at best": Column("floor", ".4f"),
    "reached": Column("reached", ".0%"),
}
SIDE = {"cpu": 1024, "cuda": 8192}
N_PRODUCTS = 12
FORWARDS, PRODUCTS, ALL_PARTS = "two forwards", "matrix products", "all"
RECORD, PROPAGATE, READOUT = "recording", "rows through the layers", "reading the logits"


@torch.no_grad()
def floor_table(setting: Setting, repeats: int, budget: int | float) -> SpeedTable:
    """One row per part of the sweep: its time, and the least possible (None: next to nothing).

    The floor of a part is its operations at the rate at which this machine multiplies large square
    matrices, and two plain forwards without the vocabulary matrix.
    """
    timings = timed(_parts(setting), repeats=repeats, budget=budget, device=setting.device)
    spent = {name: timing.spent(setting.device) for name, timing in timings.items()}
    rate = products_flops(setting.device) / spent[PRODUCTS]
    floors = {
        RECORD: spent[FORWARDS],
        PROPAGATE: plan(setting.model, setting.pairs).patching_flops / rate,
        READOUT: None,
    }
    rest = spent[ALL_PARTS] - sum(spent[name] for name in floors)
    rows = [_row(name, spent[name], floor) for name, floor in floors.items()]
    rows.append(_row("checks and results", rest, None))
    floor = floors[RECORD] + floors[PROPAGATE]
    rows.append(_row(ALL_PARTS, spent[ALL_PARTS], floor))
    return SpeedTable([row | {"matrix_products_per_second": rate} for row in rows])


def _parts(setting: Setting) -> dict[str, Callable[[], Tensor]]:
    both = torch.cat([setting.reference, setting.counterfactual])
    return {
        FORWARDS: lambda: setting.raw.model(both, use_cache=False).last_hidden_state,
        PRODUCTS: products(setting.device, setting.model.dtype),
        **sweep_parts(setting.model, setting.pairs),
        ALL_PARTS: lambda: by_this_package(setting, setting.senders, certify=False),
    }


def sweep_parts(model: HookedModel, pairs: PromptPairs) -> dict[str, Callable[[], Tensor]]:
    """The three parts of a sweep from every head and MLP, each to be run alone."""
    trunk, recording = trunk_of(model), record_pairs(model, pairs)[0]
    n_layers, n_heads = model.n_layers, model.n_heads
    senders = Senders.of(every_component(n_layers, n_heads), n_layers)
    rows = sweep_rows(trunk, recording, senders)
    return {
        RECORD: lambda: record_pairs(model, pairs)[0].z,
        PROPAGATE: lambda: sweep_rows(trunk, recording, senders),
        READOUT: lambda: trunk.read(rows, Targets(pairs.answer)).answer,
    }


def products(device: torch.device, dtype: torch.dtype) -> Callable[[], Tensor]:
    """Multiplies large square matrices, `products_flops` operations per call."""
    square = torch.rand(3, *2 * [_side(device)], device=device).to(dtype)

    def multiply() -> Tensor:
        for _ in range(N_PRODUCTS):
            torch.mm(square[0], square[1], out=square[2])
        return square[2]

    return multiply


def products_flops(device: torch.device) -> int:
    """Of one call of `products`."""
    return N_PRODUCTS * 2 * _side(device) ** 3


def _side(device: torch.device) -> int:
    return SIDE.get(device.type, SIDE["cpu"])


def _row(part: str, seconds: float, floor: float | None) -> dict[str, str | float | None]:
    share = None if floor is None else floor / seconds
    return {"part": part, "seconds": seconds, "floor": floor, "reached": share}


EXPONENT_COLUMNS = {
    "grows with": Column("factor"),
    "method": Column("method"),
    "exponent of time": Column("exponent", ".2f"),
    "standard error": Column("stderr", ".2f"),
    "of operations": Column("flops_exponent", ".2f"),
    "points": Column("points"),
}
POINT_COLUMNS = {
    "factor": Column("factor"),
    "value": Column("value"),
    "method": Column("method"),
    "seconds": Column("seconds", ".3g"),
    "of the processor": Column("cpu_seconds", ".3g"),
    "GFLOP": Column("flops", ",.4g", 1e-9),
}


@dataclass(frozen=True)
class Growth:
    """A shape, and the values that each of its sizes takes while the others stay."""

    base: Shape
    values: dict[str, tuple[int, ...]]

    def shapes(self) -> Iterator[tuple[str, int, Shape]]:
        """Factor, its value, the shape; at fixed d_model, more heads are narrower ones."""
        for factor, values in self.values.items():
            for value in values:
                yield factor, value, replace(self.base, **{factor: value})


FULL = Growth(
    Shape(4, 512, 16, 1376, 1000, n_pairs=8, n_tokens=12),
    {
        "n_layers": (2, 4, 8, 16),
        "n_heads": (4, 8, 16, 32),
        "n_tokens": (8, 16, 32, 64),
        "n_pairs": (4, 8, 16, 32),
    },
)
QUICK = Growth(
    Shape(2, 64, 4, 176, 100, n_pairs=4, n_tokens=8),
    {
        "n_layers": (1, 2, 4, 8),
        "n_heads": (2, 4, 8, 16),
        "n_tokens": (4, 8, 16, 32),
        "n_pairs": (2, 4, 8, 16),
    },
)
COMPARED_RIVALS = tuple(rival for rival in RIVALS if rival.name in (RAW, SWEEP))


def growth_table(
    growth: Growth, *, device: str, dtype: torch.dtype, repeats: int, budget: int | float
) -> SpeedTable:
    """One row per point and method: time, and the operations predicted."""
    rows: list[dict[str, Cell]] = []
    for factor, value, shape in growth.shapes():
        setting = setting_of(shape, device, dtype)
        methods = {
            rival.name: partial(rival.compute, setting, setting.senders)
            for rival in COMPARED_RIVALS
        }
        timings = timed(methods, repeats=repeats, budget=budget, device=setting.device)
        for rival in COMPARED_RIVALS:
            timing = timings[rival.name]
            rows.append(
                {
                    "factor": factor,
                    "value": value,
                    "method": rival.name,
                    "seconds": timing.seconds,
                    "cpu_seconds": timing.cpu,
                    "spent": timing.spent(setting.device),
                    "rounds": timing.rounds,
                    "flops": _flops(rival, setting),
                }
            )
    return SpeedTable(rows)


def points_flops(growth: Growth) -> tuple[int, int]:
    """Operations of all methods at all points, once, and how many points there are."""
    shapes = [shape for _, _, shape in growth.shapes()]
    settings = [setting_of(shape, "meta") for shape in shapes]
    return sum(_flops(rival, at) for at in settings for rival in COMPARED_RIVALS), len(shapes)


def _flops(rival: Rival, setting: Setting) -> int:
    assert rival.flops is not None
    return rival.flops(setting)


def exponents(growth: SpeedTable) -> SpeedTable:
    """One row per factor and method: the exponents of time, with standard errors, and of FLOPs.

    An exponent is the slope of log time over log factor, by least squares. Time that grows more
    slowly than operations has a fixed part, or runs larger matrices better.
    """
    from scipy.stats import linregress

    rows: list[dict[str, Cell]] = []
    series = growth.to_dataframe().groupby(["factor", "method"], sort=False)
    for (factor, method), points in series:  # pyright: ignore[reportGeneralTypeIssues]
        value, *measured = (
            np.log(points[name].astype(float)) for name in ("value", "spent", "flops")
        )
        time, work = (cast(Any, linregress(value, logs)) for logs in measured)
        rows.append(
            {
                "factor": factor,
                "method": method,
                "points": len(points),
                "exponent": float(time.slope),
                "stderr": float(time.stderr),
                "flops_exponent": float(work.slope),
            }
        )
    return SpeedTable(rows)


ALL_PAIRS = 64
"""As many as this package computes at once."""
N_STAND_INS = 2
"""Heads, and MLPs, of the rivals that run the model for each sender: a few stand for all."""
MEMORY_COLUMNS = {
    "method": Column("method"),
    "MB beyond the model": Column("peak_bytes", ",.1f", 1e-6),
    "predicted by plan": Column("predicted_bytes", ",.1f", 1e-6),
    "": Column("remark"),
}


@dataclass(frozen=True)
class PatchingMemoryJob:
    """One measurement of memory: a rival, and on which shape."""

    rival: str
    size: str
    n_pairs: int
    device: str
    dtype: str
    threads: int

    def measure(self) -> dict[str, Cell]:
        """Load, run one pair so that everything is in place, then watch all pairs."""
        rival = next(rival for rival in RIVALS if rival.name == self.rival)
        if self.threads:
            torch.set_num_threads(self.threads)
        shape = replace(SHAPES[self.size], n_pairs=self.n_pairs)
        setting = setting_of(shape, self.device, getattr(torch, self.dtype))
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
        return {
            "peak_bytes": peak_bytes,
            "model_bytes": sum(weight.nbytes for weight in setting.raw.parameters()),
            "predicted_bytes": predicted,
        }


def memory_table(size: str, *, n_pairs: int, device: str, dtype: str, threads: int) -> SpeedTable:
    """One row per rival, each measured in a process of its own.

    Bytes beyond the loaded model, and the model's own; None where not measured.
    """
    rows: list[dict[str, Cell]] = []
    for rival in RIVALS:
        row: dict[str, Cell] = {"method": rival.name, "remark": "not installed"}
        if not rival.missing:
            row |= in_process(PatchingMemoryJob(rival.name, size, n_pairs, device, dtype, threads))
            row["remark"] = "not measured: needs Linux" if row["peak_bytes"] is None else ""
        rows.append(row)
    return SpeedTable(rows)


QUESTION_TOKENS = 24
"""Tokens after the examples; the first of them differ between the prompts of a pair."""
MIDDLE_SHAPE = SHAPES["middle"]
FEW_SHOT_CASES = {
    "`middle`, 8 pairs of 16 tokens": (MIDDLE_SHAPE, False),
    "216 tokens, each pair its own examples": (replace(MIDDLE_SHAPE, n_tokens=216), False),
    "216 tokens, one set of examples": (replace(MIDDLE_SHAPE, n_tokens=216), True),
}


def few_shot_pairs(shape: Shape, *, one_context: bool) -> PromptPairs:
    """Random prompts whose pairs differ in the last tokens alone; at short prompts, anywhere."""
    generator = torch.Generator().manual_seed(1)
    size = (shape.n_pairs, shape.n_tokens)
    reference, other = torch.randint(4, shape.d_vocab, (2, *size), generator=generator)
    shared = max(0, shape.n_tokens - QUESTION_TOKENS)
    if one_context:
        reference[:, :shared] = reference[0, :shared]
    other[:, :shared] = reference[:, :shared]
    answer = torch.randint(4, shape.d_vocab, size[:1], generator=generator)
    return PromptPairs.from_tokens(reference, other, answer)


@torch.no_grad()
def round_seconds(
    setting: Setting, pairs: PromptPairs, rounds: int
) -> tuple[int | None, dict[tuple[bool, bool], list[float]]]:
    """How many tokens are recorded for each prompt alone; and the processor's seconds per round.

    Seconds are by whether beginnings may be shared and whether a certificate is made. A first round
    warms up.
    """
    patching = patch_settings(
        setting.model, None, paths="via_mlps", metric="logit", foil=None, pairs=pairs
    )

    def compute(shares: bool, certify: bool) -> Tensor:
        engine_patching = patching if shares else replace(patching, per_pair_tokens=None)
        return SweepEngine.of(setting.model, engine_patching, certify=certify)(pairs, None)

    taken: dict[tuple[bool, bool], list[float]] = {}
    for index, *how in product(range(1 + rounds), (False, True), (False, True)):
        _, _, busy = once(partial(compute, *how), setting.device)
        if index:
            taken.setdefault((how[0], how[1]), []).append(busy)
    return patching.per_pair_tokens, taken


FEW_SHOT_COLUMNS = {
    "prompts": Column("prompts"),
    "own tokens": Column("per_pair_tokens"),
    "all tokens, s": Column("all_seconds", ".2f"),
    "shared, s": Column("shared_seconds", ".2f"),
    "ratio": Column("ratio", ".2f"),
    "certificate, all tokens": Column("all_certificate", ".0%"),
    "certificate, shared": Column("shared_certificate", ".0%"),
}


def few_shot_table(rounds: int) -> SpeedTable:
    """One row per kind of prompts: what it saves to record once what prompts have in common.

    Processor time of the sweep engine with and without shared beginnings, and what its certificate
    adds: medians of the rounds' ratios.
    """
    rows: list[dict[str, Cell]] = []
    for name, (shape, one_context) in FEW_SHOT_CASES.items():
        pairs = few_shot_pairs(shape, one_context=one_context)
        per_pair_tokens, seconds = round_seconds(setting_of(shape), pairs, rounds)
        rows.append(
            {
                "prompts": name,
                "per_pair_tokens": str(per_pair_tokens or "all"),
                "all_seconds": median(seconds[False, True]),
                "shared_seconds": median(seconds[True, True]),
                "ratio": _ratio(seconds[False, True], seconds[True, True]),
                "all_certificate": _ratio(seconds[False, True], seconds[False, False]) - 1,
                "shared_certificate": _ratio(seconds[True, True], seconds[True, False]) - 1,
            }
        )
    return SpeedTable(rows)


def _ratio(seconds: list[float], others: list[float]) -> float:
    """The median of the ratios of the rounds."""
    return median(a / b for a, b in zip(seconds, others, strict=True))
