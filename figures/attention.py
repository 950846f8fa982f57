"""Figures 5, 7 and 16: where heads look from END, by role and on a few prompts.

They read a run of `experiments where_do_they_look` (by its settings, or `--run PATH`) and are
drawn without loading a model.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.attention import Patterns
from arith_lens.effects import Effects
from arith_lens.runs import Run
from arith_lens.views import HeadMap, head_map
from experiments import results
from figures.common import Options, chosen_run, sample_size
from figures.exhibit import Chart

EXPERIMENT = "where_do_they_look"
HEAD_GROUPS = {
    "operand": ("Operand heads", plotting.RUST, ("operand a", "operand b")),
    "operator": ("Operator heads", plotting.TEAL, ("operator",)),
    "other": ("Other strong heads", plotting.NOTE, ()),
    "random": ("Random heads", plotting.NOTE, ()),
}
"""The name and colour of each row, and the roles that define its heads."""
ROLE_NAMES = {"operand a": "A", "operand b": "B", "other": "other words"}
N_NAMED = 4
"""Heads whose names are in a title."""


def fig5(options: Options) -> list[Chart]:
    """Figure 5: where operand heads and operator heads look from END, in four operations.

    Reads a run of `experiments where_do_they_look` (by its settings, or `--run PATH`) and
    draws it without loading a model: HTML that opens offline, PNG, SVG and PDF where Chrome or
    Chromium is found, and the numbers as CSV. It also writes a page of every head.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, EXPERIMENT)
    strongest = {name: results.ROLE_ATTENTION.load(run, name) for name in run.config["operations"]}
    control = {name: results.RANDOM_ATTENTION.load(run, name) for name in strongest}
    return [
        Chart(
            name="fig5",
            title="Figure 5: where the key heads look from END",
            look=_look(run, strongest, control),
            notes=_role_notes(run),
            runs=(run,),
            numbers=_numbers(run, strongest, control),
            figure=_draw_roles(run, strongest, control),
            views=(_head_patterns(run),),
            views_name="heads",
        )
    ]


def _look(run: Run, strongest: dict[str, Effects], control: dict[str, Effects]) -> str:
    """What to look for, and what the run's own heads look at."""
    parts = []
    for name, weights in strongest.items():
        n_operand, n_operator = (
            len(_heads_of(run, name, weights, kind)) for kind in ("operand", "operator")
        )
        n_heads = len(_labels(weights, "head"))
        parts.append(f"{name} {n_operand} and {n_operator} of {n_heads}")
    shares = []
    for weights in control.values():
        means = dict(zip(_labels(weights, "role"), weights.mean().mean(0).tolist(), strict=True))
        shares.append(sum(means[role] for role in ("operand a", "operand b", "operator")))
    return (
        "Operand heads look at A and B, operator heads at the word or sign of the operation. The "
        "paper finds both kinds, and little attention elsewhere. Here the strongest heads hold "
        f"operand heads and operator heads as follows: {'; '.join(parts)}. Random heads give A, B "
        f"and the operator {min(shares):.0%} to {max(shares):.0%} together."
    )


def _labels(weights: Effects, axis: str) -> list[str]:
    """The names along one axis."""
    assert weights.labels is not None
    return [*weights.labels[axis]]


def _heads_of(run: Run, operation: str, weights: Effects, kind: str) -> list[str]:
    """The heads of one kind, the strongest first."""
    heads, kinds = _labels(weights, "head"), results.ROLE_ATTENTION.facts(run, operation)["kinds"]
    return heads if kind == "random" else [head for head in heads if kinds[head] == kind]


def _head_patterns(run: Run) -> HeadMap:
    """A map of the first operation's effects; a click shows where that head looks."""
    operation = run.config["operations"][0]
    effects = results.MAP.load(run, operation).heads.mean()
    patterns = results.PATTERNS.load(run, "all")
    from_end = patterns.weights[0][:, -1].reshape(*effects.shape, -1)
    return head_map(
        100 * effects.numpy(),
        from_end.numpy(),
        patterns.tokens[0],
        title=f"Effects on the answer's logit in {operation}, and the attention from END in "
        f"“{patterns.prompts[0].strip()}”",
        values_title="effect, %",
    )


def _draw_roles(
    run: Run, strongest: dict[str, Effects], control: dict[str, Effects]
) -> plotting.Figure:
    """One row per kind of heads, one column per operation."""
    panels = []
    for kind, (title, colour, known_by) in HEAD_GROUPS.items():
        for operation, weights in (control if kind == "random" else strongest).items():
            roles, heads = _labels(weights, "role"), _heads_of(run, operation, weights, kind)
            bars = plotting.Bars(
                *_mean_weights(weights, heads),
                colour=colour,
                strong=np.array([role in known_by for role in roles]),
            )
            panels.append(
                plotting.BarPanel(
                    title=_title(run, operation, kind, heads),
                    names=tuple(ROLE_NAMES.get(role, role) for role in roles),
                    series=(bars,),
                    y_title=title * (operation == next(iter(strongest))),
                    ink=colour,
                )
            )
    return plotting.bar_panels(
        panels,
        y_range=(0, 1.0),
        notes=_role_notes(run),
        across=len(strongest),
        panel=(190, 120),
        names_below=True,
    )


def _mean_weights(weights: Effects, heads: list[str]) -> Float[np.ndarray, "statistic=3 role"]:
    """The mean over some heads and its interval; NaN without heads."""
    if not heads:
        return np.full((3, weights.per_pair.shape[1]), np.nan)
    names = _labels(weights, "head")
    rows = torch.tensor([names.index(head) for head in heads])
    over_heads = Effects(weights.per_pair[rows].mean(0), ("role",), weights.metric, **weights.units)
    return torch.stack([over_heads.mean(), *over_heads.ci()]).double().numpy()


def _title(run: Run, operation: str, kind: str, heads: list[str]) -> str:
    """The heads, key heads in bold; in the first row after the operation."""
    key = results.ROLE_ATTENTION.facts(run, operation)["key"]
    if kind == "random":
        return f"<span style='font-size:11px'>{len(heads)} heads</span>"
    names = [f"<b>{head}</b>" if head in key else head for head in heads]
    if len(heads) > N_NAMED:
        names = [*names[:N_NAMED], f"{len(heads) - N_NAMED} more"]
    text = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]])) or "none"
    heads_text = f"<span style='font-size:11px'>{text}</span>"
    name = plotting.plain(operation.capitalize())
    return f"{name}<br>{heads_text}" if kind == next(iter(HEAD_GROUPS)) else heads_text


def _numbers(run: Run, strongest: dict[str, Effects], control: dict[str, Effects]) -> DataFrame:
    """Mean weights, one row per head and role; random heads too."""
    tables = []
    for operation, weights in strongest.items():
        facts, table = results.ROLE_ATTENTION.facts(run, operation), weights.to_dataframe()
        table.insert(0, "operation", operation)
        table["key"] = table["head"].isin(facts["key"])
        table["kind"] = [facts["kinds"][head] for head in table["head"]]
        tables.append(table)
    for operation, weights in control.items():
        table = weights.to_dataframe()
        table.insert(0, "operation", operation)
        tables.append(table.assign(key=False, kind="random"))
    return concat(tables, ignore_index=True)


def _role_notes(run: Run) -> list[str]:
    """How to read Figure 5, and what it was made from."""
    config = run.config
    facts = {name: results.ROLE_ATTENTION.facts(run, name) for name in config["operations"]}
    without = ", ".join(name for name, of_one in facts.items() if not of_one["key"])
    return [
        f"Model: {config['model']}. Prompts: {', '.join(map(sample_size, facts.values()))}, all "
        f"answered right, seed {config['seed']}. Mean attention weight from END over heads and "
        "prompts, summed within a role, nothing renormalised; bars: 95% intervals.",
        f"The {config['top']} heads with the strongest effect on the answer's logit, key heads "
        "(effect below −5%) in bold. Operand head: of its weight outside BOS at least half goes to "
        "A and B; operator head: to the operator. Random: as many other heads. Above each chart: "
        "its heads, the strongest first." + f" No key heads: {without}." * bool(without),
    ]


BLANKS = " ▁Ġ"
"""How tokenizers write the blank before a word."""


def fig7(options: Options) -> list[Chart]:
    """Figure 7: the attention of operand heads on formats that they were not found with.

    Reads a run of `experiments where_do_they_look` (by its settings, or `--run PATH`) and
    draws it without loading a model.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, EXPERIMENT)
    patterns = results.PATTERNS.load(run, "formats")
    shares = np.mean(
        [
            weights[:, -1][:, [token.strip(BLANKS).isdecimal() for token in tokens]].sum(1).numpy()
            for tokens, weights in zip(patterns.tokens, patterns.weights, strict=True)
        ],
        axis=0,
    )
    parts = [f"{head} {share:.0%}" for head, share in zip(patterns.heads, shares, strict=True)]
    return _patterns_chart(
        run,
        patterns,
        name="fig7",
        title="Figure 7: operand heads on formats that they were not found with",
        look="Whether the heads found in single-digit calculations still look at the numbers of "
        "word problems, time spans and decimals. In the paper they do. Here digits have this share "
        f"of their attention, on average over the prompts: {', '.join(parts)}.",
        says="Operand heads of one operation at least, on formats that they were not found with.",
    )


def fig16(options: Options) -> list[Chart]:
    """Figure 16: the attention of operator heads on the word of each operation.

    Reads a run of `experiments where_do_they_look` (by its settings, or `--run PATH`) and
    draws it without loading a model.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, EXPERIMENT)
    patterns = results.PATTERNS.load(run, "words")
    sentences = _sentences(patterns)
    parts = [
        f"{head} {', '.join(one.words[int(one.values[row].argmax())] for one in sentences)}"
        for row, head in enumerate(patterns.heads)
    ]
    return _patterns_chart(
        run,
        patterns,
        name="fig16",
        title="Figure 16: operator heads on the word of each operation",
        look="Whether one head looks at the operation in whichever words it comes. In the paper "
        "the same heads look at plus, minus, times and divided by. Here the words with the largest "
        f"weights are, in order of the prompts: {'; '.join(parts)}.",
        says="Heads that are operator heads in one operation at least, on one sentence with each "
        "word.",
    )


def _patterns_chart(
    run: Run, patterns: Patterns, *, name: str, title: str, look: str, says: str
) -> list[Chart]:
    """One panel per prompt, one row per head, one column per word. `says` begins the notes."""
    notes = [
        says,
        f"Model: {run.config['model']}. Heads by the strength of their effect on the answer's "
        f"logit in single-digit calculations, seed {run.config['seed']}. Blue and printed: the "
        "weight in percent that END, the last token, gives to each token, from 1% on. Pieces of a "
        "word are one cell with their sum; digits (framed) and blanks (␣) are cells of their own.",
    ]
    return [
        Chart(
            name=name,
            title=title,
            look=look,
            notes=notes,
            runs=(run,),
            numbers=patterns.to_dataframe(),
            figure=plotting.sentence_panels(
                _sentences(patterns), legend="Attention from END", notes=notes
            ),
            views=tuple(patterns.view(index) for index in range(len(patterns.prompts))),
            views_name=f"{name}-patterns",
        )
    ]


def _sentences(patterns: Patterns) -> list[plotting.Sentence]:
    """Each prompt, with the weight in percent from END to each word. The last token is END."""
    sentences = []
    for prompt, tokens, weights in zip(
        patterns.prompts, patterns.tokens, patterns.weights, strict=True
    ):
        words = word_groups(tokens)
        texts = ["".join(tokens[i] for i in word).strip(BLANKS) for word in words]
        names = (*(plotting.visible(text) if text else "␣" for text in texts[:-1]), "END")
        from_end = 100 * weights[:, -1].numpy()
        sentences.append(
            plotting.Sentence(
                title=f"“{prompt.strip()}”",
                rows=patterns.heads,
                words=names,
                values=np.stack([from_end[:, word].sum(1) for word in words], axis=1),
                marked=tuple(name.isdecimal() for name in names),
            )
        )
    return sentences


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
