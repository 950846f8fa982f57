"""Negative transfer: what the loss of the tuned heads costs, before and after tuning.

Reads a run of `experiments/do_tuned_heads_carry_more.py`, without loading a model; prints the table
and writes it as HTML and its numbers as CSV.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import torch
import tyro
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor

from arith_lens.answers import Answers, OverSeeds, over_seeds
from arith_lens.runs import Run
from figures.command import command
from figures.common import TableOptions, chosen_run
from figures.drawn import Table, show
from figures.tuning import groups, tasks


def main(options: Annotated[TableOptions, tyro.conf.arg(name="")]) -> None:
    """Print and write."""
    show(drawn, options)


def drawn(options: TableOptions) -> list[Table]:
    """The table of a run. Raises RunError where there is none."""
    run = chosen_run(options, "do_tuned_heads_carry_more")
    answers = {name: Answers.from_arrays(run.load_arrays(name)) for name in run.names_of("answers")}
    rows = [row(answers, chosen, part) for part, chosen in parts(answers["before-whole"]).items()]
    shown, numbers = (DataFrame([line[i] for line in rows]) for i in (0, 1))
    return [
        Table(
            name="carrying",
            title=f"Do other abilities hang on the tuned heads? {run.config['model']}",
            look="Whether generic tasks lose more by the knockout after tuning than before: then "
            "tuning has put more than mathematics into these heads.",
            notes=notes(run),
            runs=(run,),
            numbers=numbers,
            shown=shown,
        )
    ]


def parts(answers: Answers) -> dict[str, list[bool]]:
    """The two groups, and each task."""
    return {f"all {name}": inside for name, inside in groups(answers).items()} | tasks(answers)


def row(
    every: Mapping[str, Answers], chosen: list[bool], part: str
) -> tuple[dict[str, str], dict[str, Any]]:
    """One group or task: as text and as numbers."""
    answers = {name: one.select(chosen) for name, one in every.items()}
    tuned = tuned_names(answers)
    before = lost(answers, ["before"], "without")
    after = lost(answers, tuned, "without")
    changes = {
        "before: without": over_seeds(before),
        "tuned: without": over_seeds(after),
        "more after tuning": over_seeds(after - before),
    }
    shares = {
        "before": answers["before-whole"].accuracy,
        "tuned": sum(answers[f"{name}-whole"].accuracy for name in tuned) / len(tuned),
    }
    labels = [name.removeprefix("before-") for name in answers if name.startswith("before-rand")]
    randoms = {
        f"{when}: random": _mean_lost(answers, names, labels)
        for when, names in (("before", ["before"]), ("tuned", tuned))
        if labels
    }
    text = {"task": part, "questions": str(sum(chosen))}
    text |= {name: f"{share:.1%}" for name, share in shares.items()}
    text |= {name: _told(change) for name, change in changes.items()}
    text |= {name: f"{100 * mean:+.1f}" for name, mean in randoms.items()}
    numbers: dict[str, Any] = {"task": part, "questions": sum(chosen), **shares}
    for name, change in changes.items():
        low, high = change.ci()
        numbers |= {name: change.mean, f"{name}, low": low, f"{name}, high": high}
    return text, numbers | randoms


def tuned_names(names: Iterable[str]) -> list[str]:
    """The tuned models among the results' names, a seed each."""
    whole = [name.removesuffix("-whole") for name in names if name.endswith("-whole")]
    return [name for name in whole if name != "before"]


def lost(
    answers: Mapping[str, Answers], models: Sequence[str], label: str
) -> Float[Tensor, "model question"]:
    """1 where a question is right with the knockout alone, -1 where without it alone."""
    return torch.stack(
        [
            answers[f"{model}-{label}"].correct.double()
            - answers[f"{model}-whole"].correct.double()
            for model in models
        ]
    )


def _mean_lost(
    answers: Mapping[str, Answers], models: Sequence[str], labels: Sequence[str]
) -> float:
    """The mean change over several knockouts."""
    return sum(float(lost(answers, models, label).mean()) for label in labels) / len(labels)


def _told(change: OverSeeds) -> str:
    low, high = change.ci()
    return f"{100 * change.mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def notes(run: Run) -> list[str]:
    """How to read the table."""
    heads, controls = ", ".join(run.facts("before-without")["heads"]), run.config["controls"]
    return [
        f"Heads {heads}, those that precise tuning trained. Without: each replaced by one vector, "
        "its mean over the counterfactuals of the four operations in the model at hand, at every "
        "token but BOS. Changes in points of accuracy [95% interval, over questions and "
        f"{len(tuned_names(run.names))} seeds of tuning].",
        "More after tuning: the change in the tuned models less that before."
        + (f" Random: mean over {controls} random sets of as many heads." if controls else ""),
    ]


if __name__ == "__main__":
    command(main, "carrying", __doc__)
