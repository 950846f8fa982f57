"""A copy of the files that make reads, in another folder."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]


def copy_makefile(folder: Path) -> None:
    """Copy the Makefile and what it reads; link the packages, whose names make hands targets to."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        if not (folder / name).exists():
            shutil.copy(ROOT / name, folder / name)
    for name in ("arith_lens", "experiments", "figures"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
