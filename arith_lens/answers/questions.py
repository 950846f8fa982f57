"""Questions with their answers: from benchmarks' records, or of one's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arith_lens.benchmarks import Record, load_records
from arith_lens.benchmarks.mmlu import LETTERS
from arith_lens.benchmarks.record import ANSWER_AT_ONCE

SHOTS_FROM = {"mmlu": "dev", "csqa": "train"}


@dataclass(frozen=True)
class Question:
    """A prompt that ends where its answer starts.

    A number counts by its value, a word by its letters; of `choices` the likeliest is taken.
    """

    prompt: str
    answer: str
    task: str = "questions"
    choices: tuple[str, ...] = ()  # such as A to D: what may follow the prompt and a space


def load_questions(
    name: str,
    data_dir: str | Path | None = None,
    *,
    split: str | None = None,
    prompt: str = ANSWER_AT_ONCE,
    subjects: str | Sequence[str] = "all",
    shots: int = 0,
) -> list[Question]:
    """A benchmark's questions as prompts, from `load_records`.

    Args:
        name: "gsm8k", "svamp", "addsub", "singleeq", "mmlu" or "csqa" (CommonsenseQA).
        data_dir: the folder of the benchmarks' folders; without it, the hub.
        split: as in `load_records`; if not given, test for GSM8K and MMLU, the whole set for SVAMP,
            AddSub and SingleEq, dev for csqa.
        prompt: of a word problem, with {question}; MMLU has its authors' prompt, csqa the same
            without its first line.
        subjects: of MMLU: "all", "humanities", or names.
        shots: questions with choices that stand before, with their answers: of MMLU from the
            subject's dev split, of csqa from train.

    Raises:
        ValueError: an unknown name, split or subject, or records of another schema.
        FileNotFoundError: no such file.
    """
    records = load_records(name, data_dir, split=split, subjects=subjects)
    if not records[0].choices:
        return [Question(prompt.format(question=r.question), r.gold, name) for r in records]
    shown = _shown(name, data_dir, {r.subject for r in records}, shots)
    return [
        Question(
            shown[r.subject] + _lettered(r),
            f" {r.gold}",
            f"{name}/{r.subject}" if r.subject else name,
            tuple(LETTERS[: len(r.choices)]),
        )
        for r in records
    ]


def _shown(
    name: str, data_dir: str | Path | None, subjects: set[str], shots: int
) -> dict[str, str]:
    """What stands before the questions of a subject: the authors' first line, then the shots."""
    heads = {s: _head(s) for s in subjects}
    if shots:
        wanted = sorted(subjects) if name == "mmlu" else "all"
        examples = load_records(name, data_dir, split=SHOTS_FROM[name], subjects=wanted)
        for subject in subjects:
            own = [record for record in examples if record.subject == subject][:shots]
            heads[subject] += "".join(f"{_lettered(r)} {r.gold}\n\n" for r in own)
    return heads


def _head(subject: str) -> str:
    about = subject.replace("_", " ")
    head = f"The following are multiple choice questions (with answers) about {about}.\n\n"
    return head if subject else ""


def _lettered(record: Record) -> str:
    lines = [f"{a}. {text}" for a, text in zip(LETTERS, record.choices, strict=False)]
    return "\n".join([record.question, *lines, "Answer:"])
