"""Every figure and table, in the order of the questions that they answer."""

import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pandas import DataFrame

from arith_lens.progress import counted, working
from arith_lens.runs import Run, RunError, find_runs, load_run
from experiments.catalogue import exhibits
from experiments.finding import RESULTS, NotComputed, RunSettings, weights_of
from experiments.questions import ExhibitEntry, exhibit_entries, questions, sections
from figures.claims import Verdict, check_claims
from figures.claims.checking import with_stored
from figures.common import has_tables_alone, run_with
from figures.exhibit import Exhibit, MakesExhibits, options_of
from figures.options import GALLERY


@dataclass(frozen=True)
class Section:
    """A question, and the figures and tables that answer it."""

    name: str
    title: str
    """The question itself."""
    method: str
    """How it is answered."""
    exhibits: tuple[MakesExhibits, ...]


def _sections() -> Iterator[Section]:
    """The sections of `questions.toml`, with the functions that make their exhibits."""
    commands = exhibits()
    for section in sections():
        entries = [entry for question in section.question for entry in question.exhibit]
        functions = tuple(commands[entry.name].load() for entry in entries)
        yield Section(section.key, section.title, section.method, functions)


SECTIONS = tuple(_sections())


def functions() -> list[MakesExhibits]:
    """The functions of all exhibits, in the order of the sections."""
    return [function for section in SECTIONS for function in section.exhibits]


@dataclass(frozen=True)
class MissingExhibit:
    """An exhibit that cannot be drawn."""

    name: str
    title: str
    reason: str
    command: str = ""
    """Computes what is missing."""


@dataclass(frozen=True)
class Collection:
    """All figures, tables and claims of one model."""

    model: str
    sections: tuple[tuple[Section, tuple[Exhibit | MissingExhibit, ...]], ...]
    verdicts: tuple[Verdict, ...]
    failed: tuple[str, ...] = ()
    """Figures and tables that could not be drawn because of an error of the program."""
    settings: RunSettings = field(default_factory=RunSettings.of_paper)
    """The settings of the runs."""

    @property
    def exhibits(self) -> list[Exhibit]:
        """The exhibits that can be drawn, in order."""
        parts = [part for _, parts in self.sections for part in parts]
        return [part for part in parts if not isinstance(part, MissingExhibit)]

    @property
    def missing(self) -> list[MissingExhibit]:
        """The exhibits that cannot be drawn."""
        parts = [part for _, parts in self.sections for part in parts]
        return [part for part in parts if isinstance(part, MissingExhibit)]

    @property
    def own_file(self) -> Path | None:
        """The user's own file of prompts; None: the prompts of the templates."""
        pairs = self.settings.values.get("pairs")
        return Path(pairs) if pairs else None

    @property
    def not_applicable(self) -> list[MissingExhibit]:
        """The exhibits that prompts of one's own do not have."""
        if self.own_file is None:
            return []
        return [
            MissingExhibit(*_named(function), "about the paper's own prompts")
            for function in functions()
            if not _entry(function).own_prompts
        ]

    @property
    def runs(self) -> list[Run]:
        """Each run once: first the runs of charts and tables, then the other runs of claims."""
        every = (run for exhibit in self.exhibits for run in exhibit.runs)
        runs = {run.path.resolve(): run for run in every if not has_tables_alone(run)}
        for path in (path for verdict in self.verdicts for path in verdict.runs):
            runs.setdefault(path.resolve(), load_run(path))
        return list(runs.values())


def collection_of(
    model: str,
    root: Path,
    other_models: tuple[str, ...] = (),
    *,
    settings: RunSettings | None = None,
) -> Collection:
    """All exhibits of a model's newest checkpoint.

    Args:
        model: the model's name in the experiments.
        root: the folder of all runs.
        other_models: those that figures of several models also show.
        settings: the settings of the runs; the paper's if not given. With a file of prompts, the
            exhibits are those that apply to them, and no claim is checked, since the paper's claims
            are about its operations.
    """
    settings = settings or RunSettings.of_paper()
    settings = replace(settings, weights=newest_weights(model, root))
    pairs = settings.values.get("pairs")
    sections, failed = [], []
    chosen = [one for one in functions() if pairs is None or _entry(one).own_prompts]
    signs = counted([*map(name_of, chosen)], "figures and tables")
    for section in SECTIONS:
        parts: list[Exhibit | MissingExhibit] = []
        for function in filter(chosen.__contains__, section.exhibits):
            next(signs)
            try:
                exhibits = collected(function, model, root, other_models, settings=settings)
            except Exception as error:  # of any kind: the other figures are still drawn
                traceback.print_exc()
                exhibits = MissingExhibit(*_named(function), f"an error of the program: {error!r}")
                failed.append(exhibits.name)
            parts += [exhibits] if isinstance(exhibits, MissingExhibit) else exhibits
        sections.append((section, tuple(parts)))
    signs.close()
    verdicts: list[Verdict] = []
    if pairs is None:
        with working("the paper's claims"):
            verdicts = check_claims(model, roots=(root, GALLERY), settings=settings)
            verdicts = with_stored(verdicts, model, root)
    return Collection(model, tuple(sections), tuple(verdicts), tuple(failed), settings)


def newest_weights(model: str, root: Path) -> str | None:
    """The digest of the weights of a model's newest run; None if there is no run."""
    experiments = [folder.name for folder in root.glob("*/")]
    runs = [run for name in experiments for run in find_runs(name, model=model, root=root)[:1]]
    newest = max(runs, key=lambda run: run.manifest.get("ended", ""), default=None)
    return newest and weights_of(newest)


def collected(
    function: MakesExhibits,
    model: str,
    root: Path,
    other_models: tuple[str, ...] = (),
    *,
    settings: RunSettings | None = None,
) -> list[Exhibit] | MissingExhibit:
    """Figures or tables of one model. Errors that are not about runs are raised.

    Args:
        function: one of those in `SECTIONS`.
        model: the model's name in the experiments.
        root: the folder of all runs.
        other_models: those that figures of several models also show; a model without a run is left
            out.
        settings: the settings of the runs; the paper's if not given.
    """
    settings = settings or RunSettings.of_paper()
    try:
        return [*function(_options(function, model, root, other_models, settings))]
    except RunError as error:
        command = error.command if isinstance(error, NotComputed) else ""
        return MissingExhibit(*_named(function), str(error), command)


def table(
    key: str,
    model: str = "reference",
    *,
    root: str | Path = RESULTS,
    settings: RunSettings | None = None,
) -> DataFrame:
    """The table of a question as its CSV file has it: one row per number.

    Args:
        key: the question's key, such as "knockout", or an exhibit's name, such as "fig3".
        model: the model's name in the experiments.
        root: the folder of all runs, or a folder of tables such as `figures/gallery`.
        settings: the settings of the run; the paper's if not given.

    Raises:
        KeyError: no question has this key.
        RunError: there is no run.
    """
    known = questions()
    name = known[key].exhibit[0].name if key in known else key
    if name not in exhibit_entries():
        raise KeyError(f"expected a question among {', '.join(known)}, found {key!r}")
    parts = collected(exhibits()[name].load(), model, Path(root), settings=settings)
    if isinstance(parts, MissingExhibit):
        raise NotComputed(parts.reason, parts.command)
    return parts[0].numbers


def name_of(function: MakesExhibits) -> str:
    """The command of a function that makes exhibits."""
    module = function.__module__.rpartition(".")[2]
    return module if function.__name__ == "exhibits" else function.__name__


def _entry(function: MakesExhibits) -> ExhibitEntry:
    """What `questions.toml` says of the exhibit."""
    return exhibit_entries()[name_of(function)][1]


def _named(function: MakesExhibits) -> tuple[str, str]:
    """The name and the title of a figure or table."""
    own = function.__name__ != "exhibits"
    words = function.__doc__ if own else sys.modules[function.__module__].__doc__
    return name_of(function), (words or "").strip().partition("\n")[0].rstrip(".")


def _options(
    function: MakesExhibits,
    model: str,
    root: Path,
    other_models: tuple[str, ...],
    settings: RunSettings,
) -> Any:
    """The options that a figure takes, as far as they are about runs."""
    values: dict[str, Any] = {"model": model, "root": root, "settings": settings}
    if _entry(function).compares_models:
        shared = replace(settings, weights=None)
        others = [one for one in other_models if one != model]
        others = [one for one in others if _has_run(function, one, root, shared)]
        values |= {"models": (model, *others), "settings": shared}
    options = options_of(function)
    taken = {one.name for one in fields(options)}
    return options(**{name: value for name, value in values.items() if name in taken})


def _has_run(function: MakesExhibits, model: str, root: Path, settings: RunSettings) -> bool:
    try:
        run_with(settings, exhibit_entries()[name_of(function)][0].experiment, model, root)
    except NotComputed:
        return False
    return True
