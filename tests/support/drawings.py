"""Files that figures wrote in tests, whose runs have settings of their own."""

from pathlib import Path


def written(folder: Path, name: str) -> Path:
    """`fig5.csv`, or `fig5-n18-addition.csv` where the run that it shows is no full one."""
    stem, _, ending = name.rpartition(".")
    paths = {*folder.glob(f"{stem}.{ending}"), *folder.glob(f"{stem}-*.{ending}")}
    (path,) = (path for path in paths if not path.stem.startswith(f"{stem}-patterns"))
    return path
