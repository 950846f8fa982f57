"""Questions with their answers, for a model with or without hooks.

A model answers by greedy text, or by the most likely of some choices.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import torch

from arith_lens.answers.result import Answers
from arith_lens.arrays import Arrays
from arith_lens.benchmarks import LETTERS, Record, load_records, same_number, without_separators
from arith_lens.benchmarks.records import ANSWER_AT_ONCE
from arith_lens.components import NamedHook
from arith_lens.hooks import hooks_digest
from arith_lens.model import left_pad, require_evaluation_mode, token_rows
from arith_lens.options import refuse_unknown_options, value_object
from arith_lens.runs import ResultSlot, Run

SHOTS_FROM = {"mmlu": "dev", "csqa": "train"}


@dataclass(frozen=True)
class Question:
    """A prompt that ends where its answer starts.

    Numbers are compared by their value, words by their letters. With `choices`, the most likely of
    them is the model's answer.
    """

    prompt: str
    answer: str
    task: str = "questions"
    choices: tuple[str, ...] = ()
    """The possible answers after the prompt and a space, such as A to D; empty: free text."""


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
        data_dir: the folder that contains the benchmarks' folders; None: the hub.
        split: as in `load_records`. The default is test for GSM8K and MMLU, the whole set for
            SVAMP, AddSub and SingleEq, and dev for csqa.
        prompt: the prompt of a word problem, with {question}. MMLU has its authors' prompt, and
            csqa the same without its first line.
        subjects: the subjects of MMLU: "all", "humanities", or names.
        shots: the number of answered examples before each question with choices. For MMLU they
            come from the subject's dev split, for csqa from train.

    Raises:
        ValueError: the name, split or subject is unknown, or records have another schema.
        FileNotFoundError: a file does not exist.
    """
    records = load_records(name, data_dir, split=split, subjects=subjects)
    if not records[0].choices:
        return [Question(prompt.format(question=r.question), r.gold, name) for r in records]
    introductions = _introductions(name, data_dir, {r.subject for r in records}, shots)
    return [
        Question(
            introductions[r.subject] + _lettered(r),
            f" {r.gold}",
            f"{name}/{r.subject}" if r.subject else name,
            tuple(LETTERS[: len(r.choices)]),
        )
        for r in records
    ]


def _introductions(
    name: str, data_dir: str | Path | None, subjects: set[str], shots: int
) -> dict[str, str]:
    """The text before the questions of each subject: the authors' first line, then the shots."""
    head = "The following are multiple choice questions (with answers) about {}.\n\n"
    heads = {s: head.format(s.replace("_", " ")) if s else "" for s in subjects}
    if shots:
        wanted = sorted(subjects) if name == "mmlu" else "all"
        examples = load_records(name, data_dir, split=SHOTS_FROM[name], subjects=wanted)
        for subject in subjects:
            own = [record for record in examples if record.subject == subject][:shots]
            heads[subject] += "".join(f"{_lettered(r)} {r.gold}\n\n" for r in own)
    return heads


def _lettered(record: Record) -> str:
    lines = [f"{a}. {text}" for a, text in zip(LETTERS, record.choices, strict=False)]
    return "\n".join([record.question, *lines, "Answer:"])


NUMBER = re.compile(r"\s*\$?\s*(-?(?:\d[\d,]*)?\.?\d+)")


@dataclass(frozen=True)
class _TokenizedQuestion:
    """A question in tokens."""

    index: int
    question: Question
    ids: list[int]
    n_new: int
    """The number of tokens to generate: the answer's, and one more to see where a number ends."""


@dataclass(frozen=True)
class Decoding:
    """How answers are written; `answer_questions` explains each option."""

    hook_steps: Literal["all", "prompt"] = "all"
    batch_size: int = 128
    max_new_tokens: int | None = None


@dataclass(frozen=True)
class Marking:
    """Which answers are right; `answer_questions` explains each option."""

    tolerance: int | float = 1e-3
    whole_words: bool = True


class AnswerOptions(TypedDict, total=False):
    """The options of `answer_questions`."""

    hook_steps: Literal["all", "prompt"]
    batch_size: int
    max_new_tokens: int | None
    tolerance: int | float
    whole_words: bool


def answer_questions(
    model: Any,
    questions: Sequence[Question],
    *,
    hooks: Iterable[NamedHook] = (),
    run: Run | None = None,
    name: str = "answers",
    facts: Mapping[str, Any] | None = None,
    progress: bool = False,
    **options: Unpack[AnswerOptions],
) -> Answers:
    """Ask a model questions and compare its answers, by greedy decoding.

    An answer must follow the prompt at once. A number is right if its value is right (thousands
    separators and `$` do not matter), so a further digit makes it wrong. A word is right if exactly
    this word is written, whatever follows it. For a question with choices, the answer is the choice
    with the largest logit after the prompt; other tokens are ignored.

    Args:
        model: a HookedModel.
        questions: a list of Question, such as from `load_questions`.
        hooks: interventions that act during the answers, such as `ablate_heads(...)`.
        hook_steps: as in `HookedModel.generate`; "prompt" for hooks with positions.
        batch_size: the number of questions that run together. They have similar lengths and are
            padded on the left.
        max_new_tokens: the largest number of new tokens; None: as many as the longest answer of a
            batch needs.
        tolerance: the largest difference of a right number from the answer's value.
        whole_words: whether a word must end where the answer ends. If not, "mice" is right where
            "mi" is expected (the model cards of the reference models use this).
        run: an open run, which stores finished batches, and then the answers.
        name: the name of the answers in the run.
        facts: JSON values to store in the run, such as which heads are out.
        progress: whether to show a progress bar.

    Raises:
        ValueError: there are no questions, a prompt is longer than the model's context, choices are
            not different single tokens, or the model is in training mode.
        TypeError: an option does not exist.
    """
    refuse_unknown_options(answer_questions, options, Decoding, Marking)
    decoding, marking = value_object(Decoding, options), value_object(Marking, options)
    if not questions:
        raise ValueError("expected at least one Question(prompt, answer), found none; add one")
    require_evaluation_mode(model)
    hooks = list(hooks)
    tokenized = [_tokenized(model.tokenizer, i, question) for i, question in enumerate(questions)]
    _check_lengths(model, tokenized)
    question = {
        "method": "answer_questions",
        "questions": hashlib.sha256(repr(list(questions)).encode()).hexdigest(),
        "hooks": hooks_digest(hooks) if run else None,
        **vars(decoding),
        **vars(marking),
    }
    slot = ResultSlot.of(run, name, model, None, **question)
    if (arrays := slot.stored(progress=progress, **(facts or {}))) is not None:
        return Answers.from_arrays(arrays)
    batches = _batches(tokenized, decoding.batch_size)

    def answers_of_shard(index: int) -> Arrays:
        batch = batches[index]
        if batch[0].question.choices:
            texts = _chosen(model, batch, hooks)
        else:
            texts = _written(model, batch, hooks, decoding)
        return Arrays({}, {"said": texts})

    sizes = [len(batch) for batch in batches]
    bar: dict[str, Any] = {"title": "answers", "unit": "question", "sizes": sizes}
    shards = slot.shards(answers_of_shard, len(batches), progress=progress, **bar)
    texts_by_index = {
        item.index: text
        for batch, shard in zip(batches, shards, strict=True)
        for item, text in zip(batch, shard.header["said"], strict=True)
    }
    texts = tuple(texts_by_index[i] for i in range(len(questions)))
    right = [
        is_right(text, question, **vars(marking))
        for text, question in zip(texts, questions, strict=True)
    ]
    expected = tuple(question.answer.strip() for question in questions)
    tasks = tuple(question.task for question in questions)
    return slot.save(Answers(torch.tensor(right), texts, expected, tasks), **(facts or {}))


def _batches(questions: Sequence[_TokenizedQuestion], size: int) -> list[list[_TokenizedQuestion]]:
    """Batches of questions of similar length, either all with choices or all without."""
    batches = []
    for has_choices in (False, True):
        group = [item for item in questions if bool(item.question.choices) == has_choices]
        group.sort(key=lambda item: (item.n_new, len(item.ids)))
        batches += [group[start : start + size] for start in range(0, len(group), size)]
    return batches


def is_right(
    written: str,
    question: Question,
    *,
    tolerance: int | float = Marking.tolerance,
    whole_words: bool = Marking.whole_words,
) -> bool:
    """Whether a text after the prompt begins with the answer; see `answer_questions`."""
    answer = question.answer.strip()
    gold = _value(NUMBER.fullmatch(answer))
    if gold is not None:
        return same_number(_value(NUMBER.match(written)), gold, tolerance)
    text = written.lstrip()
    goes_on = whole_words and text[len(answer) :][:1].isalnum()
    return text.startswith(answer) and not goes_on


def _value(match: re.Match[str] | None) -> float | None:
    return None if match is None else float(without_separators(match[1]))


def _tokenized(tokenizer: Any, index: int, question: Question) -> _TokenizedQuestion:
    """The prompt's ids. A final space is removed if the tokenizer joins it to the answer."""
    full, ids = token_rows(tokenizer, [question.prompt + question.answer, question.prompt])
    if full[: len(ids)] != ids:
        (ids,) = token_rows(tokenizer, [question.prompt.rstrip(" ")])
    n_answer = max(1, len(full) - len(ids))
    n_new = n_answer + (n_answer - 1) // 3 + 1  # with commas, then one more
    return _TokenizedQuestion(index, question, ids, n_new)


def _check_lengths(model: Any, questions: Sequence[_TokenizedQuestion]) -> None:
    most = getattr(model.cfg, "n_ctx", None)
    longest = max(questions, key=lambda a: len(a.ids) + a.n_new)
    needed = len(longest.ids) + longest.n_new
    if most is not None and needed > most:
        raise ValueError(
            f"expected at most {most} tokens, the model's context, found {needed} in question "
            f"{longest.index}; leave it out, or give fewer shots"
        )


def _written(
    model: Any, batch: Sequence[_TokenizedQuestion], hooks: list[NamedHook], decoding: Decoding
) -> list[str]:
    """The text that greedy decoding writes after each prompt."""
    tokens, mask = left_pad([item.ids for item in batch])
    generated = model.generate(
        tokens,
        fwd_hooks=hooks,
        hook_steps=decoding.hook_steps,
        attention_mask=mask,
        max_new_tokens=decoding.max_new_tokens or max(item.n_new for item in batch),
    )
    new = generated[:, tokens.shape[1] :].tolist()
    before = _decoded(model.tokenizer, [item.ids for item in batch])
    after = _decoded(model.tokenizer, [a.ids + ids for a, ids in zip(batch, new, strict=True)])
    return [text[len(start) :] for start, text in zip(before, after, strict=True)]


def _decoded(tokenizer: Any, rows: list[list[int]]) -> list[str]:
    return tokenizer.batch_decode(
        rows, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


def _chosen(model: Any, batch: Sequence[_TokenizedQuestion], hooks: list[NamedHook]) -> list[str]:
    """The choice with the largest logit at END, for each question."""
    tokens, mask = left_pad([item.ids for item in batch])
    with torch.no_grad():
        logits = model.run_with_hooks(
            tokens, fwd_hooks=hooks, attention_mask=mask, logits_to_keep=1
        )[:, -1].float()
    best = []
    for item, row in zip(batch, logits, strict=True):
        letters = [_next_token(model.tokenizer, item, choice) for choice in item.question.choices]
        if len(set(letters)) < len(letters):
            raise ValueError(
                f"expected choices with a different next token each after "
                f"{item.question.prompt[-30:]!r} under this tokenizer, found "
                f"{item.question.choices}; use other labels"
            )
        best.append(item.question.choices[int(row[letters].argmax())])
    return best


def _next_token(tokenizer: Any, item: _TokenizedQuestion, choice: str) -> int:
    prompt = item.question.prompt
    joined = prompt + choice if prompt.endswith((" ", "\n")) else f"{prompt} {choice}"
    return token_rows(tokenizer, [joined])[0][len(item.ids)]
