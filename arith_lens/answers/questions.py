"""Questions with their answers: from benchmarks' published files, or of one's own."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arith_lens.word_problems.gsm8k import gold_answer, read_gsm8k

PROMPT = "{question} The answer is "
LETTERS = "ABCD"
HUMANITIES = (
    *("formal_logic", "high_school_european_history", "high_school_us_history"),
    *("high_school_world_history", "international_law", "jurisprudence", "logical_fallacies"),
    *("moral_disputes", "moral_scenarios", "philosophy", "prehistory", "professional_law"),
    "world_religions",
)
"""MMLU's subjects of this group, as its authors sort them."""


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
    data_dir: str | Path,
    *,
    split: str = "test",
    prompt: str = PROMPT,
    subjects: str | Sequence[str] = "all",
    shots: int = 0,
) -> list[Question]:
    """A benchmark's questions from its published files in `<data_dir>/<name>/`.

    Args:
        name: "gsm8k" (`<split>.jsonl`), "svamp" (`SVAMP.json`, the whole set), "addsub"
            (`AddSub.json`), "singleeq" (`questions.json`) or "mmlu" (`<split>/*_<split>.csv`).
        data_dir: the folder of the benchmarks' folders.
        split: of GSM8K and MMLU.
        prompt: of a word problem, with {question}; MMLU has its authors' prompt.
        subjects: of MMLU: "all", "humanities", or names.
        shots: of MMLU: questions of the subject's dev split that stand before, with their answers.

    Raises:
        ValueError: an unknown name or subject, or records of another schema.
        FileNotFoundError: no such file.
    """
    folder = Path(data_dir) / name
    if name == "mmlu":
        return read_mmlu(folder, split=split, subjects=subjects, shots=shots)
    if name == "gsm8k":
        records = read_gsm8k(folder / f"{split}.jsonl")
        return [
            Question(prompt.format(question=r["question"].strip()), gold_answer(r["answer"]), name)
            for r in records
        ]
    if name not in _FILES:
        known = ", ".join(["gsm8k", *_FILES, "mmlu"])
        raise ValueError(f"no reader for {name!r}: expected one of {known}")
    file, read = _FILES[name]
    asked = [
        _checked(read, record, folder / file, i) for i, record in enumerate(_json(folder / file))
    ]
    return [Question(prompt.format(question=q), number, name) for q, number in asked]


def read_mmlu(
    folder: Path, *, split: str = "test", subjects: str | Sequence[str] = "all", shots: int = 0
) -> list[Question]:
    """MMLU's questions in its authors' prompt, each with the choices A to D; see load_questions."""
    files = {path.name.removesuffix(f"_{split}.csv"): path for path in _csv_files(folder, split)}
    named = {"all": tuple(files), "humanities": HUMANITIES}
    wanted = named.get(subjects, (subjects,)) if isinstance(subjects, str) else tuple(subjects)
    unknown = [subject for subject in wanted if subject not in files]
    if unknown:
        raise ValueError(
            f"no {split} questions of {', '.join(unknown)} in {folder}: expected 'all', "
            f"'humanities' or names of {', '.join(files)}"
        )
    questions = []
    for subject in wanted:
        about = subject.replace("_", " ")
        head = f"The following are multiple choice questions (with answers) about {about}.\n\n"
        if shots:
            shown = _choices(folder / "dev" / f"{subject}_dev.csv")[:shots]
            head += "".join(f"{asked} {letter}\n\n" for asked, letter in shown)
        questions += [
            Question(head + asked, f" {letter}", f"mmlu/{subject}", tuple(LETTERS))
            for asked, letter in _choices(files[subject])
        ]
    return questions


def _csv_files(folder: Path, split: str) -> list[Path]:
    found = sorted((folder / split).glob(f"*_{split}.csv"))
    if not found:
        raise FileNotFoundError(
            f"no {folder / split}/*_{split}.csv: expected MMLU's files, one a subject"
        )
    return found


def _choices(path: Path) -> list[tuple[str, str]]:
    """(question with its four choices, letter); the answer is a letter or an index from 0."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    if rows and rows[0][0] == "question":
        rows = rows[1:]
    asked = []
    for number, row in enumerate(rows, 1):
        if len(row) != 6 or row[5].strip() not in (*LETTERS, "0", "1", "2", "3"):
            raise ValueError(
                f"{path}, question {number}: expected question, four choices and the answer (A to "
                f"D, or 0 to 3), found {row}"
            )
        answer = row[5].strip()
        lines = [f"{letter}. {choice}" for letter, choice in zip(LETTERS, row[1:5], strict=True)]
        text = "\n".join([row[0].strip(), *lines, "Answer:"])
        asked.append((text, LETTERS[int(answer)] if answer.isdigit() else answer))
    return asked


def _json(path: Path) -> list[Mapping[str, Any]]:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not a JSON list ({error})") from error


def _svamp(record: Mapping[str, Any]) -> tuple[str, str]:
    return f"{record['Body'].strip()} {record['Question'].strip()}", _number(record["Answer"])


def _equations(record: Mapping[str, Any]) -> tuple[str, str]:
    """AddSub and SingleEq: a question, and a list of one solution."""
    return record["sQuestion"].strip(), _number(record["lSolutions"][0])


_Reader = Callable[[Mapping[str, Any]], tuple[str, str]]
_FILES: dict[str, tuple[str, _Reader]] = {
    "svamp": ("SVAMP.json", _svamp),
    "addsub": ("AddSub.json", _equations),
    "singleeq": ("questions.json", _equations),
}


def _number(value: Any) -> str:
    """A number as it is written: 51.0 as 51."""
    return f"{float(value):.10g}"


def _checked(read: _Reader, record: Mapping[str, Any], path: Path, i: int) -> tuple[str, str]:
    try:
        return read(record)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ValueError(
            f"{path}, record {i}: not in the benchmark's schema ({type(error).__name__}: {error}); "
            f"found {record!r:.200}"
        ) from error
