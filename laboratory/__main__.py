"""Run one command for maintainers: `python -m laboratory <command> [options]`."""

import re
from pathlib import Path

from arith_lens.progress import working
from experiments.catalogue import experiments
from experiments.command import (
    Command,
    check_arguments,
    command,
    commands,
    is_first,
    named_command,
)

NAMES = (
    *(
        "audits",
        "audit_table",
        "calibration",
        "coverage",
        "interval_rules",
        "measure_reference",
        "ship_runs",
    ),
    *("speed", "speed_fine_tuning", "speed_scale", "train_reference"),
)
"""Each is a function of this name."""
DEFINITION = re.compile(rf"^def ({'|'.join(NAMES)})\(", re.MULTILINE)
EXHIBIT = re.compile(r"`python -m figures (\w+)`")
"""How a command would name its exhibit; none has one."""


def laboratory() -> dict[str, Command]:
    """The commands by name."""
    return commands(Path(__file__).parent, DEFINITION, EXHIBIT)


def main() -> None:
    """Start the command that the first argument names."""
    every = laboratory()
    usage = "python -m laboratory <command> [options]; each has --help"
    if (name := named_command(every, usage, experiments)) is not None:
        check_arguments(every[name], name)
        with working("importing PyTorch and what computes", visible=is_first()):
            function = every[name].load()
        command(function, name, every[name].about, shares=False, package="laboratory")


if __name__ == "__main__":
    main()
