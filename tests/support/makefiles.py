"""A copy of the files that make reads, in another folder."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]


def copy_makefile(folder: Path) -> None:
    """Copy the Makefile and what it reads."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "experiments/questions.toml"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
