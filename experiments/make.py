"""`make fig3 N=9`: compute what a target needs and draw it, in one process.

    python -m experiments.make run fig3 N=9      compute and draw
    python -m experiments.make show fig3 N=9     print the commands, for make -n
    python -m experiments.make check fig3 N=9    print what is wrong with the line, if anything is
    python -m experiments.make help-all          every target and variable

Targets and variables are in `questions.toml`. A variable becomes the option of its name, where the
settings of an experiment or the options of an exhibit have it. Before `make setup` the settings
cannot be imported, and names alone are checked.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, get_origin

from experiments.catalogue import Command, exhibits, exhibits_and_pages, experiments, imported
from experiments.catalogue import with_settings as drawing_command
from experiments.questions import (
    ExhibitEntry,
    TargetEntry,
    command_entries,
    exhibit_entries,
    next_target,
    questions,
    sections,
    short_list,
    targets,
    variables,
)

OPTIONS = {
    "DATA": ("data_dir",),
    "LIMIT": ("limit", "questions"),
    "SETS": ("exemplar_sets",),
    "TOKENIZER": ("tokenizers",),
}
"""The options that a variable can become; those of other variables have their names."""
EVERYWHERE = ("PYTHON", "VENV", "PIP", "OMP_WAIT_POLICY")
"""Variables of all targets."""
NOT_OPTIONS = ("OUT", "PROCESSES", "SIZE", "WORKERS", *EVERYWHERE)
"""Variables that no command takes as an option."""
PRETRAINED = {"MODEL": "smollm2-135m", "SHOTS": "1", "TEMPLATES": "symbols"}
"""What `make fig2` alone draws, where this model is in the cache."""
MODELS = "reference reference-mistral"
"""The models of a figure that compares models, without MODELS=."""

Variables = Mapping[str, str]


@dataclass(frozen=True)
class Step:
    """A command that a target starts, and the words of its command line."""

    command: Command
    words: tuple[str, ...]
    processes: str = ""
    """How many processes share it, if not one."""

    @property
    def line(self) -> str:
        """The same as a line of the shell. Small models gain more by processes than by threads."""
        name, package = self.command.name, self.command.package
        launch = f"-m torch.distributed.run --nproc_per_node {self.processes} "
        start = f"OMP_NUM_THREADS=1 python {launch}" if self.processes else "python "
        return start + shlex.join(["-m", package, name, *self.words])

    def run(self) -> None:
        """Run it here, or in several processes. Raises SystemExit if it fails."""
        print(self.line, flush=True)
        words = [self.command.name, *self.words]
        if self.processes:
            launch = ["-m", "torch.distributed.run", "--nproc_per_node", self.processes]
            command = [sys.executable, *launch, "-m", self.command.package, *words]
            done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
            if done.returncode:
                sys.exit(done.returncode)
        else:
            imported(f"{self.command.package}.__main__:main")(words)


def steps(target: str, values: Variables) -> Iterator[Step]:
    """The commands of a target, in order. Variables that it does not use are left out."""
    name = _exhibit_of(target)
    if name is None:
        for line in targets()[target].run:
            yield _step(line, values)
        return
    question, entry = exhibit_entries()[name]
    drawn = drawing_command(exhibits()[name])
    models, others = [""], values.get("COMPARE", "").split()
    if entry.compares_models:
        models = values.get("MODELS", MODELS).split()
    values = {**values, "MODELS": " ".join(models)} | ({"MODEL": ""} if models[0] else {})
    if question.experiment:
        command = experiments()[question.experiment]
        processes = values.get("PROCESSES", "") if _shares(question.experiment) else ""
        for model in [*(others if "compare" in _fields(drawn) else ()), *models]:
            of_model = {**values, "MODEL": model} if model else values
            words = [*entry.arguments.split(), *_words(command, of_model)]
            yield Step(command, tuple(words), processes)
    yield Step(drawn, tuple(_words(drawn, values)))


def with_pretrained(target: str, values: Variables) -> Variables:
    """The variables of `make fig2` alone: those of a pretrained model, if it is in the cache.

    Nothing is downloaded. A line says which model it is, and how to get the other.
    """
    options = {name: value for name, value in values.items() if name not in NOT_OPTIONS}
    if target != "fig2" or any(options.values()):
        return values
    name = PRETRAINED["MODEL"]
    try:
        imported("arith_lens.model.pretrained:pretrained_file")(name)
    except (OSError, ImportError):  # ImportError: before setup
        print(f"fig2 takes reference; after make smollm it takes {name}", file=sys.stderr)
        return values
    print(f"fig2 takes {name}; the shipped model: make fig2 MODEL=reference", file=sys.stderr)
    return PRETRAINED


def _step(line: str, values: Variables) -> Step:
    """The step of a target's line, such as `experiments template_tables --figure 8`."""
    package, name, *words = line.split()
    commands = experiments() if package == "experiments" else exhibits_and_pages()
    command = commands[name] if package == "experiments" else drawing_command(commands[name])
    if "--model" in words:
        return Step(command, tuple(words))  # always the same
    variables_set = {"TOKENIZER": values.get("MODEL", ""), **values}
    return Step(command, (*words, *_words(command, variables_set)))


def _exhibit_of(target: str) -> str | None:
    """The exhibit that a target computes and draws; None for another target."""
    name = target.replace("-", "_")
    if target in targets():
        return targets()[target].draws or None
    return questions()[name].exhibit[0].name if name in questions() else name


def _shares(experiment: str) -> bool:
    entry = command_entries("experiment").get(experiment)
    return bool(entry and entry.processes)


def _fields(command: Command) -> dict[str, Any]:
    """The types of all settings and options of a command, by name."""
    classes = map(imported, command.takes)
    return {field.name: field.type for kind in classes for field in fields(kind)}


def _option(variable: str, types: Mapping[str, Any]) -> str | None:
    """The option of a command that a variable becomes; None if it has none."""
    names = () if variable in NOT_OPTIONS else OPTIONS.get(variable, (variable.lower(),))
    return next((one for one in names if one in types and get_origin(types[one]) is not dict), None)


def _words(command: Command, values: Variables) -> Iterator[str]:
    """The options of a command that variables have values for."""
    types = _fields(command)
    for variable in variables():
        option, value = _option(variable, types), values.get(variable, "")
        if option and value:
            several = get_origin(types[option]) is tuple
            yield from (f"--{option.replace('_', '-')}", *(value.split() if several else (value,)))


def taken(target: str) -> set[str]:
    """The variables that a target uses."""
    used = {*targets().get(target, TargetEntry()).variables.split()}
    for step in steps(target, {}):
        types = {} if "--model" in step.words else _fields(step.command)
        used |= {variable for variable in variables() if _option(variable, types)}
        used |= {"PROCESSES"} if _shares(step.command.name) else set()
    name = _exhibit_of(target)
    return used - {"MODEL" if name and exhibit_entries()[name][1].compares_models else "MODELS"}


def check(goals: Sequence[str], values: Variables) -> str:
    """What is wrong with the goals and variables of a command line; "" if nothing is."""
    known = {*variables(), *EVERYWHERE}
    for name in values:
        if name not in known:
            near = [name.upper()] if name.upper() in known else _near(name, known)
            return f"make knows no variable {name}{_meant(near)} make help-all explains all"
    every = all_targets()
    for goal in goals:
        if goal not in every and goal.replace("-", "_") not in questions():
            return f"make has no target {goal}{_meant(_near(goal, every))} make help-all lists all"
    with suppress(ImportError):  # before setup
        used = set().union(*map(taken, goals)) if goals else known
        for name, value in values.items():
            if value and name not in {*used, *EVERYWHERE}:
                return _unused(" ".join(goals), name, used)
    return ""


def _unused(goals: str, name: str, used: set[str]) -> str:
    """The refusal of a variable that would be ignored."""
    if name == "PAIRS":
        fitting = " ".join(goal for goal in all_targets() if "PAIRS" in taken(goal))
        return f"make {goals} takes no PAIRS=; leave it out, or take one of: {fitting}"
    names, near = " ".join(sorted(used)) or "none", _meant(_near(name, used))
    return f"make {goals} takes no {name}={near} leave it out, or set one of: {names}"


def _near(name: str, known: Sequence[str] | set[str]) -> list[str]:
    return get_close_matches(name, [*known], 3)


def _meant(near: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(near)}?" if near else ";"


def all_targets() -> list[str]:
    """The targets, in the order of the help, and the keys of questions."""
    names = [name for group in groups().values() for name in group]
    keys = [key.replace("_", "-") for key in questions()]
    return [*dict.fromkeys([*names, *keys])]


def groups() -> dict[str, dict[str, TargetEntry | ExhibitEntry]]:
    """The targets with their help, by the title of their group."""
    own: dict[str, dict[str, TargetEntry | ExhibitEntry]] = {}
    for name, entry in targets().items():
        own.setdefault(entry.group, {})[name] = entry
    first = next(iter(own))
    grouped = {first: own.pop(first)}
    for section in sections():
        entries = [entry for question in section.question for entry in question.exhibit]
        drawn = {entry.target: entry for entry in entries}
        grouped[section.title] = {**drawn, **own.pop(section.title, {})}
    return grouped | own


def help_text(*, everything: bool) -> str:
    """The targets that are used most; or everything."""
    grouped = groups()
    if not everything:
        by_name = {name: entry for group in grouped.values() for name, entry in group.items()}
        more = f"make help-all     explains all {len(by_name)} targets, and the variables"
        return "\n".join([*(_line(name, by_name[name]) for name in short_list()), more])
    lines = []
    for title, group in grouped.items():
        lines += [title, *(_line(name, entry) for name, entry in group.items()), ""]
    lines.append("Variables: make fig2 MODEL=reference-mistral N=9")
    lines += [f"  {name + '=':12} {about}" for name, about in variables().items()]
    keys = sorted(key.replace("_", "-") for key in questions())
    lines += ["", "A question has a key, which draws its first figure: make knockout is make fig3."]
    return "\n".join([*lines, f"Keys: {' '.join(keys)}"])


def _line(name: str, entry: TargetEntry | ExhibitEntry) -> str:
    if isinstance(entry, TargetEntry) and entry.draws:
        entry = exhibit_entries()[entry.draws][1]
    minutes = f"{entry.minutes} min" if entry.minutes else ""
    return f"make {name:16} {minutes:>7}  {entry.help}"


def run(target: str, values: Variables) -> None:
    """Compute and draw what a target names. Of a report, a step that fails stops no other one.

    Raises:
        SystemExit: a step failed.
    """
    failed = False
    for step in steps(target, values):
        try:
            step.run()
        except SystemExit as end:
            if target != "report" or end.code == 130 or step.command.package == "figures":
                raise
            failed = True
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
    if failed:
        sys.exit("the report shows the other studies: some failed, see above")
    following = next_target(target)
    same = [f"{name}={value}" for name, value in values.items() if name in taken(following)]
    print(f"next: {shlex.join(['make', following, *same])}")


def main(words: Sequence[str]) -> None:
    """Do what the first word says for the targets and variables after it."""
    what, *rest = words
    pairs = [word.split("=", 1) for word in rest if "=" in word]
    typed = {name: value for name, value in pairs}
    goals = [word for word in rest if "=" not in word]
    if what == "check":
        print(check(goals, typed))
    elif what in ("help", "help-all"):
        print(help_text(everything=what == "help-all"))
    else:
        from_environment = {name: os.environ[name] for name in variables() if name in os.environ}
        values = from_environment | typed
        for goal in goals:
            of_goal = with_pretrained(goal, values)
            if what == "show":
                print(*(step.line for step in steps(goal, of_goal)), sep="\n")
            else:
                run(goal, of_goal)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
