"""PyTorch's settings of a process that decide the bits of a result."""

from typing import Any

import torch

_FLAGS = (
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cuda.matmul.allow_fp16_accumulation",
    *("cudnn.enabled", "cudnn.benchmark", "cudnn.deterministic", "cudnn.conv.fp32_precision"),
    *("mkldnn.enabled", "mkldnn.deterministic", "mkldnn.conv.fp32_precision"),
)
"""Attributes of `torch.backends`. None for those that this version of PyTorch lacks."""
_KERNELS = ("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp")


def matmul_precision() -> str:
    """How products of float32 matrices are rounded: `highest`, or each backend's own setting.

    PyTorch's `get_float32_matmul_precision` raises after a backend's `fp32_precision` was set.
    """
    backends: Any = torch.backends
    if not hasattr(backends.cuda.matmul, "fp32_precision"):  # PyTorch before 2.9
        return torch.get_float32_matmul_precision()
    settings = {
        name: str(getattr(backends, name).matmul.fp32_precision) for name in ("cuda", "mkldnn")
    }
    if {*settings.values()} <= {"none", "ieee"}:
        return "highest"
    return ", ".join(f"{name} {setting}" for name, setting in settings.items())


def numeric_settings() -> dict[str, Any]:
    """PyTorch's settings of this process that decide the bits of a result, as JSON."""
    kernels = {name: getattr(torch.backends.cuda, f"{name}_enabled", bool)() for name in _KERNELS}
    return {
        "matmul_precision": matmul_precision(),
        "autocast": {
            device: str(torch.get_autocast_dtype(device))
            for device in ("cpu", "cuda")
            if torch.is_autocast_enabled(device)
        },
        "default_dtype": str(torch.get_default_dtype()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "attention_kernels": sorted(name for name, is_on in kernels.items() if is_on),
        "backends": {name: _flag(name) for name in _FLAGS},
    }


def _flag(name: str) -> Any:
    """An attribute of `torch.backends`; None if this version of PyTorch lacks it."""
    value: Any = torch.backends
    for part in name.split("."):
        value = getattr(value, part, None)
    return value if value is None or isinstance(value, bool | str) else repr(value)
