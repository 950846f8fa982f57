"""GSM8K's records: a question, and a solution that ends in "#### " and the answer."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from arith_lens.benchmarks.parsing import without_separators
from arith_lens.benchmarks.sources import Row, hub_rows, json_lines

Records = str | Path | Iterable[Mapping[str, Any]]


def read_gsm8k(questions: Records, *, split: str = "test") -> list[dict[str, str]]:
    """The records, each with `question` and `answer` (solution, then "#### " and the number).

    Args:
        questions: a JSONL file, a folder of `<split>.jsonl`, a Hugging Face dataset id, or records
            with the keys `question` and `answer`.
        split: of a folder or a dataset id.

    Raises:
        ValueError: a line that is no JSON, or a record without one of the keys.
        FileNotFoundError: neither a file, a folder nor a dataset id that can be loaded.
    """
    place = str(questions) if isinstance(questions, str | Path) else "record"
    rows = _rows(questions, split) if isinstance(questions, str | Path) else questions
    records = []
    for number, row in enumerate(rows, 1):
        missing = [key for key in ("question", "answer") if not isinstance(row.get(key), str)]
        if missing:
            raise ValueError(
                f"{place}, {number}: expected the keys question and answer with text, found "
                f"{sorted(row)}; {', '.join(missing)} is missing"
            )
        records.append({"question": row["question"], "answer": row["answer"]})
    if not records:
        raise ValueError(f"{place}: no questions; expected records with question and answer")
    return records


def gold_answer(solution: str) -> str:
    """The number after "####", without thousands separators or currency; "" where there is none."""
    return without_separators(solution.rpartition("####")[2]) if "####" in solution else ""


def _rows(source: str | Path, split: str) -> Iterable[Row]:
    path = Path(source)
    file = path / f"{split}.jsonl" if path.is_dir() else path
    if file.is_file():
        return json_lines(file)
    if path.suffix in (".jsonl", ".json") or (isinstance(source, Path) and not path.is_dir()):
        raise FileNotFoundError(
            f"no file {path}: expected JSON lines with question and answer, a folder of "
            f"{split}.jsonl, or a dataset id such as openai/gsm8k"
        )
    advice = "Give a JSONL file, a folder with train.jsonl and test.jsonl, or records."
    return hub_rows(str(source), "main", split, advice)
