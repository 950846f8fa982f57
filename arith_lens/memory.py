"""Work in pieces that fit in memory, and in smaller ones when they do not."""

import logging
from collections.abc import Callable

import torch
from torch import Tensor

LOG = logging.getLogger(__name__)
CPU_SAYS = ("can't allocate memory", "cannot allocate memory")
"""What torch and the system say where memory is short, in errors of no class of its own."""


def in_chunks(compute: Callable[[slice], Tensor], n_pairs: int, chunk: int) -> tuple[Tensor, int]:
    """`compute` on slices of the pairs, joined on the last axis; and the chunk that fitted.

    Out of memory halves the chunk, logs it and goes on; what was computed is kept. Raises
    MemoryError where a single pair does not fit.
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
    """How many pairs of so many bytes fit in half of the free memory: a power of two, or all."""
    fits = max(1, free_bytes(device) // 2 // one_pair)
    return n_pairs if fits >= n_pairs else 1 << (fits.bit_length() - 1)


def free_bytes(device: torch.device) -> int:
    """Memory that can still be had on a device, what torch keeps cached included."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    import psutil

    return psutil.virtual_memory().available


def _unless_out_of_memory(compute: Callable[[slice], Tensor], part: slice) -> Tensor | None:
    try:
        return compute(part)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Whether memory was short. A CPU allocation that fails is a bare RuntimeError, and only its
    text tells. A MemoryError is that of chunks within these, which gave up."""
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or any(phrase in str(error).lower() for phrase in CPU_SAYS)
