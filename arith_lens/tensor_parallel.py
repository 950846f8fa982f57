"""Tensor parallelism: processes that torchrun started hold one model, each a part of its matrices.

All processes run the same code on the same prompts. Transformers' plan for an architecture names
the matrices of attention and MLPs that are split. Here each is split by its outputs, which are
gathered at once. So every hook point has whole activations, which are the same in all processes.
Every other weight is whole in each process.
"""

import os
import re
from importlib.util import find_spec
from typing import Any

VARIABLE = "ARITH_LENS_TENSOR_PARALLEL"
"""The environment variable that is 1 if processes hold one model together."""
SPLIT = "colwise_gather_output"
"""Transformers' name of a matrix that is split by its outputs, which are gathered."""


def is_tensor_parallel() -> bool:
    """Whether the processes hold one model together, instead of a model each."""
    return os.environ.get(VARIABLE) == "1"


def split_config(auto_class: Any, config: Any) -> Any:
    """How `from_pretrained` splits a model among the processes (`distributed_config`).

    Args:
        auto_class: Transformers' class, such as AutoModelForCausalLM.
        config: the model's configuration.

    Raises:
        ValueError: there is one process, or fewer GPUs than processes; or Transformers' plan splits
            nothing.
        ImportError: Transformers is too old.
    """
    import torch
    from transformers.distributed.configuration_utils import DistributedConfig

    n, n_gpus = int(os.environ.get("WORLD_SIZE", "1")), torch.cuda.device_count()
    if n < 2 or 0 < n_gpus <= int(os.environ.get("LOCAL_RANK", "0")):
        raise ValueError(
            f"expected two processes or more with {VARIABLE}=1, and a GPU for each if there are "
            f"any, found {n} processes and {n_gpus} GPUs; start them with torchrun, or remove the "
            "variable"
        )
    if find_spec("transformers.distributed.tensor_parallel") is None:
        raise ImportError(
            "expected a Transformers that splits weights as version 5.23 does, found an older one; "
            "install that version"
        )
    with torch.device("meta"):
        model = auto_class.from_config(config)
    matrices = {
        re.sub(r"\.\d+\.", ".*.", name)
        for name, part in model.named_modules()
        if isinstance(part, torch.nn.Linear) and part is not model.get_output_embeddings()
    }
    styles = {name: style.partition("_")[0] for name, style in (model.tp_plan or {}).items()}
    split = {name for name in matrices if styles.get(name) in ("colwise", "rowwise")}
    if not split:
        raise ValueError(
            "expected an architecture whose matrices Transformers' tp_plan splits, found "
            f"{type(model).__name__} without; load it with device_map= in one process"
        )
    plan = {name: SPLIT if name in split else "replicate" for name in styles}
    return DistributedConfig(tp_plan=plan)


def is_split(module: Any) -> bool:
    """Whether processes hold a weight of this module together (not of its parts)."""
    return any(hasattr(weight, "full_tensor") for weight in module._parameters.values())


def full_weight(weight: Any) -> Any:
    """A weight with all its values, if processes hold it together. All must call this."""
    return weight.full_tensor() if hasattr(weight, "full_tensor") else weight


def least(n: int) -> int:
    """The least of the processes' numbers, if they hold one model together. All must call this."""
    import torch.distributed

    if not (is_tensor_parallel() and torch.distributed.is_initialized()):
        return n
    numbers: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(numbers, n)
    return min(numbers)
