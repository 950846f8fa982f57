"""What tests of tuning share: components of the small models, and settings of a short training."""

from typing import Any

from arith_lens.components import Head

HEADS = [Head(1, 0), Head(2, 3)]
QUICK: dict[str, Any] = {
    "batch_size": 8,
    "epochs": 1,
    "learning_rate": 1e-2,
    "progress": False,
    "device": "cpu",
    "log_every": 1,
    "save_every": 0,
}
