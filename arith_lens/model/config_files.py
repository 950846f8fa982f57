"""The files beside a model's weights, checked before Transformers reads them.

A damaged file may ask for a billion layers, nest its settings without end, or name files elsewhere.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arith_lens.untrusted import is_plain_file_name, parse_json

_LAYERS, _WIDTH = 1000, 2_000_000
SIZES = {
    **dict.fromkeys(["num_hidden_layers", "num_layers", "n_layer", "n_layers"], _LAYERS),
    **dict.fromkeys(["hidden_size", "n_embd", "intermediate_size", "vocab_size"], _WIDTH),
    **dict.fromkeys(["num_attention_heads", "num_key_value_heads", "n_head", "head_dim"], _WIDTH),
    "block_count": _LAYERS,  # this and the following: names of GGUF
    **dict.fromkeys(["embedding_length", "feed_forward_length"], _WIDTH),
    **dict.fromkeys(["attention.head_count", "attention.head_count_kv"], _WIDTH),
}
"""The largest values of settings, well above those of any model."""


def settings_in(file: Path) -> dict[str, Any]:
    """The object in a JSON file; {} if there is no file. Raises ValueError for other contents."""
    try:
        settings = parse_json(file.read_bytes()) if file.is_file() else {}
    except ValueError as error:
        raise ValueError(
            f"expected JSON in {file}, found what cannot be read ({error}); save or download the "
            "model again"
        ) from error
    if not isinstance(settings, dict):
        raise ValueError(
            f"expected an object of settings in {file}, found {type(settings).__name__}; save or "
            "download the model again"
        )
    return settings


def check_sizes(settings: Mapping[Any, Any], file: str | Path) -> None:
    """Raise ValueError if a size is not possible. Such a model would be built for hours."""
    for name, value in settings.items():
        if isinstance(value, dict):
            check_sizes(value, file)
        elif name in SIZES and isinstance(value, int) and not 1 <= value <= SIZES[name]:
            raise ValueError(
                f"expected {name} from 1 to {SIZES[name]} in {file}, found {value}; the file is "
                "damaged: save or download the model again"
            )


def check_index(file: Path) -> None:
    """Raise ValueError if an index of weights names files outside its folder, or pickles."""
    index = settings_in(file)
    names = index.get("weight_map", {})
    if index and not (isinstance(names, dict) and names):
        raise ValueError(
            f"expected a weight_map in {file}, found none; save or download the model again"
        )
    if foreign := sorted({repr(n) for n in names.values() if not is_plain_file_name(n)}):
        raise ValueError(
            f"expected names of files in the folder of {file}, found {', '.join(foreign[:5])}, "
            "which lead elsewhere; correct them, or download the model again"
        )
    if pickles := sorted({repr(n) for n in names.values() if not n.endswith(".safetensors")}):
        raise ValueError(
            f"expected names of safetensors files in {file}, found {', '.join(pickles[:5])}, which "
            "would be read as pickles; download the model's safetensors files"
        )


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its class's name if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
