"""A copy of the files that make reads, in another folder."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]


def copy_makefile(folder: Path) -> None:
    """Copy the Makefile and what it reads."""
    ours = ("__init__.py", "make_help.py", "questions.py", "questions.toml")
    names = ("Makefile", "pyproject.toml", "constraints.txt")
    for name in (*names, *(f"experiments/{file}" for file in ours)):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
