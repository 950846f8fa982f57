"""Word problems to aligned prompt pairs: GSM8K's questions, or any texts with their edits.

Each edit gets a candidate that keeps the number of tokens under the tokenizer. Questions that could
not be converted are counted.
"""

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from arith_lens.benchmarks import gold_answer, read_gsm8k, without_separators
from arith_lens.benchmarks.readers import Records
from arith_lens.options import check_choice
from arith_lens.pairs import PromptPairs, encode, tokenizer_of, tokens_after
from arith_lens.pairs.references import role_spans
from arith_lens.pairs.tokens import Prompt, Span, encode_ids, token_fields, tokenizer_name
from arith_lens.templates import NULL_SYMBOLS
from arith_lens.word_problems.phrases import PhraseEdit, question_edits

TRIES = 8  # the largest number of texts that are tried for one question


def rewrite(
    tokenizer: Any, texts: Sequence[str], edits: Sequence[Sequence[PhraseEdit]], *, seed: int = 0
) -> list[tuple[str, Prompt] | None]:
    """Make the edits of each text.

    A candidate must have as many tokens as the words that it replaces, between the same neighbours.
    This is estimated once per phrase. The whole text is then tokenized, and is used only if it has
    the reference's length and the same tokens outside the edits. The draw depends on `seed` and the
    text.

    Returns:
        Each rewritten text and its tokens: as many as before, and the same outside the edits. None
        for a text with a needed edit that has no aligned candidate.
    """
    contexts = [[_context(text, e) for e in of] for text, of in zip(texts, edits, strict=True)]
    aligned = _aligned(tokenizer, (context for of in contexts for context in of))
    choices = [
        [(edit, aligned[context]) for edit, context in zip(of, at, strict=True)]
        for of, at in zip(edits, contexts, strict=True)
    ]
    references = encode(tokenizer, texts)
    rngs = [random.Random(f"{seed} {text}") for text in texts]
    done: dict[int, tuple[str, Prompt]] = {}
    for _ in range(TRIES):
        sampled = {
            i: _made(texts[i], choices[i], rngs[i])
            for i in range(len(texts))
            if i not in done and _possible(choices[i])
        }
        prompts = encode(tokenizer, list(sampled.values()))
        for (i, text), prompt in zip(sampled.items(), prompts, strict=True):
            spans = [(edit.start, edit.stop) for edit, _ in choices[i]]
            if _same_outside(references[i], prompt, spans):
                done[i] = text, prompt
    return [done.get(i) for i in range(len(texts))]


def _aligned(tokenizer: Any, contexts: Iterable["_Context"]) -> dict["_Context", list[str]]:
    """For each phrase the candidates that have as many tokens. Each phrase is tokenized once."""
    distinct = dict.fromkeys(contexts)
    texts = list(dict.fromkeys(c.around(s) for c in distinct for s in (c.words, *c.candidates)))
    lengths = dict(zip(texts, map(len, encode_ids(tokenizer, texts)), strict=True))
    aligned = {}
    for context in distinct:
        others = [words for words in context.candidates if words != context.words]
        length = lengths[context.around(context.words)]
        aligned[context] = [w for w in others if lengths[context.around(w)] == length]
    return aligned


@dataclass(frozen=True)
class _Context:
    """Words with their candidates and the characters before and after them."""

    before: str
    words: str
    after: str
    candidates: tuple[str, ...]

    def around(self, words: str) -> str:
        return f"a{self.before}{words}{self.after}a"


def _context(text: str, edit: PhraseEdit) -> _Context:
    before, after = text[edit.start - 1 : edit.start] or " ", text[edit.stop : edit.stop + 1]
    return _Context(before, text[edit.start : edit.stop], after, edit.candidates)


def _possible(choices: Sequence[tuple[PhraseEdit, Sequence[str]]]) -> bool:
    return any(words for _, words in choices) and all(words for e, words in choices if e.needed)


def _made(
    text: str, choices: Sequence[tuple[PhraseEdit, Sequence[str]]], rng: random.Random
) -> str:
    """The text with one candidate drawn for each edit, the last edit first."""
    for edit, candidates in reversed(choices):
        if candidates:
            words = candidates[int(rng.random() * len(candidates))]
            text = text[: edit.start] + words + text[edit.stop :]
    return text


def _same_outside(reference: Prompt, other: Prompt, chars: Sequence[Span]) -> bool:
    """Whether two prompts have the same length and differ only at these characters."""
    if len(reference.ids) != len(other.ids) or reference.ids == other.ids:
        return False
    free = {i for span in chars for i in _tokens(reference, span)}
    pairs = enumerate(zip(reference.ids, other.ids, strict=True))
    return all(a == b or i in free for i, (a, b) in pairs)


def _tokens(prompt: Prompt, chars: Span) -> range:
    """The tokens of some characters, with a blank token before the word (`▁ al l`)."""
    start, stop = prompt.token_span(chars)
    blank = start > 1 and prompt.offsets[start - 1] == (0, 0)
    return range(start - blank, stop)


NO_PHRASE = "no phrase that asks for a number"
NO_CANDIDATE = "no replacement of the same number of tokens"
NO_ANSWER_TOKEN = "no token of the answer after END"
TOO_LONG = "too long"


@dataclass(frozen=True)
class WordProblem:
    """A prompt, and the answer that follows it directly."""

    text: str
    answer: str
    edits: tuple[PhraseEdit, ...]
    name: str = "word problem"
    """The name by which pairs are grouped, as their template."""


@dataclass(frozen=True)
class Conversion:
    """The number of questions that became pairs, and the reasons for the others."""

    n_questions: int
    converted: tuple[int, ...]
    """The numbers of the converted questions, from 0, in the order of the pairs."""
    left_out: Mapping[str, int]
    """For each reason, the number of questions."""

    @property
    def n_converted(self) -> int:
        return len(self.converted)

    @property
    def share(self) -> float:
        """The share of all questions, between 0 and 1."""
        return self.n_converted / self.n_questions if self.n_questions else float("nan")

    def __str__(self) -> str:
        lines = [f"{self.n_converted} of {self.n_questions} questions converted ({self.share:.1%})"]
        lines += [f"  {count:5} left out: {reason}" for reason, count in self.left_out.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class _Pair:
    question: int
    problem: WordProblem
    prompt: Prompt
    answer: int
    counterfactual_text: str
    counterfactual: Prompt


def word_problem_pairs(
    model: Any,
    problems: Sequence[WordProblem | str],
    *,
    seed: int = 0,
    max_tokens: int | None = None,
) -> tuple[PromptPairs, Conversion]:
    """Aligned pairs of word problems, with the words replaced that ask for a number (Appendix E).

    C is the first token of the answer; prompt and answer are tokenized together. Operands and
    operator have no span. `computed` means that C's token is nowhere in the prompt, so no copying
    head can give it.

    Args:
        model: a model with a `.tokenizer`, or a tokenizer.
        problems: the problems to convert. A text instead of a problem is a reason why there is
            none; it is counted.
        seed: the seed of the draw among the candidates.
        max_tokens: the largest length of a prompt, with BOS; None: the model's context.

    Returns:
        The pairs, and how many problems were converted.

    Raises:
        ValueError: no problem can be converted. The message counts the reasons.
    """
    tokenizer = tokenizer_of(model)
    most = max_tokens or getattr(getattr(model, "cfg", None), "n_ctx", None)
    reasons = {i: reason for i, reason in enumerate(problems) if isinstance(reason, str)}
    convertible = {i: problem for i, problem in enumerate(problems) if not isinstance(problem, str)}
    reasons |= {i: NO_PHRASE for i, p in convertible.items() if not any(e.needed for e in p.edits)}
    results = _tokenized(
        tokenizer, {i: p for i, p in convertible.items() if i not in reasons}, seed
    )
    pairs = []
    for i, pair in results.items():
        if isinstance(pair, str):
            reasons[i] = pair
        elif most is not None and len(pair.prompt.ids) > most:
            reasons[i] = TOO_LONG
        else:
            pairs.append(pair)
    counted = dict(Counter(reasons.values()).most_common())
    report = Conversion(len(problems), tuple(pair.question for pair in pairs), counted)
    if not pairs:
        raise ValueError(
            f"expected a problem that becomes a pair under {tokenizer_name(tokenizer)}, found "
            f"none: {report}; change other parts"
        )
    return _as_prompt_pairs(tokenizer, pairs), report


def _tokenized(
    tokenizer: Any, problems: Mapping[int, WordProblem], seed: int
) -> dict[int, _Pair | str]:
    """Each problem's pair, or the reason why there is none."""
    results: dict[int, _Pair | str] = {}
    left = dict(problems)
    texts = {i: problem.text + problem.answer for i, problem in left.items()}
    answered = dict(zip(texts, encode(tokenizer, list(texts.values())), strict=True))
    for trim in (False, True):  # a final space that belongs to the number is removed
        texts = {i: p.text.rstrip(" ") if trim else p.text for i, p in left.items()}
        prompts = dict(zip(texts, encode(tokenizer, list(texts.values())), strict=True))
        tokens = {
            i: token
            for i, p in left.items()
            if (token := _first_token(tokenizer, prompts[i], answered[i], p.answer.strip()))
            is not None
        }
        others = rewrite(
            tokenizer, [texts[i] for i in tokens], [left[i].edits for i in tokens], seed=seed
        )
        for (i, token), other in zip(tokens.items(), others, strict=True):
            pair = other and _Pair(i, left[i], prompts[i], token, *other)
            results[i] = pair or NO_CANDIDATE
        left = {i: problem for i, problem in left.items() if i not in results}
    results |= dict.fromkeys(left, NO_ANSWER_TOKEN)
    return dict(sorted(results.items()))


def _first_token(tokenizer: Any, prompt: Prompt, answered: Prompt, answer: str) -> int | None:
    """The token after END, if it is the beginning of the answer.

    Returns:
        None if the answer changes how the prompt is split, or if a blank token comes first.
    """
    after = tokens_after(prompt.ids, answered.ids)
    piece = tokenizer.decode([after[0]]).strip() if after else ""
    return after[0] if piece and answer.startswith(piece) else None


def _as_prompt_pairs(tokenizer: Any, pairs: Sequence[_Pair]) -> PromptPairs:
    answers = [pair.answer for pair in pairs]
    prompts, texts = [pair.prompt for pair in pairs], [_matching_text(pair) for pair in pairs]
    others = [pair.counterfactual for pair in pairs]
    return PromptPairs(
        **token_fields(tokenizer, prompts, others, answers),
        spans=role_spans(tokenizer, [(prompt, {}) for prompt in prompts]),
        template=tuple(pair.problem.name for pair in pairs),
        computed=torch.tensor([pair.answer not in pair.prompt.ids for pair in pairs]),
        reference_text=tuple(texts),
        counterfactual_text=tuple(pair.counterfactual_text for pair in pairs),
        answer_text=tuple(
            _blank_before(pair, text) + tokenizer.decode([pair.answer]).strip()
            for pair, text in zip(pairs, texts, strict=True)
        ),
    )


def _blank_before(pair: _Pair, text: str) -> str:
    """What stands between a prompt and its answer."""
    rest = (pair.problem.text + pair.problem.answer)[len(text) :]
    return rest[: len(rest) - len(rest.lstrip())]


def _matching_text(pair: _Pair) -> str:
    """The reference, with a final space only if the counterfactual has one."""
    text = pair.problem.text
    return text if pair.counterfactual_text.endswith(" ") else text.rstrip(" ")


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
    """Prompt pairs of GSM8K's questions (paper, Appendix E).

    Pairs are not filtered: `keep_correct(model, pairs)` keeps those that the model answers right.

    Args:
        model: a model with a `.tokenizer`, or a tokenizer.
        questions: a JSONL file, a folder of `<split>.jsonl`, a Hugging Face dataset id, or records
            with the keys `question` and `answer`.
        mode: "question": the prompt is the question + " The answer is ", and C is the first token
            of the gold answer, the number after "####". "equation": the prompt is the question and
            the solution up to the `=` of its last `<<...=...>>`, and C is the first token of the
            result. The operators of the last line are then replaced too, because they alone would
            give C.
        split: the split of a folder or a dataset id.
        seed: the seed of the draw among the replacements.
        max_tokens: longer prompts are left out; None: the model's context.

    Returns:
        The pairs, and how many questions were converted.

    Raises:
        ValueError: the mode is unknown, records have another schema, or no question can be
            converted.
        FileNotFoundError: there is no such file, folder or dataset id.
    """
    check_choice("mode", mode, MODES)
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
    """The problem of the mode "equation". The operators of the last line are edits too."""
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
        PhraseEdit(m.start(), m.end(), NULL_SYMBOLS) for m in _OPERATOR.finditer(text + "=", line)
    ]
    annotation = len(question) + 1 + match.start(1)
    if not any(edit.start >= annotation for edit in operators):
        return NO_EQUATION
    words = [
        PhraseEdit(e.start, e.stop, e.candidates, needed=False) for e in question_edits(question)
    ]
    return WordProblem(f"{text}=", result, (*words, *operators), "gsm8k/equation")
