"""Word problems to aligned prompt pairs, with a count of those that could not be converted."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from arith_lens.pairs.prompt_pairs import PromptPairs
from arith_lens.pairs.rows import left_pad
from arith_lens.pairs.tokens import Prompt, encode, pieces, tokenizer_name, tokenizer_of
from arith_lens.pairs.wordings import role_spans
from arith_lens.word_problems.phrases import Edit
from arith_lens.word_problems.rewriting import Rewritten, rewrite

NO_PHRASE = "no phrase that asks for a number"
NO_CANDIDATE = "no replacement of the same number of tokens"
NO_ANSWER_TOKEN = "no token of the answer after END"
TOO_LONG = "too long"


@dataclass(frozen=True)
class WordProblem:
    """A prompt, and the answer that follows it directly."""

    text: str
    answer: str
    edits: tuple[Edit, ...]
    name: str = "word problem"  # what the pair is grouped by, as template


@dataclass(frozen=True)
class Conversion:
    """How many questions became pairs, and why the others did not."""

    n_questions: int
    kept: tuple[int, ...]  # which questions, counted from 0, in the pairs' order
    left_out: Mapping[str, int]  # reason: questions

    @property
    def n_converted(self) -> int:
        return len(self.kept)

    @property
    def share(self) -> float:
        """Of all questions, between 0 and 1."""
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
    counterfactual: Rewritten


def word_problem_pairs(
    model: Any,
    problems: Sequence[WordProblem | str],
    *,
    seed: int = 0,
    max_tokens: int | None = None,
) -> tuple[PromptPairs, Conversion]:
    """Aligned pairs of word problems: the words that ask for a number replaced (Appendix E).

    C is the first token of the answer, found by tokenizing prompt + answer. Operands and operator
    have no span. `computed` says that C's token stands nowhere in the prompt, so that no copying
    head can give it.

    Args:
        model: a model with a `.tokenizer`, or a tokenizer.
        problems: what to convert; a text says why there is nothing to convert, and is counted.
        seed: of the draw among the candidates.
        max_tokens: of a prompt, BOS included; the model's context if not given.

    Raises:
        ValueError: no problem is left; the message counts the reasons.
    """
    tokenizer = tokenizer_of(model)
    most = max_tokens or getattr(getattr(model, "cfg", None), "n_ctx", None)
    reasons = {i: said for i, said in enumerate(problems) if isinstance(said, str)}
    asked = {i: problem for i, problem in enumerate(problems) if not isinstance(problem, str)}
    reasons |= {i: NO_PHRASE for i, p in asked.items() if not any(e.needed for e in p.edits)}
    found = _tokenized(tokenizer, {i: p for i, p in asked.items() if i not in reasons}, seed)
    pairs = []
    for i, pair in found.items():
        if isinstance(pair, str):
            reasons[i] = pair
        elif most is not None and len(pair.prompt.ids) > most:
            reasons[i] = TOO_LONG
        else:
            pairs.append(pair)
    counted = dict(Counter(reasons.values()).most_common())
    report = Conversion(len(problems), tuple(pair.question for pair in pairs), counted)
    if not pairs:
        raise ValueError(f"no pair under {tokenizer_name(tokenizer)}: {report}")
    return _as_prompt_pairs(tokenizer, pairs), report


def _tokenized(
    tokenizer: Any, problems: Mapping[int, WordProblem], seed: int
) -> dict[int, _Pair | str]:
    """Each problem's pair, or the reason why there is none."""
    found: dict[int, _Pair | str] = {}
    left = dict(problems)
    texts = {i: problem.text + problem.answer for i, problem in left.items()}
    wholes = dict(zip(texts, encode(tokenizer, list(texts.values())), strict=True))
    for trim in (False, True):  # a trailing space that belongs to the number is cut
        texts = {i: p.text.rstrip(" ") if trim else p.text for i, p in left.items()}
        prompts = dict(zip(texts, encode(tokenizer, list(texts.values())), strict=True))
        tokens = {
            i: _first_token(tokenizer, prompts[i], wholes[i], problem.answer.strip())
            for i, problem in left.items()
        }
        ready = [i for i, token in tokens.items() if token is not None]
        others = rewrite(
            tokenizer, [texts[i] for i in ready], [left[i].edits for i in ready], seed=seed
        )
        for i, other in zip(ready, others, strict=True):
            token = tokens[i]
            assert token is not None
            pair = other and _Pair(i, left[i], prompts[i], token, other)
            found[i] = pair or NO_CANDIDATE
        left = {i: problem for i, problem in left.items() if i not in found}
    found |= dict.fromkeys(left, NO_ANSWER_TOKEN)
    return dict(sorted(found.items()))


def _first_token(tokenizer: Any, prompt: Prompt, whole: Prompt, answer: str) -> int | None:
    """The token after END, where prompt + answer goes on from the prompt with the answer's start.

    None where the answer changes how the prompt is split, or where a blank piece comes first.
    """
    n = len(prompt.ids)
    if whole.ids[:n] != prompt.ids or len(whole.ids) == n:
        return None
    said = tokenizer.decode([whole.ids[n]]).strip()
    return whole.ids[n] if said and answer.startswith(said) else None


def _as_prompt_pairs(tokenizer: Any, pairs: Sequence[_Pair]) -> PromptPairs:
    rows = [pair.prompt.ids for pair in pairs]
    others = [pair.counterfactual.prompt.ids for pair in pairs]
    answers = [pair.answer for pair in pairs]
    tokens, mask = left_pad(rows)
    absent = {"A": (0, 0), "op": (0, 0), "B": (0, 0)}
    return PromptPairs(
        reference=tokens,
        counterfactual=left_pad(others)[0],
        answer=torch.tensor(answers),
        attention_mask=mask,
        spans=role_spans(tokenizer, [(pair.prompt, absent) for pair in pairs], tokens.shape[1]),
        template=tuple(pair.problem.name for pair in pairs),
        computed=torch.tensor([pair.answer not in pair.prompt.ids for pair in pairs]),
        reference_text=tuple(_shown(pair) for pair in pairs),
        counterfactual_text=tuple(pair.counterfactual.text for pair in pairs),
        answer_text=tuple(tokenizer.decode([answer]).strip() for answer in answers),
        pieces=pieces(tokenizer, [*rows, *others, answers]),
    )


def _shown(pair: _Pair) -> str:
    """The reference, ending as the counterfactual does: with its trailing space or without."""
    text = pair.problem.text
    return text if pair.counterfactual.text.endswith(" ") else text.rstrip(" ")
