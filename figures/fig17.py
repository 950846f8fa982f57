"""Figure 17: the column addition of a computer beside what each layer of the model writes.

Reads a run of `experiments like_a_computer` (the newest one of the model, or `--run PATH`) and
draws it without loading a model.
"""

from pandas import DataFrame

from arith_lens import plotting
from arith_lens.problems import ColumnAddition, column_addition
from arith_lens.runs import Run
from experiments import results
from figures.common import Options, chosen_run
from figures.exhibit import Chart

CLASS_COLOURS = {
    "C": plotting.BLUE,
    "A or B": plotting.OCHRE,
    "C±1": "#a0d3f9",
    "other": plotting.PALE,
}


def exhibits(options: Options) -> list[Chart]:
    """The sums of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "like_a_computer")
    return [
        Chart(
            name="fig17",
            title="Figure 17: the column addition of a computer beside the model's layers",
            look=look(run),
            notes=notes(run),
            runs=(run,),
            numbers=numbers(run),
            figure=draw(run),
        )
    ]


def look(run: Run) -> str:
    """What to look for, and from which layer on this run's layers write the answer."""
    parts = []
    for name in results.SUM_COSINES.labels(run):
        kinds = [kind for _, kind, _ in layer_winners(run, name)]
        first = len(kinds)
        while first and kinds[first - 1] == "C":
            first -= 1
        before = sum(kind == "other" for kind in kinds[:first])
        text = results.SUM_COSINES.facts(run, name)["text"].strip()
        parts.append(
            f"“{text}” from layer {first} on ({before} of the {first} layers before write none of "
            "A, B, C and C±1)"
            if first < len(kinds)
            else f"“{text}” not in the last layer"
        )
    return (
        "Whether the layers go through carries and partial sums as a computer does. In the paper "
        "they do not: for 3 + 4 they write an operand, then a neighbour of the answer, then the "
        f"answer. Here the answer C stays the first digit: {'; '.join(parts)}."
    )


def draw(run: Run) -> plotting.Figure:
    """One row per prompt: base 2 and base 10 on the left, the model's layers on the right."""
    parts = []
    for name in results.SUM_COSINES.labels(run):
        facts = results.SUM_COSINES.facts(run, name)
        right = "" if facts["said"] == facts["answer"] else f", right would be {facts['answer']}"
        parts.append(
            plotting.Steps(
                title=f"{facts['text'].strip()}  →  {facts['said']} "
                f"({facts['probability']:.0%}){right}",
                tables=tuple(
                    (f"base {base}", _table(column_addition(facts["a"], facts["b"], base)))
                    for base in (2, 10)
                ),
                cells=tuple(
                    (str(digit), CLASS_COLOURS[kind]) for digit, kind, _ in layer_winners(run, name)
                ),
                feet=tuple(
                    f"{margin:.2f}".lstrip("0") for _, _, margin in layer_winners(run, name)
                ),
            )
        )
    return plotting.step_panels(
        parts,
        cells_title="digit that each layer's MLP writes most",
        feet_title="layer; below, the digit's margin over the next one",
        legend=tuple(CLASS_COLOURS.items()),
        notes=notes(run),
    )


def notes(run: Run) -> list[str]:
    """How to read the figure, and what it was made from."""
    return [
        f"Model: {run.config['model']}. Left: carries, both addends, sum; below, the number in the "
        "sum's columns after each step from the right. Right: the digit whose column of W_U has "
        "the largest cosine with what the MLP adds at END, layers from 0. C is the digit of the "
        "answer. Margin: its cosine less that of the second digit; a small one decides little.",
        "A digit that is several of these counts as the first of them; A or B means any digit of "
        "theirs.",
    ]


def layer_winners(run: Run, name: str) -> list[tuple[int, str, float]]:
    """The digit that each layer writes most, its class, and its margin over the next digit."""
    facts = results.SUM_COSINES.facts(run, name)
    first, second = results.SUM_COSINES.load(run, name).per_pair[..., 0].topk(2, dim=1).values.T
    digits = results.SUM_COSINES.load(run, name).per_pair[..., 0].argmax(1).tolist()
    margins = (first - second).tolist()
    return [
        (digit, _kind(digit, facts), margin) for digit, margin in zip(digits, margins, strict=True)
    ]


def _kind(digit: int, facts: results.SumFacts) -> str:
    answer = int(facts["answer"])
    if digit == answer:
        return "C"
    if str(digit) in f"{facts['a']}{facts['b']}":
        return "A or B"
    return "C±1" if abs(digit - answer) == 1 else "other"


def _table(sum_: ColumnAddition) -> tuple[str, ...]:
    rows = (sum_.carries, sum_.a, sum_.b, sum_.result)
    steps = " → ".join(map(str, sum_.steps))
    names = ("carry", "A", "B", "sum")
    lines = (f"{name:<6}{''.join(map(str, row))}" for name, row in zip(names, rows, strict=True))
    return (*lines, f"steps {steps}")


def numbers(run: Run) -> DataFrame:
    """One row per prompt and layer."""
    rows = []
    for name in results.SUM_COSINES.labels(run):
        facts = results.SUM_COSINES.facts(run, name)
        keys = {key: facts[key] for key in ("text", "answer", "said", "probability")}
        for layer, (digit, kind, margin) in enumerate(layer_winners(run, name)):
            rows.append({**keys, "layer": layer, "winner": digit, "class": kind, "margin": margin})
    return DataFrame(rows)
