"""GSM8K's questions as prompt pairs (paper, Appendix E): records, answers, the two modes."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from arith_lens.benchmarks.parsing import without_separators
from arith_lens.pairs.prompt_pairs import PromptPairs
from arith_lens.templates import NULL_SYMBOLS
from arith_lens.word_problems.convert import Conversion, WordProblem, word_problem_pairs
from arith_lens.word_problems.phrases import Edit, question_edits

Records = str | Path | Iterable[Mapping[str, Any]]
MODES = ("question", "equation")
NOT_WHOLE = "the answer is not a whole number"
NEGATIVE = "the answer is negative"
NO_EQUATION = "no annotation with an operator in the solution"
_LAST = re.compile(r"<<([^<>]*)=([^<>=]*)>>(?![\s\S]*<<)")
_OPERATOR = re.compile(r"(?<=[\d\s)%$.])[-+*/×÷x](?=[\s\d($.])")


def gsm8k_pairs(
    model: Any,
    questions: Records,
    *,
    mode: str = "question",
    split: str = "test",
    seed: int = 0,
    max_tokens: int | None = None,
) -> tuple[PromptPairs, Conversion]:
    """Prompt pairs of GSM8K's questions, and how many became pairs (paper, Appendix E).

    Pairs are not filtered: `keep_correct(model, pairs)` keeps those that the model answers right.

    Args:
        model: a model with a `.tokenizer`, or a tokenizer.
        questions: a JSONL file, a folder of `<split>.jsonl`, a Hugging Face dataset id, or records
            with the keys `question` and `answer`.
        mode: "question": question + " The answer is ", and C the first token of the gold answer,
            the number after "####". "equation": question and solution up to the `=` of its last
            `<<...=...>>`, and C the first token of the result; there the operators of the last
            line are replaced too, since they alone would give C.
        split: of a folder or a dataset id.
        seed: of the draw among the replacements.
        max_tokens: longer prompts are left out; the model's context if not given.

    Raises:
        ValueError: an unknown mode, records of another schema, or no question that converts.
        FileNotFoundError: neither a file, a folder nor a dataset id that can be loaded.
    """
    if mode not in MODES:
        raise ValueError(f"mode={mode!r}: expected one of {', '.join(map(repr, MODES))}")
    make = _question if mode == "question" else _equation
    records = read_gsm8k(questions, split=split)
    return word_problem_pairs(model, [make(r) for r in records], seed=seed, max_tokens=max_tokens)


def read_gsm8k(questions: Records, *, split: str = "test") -> list[dict[str, str]]:
    """The records, each with `question` and `answer` (solution, then "#### " and the number).

    Raises:
        ValueError: a line that is no JSON, or a record without one of the keys.
        FileNotFoundError: as `gsm8k_pairs`.
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
    said = solution.rpartition("####")[2] if "####" in solution else ""
    return without_separators(said)


def _rows(source: str | Path, split: str) -> Iterable[Mapping[str, Any]]:
    path = Path(source)
    file = path / f"{split}.jsonl" if path.is_dir() else path
    if file.is_file():
        return _lines(file)
    if path.suffix in (".jsonl", ".json") or (isinstance(source, Path) and not path.is_dir()):
        raise FileNotFoundError(
            f"no file {path}: expected JSON lines with question and answer, a folder of "
            f"{split}.jsonl, or a dataset id such as openai/gsm8k"
        )
    return _dataset(str(source), () if path.is_dir() else ("main",), split)


def _dataset(source: str, configuration: tuple[str, ...], split: str) -> Any:
    from datasets import load_dataset

    try:
        return load_dataset(source, *configuration, split=split)
    except (ConnectionError, FileNotFoundError, ValueError) as error:
        raise FileNotFoundError(
            f"no questions at {source!r}: there is no such file, no {split}.jsonl in a folder of "
            f"that name, and as a dataset it did not load ({type(error).__name__}: {error}). Give "
            "a JSONL file, a folder with train.jsonl and test.jsonl, or records."
        ) from error


def _lines(path: Path) -> Iterable[Mapping[str, Any]]:
    lines = path.read_text(encoding="utf-8-sig").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not a JSON object ({error})") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: expected a JSON object, found {row!r}")
        yield row


def _question(record: Mapping[str, str]) -> WordProblem | str:
    answer = gold_answer(record["answer"])
    if not re.fullmatch(r"-?\d+", answer):
        return NOT_WHOLE
    if answer.startswith("-"):
        return NEGATIVE
    question = record["question"].strip()
    return WordProblem(
        f"{question} The answer is ", answer, question_edits(question), "gsm8k/question"
    )


def _equation(record: Mapping[str, str]) -> WordProblem | str:
    """The solution stops in its last annotation; its last line's operators are edits too."""
    match = _LAST.search(record["answer"])
    if match is None:
        return NO_EQUATION
    result = without_separators(match[2])
    if not result[:1].isdigit():
        return NEGATIVE if result.startswith("-") else NOT_WHOLE
    question = record["question"].strip()
    text = f"{question}\n{record['answer'][: match.end(1)]}"
    line = max(text.rfind("\n"), len(question)) + 1
    operators = [
        Edit(m.start(), m.end(), NULL_SYMBOLS) for m in _OPERATOR.finditer(text + "=", line)
    ]
    annotation = len(question) + 1 + match.start(1)
    if not any(edit.start >= annotation for edit in operators):
        return NO_EQUATION
    words = [Edit(e.start, e.stop, e.candidates, needed=False) for e in question_edits(question)]
    return WordProblem(f"{text}=", result, (*words, *operators), "gsm8k/equation")
