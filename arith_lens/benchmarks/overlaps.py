"""Where training questions touch test questions: the same, the same reworded, or the same story.

- same: equal in lower case, without spaces and punctuation.
- reworded: the same numbers (at least one, words up to twelve counted), and at least 0.6 of the
  words of both in both (Jaccard index of the two sets of words, numbers included). Measured between
  the train and test parts of the four sets of word problems and MAWPS: a few dozen pairs at 0.65
  and above, all one problem in two wordings, none from 0.5 to 0.6, and chance likeness below.
- story: 13 words in a row in common, as a model's training text is usually searched; finds siblings
  with other numbers or another question too, which SVAMP is made of.

Each training question is reported once for each test set: by the first of the rules that holds.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from arith_lens.benchmarks.record import Record, normalised

RULES = ("same", "reworded")
"""Those that make a training question a test question."""
SIMILARITY = 0.6
RUN = 13
_WORD = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?|\.\d+|[^\W\d_]+")
_NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_DIGITS = {word: str(number) for number, word in enumerate(_NUMBERS)}


@dataclass(frozen=True)
class Overlap:
    """A training question that is in a test set, by a rule."""

    train: str  # ids
    test: str
    test_set: str
    rule: str
    train_question: str
    test_question: str


@dataclass(frozen=True)
class _Text:
    """A question as the rules see it."""

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
        return {self.words[i : i + RUN] for i in range(len(self.words) - RUN + 1)}


def find_overlaps(
    train: Iterable[Any],
    tests: Mapping[str, Sequence[Record]],
    rules: Sequence[str] = RULES,
) -> list[Overlap]:
    """Every training question that touches a test set, once for each test set.

    Args:
        train: Records, or rows with the key `question` (and `id`), such as a `datasets.Dataset`.
        tests: test sets by name.
        rules: of same, reworded, story; see the module.

    Raises:
        ValueError: an unknown rule, or a row without a question.
    """
    unknown = set(rules) - {"same", "reworded", "story"}
    if unknown:
        raise ValueError(f"no rule {', '.join(sorted(unknown))}: expected same, reworded, story")
    texts = [_text(row, i) for i, row in enumerate(train)]
    found = []
    for name, records in tests.items():
        tested = [_text(record, i) for i, record in enumerate(records)]
        finders = [_FINDERS[rule](tested) for rule in rules]
        for text in texts:
            for rule, find in zip(rules, finders, strict=True):
                test = find(text)
                if test is not None:
                    found.append(
                        Overlap(text.id, test.id, name, rule, text.question, test.question)
                    )
                    break
    return found


def refuse_overlap(
    train: Iterable[Any],
    tests: Mapping[str, Sequence[Record]],
    rules: Sequence[str] = RULES,
) -> None:
    """Refuse to train on what is tested; the arguments are those of `find_overlaps`.

    Raises:
        ValueError: training questions are in a test set; with counts and first examples.
    """
    found = find_overlaps(train, tests, rules)
    if not found:
        return
    shown = "\n".join(
        f"  {o.train} is {o.test} ({o.rule}): {o.train_question:.90}" for o in found[:3]
    )
    raise ValueError(
        f"training questions are in test sets: {describe(found)}. For example\n{shown}\nLeave them "
        "out (training_set does), or report on other test sets; whole sets hold their train parts"
    )


def describe(found: Sequence[Overlap]) -> str:
    """Counts by test set and rule: "singleeq/test 22 same, 18 reworded; addsub/test 1 same"."""
    counts = Counter((o.test_set, o.rule) for o in found)
    by_set: dict[str, list[str]] = defaultdict(list)
    for (test_set, rule), count in counts.items():
        by_set[test_set].append(f"{count} {rule}")
    return "; ".join(f"{name} {', '.join(parts)}" for name, parts in by_set.items())


def _text(row: Any, i: int) -> _Text:
    if isinstance(row, Record):
        return _read(row.id, row.question)
    question = row.get("question") if isinstance(row, Mapping) else None
    if not isinstance(question, str):
        found = f"the keys {sorted(row)}" if isinstance(row, Mapping) else f"{row!r:.80}"
        raise ValueError(
            f"training row {i}: expected a Record, or the key question with the bare question as "
            f"text, which is what test questions are compared with; found {found}"
        )
    return _read(str(row.get("id", f"row {i}")), question)


def _read(name: str, question: str) -> _Text:
    words: list[str] = _WORD.findall(re.sub("['\u2019]", "", question.lower()))
    return _Text(name, question, normalised(question), tuple(_DIGITS.get(w, w) for w in words))


class _Same:
    def __init__(self, tests: Sequence[_Text]) -> None:
        self.by_key = {test.key: test for test in tests}

    def __call__(self, text: _Text) -> _Text | None:
        return self.by_key.get(text.key)


class _Reworded:
    def __init__(self, tests: Sequence[_Text]) -> None:
        self.by_numbers: dict[tuple[float, ...], list[tuple[set[str], _Text]]] = defaultdict(list)
        for test in tests:
            self.by_numbers[test.numbers].append((set(test.words), test))

    def __call__(self, text: _Text) -> _Text | None:
        numbers, words = text.numbers, set(text.words)
        for others, test in self.by_numbers.get(numbers, []) if numbers else []:
            if len(words & others) >= SIMILARITY * len(words | others):
                return test
        return None


class _Story:
    def __init__(self, tests: Sequence[_Text]) -> None:
        self.by_run = {run: test for test in tests for run in test.runs}

    def __call__(self, text: _Text) -> _Text | None:
        return next((self.by_run[run] for run in sorted(text.runs & self.by_run.keys())), None)


_FINDERS = {"same": _Same, "reworded": _Reworded, "story": _Story}
