"""Draw one exhibit: `python -m figures <exhibit> [options]`."""

import sys
from collections.abc import Sequence
from dataclasses import replace

from arith_lens.progress import working
from experiments.catalogue import Command, exhibits, exhibits_and_pages, experiments, with_settings
from experiments.command import checked_arguments, loaded, named_command, robust_output
from experiments.questions import questions

USAGE = """python -m figures <exhibit or question> [options]; each has --help
python -m figures table <exhibit or question> [--where KEY=VALUE ...] [options] prints its numbers
In brackets: the experiment whose run it shows.
Questions: {questions}"""
PRINTS = """Print the numbers of {name} as a table, and draw nothing.

`--where KEY=VALUE`, once or more, prints only the rows with these keys, such as
`--where operation=addition --where measure=accuracy`.

{name}: {about}"""


def main(words: Sequence[str] | None = None) -> None:
    """Start the exhibit that the first word names, or print its table.

    Args:
        words: those of the command line if not given.
    """
    words = [*(sys.argv[1:] if words is None else words)]
    keys = {key: one.exhibit[0].name for key, one in questions().items()}
    usage = USAGE.format(questions=", ".join(keys))
    if words[:1] == ["table"]:
        words, where = without_conditions(words[1:])
        if command := named_command(words, tables(), usage, experiments, keys):
            shown = replace(command, name=f"table {command.name}")
            _start(shown, words[1:], f"reading {command.name}", where)
    elif command := named_command(words, exhibits_and_pages(), usage, experiments, keys):
        _start(command, words[1:], f"drawing {command.name}")


def tables() -> dict[str, Command]:
    """What `python -m figures table` prints: the exhibits, and the list of the paper's claims."""
    claims = replace(exhibits_and_pages()["claims"], run="figures.claims.checking:exhibits")
    return {
        name: replace(one, words=PRINTS.format(name=name, about=one.sentence))
        for name, one in (exhibits() | {"claims": claims}).items()
    }


def _start(
    command: Command, words: Sequence[str], doing: str, where: Sequence[str] | None = None
) -> None:
    """Read the command line, and draw, or print the numbers that meet the conditions."""
    (options, *config), _ = checked_arguments(with_settings(command), words)
    with working(doing), robust_output():
        function = loaded(command)
        from figures import exhibit  # imports what draws

        options = exhibit.with_settings(options, *config)
        if where is not None:
            exhibit.print_numbers(function, options, where)
        elif command.name in exhibits():
            exhibit.show(function, options)
        else:
            function(options)


def without_conditions(words: list[str]) -> tuple[list[str], list[str]]:
    """The words without each `--where`, and the conditions after it."""
    words, conditions = [*words], []
    while "--where" in words:
        at = words.index("--where")
        condition = words[at + 1 : at + 2]
        if not condition or "=" not in condition[0]:
            sys.exit(
                f"expected --where KEY=VALUE, found --where {' '.join(condition)}".rstrip()
                + "; name a column of the table, such as --where operation=addition"
            )
        conditions += condition
        del words[at : at + 2]
    return words, conditions


if __name__ == "__main__":
    main()
