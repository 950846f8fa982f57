"""Training sets that hold no test question: the train parts of word problems, decontaminated."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from arith_lens.benchmarks.overlaps import RULES, Overlap, describe, find_overlaps
from arith_lens.benchmarks.parsing import parse_number, same_number
from arith_lens.benchmarks.readers import SOURCES, load_records
from arith_lens.benchmarks.record import ANSWER_AT_ONCE, Record, normalised

if TYPE_CHECKING:
    from datasets import Dataset

TRAINING = ("gsm8k", "svamp", "addsub", "singleeq")
PROMPTS = {
    "solution": "Question: {question}\nAnswer:",
    "answer": ANSWER_AT_ONCE,
}
_ANNOTATION = re.compile(r"<<[^>]*>>")
_ENDING = re.compile(r"\s*(?:####|The answer is)[^\n]*$")


@dataclass(frozen=True)
class TrainingPart:
    """What one benchmark gives to a training set, and the ids of what it does not, by reason.

    A question may be left out for several reasons; `kept` are those with none.
    """

    name: str
    n_read: int
    kept: tuple[Record, ...]
    overlaps: tuple[Overlap, ...]
    doubtful: tuple[str, ...]  # flagged: the gold answer cannot be counted on
    unsolved: tuple[str, ...]  # the written solution ends on another number
    repeated: tuple[str, ...]  # the same question as one before

    def __str__(self) -> str:
        touched = {overlap.train for overlap in self.overlaps}
        reasons = (
            (len(touched), f"in test sets ({describe(self.overlaps)})"),
            (len(self.doubtful), "with a doubtful gold answer"),
            (len(self.unsolved), "whose solution ends on another number"),
            (len(self.repeated), "repeated"),
        )
        out = "".join(f"\n  {count} {reason}" for count, reason in reasons if count)
        return f"{self.name}/train: {self.n_read} read, {len(self.kept)} kept{out}"


def held_out(
    names: Sequence[str] = TRAINING, data_dir: str | Path | None = None
) -> dict[str, list[Record]]:
    """The test sets that may be reported on after training on the train parts of `names`.

    Of a benchmark in `names` its test part, of AddSub, SingleEq and SVAMP otherwise the whole set
    (the whole holds the train part); GSM8K's and MMLU's test, CommonsenseQA's dev.
    """
    sets = {}
    for name, source in SOURCES.items():
        if name == "mawps":
            continue
        split = "test" if name in names else source.default
        sets[f"{name}/{split}"] = load_records(name, data_dir, split=split)
    return sets


def training_parts(
    names: Sequence[str] = TRAINING,
    data_dir: str | Path | None = None,
    *,
    form: str = "solution",
    tests: Mapping[str, Sequence[Record]] | None = None,
    rules: Sequence[str] = RULES,
    mawps: str = "refuse",
) -> list[TrainingPart]:
    """What `training_set` is made of, with what is left out and why; its arguments.

    Raises:
        ValueError: as `training_set`.
    """
    _check(names, form, mawps)
    tests = held_out(names, data_dir) if tests is None else tests
    records = {name: load_records(name, data_dir, split="train") for name in names}
    found = find_overlaps([r for part in records.values() for r in part], tests, rules)
    seen: set[str] = set()
    return [
        _part(name, part, [o for o in found if o.train.startswith(f"{name}/")], form, seen)
        for name, part in records.items()
    ]


def _part(
    name: str, records: Sequence[Record], overlaps: Sequence[Overlap], form: str, seen: set[str]
) -> TrainingPart:
    doubtful = tuple(r.id for r in records if r.doubtful)
    unsolved = tuple(r.id for r in records if form == "solution" and not _solved(r))
    out = {o.train for o in overlaps}.union(doubtful, unsolved)
    repeated = tuple(_repeated((r for r in records if r.id not in out), seen))
    kept = tuple(r for r in records if r.id not in out.union(repeated))
    return TrainingPart(name, len(records), kept, tuple(overlaps), doubtful, unsolved, repeated)


def training_set(
    names: Sequence[str] = TRAINING,
    data_dir: str | Path | None = None,
    *,
    form: str = "solution",
    tests: Mapping[str, Sequence[Record]] | None = None,
    rules: Sequence[str] = RULES,
    mawps: str = "refuse",
) -> "Dataset":
    """The train parts of benchmarks without what touches a test set; prints what is left out.

    The columns are `prompt`, `answer` (what is to be written after the prompt), `gold` (the number
    as text), `question`, `source` and `id`.

    Args:
        names: of gsm8k, svamp, addsub, singleeq, and mawps.
        data_dir: the folder of the benchmarks' folders; without it, the hub.
        form: "solution": "Question: ... Answer:", then the published solution where there is one
            (SVAMP has none), without calculator annotations, and "The answer is N."; solutions that
            end on another number than the gold one are left out. "answer": the question and "The
            answer is ", then N at once.
        tests: test sets by name to keep out, `held_out(names)` if not given.
        rules: what touches a test set; see `find_overlaps`.
        mawps: it holds most of AddSub and SingleEq, so it is refused; "decontaminate" takes what
            remains.

    Raises:
        ValueError: a name without train part, an unknown form, or MAWPS without leave.
        FileNotFoundError: no such file.
    """
    parts = training_parts(names, data_dir, form=form, tests=tests, rules=rules, mawps=mawps)
    print(*parts, sep="\n")
    return to_dataset(parts, form)


def to_dataset(parts: Sequence[TrainingPart], form: str = "solution") -> "Dataset":
    """What the parts keep as training examples; see `training_set` for the columns."""
    from datasets import Dataset

    return Dataset.from_list([example(record, form) for part in parts for record in part.kept])


def example(record: Record, form: str = "solution") -> dict[str, str]:
    """A record as a training example; see `training_set` for the columns."""
    answer = record.gold if form == "answer" else f" {_completion(record)}"
    return {
        "prompt": PROMPTS[form].format(question=record.question),
        "answer": answer,
        "gold": record.gold,
        "question": record.question,
        "source": record.id.partition("/")[0],
        "id": record.id,
    }


def _completion(record: Record) -> str:
    body = _ANNOTATION.sub("", record.solution).strip().removeprefix("A:").strip()
    body = _ENDING.sub("", body)
    between = "" if not body else "\n" if "\n" in body else " "
    return f"{body}{between}The answer is {record.gold}."


def _solved(record: Record) -> bool:
    """Whether there is no written solution, or it ends on the gold answer."""
    assert record.number is not None
    return not record.solution or same_number(parse_number(record.solution), record.number)


def _repeated(records: Iterable[Record], seen: set[str]) -> list[str]:
    """The ids of questions that were seen before; `seen` grows."""
    repeated = []
    for record in records:
        key = normalised(record.question)
        if key in seen:
            repeated.append(record.id)
        seen.add(key)
    return repeated


def _check(names: Sequence[str], form: str, mawps: str) -> None:
    if isinstance(names, str):
        raise ValueError(f"names={names!r}: expected a sequence of names, such as ({names!r},)")
    unknown = [name for name in names if name not in (*TRAINING, "mawps")]
    if unknown or not names:
        raise ValueError(
            f"nothing to train on in {', '.join(unknown) or 'no names'}: expected names of "
            f"{', '.join(TRAINING)} (and mawps); the other benchmarks are for testing"
        )
    if form not in PROMPTS:
        raise ValueError(f"form={form!r}: expected one of {', '.join(map(repr, PROMPTS))}")
    if mawps not in ("refuse", "decontaminate"):
        raise ValueError(f"mawps={mawps!r}: expected 'refuse' or 'decontaminate'")
    if "mawps" in names and mawps != "decontaminate":
        raise ValueError(
            "MAWPS holds most of AddSub and SingleEq (of its 1,780 questions 370 and 423), so "
            "training on it is training on their test sets: leave it out, or give "
            'mawps="decontaminate" to take what is left of it'
        )
