"""How a model is tuned: the paper's hyperparameters by default."""

from dataclasses import asdict, dataclass, fields
from typing import Any

METHODS = ("precise", "full", "lora", "random")
RESCALES = ("gradient", "learning_rate", None)


@dataclass(frozen=True)
class Settings:
    """What `fine_tune` was told, written into its result.

    The paper's: AdamW at 2e-5, batches of 128, 2 epochs, warm-up over 2% of the steps, weight decay
    0.1, gradients scaled by H/h. It names no schedule after the warm-up; "linear" goes down to 0.
    """

    learning_rate: int | float = 2e-5
    batch_size: int = 128  # of all processes and accumulated steps together
    micro_batch: int | None = None  # on one device at once; None: the whole batch
    epochs: int | float = 2
    max_steps: int | None = None  # end there, as the schedule does; None: after the epochs
    warmup: int | float = 0.02  # share of all steps
    weight_decay: int | float = 0.1
    max_grad_norm: int | float = 1.0  # 0: none are clipped
    schedule: str = "linear"
    rescale: str | None = "gradient"
    kv: str = "group"
    seed: int = 0
    bf16: bool = False
    gradient_checkpointing: bool = False
    max_length: int | None = None  # tokens; None: the model's context
    end_with_eos: bool = True  # train the answer to end; without it the model goes on as before
    lora_rank: int | None = None  # None: from the number of parameters of precise
    save_every: int = 100  # steps between checkpoints to resume from; 0: none
    log_every: int = 10  # steps
    attention: str = "sdpa"

    def check(self) -> None:
        """Raise ValueError for a value that cannot be."""
        if self.rescale not in RESCALES:
            raise ValueError(f"expected rescale among {RESCALES}, found {self.rescale!r}")
        for name in ("learning_rate", "batch_size", "epochs", "log_every", "max_steps"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"expected {name} above 0, found {value}")
        for name in ("weight_decay", "max_grad_norm", "save_every"):
            if getattr(self, name) < 0:
                raise ValueError(f"expected {name} of at least 0, found {getattr(self, name)}")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"expected warmup as a share from 0 to below 1, found {self.warmup}")
        if self.micro_batch is not None and not 0 < self.micro_batch <= self.batch_size:
            raise ValueError(
                f"expected micro_batch from 1 to batch_size={self.batch_size}, found "
                f"{self.micro_batch}"
            )

    @classmethod
    def of(cls, told: dict[str, Any]) -> "Settings":
        """From names and values, checked. Raises TypeError for names that there are not."""
        known = [field.name for field in fields(cls)]
        if unknown := sorted(told.keys() - set(known)):
            raise TypeError(
                f"expected settings among {', '.join(known)}, found {', '.join(unknown)}"
            )
        settings = cls(**told)
        settings.check()
        return settings

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_method(method: str, heads: list[Any], mlps: list[Any]) -> None:
    """Raise ValueError where components are missing, or given to a method that takes none."""
    if method not in METHODS:
        raise ValueError(f"expected a method among {', '.join(METHODS)}, found {method!r}")
    if method == "full" and (heads or mlps):
        raise ValueError(
            f"expected no heads and no mlps for method 'full', which trains all, found "
            f"{len(heads)} and {len(mlps)}; take method='precise' to train these alone"
        )
    if method in ("precise", "random") and not heads and not mlps:
        raise ValueError(
            f"expected heads or mlps for method {method!r}, found none; choose them by "
            "key_heads(path_patch(model, pairs).heads)"
        )
