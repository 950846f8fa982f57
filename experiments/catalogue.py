"""The commands of `experiments/` and `figures/`, from the import strings in `questions.toml`.

Nothing that computes or draws is imported to list them, or to read their arguments.
"""

from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from inspect import cleandoc
from typing import Any

from experiments.questions import CommandEntry, command_entries, exhibit_entries

RUN_OPTIONS = "experiments.configs.shared:ExperimentOptions"
"""The options of an experiment beside its settings, unless its entry names others."""


def imported(reference: str) -> Any:
    """What an import string such as `figures.carry:exhibits` names."""
    from arith_lens.imports import without_collections  # names are listed before `make setup`

    module, _, name = reference.partition(":")
    with without_collections():
        return getattr(import_module(module), name)


@dataclass(frozen=True)
class Command:
    """A function or an `Experiment` that a command starts."""

    package: str
    """`experiments`, `figures` or `laboratory`."""
    name: str
    run: str
    """The import string of the function or the `Experiment`."""
    takes: tuple[str, ...] = ()
    """The import strings of the dataclasses of its arguments. Without any, its signature has them,
    and it is imported to read them."""
    other: str = ""
    """The exhibit of an experiment, the experiment of an exhibit; "" if it has none."""
    words: str = ""
    """What it does; for an experiment, the docstring of its settings says this."""
    shares: bool = False
    """Whether several processes share its work, where its `Experiment` does not say it."""

    @property
    def about(self) -> str:
        """Its description in the help."""
        return self.words or cleandoc(imported(self.takes[0]).__doc__)

    @property
    def sentence(self) -> str:
        """The first line of its description, with its exhibit or experiment in brackets."""
        kind = "experiments" if self.package == "figures" else "figures"
        return self.about.partition("\n")[0] + f" [{kind} {self.other}]" * bool(self.other)

    @property
    def settings(self) -> Any:
        """The class of an experiment's settings."""
        return imported(self.takes[0])

    def load(self) -> Any:
        """The function or the `Experiment`."""
        return imported(self.run)


@cache
def experiments() -> dict[str, Command]:
    """The experiments by name, then the tools."""
    exhibit_by_experiment: dict[str, str] = {}
    for question, entry in exhibit_entries().values():
        exhibit_by_experiment.setdefault(question.experiment, entry.name)
    for name, page in command_entries("page").items():
        exhibit_by_experiment.setdefault(page.experiment, name)
    tables = (command_entries("experiment"), command_entries("tool"))
    return {
        name: _command(
            "experiments", name, table[name], RUN_OPTIONS, exhibit_by_experiment.get(name, "")
        )
        for table in tables
        for name in sorted(table)
    }


def _command(package: str, name: str, entry: CommandEntry, options: str, other: str) -> Command:
    takes = tuple(filter(None, (entry.settings, entry.options or options)))
    return Command(package, name, entry.run, takes, other, entry.help, entry.shares)


def _order(name: str) -> tuple[str, int]:
    """Figure 12 comes after Figure 2."""
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)


@cache
def exhibits() -> dict[str, Command]:
    """The exhibits, by name."""
    commands = {}
    for name, (question, entry) in exhibit_entries().items():
        command = Command("figures", name, entry.draw, (entry.options,), question.experiment)
        reads = f"\n\nReads a run of `experiments {question.experiment}`, and loads no model."
        words = f"{entry.help}\n\n{question.title}{reads if question.experiment else ''}"
        commands[name] = replace(command, words=words)
    return {name: commands[name] for name in sorted(commands, key=_order)}


@cache
def exhibits_and_pages() -> dict[str, Command]:
    """Every command of `figures/`."""
    pages = {
        name: _command("figures", name, entry, "", entry.experiment)
        for name, entry in command_entries("page").items()
    }
    every = exhibits() | pages
    return {name: every[name] for name in sorted(every, key=_order)}


def with_settings(exhibit: Command) -> Command:
    """The command of an exhibit that also takes the settings of its experiment."""
    if not exhibit.other:
        return exhibit
    taken = experiments()[exhibit.other].takes[0]
    return replace(exhibit, takes=(*exhibit.takes, taken))
