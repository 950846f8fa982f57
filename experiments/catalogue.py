"""The list of experiments, which reads their files and imports none of them."""

import re
from functools import cache
from pathlib import Path

from experiments.command import Command, commands

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


@cache
def experiments() -> dict[str, Command]:
    """The experiments by name, then the tools."""
    every = commands(Path(__file__).parent, DEFINITION, EXHIBIT)
    return {name: every[name] for name in sorted(every, key=lambda name: (name in TOOLS, name))}
