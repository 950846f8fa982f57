"""Draw one exhibit: `python -m figures <exhibit> [options]`."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import tyro

from arith_lens.progress import working
from experiments.catalogue import experiments
from experiments.command import Command, check_arguments, commands, named_command, robust_output

FOLDER = Path(__file__).parent
DEFINITION = re.compile(
    r"^(?:def (main)\(|from \S+ import (main)\b"
    r"|def ([a-z]\w*)\([^)]*\) -> list\[(?:Chart|Table|Interactive|Exhibit)\]:)",
    re.MULTILINE,
)
"""A page, or a public function that makes exhibits."""
EXPERIMENT = re.compile(r"`experiments[/ ](\w+)")
"""How an exhibit names its experiment."""


def _order(name: str) -> tuple[str, int]:
    """Figure 12 comes after Figure 2."""
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)


def exhibits_and_pages() -> dict[str, Command]:
    """Every command by name; that of a page is a function `main`."""
    found = commands(FOLDER, DEFINITION, EXPERIMENT)
    return {name: found[name] for name in sorted(found, key=_order)}


def exhibit_functions() -> dict[str, Command]:
    """The functions that make exhibits, by their command."""
    return {name: one for name, one in exhibits_and_pages().items() if one.variable != "main"}


def main() -> None:
    """Start the exhibit that the first argument names."""
    every = exhibits_and_pages()
    usage = (
        "python -m figures <exhibit> [options]; each has --help\n"
        "In brackets: the experiment whose run it shows."
    )
    if (name := named_command(every, usage, experiments)) is not None:
        experiment = every[name].other
        check_arguments(every[name], name, experiments().get(experiment))
        with working(f"drawing {name}"):
            from figures.exhibit import command_for, with_settings  # they import what draws

            function = every[name].load()
            if every[name].variable != "main":
                function = command_for(function, experiment)
            elif experiment:
                options = get_type_hints(function)["options"]
                function = with_settings(function, options, experiment)
            command(function, name, every[name].about)


def command(main: Callable[..., Any], name: str, about: str | None) -> None:
    """Read the command line and run the function of an exhibit."""
    with robust_output():
        tyro.cli(main, prog=f"python -m figures {name}", description=about)


if __name__ == "__main__":
    main()
