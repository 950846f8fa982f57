"""The base model of a tuning, and the results: deltas, outcomes, effects before and after."""

import copy
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from arith_lens.arrays import in_new_folder
from arith_lens.components import Head, Mlp
from arith_lens.effects import BeforeAfter
from arith_lens.fine_tuning.pieces import Piece, read_pieces, write_pieces
from arith_lens.model import find_checkpoint, load_model, load_tokenizer, read_config, weights_hash
from arith_lens.model.checkpoints import is_wrapped, refuse_changed, refuse_quantised
from arith_lens.model.weights import load_weights
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import path_patch
from arith_lens.untrusted import parse_json


def load_base(
    source: Any, *, dtype: str | None, device: str | None = None, attention: str = "sdpa"
) -> tuple[Any, Any, str]:
    """The model, its tokenizer and its name.

    Args:
        source: as in `load_model`; `(hf_model, tokenizer)` is copied and does not change.
        dtype: such as "float32"; None: a model in memory keeps its dtype.
        attention: Transformers' name of the attention kernel.

    Raises:
        FileNotFoundError, PermissionError, ConnectionError: as in `find_checkpoint`.
        ValueError: the same, or the model is quantised.
        TypeError: the model is a loaded bridge.
    """
    if hasattr(source, "bridge"):
        raise TypeError(
            "expected a source to load for training (a name, a directory, or (hf_model, "
            "tokenizer)), found a HookedModel; give what load_model was given"
        )
    if isinstance(source, tuple):
        hf_model, tokenizer = source
        name = Path(hf_model.config._name_or_path or type(hf_model).__name__).name
        refuse_quantised(hf_model.config, name)
        refuse_changed(hf_model, name)
        if is_wrapped(hf_model):
            raise ValueError(
                f"expected a plain Transformers model, found {name} wrapped by load_model, which "
                "works in place; load it again, or give load_model a copy.deepcopy of it"
            )
        hf_model = copy.deepcopy(hf_model)
        if dtype is not None:
            hf_model = hf_model.to(getattr(torch, dtype))
        return (hf_model if device is None else hf_model.to(device)), tokenizer, name
    from transformers import AutoModelForCausalLM

    checkpoint = find_checkpoint(source)
    config = read_config(checkpoint)
    hf_model: Any = load_weights(
        AutoModelForCausalLM,
        checkpoint.location,
        dtype=getattr(torch, dtype or "float32"),
        attn_implementation=attention,
    )
    name = checkpoint.name if checkpoint.name == source else checkpoint.location
    if device is not None:
        hf_model.to(device)
    return hf_model, load_tokenizer(checkpoint, config), name


DELTA_FORMAT, DELTA_VERSION = "arith_lens delta", 1


@dataclass(frozen=True, eq=False)
class Delta:
    """The tuned values of some slices, and the base model that they belong to."""

    base: str
    """The name of the base model: `reference`, a directory or a hub id."""
    base_hash: str
    """`weights_hash` of the base model in the dtype in which it was tuned."""
    dtype: str
    """This dtype, such as "float32"."""
    heads: tuple[Head, ...]
    """The tuned heads."""
    mlps: tuple[Mlp, ...]
    """The tuned MLPs."""
    values: Mapping[Piece, Tensor]
    """The tuned values by piece, in the base model's dtype."""

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file."""
        header = {
            "format": DELTA_FORMAT,
            "version": str(DELTA_VERSION),
            "base": self.base,
            "base_hash": self.base_hash,
            "dtype": self.dtype,
            "heads": json.dumps([str(head) for head in self.heads]),
            "mlps": json.dumps([str(mlp) for mlp in self.mlps]),
        }
        tensors = {f"{p.parameter}:{p.dim}:{p.start}:{p.stop}": v for p, v in self.values.items()}
        save_file(tensors, in_new_folder(path), metadata=header)
        return Path(path)

    def apply(self, hf_model: Any) -> "Delta":
        """Write the slices into the base model, in place.

        Returns:
            A delta with the previous values. Apply it to undo the change.

        Raises:
            ValueError: `hf_model` is not the base model.
        """
        current_hash = weights_hash(hf_model)
        if current_hash != self.base_hash:
            raise ValueError(
                f"expected the base {self.base} in {self.dtype} (hash {self.base_hash[:12]}), "
                f"found other weights ({current_hash[:12]}); load the model that was tuned, or "
                "revert"
            )
        before = read_pieces(hf_model, self.values)
        write_pieces(hf_model, dict(self.values))
        return replace(self, values=before, base_hash=weights_hash(hf_model))

    def model(self, base: Any = None, *, device: str | None = None) -> tuple[Any, Any]:
        """`(hf_model, tokenizer)` of the tuned model, for `load_model` and `fine_tune`.

        Args:
            base: the base model as in `load_model`; None: the name in this delta.
            device: the device; None: the model is not moved.
        """
        hf_model, tokenizer, name = load_base(base or self.base, dtype=self.dtype, device=device)
        self.apply(hf_model)
        hf_model.config._name_or_path = f"{name}+{len(self.heads)} heads"
        return hf_model, tokenizer

    def checkpoint(self, folder: str | Path, base: Any = None) -> Path:
        """Write the tuned model as a plain Hugging Face checkpoint."""
        hf_model, tokenizer = self.model(base)
        hf_model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return Path(folder)


def load_delta(path: str | Path) -> Delta:
    """Read a delta file.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is of another kind or of another version.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"expected a delta file, found none at {path}")
    with _opened(path) as file:
        header = file.metadata() or {}
        if header.get("format") != DELTA_FORMAT or header.get("version") != str(DELTA_VERSION):
            raise ValueError(
                f"expected a delta of version {DELTA_VERSION}, found {header.get('format')!r}, "
                f"version {header.get('version')!r}, in {path}"
            )
        values = {}
        for key in file.keys():  # noqa: SIM118 -- no mapping
            name, dim, start, stop = key.rsplit(":", 3)
            values[Piece(name, int(dim), int(start), int(stop))] = file.get_tensor(key)
    return Delta(
        header["base"],
        header["base_hash"],
        header["dtype"],
        tuple(map(Head.parse, parse_json(header["heads"]))),
        tuple(map(Mlp.parse, parse_json(header["mlps"]))),
        values,
    )


def _opened(path: str | Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise ValueError(
            f"expected a delta file, found one that safetensors cannot read, {path} ({error}); it "
            "is cut off or of another kind: take the whole file, or tune again"
        ) from error


def combine(a: Delta, b: Delta) -> Delta:
    """Both deltas as one.

    Raises:
        ValueError: the base models differ, or both have a slice. The message names the components.
    """
    if a.base_hash != b.base_hash:
        raise ValueError(
            f"expected deltas of one base, found {a.base} ({a.base_hash[:12]}) and {b.base} "
            f"({b.base_hash[:12]})"
        )
    both = {*a.heads, *a.mlps} & {*b.heads, *b.mlps}
    shared = sorted(p.parameter for p, q in product(a.values, b.values) if p.overlaps(q))
    if shared:
        what = ", ".join(map(str, [*sorted(both & {*a.heads}), *sorted(both & {*a.mlps})]))
        raise ValueError(
            "expected deltas that tune different components, found both to hold "
            f"{what or 'one key-value group'} ({', '.join(dict.fromkeys(shared))}); combine "
            "deltas without overlap"
        )
    return replace(
        a,
        heads=tuple(sorted({*a.heads, *b.heads})),
        mlps=tuple(sorted({*a.mlps, *b.mlps})),
        values={**a.values, **b.values},
    )


RESULT_FILE, DELTA_FILE, CHECKPOINT_FOLDER = "tuning.json", "delta.safetensors", "checkpoint"


@dataclass(frozen=True)
class Untouched:
    """Proof that the weights which were not trained are unchanged, bit for bit."""

    n_untouched: int
    """The number of weights that were not trained."""
    n_tuned: int
    """The number of weights that were trained."""
    n_changed: int
    """The number of trained weights that changed."""
    identical: bool
    """Whether the tuned model has the base's hash after the slices' first values are restored."""

    def __str__(self) -> str:
        verdict = "bit-identical to the base" if self.identical else "NOT identical to the base"
        return (
            f"{self.n_untouched:,} untouched weights {verdict}; {self.n_changed:,} of "
            f"{self.n_tuned:,} tuned weights changed"
        )


@dataclass(frozen=True)
class TuningResult:
    """The outcome of `fine_tune`, as in `output/tuning.json`."""

    method: str
    base: str
    base_hash: str
    dataset_hash: str
    n_examples: int
    heads: tuple[str, ...]
    mlps: tuple[str, ...]
    """Heads and MLPs that were trained, such as `12.22` and `MLP 12`. With method `random`: those
    that were drawn."""
    n_tuned: int
    """The number of trained parameters."""
    n_parameters: int
    """The number of the model's parameters."""
    lora_rank: int | None
    settings: dict[str, Any]
    losses: tuple[tuple[int, int | float], ...]
    """(step, mean loss per answer token since the previous entry)."""
    seconds: int | float
    """The time of this process' training, without loading the model and saving the result."""
    samples_per_second: int | float
    """The examples per second of this process' training."""
    untouched: Untouched | None
    """Proof of what did not change; None for full and LoRA."""
    output: str
    """The output folder."""

    @property
    def delta(self) -> Delta:
        """The tuned slices. Raises FileNotFoundError for full and LoRA, which have no delta."""
        return load_delta(Path(self.output) / DELTA_FILE)

    def model(self, base: Any = None) -> tuple[Any, Any]:
        """`(hf_model, tokenizer)` of the tuned model: `load_model(result.model())`.

        Args:
            base: the base model of a delta, as in `load_model`. It is required if the base was a
                model in memory.
        """
        if (Path(self.output) / DELTA_FILE).is_file():
            return self.delta.model(base)
        hf_model, tokenizer, _ = load_base(Path(self.output) / CHECKPOINT_FOLDER, dtype=None)
        return hf_model, tokenizer

    def save(self) -> None:
        """Write `tuning.json` into the output folder, atomically."""
        path = Path(self.output) / RESULT_FILE
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        partial.replace(path)

    @classmethod
    def load(cls, output: str | Path) -> "TuningResult":
        """Read a finished tuning. Raises FileNotFoundError if there is none."""
        path = Path(output) / RESULT_FILE
        if not path.is_file():
            raise FileNotFoundError(
                f"expected a finished tuning in {output}, found no {RESULT_FILE}"
            )
        fields = parse_json(path.read_text(encoding="utf-8"))
        fields["untouched"] = fields["untouched"] and Untouched(**fields["untouched"])
        fields["losses"] = tuple((int(step), loss) for step, loss in fields["losses"])
        fields["heads"], fields["mlps"] = tuple(fields["heads"]), tuple(fields["mlps"])
        return cls(**fields | {"output": str(output)})


def effects_before_after(
    tuned: Any, pairs: PromptPairs, *, base: Any = None, **options: Any
) -> BeforeAfter:
    """`path_patch` on the base and on the tuned model, one after the other.

    Args:
        tuned: a TuningResult, a Delta, or a checkpoint as in `load_model`.
        base: the base model. It is required if it was a model in memory, and for a checkpoint,
            which does not name its base.
        options: further arguments of `path_patch`.

    Raises:
        ValueError: a checkpoint is given without a base, or the base is not the one that was tuned.
    """
    knows_base = isinstance(tuned, TuningResult | Delta)
    if base is None and not knows_base:
        raise ValueError(
            f"expected the base of {tuned}, found none, and a checkpoint does not say it; give "
            "base="
        )
    before = path_patch(load_model(base or tuned.base), pairs, **options)
    after = tuned.model(base) if knows_base else tuned
    return BeforeAfter(before, path_patch(load_model(after), pairs, **options))
