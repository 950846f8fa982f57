"""What does it cost to begin? Whole commands in processes of their own, with all their imports."""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch

from laboratory.speed.measure import Rows

FIG2 = ("-m", "experiments.make", "run", "fig2", "N=9", "OPERATIONS=addition", "MODEL=reference")
COMMANDS = {
    "load_model": ("-c", "import arith_lens; arith_lens.load_model('reference')"),
    "fig2, new": FIG2,
    "fig2, stored": FIG2,
}
"""The words after `python`, in their order in a folder that is empty at first."""


def fixed_rows(repeats: int) -> Rows:
    """Processor time of each command and its own processes, the median of several rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads()), "HF_HUB_OFFLINE": "1"}
    environment = os.environ | threads | {"PYTHONPATH": str(Path(__file__).parents[2])}
    for _ in range(repeats):
        with TemporaryDirectory() as folder:
            for name, words in COMMANDS.items():
                before, command = os.times(), [sys.executable, *words]
                subprocess.run(
                    command, cwd=folder, env=environment, check=True, capture_output=True
                )
                after = os.times()
                seconds[name].append(sum(after[2:4]) - sum(before[2:4]))
    return [{"command": name, "cpu_seconds": median(took)} for name, took in seconds.items()]
