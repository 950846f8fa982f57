"""One computation over pairs: its engine, what decides its numbers, and how its result is made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.arrays import Arrays, Storable
from arith_lens.methods.shards import SHARD, Engine, Notes, ShardLoop
from arith_lens.model import HookedLike, compute_device
from arith_lens.pairs import PromptPairs
from arith_lens.runs import ResultSlot, Run

Result = TypeVar("Result", bound=Storable)


def every_pair(loop: ShardLoop, make_engine: Callable[[], Engine]) -> tuple[Tensor, Notes]:
    """Compute every pair once, with one engine."""
    return loop(make_engine())


@dataclass(frozen=True)
class Computation(Generic[Result]):
    """What a method computes with some settings, before it knows where the result is stored."""

    title: str
    """The title of the progress bar."""
    make_engine: Callable[[], Engine]
    """Makes the engine. It is called only if the result is not stored."""
    result: Callable[[Float[Tensor, "row pair"], Notes], Result]
    """Makes the result from the numbers of all pairs, and from the record of the computation."""
    read: Callable[[Arrays], Result]
    """Reads a stored result."""
    settings: Mapping[str, Any]
    """JSON values that decide the numbers, and are written into the record."""
    identity: Mapping[str, Any] = field(default_factory=dict)
    """Other JSON values that decide the numbers, such as the name of the method."""
    foil: Int[Tensor, " pair"] | None = None
    """A token for each pair; None: the method needs none."""
    shard_size: int = SHARD
    """The number of pairs in a shard."""
    loop: Callable[[ShardLoop, Callable[[], Engine]], tuple[Tensor, Notes]] = every_pair
    """Computes the pairs. It may call the loop several times, on parts of the pairs."""

    @torch.no_grad()
    def run(
        self, model: HookedLike, pairs: PromptPairs, *, run: Run | None, name: str, progress: bool
    ) -> Result:
        """Compute the result, or read it if a run has stored it.

        Args:
            run: an open run, which stores each shard when it is finished, and then the result.
            name: the name of the result in the run.

        Raises:
            RunError: the run is not open or was opened with another model; or the disk cannot be
                written, and finished shards are kept.
        """
        settings = {**self.settings, "shard_size": self.shard_size}
        slot = ResultSlot.of(run, name, model, pairs, **settings | dict(self.identity))
        if (arrays := slot.stored(progress=progress)) is not None:
            return self.read(arrays)
        loop = ShardLoop(pairs, self.foil, self.shard_size, slot, self.title, progress)
        values, notes = self.loop(loop, self.make_engine)
        return slot.save(self.result(values, _record(model, pairs, settings, notes)))


def _record(
    model: HookedLike, pairs: PromptPairs, settings: Mapping[str, Any], notes: Notes
) -> Notes:
    """The record of a computation, with its number format, device and threads."""
    return {
        **settings,
        "n_pairs": len(pairs),
        "dtype": str(model.W_U.dtype).removeprefix("torch."),
        "device": str(compute_device(model.unembed)),
        "threads": torch.get_num_threads(),
        **notes,
    }
