"""Independent pieces of work, several at a time, each in a process of its own with one thread.

Small models leave cores idle when one training has them all; two trainings with a core each are
faster than one with two. With one process the work is done here.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def side_by_side(
    work: Callable[[Job], Result], jobs: Sequence[Job], processes: int
) -> Iterator[tuple[Job, Result]]:
    """Each job with its result, as they finish. What one raises is raised here, and no further job
    is begun. `work` and jobs must be picklable."""
    if processes == 1 or len(jobs) < 2:
        for job in jobs:
            yield job, work(job)
        return
    with ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_start
    ) as pool:
        futures = {pool.submit(work, job): job for job in jobs}
        try:
            for done in as_completed(futures):
                yield futures[done], done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _start() -> None:
    """One thread, and no life without the process that gave the work: a worker whose parent was
    killed would wait for ever."""
    import torch

    torch.set_num_threads(1)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
