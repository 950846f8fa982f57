"""Which examples make a model answer? The share of right answers by number and wording of examples.

Solved examples of the same operation stand before each problem. What differs is their number, the
wording of the lines, which examples are left out, and whether all problems have the same ones. A
form of prompt is chosen on one half of the problems, and its share is read on the other half.
Saves a run under results/which_examples/, and prints a table.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

import arith_lens as al
from arith_lens.next_tokens import next_tokens
from arith_lens.operations import FOUR, OPERATIONS
from arith_lens.problems import Problem, all_problems
from arith_lens.runs import Run
from experiments.results import EXAMPLE_OUTCOMES
from experiments.settings import Experiment, ModelSettings, Operation

EXAMPLE_FORMS: Mapping[str, str] = {
    "3 + 5 = 8": "{a} {symbol} {b} = ",
    "3+5=8": "{a}{symbol}{b}=",
    "3 plus 5 is 8": "{a} {word} {b} is ",
}
LEFT_OUT = ("problem", "operands", "answer")
"""Which examples are left out: the problem itself; those with its operands, in either order; those
and every example with its answer."""


@dataclass(frozen=True)
class Form:
    """One form of prompt. The default is that of `sample_pairs(templates="symbols", shots=4)`."""

    wording: str = "3 + 5 = 8"
    shots: int = 4
    left_out: str = "answer"
    own: bool = False
    """Whether each problem has examples of its own; else all have the same ones, in one order."""

    def __str__(self) -> str:
        draw = "own" if self.own else "same"
        return f"{self.wording}, {self.shots} {draw} examples, without {self.left_out}"

    @property
    def strict(self) -> bool:
        """Whether no example gives the answer away."""
        return self.left_out == "answer"

    def prompt(self, problem: Problem, problems: Sequence[Problem], seed: int) -> str:
        """The examples, one per line, and the problem without its answer."""
        order = sorted(problems)
        random.Random(f"{seed} {problem if self.own else ''}").shuffle(order)
        fitting = (other for other in order if not self._leaves_out(other, problem))
        chosen = [*islice(fitting, self.shots)]
        lines = [f"{self._text(other)}{other.answer}\n" for other in chosen]
        return "".join(lines) + self._text(problem)

    def _leaves_out(self, other: Problem, problem: Problem) -> bool:
        if self.left_out == "problem":
            return other == problem
        same = {other.a, other.b} == {problem.a, problem.b}
        return same or (self.strict and other.answer == problem.answer)

    def _text(self, problem: Problem) -> str:
        operation = OPERATIONS[problem.operation]
        word = operation.words["infix"][0]
        return EXAMPLE_FORMS[self.wording].format(
            a=problem.a, b=problem.b, symbol=operation.symbol, word=word
        )


FORMS = (
    *(Form(shots=shots) for shots in (1, 2, 4, 8)),
    *(Form(wording, shots) for wording in [*EXAMPLE_FORMS][1:] for shots in (2, 4)),
    Form(own=True),
    *(Form(left_out=left_out, own=own) for left_out in LEFT_OUT[:2] for own in (False, True)),
)


@dataclass(frozen=True)
class ExamplesConfig(ModelSettings):
    """Which examples make a model answer?"""

    operations: tuple[Operation, ...] = FOUR
    """The operations to use."""
    exemplar_sets: int = 3
    """How many sets of examples are drawn; each prompt stands after each of them."""
    seed: int = 0
    """The seed of the halves."""


def compute(run: Run, model: al.HookedModel, config: ExamplesConfig) -> None:
    """Whether each problem is answered right, in each form and after each set of examples."""
    for operation in config.operations:
        if EXAMPLE_OUTCOMES.is_in(run, operation):
            continue
        problems = _problems(operation)
        cells = [(problem, seed) for seed in range(config.exemplar_sets) for problem in problems]
        right = []
        for form in FORMS:
            prompts = [form.prompt(problem, problems, seed) for problem, seed in cells]
            pieces = next_tokens(model, prompts, k=1, batch_size=len(problems)).pieces
            right.append([
                piece.strip() == str(problem.answer)
                for (piece,), (problem, _) in zip(pieces, cells, strict=True)
            ])  # fmt: skip
            print(f"{operation}, {form}: {sum(right[-1])} of {len(cells)} right", flush=True)
        effects = al.Effects(
            torch.tensor(right).float(),
            ("form",),
            "right",
            template=tuple(f"{operation}/set {seed}" for _, seed in cells),
            cluster=torch.arange(len(cells)),
            problem=tuple(str(problem) for problem, _ in cells),
            labels={"form": tuple(map(str, FORMS))},
        )
        EXAMPLE_OUTCOMES.save(run, effects, operation)


def _problems(operation: str) -> list[Problem]:
    return all_problems(operation, answer_digits=1)


def _plan(model: al.HookedModel, config: ExamplesConfig) -> str:
    """The computation in words."""
    total = sum(len(_problems(operation)) for operation in config.operations)
    return f"{total * config.exemplar_sets * len(FORMS)} prompts, one forward each"


def report(run: Run) -> None:
    """Print the share of right answers of each form, and of the form that one half chooses."""
    for operation in run.config["operations"]:
        right = EXAMPLE_OUTCOMES.load(run, operation)
        n_problems = len(set(right.problem or ()))
        print(f"\n{run.config['model']}, {operation}: {n_problems} problems")
        for at, (form, share) in enumerate(zip(FORMS, _shares(right), strict=True)):
            print(f"  {form!s:<60} {share}; by set {_by_set(right, at)}")
        for name, share in chosen_forms(right, run.config["seed"]):
            print(f"  chosen on the other half: {name}: {share}")


def _shares(right: al.Effects) -> list[str]:
    """Means with 95% intervals over problems and sets of examples."""
    ends = right.ci().T.tolist()
    return [
        f"{mean:.0%} [{low:.0%}, {high:.0%}]"
        for mean, (low, high) in zip(right.mean().tolist(), ends, strict=True)
    ]


def _by_set(right: al.Effects, form: int) -> str:
    """The share of each set of examples, the lowest first."""
    sets = np.array(right.template)
    values = right.per_pair[form].numpy()
    return ", ".join(f"{share:.0%}" for share in sorted(values[sets == s].mean() for s in {*sets}))


def chosen_forms(right: al.Effects, seed: int) -> Iterator[tuple[str, str]]:
    """The strict form that is best on each half of the problems, and its share on the other."""
    assert right.problem is not None
    problems = sorted({*right.problem})
    random.Random(seed).shuffle(problems)
    first = {*problems[: len(problems) // 2]}
    inside = torch.tensor([problem in first for problem in right.problem])
    strict = torch.tensor([form.strict for form in FORMS])
    for half in (inside, ~inside):
        best = int(right.select(half).mean().masked_fill(~strict, -1).argmax())
        yield str(FORMS[best]), _shares(right.select(~half))[best]


main = Experiment("which_examples", ExamplesConfig, compute, _plan, report)
