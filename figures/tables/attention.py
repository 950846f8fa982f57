"""The tables of attention from END: of heads by the roles of tokens, and on single prompts.

`attention` has the keys operation; kind of heads ("operand", "operator", "other", "random"); head,
or "mean" for the mean over the heads of a kind; key_head, "yes" or "no"; role. The heads of a kind
are in the order of their effects, the strongest first.

`attention in other formats` and `attention on operation words` have the keys prompt, or "mean" for
the mean over the prompts; head; query, the token that looks; position of the token that is looked
at, from 0; token, its text. A word has the position of its first token.
"""

from collections.abc import Iterator, Sequence

import torch

from arith_lens.attention import Patterns
from arith_lens.components import Head
from arith_lens.effects import Effects
from arith_lens.pairs import Role
from arith_lens.plotting import visible
from arith_lens.runs import Run
from experiments import results
from figures.tables.number import Number, over_draws
from figures.tables.table import QuestionTable, Row, interval_numbers, row, sample_rows

KINDS = ("operand", "operator", "other")
RANDOM = "random"
"""The kind of the control heads."""
MEAN = "mean"
"""As a head or a prompt: the mean over all of them."""
WEIGHT, EFFECT, HEADS = "weight", "effect on the answer's logit", "heads"
PROBLEM_WEIGHT = "weight on A, B and the operator"
PROBLEM_ROLES = (Role.OPERAND_A, Role.OPERAND_B, Role.OPERATOR)


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `where_do_they_look`. Raises RunError if it is damaged."""
    rows: list[Row] = []
    for operation in results.ROLE_ATTENTION.labels(run):
        facts = results.ROLE_ATTENTION.facts(run, operation)
        strongest = results.ROLE_ATTENTION.load(run, operation)
        effects = results.MAP.load(run, operation).heads
        rows += sample_rows(facts, operation=operation)
        for kind in KINDS:
            heads = [head for head in _labels(strongest, "head") if facts["kinds"][head] == kind]
            rows += _kind_rows(operation, kind, _part(strongest, heads), effects, facts["key"])
        control = results.RANDOM_ATTENTION.load(run, operation)
        rows += _kind_rows(operation, RANDOM, control, effects, ())
    return QuestionTable.of("attention", str(run.config["model"]), rows)


def _labels(weights: Effects, axis: str) -> tuple[str, ...]:
    """The names along one axis."""
    assert weights.labels is not None
    return weights.labels[axis]


def _part(weights: Effects, heads: Sequence[str]) -> Effects:
    """The weights of some heads."""
    names = _labels(weights, "head")
    chosen = torch.tensor([names.index(head) for head in heads], dtype=torch.long)
    labels = {**(weights.labels or {}), "head": tuple(heads)}
    values = weights.per_pair[chosen]
    return Effects(values, weights.axes, weights.metric, **weights.units, labels=labels)


def _kind_rows(
    operation: str, kind: str, weights: Effects, effects: Effects, key: Sequence[str]
) -> Iterator[Row]:
    """The heads of one kind: how many, their mean weights, and each one's effect and weights."""
    keys = {"operation": operation, "kind": kind}
    heads, roles = _labels(weights, "head"), _labels(weights, "role")
    yield row(HEADS, Number(len(heads), unit="count"), **keys)
    if not heads:
        return
    of_problem = weights.per_pair[:, [roles.index(role) for role in PROBLEM_ROLES]].sum(1)
    over_heads = torch.cat([weights.per_pair.mean(0), of_problem.mean(0, keepdim=True)])
    means = Effects(over_heads, ("role",), weights.metric, **weights.units)
    *by_role, together = interval_numbers(means, "share")
    for role, number in zip(roles, by_role, strict=True):
        yield row(WEIGHT, number, **keys, head=MEAN, key_head="", role=role)
    yield row(PROBLEM_WEIGHT, together, **keys, head=MEAN)
    changes = interval_numbers(effects, "relative")
    of_heads = iter(interval_numbers(weights, "share"))
    for name in heads:
        head, marked = Head.parse(name), {"head": name, "key_head": "yes" if name in key else "no"}
        change = changes[head.layer * effects.per_pair.shape[1] + head.index]
        yield row(EFFECT, change, **keys, **marked)
        for role in roles:
            yield row(WEIGHT, next(of_heads), **keys, **marked, role=role)


BLANKS = " ▁Ġ"
"""How tokenizers write the blank before a word."""
END = "END"
WORD_WEIGHT, DIGIT_WEIGHT = "weight of the word", "weight of all digits"


def formats_table(run: Run, /) -> QuestionTable:
    """Operand heads on formats that they were not found with, of a run of `where_do_they_look`."""
    return _prompts_table(run, "formats", "attention in other formats")


def words_table(run: Run, /) -> QuestionTable:
    """Operator heads on the word of each operation, of a run of `where_do_they_look`."""
    return _prompts_table(run, "words", "attention on operation words")


def _prompts_table(run: Run, result: str, question: str) -> QuestionTable:
    """Raises RunError if the run has no such patterns."""
    patterns = results.PATTERNS.load(run, result)
    return QuestionTable.of(question, str(run.config["model"]), pattern_rows(patterns))


def pattern_rows(patterns: Patterns) -> Iterator[Row]:
    """What END, the last token, gives to each token and to each word of each prompt."""
    on_digits: dict[str, list[float]] = {head: [] for head in patterns.heads}
    for prompt, tokens, weights in zip(
        patterns.prompts, patterns.tokens, patterns.weights, strict=True
    ):
        words = word_groups(tokens)
        names = _shown(tokens, words)
        for head, from_end in zip(patterns.heads, weights[:, -1].double().numpy(), strict=True):
            keys = {"prompt": prompt, "head": head, "query": END}
            for at, (token, weight) in enumerate(zip(tokens, from_end, strict=True)):
                number = Number(float(weight))
                yield row(WEIGHT, number, **keys, position=at, token=visible(token))
            for word, name in zip(words, names, strict=True):
                number = Number(float(from_end[word].sum()))
                yield row(WORD_WEIGHT, number, **keys, position=word[0], token=name)
            digits = [token.strip(BLANKS).isdecimal() for token in tokens]
            on_digits[head].append(float(from_end[digits].sum()))
            yield row(DIGIT_WEIGHT, Number(on_digits[head][-1]), **keys)
    for head, shares in on_digits.items():
        mean = over_draws(shares, unit="share", what="prompts")
        yield row(DIGIT_WEIGHT, mean, prompt=MEAN, head=head, query=END)


def _shown(tokens: Sequence[str], words: Sequence[Sequence[int]]) -> list[str]:
    """The text of each word, with a visible blank; the last one is END."""
    texts = ["".join(tokens[i] for i in word).strip(BLANKS) for word in words]
    return [*(visible(text) if text else "␣" for text in texts[:-1]), END]


def word_groups(tokens: Sequence[str]) -> list[list[int]]:
    """The indices of the tokens of each word, in order.

    Pieces of one word are joined. Digits, blanks, signs and special tokens stay alone, and so does
    the last token, END.
    """
    words: list[list[int]] = []
    open_word = False
    for index, token in enumerate(tokens):
        letters = token.strip(BLANKS).isalpha() and index < len(tokens) - 1
        if letters and open_word and token[0] not in BLANKS:
            words[-1].append(index)
        else:
            words.append([index])
        open_word = letters
    return words
