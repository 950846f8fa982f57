"""Training sets without test questions: train parts of word problems, without overlaps.

There are three rules for an overlap of a training question with a test question:

- same: they are equal in lower case, without spaces and punctuation.
- reworded: they have the same numbers (at least one; number words up to twelve are included), and
  the Jaccard index of their sets of words, with numbers, is at least 0.6. Between the train and
  test parts of the four sets of word problems and MAWPS, a few dozen pairs have 0.65 and above. All
  of them are one problem in two wordings. No pair has 0.5 to 0.6, and other pairs are below.
- story: 13 words in a row are the same. A model's training text is usually searched in this way.
  This also finds related problems with other numbers or another question; SVAMP consists of these.

Each training question is reported once per test set, by the first rule that applies.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arith_lens.benchmarks.parsing import parse_number, same_number
from arith_lens.benchmarks.readers import SOURCES, load_records
from arith_lens.benchmarks.records import ANSWER_AT_ONCE, Record, normalised
from arith_lens.options import check_choice

if TYPE_CHECKING:
    from datasets import Dataset

OVERLAP_RULES = ("same", "reworded")
"""The rules by which a training question counts as a test question."""
SIMILARITY = 0.6
OVERLAP_WORDS = 13
_WORD = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?|\.\d+|[^\W\d_]+")
_NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_DIGITS = {word: str(number) for number, word in enumerate(_NUMBERS)}


@dataclass(frozen=True)
class Overlap:
    """A training question that is in a test set."""

    train: str
    """The id of the training question."""
    test: str
    """The id of the test question."""
    test_set: str
    rule: str
    """The rule that applies."""
    train_question: str
    test_question: str


@dataclass(frozen=True)
class _Text:
    """A question in the form that the rules use."""

    id: str
    question: str
    key: str
    words: tuple[str, ...]

    @cached_property
    def numbers(self) -> tuple[float, ...]:
        written = (word.replace(",", "") for word in self.words if word[-1].isdecimal())
        return tuple(sorted(float(word) for word in written))

    @cached_property
    def runs(self) -> set[tuple[str, ...]]:
        return {
            self.words[i : i + OVERLAP_WORDS] for i in range(len(self.words) - OVERLAP_WORDS + 1)
        }


def find_overlaps(
    train: Iterable[Any],
    tests: Mapping[str, Sequence[Record]],
    rules: Sequence[str] = OVERLAP_RULES,
) -> list[Overlap]:
    """Every training question that overlaps with a test set, once per test set.

    Args:
        train: Records, or rows with the key `question` (and `id`), such as a `datasets.Dataset`.
        tests: test sets by name.
        rules: some of "same", "reworded" and "story"; see the module.

    Raises:
        ValueError: a rule is unknown, or a row has no question.
    """
    unknown = set(rules) - {"same", "reworded", "story"}
    if unknown:
        raise ValueError(
            f"expected rules of same, reworded, story, found {', '.join(sorted(unknown))}; drop it"
        )
    texts = [_text(row, i) for i, row in enumerate(train)]
    overlaps = []
    for name, records in tests.items():
        tested = [_text(record, i) for i, record in enumerate(records)]
        finders = [_finder(rule, tested) for rule in rules]
        for text in texts:
            for rule, find in zip(rules, finders, strict=True):
                if test := find(text):
                    ids, questions = (text.id, test.id), (text.question, test.question)
                    overlaps.append(Overlap(*ids, name, rule, *questions))
                    break
    return overlaps


def refuse_overlap(
    train: Iterable[Any],
    tests: Mapping[str, Sequence[Record]],
    rules: Sequence[str] = OVERLAP_RULES,
) -> None:
    """Check that no training question is in a test set. Arguments as in `find_overlaps`.

    Raises:
        ValueError: training questions are in a test set. The message has counts and examples.
    """
    overlaps = find_overlaps(train, tests, rules)
    if not overlaps:
        return
    examples = "\n".join(
        f"  {o.train} is {o.test} ({o.rule}): {o.train_question:.90}" for o in overlaps[:3]
    )
    raise ValueError(
        f"expected training questions that are in no test set, found {describe(overlaps)}. For "
        f"example\n{examples}\nLeave them out (training_set does), or report on other test sets; "
        "whole sets hold their train parts"
    )


def describe(overlaps: Sequence[Overlap]) -> str:
    """Counts by test set and rule: "singleeq/test 22 same, 18 reworded; addsub/test 1 same"."""
    counts = Counter((o.test_set, o.rule) for o in overlaps)
    by_set: dict[str, list[str]] = defaultdict(list)
    for (test_set, rule), count in counts.items():
        by_set[test_set].append(f"{count} {rule}")
    return "; ".join(f"{name} {', '.join(parts)}" for name, parts in by_set.items())


def _text(row: Any, i: int) -> _Text:
    if isinstance(row, Record):
        row = {"id": row.id, "question": row.question}
    question = row.get("question") if isinstance(row, Mapping) else None
    if not isinstance(question, str):
        description = f"the keys {sorted(row)}" if isinstance(row, Mapping) else f"{row!r:.80}"
        raise ValueError(
            f"training row {i}: expected a Record, or the key question with the bare question as "
            f"text, which is what test questions are compared with; found {description}"
        )
    words: list[str] = _WORD.findall(re.sub("['\u2019]", "", question.lower()))
    digits = tuple(_DIGITS.get(word, word) for word in words)
    return _Text(str(row.get("id", f"row {i}")), question, normalised(question), digits)


def _finder(rule: str, tests: Sequence[_Text]) -> Callable[[_Text], _Text | None]:
    """A function that finds the test question that a training question overlaps with by a rule."""
    if rule == "same":
        by_key = {test.key: test for test in tests}
        return lambda text: by_key.get(text.key)
    if rule == "story":
        by_run = {run: test for test in tests for run in test.runs}
        return lambda text: next((by_run[r] for r in sorted(text.runs & by_run.keys())), None)
    by_numbers: dict[tuple[float, ...], list[tuple[set[str], _Text]]] = defaultdict(list)
    for test in tests:
        by_numbers[test.numbers].append((set(test.words), test))

    def reworded(text: _Text) -> _Text | None:
        words = set(text.words)
        for others, test in by_numbers.get(text.numbers, []) if text.numbers else []:
            if len(words & others) >= SIMILARITY * len(words | others):
                return test
        return None

    return reworded


TRAINING_BENCHMARKS = ("gsm8k", "svamp", "addsub", "singleeq")
PROMPT_FORMS = {"solution": "Question: {question}\nAnswer:", "answer": ANSWER_AT_ONCE}
_ANNOTATION = re.compile(r"<<[^>]*>>")
_ENDING = re.compile(r"\s*(?:####|The answer is)[^\n]*$")


@dataclass(frozen=True)
class TrainingPart:
    """The part of a training set that comes from one benchmark, and what was left out.

    A question may be left out for several reasons.
    """

    name: str
    """The benchmark."""
    n_read: int
    """The number of its training questions."""
    records: tuple[Record, ...]
    """The questions without any reason to leave them out."""
    overlaps: tuple[Overlap, ...]
    """Questions that are in a test set."""
    doubtful: tuple[str, ...]
    """Ids of flagged questions, whose gold answer is not reliable."""
    unsolved: tuple[str, ...]
    """Ids of questions whose written solution ends on another number."""
    repeated: tuple[str, ...]
    """Ids of questions that an earlier source has."""

    def __str__(self) -> str:
        touched = {overlap.train for overlap in self.overlaps}
        reasons = (
            (len(touched), f"in test sets ({describe(self.overlaps)})"),
            (len(self.doubtful), "with a doubtful gold answer"),
            (len(self.unsolved), "whose solution ends on another number"),
            (len(self.repeated), "repeated"),
        )
        out = "".join(f"\n  {count} {reason}" for count, reason in reasons if count)
        return f"{self.name}/train: {self.n_read} read, {len(self.records)} kept{out}"


def held_out(
    names: Sequence[str] = TRAINING_BENCHMARKS, data_dir: str | Path | None = None
) -> dict[str, list[Record]]:
    """The test sets on which results may be reported after training on the train parts of `names`.

    For a benchmark in `names` this is its test part. For AddSub, SingleEq and SVAMP it is otherwise
    the whole set (which contains the train part). For GSM8K and MMLU it is test, for CommonsenseQA
    dev.
    """
    sets = {}
    for name, source in SOURCES.items():
        if name == "mawps":
            continue
        split = "test" if name in names else source.default
        sets[f"{name}/{split}"] = load_records(name, data_dir, split=split)
    return sets


def training_parts(
    names: Sequence[str] = TRAINING_BENCHMARKS,
    data_dir: str | Path | None = None,
    *,
    form: str = "solution",
    tests: Mapping[str, Sequence[Record]] | None = None,
    rules: Sequence[str] = OVERLAP_RULES,
    mawps: str = "refuse",
) -> list[TrainingPart]:
    """The parts of `training_set`, with what is left out and why. It has the same arguments.

    Raises:
        ValueError: as in `training_set`.
    """
    _check(names, form, mawps)
    tests = held_out(names, data_dir) if tests is None else tests
    records = {name: load_records(name, data_dir, split="train") for name in names}
    overlaps = find_overlaps([r for part in records.values() for r in part], tests, rules)
    seen: set[str] = set()
    return [
        _part(name, part, [o for o in overlaps if o.train.startswith(f"{name}/")], form, seen)
        for name, part in records.items()
    ]


def _part(
    name: str, records: Sequence[Record], overlaps: Sequence[Overlap], form: str, seen: set[str]
) -> TrainingPart:
    doubtful = tuple(r.id for r in records if r.doubtful)
    unsolved = tuple(r.id for r in records if form == "solution" and not _solved(r))
    out = {o.train for o in overlaps}.union(doubtful, unsolved)
    records_to_use, repeated = [], []
    for record in records:
        if record.id not in out:
            question = normalised(record.question)
            if question in seen:
                repeated.append(record.id)
            else:
                records_to_use.append(record)
            seen.add(question)
    return TrainingPart(
        name,
        len(records),
        tuple(records_to_use),
        tuple(overlaps),
        doubtful,
        unsolved,
        tuple(repeated),
    )


def training_set(
    names: Sequence[str] = TRAINING_BENCHMARKS,
    data_dir: str | Path | None = None,
    *,
    form: str = "solution",
    tests: Mapping[str, Sequence[Record]] | None = None,
    rules: Sequence[str] = OVERLAP_RULES,
    mawps: str = "refuse",
) -> "Dataset":
    """The train parts of benchmarks without overlaps with test sets. Prints what is left out.

    The columns are `prompt`, `answer` (the text after the prompt), `gold` (the number as text),
    `question`, `source` and `id`.

    Args:
        names: some of gsm8k, svamp, addsub, singleeq, and mawps.
        data_dir: the folder that contains the benchmarks' folders; None: the hub.
        form: "solution": "Question: ... Answer:", the published solution without calculator
            annotations (SVAMP has none), and "The answer is N."; a question whose solution ends on
            another number than the gold answer is left out. "answer": the question, "The answer is
            ", and N at once.
        tests: the test sets by name; None: `held_out(names)`.
        rules: the rules of an overlap; see `find_overlaps`.
        mawps: MAWPS contains most of AddSub and SingleEq, so it is refused; "decontaminate" uses
            what remains without overlaps.

    Raises:
        ValueError: a name has no train part, the form is unknown, or `names` has mawps without
            "decontaminate".
        FileNotFoundError: a file does not exist.
    """
    parts = training_parts(names, data_dir, form=form, tests=tests, rules=rules, mawps=mawps)
    print(*parts, sep="\n")
    return to_dataset(parts, form)


def to_dataset(parts: Sequence[TrainingPart], form: str = "solution") -> "Dataset":
    """The kept questions of all parts as training examples; see `training_set` for the columns."""
    from datasets import Dataset

    return Dataset.from_list([example(record, form) for part in parts for record in part.records])


def example(record: Record, form: str = "solution") -> dict[str, str]:
    """A record as a training example; see `training_set` for the columns."""
    answer = record.gold if form == "answer" else f" {_completion(record)}"
    return {
        "prompt": PROMPT_FORMS[form].format(question=record.question),
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


def _check(names: Sequence[str], form: str, mawps: str) -> None:
    if isinstance(names, str):
        raise ValueError(f"expected a sequence of names, found {names!r}; give names=({names!r},)")
    unknown = [name for name in names if name not in (*TRAINING_BENCHMARKS, "mawps")]
    if unknown or not names:
        raise ValueError(
            f"expected names of {', '.join(TRAINING_BENCHMARKS)} (and mawps) to train on, found "
            f"{', '.join(unknown) or 'none'}; the other benchmarks are for testing"
        )
    check_choice("form", form, PROMPT_FORMS)
    check_choice("mawps", mawps, ("refuse", "decontaminate"))
    if "mawps" in names and mawps != "decontaminate":
        raise ValueError(
            "expected training questions that are in no test set, found mawps among the names: it "
            "holds most of AddSub and SingleEq (of its 1,780 questions 370 and 423); leave it out, "
            'or give mawps="decontaminate" to use the rest of it'
        )
