"""The text of `make help`: every target in its group. It needs nothing but Python.

`python experiments/make_help.py MAKEFILE GROUPS MINUTES` reads the questions and the Makefile.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a file, without the package installed

from experiments.questions import sections

TARGET = re.compile(r"^([a-z0-9-]+):.*## (.*)", re.MULTILINE)
"""A target of the Makefile with its line of help."""


def help_text(makefile: str, groups: str, minutes: str) -> str:
    """The targets, in the order of the first group, the questions, and the other groups.

    Args:
        makefile: the text of the Makefile.
        groups: a line per group, with the targets that are not in the list of questions:
            `title: targets`. One with the title of a section adds to the section.
        minutes: how long targets take, as `target:minutes` between spaces.
    """
    texts = dict(TARGET.findall(makefile))
    times = dict(part.split(":") for part in minutes.split())
    own = dict(line.split(": ") for line in groups.strip().splitlines())
    first = next(iter(own))
    targets = {first: own.pop(first).split()}
    for section in sections():
        entries = [entry for question in section.question for entry in question.exhibit]
        listed = [entry for entry in entries if entry.options is not None]
        texts |= {entry.target: entry.help for entry in listed}
        times |= {entry.target: str(entry.minutes) for entry in listed if entry.minutes}
        names = [entry.target for entry in listed]
        targets[section.title] = [*names, *own.pop(section.title, "").split()]
    targets |= {title: names.split() for title, names in own.items()}
    parts = []
    for title, names in targets.items():
        lines = [
            f"make {name:16} {f'{times[name]} min' if name in times else '':>7}  {texts[name]}"
            for name in names
        ]
        parts += [f"\n{title}", *lines] if lines else []
    return "\n".join(parts)


if __name__ == "__main__":
    file, *rest = sys.argv[1:]
    print(help_text(Path(file).read_text(encoding="utf-8"), *rest))
