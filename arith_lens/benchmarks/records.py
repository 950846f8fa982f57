"""Records of benchmarks: questions with their gold answers, and known faults.

Faulty records are flagged, never dropped or corrected. A record is recognised by a digest of its
question and gold answer, because not every set may be quoted. So split files, which have no ids,
are flagged like the whole sets. If a known id has other content, the file is not the one that was
checked, and a warning says so.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from arith_lens.caller_warnings import warn_caller

FlagKind = Literal["wrong gold", "ill-posed", "damaged choices", "wrong equation", "duplicate"]
DOUBTFUL: tuple[FlagKind, ...] = ("wrong gold", "ill-posed", "damaged choices")
"""The kinds of flags for which right and wrong answers cannot be distinguished."""

ANSWER_AT_ONCE = "{question} The answer is "
"""A prompt after which the number must follow at once (paper, Appendix E)."""


@dataclass(frozen=True)
class Flag:
    """A fault of a published record. The record itself is not changed."""

    kind: FlagKind
    reason: str


@dataclass(frozen=True)
class Record:
    """A benchmark's question as published."""

    id: str
    """Benchmark, split (if needed), and the published id or the position from 0, such as
    svamp/chal-680 or gsm8k/test/17. It does not change."""
    question: str
    gold: str
    """The gold answer as text: a number without thousands separators, or a letter."""
    number: float | None = None
    """The value of the gold answer; None for a letter."""
    choices: tuple[str, ...] = ()
    """The texts of the choices, with letters from A on."""
    solution: str = ""
    """The published solution, unchanged."""
    subject: str = ""
    """The subject of an MMLU question."""
    flags: tuple[Flag, ...] = ()
    """The known faults of the record."""

    @property
    def doubtful(self) -> bool:
        """Whether a flag says that the gold answer is not reliable."""
        return any(flag.kind in DOUBTFUL for flag in self.flags)


def normalised(text: str) -> str:
    """A text in lower case, with letters and digits only."""
    return re.sub(r"[\W_]+", "", text.lower())


def without_flags(records: Iterable[Record], kinds: Sequence[FlagKind] = DOUBTFUL) -> list[Record]:
    """The records without a flag of these kinds."""
    return [r for r in records if not any(flag.kind in kinds for flag in r.flags)]


def flag_summary(records: Sequence[Record]) -> str:
    """The number of flagged records by kind, with ids: "1000 records, flagged: 1 ..."."""
    ids: dict[str, list[str]] = defaultdict(list)
    for record in records:
        for flag in record.flags:
            ids[flag.kind].append(record.id)
    if not ids:
        return f"{len(records)} records, none flagged"
    kinds = [f"{len(of)} {kind} ({', '.join(of)})" for kind, of in ids.items()]
    return f"{len(records)} records, flagged: {'; '.join(kinds)}"


_WRONG_EQUATION = "its equation does not give the solution, which is right"
_KNOWN: dict[str, tuple[str, Flag]] = {
    "svamp/chal-680": (
        "ab072ef75cf3279e",
        Flag("wrong gold", "gold 1; the story and its own equation give 5"),
    ),
    "addsub/264": (
        "0f44d6c0940f5a41",
        Flag("wrong equation", "its equation X = 0.32 = 0.21 is malformed; the solution is right"),
    ),
    "singleeq/453": (
        "0bd713ae2861c240",
        Flag("wrong gold", "gold 208; the story and its own equation give 709"),
    ),
    "singleeq/462": (
        "c1e81c09fde8f74c",
        Flag("wrong gold", "gold 134; the story and its own equation give 136"),
    ),
    "singleeq/482": (
        "0ffd9a45dfe00371",
        Flag("ill-posed", "40 things in 7 equal packages; gold 5, its equation gives 40/7"),
    ),
    "singleeq/138": ("42d43ee04481af25", Flag("duplicate", "the problem of singleeq/275")),
    "singleeq/275": ("42d43ee04481af25", Flag("duplicate", "the problem of singleeq/138")),
    **{
        f"singleeq/{index}": (digest, Flag("wrong equation", _WRONG_EQUATION))
        for index, digest in (
            (191, "19cb69947b825558"),
            (226, "d3ea801adf9f5d13"),
            (255, "019830247815549c"),
            (317, "b9f9f1e18ac08661"),
            (320, "14f7ce54955217fd"),
            (332, "bae7256cb02499b9"),
            (408, "94de329f3e389322"),
            (485, "69e5a72eef6f40c5"),
            (495, "f8b7e876cedbf951"),
        )
    },
}
_MONTH = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_SPREADSHEET = re.compile(rf"\d{{1,2}}-(?:{_MONTH})|\d{{1,2}}:\d\d(?::\d\d)?(?: [AP]M)?")
_ABOUT_TIME = re.compile(r"\b(?:day|date|month|noon|midnight|time|[ap]\.?m)\b", re.IGNORECASE)


def flag_of(record: Record) -> Flag | None:
    """The known fault of a record, by its content.

    Warns:
        UserWarning: a known id has another question or gold answer than the flagged record.
    """
    if record.id in _KNOWN:
        digest, flag = _KNOWN[record.id]
        if digest == record_digest(record):
            return flag
        warn_caller(
            f"expected in {record.id} the record that is known as {flag.kind} ({flag.reason}), "
            "found another: the file differs from the published one, and the record is not flagged"
        )
    if record.choices:
        return _damaged(record)
    benchmark = record.id.partition("/")[0]
    published, flag = _BY_DIGEST.get((benchmark, record_digest(record)), ("", None))
    return flag and Flag(flag.kind, f"{published} of the whole set: {flag.reason}")


def record_digest(record: Record) -> str:
    """A hash of the normalised question and gold answer, 16 hexadecimal digits."""
    content = f"{normalised(record.question)}={record.gold}"
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _damaged(record: Record) -> Flag | None:
    """The flag of an MMLU question whose choices a spreadsheet has changed to dates or times."""
    damaged = [choice for choice in record.choices if _SPREADSHEET.fullmatch(choice.strip())]
    if not damaged or not record.id.startswith("mmlu/") or _ABOUT_TIME.search(record.question):
        return None
    reason = f"fractions, ratios or units turned into dates or times: {', '.join(damaged)}"
    return Flag("damaged choices", reason)


_BY_DIGEST = {
    (published.partition("/")[0], content): (published, flag)
    for published, (content, flag) in reversed(_KNOWN.items())
}
