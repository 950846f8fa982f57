"""Compute in chunks that fit in memory, and in smaller ones if they do not."""

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from arith_lens.tensor_parallel import is_tensor_parallel, least

LOG = logging.getLogger(__name__)
CPU_SAYS = ("can't allocate memory", "cannot allocate memory")
"""Messages of torch and the system for errors that have no class of their own."""


def in_chunks(compute: Callable[[slice], Tensor], n_pairs: int, chunk: int) -> tuple[Tensor, int]:
    """Call `compute` on slices of the pairs, and join the results on the last axis.

    If memory is too small, the chunk is halved, which is logged. Finished slices are kept.

    Returns:
        The joined result, and the size of chunk that fitted.

    Raises:
        MemoryError: a single pair does not fit.
    """
    done: list[Tensor] = []
    start = 0
    while start < n_pairs:
        stop = min(start + chunk, n_pairs)
        piece = _unless_out_of_memory(compute, slice(start, stop))
        if piece is not None:
            done.append(piece)
            start = stop
        elif stop - start > 1:
            chunk = (stop - start) // 2
            LOG.warning("out of memory with %d pairs at once; goes on with %d", stop - start, chunk)
        else:
            raise MemoryError(
                "expected memory for one pair at a time, found too little; patch fewer senders= "
                "at once, free memory, or load the model in a smaller dtype"
            )
    return torch.cat(done, dim=-1), chunk


def fitting_pairs(one_pair: int, n_pairs: int, device: torch.device) -> int:
    """The number of pairs that fit in half of the free memory: a power of two, or all."""
    fits = max(1, free_bytes(device) // 2 // one_pair)
    return n_pairs if fits >= n_pairs else 1 << (fits.bit_length() - 1)


def free_bytes(device: torch.device) -> int:
    """The free memory of a device in bytes, with the memory that torch has cached.

    If processes hold one model together, it is that of the process with the least.
    """
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return least(torch.cuda.mem_get_info(device)[0] + cached)
    import psutil

    return least(psutil.virtual_memory().available)


def _unless_out_of_memory(compute: Callable[[slice], Tensor], part: slice) -> Tensor | None:
    try:
        return compute(part)
    except (RuntimeError, MemoryError) as error:
        if is_tensor_parallel() or not is_out_of_memory(error):  # the others would wait
            raise
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Whether an error means that memory was too small.

    A failed allocation on a CPU is a plain RuntimeError, which only its text shows. A MemoryError
    comes from inner chunks that could not be halved further.
    """
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or any(phrase in str(error).lower() for phrase in CPU_SAYS)
