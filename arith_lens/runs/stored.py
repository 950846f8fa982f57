"""ComponentEffects as a safetensors file: arrays in the body, axes and names in the header."""

import json
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from arith_lens.effects import ComponentEffects, Effects
from arith_lens.runs.files import RunError, plain

FORMAT = "1"


@dataclass(frozen=True)
class Stored:
    """What one file holds."""

    effects: ComponentEffects
    computed: Bool[Tensor, "pair"] | None  # the answer is neither operand; None if not known


def to_bytes(stored: Stored) -> bytes:
    """The file's contents. Templates are numbered; the header has their names."""
    effects = stored.effects
    heads, mlps = effects.heads, effects.mlps
    names = sorted({*(heads.template or ())})
    tensors = {"heads": heads.per_pair, "mlps": mlps.per_pair, "logit": effects.logit}
    if heads.template is not None:
        tensors["template"] = torch.tensor([names.index(name) for name in heads.template])
    if heads.cluster is not None:
        tensors["cluster"] = heads.cluster
    if stored.computed is not None:
        tensors["computed"] = stored.computed
    header = {
        "arith_lens_effects": FORMAT,
        "axes": {"heads": [*heads.axes, "pair"], "mlps": [*mlps.axes, "pair"], "logit": ["pair"]},
        "metric": heads.metric,
        "paths": heads.paths,
        "templates": names,
        "n_left_out": effects.n_left_out,
        "computation": plain(effects.computation),
    }
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save_tensors(kept, metadata={key: json.dumps(value) for key, value in header.items()})


def from_bytes(data: bytes) -> Stored:
    """Read `to_bytes` back, bit for bit.

    Raises:
        RunError: not such a file, or one of another version.
    """
    header = _header(data)
    tensors = load_tensors(data)
    templates = None
    if "template" in tensors:
        templates = tuple(header["templates"][i] for i in tensors["template"].tolist())
    shared: dict[str, Any] = {
        "metric": header["metric"],
        "paths": header["paths"],
        "template": templates,
        "cluster": tensors.get("cluster"),
    }
    axes = header["axes"]
    effects = ComponentEffects(
        heads=Effects(tensors["heads"], axes=tuple(axes["heads"][:-1]), **shared),
        mlps=Effects(tensors["mlps"], axes=tuple(axes["mlps"][:-1]), **shared),
        logit=tensors["logit"],
        n_left_out=header["n_left_out"],
        computation=header["computation"],
    )
    return Stored(effects, tensors.get("computed"))


def _header(data: bytes) -> dict[str, Any]:
    """The metadata; it stands before the arrays, behind its own length in eight bytes."""
    try:
        text = data[8 : 8 + int.from_bytes(data[:8], "little")]
        metadata = json.loads(text).get("__metadata__") or {}
        header = {key: json.loads(value) for key, value in metadata.items()}
    except ValueError as error:
        raise RunError("expected a safetensors file with effects, found other contents") from error
    if header.get("arith_lens_effects") != FORMAT:
        raise RunError(
            f"expected effects of format {FORMAT}, found {header.get('arith_lens_effects')}; "
            "run the experiment again with this version"
        )
    return header
