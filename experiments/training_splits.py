"""Which training questions are test questions? Train parts without them, and the counts.

Reads the train parts of the word problems, compares each question with every test set that may be
reported on afterwards, and says how many are left out and why. Prints the counts, and saves the
training set as JSON lines with its counts as CSV.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pandas
import tyro

from arith_lens.benchmarks import TrainingPart, find_overlaps, flag_summary, held_out
from arith_lens.benchmarks.training import TRAINING, to_dataset, training_parts


@dataclass(frozen=True)
class Config:
    """Which training questions are test questions?"""

    data_dir: Path | None = None
    """Holds gsm8k/, svamp/, addsub/, singleeq/, mmlu/ and csqa/ as published; else the hub."""
    names: tuple[str, ...] = TRAINING
    """Benchmarks whose train parts are taken."""
    form: Literal["solution", "answer"] = "solution"
    """With the published solutions, or with the answer at once."""
    mawps: Literal["refuse", "decontaminate"] = "refuse"
    """Whether what is left of MAWPS may be taken."""
    examples: int = 2
    """Pairs of a training and a test question to print for each test set and rule."""


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
) -> None:
    """Compare, print, save `<root>/training_splits/<form>.jsonl` and `<form>_counts.csv`.

    Args:
        config: what to make a training set of.
        root: where results are kept.
        dry_run: print the test sets and their flags, and stop.
    """
    try:
        tests = held_out(config.names, config.data_dir)
        for name, records in tests.items():
            print(f"{name}: {flag_summary(records)}")
        if dry_run:
            return
        parts = training_parts(
            config.names, config.data_dir, form=config.form, tests=tests, mawps=config.mawps
        )
    except (OSError, ValueError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    print("", *parts, sep="\n")
    for part in parts:
        _print_examples(part, config.examples)
    kept = [record for part in parts for record in part.kept]
    stories = find_overlaps(kept, tests, rules=("story",))
    print(
        f"\n{len({o.train for o in stories})} of {len(kept)} kept share a run of 13 words with one"
    )
    path = root / "training_splits" / f"{config.form}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    to_dataset(parts, config.form).to_json(path)
    _counts(parts).to_csv(path.with_name(f"{config.form}_counts.csv"), index=False)
    print(f"saved {path}")


def _print_examples(part: TrainingPart, n: int) -> None:
    shown: dict[tuple[str, str], int] = {}
    for overlap in part.overlaps:
        key = overlap.test_set, overlap.rule
        shown[key] = shown.get(key, 0) + 1
        if shown[key] <= n:
            print(f"\n{overlap.train} is {overlap.test} ({overlap.rule})")
            print(f"  {overlap.train_question}\n  {overlap.test_question}")


def _counts(parts: list[TrainingPart]) -> pandas.DataFrame:
    rows = []
    for part in parts:
        reasons = [f"{o.rule} in {o.test_set}" for o in part.overlaps]
        counts = dict(sorted((reason, reasons.count(reason)) for reason in set(reasons)))
        counts |= {
            "doubtful gold": len(part.doubtful),
            "solution ends elsewhere": len(part.unsolved),
            "repeated": len(part.repeated),
        }
        sizes = {"read": part.n_read, **counts, "kept": len(part.kept)}
        rows += [{"source": part.name, "what": what, "n": n} for what, n in sizes.items()]
    return pandas.DataFrame(rows)


if __name__ == "__main__":
    tyro.cli(main)
