"""One question of a benchmark, with its gold answer and what is known to be wrong with it."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["wrong gold", "ill-posed", "damaged choices", "wrong equation", "duplicate"]
DOUBTFUL: tuple[Kind, ...] = ("wrong gold", "ill-posed", "damaged choices")
"""Kinds of flags with which a right answer cannot be told from a wrong one."""

ANSWER_AT_ONCE = "{question} The answer is "
"""A prompt that the number must follow at once (paper, Appendix E)."""


@dataclass(frozen=True)
class Flag:
    """What is wrong with a published record; the record itself stays as it is."""

    kind: Kind
    reason: str


@dataclass(frozen=True)
class Record:
    """A benchmark's question as published.

    `gold` is the answer as text, a number without thousands separators or a letter; `number` its
    value, None for a letter. `choices` are texts, lettered from A. `solution` is the published
    worked solution, raw. `id` is stable: benchmark, then split (where ids do not tell), then the
    published id or the position from 0, such as svamp/chal-680 or gsm8k/test/17.
    """

    id: str
    question: str
    gold: str
    number: float | None = None
    choices: tuple[str, ...] = ()
    solution: str = ""
    subject: str = ""
    flags: tuple[Flag, ...] = ()

    @property
    def doubtful(self) -> bool:
        """Whether a flag says that its gold answer cannot be counted on."""
        return any(flag.kind in DOUBTFUL for flag in self.flags)


def normalised(text: str) -> str:
    """Letters and digits in lower case: what remains when spacing and punctuation are let go."""
    return re.sub(r"[\W_]+", "", text.lower())


def without_flags(records: Iterable[Record], kinds: Sequence[Kind] = DOUBTFUL) -> list[Record]:
    """The records that carry no flag of these kinds."""
    return [r for r in records if not any(flag.kind in kinds for flag in r.flags)]


def flag_summary(records: Sequence[Record]) -> str:
    """How many records are flagged, by kind, with their ids: "1000 records, flagged: 1 ..."."""
    counts = Counter(flag.kind for record in records for flag in record.flags)
    if not counts:
        return f"{len(records)} records, none flagged"
    kinds = [f"{count} {kind} ({', '.join(_ids(records, kind))})" for kind, count in counts.items()]
    return f"{len(records)} records, flagged: {'; '.join(kinds)}"


def _ids(records: Sequence[Record], kind: str) -> list[str]:
    return [r.id for r in records for flag in r.flags if flag.kind == kind]
