"""GSM8K's questions as prompt pairs (paper, Appendix E): the two modes."""

import re
from collections.abc import Mapping
from typing import Any

from arith_lens.benchmarks.gsm8k import Records, gold_answer, read_gsm8k
from arith_lens.benchmarks.parsing import without_separators
from arith_lens.pairs.prompt_pairs import PromptPairs
from arith_lens.templates import NULL_SYMBOLS
from arith_lens.word_problems.convert import Conversion, WordProblem, word_problem_pairs
from arith_lens.word_problems.phrases import Edit, question_edits

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
