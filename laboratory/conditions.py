"""In which prompts a few heads suffice: other wordings, larger sums, means over operations."""

import random
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import torch

import arith_lens as al
from arith_lens.auditing import four_operations, measures
from laboratory.rows import of_measure, write_rows

ONE, TWO = range(1, 10), range(10, 90)
KINDS: Mapping[str, tuple[str, range, range, int]] = {
    "a + b = ": ("{} + {} = ", ONE, range(2, 10), -1),
    "a plus b equals ": ("{} plus {} equals ", ONE, range(2, 10), -1),
    "a plus b is ": ("{} plus {} is ", ONE, range(2, 10), -1),
    "sum above 9, last digit": ("{} + {} = ", ONE, range(10, 19), -1),
    "two digits, first digit": ("{} + {} = ", TWO, range(20, 100), 0),
    "two digits, last digit": ("{} + {} = ", TWO, range(20, 100), -1),
}
"""By name: the text, the operands, the sums, and which digit of the sum is read."""
OPERANDS = ("20.8", "21.2", "23.3", "23.0", "24.5")
OPERATOR = ("14.2", "14.6", "18.5", "13.6", "14.8")
"""Heads that other operands, and another operator, find."""


def conditions(
    model: str = "smollm2-135m", n: int = 40, draws: int = 20, csv: Path | None = None
) -> None:
    """Keep heads alone at END, or take them out, in several kinds of sums and with other means.

    Args:
        model: a name, a folder or a GGUF file.
        n: the largest number of prompts of a kind that are answered right.
        draws: the number of other sets of heads, half of them of the same layers.
        csv: the file to write.
    """
    loaded = al.load_model(model)
    scale = measures.Scale.of(loaded, 0, draws // 2)
    parts = chain(_kinds(loaded, scale, n), _other_means(loaded, scale, draws))
    write_rows(
        (
            {"model": loaded.name, "prompts": prompts, "heads": heads, **of_measure(own)}
            | {"control_low": own.control_low, "control_high": own.control_high}
            for prompts, heads, own in parts
        ),
        csv,
    )


Numbers: TypeAlias = Iterator[tuple[str, str, measures.Measure]]
"""What the prompts are, which heads stay, and the share of right answers."""


def _kinds(model: al.HookedModel, scale: measures.Scale, n: int) -> Numbers:
    """The heads alone and without them, in each kind of sums."""
    chosen = [al.Head.parse(head) for head in OPERANDS[:3]]
    how = measures.Replacing("means at END", "mean", "end", scale.draws)
    for kind in KINDS:
        pairs = sums(model, kind, 3 * n)
        right = al.knock_out(model, pairs, [], progress=False).correct
        yield kind, "all", measures.share(right.float(), pairs, torch.empty(0, len(pairs)))
        for alone in (True, False):
            own, _ = measures.sets_replaced(
                model, pairs[right][:n], chosen, scale, how, alone=alone, run=None, progress=False
            )
            yield kind, "alone" if alone else "without", own


def _other_means(model: al.HookedModel, scale: measures.Scale, draws: int) -> Numbers:
    """Heads alone, the others giving means over all four operations. Controls are the heads of
    operands with random ones."""
    means = al.counterfactual_means(model, four_operations(model), positions="end")
    others = [str(head) for head in scale.heads if str(head) not in OPERANDS + OPERATOR]
    controls = [(*OPERANDS, *random.Random(i).sample(others, 5)) for i in range(draws)]
    options: Any = {"templates": "symbols", "counterfactual": "operands", "shots": 1}
    replaced: Any = {"positions": "end", "means": means, "progress": False}
    for operation in ("addition", "multiplication"):
        pairs = al.sample_pairs(model, operation, **options)
        sets = [OPERANDS, OPERATOR, OPERANDS + OPERATOR, *controls]
        outcomes = [al.keep_only(model, pairs, heads, **replaced) for heads in sets]
        right = torch.stack([one.correct.float() for one in outcomes])
        for name, own in zip(("operands", "operator", "both"), right, strict=False):
            measure = measures.share(own, pairs, right[3:])
            yield f"{operation}, means over four operations", name, measure


def sums(model: al.HookedModel, kind: str, n: int) -> al.PromptPairs:
    """Sums of a kind after one example; the counterfactual asks another one."""
    text, operands, totals, digit = KINDS[kind]
    draw = random.Random(kind)
    problems = [(a, b) for a in operands for b in operands if a + b in totals]
    draw.shuffle(problems)
    example = problems.pop()

    def prompt(problem: tuple[int, int]) -> str:
        read = str(sum(problem))[: digit % len(str(sum(problem)))]
        return f"{text.format(*example)}{sum(example)}\n{text.format(*problem)}{read}"

    def answer(problem: tuple[int, int]) -> str:
        return str(sum(problem))[digit]

    rows = []
    for own in [one for one in problems if sum(one) != sum(example)][:n]:
        other = draw.choice([one for one in problems if answer(one) != answer(own)])
        both = {"reference": prompt(own), "counterfactual": prompt(other)}
        answers = {"answer": answer(own), "counterfactual_answer": answer(other)}
        rows.append(both | answers | {"problem": "{} + {}".format(*own)})
    return al.PromptPairs.from_rows(rows, model)
