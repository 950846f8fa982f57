"""The processes that fill one run together: which shard each takes, and where they meet.

They talk through torch's store. Each takes the next shard when it is free, so a slow process takes
few, and the shards of a process that has ended are dealt to the others.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from itertools import count
from typing import Any
from uuid import uuid4

from arith_lens.runs.files import RunError
from arith_lens.tensor_parallel import is_tensor_parallel

PART_VARIABLE = "ARITH_LENS_PART"
JOIN = timedelta(minutes=10)
"""How long a process waits for the last one to start."""
BEAT = 1.0
"""Seconds between two signs of life of a process."""
SILENCE = 60.0
"""Seconds without a sign of life after which a process counts as ended."""
LONGEST_PAUSE = 0.2
"""Seconds between two looks at the store, at most."""
_runs = count()
"""The number of the next run that processes share. All open the same runs in the same order."""


@dataclass
class Meetings:
    """Where the processes of one run meet. Each calls the same functions in the same order."""

    store: Any
    """Torch's store."""
    start: str
    """How the keys of this start of the processes begin."""
    run: str
    """How the keys of this run begin."""
    index: int
    """The number of this process."""
    others: set[int]
    """The processes that have not ended."""
    steps: Iterator[int] = field(default_factory=count)
    heard: dict[int, tuple[int, float]] = field(default_factory=dict)
    """The signs of life of each process so far, and when the last one was heard."""

    def next_key(self) -> str:
        """The key of the next meeting."""
        return f"{self.run} step {next(self.steps)}"

    def take(self, key: str) -> int:
        """The next number, from 0, which no other process gets."""
        return self.store.add(key, 1) - 1

    def agree(self, value: Any) -> Any:
        """The JSON value of the first process."""
        key = self.next_key()
        if self.index == 0:
            self.store.set(f"{key} 0", json.dumps(value))
            return value
        self.await_keys(key, {0})
        return json.loads(self.store.get(f"{key} 0"))

    def wait(self) -> set[int]:
        """Wait until all have come here. Returns those that have ended instead."""
        key = self.next_key()
        self.store.set(f"{key} {self.index}", "")
        return self.await_keys(key, set(self.others))

    def leave(self) -> None:
        """Tell the others that this process ends the run. The first one leaves last."""
        self.store.set(f"{self.run} left {self.index}", "")
        if self.index == 0:
            self.await_keys(f"{self.run} left", set(self.others))

    def await_keys(self, key: str, of: Iterable[int]) -> set[int]:
        """Wait for a key of some processes. Returns those that have ended without it.

        Raises:
            DistError: the first process has ended.
        """
        import torch.distributed

        waiting, ended, pause = set(of), set[int](), 0.001
        while True:
            gone = {other for other in waiting if self.has_ended(other)}  # before their keys
            waiting = {other for other in waiting if not self.store.check([f"{key} {other}"])}
            ended |= gone & waiting
            waiting -= ended
            if 0 in ended:
                raise torch.distributed.DistError("expected a sign of its life, found none")
            if not waiting:
                self.others -= ended
                return ended
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def has_ended(self, other: int) -> bool:
        """Whether a process has left the run, or gave no sign of life for a while."""
        beats, now = self.store.add(f"{self.start} beats {other}", 0), time.monotonic()
        if self.heard.get(other, (None, now))[0] != beats:
            self.heard[other] = (beats, now)
        silent = now - self.heard[other][1] > SILENCE
        return silent or self.store.check([f"{self.run} left {other}"])


@dataclass(frozen=True)
class Processes:
    """The processes that work on a run, and which of them this process is."""

    index: int = 0
    """The number of this process, from 0."""
    count: int = 1
    """The number of all processes."""
    apart: bool = False
    """Whether each process writes to a root of its own, to be copied into one afterwards."""
    together: bool = False
    """Whether all processes compute each part together, and the first one writes it."""
    meetings: Meetings | None = None
    """Where they meet; None: this process is alone, or works apart."""

    @property
    def leads(self) -> bool:
        """Whether this process writes the run's manifest and results."""
        return self.apart or self.index == 0

    def deal(self, n: int) -> Iterator[int]:
        """Which of n parts this process computes: the next one, each time that it is free."""
        if self.together:
            yield from range(n)
            return
        if self.meetings is None:
            yield from range(self.index, n, self.count)
            return
        key = self.meetings.next_key()
        while (part := self._met(self.meetings.take, key)) < n:
            yield part

    def wait(self) -> set[int]:
        """Wait until every process has called this. Returns those that have ended instead.

        Raises:
            RunError: the first process has ended.
        """
        return set() if self.meetings is None else self._met(self.meetings.wait)

    def agree(self, value: Any) -> Any:
        """Return the JSON value of the first process in every process. Raises as `wait`."""
        return value if self.meetings is None else self._met(self.meetings.agree, value)

    def leave(self) -> None:
        """End the work on the run. The first process waits until the others have left it."""
        if self.meetings is not None:
            self._met(self.meetings.leave)

    def _met(self, meet: Callable[..., Any], *values: Any) -> Any:
        import torch.distributed

        try:
            return meet(*values)
        except torch.distributed.DistError as error:
            raise RunError(
                f"expected {self.count} processes at work, found that the first one has ended "
                f"({error}). Start them again: what was finished is kept."
            ) from error

    def __str__(self) -> str:
        return f"part {self.index + 1} of {self.count}"


def processes() -> Processes:
    """The processes that the launcher or `ARITH_LENS_PART` names. Each run calls this once.

    Raises:
        RunError: the part is not valid, or not all processes start.
    """
    if (part := os.environ.get(PART_VARIABLE)) is not None:
        index, _, parts = part.partition("/")
        if not (index.isdigit() and parts.isdigit() and 1 <= int(index) <= int(parts)):
            raise RunError(
                f"expected {PART_VARIABLE} such as 2/3, the second of three parts, found {part!r}"
            )
        return Processes(int(index) - 1, int(parts), apart=True)
    n = int(os.environ.get("WORLD_SIZE", "1"))
    if n == 1:
        return Processes()
    index = int(os.environ["RANK"])
    store, start = _store()
    run = f"{start} run {next(_runs)}"
    meetings = Meetings(store, start, run, index, others={*range(n)} - {index})
    return Processes(index, n, together=is_tensor_parallel(), meetings=meetings)


def claim_rank_zero() -> bool:
    """Leave all work to the first of the processes that were started together.

    The variables of the launcher are removed, so that the first process works as if it were alone.

    Returns:
        Whether this is the first process.
    """
    first = os.environ.get("RANK", "0") == "0"
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    return first


@cache
def _store() -> tuple[Any, str]:
    """Torch's store, which the launcher or the first process serves, and the name of this start of
    the processes. A thread sends signs of life.

    Raises:
        RunError: not all processes start.
    """
    import torch.distributed
    from torch.distributed.rendezvous import rendezvous

    try:
        store, index, n = next(rendezvous("env://", timeout=JOIN))
        start = _named_start(store, index, n)
    except torch.distributed.DistError as error:
        raise RunError(
            f"expected {os.environ['WORLD_SIZE']} processes, found that some did not start within "
            f"{JOIN} ({error}). Start them again: what was finished is kept."
        ) from error
    threading.Thread(target=_send_beats, args=(store, f"{start} beats {index}")).start()
    return store, start


def _named_start(store: Any, index: int, n: int) -> str:
    """A name that all processes of this start have, and none of an earlier one.

    Torchrun starts processes anew with the same store. So each shows a word of its own. The first
    one shows all words until each process has seen its own there; its own word is the name.

    Raises:
        DistError: not all processes start.
    """
    import torch.distributed

    word, limit = uuid4().hex, time.monotonic() + JOIN.total_seconds()
    store.set(f"arith_lens word {index}", word)
    while time.monotonic() < limit:
        if index == 0:
            keys = [f"arith_lens word {other}" for other in range(n)]
            words = [store.get(key).decode() if store.check([key]) else "" for key in keys]
            store.set("arith_lens words", json.dumps(words))
            if store.check([f"{word} seen {other}" for other in range(1, n)]):
                return word
        elif store.check(["arith_lens words"]):
            words = json.loads(store.get("arith_lens words"))
            if words[index:][:1] == [word]:
                store.set(f"{words[0]} seen {index}", "")
                return words[0]
        time.sleep(LONGEST_PAUSE / 4)
    raise torch.distributed.DistError("expected a word of each process, found none of some")


def _send_beats(store: Any, key: str) -> None:
    """Send signs of life until this process, or the first one, ends."""
    main = threading.main_thread()
    with suppress(RuntimeError):  # the first process has ended: the next meeting says it
        while main.is_alive():
            store.add(key, 1)
            main.join(BEAT)
