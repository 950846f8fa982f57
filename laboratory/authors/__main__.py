"""Run one code of others: `python -m laboratory.authors <module> <folder> <file> <rounds>`."""

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from laboratory.authors.exchange import Result, Task, save_results, version_of


def main() -> None:
    """Compute all results of a module, or the error that it ends with, and save them."""
    name, folder, file, rounds = sys.argv[1:]
    adapter: Any = import_module(f"laboratory.authors.{name}")
    version = ""
    try:
        version = version_of(adapter.PACKAGE, adapter.DISTRIBUTION)
        results = list(adapter.results(Task.read(Path(folder), int(rounds)), version))
    except Exception as error:  # other people's code, or none: the row says which
        reason = re.sub(r" \([^ ]*\)$", "", f"{type(error).__name__}: {error}")  # no path of here
        results = [Result(adapter.METHOD, name, version, missing=reason)]
    save_results(Path(file), results)


if __name__ == "__main__":
    main()
