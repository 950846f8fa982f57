"""Run one experiment: `python -m experiments <question> [options]`."""

from arith_lens.progress import working
from experiments.catalogue import SHARED_TOOLS, experiments
from experiments.command import (
    Command,
    check_arguments,
    command,
    is_first,
    named_command,
)
from experiments.questions import questions


def main() -> None:
    """Start the command that the first argument names."""
    usage = (
        "python -m experiments <question> [options]; each has --help and most --dry-run\n"
        "In brackets: the exhibit that draws it."
    )
    every = experiments()
    keys = {key: one.experiment for key, one in questions().items() if one.experiment}
    if (name := named_command(every, usage, _exhibits, keys)) is not None:
        check_arguments(every[name], name)
        with working("importing PyTorch and what computes", visible=is_first()):
            main = every[name].load()  # an Experiment, or a function
        shares = getattr(main, "shares", name in SHARED_TOOLS)
        command(getattr(main, "command", main), name, every[name].about, shares=shares)


def _exhibits() -> dict[str, Command]:
    from figures.catalogue import exhibits_and_pages

    return exhibits_and_pages()


if __name__ == "__main__":
    main()
