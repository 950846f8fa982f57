"""What a tuning gave: where the tuned model is, what was trained, and that nothing else changed."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from arith_lens.fine_tuning.base import load_base
from arith_lens.fine_tuning.delta import Delta, load_delta

FILE, DELTA, CHECKPOINT = "tuning.json", "delta.safetensors", "checkpoint"


@dataclass(frozen=True)
class Untouched:
    """Whether what was not to be trained is as it was, bit for bit.

    `identical`: with the slices' first values put back, the tuned model has the base's hash.
    """

    n_untouched: int
    n_tuned: int
    n_changed: int  # of the tuned ones
    identical: bool

    def __str__(self) -> str:
        said = "bit-identical to the base" if self.identical else "NOT identical to the base"
        return (
            f"{self.n_untouched:,} untouched weights {said}; {self.n_changed:,} of "
            f"{self.n_tuned:,} tuned weights changed"
        )


@dataclass(frozen=True)
class TuningResult:
    """The outcome of `fine_tune`; `output/tuning.json` holds the same.

    Attributes:
        heads, mlps: what was trained, `12.22` and `MLP 12`: for method random those drawn
        n_tuned, n_parameters: trained numbers, and all of the model's
        losses: (step, mean loss of an answer token over the steps since the last)
        samples_per_second: of this process' training, without loading and saving the result
        untouched: None for full and LoRA, which touch all
        output: the folder
    """

    method: str
    base: str
    base_hash: str
    dataset_hash: str
    n_examples: int
    heads: tuple[str, ...]
    mlps: tuple[str, ...]
    n_tuned: int
    n_parameters: int
    lora_rank: int | None
    settings: dict[str, Any]
    losses: tuple[tuple[int, int | float], ...]
    seconds: int | float
    samples_per_second: int | float
    untouched: Untouched | None
    output: str

    @property
    def delta(self) -> Delta:
        """The tuned slices. Raises FileNotFoundError for full and LoRA, which have none."""
        return load_delta(Path(self.output) / DELTA)

    def model(self, base: Any = None) -> tuple[Any, Any]:
        """`(hf_model, tokenizer)` of the tuned model: `load_model(result.model())`.

        Args:
            base: where the base is now, for a delta; needed where it was a model in memory
        """
        if (Path(self.output) / DELTA).is_file():
            return self.delta.model(base)
        hf_model, tokenizer, _ = load_base(Path(self.output) / CHECKPOINT, dtype=None)
        return hf_model, tokenizer

    def save(self) -> None:
        """Write `tuning.json` into the output folder, at once."""
        path = Path(self.output) / FILE
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        partial.replace(path)

    @classmethod
    def load(cls, output: str | Path) -> "TuningResult":
        """Read a finished tuning back. Raises FileNotFoundError where none is finished."""
        path = Path(output) / FILE
        if not path.is_file():
            raise FileNotFoundError(f"expected a finished tuning in {output}, found no {FILE}")
        kept = json.loads(path.read_text(encoding="utf-8"))
        kept["untouched"] = kept["untouched"] and Untouched(**kept["untouched"])
        kept["losses"] = tuple((int(step), loss) for step, loss in kept["losses"])
        kept["heads"], kept["mlps"] = tuple(kept["heads"]), tuple(kept["mlps"])
        return cls(**kept | {"output": str(output)})
