"""The tuned slices as a small file that applies to its base, and to no other."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from arith_lens.components import Head, Mlp
from arith_lens.fine_tuning.base import load_base
from arith_lens.fine_tuning.pieces import Piece, read_pieces, write_pieces
from arith_lens.model import weights_hash

FORMAT, VERSION = "arith_lens delta", 1


@dataclass(frozen=True, eq=False)
class Delta:
    """Values of some slices, and the base they replace those of.

    Attributes:
        base: what the base was called: `reference`, a directory or a hub id
        base_hash: `weights_hash` of the base in the dtype that it was tuned in
        dtype: that dtype, such as "float32"
        heads, mlps: what was tuned
        values: by piece, in the base's dtype
    """

    base: str
    base_hash: str
    dtype: str
    heads: tuple[Head, ...]
    mlps: tuple[Mlp, ...]
    values: Mapping[Piece, Tensor]

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file."""
        header = {
            "format": FORMAT,
            "version": str(VERSION),
            "base": self.base,
            "base_hash": self.base_hash,
            "dtype": self.dtype,
            "heads": json.dumps([str(head) for head in self.heads]),
            "mlps": json.dumps([str(mlp) for mlp in self.mlps]),
        }
        tensors = {f"{p.parameter}:{p.dim}:{p.start}:{p.stop}": v for p, v in self.values.items()}
        save_file(tensors, path, metadata=header)
        return Path(path)

    def apply(self, hf_model: Any) -> "Delta":
        """Put the slices into the base, in place; returns what was there, to `apply` for a revert.

        Raises:
            ValueError: another base
        """
        found = weights_hash(hf_model)
        if found != self.base_hash:
            raise ValueError(
                f"expected the base {self.base} in {self.dtype} (hash {self.base_hash[:12]}), "
                f"found other weights ({found[:12]}); load the model that was tuned, or revert"
            )
        before = read_pieces(hf_model, self.values)
        write_pieces(hf_model, dict(self.values))
        return replace(self, values=before, base_hash=weights_hash(hf_model))

    def model(self, base: Any = None, *, device: str | None = None) -> tuple[Any, Any]:
        """`(hf_model, tokenizer)` of the tuned model, as `load_model` and `fine_tune` take it.

        Args:
            base: where the base is now; where it was if not given
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
        FileNotFoundError, ValueError: no file, another kind of file, or another version's
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"expected a delta file, found none at {path}")
    with _opened(path) as file:
        header = file.metadata() or {}
        if header.get("format") != FORMAT or header.get("version") != str(VERSION):
            raise ValueError(
                f"expected a delta of version {VERSION}, found {header.get('format')!r}, version "
                f"{header.get('version')!r}, in {path}"
            )
        values = {}
        for key in file.keys():  # noqa: SIM118 -- no mapping
            name, dim, start, stop = key.rsplit(":", 3)
            values[Piece(name, int(dim), int(start), int(stop))] = file.get_tensor(key)
    return Delta(
        header["base"],
        header["base_hash"],
        header["dtype"],
        tuple(map(Head.parse, json.loads(header["heads"]))),
        tuple(map(Mlp.parse, json.loads(header["mlps"]))),
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
        ValueError: two bases, or slices that both hold; names the components
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
