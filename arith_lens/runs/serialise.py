"""Arrays as a safetensors file: tensors in its body, the header as JSON in its metadata.

Equal arrays give equal bytes.
"""

import json
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from arith_lens.arrays import Arrays
from arith_lens.runs.files import RunError, digest, plain

_KEY = "arith_lens"  # a single entry: the order of several would differ from run to run


def to_bytes(arrays: Arrays) -> bytes:
    """The file's contents. Raises TypeError for a header that JSON cannot keep."""
    # safetensors refuses tensors that share memory, as parts of one result may
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in arrays.tensors.items()
    }
    return save_tensors(tensors, metadata={_KEY: json.dumps(plain(arrays.header))})


def from_bytes(data: bytes) -> Arrays:
    """Read `to_bytes` back, bit for bit. Raises RunError for other contents."""
    try:
        return Arrays(load_tensors(data), _header(data))
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"expected a safetensors file that arith_lens wrote, found other contents ({error!r})"
        ) from error


def with_digest(arrays: Arrays) -> bytes:
    """The file's contents with their own digest in the header, for a file that stands alone."""
    header = {**arrays.header, "sha256": digest(to_bytes(arrays))}
    return to_bytes(Arrays(arrays.tensors, header))


def check_digest(data: bytes) -> Arrays:
    """Read `with_digest` back. Raises RunError where anything has changed since."""
    arrays = from_bytes(data)
    header = dict(arrays.header)
    written = header.pop("sha256", None)
    arrays = Arrays(arrays.tensors, header)
    if digest(to_bytes(arrays)) != written:
        raise RunError("its contents are not those that were written")
    return arrays


def _header(data: bytes) -> dict[str, Any]:
    """The metadata; it stands before the arrays, behind its own length in eight bytes."""
    text = data[8 : 8 + int.from_bytes(data[:8], "little")]
    return json.loads(json.loads(text)["__metadata__"][_KEY])
