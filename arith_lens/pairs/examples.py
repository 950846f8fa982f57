"""Solved examples before a problem: the same before both prompts of a pair."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

from arith_lens.model import NO_FRAME
from arith_lens.operations import FOUR
from arith_lens.pairs.references import AnyTemplate, Supply, Wording
from arith_lens.pairs.story_words import shuffled
from arith_lens.pairs.tokens import continued
from arith_lens.problems import Problem
from arith_lens.templates import TEMPLATES, Template


@dataclass(frozen=True)
class Examples:
    """The solved examples before each prompt."""

    shots: int = 0
    """The number of examples."""
    exemplars: str = "same"
    """`"same"`: of the operation; `"mixed"`: of the four operations in turn."""
    exemplar_set: int = 0
    """The number of the draw of examples."""


@dataclass(frozen=True)
class Exemplars:
    """The examples of each template, in the order in which they are taken."""

    shots: int
    """The number of examples before each problem."""
    kind: str
    """`same`: of the problem's operation; `mixed`: of the four operations in turn."""
    set: int
    """The number of the draw. Equal sets have the same examples in the same order, but for those
    that a problem excludes."""
    lines: Mapping[str, Sequence[tuple[Problem, str]]]
    """For each template, the problems and their solved texts."""

    @classmethod
    def of(
        cls, supplies: Sequence[Supply], problems: Sequence[Problem], example_options: Examples
    ) -> "Exemplars":
        """The examples for the templates of some supplies.

        Raises:
            ValueError: a story has no mixed examples.
        """
        kind, number = example_options.exemplars, example_options.exemplar_set
        lines = {
            part.template.name: _solved(part, problems, kind, random.Random(f"{number} {kind}"))
            for part in supplies
        }
        return cls(example_options.shots, kind, number, lines)

    def __str__(self) -> str:
        return f"{self.shots} {self.kind} examples, set {self.set}"

    def before(self, *wordings: Wording) -> list[Wording]:
        """Wordings of one template with the same examples, one per line; none of them gives any of
        the wordings away (see `Wording.gives_away`).

        Raises:
            ValueError: too few examples are left.
        """
        lines = self.lines[wordings[0].template.name]
        fitting = (
            (other, text)
            for other, text in lines
            if not any(wording.gives_away(other) for wording in wordings)
        )
        chosen = list(islice(fitting, self.shots))
        if len(chosen) < self.shots:
            problems = " and ".join(str(wording.problem) for wording in wordings)
            raise ValueError(
                f"expected {self.shots} examples without the operands and the answer of "
                f"{problems}, found {len(chosen)}; ask for fewer shots, or widen the operands"
            )
        examples = "".join(f"{text}\n" for _, text in chosen)
        solved = tuple(problem for problem, _ in chosen)
        return [replace(wording, examples=examples, solved=solved) for wording in wordings]


def _solved(
    part: Supply, problems: Sequence[Problem], kind: str, rng: random.Random
) -> list[tuple[Problem, str]]:
    """Problems in a random order, each in the words of the template, with its answer."""
    if kind == "same":
        return [(w.problem, _text(w)) for w in shuffled(part.once(rng), rng)]
    number = part.template.name.rpartition("/")[2]
    by_operation: list[list[tuple[Problem, str]]] = []
    for operation in FOUR:
        templates: dict[str, AnyTemplate] = {t.name: t for t in TEMPLATES[operation]}
        template = templates.get(f"{operation}/{number}")
        if template is None or not isinstance(part.template, Template):
            raise ValueError(
                f"expected the wording of template {part.template.name} in all four operations for "
                f"mixed examples, found none in {operation}; take exemplars='same', or leave the "
                "template out"
            )
        numbers = sorted({n for problem in problems for n in (problem.a, problem.b)})
        others = [Problem(operation, a, b) for a in numbers for b in numbers]
        ended = replace(template, text=template.text.rstrip(" "))
        worded = [Wording(ended, other, "") for other in others if other.is_exact]
        by_operation.append([(w.problem, _text(w)) for w in shuffled(worded, rng)])
    turns = cycle(map(iter, shuffled(by_operation, rng)))
    return [next(turn) for turn in islice(turns, 4 * min(map(len, by_operation)))]


def _text(wording: Wording) -> str:
    text, _ = replace(wording, prefix="", frame=NO_FRAME).reference()
    return continued(text, str(wording.problem.answer))
