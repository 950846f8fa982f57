"""Run one experiment: `python -m experiments <question> [options]`."""

import re
from pathlib import Path

from arith_lens.progress import working
from experiments.command import (
    Command,
    check_arguments,
    command,
    commands,
    is_first,
    named_command,
)

TOOLS = (
    *("convert_gsm8k", "convert_world", "do_they_find_known_circuits", "template_tables"),
    *("training_splits", "tune", "whole_study"),
)
"""Commands that ask nothing about one model: each is a function of this name."""
SHARED_TOOLS = ("tune",)
"""Several processes share their work."""
DEFINITION = re.compile(
    rf"^def (main|{'|'.join(TOOLS)})\(|^(\w+) = Experiment\(.*?\)$", re.MULTILINE | re.DOTALL
)
EXHIBIT = re.compile(r'(?:figure="|`figures/|`python -m figures )(\w+)')
"""How an experiment names its exhibit."""


def experiments() -> dict[str, Command]:
    """The experiments by name, then the tools."""
    found = commands(Path(__file__).parent, DEFINITION, EXHIBIT)
    return {name: found[name] for name in sorted(found, key=lambda name: (name in TOOLS, name))}


def main() -> None:
    """Start the command that the first argument names."""
    usage = (
        "python -m experiments <question> [options]; each has --help and most --dry-run\n"
        "In brackets: the exhibit that draws it."
    )
    every = experiments()
    if (name := named_command(every, usage, _exhibits)) is not None:
        check_arguments(every[name], name)
        with working("importing PyTorch and what computes", shown=is_first()):
            main = every[name].load()  # an Experiment, or a function
        shares = getattr(main, "shares", name in SHARED_TOOLS)
        command(getattr(main, "command", main), name, every[name].about, shares=shares)


def _exhibits() -> dict[str, Command]:
    from figures.__main__ import exhibits_and_pages

    return exhibits_and_pages()


if __name__ == "__main__":
    main()
