"""Draw one exhibit: `python -m figures <exhibit> [options]`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tyro

from experiments.command import commands, imported, named_command, robust_output

FOLDER = Path(__file__).parent


def _order(name: str) -> tuple[str, int]:
    """Figure 12 comes after Figure 2."""
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)


def main() -> None:
    """Start the exhibit that the first argument names."""
    by_name = commands(FOLDER)
    sentences = {name: by_name[name] for name in sorted(by_name, key=_order)}
    usage = "python -m figures <exhibit> [options]; each has --help"
    if (name := named_command(sentences, "an exhibit", usage)) is not None:
        module = imported(FOLDER, name)
        command(module.main, name, module.__doc__)


def command(main: Callable[..., Any], name: str, about: str | None) -> None:
    """Read the command line and run the function of an exhibit."""
    with robust_output():
        tyro.cli(main, prog=f"python -m figures {name}", description=about)


if __name__ == "__main__":
    main()
