"""What further tuning on other data leaves of the gains of full, precise and LoRA tuning."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import arith_lens as al
from arith_lens.answers import Answers, change_over_seeds
from arith_lens.reference.sets import load_set, world_questions
from experiments.does_tuning_help.studies import World, world_examples
from laboratory.rows import Row, write_rows

HEADS = ("5.2", "5.5", "11.6")
"""The heads of Table 1."""
RATES = {"full": 1e-3, "precise": 1e-2, "lora": 1e-2}
"""Those of Table 1 for mathematics."""
FURTHER = {"method": "full", "learning_rate": 3e-4}
BATCH = 32


def fading(
    examples: int = 2000, questions: int = 125, seeds: int = 3, csv: Path | None = None
) -> None:
    """Tune on word problems, then everything on calculations with two digits, and ask after each.

    Args:
        examples: the number of word problems to tune on, and the largest one of calculations.
        questions: the number of test questions of each family of word problems.
        seeds: the number of trainings of each method.
        csv: the file to write.
    """
    world = World(examples, questions)
    before = _answers(world, "reference")
    write_rows(
        (
            {"method": method, **row}
            for method in RATES
            for row in _rows(before, [_tuned(world, method, seed) for seed in range(seeds)])
        ),
        csv,
    )


def _answers(world: World, source: Any) -> Answers:
    model = al.load_model(source)
    questions = world.first("word_problems_test") + world_questions("generic_test")
    return al.answer_questions(model, questions, whole_words=False, progress=False)


def _tuned(world: World, method: str, seed: int) -> tuple[Answers, Answers]:
    """The answers after the first tuning, and after further tuning of all weights."""
    options: dict[str, Any] = {"batch_size": BATCH, "epochs": 1, "end_with_eos": False}
    options |= {"seed": seed, "progress": False}
    heads = () if method == "full" else HEADS
    others = world_examples("two_digit_test", seed, world.examples)
    with tempfile.TemporaryDirectory() as folder:
        first = al.fine_tune(
            "reference",
            world.tuning_set(seed),
            method=method,
            heads=heads,
            output=Path(folder) / "first",
            learning_rate=RATES[method],
            **options,
        ).model()
        then = al.fine_tune(first, others, output=Path(folder) / "then", **FURTHER, **options)
        return _answers(world, first), _answers(world, then.model())


def _rows(before: Answers, tuned: list[tuple[Answers, Answers]]) -> Iterator[Row]:
    """Changes of accuracy by group of questions, in shares."""
    first, then = ([both[at] for both in tuned] for at in (0, 1))
    generic = {line["task"] for line in load_set("generic_test")}
    for group in ("word problems", "generic tasks"):
        chosen = [(task in generic) == (group == "generic tasks") for task in before.task]
        changes = {
            "gain by tuning": (before, first),
            "change by further tuning": (first, then),
            "gain that is left": (before, then),
        }
        for measure, (one, other) in changes.items():
            change = change_over_seeds(one, other, chosen)
            low, high = change.ci()
            yield {"group": group, "measure": measure, "value": change.mean} | {
                "low": low,
                "high": high,
                "n": sum(chosen),
                "seeds": len(tuned),
            }
