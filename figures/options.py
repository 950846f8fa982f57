"""The options of exhibits and pages: which run is shown, and where files go.

Nothing here imports PyTorch, so that help and refusals are quick. `settings` are a `RunSettings`,
which the command line makes from the settings of the experiment; None: any.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import tyro

from experiments.configs.shared import RESULTS

Formats: TypeAlias = tuple[Literal["png", "svg", "pdf"], ...]
Width: TypeAlias = Literal["screen", "column", "page"]

GALLERY = Path(__file__).parent / "gallery"
"""The tables of the reference models, which ship with the project."""
ALL_OPERATIONS = "all"
"""In place of an operation's name: every one of the run."""


@dataclass(frozen=True)
class TableOptions:
    """Which run to show, and where its files go."""

    model: tyro.conf.Suppress[str] = "reference"
    """Its model; the command line has it among the experiment's settings."""
    run: Path | None = None
    """Show this run folder, instead of the run with these settings."""
    out: Path | None = None
    """Where the files go; figures/<model> if not given."""
    root: Path = RESULTS
    """The folder of all runs."""
    settings: tyro.conf.Suppress[Any] = None
    """The settings of the run."""


@dataclass(frozen=True)
class PictureOptions:
    """How pictures are drawn."""

    formats: Formats = ("png", "svg", "pdf")
    """Static pictures to draw as well."""
    width: Width = "screen"
    """A column (3.3 in) or a page (6.9 in) of a paper, in files of their own; or a screen."""


@dataclass(frozen=True)
class Options(PictureOptions, TableOptions):
    """Which run to draw, and where its files go."""


@dataclass(frozen=True)
class ModelOptions(PictureOptions):
    """Which runs to draw, and where their files go."""

    models: tuple[str, ...] = ("reference", "reference-mistral")
    """Draw the run of each with these settings, in this order."""
    runs: tuple[Path, ...] = ()
    """Draw these run folders instead."""
    out: Path = Path("figures") / "models"
    """Where the files go."""
    root: Path = RESULTS
    """The folder of all runs."""
    settings: tyro.conf.Suppress[Any] = None
    """The settings of the runs."""


@dataclass(frozen=True)
class ExamOptions(PictureOptions):
    """Which runs to show, and where the files go."""

    out: Path = Path("figures") / "built_models"
    """Where the files go."""
    root: Path = RESULTS
    """The folder of all runs."""
    settings: tyro.conf.Suppress[Any] = None
    """The settings of the runs."""


@dataclass(frozen=True)
class ExplorerOptions(TableOptions):
    """Which run to show, and beside which other models."""

    compare: tuple[str, ...] = ()
    """Other models, such as the same one after tuning, whose runs have the same settings. The page
    begins with the first one beside the model."""


@dataclass(frozen=True)
class LargeMapOptions(Options):
    """Which run to draw, and where to."""

    operation: str = ALL_OPERATIONS
    """The operation to draw; "all" of the run, or their "mean"."""


@dataclass(frozen=True)
class OperationOptions(Options):
    """Which run to draw, and where to."""

    operation: str | None = None
    """Which of the run's operations; the first, addition, if not given."""


@dataclass(frozen=True)
class ClaimsOptions:
    """Which model's claims to check, and where to."""

    model: str = "reference"
    """The model's name in the experiments."""
    roots: tuple[Path, ...] = (RESULTS, GALLERY)
    """Folders with runs, of which the first is used that has one, or with the tables that ship."""
    out: Path | None = None
    """Where the files go; figures/<model> if not given."""
    n: int | None = None
    """Use runs with this number of reference prompts per operation; with all if not given."""
    shots: int = 0
    """Use runs with this number of solved examples before each prompt."""
    computed: bool = True
    """Judge × and ÷ on problems whose answer cannot be copied, not on one-digit problems."""


@dataclass(frozen=True)
class ReportOptions:
    """Which model to show, and where the page goes."""

    model: tyro.conf.Suppress[str] = "reference"
    """Its model; the command line has it among the study's settings."""
    settings: tyro.conf.Suppress[Any] = None
    """The settings of the runs, in place of the paper's; the command line has the study's."""
    beside: tuple[str, ...] = ("reference", "reference-mistral")
    """Models to show beside it in figures of several models, if they have runs."""
    out: Path | None = None
    """Where the page goes; figures/<model> if not given."""
    root: Path = RESULTS
    """The folder of all runs."""


@dataclass(frozen=True)
class GalleryOptions:
    """Which runs to show, and where the files go."""

    root: Path = RESULTS
    """The folder of all runs."""
    out: Path = Path("figures") / "gallery"
    """Where pictures and numbers go."""
    docs: Path = Path("docs")
    """The pages that show them, with README beside this folder. claims.md gets the verdicts."""
    from_tables: bool = False
    """Draw the tables that are there, without any run."""
    pictures: bool = True
    """Draw the pictures; else write only the numbers and the verdicts."""
