"""Draw one exhibit: `python -m figures <exhibit> [options]`."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, get_type_hints

import tyro

from arith_lens.progress import working
from experiments.catalogue import experiments
from experiments.command import Command, check_arguments, named_command, robust_output
from experiments.questions import questions
from figures.catalogue import exhibits_and_pages, table_functions

USAGE = """python -m figures <exhibit or question> [options]; each has --help
python -m figures table <exhibit or question> [--where KEY=VALUE ...] [options] prints its numbers
In brackets: the experiment whose run it shows.
Questions: {questions}"""
PRINTS = """Print the numbers of {name} as a table, and draw nothing.

`--where KEY=VALUE`, once or more, prints only the rows with these keys, such as
`--where operation=addition --where measure=accuracy`.

{name}: {about}"""


def main() -> None:
    """Start the exhibit that the first argument names, or print its table."""
    every = exhibits_and_pages()
    keys = {key: one.exhibit[0].name for key, one in questions().items()}
    prints_table = sys.argv[1:2] == ["table"]
    where: list[str] = []
    if prints_table:
        del sys.argv[1]
        every = {name: _printing(name, one) for name, one in table_functions().items()}
        where = _conditions(sys.argv)
    usage = USAGE.format(questions=", ".join(keys))
    if (name := named_command(every, usage, experiments, keys)) is not None:
        experiment, full_name = every[name].other, f"{'table ' * prints_table}{name}"
        check_arguments(every[name], full_name, experiments().get(experiment))
        with working(f"{'reading' if prints_table else 'drawing'} {name}"):
            from figures import exhibit  # imports what draws

            function = every[name].load()
            if every[name].variable != "main":
                write = partial(exhibit.print_numbers, where=where)
                write = write if prints_table else exhibit.show
                function = exhibit.command_for(function, experiment, write)
            elif experiment:
                options = get_type_hints(function)["options"]
                function = exhibit.with_settings(function, options, experiment)
            command(function, full_name, every[name].about)


def _printing(name: str, one: Command) -> Command:
    """The command that prints the numbers of an exhibit."""
    return replace(one, about=PRINTS.format(name=name, about=one.about.partition("\n")[0]))


def _conditions(arguments: list[str]) -> list[str]:
    """The conditions after each `--where`; they are removed from the arguments."""
    conditions = []
    while "--where" in arguments:
        at = arguments.index("--where")
        condition = arguments[at + 1 : at + 2]
        if not condition or "=" not in condition[0]:
            sys.exit(
                f"expected --where KEY=VALUE, found --where {' '.join(condition)}".rstrip()
                + "; name a column of the table, such as --where operation=addition"
            )
        conditions += condition
        del arguments[at : at + 2]
    return conditions


def command(main: Callable[..., Any], name: str, about: str | None) -> None:
    """Read the command line and run the function of an exhibit."""
    with robust_output():
        tyro.cli(main, prog=f"python -m figures {name}", description=about)


if __name__ == "__main__":
    main()
