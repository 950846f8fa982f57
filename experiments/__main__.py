"""Run one experiment: `python -m experiments <question> [options]`."""

import sys
from collections.abc import Sequence

from experiments.catalogue import exhibits_and_pages, experiments
from experiments.command import named_command, start
from experiments.questions import questions

USAGE = """python -m experiments <question> [options]; each has --help and most --dry-run
In brackets: the exhibit that draws it."""


def main(words: Sequence[str] | None = None) -> None:
    """Start the command that the first word names; the words of the command line if not given."""
    words = sys.argv[1:] if words is None else words
    keys = {key: one.experiment for key, one in questions().items() if one.experiment}
    if command := named_command(words, experiments(), USAGE, exhibits_and_pages, keys):
        start(command, words[1:])


if __name__ == "__main__":
    main()
