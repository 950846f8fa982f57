"""Training over several processes, as `torchrun` and `accelerate launch` start them."""

import os
from typing import Any


def n_processes() -> int:
    """How many train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_sharded() -> bool:
    """Whether `accelerate launch --use_fsdp` asked to shard the parameters over the processes."""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() in ("1", "true")


def refuse_sharded(method: str, device: str) -> None:
    """Raise ValueError for FSDP but with full fine-tuning: slices are written into whole matrices.

    The others need gradients and optimizer state of a few percent of the weights. Without a GPU
    accelerate would leave `--use_fsdp` aside and say nothing.
    """
    if is_sharded() and method != "full":
        raise ValueError(
            f"expected method 'full' under FSDP, found {method!r}; start the others without "
            "--use_fsdp, data parallel"
        )
    if is_sharded() and device == "cpu":
        raise ValueError(
            "expected GPUs under FSDP, found the CPU, where accelerate shards nothing; start "
            "without --use_fsdp"
        )


def whole_state(trainer: Any) -> dict[str, Any] | None:
    """The tuned weights gathered by the first of all processes; None where each has them whole."""
    if not trainer.is_fsdp_enabled:
        return None
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return get_model_state_dict(trainer.model_wrapped, options=options)
