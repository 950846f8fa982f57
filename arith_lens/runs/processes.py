"""The processes that fill one run: started together by torchrun or accelerate, or apart.

Processes that torchrun or accelerate starts together share the folder of the run. A process that is
started with the environment variable ARITH_LENS_PART=2/3 is the second of three, each alone.
"""

import os
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from arith_lens.runs.files import RunError

PART = "ARITH_LENS_PART"
JOIN = timedelta(minutes=10)
"""How long the first process waits for the last one to start."""
WORK = timedelta(days=30)
"""How long a process that has done its share waits for the others. One that dies ends them all."""


class PartDone(RunError):
    """This process has done its part; what others compute apart from it is still missing."""


@dataclass(frozen=True)
class Processes:
    """This process among those that work on a run."""

    index: int = 0
    count: int = 1
    apart: bool = False
    """Whether each has a folder of its own, to be merged afterwards."""

    @property
    def leads(self) -> bool:
        """Whether this one writes the run's record and results."""
        return self.apart or self.index == 0

    def share(self, parts: list[int]) -> list[int]:
        """Which of the parts this process computes."""
        return parts[self.index :: self.count]

    def wait(self) -> None:
        """Go on when every process has come here. Raises RunError where one has ended."""
        self.agree(None)

    def agree(self, value: Any) -> Any:
        """The value of the first process, for all of them; waits for each. Errors as `wait`."""
        if self.count == 1 or self.apart:
            return value
        import torch.distributed

        values = [value]
        try:
            torch.distributed.barrier(group=_waiting_room())
            torch.distributed.broadcast_object_list(values, src=0, group=_waiting_room())
        except RuntimeError as error:
            raise RunError(
                f"expected {self.count} processes at work, found that one has ended ({error}). "
                "Start them again: what was finished is kept."
            ) from error
        return values[0]

    def __str__(self) -> str:
        return f"part {self.index + 1} of {self.count}"


def processes() -> Processes:
    """What the launcher, or `ARITH_LENS_PART`, says.

    Raises:
        RunError: a part that cannot be; or not all processes start.
    """
    if PART in os.environ:
        return _apart(os.environ[PART])
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        return Processes()
    _waiting_room()
    return Processes(int(os.environ["RANK"]), count)


def claim_rank_zero() -> bool:
    """Leave all work to the first of the processes that were started together.

    Whether this is that one; to it, it is then as if it had been started alone.
    """
    first = os.environ.get("RANK", "0") == "0"
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    return first


def _apart(text: str) -> Processes:
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise RunError(f"expected {PART} such as 2/3, the second of three parts, found {text!r}")
    return Processes(int(index) - 1, int(count), apart=True)


@cache
def _waiting_room() -> Any:
    """The group in which processes wait for one another, on the CPU whatever they compute on."""
    import torch.distributed
    from accelerate import PartialState

    try:
        PartialState(timeout=JOIN)  # starts the default group, and takes this process's GPU
    except torch.distributed.DistError as error:
        raise RunError(
            f"expected {os.environ['WORLD_SIZE']} processes, found that some did not start within "
            f"{JOIN} ({error}). Start them again: what was finished is kept."
        ) from error
    return torch.distributed.new_group(backend="gloo", timeout=WORK)
