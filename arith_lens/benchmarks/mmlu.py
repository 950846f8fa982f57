"""MMLU's files: one csv a subject for dev and test, finished prompts for val."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from arith_lens.benchmarks.sources import Row, csv_rows, json_lines

LETTERS = "ABCDE"
HUMANITIES = (
    *("formal_logic", "high_school_european_history", "high_school_us_history"),
    *("high_school_world_history", "international_law", "jurisprudence", "logical_fallacies"),
    *("moral_disputes", "moral_scenarios", "philosophy", "prehistory", "professional_law"),
    "world_religions",
)
"""MMLU's subjects of this group, as its authors sort them."""
_FINISHED = re.compile(
    r"The following are multiple choice questions[^\n]*\n\n(.*)"
    r"\nA\. (.*?)\nB\. (.*?)\nC\. (.*?)\nD\. (.*?)\nAnswer:",
    re.DOTALL,
)


def mmlu_rows(folder: Path, split: str, subjects: str | Sequence[str]) -> list[Row]:
    """Rows in the hub's schema: question, subject, choices, answer (index or letter)."""
    if split == "val":
        return chosen_subjects(_finished_rows(folder), subjects, place=str(folder / split))
    files = {path.name.removesuffix(f"_{split}.csv"): path for path in _csv_files(folder, split)}
    wanted = _wanted(subjects, tuple(files), str(folder / split))
    return [row for subject in wanted for row in _csv_questions(files[subject], subject)]


def chosen_subjects(rows: Iterable[Row], subjects: str | Sequence[str], *, place: str) -> list[Row]:
    """The rows of these subjects, sorted by them."""
    by_subject: dict[str, list[Row]] = {}
    for row in rows:
        by_subject.setdefault(row["subject"], []).append(row)
    return [row for s in _wanted(subjects, tuple(by_subject), place) for row in by_subject[s]]


def _wanted(subjects: str | Sequence[str], found: Sequence[str], place: str) -> Sequence[str]:
    named = {"all": tuple(sorted(found)), "humanities": HUMANITIES}
    wanted = named.get(subjects, (subjects,)) if isinstance(subjects, str) else tuple(subjects)
    unknown = [subject for subject in wanted if subject not in found]
    if unknown:
        raise ValueError(
            f"no questions of {', '.join(unknown)} in {place}: expected 'all', 'humanities' or "
            f"names of {', '.join(sorted(found))}"
        )
    return wanted


def _csv_files(folder: Path, split: str) -> list[Path]:
    found = sorted((folder / split).glob(f"*_{split}.csv"))
    if not found:
        raise FileNotFoundError(
            f"no {folder / split}/*_{split}.csv: expected MMLU's files, one a subject"
        )
    return found


def _csv_questions(path: Path, subject: str) -> list[Row]:
    """With or without a header row; the authors' own files have none, and letters as answers."""
    rows = csv_rows(path)
    if rows and rows[0][0] == "question":
        rows = rows[1:]
    questions: list[Row] = []
    for number, row in enumerate(rows, 1):
        if len(row) != 6:
            raise ValueError(
                f"{path}, question {number}: expected question, four choices and the answer (A to "
                f"D, or 0 to 3), found {row}"
            )
        answer = row[5].strip()
        questions.append(
            {"question": row[0], "subject": subject, "choices": row[1:5], "answer": answer}
        )
    return questions


def _finished_rows(folder: Path) -> list[Row]:
    """The prompts of val taken apart."""
    found = sorted((folder / "val").glob("*_val.jsonl"))
    if not found:
        raise FileNotFoundError(
            f"no {folder / 'val'}/*_val.jsonl: expected MMLU's files, prompts with their letters"
        )
    return [_taken_apart(row, path, i) for path in found for i, row in enumerate(json_lines(path))]


def _taken_apart(row: Row, path: Path, i: int) -> Row:
    match = _FINISHED.fullmatch(str(row.get("input")))
    if match is None or "subject" not in row or "output" not in row:
        raise ValueError(
            f"{path}, record {i}: expected subject, input (a prompt with choices A to D) and "
            f"output (a letter), found {row!r:.200}"
        )
    question, *choices = match.groups()
    return {
        "question": question,
        "subject": row["subject"],
        "choices": choices,
        "answer": row["output"].strip(),
    }
