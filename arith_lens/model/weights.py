"""Load a checkpoint's weights, and check that they are exactly the model's."""

from collections.abc import Iterable
from typing import Any


def load_weights(auto_class: Any, location: str, **options: Any) -> Any:
    """Call `auto_class.from_pretrained`, and check that the checkpoint has exactly the model's
    weights.

    Tied weights, and buffers that older versions of Transformers saved, may be missing or extra.
    Transformers decides which of them are harmless.

    Raises:
        ValueError: weights are missing, unexpected or of another shape. The message names them.
    """
    model, info = auto_class.from_pretrained(
        location, output_loading_info=True, ignore_mismatched_sizes=True, **options
    )
    mismatched = [
        f"{name} {list(stored)} instead of {list(wanted)}"
        for name, stored, wanted in sorted(info["mismatched_keys"])
    ]
    problems = [
        f"{len(names)} {kind} ({_some(names)})"
        for kind, names in (
            ("missing", sorted(info["missing_keys"])),
            ("unexpected", sorted(info["unexpected_keys"])),
            ("of another shape", mismatched),
        )
        if names
    ]
    if problems:
        layers = getattr(model.config.get_text_config(), "num_hidden_layers", None)
        raise ValueError(
            f"expected exactly the weights of {type(model).__name__} with num_hidden_layers="
            f"{layers} in {location}, found {'; '.join(problems)}; the weights and config.json do "
            "not belong together, or a file is incomplete: download or save the model again"
        )
    return model


def _some(names: Iterable[str], most: int = 4) -> str:
    names = list(names)
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
