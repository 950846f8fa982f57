"""The questions of `questions.toml`, by key: what is computed, drawn, listed and explained."""

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class ExhibitEntry:
    """One figure or table that answers a question."""

    name: str
    """Its command."""
    draw: str
    """The import string of the function that makes it."""
    file: str = ""
    """The question that the names of its files begin with, if its own name says none."""
    help: str = ""
    """What it shows, for the help of make and of its command."""
    options: str = "figures.options:Options"
    """The import string of the class of the function's options."""
    arguments: str = ""
    """More arguments of the experiment, in make."""
    minutes: int | None = None
    """How long it takes on `reference` with two cores, roughly."""
    own_prompts: bool = False
    """Whether it applies to a file of prompts."""
    compares_models: bool = False
    """Whether it shows several models together."""
    gallery: Literal["each model", "once", "numbers"] = "each model"
    picture: str = ""
    """The exhibit in whose picture the gallery draws its numbers too."""
    shows: tuple[str, ...] = ()
    """The names of what the gallery's page shows, if it is not the exhibit of this name alone."""
    models: tuple[str, ...] = ()
    """The models of the gallery's page, if they are not the two reference models."""

    @property
    def target(self) -> str:
        """Its target of make."""
        return self.name.replace("_", "-")


@dataclass(frozen=True)
class Question:
    """A question, under one key."""

    key: str
    title: str
    exhibit: tuple[ExhibitEntry, ...]
    """The first one is what the key draws."""
    experiment: str = ""
    """Empty if its exhibits read no run, or runs of several experiments."""
    study: int = 0
    """The stage in which `whole_study` computes it, 1 or 2; 0 if it does not."""


@dataclass(frozen=True)
class SectionEntry:
    """Questions that belong together."""

    key: str
    title: str
    method: str
    """How they are answered."""
    question: tuple[Question, ...]


@dataclass(frozen=True)
class CommandEntry:
    """An experiment, or a command beside the experiments and exhibits."""

    run: str
    """The import string of what it starts."""
    settings: str = ""
    """The import string of the class of its settings."""
    options: str = ""
    """The import string of the class of what it takes beside them."""
    help: str = ""
    """What it does, if no class of settings says it."""
    experiment: str = ""
    """Of a page, the command whose settings it takes too."""
    shares: bool = False
    """Whether several processes share its work, where no `Experiment` says it."""
    processes: bool = False
    """Whether make starts several processes of it with PROCESSES=."""


@dataclass(frozen=True)
class TargetEntry:
    """A target of make that is no figure or table of a question."""

    group: str = ""
    """The title of its group in the help."""
    help: str = ""
    minutes: int | None = None
    run: tuple[str, ...] = ()
    """The commands that it starts; without any and without `draws`, its recipe is in Makefile."""
    draws: str = ""
    """The exhibit that it is another name of."""
    variables: str = ""
    """Those that its recipe uses."""


@dataclass(frozen=True)
class Term:
    """A word that the report explains."""

    name: str
    meaning: str


@cache
def terms() -> tuple[Term, ...]:
    """The words that the report explains."""
    return tuple(_entry(Term, entry) for entry in _file()["term"])


@cache
def sections() -> tuple[SectionEntry, ...]:
    """All questions, by section, in order."""
    return tuple(_entry(SectionEntry, entry) for entry in _file()["section"])


def command_entries(kind: str) -> dict[str, CommandEntry]:
    """The commands of a kind, `experiment`, `tool` or `page`, by name."""
    return {name: _entry(CommandEntry, entry) for name, entry in _file()[kind].items()}


@cache
def targets() -> dict[str, TargetEntry]:
    """The targets of make beside those of figures and tables."""
    return {name: _entry(TargetEntry, entry) for name, entry in _file()["target"].items()}


def variables() -> dict[str, str]:
    """The variables of make, with their meaning."""
    return _file()["variable"]


def short_list() -> list[str]:
    """The targets that the short help explains."""
    return _file()["help"]["short"]


def next_target(target: str) -> str:
    """What follows a target."""
    return _file()["help"]["next"].get(target, "report")


@cache
def _file() -> dict[str, Any]:
    with FILE.open("rb") as file:
        return tomllib.load(file)


def _entry(kind: type[Any], values: dict[str, Any]) -> Any:
    """An entry of the file. Raises TypeError for a field that the kind does not have."""
    inner = {"question": Question, "exhibit": ExhibitEntry}
    known = {field.name for field in fields(kind)}
    if unknown := values.keys() - known:
        raise TypeError(
            f"expected fields of {kind.__name__} among {sorted(known)}, found {sorted(unknown)} in "
            f"{values.get('key') or values.get('name')}; correct {FILE.name}"
        )
    return kind(
        **{
            name: tuple(_entry(inner[name], one) for one in value)
            if name in inner
            else tuple(value)
            if isinstance(value, list)
            else value
            for name, value in values.items()
        }
    )


def questions() -> dict[str, Question]:
    """All questions by key, in order."""
    return {one.key: one for section in sections() for one in section.question}


def exhibit_entries() -> dict[str, tuple[Question, ExhibitEntry]]:
    """Each exhibit with its question, by the exhibit's command, in order."""
    return {entry.name: (one, entry) for one in questions().values() for entry in one.exhibit}


def study() -> list[str]:
    """The experiments that `whole_study` computes, in order."""
    marked = [one for one in questions().values() if one.study]
    return [one.experiment for one in sorted(marked, key=lambda one: one.study)]
