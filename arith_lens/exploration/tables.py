"""The tables of what parts do: heads and MLPs by the library's methods, and sets of them replaced.

Heads and MLPs are read one by one. A selection is a set of them: the model answers without it, or
with it alone.
"""

import random
import warnings
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from string import Formatter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.attention import attention_by_role, kinds_of, patterns_of
from arith_lens.components import Component, Head, Mlp, every_component, every_head, every_mlp
from arith_lens.effects import Effects
from arith_lens.explorer_page import Tables
from arith_lens.knockout import Knockout, engine_of, random_order
from arith_lens.knockout.outcomes import OUTCOME_MEASURES
from arith_lens.mediation import mediators
from arith_lens.model import HookedLike
from arith_lens.neurons import neuron_effects
from arith_lens.pairs import PromptPairs, Role, pieces, tokenizer_of
from arith_lens.path_patching import path_patch
from arith_lens.probes import digit_tokens
from arith_lens.probes.reading import columns_of
from arith_lens.templates import FIGURE_10, TEMPLATES
from arith_lens.tensor_parallel import full_weight

if TYPE_CHECKING:
    from pandas import DataFrame

N_ANSWERED, N_SHOWN, N_TEMPLATES = 100, 24, 2
"""The most problems that are answered under a page's knockouts, those of them that are shown, and
the wordings that they have in turn."""
N_DRAWS = 10
"""Random sets of each size, beside the sets of the reader's choice."""
N_SENDERS, N_NEURONS = 6, 8
"""Rows of a table that are kept: the strongest senders of each input, neurons of each MLP."""


def problem_rows(pairs: PromptPairs) -> Int[Tensor, " row"]:
    """One pair of each problem, in one of two wordings; of many problems, some at equal distances.

    The wordings alternate in the Thue-Morse order, so that problems at equal distances have both.
    """
    template = pairs.template or ("",) * len(pairs)
    wordings = list(dict.fromkeys(template))[:N_TEMPLATES]
    by_problem: dict[str, dict[str, int]] = {}
    for row, (problem, name) in enumerate(zip(pairs.problem, template, strict=True)):
        by_problem.setdefault(problem, {}).setdefault(name, row)
    rows = [
        of.get(wordings[number.bit_count() % len(wordings)], next(iter(of.values())))
        for number, of in enumerate(by_problem.values())
    ]
    return _at_equal_distances(torch.tensor(rows), N_ANSWERED)


def sample_rows(pairs: PromptPairs) -> Int[Tensor, " row"]:
    """The pairs whose prompts are shown: some of `problem_rows`."""
    return _at_equal_distances(problem_rows(pairs), N_SHOWN)


def _at_equal_distances(rows: Int[Tensor, " row"], most: int) -> Int[Tensor, " chosen"]:
    n = min(most, len(rows))
    return rows[torch.arange(n) * len(rows) // max(n, 1)]


def wordings_of(pairs: PromptPairs) -> dict[str, str]:
    """The text of each template, with A and B in place of the numbers, by its name in `units`."""
    known = {one.name: one for one in (*chain(*TEMPLATES.values()), *FIGURE_10)}
    texts = {}
    for name in dict.fromkeys(pairs.units["template"] or ()):
        own, separator, examples = name.partition(", ")
        if own in known:
            operator = getattr(known[own], "word", "")
            parts = Formatter().parse(known[own].text)
            text = "".join(
                literal + {"op": operator, None: ""}.get(field, field or "")
                for literal, field, _, _ in parts
            )
            texts[name] = text.strip() + separator + examples
    return texts


def spaced(piece: str) -> str:
    """A token as text."""
    return piece.replace("▁", " ").replace("Ġ", " ")


def prompt_tables(model: HookedLike, pairs: PromptPairs) -> dict[str, "DataFrame"]:
    """The prompts and their tokens."""
    from pandas import DataFrame

    tokenizer = tokenizer_of(model)
    names = pieces(tokenizer, [*pairs.reference.tolist(), *pairs.counterfactual.tolist()])
    names |= pieces(tokenizer, [pairs.answer.tolist()])

    def texts(rows: Int[Tensor, "pair pos"], known: Sequence[str] | None) -> list[str]:
        unpadded = [
            row[mask].tolist() for row, mask in zip(rows, pairs.attention_mask, strict=True)
        ]
        return list(known or (" ".join(names[token] for token in row) for row in unpadded))

    prompts = {
        "prompt": range(len(pairs)),
        "reference": texts(pairs.reference, pairs.reference_text),
        "counterfactual": texts(pairs.counterfactual, pairs.counterfactual_text),
        "answer": [spaced(names[token]) for token in pairs.answer.tolist()],
        "problem": list(pairs.problem),
        "template": list(pairs.template or ("",) * len(pairs)),
    }
    tokens = []
    masks = (
        {} if pairs.spans is None else {str(role): pairs.role_mask(role) for role in pairs.roles}
    )
    for number, (row, mask) in enumerate(zip(pairs.reference, pairs.attention_mask, strict=True)):
        for position, column in enumerate(mask.nonzero().flatten().tolist()):
            role = next((name for name, where in masks.items() if where[number, column]), "")
            tokens.append((number, position, names[int(row[column])], role))
    return {
        "prompts": DataFrame(prompts),
        "tokens": DataFrame(tokens, columns=["prompt", "position", "token", "role"]),
    }


def stream_rows(pairs: PromptPairs) -> Int[Tensor, " row"]:
    """The rows of `sample_rows` that have the wording and the length of the first one."""
    rows = sample_rows(pairs)
    wordings = pairs.template or ("",) * len(pairs)
    shapes = [(wordings[row], int(pairs.lengths[row])) for row in rows.tolist()]
    return rows[torch.tensor([shape == shapes[0] for shape in shapes], dtype=torch.bool)]


def stream_table(model: HookedLike, pairs: PromptPairs) -> Tables:
    """The effect of the residual stream after each layer, at each token of one wording."""
    few = pairs[stream_rows(pairs)]
    options: dict[str, Any] = {"positions": "each", "paths": "total", "engine": "hooks"}
    effects = path_patch(model, few, senders="resid_post", progress=False, **options).stream
    assert effects is not None
    tokens = prompt_tables(model, few[:1])["tokens"].drop(columns="prompt")
    table: Any = effects.to_dataframe()[["layer", "mean", "ci_low", "ci_high"]]
    table = table.assign(n_pairs=len(few), position=[*tokens.position] * int(model.cfg.n_layers))
    return {"stream": table.merge(tokens)}


def attention_tables(model: HookedLike, pairs: PromptPairs, heads: Sequence[Any]) -> Tables:
    """Attention by role, and the kind of each head, if prompts have operands."""
    from pandas import DataFrame

    looks = attention_by_role(model, pairs, heads)
    table: Any = looks.to_dataframe().rename(columns={"head": "component"})
    kinds = kinds_of(looks) if bool(pairs.role_mask(Role.OPERAND_A).any()) else {}
    return {
        "attention": table[["component", "role", "mean", "ci_low", "ci_high"]],
        "kinds": DataFrame({"component": list(kinds), "kind": list(kinds.values())}),
    }


def pattern_table(
    model: HookedLike, pairs: PromptPairs, heads: Sequence[Head], in_full: Sequence[Component]
) -> "DataFrame":
    from pandas import DataFrame

    if pairs.reference_text is None:
        raise ValueError("expected pairs with text, found bare tokens; see PromptPairs.from_rows")
    patterns = patterns_of(model, pairs.reference_text, heads)
    rows = []
    for prompt, weights in enumerate(patterns.weights):
        end = weights.shape[-1] - 1
        for head, pattern in zip(heads, weights.tolist(), strict=True):
            queries = range(end + 1) if head in in_full else [end]
            rows += [
                (str(head), prompt, query, key, round(pattern[query][key], 3))
                for query in queries
                for key in range(query + 1)
            ]
    return DataFrame(rows, columns=["component", "prompt", "query", "key", "weight"])


def end_patterns(model: HookedLike, pairs: PromptPairs, components: Sequence[Component]) -> Tables:
    """The attention from END of the heads among some components, on every prompt."""
    heads = [one for one in components if isinstance(one, Head)]
    return {"patterns": pattern_table(model, pairs, heads, [])}


def role_tables(components: Sequence[Component], read: str, probe: Effects) -> Tables:
    """The table of a probe by role, over all pairs."""
    table: Any = probe.to_dataframe()
    table.insert(0, "component", np.repeat([*map(str, components)], probe.per_pair.shape[1]))
    table.insert(1, "read", read)
    return {"numbers": table[["component", "read", "token", "mean", "ci_low", "ci_high"]]}


def digit_tables(components: Sequence[Component], read: str, probe: Effects) -> Tables:
    """The table of a probe by digit, on the sample."""
    from pandas import DataFrame

    grid = np.indices(probe.per_pair.shape).reshape(3, -1)
    by_digit = {
        "component": np.array([*map(str, components)], dtype=object)[grid[0]],
        "read": read,
        "prompt": grid[2],
        "digit": grid[1],
        "logit": np.round(probe.per_pair.flatten().numpy(), 2),
    }
    return {"digits": DataFrame(by_digit)}


def of_layers(probe: Effects, layers: Sequence[int]) -> Effects:
    return Effects(probe.per_pair[layers], probe.axes, probe.metric, **probe.units,
                   labels=probe.labels)  # fmt: skip


def _strongest(table: "DataFrame", by: list[str], n: int) -> Any:
    """The n rows of each group with the largest means, to both sides of 0."""
    return table.sort_values("mean", key=abs, ascending=False).groupby(by, sort=False).head(n)


ALL_OTHERS, NOT_EXPLAINED = "all others", "not explained"
"""Senders of the table of inputs that are no single parts: the sum of those that have no row, and
what is left of the head's change when the shares of all senders are summed."""


def input_table(shares: Effects) -> "DataFrame":
    """The strongest senders of each input, and what they leave open; the means sum to 1."""
    from pandas import DataFrame, concat

    table: Any = shares.to_dataframe().dropna(subset=["mean"]).rename(columns={"head": "component"})
    strongest = _strongest(table, ["component", "input"], N_SENDERS)
    others: Any = table.drop(strongest.index).groupby(["component", "input"], sort=False)["mean"]
    others = others.sum().reset_index().assign(sender=ALL_OTHERS)
    rest = 1 - shares.per_pair.sum(1).nansum(1)
    rest[shares.per_pair.isnan().all(1).all(1)] = float("nan")
    heads = {"head": (shares.labels or {})["head"]}
    left = Effects(rest, ("head",), shares.metric, **shares.units, labels=heads).to_dataframe()
    left = DataFrame(left.rename(columns={"head": "component"}).dropna(subset=["mean"]))
    left = left.assign(input="", sender=NOT_EXPLAINED)
    columns = ["component", "input", "sender", "mean", "ci_low", "ci_high"]
    table = concat([strongest, others, left], ignore_index=True)
    return table[columns]


def mediation_table(model: HookedLike, pairs: PromptPairs, heads: Sequence[Head]) -> "DataFrame":
    table: Any = mediators(model, pairs, heads, progress=False).to_dataframe()
    mlps = np.array([Mlp.parse(name).layer for name in table["mlp"]])
    after = mlps >= table["layer"].to_numpy()  # an MLP before the head mediates nothing of it
    table = table.drop(columns=["layer", "index", "mlp"]).rename(columns={"head": "component"})
    table.insert(1, "layer", mlps)
    return table[after]


@torch.no_grad()
def neuron_table(model: HookedLike, pairs: PromptPairs, mlps: Sequence[Mlp]) -> "DataFrame":
    table: Any = neuron_effects(model, pairs, mlps).to_dataframe()
    table = table.rename(columns={"mlp": "component"})
    table = _strongest(table, ["component"], N_NEURONS)
    written = torch.stack([
        full_weight(model.blocks[int(name.split()[-1])].mlp.W_out[int(neuron)]).float().cpu()
        for name, neuron in zip(table["component"], table["neuron"], strict=True)
    ])  # fmt: skip
    with suppress(ValueError):  # after these prompts, a digit is no token
        columns = columns_of(model, digit_tokens(model, pairs[:1]))[0]
        cosines = torch.nn.functional.normalize(written, dim=-1) @ columns.T
        for digit in range(10):
            table[f"cosine_{digit}"] = np.round(cosines[:, digit].numpy(), 3)
    return table.drop(columns=["stderr", "n"])


def merged(parts: Iterable[Tables]) -> dict[str, "DataFrame"]:
    """The rows of the same tables after one another."""
    from pandas import concat

    frames: dict[str, list[DataFrame]] = {}
    for tables in parts:
        for name, frame in tables.items():
            frames.setdefault(name, []).append(frame)
    return {
        name: concat([part for part in some if len(part)] or some[:1], ignore_index=True)
        for name, some in frames.items()
    }


N_NEXT = 3
"""Next tokens of a prompt."""
BATCH = 64
KNOCKOUT_POSITIONS = {"knock_out": "all", "keep_only": "end"}
"""Where components are replaced: knocked out at every token; others than those kept at END."""

T = TypeVar("T")
Steps: TypeAlias = Generator[float, None, T]
"""A computation that yields how much of it is done, between 0 and 1, and returns its result."""


def _order(component: Component) -> tuple[int, int]:
    """Layer by layer, heads before the MLP."""
    return component.layer, component.index if isinstance(component, Head) else 10**6


def finished(steps: Steps[T]) -> T:
    """The result of all steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def selections(
    model: HookedLike,
    pairs: PromptPairs,
    rows: Int[Tensor, " row"],
    sample: Int[Tensor, " shown"],
    sets: Sequence[Sequence[Component]],
    kind: str,
    controls: Sequence[Sequence[Component]] = (),
) -> Steps[Tables]:
    """Accuracy and next tokens when sets of components are knocked out, or kept only.

    Replacements are means over all pairs, as in `knock_out` and `keep_only`. Where a set keeps
    heads alone, MLPs stay as they are.

    Args:
        model, pairs: as in `explored`.
        rows: the pairs that are answered.
        sample: those of them whose answers are shown.
        kind: a key of `KNOCKOUT_POSITIONS`.
        controls: random sets, of which the accuracy alone is noted: those of `random_sets`, of
            one size after the other.
    """
    chosen = [*sets, *controls]
    everything: list[Component] = list({member for members in chosen for member in members})
    variants = [frozenset(members) for members in chosen]
    if kind == "keep_only":
        n_layers, n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)
        everything, heads = every_component(n_layers, n_heads), every_head(n_layers, n_heads)
        with_mlps = [any(isinstance(x, Mlp) for x in members) for members in variants]
        variants = [
            frozenset(everything if mlps else heads) - members
            for mlps, members in zip(with_mlps, variants, strict=True)
        ]
    with warnings.catch_warnings():  # of own prompts, whose mean is of one
        warnings.simplefilter("ignore", UserWarning)
        knockout = Knockout(positions=KNOCKOUT_POSITIONS[kind])
        engine = engine_of(model, pairs, everything, knockout)
    done = []
    for part in rows.split(BATCH):
        yield sum(len(one[0, 0]) for one in done) / len(rows)
        of_part = engine.select(part)

        def read(logits: Tensor, within: Tensor, answer: Tensor = of_part.pairs.answer) -> Tensor:
            return _next_tokens(logits, answer[within])

        done.append(of_part(variants, progress=False, read=read))
    values = torch.cat(done, dim=-1)
    members = [",".join(map(str, sorted(one, key=_order))) for one in sets]
    places = torch.tensor([rows.tolist().index(row) for row in sample.tolist()])
    of_sets, of_controls = values[:, : len(sets)], values[:2, len(sets) :]
    tables = {
        "sets": _sets(pairs[rows], of_sets[:2], members, kind),
        "answers": _answers(model, of_sets[:, :, places], members, kind),
    }
    if controls:
        tables["controls"] = _controls(pairs[rows], of_controls, controls, kind)
    return tables


def random_sets(model: HookedLike, heads: int, mlps: int = 0) -> list[tuple[Component, ...]]:
    """`N_DRAWS` random sets of as many heads and MLPs: what any such set costs."""
    n_layers = int(model.cfg.n_layers)
    sets: list[tuple[Component, ...]] = []
    for seed in range(N_DRAWS):
        layers = every_mlp(n_layers)
        random.Random(seed).shuffle(layers)
        order = random_order(n_layers, int(model.cfg.n_heads), seed)
        sets.append((*order[:heads], *layers[:mlps]))
    return sets


def _next_tokens(
    logits: Float[Tensor, "state pair d_vocab"], answer: Int[Tensor, " pair"]
) -> Float[Tensor, "what state pair"]:
    """Whether the answer is first, p(C), the most likely tokens, and their probabilities."""
    target = answer.to(logits.device).expand(logits.shape[:2])[..., None]
    probability = logits.float().softmax(-1)
    top = probability.topk(min(N_NEXT, logits.shape[-1]), dim=-1)
    correct = probability.argmax(-1, keepdim=True) == target
    parts = [correct, probability.gather(-1, target), top.indices, top.values]
    return torch.cat([part.double() for part in parts], dim=-1).movedim(-1, 0).cpu()


def _sets(
    pairs: PromptPairs, values: Float[Tensor, "measure=2 set pair"], members: list[str], kind: str
) -> "DataFrame":
    from pandas import DataFrame

    effects = Effects(
        values.float(),
        ("measure", "set"),
        "after knockout",
        **pairs.units,
        labels={"measure": OUTCOME_MEASURES},
    )
    mean, (low, high) = effects.mean(), effects.ci()
    columns = {"accuracy": mean[0], "ci_low": low[0], "ci_high": high[0], "probability": mean[1]}
    return DataFrame(
        {"kind": kind, "members": members}
        | {name: np.round(value.numpy(), 4) for name, value in columns.items()}
        | {"n_pairs": len(pairs)}
    )


def _controls(
    pairs: PromptPairs,
    values: Float[Tensor, "measure=2 set pair"],
    controls: Sequence[Sequence[Component]],
    kind: str,
) -> "DataFrame":
    """One row per random set: how many heads and MLPs it has, accuracy, mean p(C)."""
    from pandas import DataFrame

    effects = Effects(values.float(), ("measure", "set"), "after knockout", **pairs.units)
    accuracy, probability = effects.mean()
    n_heads = [sum(isinstance(one, Head) for one in members) for members in controls]
    return DataFrame({
        "kind": kind,
        "draw": [number % N_DRAWS for number in range(len(controls))],
        "n_heads": n_heads,
        "n_mlps": [len(one) - n for one, n in zip(controls, n_heads, strict=True)],
        "accuracy": np.round(accuracy.numpy(), 4),
        "probability": np.round(probability.numpy(), 4),
    })  # fmt: skip


def _answers(
    model: HookedLike, values: Float[Tensor, "what set pair"], members: list[str], kind: str
) -> "DataFrame":
    from pandas import DataFrame

    n_sets, n_pairs = values.shape[1:]
    flat = values.flatten(1)
    n_next = (len(flat) - 2) // 2
    ids, probabilities = flat[2 : 2 + n_next].long(), flat[2 + n_next :]
    names = pieces(tokenizer_of(model), ids.tolist())
    columns: dict[str, Any] = {
        "kind": kind,
        "members": np.repeat(np.array(members, dtype=object), n_pairs),
        "prompt": np.tile(np.arange(n_pairs), n_sets),
        "correct": flat[0].bool().numpy(),
        "probability": np.round(flat[1].numpy(), 3),
    }
    for rank in range(n_next):
        columns[f"token_{rank + 1}"] = [spaced(names[token]) for token in ids[rank].tolist()]
        columns[f"probability_{rank + 1}"] = np.round(probabilities[rank].numpy(), 3)
    return DataFrame(columns)
