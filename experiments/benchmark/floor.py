"""What a perfect sweep would take on this machine, and where the rest of the time goes.

The floor is the sweep's operations at the rate at which this machine multiplies large square
matrices, and two plain forwards without the vocabulary matrix.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from arith_lens.path_patching import plan
from arith_lens.path_patching.recording import record_end
from arith_lens.path_patching.sweep import Senders, sweep
from arith_lens.path_patching.trunk import trunk_of
from experiments.benchmark.rivals import by_this_package
from experiments.benchmark.shapes import Setting
from experiments.benchmark.table import Table
from experiments.benchmark.timing import timed

SIDE = {"cpu": 1024, "cuda": 8192}
N_PRODUCTS = 12
FORWARDS, PRODUCTS, WHOLE = "two forwards", "matrix products", "all"
RECORD, PROPAGATE, READ = "recording", "rows through the layers", "reading the logits"


@torch.no_grad()
def floor_table(setting: Setting, repeats: int, budget: int | float) -> Table:
    """A row a part of the sweep: what it takes, and the least it could (None: next to nothing)."""
    timings = timed(_parts(setting), repeats=repeats, budget=budget, device=setting.device)
    spent = {name: timing.spent(setting.device) for name, timing in timings.items()}
    rate = products_flops(setting.device) / spent[PRODUCTS]
    floors = {
        RECORD: spent[FORWARDS],
        PROPAGATE: plan(setting.model, setting.pairs).patching_flops / rate,
        READ: None,
    }
    rest = spent[WHOLE] - sum(spent[name] for name in floors)
    rows = [_row(name, spent[name], floor) for name, floor in floors.items()]
    rows.append(_row("checks and results", rest, None))
    whole = floors[RECORD] + floors[PROPAGATE]
    rows.append(_row(WHOLE, spent[WHOLE], whole))
    return Table([row | {"matrix_products_per_second": rate} for row in rows])


def _parts(setting: Setting) -> dict[str, Callable[[], Tensor]]:
    model, pairs, trunk = setting.model, setting.pairs, trunk_of(setting.model)
    senders = Senders.of(setting.senders, model.n_layers)
    recording = record_end(model, pairs)
    rows = sweep(trunk, recording, senders)
    both = torch.cat([setting.reference, setting.counterfactual])
    return {
        FORWARDS: lambda: setting.raw.model(both, use_cache=False).last_hidden_state,
        PRODUCTS: products(setting.device, model.dtype),
        RECORD: lambda: record_end(model, pairs).z,
        PROPAGATE: lambda: sweep(trunk, recording, senders),
        READ: lambda: trunk.read(rows, pairs.answer).answer,
        WHOLE: lambda: by_this_package(setting, setting.senders, certify=False),
    }


def products(device: torch.device, dtype: torch.dtype) -> Callable[[], Tensor]:
    """Multiplies large square matrices, `products_flops` operations a call."""
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
