"""Draw one exhibit: `python -m figures <exhibit> [options]`."""

import sys
from collections.abc import Callable
from typing import Any, get_type_hints

import tyro

from arith_lens.progress import working
from experiments.catalogue import experiments
from experiments.command import check_arguments, named_command, robust_output
from experiments.questions import questions
from figures.catalogue import exhibit_functions, exhibits_and_pages


def main() -> None:
    """Start the exhibit that the first argument names, or print its table."""
    every = exhibits_and_pages()
    keys = {key: one.exhibit[0].name for key, one in questions().items()}
    usage = (
        "python -m figures <exhibit or question> [options]; each has --help\n"
        "python -m figures table <exhibit or question> [options] prints its numbers\n"
        "In brackets: the experiment whose run it shows.\n"
        f"Questions: {', '.join(keys)}"
    )
    prints_table = sys.argv[1:2] == ["table"]
    if prints_table:
        del sys.argv[1]
        every = exhibit_functions()
    if (name := named_command(every, usage, experiments, keys)) is not None:
        experiment = every[name].other
        check_arguments(every[name], name, experiments().get(experiment))
        with working(f"drawing {name}"):
            from figures import exhibit  # imports what draws

            function = every[name].load()
            if every[name].variable != "main":
                write = exhibit.print_numbers if prints_table else exhibit.show
                function = exhibit.command_for(function, experiment, write)
            elif experiment:
                options = get_type_hints(function)["options"]
                function = exhibit.with_settings(function, options, experiment)
            command(function, name, every[name].about)


def command(main: Callable[..., Any], name: str, about: str | None) -> None:
    """Read the command line and run the function of an exhibit."""
    with robust_output():
        tyro.cli(main, prog=f"python -m figures {name}", description=about)


if __name__ == "__main__":
    main()
